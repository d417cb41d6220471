"""A journal has one owner: the next query takes over what stands there, and the driver before it is fenced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sqs_fifo_spark.errors import FencedError
from tests.helpers import raises_one_line
from tests.simulation.world import LAPSE_S, Checkpoint
from tests.unit.by_hand import HandHeartbeat, Query, World, in_both_modes, in_both_modes_with, with_options
from tests.unit.source.attempts import FIRST_LINK, SECOND_LINK, begin, links, paused, told

pytestmark = pytest.mark.law("source-5")


@in_both_modes
@pytest.mark.parametrize("elapsed_s", [0, LAPSE_S])
def test_new_query_on_an_old_journal_begins_with_what_was_not_committed(world: World, elapsed_s: float) -> None:
    """With the checkpoint deleted the old query's messages come from the queue again, at once."""
    query = world.served(*(f"{'ab'[index % 2]}{index}" for index in range(12)))
    world.die(down_s=elapsed_s)
    world.offsets.clear()
    world.committed.clear()
    world.sink.clear()
    began_at = world.clock.now()
    query = Query(world)
    assert query.trigger()
    assert world.bodies()
    assert world.clock.now() == began_at
    query.drain_and_audit()


@with_options(numPartitions="1", deleteAfter="journal")
@pytest.mark.parametrize("elapsed_s", [0, LAPSE_S])
@pytest.mark.parametrize(
    "point", [f"after put {FIRST_LINK}", "after DeleteMessageBatch", f"after put {SECOND_LINK}", "-- batch 0 is read"]
)
def test_a_new_query_carries_what_the_tasks_of_an_old_one_may_have_deleted(
    world: World, point: str, elapsed_s: float
) -> None:
    """The checkpoint is gone, and only the journal has it: it is served once, in order, and then settled."""
    query, _ = begin(world, *(f"{'aab'[number % 3]}{number}" for number in range(30)))
    world.crash(point, lambda: query.run(0))
    assert len(links(world)) > (point != f"after put {FIRST_LINK}" and point != "after DeleteMessageBatch")
    world.die(down_s=elapsed_s)
    world.checkpoint = Checkpoint()
    query = Query(world)
    while query.trigger() or world.depth() != (0, 0):
        pass
    query.drain_and_audit()
    assert told(next(world.rows()))[:1] == ["z1"]


@with_options(numPartitions="1", deleteAfter="journal")
def test_what_an_old_querys_tasks_deferred_is_released_to_the_queue(world: World) -> None:
    """Nobody has deleted that: it comes from there, at once."""
    query, plan = begin(world, "a1")
    world.receive_elsewhere(10, 1)
    world.clock.advance(2)
    assert told(world.read(plan)) == ["z1"]
    world.die()
    world.checkpoint = Checkpoint()
    query = Query(world)
    query.latest_offset(query.start_of(0))
    assert world.depth() == (1, 0)
    query.drain_and_audit()


@with_options(numPartitions="1", deleteAfter="journal")
def test_what_is_carried_for_a_new_query_outlives_its_drivers(world: World) -> None:
    """Until its first commit no ledger says so; each driver finds it again in the journal."""
    _query, plan = begin(world, *(f"a{number}" for number in range(25)))
    world.read(plan)
    world.die()
    world.checkpoint = Checkpoint()
    points = ["-- batch 0 is planned", "-- batch 0 is in the sink"]
    ledgers = ["before put ledger/", "after put ledger/"]  # first the one that it has found, then its own
    for point, occurrence in [*((each, 1) for each in (*points, *ledgers)), *((each, 2) for each in ledgers)]:
        world.kill(point, lambda: Query(world).resume().drain(), occurrence, down_s=LAPSE_S)
    world.restart()


# Fenced drivers


@in_both_modes
def test_second_driver_fences_the_first(world: World) -> None:
    """The older of two queries on one journal stops, and says what happened."""
    older = world.served("a1")
    newer = Query(world).resume()
    newer.driver.latest_offset(world.offsets[-1])
    for call in (
        lambda: older.driver.latest_offset(world.offsets[-1]),
        lambda: older.startless.commit(world.offsets[-1]),
        lambda: older.startless.plan(world.offsets[-1], replace(world.offsets[-1], epoch=2)),
    ):
        with raises_one_line(FencedError, match="another query or an operator took over the journal"):
            call()
    newer.drain_and_audit()


