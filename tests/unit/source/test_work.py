"""Whether there is work: the driver's own receives, when the queue is idle, or gives no answer."""

from __future__ import annotations

import pytest

from sqs_fifo_spark.source.queue import Counts
from tests.unit.by_hand import Query, World, in_both_modes, in_both_modes_with


@in_both_modes
def test_epoch_that_delivered_is_followed_by_another_without_new_messages(world: World) -> None:
    """The last batch of a burst is committed and deleted though nothing more is sent."""
    query = world.served("a1")
    began_at = world.clock.now()
    assert query.trigger()
    assert world.clock.now() == began_at, "it waited for a long poll"
    assert world.depth() == (0, 0)


@in_both_modes
def test_idle_queue_makes_no_micro_batch(world: World) -> None:
    """With nothing to do `latest_offset` blocks for one long poll and returns its start."""
    query = Query(world)
    began_at = world.clock.now()
    assert not query.trigger()
    assert not query.trigger()
    assert world.clock.now() - began_at == 2 * world.options.wait_time_s
    assert not world.sink


def test_an_outage_of_the_queue_does_not_stop_an_idle_query(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The probe has received nothing, so nothing is at stake: it is said, and tried again."""
    query = Query(world)
    assert not query.trigger()
    with world.failing("ReceiveMessage"):
        assert not query.trigger()
        assert "gives no whole answer" in caplog.text
    world.send("a1")
    query.drain_and_audit()


@in_both_modes
def test_an_outage_of_the_count_does_not_stop_a_query(world: World) -> None:
    """The number of waiting messages only suggests how many partitions there are."""
    query = Query(world)
    assert not query.trigger()
    world.send(*(f"{'abc'[index % 3]}{index}" for index in range(40)))
    with world.failing("GetQueueAttributes"):
        while len(world.bodies()) < 40:
            assert query.trigger()
    query.drain_and_audit()


@in_both_modes_with(numPartitions="1")
def test_a_run_reads_though_the_count_of_messages_lags_behind(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Trigger.Once no other epoch follows."""
    world.served("a1")
    world.die()
    world.send("b1")
    monkeypatch.setattr("sqs_fifo_spark.source.queue.Queue.approximate_counts", lambda queue: Counts())
    Query(world).resume().trigger()
    assert world.bodies() == ["a1", "b1"]
