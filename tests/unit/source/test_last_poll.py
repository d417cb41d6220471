"""An AvailableNow query ends with no copy, no short poll and no delete that failed between it and what waited."""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from sqs_fifo_spark.errors import TransientQueueError
from sqs_fifo_spark.source.driver.available_now import AvailableNow
from tests.simulation.world import LAPSE_S, VISIBILITY_S
from tests.unit.by_hand import Query, World, in_both_modes_with, unread, with_options

pytestmark = pytest.mark.law("source-6")


@in_both_modes_with(numPartitions="1", maxMessagesPerTrigger="100")
def test_available_now_does_not_take_a_short_poll_for_the_end(world: World) -> None:
    """It may bring nothing though there is something: a long poll tells."""
    world.send("o1", "p1", "q1")
    query = Query(world, available_now=True)
    world.clock.advance(2)
    world.send(*(f"n{index}" for index in range(12)))
    world.receive_elsewhere(3, 1)  # the older ones, so that they stand behind the newer
    world.clock.advance(1)
    shares = iter([1.0, 0.0])
    world.receive_share = lambda: next(shares, 1.0)
    query.resume()
    query.play_out()
    assert {"o1", "p1", "q1"} <= set(world.bodies())


@in_both_modes_with(numPartitions="1", maxMessagesPerTrigger="100")
def test_available_nows_last_poll_hands_on_nothing_that_the_last_epoch_has_served(world: World) -> None:
    """All stood still for a visibility timeout, so SQS delivers it again, and it is not committed yet."""
    world.send("x1", "x2", "x3", "x4")
    others = world.receive_elsewhere(4)
    world.send("o1")
    query = Query(world, available_now=True).resume()
    for each in others:
        world.model.call("DeleteMessage", {"QueueUrl": world.url, "ReceiptHandle": each["ReceiptHandle"]})
    assert query.trigger()
    world.clock.advance(3)
    world.send("e3", "e4", "f1")
    assert query.trigger()
    assert world.bodies() == ["o1", "e3", "e4", "f1"]
    world.do_at("before ReceiveMessage", lambda: world.clock.advance(LAPSE_S))
    query.play_out()
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    assert world.bodies()[:4] == ["o1", "e3", "e4", "f1"]
    assert len(set(world.bodies())) == len(world.bodies())
    assert world.depth() == (0, 0)


@in_both_modes_with(numPartitions="2", waitTimeSeconds="1", maxMessagesPerTrigger="100")
def test_available_now_does_not_end_while_copies_that_it_holds_lock_what_is_old(world: World) -> None:
    """Their deletes failed in the task, so they are the commit's, and their group is free only then."""
    world.ran(*(f"a{index}" for index in range(1, 13)))
    query = Query(world, available_now=True).resume()
    world.clock.advance(2)
    world.send("n1")
    for batch in range(1, 20):
        if not query.announced():
            break
        with world.failing("DeleteMessageBatch") if batch == 1 else nullcontext():
            query.run(batch)
    assert sorted(world.bodies()) == sorted(row.body for row in world.sent)


@in_both_modes_with(numPartitions="1", waitTimeSeconds="1", visibilityTimeoutSeconds="120")
def test_available_now_does_not_end_with_copies_that_its_probe_could_not_delete(world: World) -> None:
    """They hide what follows them, and polls bring nothing: that is no end, but an error."""
    world.served("a1")
    world.die(down_s=121)
    world.receive_share = lambda: 0.0  # the next run's task is given nothing
    Query(world).resume().trigger()  # commits a1 with a handle that has expired
    world.receive_share = lambda: 1.0
    world.die(down_s=121)
    world.send("a2")
    query = Query(world, available_now=True).resume()
    calls: list[str] = []

    def fault(action: str) -> str:
        calls.append(action)
        return "refused" if action == "DeleteMessageBatch" and "ReceiveMessage" in calls else ""

    world.fault = fault
    with pytest.raises(TransientQueueError, match="could not be deleted"):
        query.play_out()
    world.fault = lambda action: ""
    world.die(down_s=121)
    Query(world, available_now=True).resume().play_out()
    assert world.bodies() == ["a1", "a2"]


