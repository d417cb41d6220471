"""Lines to paste, from `local-queue`, the README and the pages, do what they say."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

from sqs_fifo_spark.local import LocalQueueServer
from sqs_fifo_spark.local.cli import usage
from tests.spark.setups import fill
from tests.spark.sink import assert_each_once_in_order, expected, held_in
from tests.spark.support import Rig, assert_each_once, in_both_modes
from tests.unit.test_readme import DOCS, README, snippets

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
        env = {name: value for name, value in os.environ.items() if name not in unset}
        done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr
        assert " reading bids.fifo: about " in done.stderr, "Spark's default log does not say how the query begins"
        assert "100" in done.stdout
        assert "auction-1" in done.stdout
        assert server.messages("bids.fifo") == []


def run(code: str, places: dict[str, str]) -> None:
    for there, here in places.items():
        assert there in code
        code = code.replace(there, here)
    exec(code, {})


def test_first_query_of_the_readme_reads_a_queue(rig: Rig, ends_when_drained: None) -> None:
    """As it stands there, but for queue and place, and that it ends when the queue is empty."""
    sent = rig.send(20, groups=2)
    there = "https://sqs.eu-west-1.amazonaws.com/123456789012/bids.fifo"
    run(next(snippets(README)), {there: rig.url, "/data/bids": str(rig.home)})
    assert_each_once([row.message_id for row in rig.rows()], sent)


def test_query_of_the_readme_for_a_local_queue_shows_a_message(rig: Rig, ends_when_drained: None) -> None:
    """The second one, in the same way; what Spark prints stands in a table here."""
    rig.send(1, groups=1)
    here = {
        "http://127.0.0.1:9324/000000000000/bids.fifo": rig.url,
        "/tmp/local": str(rig.home),
        '.format("console")': '.format("memory").queryName("printed")',
    }
    run(list(snippets(README))[1], here)
    assert [tuple(row) for row in rig.spark.table("printed").collect()] == [("group-0", "body 0")]


@in_both_modes
def test_pasted_copy_of_a_queue_has_each_message_once_and_in_order(
    rig: Rig, ends_when_drained: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The examples of the sink's pages, as they stand there, but for the queues, and that they end."""
    pages = (DOCS / "sink.md", DOCS / "sink-order.md")
    programs = [code for page in pages for code in snippets(page) if code.endswith(_LAST_LINE)]
    (code,) = (each for each in programs if ('"deleteAfter", "journal"' in each) is rig.may_split)
    copied, there = rig.create_queue("accepted.fifo"), "https://sqs.eu-west-1.amazonaws.com/123456789012"
    fill(rig.server, rig.url, 60, groups=3)
    monkeypatch.setenv("HOME", str(rig.home))
    rig.home /= "accepted"
    run(code, {f"{there}/bids.fifo": rig.url, f"{there}/accepted.fifo": copied})
    assert_each_once_in_order(held_in(rig.server, copied), expected(60, groups=3))
