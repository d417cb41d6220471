"""`Trigger.AvailableNow` takes what waits, deletes it, and ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from tests.helpers import wait_until
from tests.spark.support import (
    LONG_S,
    SPARK_VERSION,
    Rig,
    assert_each_once,
    assert_in_order,
    in_both_modes,
    micro_batches,
)

pytestmark = [
    pytest.mark.skipif(
        SPARK_VERSION < (4, 2), reason="before 4.2 Spark never commits the one micro-batch of AvailableNow"
    ),
    pytest.mark.law("source-6"),
]


@in_both_modes
def test_available_now_ends_by_itself_with_everything_deleted(rig: Rig) -> None:
    """All that waits is taken, group by group, and a second run finds nothing."""
    sent = rig.send(400, groups=20)
    for _ in range(2):
        with rig.to_parquet(rig.source(), availableNow=True) as query:
            assert query.awaitTermination(int(LONG_S))
        assert rig.depth() == (0, 0)
        assert not rig.journal_epochs()
        rows = rig.rows()
        assert_each_once((row.message_id for row in rows), sent)
        assert_in_order(rows, may_split=rig.may_split)


@pytest.mark.parametrize("rig", ["commit"], indirect=True)
def test_available_now_goes_by_the_queues_clock(rig: Rig) -> None:
    """All that waits by SQS's time is taken, though this machine's clock is behind: three answers of one group."""
    rig.server.advance(31)
    rig.send(25)
    with rig.to_parquet(rig.source(), availableNow=True) as query:
        assert query.awaitTermination(int(LONG_S))
    assert rig.depth() == (0, 0)
    assert len(rig.rows()) == 25


@pytest.mark.parametrize("rig", ["journal"], indirect=True)
def test_available_now_drains_one_hot_group_of_thousands_in_a_few_micro_batches(rig: Rig) -> None:
    """Where tasks delete, a group does not wait for the next micro-batch with each ten messages."""
    sent = rig.send(5_000)
    with rig.to_parquet(rig.source(), availableNow=True) as query:
        assert query.awaitTermination(int(LONG_S))
        progress = micro_batches(query)
    assert rig.depth() == (0, 0)
    assert not rig.journal_epochs()
    rows = rig.rows()
    assert_each_once((row.message_id for row in rows), sent)
    assert_in_order(rows, may_split=True)
    print(f"5,000 messages of one group: {len(progress)} micro-batches")
    assert len(progress) < 50


@in_both_modes
@pytest.mark.long
def test_available_now_ends_while_a_producer_goes_on_sending(rig: Rig) -> None:
    """What came is deleted, what did not come waits, and the next run takes exactly that."""
    rig.send(200, groups=20)
    with _producer(rig) as producing:
        with rig.to_parquet(rig.source(), availableNow=True) as query:
            assert query.awaitTermination(int(LONG_S))
        assert producing.is_set()
    first = {row.message_id for row in rig.rows()}
    assert len(first) >= 200
    assert len(first) < len(rig.sent), "the producer did not outlive the query"
    assert rig.depth() == (len(rig.sent) - len(first), 0)
    with rig.to_parquet(rig.source(), availableNow=True) as query:
        assert query.awaitTermination(int(LONG_S))
    assert rig.depth() == (0, 0)
    rows = rig.rows()
    assert_each_once((row.message_id for row in rows), rig.sent)
    assert_in_order(rows, may_split=rig.may_split)


@contextmanager
def _producer(rig: Rig) -> Iterator[threading.Event]:
    """Send on a thread until the block ends. The event says that the thread is at it."""
    stopping, at_it = threading.Event(), threading.Event()

    def send() -> None:
        while not SYSTEM_CLOCK.wait(stopping, 0.05):
            rig.send(10, groups=20)
            at_it.set()
        at_it.clear()

    thread = threading.Thread(target=send)
    thread.start()
    try:
        wait_until(at_it.is_set, LONG_S, "the producer sends")
        yield at_it
    finally:
        stopping.set()
        thread.join()
