"""The project that `init` writes, with the package from the wheel in it: its own test moves 1,000 messages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.spark.builds import make_environment
from tests.spark.setups import environment, run_to_end
from tests.spark.support import ROOT, SPARK_VERSION


@pytest.mark.long
@pytest.mark.skipif(SPARK_VERSION < (4, 2), reason="AvailableNow does not drain the queue")
def test_the_projects_own_test_passes(tmp_path: Path) -> None:
    """Nothing of this checkout is on its path."""
    project = tmp_path / "bids"
    run_to_end([sys.executable, "-m", "sqs_fifo_spark", "init", project], tmp_path, environment(PYTHONPATH=ROOT))
    (wheel,) = project.joinpath("wheels").iterdir()
    python = make_environment(tmp_path / "environment", wheel=wheel)
    printed = run_to_end([python, "-m", "pytest", "-p", "no:cacheprovider"], project, environment())
    assert "1 passed" in printed
