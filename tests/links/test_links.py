"""Large messages come over a link that needs longer for ten of them than a call without an answer may take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.support import ROOT

pytestmark = pytest.mark.long

LOAD = {"messages": 12, "groups": 6, "body-bytes": 262_144, "bandwidth": 200e3, "journal": "path", "mode": "commit"}


def test_each_comes_once_in_order_and_is_received_twice_at_most(tmp_path: Path) -> None:
    """The short form of `python -m tests.links`: a receive of ten takes 13 seconds here."""
    load = [f"--{name}={value}" for name, value in LOAD.items()]
    log = tmp_path / "log.txt"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "tests.links", *load]
        ended = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT)
    assert ended.returncode == 0, log.read_text(errors="replace")[-3000:]
