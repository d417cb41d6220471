"""Faults of the queue at every call of a running query: it goes on, or stops with one line and a restart goes on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sqs_fifo_spark.aws import client as aws
from sqs_fifo_spark.aws.client import ClientConfig
from sqs_fifo_spark.errors import AccessDeniedError, QueueNotFoundError, SqsFifoError, TransientQueueError
from sqs_fifo_spark.source.settlement import LONGEST_RETENTION_S
from tests.helpers import in_all_tests
from tests.simulation.world import ACTIONS, LAPSE_S, VISIBILITY_S
from tests.unit.by_hand import MODES, MakeWorld, Query, World, in_both_modes

pytestmark = pytest.mark.law("source-1", "source-5")

CALLED = tuple(sorted(set(ACTIONS.values()) - {"SendMessageBatch"}))  # what a source calls


def refusal(code: str, status: int = 403) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "call")


def set_attributes(world: World, **attributes: str) -> None:
    world.model.call("SetQueueAttributes", {"QueueUrl": world.url, "Attributes": attributes})


def busy(world: World) -> None:
    """Send enough for several partitions and epochs, and make each micro-batch take a heartbeat or two.

    Three groups were received before, so that they are carried, and held, where tasks delete all that they serve, too.
    """
    world.send(*(f"{'def'[index % 3]}{index}" for index in range(37, 61)))
    for _ in "def":
        world.receive_elsewhere(10)
    world.clock.advance(LAPSE_S)
    world.send(*(f"{'abc'[index % 3]}{index}" for index in range(1, 37)))

    def slow(event: str) -> None:
        if event.endswith(" is read"):
            world.pass_time(VISIBILITY_S / 2)

    world.on_step = slow


def drain_or_stop(world: World) -> SqsFifoError | None:
    """Run a query until the queue is empty, or return our error with which it stops."""
    try:
        Query(world).resume().drain()
    except SqsFifoError as error:
        return error
    finally:
        world.die()
    return None


def restart_healed(world: World, elapsed_s: float) -> None:
    """Go on after a while, and audit."""
    world.fault = lambda action: ""
    world.on_step = lambda event: None
    world.clock.advance(elapsed_s)
    world.send("a900", "b900")
    world.restart(allow_forgotten=True)
    world.die()


def from_call(number: int, action: str, then: Callable[[], str]) -> Callable[[str], str]:
    """Return a fault that does `then` at this call of `action` and at all that follow."""
    count = 0

    def fault(called: str) -> str:
        nonlocal count
        count += called == action
        return then() if called == action and count >= number else ""

    return fault


# Refused for good


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("elapsed_s", [in_all_tests(0), LAPSE_S])
@pytest.mark.parametrize("code", ["ExpiredToken", in_all_tests("InvalidClientTokenId"), in_all_tests("AccessDenied")])
@pytest.mark.parametrize("action", CALLED)
def test_credentials_refused_from_any_call_on_stop_the_query_and_lose_nothing(
    make_world: MakeWorld, action: str, code: str, elapsed_s: float, mode: str
) -> None:
    """In the driver's calls, in a task's, and in the heartbeat's: with one line; valid again, all goes on."""

    def refuse() -> str:
        raise refusal(code)

    stopped = 0
    for number in range(1, 60):
        world = make_world(maxMessagesPerTrigger="8", deleteAfter=mode)
        busy(world)
        world.fault = from_call(number, action, refuse)
        error = drain_or_stop(world)
        if error is None:
            break
        stopped += 1
        assert isinstance(error, AccessDeniedError)
        assert code in str(error)
        assert "\n" not in str(error)
        restart_healed(world, elapsed_s)
    assert stopped >= 5


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("elapsed_s", [0, LAPSE_S])
@pytest.mark.parametrize("action", CALLED)
def test_a_queue_deleted_at_any_call_and_made_again_doubles_nothing(
    make_world: MakeWorld, action: str, elapsed_s: float, mode: str
) -> None:
    """It stops with one line. What was sealed is still served, once; the new queue of that name is the same queue."""
    stopped = 0
    for number in range(1, 60):
        world = make_world(maxMessagesPerTrigger="8", deleteAfter=mode)
        busy(world)
        is_deleted = False

        def delete(world: World = world) -> str:
            nonlocal is_deleted
            if not is_deleted:
                is_deleted = True
                world.model.call("DeleteQueue", {"QueueUrl": world.url})
            return ""

        world.fault = from_call(number, action, delete)
        error = drain_or_stop(world)
        if error is None:
            break
        stopped += 1
        assert isinstance(error, QueueNotFoundError)
        assert str(error).startswith(f"the queue '{world.url}' does not exist (")
        world.fault = lambda action: ""
        world.on_step = lambda event: None
        world.model.call("CreateQueue", {"QueueName": "q.fifo", "Attributes": {"FifoQueue": "true"}})
        world.clock.advance(elapsed_s)
        old = {row.message_id for row in world.sent}
        committed = {row.message_id for batch in world.committed for rows in world.sink[batch].values() for row in rows}
        world.send(*(f"a{index}" for index in range(901, 916)))
        query = Query(world).resume()
        while query.trigger() or world.depth() != (0, 0):
            pass
        counts = Counter(row.message_id for rows in world.rows() for row in rows)
        assert set(counts.values()) == {1}
        assert {row.message_id for row in world.sent} - old <= counts.keys()
        assert committed <= counts.keys()
        world.die()
    assert stopped >= 5


