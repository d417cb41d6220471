"""What the command `local-queue` prints to paste does what it says."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

from sqs_fifo_spark.local import LocalQueueServer
from sqs_fifo_spark.local.cli import usage

_LAST_LINE = "query.awaitTermination()\n"


@pytest.mark.long
def test_printed_lines_read_the_queue_as_they_stand() -> None:
    """The exports in a shell, then the rest in Python: the message that it sends comes out of Spark."""
    with LocalQueueServer(queues=["bids.fifo"], region="eu-west-1") as server:
        printed = usage(server.endpoint_url, [server.queue_url("bids.fifo")], "eu-west-1")
        lines = printed.splitlines(keepends=True)
        exports = "".join(line for line in lines if line.startswith("export "))
        program = "".join(line for line in lines if not line.startswith("export "))
        assert program.endswith(_LAST_LINE)
        # All the same, but for the end, which would wait for ever.
        program = program.removesuffix(_LAST_LINE) + "query.processAllAvailable(); query.stop()\n"
        script = f"{exports}exec {shlex.quote(sys.executable)} -c {shlex.quote(program)}"
        unset = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION", "AWS_REGION")
        done = subprocess.run(
            ["bash", "-c", script],
            env={name: value for name, value in os.environ.items() if name not in unset},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "100" in done.stdout
        assert "auction-1" in done.stdout
        assert server.messages("bids.fifo") == []
