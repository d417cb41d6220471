"""A queue that answers as AWS does not, or fails for hours: nothing is lost, and nobody waits for it long."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from sqs_fifo_spark.errors import QueueRequestError, TransientQueueError
from sqs_fifo_spark.source.queue import RELEASE_BUDGET_S, Queue
from tests.helpers import raises_one_line
from tests.simulation.world import LAPSE_S, Checkpoint
from tests.unit.by_hand import MODES, MakeWorld, Query, World, in_both_modes_with, with_options

pytestmark = pytest.mark.law("source-1", "source-6")

LONG_S = 43_200
LONGEST_WAIT_S = 60
"""Time that a task, or Spark's thread, may wait for failing entries."""


def refusing_deletes_of_the_first(world: World, code: dict[str, str]) -> AbstractContextManager[None]:
    """Of the first message that was sent."""
    first = world.sent[0].message_id

    def refuse(action: str, request: dict[str, Any]) -> Any:
        if action != "DeleteMessageBatch":
            return World.call_sqs(world, action, request)
        odd = [each for each in request["Entries"] if world._told.get(each["ReceiptHandle"]) == first]
        entries = [each for each in request["Entries"] if each not in odd]
        answer = World.call_sqs(world, action, {**request, "Entries": entries}) if entries else {"Successful": []}
        failed = [{"Id": each["Id"], "SenderFault": True, **code} for each in odd]
        return {**answer, "Failed": [*answer.get("Failed", ()), *failed]}

    return world.answering(refuse)


@pytest.mark.parametrize(
    "code", [{}, {"Code": "SomethingNew"}, {"Code": "InvalidParameterValue", "Message": "why not"}]
)
@in_both_modes_with(numPartitions="1")
def test_a_refusal_that_nobody_knows_concerns_its_message_alone(
    world: World, caplog: pytest.LogCaptureFixture, code: dict[str, str]
) -> None:
    """Of a delete: all others are deleted, and the query goes on. It is served once, however often it comes again."""
    world.send("a1", "a2", "b1")
    query = Query(world)
    with refusing_deletes_of_the_first(world, code):
        for _ in range(3):
            query.trigger()
    assert [record.message for record in caplog.records if "SQS refuses an entry" in record.message]
    assert world.depth() in ((0, 1), (1, 0))  # it comes again when its hold is over
    query.drain()
    assert sorted(set(world.bodies()) - {"last1"}) == ["a1", "a2", "b1"]
    world.audit()


@with_options(numPartitions="1")
def test_a_refusal_of_all_entries_stops_the_query(world: World) -> None:
    """No other call would succeed, and nothing would be deleted any more."""
    world.send("a1", "b1")

    def refuse(action: str, request: dict[str, Any]) -> Any:
        if action != "DeleteMessageBatch":
            return World.call_sqs(world, action, request)
        return {"Failed": [{"Id": each["Id"], "SenderFault": True, "Code": "New"} for each in request["Entries"]]}

    with world.answering(refuse), pytest.raises(QueueRequestError, match="SQS refused delete_message_batch on "):
        Query(world).drain()
    world.restart(down_s=LAPSE_S)


@with_options(numPartitions="1", waitTimeSeconds="1")
def test_an_available_now_query_does_not_end_behind_a_copy_that_cannot_be_deleted(world: World) -> None:
    """Whatever SQS says of it: it hides what follows in its group."""
    world.ran("a1")
    world.send("a2")
    with refusing_deletes_of_the_first(world, {"Code": "New"}):
        query = Query(world, available_now=True).resume()
        with pytest.raises(TransientQueueError, match="could not be deleted"):
            query.play_out()
    world.die(down_s=LAPSE_S)
    Query(world, available_now=True).resume().play_out()
    assert world.bodies() == ["a1", "a2"]