def fail_deletes(world: World, failing: Callable[[list[str | None]], list[int]]) -> None:
    """Let deletes fail of the entries that `failing` finds by their groups, while heartbeats go on, as threads do."""
    group_of, call = dict[str, str](), world._call_model

    def ask(action: str, request: dict[str, Any]) -> dict[str, Any]:
        if action == "DeleteMessageBatch":
            world.beat()
            fails = frozenset(failing([group_of.get(entry["ReceiptHandle"]) for entry in request["Entries"]]))
            world.failing_entries = lambda action: fails
        answer = call(action, request)
        world.failing_entries = lambda action: frozenset()
        group_of.update(
            (each["ReceiptHandle"], each["Attributes"]["MessageGroupId"]) for each in answer.get("Messages", ())
        )
        return answer

    world._call_model = ask  # type: ignore[method-assign]


@in_both_modes_with(numPartitions="1", visibilityTimeoutSeconds="120")
@pytest.mark.parametrize("until", range(6, 11))
def test_it_does_not_end_while_what_it_could_not_delete_hides_what_waited(world: World, until: int) -> None:
    """Micro-batches of newer messages, and polls that bring nothing, prove nothing about the group meanwhile."""
    call = world._call_model
    fail_deletes(world, lambda groups: [at for at, group in enumerate(groups) if group == "a"])
    world.send(*(f"a{number}" for number in range(1, 13)))
    query = Query(world, available_now=True)
    query.start_of(0)
    world.clock.advance(3)
    for number in itertools.count():
        if number == until:
            world._call_model = call  # type: ignore[method-assign]
        if not query.announced():
            break
        world.send(f"{string.ascii_letters[number + 1]}1")
        query.run(number)
    assert {"a11", "a12"} <= set(world.bodies())


@in_both_modes_with(numPartitions="1", maxMessagesPerTrigger="10")
def test_it_ends_while_deletes_of_newer_messages_fail(world: World) -> None:
    """A message behind a newer one is newer, too."""
    world.send(*(f"o{number}" for number in range(1, 31)))
    query = Query(world, available_now=True)
    query.start_of(0)
    world.clock.advance(3)
    fail_deletes(world, lambda groups: [at for at, group in enumerate(groups) if group != "o"][:1])
    for number in range(40):
        world.send(*(f"{letter}{number + 1}" for letter in string.ascii_lowercase if letter != "o"))
        if not query.announced():
            break
        query.run(number)
    else:
        pytest.fail("it goes on")


@with_options(numPartitions="1")
def test_it_does_not_end_behind_an_unread_micro_batch_while_what_it_could_not_delete_is_hidden(world: World) -> None:
    """The commit before took a minute in vain, and what it had held until then is hidden for longer."""
    world.send(*(f"b{number}" for number in range(1, 11)), *(f"a{number}" for number in range(1, 21)))
    world.clock.advance(2)
    query = Query(world, available_now=True, reads=unread(1))
    query.trigger()

    def fault(action: str) -> str:
        if action != "DeleteMessageBatch":
            return ""
        world.beat()
        return "throttled"

    query.log(query.latest_offset(query.start_of(1)))
    world.fault = fault
    query.startless.commit(query.offsets[0])
    world.fault = lambda action: ""
    query.run(1)
    query.play_out()
    assert sorted(world.bodies()) == sorted(row.body for row in world.sent)


@with_options(numPartitions="1")
def test_a_last_poll_that_brings_a_copy_is_not_the_last(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages behind the copy can be received only once that poll has deleted it."""
    query = world.served("a1", available_now=True)
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
        world.beat()
    world.send("c1")
    monkeypatch.setattr(AvailableNow, "may_end_with", lambda *_: True)
    assert query.latest_offset(query.start_of(2)) != query.start_of(2)
    assert not query.driver._work.is_finished
    polled = [event for _, _, event in world.trace if event.startswith("after ReceiveMessage")][-1]
    assert "'a1'" in polled
    assert "'c1'" in polled
