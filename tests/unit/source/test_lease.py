"""Leases on a hand-turned clock: when a hold is renewed, with which others, and when it is lost."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

import pytest

from sqs_fifo_spark.errors import QueueRequestError
from sqs_fifo_spark.source.bandwidth import renewal_threads
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.lease import Lease
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.queue import RELEASE_BUDGET_S
from sqs_fifo_spark.source.settlement import release
from tests.manual_clock import ManualClock
from tests.unit.source.leases import HEARTBEAT_S, VISIBILITY_S, ModelQueue, is_held

pytestmark = pytest.mark.law("source-7")


def run(lease: Lease, clock: ManualClock, seconds: float) -> None:
    """Let time pass as the heartbeat's thread sees it: it wakes when a renewal is due."""
    end = clock.monotonic() + seconds
    while clock.monotonic() < end:
        due = lease.next_renewal()
        step = min(HEARTBEAT_S, end - clock.monotonic())
        if due is not None:
            step = min(step, max(0.0, due - clock.monotonic()))
        clock.advance(max(step, 0.01))
        lease.renew()


def test_short_work_makes_no_call(queue: ModelQueue, lease: Lease, clock: ManualClock) -> None:
    """Before the heartbeat nothing is renewed, and nothing is once it is deleted."""
    held = queue.held_by(lease, "a", "b")
    run(lease, clock, HEARTBEAT_S - 0.1)
    lease.stop_renewing(held)
    run(lease, clock, 100)
    assert queue.calls == []
    assert lease.next_renewal() is None


def test_holds_are_renewed_at_each_third_of_the_timeout(queue: ModelQueue, lease: Lease, clock: ManualClock) -> None:
    """Four visibility timeouts cost twelve calls, and the messages are in flight all the time."""
    held = queue.held_by(lease, "a", "b")
    run(lease, clock, 4 * VISIBILITY_S)
    assert len(queue.calls) == 12
    assert {timeout_s for _, timeout_s, _ in queue.calls} == {VISIBILITY_S}
    assert queue.in_flight() == 2
    assert all(is_held(lease, receipt) for receipt in held)
    assert lease.lost_count == 0


def test_renewals_come_in_batches_of_ten_from_the_same_receives(
    queue: ModelQueue, lease: Lease, clock: ManualClock
) -> None:
    """45 messages of 5 receives are 5 calls, one receive in each, heads of groups in front."""
    held = [queue.take(*(f"{number}-{index}" for index in range(9)), receive=number) for number in range(5)]
    for receipts in held:
        lease.hold(receipts, since=clock.monotonic())
    clock.advance(HEARTBEAT_S)
    lease.renew()
    assert [receipts for receipts, _, _ in queue.calls] == held


def test_holding_twice_renews_once(queue: ModelQueue, lease: Lease, clock: ManualClock) -> None:
    """A receipt that is held is left as it is, with its own time."""
    held = queue.held_by(lease, "a")
    clock.advance(5)
    lease.hold(held, since=clock.monotonic())
    clock.advance(5)
    lease.renew()
    assert len(queue.calls) == 1


