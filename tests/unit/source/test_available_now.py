"""When an AvailableNow query ends while producers go on, and what an attempt that died still hides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sqs_fifo_spark.errors import FencedError
from tests.simulation.hub import Crash
from tests.simulation.spark import Query
from tests.simulation.world import VISIBILITY_S, Checkpoint
from tests.unit.by_hand import HandHeartbeat, World, crash_at, do_at


def lose_an_attempt(world: World, query: Query, batch: int) -> None:
    """Let an attempt of the batch's first task die with what it has received."""
    crash_at(world, "before put epochs/")
    with pytest.raises(Crash):
        query.read(query.plans(batch)[0])
    del HandHeartbeat.live[1:]


@pytest.mark.parametrize("seed", [2, 19])
def test_it_waits_for_what_an_attempt_of_its_own_held_when_it_died(make_world: Callable[..., World], seed: int) -> None:
    """SQS hands out newer messages first, as many as had waited; the old one is in nobody's hands for a while."""
    world = make_world(seed, any_order=True, numPartitions="1")
    world.send("e1")
    query = Query(world, available_now=True)
    world.clock.advance(3)
    world.send(*(f"{group}1" for group in "nopqrstuvw"))
    query.log(query.latest_offset(query.start_of(0)))
    carried = {message_id for plan in query.plans(0) for _, ids in plan.carried for message_id in ids}
    assert world.sent[0].message_id not in carried
    lose_an_attempt(world, query, 0)
    query.run(0)
    assert "e1" not in world.bodies()
    began_at = world.clock.now()
    while query.trigger():
        pass
    assert "e1" in world.bodies()
    assert world.clock.now() - began_at < 2 * VISIBILITY_S
    world.audit()


def test_it_waits_as_long_after_a_micro_batch_of_old_messages(make_world: Callable[..., World]) -> None:
    """An attempt of it died with the rest of them; all that comes then is newer."""
    world = make_world(numPartitions="1")
    world.send(*(f"{group}1" for group in "abcdefghijkl"))
    query = Query(world, available_now=True)
    query.log(query.latest_offset(query.start_of(0)))
    lose_an_attempt(world, query, 0)
    query.run(0)
    assert set(world.bodies()) < {row.body for row in world.sent}
    world.clock.advance(3)
    world.send(*(f"{group}1" for group in "nopqrs"))
    while query.trigger():
        pass
    assert set(world.bodies()) == {row.body for row in world.sent}
    world.audit()


def test_something_else_in_flight_delays_the_end_once(world: World) -> None:
    """What another consumer holds, as long as it likes, is left for the next run."""
    world.send("e1")
    query = Query(world, available_now=True)
    query.resume()
    world.receive_elsewhere(1, 100 * VISIBILITY_S)
    world.clock.advance(3)
    began_at, batches = world.clock.now(), 0
    while world.clock.now() < began_at + 10 * VISIBILITY_S:
        world.send(f"n{batches}")
        if not query.trigger():
            break
        batches += 1
        world.clock.advance(5)
    assert VISIBILITY_S <= world.clock.now() - began_at < 2 * VISIBILITY_S
    assert "e1" not in world.bodies()


def test_counts_that_lag_behind_a_crash_end_no_run(make_world: Callable[..., World]) -> None:
    """SQS's counts are approximate: what the driver before held is counted as waiting."""
    world = make_world()
    world.send(*(f"{group}1" for group in "abc"))
    dead = Query(world)
    dead.latest_offset(dead.start_of(0))
    world.die()
    call, began_at = world._call_model, world.clock.now()

    def lag(action: str, request: dict[str, Any]) -> dict[str, Any]:
        answer = call(action, request)
        told = answer.get("Attributes", {})
        if "ApproximateNumberOfMessages" in told and world.clock.now() < began_at + VISIBILITY_S:
            told |= {"ApproximateNumberOfMessages": "3", "ApproximateNumberOfMessagesNotVisible": "0"}
        return answer

    world._call_model = lag  # type: ignore[method-assign]
    query = Query(world, available_now=True)
    query.resume()
    while query.trigger():
        pass
    assert sorted(world.bodies()) == ["a1", "b1", "c1"]
    world.audit()


def test_a_query_that_another_one_overtakes_in_its_last_poll_does_not_end_well(world: World) -> None:
    """That one has what had waited."""
    query = Query(world, available_now=True).resume()
    query.start_of(0)
    other = Query(world, checkpoint=Checkpoint())

    def take_over() -> None:
        world.send("a1")
        other.log(other.latest_offset(other.start_of(0)))

    do_at(world, "before ReceiveMessage", take_over)
    with pytest.raises(FencedError):
        query.trigger()
