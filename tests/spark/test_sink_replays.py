"""Rows written again, after a death or in a replay, stand in the queue once; the exceptions are counted."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from sqs_fifo_spark import in_group_order
from sqs_fifo_spark.local import Event
from tests.crash.processes import look
from tests.helpers import wait_until
from tests.spark.sink import (
    COLUMNS,
    DEADLINE_S,
    assert_each_once_in_order,
    audit,
    expected,
    file_partitions,
    file_stream,
    forget_commit,
    group_of,
    held_in,
    sink_options,
    to_the_end,
    write,
    write_all,
    write_files,
)
from tests.spark.support import LONG_S, Rig, run_app, start_app

pytestmark = pytest.mark.law("sink-3", "sink-4")

COUNT, GROUPS = 2_400, 100
FILES = 8
LATER_S = 600.0
CALLS, ENTRIES = 8, 10
"""The calls that a task has under way at once, and the rows of each: all that a replay may double."""


class Killer:
    """Kills processes at the moment at which the queue has stored a message, so that its sender is never answered."""

    def __init__(self, rig: Rig, kill: Callable[[], None], *moments: int) -> None:
        """Call `kill` when as many messages as each of `moments` says have been sent."""
        self.sent = 0
        self._kill = kill
        self._moments = set(moments)
        rig.server.run(lambda model: model.on_event(self._see))

    def _see(self, event: Event) -> None:
        if event.kind == "sent":
            self.sent += 1
            if self.sent in self._moments:
                self._kill()


def kill_writers(home: Path, killed: list[str]) -> None:
    """Kill all Python workers that write at the moment, and note which partitions and attempts they wrote."""
    for told in (home / "writers").iterdir():
        partition, attempt, pid = told.name.split("-")
        told.unlink(missing_ok=True)
        if look(int(pid)) is not None:
            os.kill(int(pid), signal.SIGKILL)
            killed.append(f"{partition}-{attempt}")


def calls(rig: Rig) -> int:
    return rig.server.requests.counts().get("SendMessageBatch", 0)


# Tasks


@pytest.mark.long
def test_tasks_killed_in_mid_partition_are_retried_and_each_row_comes_once(rig: Rig, tmp_path: Path) -> None:
    """SIGKILL to the Python workers while their calls are unanswered, in a stream and in a batch write."""
    write_files(tmp_path / "files", COUNT, GROUPS, files=FILES)
    killed: list[str] = []
    moments = [COUNT // 3, COUNT + COUNT // 3]
    Killer(rig, lambda: kill_writers(tmp_path, killed), *moments)
    batch = rig.create_queue("batch.fifo")
    jobs = [
        {"mode": "stream", "options": sink_options(rig.url)},
        {"mode": "batch", "options": sink_options(batch, journalLocation=tmp_path / "journal")},
    ]
    log = run_app("sink_from_files.py", tmp_path, "local[2,4]", *map(json.dumps, jobs), log=tmp_path / "log.txt")
    assert len(killed) >= len(moments), log[-3000:]
    assert_each_once_in_order(held_in(rig.server, rig.url), expected(COUNT, GROUPS))
    assert_each_once_in_order(held_in(rig.server, batch), expected(COUNT, GROUPS))


@pytest.mark.long
def test_a_slow_task_and_its_speculative_copy_send_each_row_once(rig: Rig, tmp_path: Path) -> None:
    """Both attempts at a partition send at once, and neither overtakes the other within a group."""
    write_files(tmp_path / "files", COUNT, GROUPS, files=FILES)
    duplicates: list[Event] = []
    rig.server.run(
        lambda model: model.on_event(lambda event: duplicates.append(event) if event.kind == "duplicate" else None)
    )
    options = json.dumps(sink_options(rig.url, journalLocation=tmp_path / "journal"))
    log = run_app("sink_speculation.py", tmp_path, options, log=tmp_path / "log.txt", SPARK_LOCAL_IP="127.0.0.1")
    assert not list(tmp_path.glob("never-*")), f"Spark did not speculate: {log[-3000:]}"
    assert (tmp_path / "copied").exists()
    assert duplicates, "the copies did not send the same rows"
    assert_each_once_in_order(held_in(rig.server, rig.url), expected(COUNT, GROUPS))


# Micro-batches


def test_with_a_journal_a_micro_batch_that_runs_again_after_ten_minutes_sends_nothing(rig: Rig) -> None:
    """SQS has forgotten the rows, and the journal has not."""
    checkpoint = rig.home / "checkpoint"
    write_files(rig.home / "files", COUNT, GROUPS, files=FILES, waves=2)
    with file_partitions(rig.spark, FILES):
        frame = file_stream(rig.spark, rig.home / "files", files=FILES).select(COLUMNS)
        write_all(frame, rig.url, checkpoint, journalLocation=rig.journal)
        forget_commit(checkpoint, 1)
        rig.server.advance(LATER_S)
        before = calls(rig)
        write_all(frame, rig.url, checkpoint, journalLocation=rig.journal)
    assert (checkpoint / "commits" / "1").exists()
    assert_each_once_in_order(held_in(rig.server, rig.url), expected(COUNT, GROUPS))
    assert calls(rig) == before


def test_in_foreach_batch_a_replay_with_other_partitions_sends_nothing_again(rig: Rig) -> None:
    """Sent rows are known by their content, not by partition and row number; batch writes find it by Spark's ids.

    Each group is scattered over all partitions until `in_group_order` brings it together.
    """
    checkpoint = rig.home / "checkpoint"
    write_files(rig.home / "files", COUNT, GROUPS, files=FILES, waves=2)
    seen: list[tuple[int, int]] = []

    def run(partitions: int) -> None:
        def write_batch(frame: DataFrame, batch_id: int) -> None:
            seen.append((batch_id, partitions))
            scattered = frame.repartition(5, "number")
            ordered = in_group_order(scattered, order_by="number", num_partitions=partitions)
            write(ordered.select(COLUMNS), rig.url, journalLocation=rig.journal)

        stream = file_stream(rig.spark, rig.home / "files", files=FILES).writeStream.foreachBatch(write_batch)
        to_the_end(stream.option("checkpointLocation", str(checkpoint)))

    run(3)
    forget_commit(checkpoint, 1)
    rig.server.advance(LATER_S)
    before = calls(rig)
    run(5)
    assert seen == [(0, 3), (1, 3), (1, 5)]
    assert calls(rig) == before
    assert_each_once_in_order(held_in(rig.server, rig.url), expected(COUNT, GROUPS))


@pytest.mark.long
@pytest.mark.parametrize("ids", [True, False], ids=["with ids", "without ids"])
def test_a_thread_inside_foreach_batch_must_say_who_writes_what(rig: Rig, ids: bool) -> None:
    """Spark says it to the function's own thread only: a write of another is one outside of any stream."""
    checkpoint = rig.home / "checkpoint"
    write_files(rig.home / "files", 200, 20, files=2)
    seen: list[int] = []

    def run() -> None:
        def write_batch(frame: DataFrame, batch_id: int) -> None:
            seen.append(batch_id)
            who = {"txnAppId": "bids-in-threads", "txnVersion": batch_id} if ids else {}
            rows = in_group_order(frame, order_by="number", num_partitions=2).select(COLUMNS)

            def write_part(part: DataFrame) -> None:
                # Spark finds the format only in a thread with a session of its own, which this gives it.
                frame.sparkSession.createDataFrame([], "number LONG")
                write(part, rig.url, journalLocation=rig.journal, **who)

            with ThreadPoolExecutor(1) as pool:  # two writes, each of rows of its own
                for part in (rows.where("body < 'row 5'"), rows.where("body >= 'row 5'")):
                    pool.submit(write_part, part).result()

        stream = file_stream(rig.spark, rig.home / "files", files=2).writeStream.foreachBatch(write_batch)
        to_the_end(stream.option("checkpointLocation", str(checkpoint)))

    run()
    forget_commit(checkpoint, 0)
    rig.server.advance(LATER_S)
    run()
    assert seen == [0, 0]
    held = held_in(rig.server, rig.url)
    assert len(held) == (200 if ids else 400)
    assert audit(held, expected(200, 20)).lost == []


