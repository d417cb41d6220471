"""`make demo` shows what the README promises, on Spark itself."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sqs_fifo_spark.local import LocalQueueServer


@pytest.fixture(params=["local", "given"])
def arguments(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Give the queue: the demo's own, or an empty one, whose key may do no more than `iam-doctor.json` lets it.

    The key that the demo has for its own queue may do nothing there.
    """
    if request.param == "local":
        yield []
        return
    text = (Path(__file__).resolve().parents[2] / "conf" / "iam-doctor.json").read_text(encoding="utf-8")
    policy = json.loads(text.replace("REGION:ACCOUNT_ID:QUEUE", "us-east-1:000000000000:q"))
    policy["Statement"] = policy["Statement"][:1]
    policies = {"local": {**policy, "Statement": []}, os.environ["AWS_ACCESS_KEY_ID"]: policy}
    with LocalQueueServer(queues=["q.fifo"], policies=policies) as server:
        yield ["--queue-url", server.queue_url("q.fifo"), "--endpoint-url", server.endpoint_url]
        assert server.messages() == []


@pytest.mark.long
def test_the_demo_kills_the_query_and_a_worker_and_every_bid_arrives_once(arguments: list[str], tmp_path: Path) -> None:
    """Both kills come to pass, the audit is clean, and the last line names a command that shows what is kept."""
    kept = tmp_path / "kept"
    command = [sys.executable, "-m", "sqs_fifo_spark", "demo", "--messages", "2000", "--keep", str(kept), *arguments]
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
