"""A journal that is removed, and made anew in the same place, while tasks or a driver of the old query still run."""

from __future__ import annotations

import pytest

from sqs_fifo_spark.errors import FencedError, JournalUnavailableError
from sqs_fifo_spark.journal.identity import JournalIdentity
from tests.simulation.world import LAPSE_S, Checkpoint
from tests.unit.by_hand import HandHeartbeat, MakeWorld, Query, World

pytestmark = pytest.mark.law("source-2")


@pytest.fixture
def world(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> World:
    world = make_world(numPartitions="1", deleteAfter="journal")
    monkeypatch.setattr("sqs_fifo_spark.source.driver.startup.first_claim", int)
    return world


def remove(world: World) -> None:
    """Remove the journal and the checkpoint, a moment after the old query has last been seen."""
    world.store.objects.clear()
    HandHeartbeat.live.clear()
    world.checkpoint = Checkpoint()
    world.clock.advance(5)


@pytest.mark.parametrize("step", ["before put epochs/", "after put epochs/"])
def test_a_task_of_a_removed_journal_deletes_nothing(world: World, step: str) -> None:
    """Its link is of no use in the new one, so the messages in it stay in the queue."""
    world.send("a1", "a2")
    _old, (plan,) = world.planned()
    queries: list[Query] = []

    def replace_it() -> None:
        remove(world)
        queries.append(Query(world))
        queries[0].claim()

    world.do_at(step, replace_it)
    with pytest.raises((FencedError, JournalUnavailableError)):
        world.read(plan)
    assert world.deleted() == []
    world.send("b1")
    world.pass_time(LAPSE_S)
    queries[0].drain_and_audit()


def test_a_driver_of_a_removed_journal_settles_nothing_in_the_new_one(world: World) -> None:
    """Deleted messages of the new query stay in the journal, though the old one committed later epochs."""
    old = Query(world)
    for number in range(3):
        world.send(f"a{number}")
        old.trigger()
    served = len(world.sent)
    world.send("a9")
    queries: list[Query] = []

    def replace_it() -> None:
        remove(world)
        queries.append(Query(world))
        world.send("b1")
        new = queries[0]
        new.log(new.latest_offset(new.start_of(0)))
        (plan,) = new.plans(0)
        new.to_sink(0, {0: world.read(plan)})

    world.do_at("before put ledger/", replace_it)
    with pytest.raises(FencedError):
        old.trigger()
    world.die()
    again = Query(world).resume()
    world.send("b2")
    world.pass_time(LAPSE_S)
    again.drain()
    del world.sent[:served]  # in the old query's sink
    world.audit()


def test_epochs_are_counted_from_one_whatever_number_the_first_claim_has(world: World) -> None:
    query = world.served("a1")
    assert query.offsets[0].epoch == 1
    assert query.offsets[0].plan == int(world.clock.now()) > 1_000_000
    world.die()
    world.checkpoint = Checkpoint()
    other = world.served("a2")
    assert other.offsets[0].plan == query.offsets[0].plan + 1
    assert other.offsets[0].epoch < 10


def test_a_journal_of_an_earlier_version_has_claims_from_one(world: World) -> None:
    world.send("a1")
    JournalIdentity.create(world.store, f"arn:aws:sqs:us-east-1:000000000000:{world.url.rpartition('/')[2]}")
    query = Query(world)
    query.trigger()
    assert query.offsets[0].plan == 1
