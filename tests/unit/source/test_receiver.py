"""Receives of driver and tasks for a micro-batch: within its limits, whatever others have received before."""

from __future__ import annotations

import pytest

from sqs_fifo_spark.source.queue import Counts
from tests.simulation.world import LAPSE_S
from tests.unit.by_hand import MODES, MakeWorld, Query, World, in_both_modes, in_both_modes_with


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tells_start", [True, False])
@pytest.mark.parametrize("limit", [1, 2, 7, 10, 25])
def test_max_messages_per_trigger_is_exact(make_world: MakeWorld, limit: int, tells_start: bool, mode: str) -> None:
    """No batch has more messages than the limit, and a full queue fills it exactly; on every Spark."""
    world = make_world(maxMessagesPerTrigger=str(limit), numPartitions="3", deleteAfter=mode)
    world.send(*(f"{chr(97 + index % 26)}{index}" for index in range(78)))
    Query(world, tells_start=tells_start).drain()
    sizes = [sum(map(len, rows.values())) for _, rows in sorted(world.sink.items())]
    assert max(sizes) == limit
    world.audit()


@in_both_modes
def test_limit_given_by_spark_counts(world: World) -> None:
    """The limit of a call to `latest_offset` bounds its epoch."""
    world.send(*(f"{chr(97 + index)}1" for index in range(20)))
    query = Query(world)
    query.log(query.driver.latest_offset(query.start_of(0), 3))
    query.run(0)
    assert len(world.bodies()) == 3
    query.drain_and_audit()


# Redelivery


@in_both_modes
def test_redelivery_within_the_open_epoch_is_not_emitted_twice(world: World) -> None:
    """A message whose hold lapsed in mid-epoch and that another partition received is served once, deleted once."""
    world.send(*(f"a{index}" for index in range(9)), "b1")
    query, plans = world.planned()
    assert len(plans) >= 2
    rows = {plans[0].partition: query.read(plans[0])}
    world.clock.advance(LAPSE_S)
    for plan in plans[1:]:
        rows[plan.partition] = query.read(plan)
    query.into_sink(rows)
    query.drain_and_audit()


@in_both_modes
def test_foreign_hold_on_the_tail_of_a_group_keeps_the_order(world: World) -> None:
    """Of [1,2,3] somebody keeps 3: 1 and 2 are served, and 3 with all that follows it later."""
    world.send("a1", "a2", "a3")
    third = world.receive_elsewhere()[2]
    change = {"QueueUrl": world.url, "ReceiptHandle": third["ReceiptHandle"], "VisibilityTimeout": 300}
    world.model.call("ChangeMessageVisibility", change)
    world.clock.advance(LAPSE_S)
    world.send("a4", "b1")
    Query(world).drain_and_audit()


# Whether there is work: the driver's own receives, when the queue is idle, or gives no answer


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
