"""Runs that lie further apart than the visibility timeout, through Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sqs_fifo_spark.local import LocalQueueServer
from tests.helpers import wait_until
from tests.spark.support import LONG_S, SPARK_VERSION, Rig, TurnedClock, assert_each_once, assert_in_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.law("source-6")


@pytest.fixture
def clock() -> TurnedClock:
    return TurnedClock()


@pytest.fixture
def leaping(spark: SparkSession, tmp_path: Path, clock: TurnedClock) -> Iterator[Rig]:
    with LocalQueueServer(clock=clock, queues=["test.fifo"]) as server:
        yield Rig(spark, server, tmp_path)


def run_once(rig: Rig, **trigger: bool) -> int:
    """Run the query once, and return how many rows it has added."""
    before = len(rig.rows())
    with rig.to_parquet(rig.source(), **trigger) as query:
        wait_until(lambda: not query.isActive, LONG_S, "the run ends")
        assert query.exception() is None, str(query.exception())
    return len(rig.rows()) - before


@pytest.mark.long
def test_each_run_with_trigger_once_serves_something_new(leaping: Rig, clock: TurnedClock) -> None:
    """Ten minutes apart, so that each run finds the last one's messages back in the queue: it deletes them."""
    leaping.send(40, groups=2)
    added = []
    for _ in range(3):
        added.append(run_once(leaping, once=True))
        clock.added_s += 600
    assert added == [20, 20, 0]
    assert_each_once((row.message_id for row in leaping.rows()), leaping.sent)
    assert_in_order(leaping.rows())
    assert leaping.depth() == (0, 0)


@pytest.mark.skipif(SPARK_VERSION >= (4, 2), reason="from 4.2 on Spark needs no wrapper around the source")
def test_available_now_with_sparks_wrapper_goes_on_after_a_crash_before_the_commit(
    leaping: Rig, clock: TurnedClock
) -> None:
    """Spark asks for the latest offset before it runs the unfinished micro-batch again: its log never goes back."""
    setting = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
    leaping.send(60, groups=2)
    assert run_once(leaping, availableNow=True) == 20
    # What a driver leaves that dies when the next offset is logged, and the source is not told of the commit.
    log = leaping.home / "checkpoint" / "offsets"
    (log / "1").write_text((log / "0").read_text().replace('"epoch": 1', '"epoch": 2'))
    clock.added_s += 600
    leaping.spark.conf.set(setting, "true")
    try:
        for _ in range(4):
            run_once(leaping, availableNow=True)
            clock.added_s += 600
    finally:
        leaping.spark.conf.unset(setting)
    epochs = [
        re.search(r'"epoch": (\d+)', file.read_text()) for file in sorted(log.glob("[0-9]*"), key=lambda f: int(f.name))
    ]
    assert all(epochs)
    assert [int(each[1]) for each in epochs if each] == sorted({int(each[1]) for each in epochs if each})
    assert_each_once((row.message_id for row in leaping.rows()), leaping.sent)
    assert_in_order(leaping.rows())
