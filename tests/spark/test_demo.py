"""`make demo` shows what the README promises, on Spark itself."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
def test_the_demo_kills_the_query_and_a_worker_and_every_bid_arrives_once(tmp_path: Path) -> None:
    """Both kills come to pass, the audit is clean, and the last line names a command that shows what is kept."""
    kept = tmp_path / "kept"
    command = [sys.executable, "-m", "sqs_fifo_spark", "demo", "--messages", "2000", "--keep", str(kept)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(
        r"^  killed +2   with kill -9: the query 1 x, and a Python worker of Spark 1 x$", ran.stdout, re.MULTILINE
    )
    for fault in ("lost", "doubled", "out of order"):
        assert re.search(rf"^  {fault} +0 ", ran.stdout, re.MULTILINE)
    last = re.fullmatch(r"All is kept in .+\. Look at the journal: (.+); .+", ran.stdout.splitlines()[-1])
    assert last
    shown = subprocess.run(shlex.split(last[1]), capture_output=True, text=True, timeout=60, check=False)
    assert shown.returncode == 0, shown.stderr
    assert {"journal", "checkpoint", "parquet", "spark.log"} <= {path.name for path in kept.iterdir()}