# No answer for a while


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", ["refused", "lost"])
@pytest.mark.parametrize("outage_s", [in_all_tests(20), 300])
def test_an_outage_that_begins_at_any_call_loses_and_doubles_nothing(
    make_world: MakeWorld, outage_s: float, fault: str, mode: str
) -> None:
    """All calls fail, before or after their effect. Only opening the queue stops a query, with one line."""
    for number in range(1, 400):
        world = make_world(maxMessagesPerTrigger="8", deleteAfter=mode)
        busy(world)
        count, until = 0, 0.0

        def fails(action: str, world: World = world, number: int = number) -> str:
            nonlocal count, until
            count += 1
            if count == number:
                until = world.clock.now() + outage_s
            return fault if count >= number and world.clock.now() < until else ""

        world.fault = fails
        error = drain_or_stop(world)
        if error is not None:
            assert isinstance(error, TransientQueueError)
            assert not world.offsets, "a query under way does not stop for an outage"
        if not until:
            break
        restart_healed(world, 0)
    assert number > 30


@in_both_modes
def test_batch_calls_whose_entries_all_fail_stop_nothing(world: World) -> None:
    """Deletes and renewals without effect, for epochs on end: the ledger keeps the ids, and all is settled later."""
    busy(world)
    world.failing_entries = lambda action: frozenset(range(10))
    query = Query(world)
    for _ in range(4):
        assert query.trigger()
    assert world.deleted() == []
    assert world.journal().ledger().unconfirmed
    world.failing_entries = lambda action: frozenset()
    query.drain_and_audit()


