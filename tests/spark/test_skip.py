"""A row on which a query fails each time is moved aside by the command, and the query goes on without it alone."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from tests.helpers import wait_until
from tests.spark.support import LONG_S, Rig, assert_each_once, in_both_modes_if_long

pytestmark = pytest.mark.law("source-1", "source-3")

POISON = "body 137"


def journal(rig: Rig, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command on the rig's journal, as an operator does."""
    line = [sys.executable, "-m", "sqs_fifo_spark", "journal", command, "--journal-location", str(rig.journal)]
    return subprocess.run([*line, *arguments], capture_output=True, text=True, timeout=LONG_S, check=False)


@in_both_modes_if_long
def test_a_poison_row_is_moved_aside_and_the_query_goes_on(rig: Rig) -> None:
    """While the query runs the command refuses; once it has failed it does what it is asked for, at once."""
    sent = rig.send(300, groups=30)
    read: dict[int, list[str]] = {}

    def fail_on_poison(frame: DataFrame, batch_id: int) -> None:
        rows = frame.select("messageId", "body").collect()
        if any(row.body == POISON for row in rows):
            raise ValueError("a row that cannot be worked on")
        read[batch_id] = [row.messageId for row in rows]

    aside = Path(rig.home, "aside.jsonl")
    with rig.to_function(rig.source(), fail_on_poison) as query:
        wait_until(lambda: query.exception() is not None, LONG_S, "the query meets the row")
    (shown,) = map(json.loads, journal(rig, "show", "--json").stdout.splitlines())
    found = [
        (plan["epoch"], message["messageId"])
        for plan in shown["plans"]
        for line in journal(rig, "cat", "--epoch", str(plan["epoch"]), "--bodies", "--json").stdout.splitlines()
        if (message := json.loads(line))["body"] == POISON
    ]
    ((epoch, message_id),) = set(found)
    skip = ("--epoch", str(epoch), "--message-id", message_id, "--to-file", str(aside))

    refused = threading.Event()

    def fail_late(frame: DataFrame, batch_id: int) -> None:
        assert refused.wait(LONG_S)
        raise ValueError("a row that cannot be worked on")

    with rig.to_function(rig.source(), fail_late) as query:
        wait_until(lambda: '"isRunning": true' in journal(rig, "show", "--json").stdout, LONG_S, "the query runs")
        done = journal(rig, "skip", *skip)
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: a query runs on the journal at '{rig.journal}' (claim ")
        assert not aside.exists()
        refused.set()
        wait_until(lambda: query.exception() is not None, LONG_S, "the query fails once more")

    done = journal(rig, "skip", *skip)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(aside.read_text())["body"] == POISON
    with rig.to_function(rig.source(), fail_on_poison) as query:
        rig.drain(query)
    assert_each_once(
        (each for ids in read.values() for each in ids), {key: sent[key] for key in sent if key != message_id}
    )
    assert rig.depth() == (0, 0)
