"""A link is deleted while the next one is received: neither order of the two may show."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from sqs_fifo_spark.errors import AccessDeniedError
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.plan import PartitionPlan
from sqs_fifo_spark.source.pool import MakePool, in_calling_thread
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.task.partition import serve
from tests.unit.by_hand import Late, Query, World

pytestmark = pytest.mark.law("source-2", "source-4")


def late(name: str, threads: int) -> Late:
    return Late()


in_both_orders = pytest.mark.parametrize("pool", [in_calling_thread, late], ids=["delete first", "receive first"])


OPTIONS = {"numPartitions": "1", "deleteAfter": "journal"}


def denied(action: str) -> str:
    return "denied" if "Delete" in action else ""


@in_both_orders
def test_a_hot_group_comes_once_and_in_order(world: World, pool: MakePool) -> None:
    """A receive that finds the group locked closes no chain; one that comes before the delete is in vain, once."""
    world.pool = pool
    world.send(*(f"a{number}" for number in range(95)))
    query = Query(world)
    began_at = world.clock.now()
    query.play_out()
    assert world.bodies() == [f"a{number}" for number in range(95)]
    assert len(world.sink) <= 3
    assert world.clock.now() - began_at <= 1 + world.options.wait_time_s
    world.audit()


@in_both_orders
@pytest.mark.parametrize(("bodies", "receives"), [(("a1", "a2", "b1"), 2), (tuple(f"a{n}" for n in range(20)), 3)])
def test_no_more_than_has_waited_is_waited_for(
    world: World, pool: MakePool, bodies: tuple[str, ...], receives: int
) -> None:
    """A trickle, or a burst that fills its last receive, is neither late nor costs more requests."""
    world.pool = pool
    world.send(*bodies)
    _, (plan,) = world.planned()
    began_at, before = world.clock.now(), world.calls("ReceiveMessage")
    assert len(world.read(plan)) == len(bodies)
    assert world.clock.now() == began_at
    assert world.calls("ReceiveMessage") - before <= receives


def test_what_was_received_beside_a_delete_that_is_refused_is_released(world: World) -> None:
    """Nobody is going to seal it: else it would be hidden for a visibility timeout."""
    world.pool = late
    world.send(*(f"a{number}" for number in range(25)))
    _, (plan,) = world.planned()
    plan = replace(plan, expected=100)

    def when_sealed() -> None:
        world.send("b1")
        world.do_at("after ReceiveMessage", lambda: setattr(world, "fault", denied))

    world.do_at(f"after put {Journal.segment_name(plan.epoch, 0, plan.plan, 1)}", when_sealed)
    with pytest.raises(AccessDeniedError):
        world.read(plan)
    world.fault = lambda action: ""
    assert [each["Body"] for each in world.receive_elsewhere(visibility_timeout_s=1)] == ["b1"]


def reading(world: World, plan: PartitionPlan) -> Generator[Any, None, None]:
    queue, journal = Queue(world.options, world.clock), Journal(world.store, plan.journal)
    return serve(plan, queue, journal, world.options, world.clock)


def test_a_read_that_ends_early_waits_for_its_deletes(world: World) -> None:
    """As it does with Spark's limit: nothing of it goes on afterwards."""
    world.pool = late
    world.send(*(f"a{number}" for number in range(25)))
    _, (plan,) = world.planned()
    rows = reading(world, plan)
    next(rows)
    next(rows)
    assert len(world.deleted()) == 10
    rows.close()
    assert world.deleted() == [f"a{number}" for number in range(20)]


def test_a_read_that_ends_early_tells_of_deletes_that_are_refused(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The read is over and cannot fail any more; what is sealed is deleted by whoever goes on with the chain."""
    world.pool = late
    world.send(*(f"a{number}" for number in range(25)))
    query, (plan,) = world.planned()
    rows = reading(world, plan)
    next(rows)
    next(rows)
    world.fault = denied
    rows.close()
    assert "were deleted" in caplog.text
    assert len(world.deleted()) == 10
    world.fault = lambda action: ""
    query.drain()
    assert sorted(world.deleted()) == sorted(f"a{number}" for number in range(25))


def test_a_client_that_cannot_begin_a_call_makes_it(world: World) -> None:
    """boto3's own."""
    world.begins_calls = False
    world.send(*(f"a{number}" for number in range(45)))
    _, (plan,) = world.planned()
    rows = reading(world, plan)
    for count in range(1, 5):
        next(rows)
        assert len(world.deleted()) == 10 * count