@with_options(numPartitions="1", visibilityTimeoutSeconds="3600")
def test_a_copy_is_deleted_however_late_its_poll_has_an_answer(world: World) -> None:
    """A healthy queue gives one copy after another, each after a long wait."""
    world.served("a1", "b1", "c1")
    world.die(down_s=3_605)
    while world.receive_elsewhere(10, 9_000):
        pass
    query = Query(world).resume()
    query.trigger()
    world.clock.advance(9_001)
    deleted: list[int] = []

    def one_after_another(action: str, request: dict[str, Any]) -> Any:
        if action == "ReceiveMessage":
            world.clock.advance(16)
            request = {**request, "MaxNumberOfMessages": 1}
        if action == "DeleteMessageBatch":
            deleted.append(len(request["Entries"]))
        return World.call_sqs(world, action, request)

    start = query.start_of(len(query.offsets))
    with world.answering(one_after_another):
        assert query.latest_offset(start) == start
    assert deleted == [1, 1, 1]


def spoilt(message: dict[str, Any], how: str) -> dict[str, Any]:
    if how == "a lone surrogate":
        return {**message, "Body": json.loads('"\\ud800"')}
    return {**message, "Attributes": {**message["Attributes"], "SequenceNumber": "secret"}}


@with_options(numPartitions="1")
@pytest.mark.parametrize("how", ["a lone surrogate", "a number that is none"])
def test_what_is_no_message_of_a_fifo_queue_is_told_by_its_id(world: World, how: str) -> None:
    """One line, without anything of the message's text."""
    world.send("a1")

    def spoil(action: str, request: dict[str, Any]) -> Any:
        answer = World.call_sqs(world, action, request)
        return {**answer, "Messages": [spoilt(each, how) for each in answer.get("Messages", ())]}

    query = Query(world)
    with world.answering(spoil), raises_one_line(QueueRequestError, match=world.sent[0].message_id) as told:
        query.latest_offset(query.start_of(0))
    assert not {"secret", "ud800"} & {*str(told.value).replace("'", " ").split()}
    world.die(down_s=LONG_S)
    Query(world).drain_and_audit()


@with_options(numPartitions="1")
@pytest.mark.parametrize(
    ("kept", "missing"),
    [
        (["MessageGroupId", "ApproximateReceiveCount"], "SequenceNumber"),
        (None, "MessageGroupId, SequenceNumber, ApproximateReceiveCount"),
    ],
)
def test_an_endpoint_that_leaves_out_what_order_needs_is_named(
    world: World, kept: list[str] | None, missing: str
) -> None:
    """By the attributes, at the first receive: moto numbers not every message, and local-aws-sqs gives none of them."""
    world.send("a1")

    def leave_out(action: str, request: dict[str, Any]) -> Any:
        answer = World.call_sqs(world, action, request)
        for each in answer.get("Messages", ()):
            each["Attributes"] = kept and {name: each["Attributes"][name] for name in kept}
        return answer

    query = Query(world)
    with world.answering(leave_out), raises_one_line(QueueRequestError, match=f"has left {missing} out of .*emulator"):
        query.latest_offset(query.start_of(0))


@with_options(numPartitions="1")
@pytest.mark.parametrize("name", ["QueueArn", "ApproximateNumberOfMessages"])
def test_an_endpoint_that_leaves_out_what_it_says_of_the_queue_is_named(world: World, name: str) -> None:
    def leave_out(action: str, request: dict[str, Any]) -> Any:
        answer = World.call_sqs(world, action, request)
        answer.get("Attributes", {}).pop(name, None)
        return answer

    world.send("a1")
    with (
        world.answering(leave_out),
        raises_one_line(QueueRequestError, match=f"has left {name} out of .*get_queue_attributes"),
    ):
        Query(world).trigger()


def test_copies_whose_deletes_fail_hold_up_no_task(make_world: MakeWorld) -> None:
    """However long its messages may be held."""
    world = make_world(numPartitions="1", visibilityTimeoutSeconds=str(LONG_S))
    world.served("a1", "b1")
    world.die(down_s=LONG_S + 5)
    query = Query(world).resume()
    world.send("a2", "b2")
    query.announce()
    plans = query.plans(1)
    assert world.journal().ledger().unconfirmed
    world.failing_entries = lambda action: frozenset(range(10)) if action == "DeleteMessageBatch" else frozenset()
    began_at = world.clock.now()
    for plan in plans:
        world.read(plan)
    assert world.clock.now() - began_at < LONGEST_WAIT_S


