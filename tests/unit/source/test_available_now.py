"""When an AvailableNow query ends while producers go on, and what an attempt that died still hides."""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sqs_fifo_spark.errors import FencedError
from sqs_fifo_spark.source.available_now import AvailableNow
from tests.simulation.hub import Crash
from tests.simulation.spark import Query
from tests.simulation.world import LAPSE_S, VISIBILITY_S, Checkpoint
from tests.unit.by_hand import MODES, HandHeartbeat, World, crash_at, do_at

pytestmark = pytest.mark.law("source-6")


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
    carried = {message_id for plan in query.plans(0) for ids in world.carried(plan).values() for message_id in ids}
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


@pytest.mark.parametrize("mode", MODES)
def test_what_it_holds_itself_does_not_delay_the_end(make_world: Callable[..., World], mode: str) -> None:
    """Producers go on, and nobody else has anything in flight. Each micro-batch ends at its limit."""
    world = make_world(deleteAfter=mode, maxMessagesPerTrigger="3", numPartitions="1")
    world.send("e1")
    query = Query(world, available_now=True).resume()
    world.clock.advance(3)
    began_at = world.clock.now()
    while world.clock.now() < began_at + 10 * VISIBILITY_S:
        world.send(*(f"n{len(world.sent) + number}" for number in range(3)))
        if not query.trigger():
            break
        world.clock.advance(5)
    assert "e1" in world.bodies()
    assert world.clock.now() - began_at < VISIBILITY_S


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


@pytest.mark.parametrize("seed", [0, 1, 3])
@pytest.mark.parametrize("is_noted", [True, False])
def test_what_tasks_had_deleted_before_it_began_is_not_served_of_what_waited(
    make_world: Callable[..., World], seed: int, is_noted: bool
) -> None:
    """A batch that runs again had not waited, so it cannot make up for what had, while there is always more."""
    world = make_world(seed, any_order=True, deleteAfter="journal", numPartitions="1", maxMessagesPerTrigger="50")
    world.send(*(f"p{number}" for number in range(1, 51)))
    crash_at(world, "-- batch 0 is in the sink")
    with pytest.raises(Crash):
        Query(world).trigger()
    world.die()
    assert world.depth() == (0, 0)
    if is_noted:
        world.checkpoint.committed.add(0)
    world.options = replace(world.options, max_messages_per_trigger=10)
    world.send(*(f"o{number}" for number in range(1, 31)))
    query = Query(world, available_now=True)
    world.clock.advance(3)
    query.resume()
    for _ in range(30):
        world.send(*(f"n{len(world.sent) + number}" for number in range(15)))
        if not query.trigger():
            break
    served = [body for body in world.bodies() if body[0] in "on"]
    assert len(served) >= 30


def fail_deletes(world: World, group: str) -> None:
    """Let deletes of the group's messages fail, while heartbeats go on, as their thread does."""
    group_of, call = dict[str, str](), world._call_model

    def ask(action: str, request: dict[str, Any]) -> dict[str, Any]:
        if action == "DeleteMessageBatch":
            for each in list(HandHeartbeat.live):
                each.beat()
            groups = [group_of.get(entry["ReceiptHandle"]) for entry in request["Entries"]]
            failing = frozenset(index for index, each in enumerate(groups) if each == group)
            world.failing_entries = lambda action: failing
        answer = call(action, request)
        world.failing_entries = lambda action: frozenset()
        group_of.update(
            (each["ReceiptHandle"], each["Attributes"]["MessageGroupId"]) for each in answer.get("Messages", ())
        )
        return answer

    world._call_model = ask  # type: ignore[method-assign]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("failing", range(6, 11))
def test_it_does_not_end_while_what_it_could_not_delete_hides_what_waited(
    make_world: Callable[..., World], mode: str, failing: int
) -> None:
    """Micro-batches of newer messages, and polls that bring nothing, prove nothing about the group meanwhile."""
    world = make_world(numPartitions="1", deleteAfter=mode, visibilityTimeoutSeconds="120")
    call = world._call_model
    fail_deletes(world, "a")
    world.send(*(f"a{number}" for number in range(1, 13)))
    query = Query(world, available_now=True)
    query.start_of(0)
    world.clock.advance(3)
    for number in itertools.count():
        if number == failing:
            world._call_model = call  # type: ignore[method-assign]
        start = query.start_of(number)
        end = query.latest_offset(start)
        if end == start:
            break
        query.log(end)
        if number:
            query.startless.commit(query.offsets[number - 1])
        world.send(f"{string.ascii_letters[number + 1]}1")
        query.run(number)
    assert {"a11", "a12"} <= set(world.bodies())


