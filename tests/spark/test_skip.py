"""A row on which a query fails each time is moved aside by the command, and the query goes on without it alone."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import DataFrame

from sqs_fifo_spark.cli.commands import commands
from tests.helpers import wait_until
from tests.spark.support import LONG_S, Rig, assert_each_once, failure

pytestmark = pytest.mark.law("source-1", "source-3")

POISON = "body 37"


def journal(rig: Rig, command: str, *arguments: str) -> Result:
    """Run a command on the rig's journal, as an operator does."""
    return CliRunner().invoke(commands, ["journal", command, "--journal-location", str(rig.journal), *arguments])


def test_a_row_that_makes_every_micro_batch_fail_is_moved_aside_and_the_query_goes_on(rig: Rig) -> None:
    """Each start fails on the same rows, and names their epoch; without the one row, it goes on with all others.

    While the query runs the command refuses; once it has failed it does what it is asked for, at once.
    """
    sent = rig.send(100, groups=10)
    source = rig.source(maxMessagesPerTrigger=30)
    read: dict[int, list[str]] = {}
    failed: list[tuple[int, list[str]]] = []
    may_fail = threading.Event()

    def fail_on_poison(frame: DataFrame, batch_id: int) -> None:
        rows = frame.select("messageId", "body").collect()
        ids = [row.messageId for row in rows]
        if any(row.body == POISON for row in rows):
            failed.append((batch_id, ids))
            assert may_fail.wait(LONG_S)
            raise ValueError("a row that cannot be worked on")
        read[batch_id] = ids

    may_fail.set()
    with rig.to_function(source, fail_on_poison) as query:
        said = [failure(query)]
    (shown,) = map(json.loads, journal(rig, "show", "--json").stdout.splitlines())
    found = [
        (plan["epoch"], message["messageId"])
        for plan in shown["plans"]
        for line in journal(rig, "cat", "--epoch", str(plan["epoch"]), "--bodies", "--json").stdout.splitlines()
        if (message := json.loads(line))["body"] == POISON
    ]
    ((epoch, message_id),) = set(found)
    aside = Path(rig.home, "aside.jsonl")
    in_batch = ("--batch", str(failed[0][0]), "--checkpoint-location", str(rig.home / "checkpoint"))
    skip = (*in_batch, "--message-id", message_id, "--to-file", str(aside))

    may_fail.clear()
    with rig.to_function(source, fail_on_poison) as query:
        wait_until(lambda: len(failed) == 2 or query.exception(), LONG_S, "the query meets the row again")
        assert '"isRunning": true' in journal(rig, "show", "--json").stdout
        done = journal(rig, "skip", *skip)
        assert done.exit_code == 1
        assert done.stderr.startswith(f"error: a query runs on the journal at '{rig.journal}' (claim ")
        assert not aside.exists()
        may_fail.set()
        said.append(failure(query))
    for text in said:
        assert "a row that cannot be worked on" in text
        assert re.search(rf'Current Available Offsets: .+"epoch": {epoch}, ', text), text

    done = journal(rig, "skip", *skip)
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"message {message_id} of epoch {epoch} is in" in done.stdout
    assert json.loads(aside.read_text())["body"] == POISON
    with rig.to_function(source, fail_on_poison) as query:
        rig.drain(query)
    (batch_id, ids), again = failed
    assert again == (batch_id, ids)
    assert read[batch_id] == [each for each in ids if each != message_id]
    assert_each_once(
        (each for ids in read.values() for each in ids), {key: sent[key] for key in sent if key != message_id}
    )
    assert rig.depth() == (0, 0)