@pytest.mark.long
def test_a_micro_batch_killed_in_the_middle_and_resumed_after_ten_minutes_doubles_what_was_not_recorded(
    rig: Rig,
) -> None:
    """SIGKILL to all while calls are unanswered: at most 80 rows of a task come twice, right behind themselves.

    A group's next row waits for the record of the one before, so each group has one such row at most. The replay has
    other partitions, so what it takes for sent was recognised by its content.
    """
    home = rig.home
    write_files(home / "files", COUNT, GROUPS, files=FILES)
    options = sink_options(rig.url, journalLocation=rig.journal)
    killed: list[str] = []
    pids: list[int] = []

    def kill_all() -> None:
        pids.extend(int(told.name.split("-")[2]) for told in (home / "writers").iterdir())
        kill_writers(home, killed)
        os.killpg(process.pid, signal.SIGKILL)

    killer = Killer(rig, kill_all, COUNT // 3)
    job = json.dumps({"mode": "stream", "options": options})
    process = start_app("sink_from_files.py", home, "local[2]", job, log=home / "log.txt")
    try:
        status = process.wait(DEADLINE_S)
    finally:
        process.kill()
    assert status == -signal.SIGKILL, (home / "log.txt").read_text(errors="replace")[-4000:]
    assert killed
    wait_until(lambda: not any(look(pid) for pid in pids), LONG_S, "nobody sends any more")
    assert COUNT // 3 <= killer.sent < COUNT
    assert not (home / "checkpoint" / "commits" / "0").exists()

    rig.server.advance(LATER_S)
    with file_partitions(rig.spark, FILES // 2):
        frame = file_stream(rig.spark, home / "files", files=FILES).select(COLUMNS)
        write_all(frame, rig.url, home / "checkpoint", journalLocation=rig.journal)
    outcome = audit(held_in(rig.server, rig.url), expected(COUNT, GROUPS))
    assert (outcome.lost, outcome.unknown, outcome.misplaced) == ([], [], []), str(outcome)
    numbers = [int(body.removeprefix("row ")) for body, count in outcome.repeats.items() for _ in range(count)]
    # The call that was killed had been obeyed, so it is there; and no other than those under way.
    assert numbers
    by_group = Counter(group_of(number, GROUPS) for number in numbers)
    assert set(by_group.values()) == {1}, by_group
    by_task = Counter(number % GROUPS % FILES for number in numbers)
    assert len(by_task) <= len(killed), (by_task, killed)
    assert max(by_task.values()) <= CALLS * ENTRIES, by_task