def test_heartbeats_that_fail_for_a_visibility_timeout_are_told_once_for_each_group(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Not for each message nor for each heartbeat. The copies that come are deleted, and emitted never."""
    world.send(*(f"{'abc'[index % 3]}{index}" for index in range(1, 13)))
    copies: list[Any] = []

    def slow(event: str) -> None:
        if event.endswith("batch 0 is read"):
            with world.failing("ChangeMessageVisibilityBatch"):
                world.pass_time(3 * VISIBILITY_S)
                copies.extend(world.receive_elsewhere())
                world.pass_time(LAPSE_S)

    world.on_step = slow
    Query(world).drain()
    assert len(copies) == 10
    told = [record.getMessage() for record in caplog.records if "lost the lease" in record.getMessage()]
    assert sorted(told) == [
        f"lost the lease on messages of group '{group}': its renewals failed until it was over. SQS may hand them out "
        "again; this query recognises them and serves none twice."
        for group in "abc"
    ]
    world.audit()


# What SQS does with messages meanwhile


def test_messages_that_expire_in_flight_are_served_and_hold_nothing_up(world: World) -> None:
    """A sealed message is served though SQS has dropped it; its group goes on."""
    set_attributes(world, MessageRetentionPeriod="60")
    world.send("a1", "a2", "b1")
    query = Query(world)

    def slow(event: str) -> None:
        if event.endswith("batch 0 is read"):
            world.pass_time(90)
            assert world.depth() == (0, 0)

    world.on_step = slow
    assert query.trigger()
    world.send("a3", "b2")
    query.drain()
    assert [event.kind for event in world.events].count("expired") == 3
    world.audit()


@in_both_modes
def test_messages_that_expire_between_the_probe_and_its_epoch_are_served(world: World) -> None:
    """They are in the driver's hands; the queue has them no more when the tasks run."""
    set_attributes(world, MessageRetentionPeriod="60")
    query = Query(world)
    assert not query.trigger()
    world.send("a1", "a2")

    def slow(event: str) -> None:
        if event.startswith("-- batch 0 is 1/"):
            world.pass_time(90)
            assert world.depth() == (0, 0)

    world.on_step = slow
    query.drain_and_audit()


def test_a_committed_message_that_a_redrive_policy_takes_leaves_the_ledger_by_its_age(world: World) -> None:
    """Its delete was refused, and its copy was moved: nothing waits for it. Moved back, SQS gives it another id."""
    dead = world.model.call("CreateQueue", {"QueueName": "dead.fifo", "Attributes": {"FifoQueue": "true"}})["QueueUrl"]
    arn = world.model.call("GetQueueAttributes", {"QueueUrl": dead, "AttributeNames": ["QueueArn"]})["Attributes"]
    policy = {"deadLetterTargetArn": arn["QueueArn"], "maxReceiveCount": 2}
    set_attributes(world, RedrivePolicy=json.dumps(policy))
    query = world.served("a1")
    world.clock.advance(LAPSE_S)
    assert [message["Body"] for message in world.receive_elsewhere(visibility_timeout_s=5)] == ["a1"]
    world.send("b1")
    query.play_out()
    world.clock.advance(6)
    world.send("b2")
    query.play_out()
    assert [event.kind for event in world.events].count("moved_to_dlq") == 1
    assert query.driver.report()["unconfirmedDeletes"] == 1
    assert world.depth() == (0, 0)
    world.clock.advance(LONGEST_RETENTION_S + 86_400)
    world.send("a3")
    query.drain_and_audit()
    # StartMessageMoveTask gives the message a new id, so it is a new message.
    world.send("a1")
    query.drain()
    assert world.bodies() == ["a1", "b1", "b2", "a3", "a1"]
    world.audit()


# Restarts


def test_an_epoch_that_runs_again_is_told_with_its_number_and_what_it_holds(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Each restart says so in one line, and nothing is said of an epoch that had nothing."""
    world.send(*(f"a{index}" for index in range(1, 21)))

    def fail(event: str) -> None:
        if event.endswith("batch 1 is read"):
            raise ValueError("a row that cannot be read")

    world.on_step = fail
    for start in range(3):
        query = Query(world)
        with pytest.raises(ValueError, match="a row"):
            query.resume().drain()
        world.die()
        told = [record.getMessage() for record in caplog.records if "runs again" in record.getMessage()]
        held = [receipt for name in world.journal().objects()[2] for receipt in world.journal().receipts(name)]
        assert held
        assert told == start * [
            f"epoch 2 runs again, with the {len(held)} messages that it had: its micro-batch was not committed. They "
            "stand in the journal at 'memory'. If the micro-batch fails each time, correct what fails on one of its "
            "rows, or move that row aside with `sqs-fifo-spark journal skip`; until then the journal keeps all of them."
        ]
    assert world.deleted() == world.bodies() != []
    world.on_step = lambda event: None
    world.restart()


def test_renewed_credentials_are_taken_without_a_stop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next try of the same call is signed with what the chain gives then, in driver, task and heartbeat."""
    busy(world)
    is_expired, calls = False, 0

    def fault(action: str) -> str:
        nonlocal is_expired, calls
        calls += 1
        is_expired = is_expired or calls % 7 == 0
        if is_expired:
            raise refusal("ExpiredToken")
        return ""

    def forget(config: ClientConfig) -> None:
        nonlocal is_expired
        is_expired = False

    monkeypatch.setattr(aws, "forget_clients", forget)
    world.fault = fault
    Query(world).drain()
    assert calls > 40
    world.audit()
