"""A received message is held until its delete, by whoever is alive."""

from __future__ import annotations

import string

import pytest

from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.receive import WORTH, ReceivedMessages
from tests.simulation.world import VISIBILITY_S
from tests.unit.by_hand import Query, World, in_both_modes, with_options

pytestmark = pytest.mark.law("source-7")


@in_both_modes
def test_heartbeat_keeps_messages_from_others_through_a_slow_batch(world: World) -> None:
    """While a batch takes four visibility timeouts nobody else gets its messages."""
    world.send("a1", "a2", "b1")
    query = Query(world)
    world.do_at("-- batch 0 is read", lambda: world.require_held(4 * VISIBILITY_S))
    assert query.trigger()
    query.drain_and_audit()


@in_both_modes
def test_what_an_earlier_driver_sealed_is_renewed_with_the_plan_of_its_replay_and_held(world: World) -> None:
    """Nobody has renewed it since that driver died, and the heartbeat's thread may sleep for a whole heartbeat."""
    world.send("a1", "a2", "b1")
    world.kill("-- batch 0 is in the sink", Query(world).trigger, down_s=VISIBILITY_S - 2)
    query = Query(world)
    query.plans(0)
    world.clock.advance(4)
    assert not world.receive_elsewhere()
    world.require_held(3 * VISIBILITY_S)
    query.run(0)
    query.drain_and_audit()


@with_options(deleteAfter="journal")  # its first link is not the last one
def test_what_an_earlier_driver_sealed_is_renewed_before_its_replay_puts_anything(world: World) -> None:
    """To close the chains takes a put for each, and the store may be slow."""
    world.send("a1", "a2", "b1")
    world.kill("after put epochs/", Query(world).trigger, 2, down_s=VISIBILITY_S - 2)  # the first is the catch
    query = Query(world)
    world.do_at("before put epochs/", lambda: world.clock.advance(4))
    query.plans(0)
    assert not [event for event in world.events if event.kind == "lapsed"]
    query.run(0)
    query.drain_and_audit()


@with_options(numPartitions="1")
def test_messages_carried_by_a_committed_batch_are_renewed_with_the_next_plan(world: World) -> None:
    """Also when the restart begins with `latestOffset`, which reads the receipts of the earlier driver's tasks."""
    query = world.served("x1")
    world.send("a1", "a2", "b1", "b2")
    world.receive_elsewhere(10, 1)
    world.clock.advance(2)
    assert query.trigger()  # it defers all of them
    world.die(down_s=VISIBILITY_S - 5)
    query = Query(world).resume()
    query.announce()
    query.plans(2)
    world.clock.advance(6)
    assert not world.receive_elsewhere()
    query.run(2)
    query.drain_and_audit()


def test_a_store_that_stalls_after_the_probe_costs_no_lease(world: World) -> None:
    """The probe's messages are renewed from their receive on."""
    world.send("a1")
    query = Query(world)
    start = query.start_of(0)
    world.do_at(
        "after ReceiveMessage", lambda: world.do_at("before get drivers", lambda: world.pass_time(VISIBILITY_S - 5))
    )
    query.latest_offset(start)
    world.pass_time(10)
    assert world.depth() == (0, 1)
    assert not [event for event in world.events if event.kind == "lapsed"]


# A late answer's messages are hidden since SQS was asked, not since they came; and more may be hidden still


@with_options(numPartitions="1")
@pytest.mark.parametrize("receiver", ["driver", "task"])
def test_what_came_late_is_renewed_at_once(world: World, receiver: str) -> None:
    """Before anything that may take long: only the rest of its hold is left, and a heartbeat may be asleep."""
    steps: list[str] = []

    def on_step(event: str) -> None:
        if event.startswith("after ReceiveMessage ["):
            world.clock.advance(WORTH * world.options.visibility_timeout_s)
            steps.append("late")
        elif steps:
            steps.append(event)

    world.send(*(f"{group}1" for group in string.ascii_lowercase))
    query = Query(world)
    start = query.start_of(0)
    if receiver == "driver":
        world.on_step = on_step
        query.latest_offset(start)
    else:
        query.log(query.latest_offset(start))
        (plan,) = query.plans(0)
        world.on_step = on_step
        world.read(plan)
    assert steps[:2] == ["late", "before ChangeMessageVisibilityBatch"]


@with_options(numPartitions="1")
@pytest.mark.parametrize("is_cut", [False, True])
def test_a_poll_that_is_cut_is_no_end_of_a_run(world: World, is_cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQS may hide, with the rest of it, messages that are older than the trigger."""
    query = Query(world, available_now=True)
    world.clock.advance(3.0)
    world.send("a1")
    assert query.trigger()
    world.send("b1")
    receive = Queue.receive

    def cut(queue: Queue, *given: int, **named: int) -> ReceivedMessages:
        received = receive(queue, *given, **named)
        received.is_cut = is_cut
        return received

    monkeypatch.setattr(Queue, "receive", cut)
    assert query.trigger()
    assert bool(query.offsets[-1].partitions) is is_cut  # an epoch of none is the last