@pytest.mark.parametrize("mode", MODES)
def test_it_ends_while_deletes_of_newer_messages_fail(make_world: Callable[..., World], mode: str) -> None:
    """What stands behind a newer message is newer, too."""
    world = make_world(numPartitions="1", deleteAfter=mode, maxMessagesPerTrigger="10")
    world.send(*(f"o{number}" for number in range(1, 31)))
    query = Query(world, available_now=True)
    query.start_of(0)
    world.clock.advance(3)
    call, old = world._call_model, set[str]()

    def ask(action: str, request: dict[str, Any]) -> dict[str, Any]:
        if action == "DeleteMessageBatch":
            for each in list(HandHeartbeat.live):
                each.beat()
            newer = [at for at, entry in enumerate(request["Entries"]) if entry["ReceiptHandle"] not in old]
            world.failing_entries = lambda action: frozenset(newer[:1])
        answer = call(action, request)
        world.failing_entries = lambda action: frozenset()
        found = answer.get("Messages", ())
        old.update(each["ReceiptHandle"] for each in found if each["Attributes"]["MessageGroupId"] == "o")
        return answer

    world._call_model = ask  # type: ignore[method-assign]
    for number in range(40):
        world.send(*(f"{letter}{number + 1}" for letter in string.ascii_lowercase if letter != "o"))
        start = query.start_of(number)
        end = query.latest_offset(start)
        if end == start:
            break
        query.log(end)
        if number:
            query.startless.commit(query.offsets[number - 1])
        query.run(number)
    else:
        pytest.fail("it goes on")


def test_it_does_not_end_behind_an_unread_micro_batch_while_what_it_could_not_delete_is_hidden(
    make_world: Callable[..., World],
) -> None:
    """The commit before took a minute in vain, and what it had held until then is hidden for longer."""
    world = make_world(numPartitions="1")
    world.send(*(f"b{number}" for number in range(1, 11)), *(f"a{number}" for number in range(1, 21)))
    world.clock.advance(2)
    query = Query(world, available_now=True, reads=lambda batch, count: None if batch == 1 else range(count))
    query.trigger()

    def fault(action: str) -> str:
        if action != "DeleteMessageBatch":
            return ""
        for each in list(HandHeartbeat.live):
            each.beat()
        return "throttled"

    query.log(query.latest_offset(query.start_of(1)))
    world.fault = fault
    query.startless.commit(query.offsets[0])
    world.fault = lambda action: ""
    query.run(1)
    while query.trigger():
        pass
    assert sorted(world.bodies()) == sorted(row.body for row in world.sent)


def test_a_last_poll_that_brings_a_copy_is_not_the_last(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands behind the copy can be received only once that poll has deleted it."""
    world = make_world(numPartitions="1")
    world.send("a1")
    query = Query(world, available_now=True)
    query.trigger()
    query.log(query.latest_offset(query.start_of(1)))
    world.failing_entries = lambda action: frozenset(range(10))
    query.startless.commit(query.offsets[0])
    world.failing_entries = lambda action: frozenset()
    world.receive_elsewhere(10, VISIBILITY_S)
    world.send("b1")
    query.run(1)
    world.send("a2")
    for _ in range(4):
        world.clock.advance(LAPSE_S / 4)
        for each in list(HandHeartbeat.live):
            each.beat()
    world.send("c1")
    monkeypatch.setattr(AvailableNow, "may_end_with", lambda *_: True)
    assert query.latest_offset(query.start_of(2)) != query.start_of(2)
    assert not query.driver._work.is_finished
    polled = [event for _, _, event in world.trace if event.startswith("after ReceiveMessage")][-1]
    assert "'a1'" in polled
    assert "'c1'" in polled