def test_failed_renewals_are_repeated_before_the_hold_is_over(
    queue: ModelQueue, lease: Lease, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Two thirds of the timeout without an answer lose nothing; each try is short."""
    queue.held_by(lease, "a")
    fails_until = clock.monotonic() + VISIBILITY_S - 3
    queue.answer = lambda receipt, outcome: Outcome.FAILED if clock.monotonic() < fails_until else outcome
    run(lease, clock, 2 * VISIBILITY_S)
    assert len(queue.calls) > 5
    assert all(0 < answer_s <= HEARTBEAT_S / 2 for _, _, answer_s in queue.calls)
    assert queue.in_flight() == 1
    assert lease.lost_count == 0
    assert caplog.text == ""


def test_renewals_that_fail_until_the_hold_is_over_lose_it(
    queue: ModelQueue, lease: Lease, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Then it is said, once, and no further call is made."""
    held = queue.held_by(lease, "a")
    queue.answer = lambda receipt, outcome: Outcome.FAILED
    run(lease, clock, 2 * VISIBILITY_S)
    calls = len(queue.calls)
    run(lease, clock, 2 * VISIBILITY_S)
    assert lease.lost_count == 1
    assert len(queue.calls) == calls
    assert not is_held(lease, held[0])
    assert caplog.text.count("lost the lease") == 1


def test_a_lost_hold_is_warned_of_once_for_each_group(
    queue: ModelQueue, lease: Lease, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Three messages of one group and one of another are two warnings and four losses; no handle is shown."""
    held = queue.held_by(lease, "a", "a", "a", "b")
    clock.advance(VISIBILITY_S + 1)
    lease.renew()
    lease.renew()
    lease.hold(held, since=clock.monotonic())
    run(lease, clock, VISIBILITY_S)
    assert queue.calls == []  # SQS could only refuse what is over
    assert lease.lost_count == 4
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert all(receipt.receipt_handle not in caplog.text for receipt in held)


def test_the_others_of_a_batch_are_kept_when_one_is_lost(queue: ModelQueue, lease: Lease, clock: ManualClock) -> None:
    """A single lost hold costs only itself."""
    held = queue.held_by(lease, "a", "b", "c")
    queue.let_go(held[1])
    run(lease, clock, VISIBILITY_S * 2)
    assert [is_held(lease, receipt) for receipt in held] == [True, False, True]
    assert queue.in_flight() == 2
    assert lease.lost_count == 1


def test_holds_end_before_sqs_limit_of_twelve_hours(
    queue: ModelQueue, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """They are renewed up to it, never past it, and lost by our own reckoning, not by a refusal."""
    lease = Lease(queue, clock, visibility_timeout_s=3_600, heartbeat_s=1_200)
    held = queue.take("a")
    entry = {"ReceiptHandle": held[0].receipt_handle, "VisibilityTimeout": 3_600}
    queue.model.call("ChangeMessageVisibility", {"QueueUrl": queue.url, **entry})
    lease.hold(held, since=clock.monotonic())
    refused: list[Outcome] = []

    def note(receipt: Receipt, outcome: Outcome) -> Outcome:
        if outcome is not Outcome.DONE:
            refused.append(outcome)
        return outcome

    queue.answer = note
    began_at = clock.now()
    while lease.lost_count == 0:
        due = lease.next_renewal()
        assert due is not None
        clock.advance(max(0.05, due - clock.monotonic()))
        lease.renew()
        assert clock.now() - began_at < 43_200
    assert clock.now() - began_at > 43_200 - 30
    assert refused == []
    assert len(queue.calls) < 100
    assert "12 hours" in caplog.text


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.FAILED])
def test_what_is_not_needed_any_more_is_not_lost_by_a_call_under_way(
    queue: ModelQueue, lease: Lease, clock: ManualClock, outcome: Outcome, caplog: pytest.LogCaptureFixture
) -> None:
    """A message deleted during its renewal was not lost."""
    held = queue.held_by(lease, "a", "b")
    queue.before = lambda: lease.stop_renewing(held)
    queue.answer = lambda receipt, done: outcome
    clock.advance(HEARTBEAT_S)
    lease.renew()
    assert lease.lost_count == 0
    assert caplog.text == ""
    assert lease.next_renewal() is None


def test_a_loss_that_is_over_may_be_held_and_lost_anew(
    queue: ModelQueue, lease: Lease, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """After its epoch is settled a group's next loss is news again."""
    for _ in range(2):
        held = queue.held_by(lease, "a")
        clock.advance(VISIBILITY_S + 1)
        lease.renew()
        lease.stop_renewing(held)
    assert caplog.text.count("lost the lease") == 2


def test_no_hold_outlives_its_timeout_in_our_eyes(queue: ModelQueue, lease: Lease, clock: ManualClock) -> None:
    """A pause of the whole process is a lost hold, before any call says so."""
    held = queue.held_by(lease, "a")
    clock.advance(VISIBILITY_S - 0.5)
    assert is_held(lease, held[0])
    clock.advance(0.5)
    assert not is_held(lease, held[0])


def test_a_release_ends_though_sqs_does_not_answer(queue: ModelQueue, lease: Lease, clock: ManualClock) -> None:
    """A message that it misses is free after its visibility timeout."""
    held = queue.take("a") * 5_000
    queue.before = lambda: clock.advance(10)  # connect and read, until the client gives up
    queue.answer = lambda receipt, outcome: Outcome.FAILED
    began = clock.monotonic()
    release(held, queue=queue, lease=lease)
    assert clock.monotonic() - began <= RELEASE_BUDGET_S + 10


@pytest.mark.parametrize(
    ("messages", "heartbeat_s", "threads"),
    [(10, 40, 4), (20_000, 40, 10), (48_000, 40, 24), (48_000, 90, 16), (120_000, 40, 32), (10_000, 1, 32)],
)
def test_renewals_keep_up_with_a_full_micro_batch(messages: int, heartbeat_s: float, threads: int) -> None:
    """All that may be held is renewed within half of one, at 100 ms a call; and never with a hundred threads."""
    assert renewal_threads(messages, heartbeat_s) == threads


@pytest.mark.parametrize("error", [QueueRequestError("SQS refused it"), RuntimeError("not foreseen")])
def test_a_renewal_that_is_refused_costs_the_others_nothing(
    error: Exception, queue: ModelQueue, lease: Lease, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All calls of a beat are made; what one of them met is raised afterwards, and again while it lasts."""
    held = [
        receipt
        for number in range(5)
        for receipt in queue.take(*(f"g{number}-{each}" for each in "abcdefghij"), receive=number)
    ]
    bad, extend = held[0], queue.extend

    def refuse(receipts: Sequence[Receipt], timeout_s: int, **limits: float) -> list[Outcome]:
        if bad in receipts:
            raise error
        return extend(receipts, timeout_s, **limits)

    monkeypatch.setattr(queue, "extend", refuse)
    lease.hold(held, since=clock.monotonic())
    for _ in range(8):
        clock.advance(HEARTBEAT_S)
        with suppress(type(error)):
            lease.renew()
    assert [receipt for receipt in held if is_held(lease, receipt)] == held[10:]


def test_a_lease_that_is_given_up_renews_nothing(queue: ModelQueue, lease: Lease, clock: ManualClock) -> None:
    """Nor is it a loss: somebody else holds the messages, or lets them go."""
    queue.held_by(lease, "a", "b")
    lease.stop_renewing_all()
    run(lease, clock, 2 * VISIBILITY_S)
    assert (queue.calls, lease.lost_count) == ([], 0)


@pytest.mark.parametrize("may_be_deleted", [False, True])
def test_what_a_task_may_have_deleted_is_no_loss(
    queue: ModelQueue, lease: Lease, clock: ManualClock, may_be_deleted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """SQS does not know it as in flight any more: it is renewed no more, and nothing is said. Of others, it is."""
    deleted, kept = queue.take("a", "b")
    lease.hold([deleted], since=clock.monotonic(), may_be_deleted=may_be_deleted)
    lease.hold([kept], since=clock.monotonic())
    queue.model.call("DeleteMessage", {"QueueUrl": queue.url, "ReceiptHandle": deleted.receipt_handle})
    queue.answer = lambda receipt, outcome: Outcome.LOST if receipt == deleted else outcome
    run(lease, clock, 2 * VISIBILITY_S)
    assert sum(deleted in receipts for receipts, _, _ in queue.calls) == 1
    assert is_held(lease, kept)
    assert not is_held(lease, deleted)
    assert lease.lost_count == (0 if may_be_deleted else 1)
    assert ("lost the lease" in caplog.text) is not may_be_deleted


def test_what_a_task_may_have_deleted_and_fails_until_it_is_over_is_a_loss_all_the_same(
    queue: ModelQueue, lease: Lease, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Without an answer nobody knows that it is deleted: SQS may hand it out again."""
    queue.held_by(lease, "a", may_be_deleted=True)
    queue.answer = lambda receipt, outcome: Outcome.FAILED
    run(lease, clock, 2 * VISIBILITY_S)
    assert lease.lost_count == 1
    assert "its renewals failed until it was over" in caplog.text


def test_what_came_again_after_a_task_seemed_to_delete_it_is_held_anew(
    queue: ModelQueue, lease: Lease, clock: ManualClock
) -> None:
    """A refused renewal is forgotten with its handle: a newer handle of the message is another hold."""
    (old,) = queue.take("a")
    lease.hold([old], since=clock.monotonic(), may_be_deleted=True)
    queue.let_go(old)
    (new,) = queue.take()
    lease.hold([new], since=clock.monotonic(), may_be_deleted=True)
    run(lease, clock, 2 * VISIBILITY_S)
    assert is_held(lease, new)
    assert not is_held(lease, old)
    assert queue.in_flight() == 1
    assert lease.lost_count == 0
