"""However often Spark reads a micro-batch, it gets the same rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import col

from tests.spark.support import Rig, assert_each_once, in_both_modes, run_app

pytestmark = pytest.mark.law("source-3", "source-4")


@in_both_modes
def test_several_actions_on_a_micro_batch_see_the_same_rows(rig: Rig) -> None:
    """`limit(5)`, which ends a task early, then `count`, `collect`, a write and a self-join in every micro-batch."""
    sent = rig.send(100, groups=20)
    seen: list[list[str]] = []

    def look_five_times(frame: DataFrame, batch_id: int) -> None:
        first = [row.messageId for row in frame.select("messageId").limit(5).collect()]
        count = frame.count()
        collected = [row.messageId for row in frame.select("messageId").collect()]
        path = str(rig.home / f"written-{batch_id}")
        frame.write.parquet(path)
        written = [row.messageId for row in rig.spark.read.parquet(path).select("messageId").collect()]
        one, other = frame.select("messageId", "sequenceNumber").alias("a"), frame.alias("b")
        matches = one.join(other, col("a.messageId") == col("b.messageId"))
        joined = matches.select(col("a.messageId").alias("messageId"), "a.sequenceNumber", "b.sequenceNumber").collect()
        assert first == collected[:5]
        assert count == len(collected)
        assert sorted(written) == sorted(row.messageId for row in joined) == sorted(collected)
        assert all(row[1] == row[2] for row in joined)
        seen.append(collected)

    with rig.to_function(rig.source(maxMessagesPerTrigger=50), look_five_times) as query:
        rig.drain(query)
    assert len(seen) >= 2
    assert_each_once((each for collected in seen for each in collected), sent)


def test_a_union_of_the_stream_with_itself_has_every_row_exactly_twice(rig: Rig) -> None:
    """Both branches read one source, and the second read is served from the journal."""
    sent = rig.send(60, groups=20)
    source = rig.source()
    rig.drain_into_files(source.union(source))
    assert Counter(row.message_id for row in rig.rows()) == dict.fromkeys(sent, 2)


@pytest.mark.long
def test_a_stream_joined_with_itself_under_other_names_has_one_reader(rig: Rig) -> None:
    """As the pages say. Where a side keeps any column's name, Spark makes two streams, and so two readers."""
    sent = rig.send(60, groups=20)
    source = rig.source()
    other = source.select(col("messageId").alias("id"), col("body").alias("text"))
    joined = source.join(other, col("messageId") == col("id"))
    assert_each_once((row.id for row in rig.drained(joined)), sent)


@pytest.mark.long
def test_a_speculative_copy_of_a_slow_task_doubles_nothing(rig: Rig, tmp_path: Path) -> None:
    """Two attempts read one partition at once: the first that seals is served by both.

    Spark in local mode never speculates, so this runs on a cluster of two executors on this machine. The first
    attempt stalls until a copy has read the partition: in one epoch before it seals what it has received, in the next
    before it serves what it has sealed.
    """
    rig.send(400, groups=80)
    log = run_app("speculation.py", rig.url, tmp_path, log=tmp_path / "log.txt", SPARK_LOCAL_IP="127.0.0.1")
    attempts = {path.name for path in tmp_path.glob("epoch-*-attempt-*")}
    assert attempts == {f"epoch-{epoch}-attempt-{attempt}" for epoch in (1, 2) for attempt in (0, 1)}
    # A copy, not a retry: the first attempt was still at it.
    assert not (tmp_path / "never-copied").exists(), f"Spark did not speculate: {log[-3000:]}"
    assert rig.depth() == (0, 0)
    rig.require_each_once_in_order()
