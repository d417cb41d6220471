"""A query that is stopped or killed in mid-batch goes on with the same checkpoint as if nothing had been."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import col

from tests.helpers import wait_until
from tests.spark.support import (
    LONG_S,
    Gate,
    Rig,
    assert_each_once,
    assert_in_order,
    failure,
    in_both_modes,
    kill_in_mid_batch,
    require_alive,
    start_app,
)
from tests.spark.table import read_table, write_once

pytestmark = pytest.mark.law("source-1", "source-5")

VISIBILITY_S = 4


@in_both_modes
@pytest.mark.long
def test_a_query_stopped_in_mid_batch_three_times_delivers_each_message_once(rig: Rig, tmp_path: Path) -> None:
    """Stopped while tasks receive, while they serve, and while the sink commits."""
    rig.send(400, groups=40)
    gate = Gate(tmp_path / "gate")
    # The body stays as it is, but every task waits for it at the gate.
    limits = {"maxMessagesPerTrigger": 80, "visibilityTimeoutSeconds": VISIBILITY_S}

    committed = tmp_path / "parquet" / "_spark_metadata"

    def sink_commits() -> int:
        return len(list(committed.glob("[0-9]*"))) if committed.exists() else 0

    def receives() -> int:
        return sum(each.entries > 0 for each in rig.server.requests.recent("ReceiveMessage") if each.outcome == "ok")

    moments: list[tuple[str, bool, Callable[[], int]]] = [
        ("tasks serve", False, lambda: gate.waiting),
        ("the sink commits", True, sink_commits),
        ("tasks receive", True, receives),
    ]
    for what, is_open, count in moments:
        gate.close()
        if is_open:
            gate.open()
        before = count()
        with rig.to_parquet(rig.source(**limits).withColumn("body", gate.column(col("body")))) as query:

            def has_come(query=query, count=count, before=before) -> bool:  # type: ignore[no-untyped-def]
                require_alive(query)
                return bool(count() > before)

            wait_until(has_come, LONG_S, what)
        left = rig.depth()
        assert left != (0, 0), f"nothing was left when {what}"
        # Let the tasks that were left behind go.
        gate.open()
    rig.drain_into_files(rig.source(visibilityTimeoutSeconds=VISIBILITY_S))
    rig.require_each_once_in_order()


def test_a_driver_killed_in_mid_batch_is_continued_by_the_next(rig: Rig, tmp_path: Path) -> None:
    """SIGKILL to driver and JVM while tasks serve an epoch: its successor delivers each message once."""
    rig.send(200, groups=20)
    options = {"maxMessagesPerTrigger": 50, "visibilityTimeoutSeconds": VISIBILITY_S}
    kill_in_mid_batch(tmp_path, rig.options(**options))
    assert sum(rig.depth()) > 0
    rig.drain_into_files(rig.source(**options))
    rig.require_each_once_in_order()


def test_ctrl_c_in_mid_batch_lets_it_end_and_prints_one_line(rig: Rig, tmp_path: Path) -> None:
    """SIGINT to the process group, as from a terminal: no trace, status 0, and nothing is left to run again."""
    rig.send(200, groups=20)
    options = rig.options(maxMessagesPerTrigger=50, visibilityTimeoutSeconds=VISIBILITY_S)
    gate, log, checkpoint = Gate(tmp_path / "gate"), tmp_path / "log.txt", tmp_path / "checkpoint"
    app = start_app("to_parquet.py", tmp_path, *(f"{name}={value}" for name, value in options.items()), log=log)
    try:
        wait_until(lambda: gate.waiting or app.poll() is not None, LONG_S, "tasks are in mid-batch")
        before = log.stat().st_size
        os.killpg(app.pid, signal.SIGINT)
        gate.open()
        status = app.wait(LONG_S)
    finally:
        app.kill()
    shown = [line for line in re.split(r"[\r\n]+", log.read_text(errors="replace")[before:]) if line.strip()]
    said = [line for line in shown if not line.startswith("[Stage ")]
    assert status == 0, said
    assert len(said) == 1, said
    assert re.fullmatch(r"SIGINT: the query [\w-]+ has ended between two micro-batches", said[0])
    logs = [{int(each.name) for each in (checkpoint / name).glob("[0-9]*")} for name in ("offsets", "commits")]
    assert logs[0] == logs[1] != set()
    rig.drain_into_files(rig.source(maxMessagesPerTrigger=50))
    rig.require_each_once_in_order()


def test_a_query_goes_on_when_messages_are_deleted_at_another_time_than_before(rig: Rig) -> None:
    """Each start has the other mode, and an epoch of the one before that is not settled.

    The first fails when the sink has the micro-batch and Spark has not committed it; the second in a micro-batch of
    which one task has read the beginning.
    """
    sent = rig.send(160, groups=16)
    table = rig.home / "table"

    def fail_after_the_write(frame: DataFrame, batch_id: int) -> None:
        write_once(table, frame, batch_id)
        if batch_id == 1:
            raise RuntimeError("the sink has it")

    def fail_before_the_write(frame: DataFrame, batch_id: int) -> None:
        if batch_id == 2:
            assert frame.limit(1).collect()
            raise RuntimeError("a part is read")
        write_once(table, frame, batch_id)

    for mode, write, why in (
        ("commit", fail_after_the_write, "the sink has it"),
        ("journal", fail_before_the_write, "a part is read"),
    ):
        rig.delete_after = mode
        with rig.to_function(rig.source(maxMessagesPerTrigger=40), write) as query:
            assert why in failure(query)
        assert rig.journal_messages()
    rig.delete_after = "commit"
    with rig.to_function(
        rig.source(maxMessagesPerTrigger=40), lambda frame, batch_id: write_once(table, frame, batch_id)
    ) as query:
        rig.drain(query)
        wait_until(lambda: not rig.journal_messages(), LONG_S, "the journal holds no message")
    rows = read_table(table)
    assert_each_once((row.message_id for row in rows), sent)
    assert_in_order(rows, may_split=True)
