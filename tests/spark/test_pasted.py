"""Lines that `local-queue` prints to paste, and the examples of the pages, do what they say."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from sqs_fifo_spark.local import LocalQueueServer
from sqs_fifo_spark.local.cli import usage
from tests.spark.setups import fill
from tests.spark.sink import assert_each_once_in_order, expected, take_all
from tests.spark.support import Rig, in_both_modes
from tests.unit.test_readme import DOCS, snippets

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
        assert " reading bids.fifo: about " in done.stderr, "Spark's default log does not say how the query begins"
        assert "100" in done.stdout
        assert "auction-1" in done.stdout
        assert server.messages("bids.fifo") == []


@in_both_modes
def test_pasted_copy_of_a_queue_has_each_message_once_and_in_order(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The examples of the sink's pages, as they stand there, but for the queues, and that they end."""
    pages = (DOCS / "sink.md", DOCS / "sink-order.md")
    programs = [code for page in pages for code in snippets(page) if code.endswith(_LAST_LINE)]
    (code,) = (each for each in programs if ('"deleteAfter", "journal"' in each) is rig.may_split)
    copied = rig.create_queue("accepted.fifo")
    for name, url in (("bids.fifo", rig.url), ("accepted.fifo", copied)):
        there = f"https://sqs.eu-west-1.amazonaws.com/123456789012/{name}"
        assert there in code
        code = code.replace(there, url)
    fill(rig.server, rig.url, 60, groups=3)
    rig.home = tmp_path / "accepted"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(StreamingQuery, "awaitTermination", lambda query: rig.drain(query))
    exec(code, {})
    assert_each_once_in_order(take_all(rig.server, copied), expected(60, groups=3))