def many(world: World, count: int) -> None:
    """So many groups with ten messages each."""
    world.send(*(f"{name}{number}" for name in itertools.islice(names(), count) for number in range(1, 11)))


def names() -> Iterator[str]:
    for size in itertools.count(1):
        yield from map("".join, itertools.product("abcdefgh", repeat=size))


def failing(*actions: str) -> Callable[[str], frozenset[int]]:
    return lambda action: frozenset(range(10)) if action in actions else frozenset()


@pytest.mark.parametrize("mode", MODES)
def test_renewals_that_fail_hold_up_no_plan(make_world: MakeWorld, mode: str) -> None:
    """A replay needs nothing from the queue."""
    world = make_world(numPartitions="1", visibilityTimeoutSeconds=str(LONG_S), deleteAfter=mode)
    many(world, 30)
    query = Query(world)
    world.kill("-- batch 0 is in the sink", query.trigger)
    query = Query(world)
    world.failing_entries = failing("ChangeMessageVisibilityBatch")
    began_at = world.clock.now()
    query.plans(0)
    assert world.clock.now() - began_at < LONGEST_WAIT_S
    world.failing_entries = failing()
    query.run(0)
    query.drain_and_audit()


@with_options(numPartitions="1", maxMessagesPerTrigger="100")
def test_copies_whose_deletes_fail_do_not_hold_up_the_probe(world: World) -> None:
    """Spark asks again, and what is no copy is served meanwhile."""
    many(world, 6)
    Query(world).trigger()
    world.die(down_s=LAPSE_S)
    while world.receive_elsewhere(10, 3_000):
        pass
    query = Query(world).resume()
    query.trigger()  # settles with handles that have expired; its task finds nothing
    assert len(world.journal().ledger().unconfirmed) == 60
    world.clock.advance(3_001)
    world.send("zz1")
    world.failing_entries = failing("DeleteMessageBatch")
    for _ in range(20):
        began_at = world.clock.now()
        query.trigger()
        assert world.clock.now() - began_at < 2 * LONGEST_WAIT_S
        if "zz1" in world.bodies():
            break
    assert "zz1" in world.bodies()
    world.failing_entries = failing()
    query.drain_and_audit()


@in_both_modes_with(numPartitions="100")
def test_releases_that_fail_hold_up_no_new_query(world: World) -> None:
    """However many objects an older query has left."""
    many(world, 100)
    query = Query(world)
    world.crash("-- batch 0 is in the sink", query.trigger)
    assert world.offsets[0].partitions > 90
    world.die()
    other = Query(world, checkpoint=Checkpoint())
    world.failing_entries = failing("ChangeMessageVisibilityBatch")
    began_at = world.clock.now()
    other.latest_offset(other.start_of(0))
    assert world.clock.now() - began_at < LONGEST_WAIT_S


@with_options(numPartitions="1")
@pytest.mark.parametrize("empty", [None, []])
def test_lists_that_are_null_are_empty(world: World, empty: list[Any] | None) -> None:
    """As some JSON libraries write them."""
    world.send("a1")

    def without_lists(action: str, request: dict[str, Any]) -> Any:
        answer = World.call_sqs(world, action, request)
        return {**answer, **{key: answer.get(key) or empty for key in ("Messages", "Failed", "Successful")}}

    with world.answering(without_lists):
        Query(world).drain_and_audit()


@with_options(numPartitions="1", visibilityTimeoutSeconds="600")
def test_a_release_is_asked_for_though_a_call_of_it_stood_still(world: World) -> None:
    """One that has no answer is no reason to ask for nothing more."""
    many(world, 2)
    queue = Queue(world.options, world.clock)
    receipts = [message.receipt for _ in range(2) for message in queue.receive(10)]
    stalls = [True]

    def failing_entries(action: str) -> frozenset[int]:
        if stalls:
            stalls.pop()
            world.clock.advance(RELEASE_BUDGET_S * 3)
            return frozenset(range(10))
        return frozenset()

    world.failing_entries = failing_entries
    queue.release(receipts)
    assert world.depth() == (10, 10)
