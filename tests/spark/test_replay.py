"""However often Spark reads a micro-batch, it gets the same rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import col

from sqs_fifo_spark import in_group_order
from tests.spark.support import (
    Rig,
    assert_each_once,
    assert_in_order,
    in_both_modes,
    in_both_modes_if_long,
    run_app,
)

pytestmark = pytest.mark.law("source-3", "source-4")


@in_both_modes
def test_several_actions_on_a_micro_batch_see_the_same_rows(rig: Rig) -> None:
    """`limit(5)`, which ends a task early, then `count`, `collect` and a write agree in every micro-batch."""
    sent = rig.send(300, groups=30)
    seen: list[tuple[list[str], int, list[str], list[str]]] = []

    def look_four_times(frame: DataFrame, batch_id: int) -> None:
        first = [row.messageId for row in frame.select("messageId").limit(5).collect()]
        count = frame.count()
        collected = [row.messageId for row in frame.select("messageId").collect()]
        path = str(rig.home / f"written-{batch_id}")
        frame.write.parquet(path)
        written = [row.messageId for row in rig.spark.read.parquet(path).select("messageId").collect()]
        seen.append((first, count, collected, written))

    with rig.to_function(rig.source(maxMessagesPerTrigger=150), look_four_times) as query:
        rig.drain(query)
    assert len(seen) >= 2
    for first, count, collected, written in seen:
        assert first == collected[:5]
        assert count == len(collected)
        assert sorted(collected) == sorted(written)
    assert_each_once((each for _, _, collected, _ in seen for each in collected), sent)


@in_both_modes_if_long
def test_a_union_of_the_stream_with_itself_has_every_row_exactly_twice(rig: Rig) -> None:
    """Both branches read one source, and the second read is served from the journal."""
    sent = rig.send(300, groups=30)
    source = rig.source()
    with rig.to_parquet(source.union(source)) as query:
        rig.drain(query)
    assert Counter(row.message_id for row in rig.rows()) == dict.fromkeys(sent, 2)


@in_both_modes
def test_a_join_of_a_micro_batch_with_itself_matches_every_row_once(rig: Rig) -> None:
    """Both sides of a self-join hold the same messages."""
    sent = rig.send(300, groups=30)
    joined: list[str] = []

    def join(frame: DataFrame, batch_id: int) -> None:
        one, other = frame.select("messageId", "sequenceNumber").alias("a"), frame.alias("b")
        matches = one.join(other, col("a.messageId") == col("b.messageId"))
        rows = matches.select(col("a.messageId").alias("messageId"), "a.sequenceNumber", "b.sequenceNumber").collect()
        assert all(row[1] == row[2] for row in rows)
        joined.extend(row.messageId for row in rows)

    with rig.to_function(rig.source(), join) as query:
        rig.drain(query)
    assert_each_once(joined, sent)


@pytest.mark.long
@pytest.mark.parametrize("rig", ["journal"], indirect=True)
def test_a_group_that_stands_in_several_partitions_is_put_together_by_its_sequence_numbers(rig: Rig) -> None:
    """Three groups and a dozen tasks: each group comes out in one partition, in order."""
    sent = rig.send(1_200, groups=3)
    number = col("sequenceNumber").cast("decimal(38, 0)")
    with rig.to_parquet(in_group_order(rig.source(), number, num_partitions=2)) as query:
        rig.drain(query)
    rows = rig.rows()
    assert_each_once((row.message_id for row in rows), sent)
    assert_in_order(rows)


@in_both_modes
@pytest.mark.long
def test_a_speculative_copy_of_a_slow_task_doubles_nothing(rig: Rig, tmp_path: Path) -> None:
    """Two attempts read one partition at once: the first that seals is served by both.

    Spark in local mode never speculates, so this runs on a cluster of two executors on this machine. The first
    attempt stalls until a copy has read the partition: in one epoch before it seals what it has received, in the next
    before it serves what it has sealed.
    """
    sent = rig.send(400, groups=80)
    log = run_app(
        "speculation.py", rig.url, tmp_path, rig.delete_after, log=tmp_path / "log.txt", SPARK_LOCAL_IP="127.0.0.1"
    )
    attempts = {path.name for path in tmp_path.glob("epoch-*-attempt-*")}
    assert attempts == {f"epoch-{epoch}-attempt-{attempt}" for epoch in (1, 2) for attempt in (0, 1)}
    # A copy, not a retry: the first attempt was still at it.
    assert not (tmp_path / "never-copied").exists(), f"Spark did not speculate: {log[-3000:]}"
    assert rig.depth() == (0, 0)
    rows = rig.rows()
    assert_each_once((row.message_id for row in rows), sent)
    assert_in_order(rows, may_split=rig.may_split)