@in_both_modes
def test_a_driver_that_closes_what_another_has_settled_is_told_that_it_is_fenced(world: World) -> None:
    """Not that its own micro-batch's rows cannot be read any more: nobody reads any."""
    query = world.served("a1", reads=lambda batch, count: None)
    world.send("b1")
    world.do_at("before put epochs/", lambda: Query(world).resume().drain())
    with pytest.raises(FencedError, match="another query or an operator took over the journal"):
        query.trigger()
    world.audit()


@with_options(numPartitions="1", deleteAfter="journal")
def test_of_two_who_open_a_journal_the_older_one_drops_nothing_that_the_newer_one_needs(world: World) -> None:
    """The newer one has found an older ledger, from before the one that the older one has found and put once more."""
    first = world.served("a1")
    end = first.latest_offset(first.start_of(1))
    first.log(end)
    settling = paused(world, lambda: first.startless.commit(world.offsets[0]), "before put ledger/")
    second, third = Query(world), Query(world)
    opening = paused(world, second.resume, "before list ledger", 2)
    latest = paused(world, third.resume, "before put ledger/")
    for fenced in (settling, opening):
        with pytest.raises(FencedError):
            fenced.switch()
    latest.switch()
    third.drain()
    world.restart(down_s=LAPSE_S)


@with_options(numPartitions="1", deleteAfter="journal")
def test_a_fenced_driver_lets_go_of_what_it_has_caught_before_its_plan(world: World) -> None:
    """Else its group stays locked for as long as the driver stands there."""
    world.send("a1")
    query = Query(world)
    query.log(query.latest_offset(query.start_of(0)))
    assert world.depth() == (0, 1)
    claim_elsewhere(world)
    world.pass_time(LAPSE_S)
    assert world.depth() == (1, 0)


@in_both_modes_with(numPartitions="1")
@pytest.mark.parametrize("tells_start", [True, False])
@pytest.mark.parametrize("step", ["before ReceiveMessage", "after put epochs/"])
def test_a_driver_that_is_fenced_while_it_polls_lets_go_and_announces_nothing(
    world: World, step: str, tells_start: bool
) -> None:
    """It gives back at once what it received, before its put or after that, however often it is asked."""
    query = Query(world, tells_start=tells_start)
    start = query.start_of(0)
    world.send("a1")
    world.do_at(step, lambda: claim_elsewhere(world))
    for _ in range(2):
        with pytest.raises(FencedError):
            query.latest_offset(start)
        assert world.depth() == (1, 0)


def claim_elsewhere(world: World) -> None:
    """Let another query, with a checkpoint of its own, claim the journal."""
    Query(world, checkpoint=Checkpoint()).claim()


@in_both_modes_with(numPartitions="1")
@pytest.mark.parametrize("is_read", [True, False])
def test_a_driver_is_fenced_however_often_it_is_asked(world: World, is_read: bool) -> None:
    """Its verdict on the last epoch does not stand for its claim. Where it closes a chain, it speaks of no task."""
    query = world.served("a1", reads=lambda batch, count: range(count if is_read else 0))
    claim_elsewhere(world)
    for _ in range(2):
        with pytest.raises(FencedError, match="this query's is"):
            query.latest_offset(query.start_of(1))


@in_both_modes_with(numPartitions="1")
def test_an_idle_driver_that_is_fenced_does_not_probe(world: World) -> None:
    """A probe's message would come to the other query with one receive more."""
    query = Query(world)
    world.send("a1")
    query.trigger()
    query.trigger()
    start = query.start_of(len(query.offsets))
    assert query.latest_offset(start) == start
    claim_elsewhere(world)
    world.send("b1")
    before = len(world.trace)
    with pytest.raises(FencedError):
        query.latest_offset(start)
    assert not [event for _, _, event in world.trace[before:] if "ReceiveMessage" in event]


@in_both_modes_with(numPartitions="1")
def test_a_driver_that_another_has_followed_renews_nothing(world: World) -> None:
    """It may live on, and never be called: what its probe got is free after one visibility timeout."""
    world.send("a1", "a2")
    first = Query(world)
    first.log(first.latest_offset(first.start_of(0)))
    first.plans(0)
    second = Query(world).resume()
    world.send("a3")
    for _ in range(4):
        second.trigger()
        world.pass_time(LAPSE_S)
    assert world.bodies() == ["a1", "a2", "a3"]
    (heartbeat, _) = HandHeartbeat.live
    with pytest.raises(FencedError):
        heartbeat.check()
