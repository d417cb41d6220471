"""Leases on a hand-turned clock: when a hold is renewed, with which others, and when it is lost."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from sqs_fifo_spark.clock import SYSTEM_CLOCK, ManualClock, SystemClock
from sqs_fifo_spark.errors import AccessDeniedError, QueueRequestError
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.local import FifoModel, LocalQueueServer
from sqs_fifo_spark.options import parse_source_options
from sqs_fifo_spark.source.driver import Driver
from sqs_fifo_spark.source.journal import Journal
from sqs_fifo_spark.source.lease import PASS_S, Heartbeat, Lease
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.owner import LONGEST_LOOK_S
from sqs_fifo_spark.source.partition import serve
from sqs_fifo_spark.source.plan import PartitionPlan
from sqs_fifo_spark.source.pool import Pools
from sqs_fifo_spark.source.queue import RELEASE_BUDGET_S, Outcome, Queue, renewal_threads
from sqs_fifo_spark.source.settling import release
from tests.helpers import wait_until

pytestmark = pytest.mark.law("source-7")

VISIBILITY_S = 30
HEARTBEAT_S = 10.0


OPTIONS = parse_source_options({"queueUrl": "http://localhost:1/0/q.fifo", "journalLocation": "/j"})


class ModelQueue(Queue):
    """A queue whose `extend` is made of the strict model; `answer` may say something else than the model did."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(OPTIONS, clock)
        self.clock = clock
        self.model = FifoModel(clock, random.Random(0))
        created = self.model.call("CreateQueue", {"QueueName": "q.fifo", "Attributes": {"FifoQueue": "true"}})
        self.url = created["QueueUrl"]
        self.calls: list[tuple[list[Receipt], int, float]] = []
        self.answer: Callable[[Receipt, Outcome], Outcome] = lambda receipt, outcome: outcome
        self.before: Callable[[], None] = lambda: None
        self.sent = 0

    def take(self, *groups: str, receive: int = 0) -> list[Receipt]:
        """Send one message for each group and receive them all in one receive."""
        for group in groups:
            self.sent += 1
            request = {"MessageBody": "b", "MessageGroupId": group, "MessageDeduplicationId": str(self.sent)}
            self.model.call("SendMessage", {"QueueUrl": self.url, **request})
        request_: dict[str, Any] = {
            "QueueUrl": self.url,
            "MaxNumberOfMessages": 10,
            "VisibilityTimeout": VISIBILITY_S,
            "MessageSystemAttributeNames": ["All"],
        }
        found = self.model.call("ReceiveMessage", request_).get("Messages", [])
        return [
            Receipt(
                each["MessageId"],
                each["ReceiptHandle"],
                each["Attributes"]["MessageGroupId"],
                int(each["Attributes"]["SequenceNumber"]),
                1,
                0,
                self.clock.now(),
                receive,
            )
            for each in found
        ]

    def extend(
        self,
        receipts: Sequence[Receipt],
        visibility_timeout_s: int,
        *,
        budget_s: float = 30.0,
        answer_s: float | None = None,
    ) -> list[Outcome]:
        self.calls.append((list(receipts), visibility_timeout_s, answer_s or budget_s))
        self.before()
        outcomes = []
        for receipt in receipts:
            entry = {"Id": "0", "ReceiptHandle": receipt.receipt_handle, "VisibilityTimeout": visibility_timeout_s}
            if self.answer(receipt, Outcome.DONE) is Outcome.FAILED:
                outcomes.append(Outcome.FAILED)
                continue
            done = self.model.call("ChangeMessageVisibilityBatch", {"QueueUrl": self.url, "Entries": [entry]})
            outcomes.append(self.answer(receipt, Outcome.DONE if done["Successful"] else Outcome.LOST))
        return outcomes

    def in_flight(self) -> int:
        request = {"QueueUrl": self.url, "AttributeNames": ["All"]}
        shown = self.model.call("GetQueueAttributes", request)["Attributes"]
        return int(shown["ApproximateNumberOfMessagesNotVisible"])

    def let_go(self, receipt: Receipt) -> None:
        entry = {"ReceiptHandle": receipt.receipt_handle, "VisibilityTimeout": 0}
        self.model.call("ChangeMessageVisibility", {"QueueUrl": self.url, **entry})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> ModelQueue:
    return ModelQueue(clock)


@pytest.fixture
def lease(queue: ModelQueue, clock: ManualClock) -> Lease:
    return Lease(queue, clock, visibility_timeout_s=VISIBILITY_S, heartbeat_s=HEARTBEAT_S)


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
    held = queue.take("a", "b")
    lease.hold(held, since=clock.monotonic())
    run(lease, clock, HEARTBEAT_S - 0.1)
    lease.stop_renewing(held)
    run(lease, clock, 100)
    assert queue.calls == []
    assert lease.next_renewal() is None


def test_holds_are_renewed_at_each_third_of_the_timeout(queue: ModelQueue, lease: Lease, clock: ManualClock) -> None:
    """Four visibility timeouts cost twelve calls, and the messages are in flight all the time."""
    held = queue.take("a", "b")
    lease.hold(held, since=clock.monotonic())
    run(lease, clock, 4 * VISIBILITY_S)
    assert len(queue.calls) == 12
    assert {timeout_s for _, timeout_s, _ in queue.calls} == {VISIBILITY_S}
    assert queue.in_flight() == 2
    assert all(lease.is_held(receipt) for receipt in held)
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
    held = queue.take("a")
    lease.hold(held, since=clock.monotonic())
    clock.advance(5)
    lease.hold(held, since=clock.monotonic())
    clock.advance(5)
    lease.renew()
    assert len(queue.calls) == 1


def test_failed_renewals_are_repeated_before_the_hold_is_over(
    queue: ModelQueue, lease: Lease, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Two thirds of the timeout without an answer lose nothing; each try is short."""
    held = queue.take("a")
    lease.hold(held, since=clock.monotonic())
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
    held = queue.take("a")
    lease.hold(held, since=clock.monotonic())
    queue.answer = lambda receipt, outcome: Outcome.FAILED
    run(lease, clock, 2 * VISIBILITY_S)
    calls = len(queue.calls)
    run(lease, clock, 2 * VISIBILITY_S)
    assert lease.lost_count == 1
    assert len(queue.calls) == calls
    assert not lease.is_held(held[0])
    assert caplog.text.count("lost the lease") == 1


def test_a_lost_hold_is_warned_of_once_for_each_group(
    queue: ModelQueue, lease: Lease, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Three messages of one group and one of another are two warnings and four losses; no handle is shown."""
    held = queue.take("a", "a", "a", "b")
    lease.hold(held, since=clock.monotonic())
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
    held = queue.take("a", "b", "c")
    lease.hold(held, since=clock.monotonic())
    queue.let_go(held[1])
    run(lease, clock, VISIBILITY_S * 2)
    assert [lease.is_held(receipt) for receipt in held] == [True, False, True]
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
    """What is deleted while its renewal is under way was not lost."""
    held = queue.take("a", "b")
    lease.hold(held, since=clock.monotonic())
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
        held = queue.take("a")
        lease.hold(held, since=clock.monotonic())
        clock.advance(VISIBILITY_S + 1)
        lease.renew()
        lease.stop_renewing(held)
    assert caplog.text.count("lost the lease") == 2


def test_no_hold_outlives_its_timeout_in_our_eyes(queue: ModelQueue, lease: Lease, clock: ManualClock) -> None:
    """A pause of the whole process is a lost hold, before any call says so."""
    held = queue.take("a")
    lease.hold(held, since=clock.monotonic())
    clock.advance(VISIBILITY_S - 0.5)
    assert lease.is_held(held[0])
    clock.advance(0.5)
    assert not lease.is_held(held[0])


# The thread


class ImpatientClock(SystemClock):
    """Time goes on by each wait, which is over at once, unless it is ended by its event."""

    def __init__(self) -> None:
        self._waited_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self._waited_s

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        self._waited_s += timeout_s
        return event.wait(0.01)


class StubLease:
    """Counts renewals; `action` may fail."""

    def __init__(self) -> None:
        self.renewals = 0
        self.action: Callable[[], None] = lambda: None

    def next_renewal(self) -> float | None:
        return None

    def renew(self, *, within_s: float = 0.0) -> None:
        self.renewals += 1
        self.action()

    def stop_renewing_all(self) -> None:
        pass


@pytest.fixture
def stub() -> StubLease:
    return StubLease()


@pytest.fixture
def heartbeat(stub: StubLease) -> Iterator[Heartbeat]:
    beating = Heartbeat(cast(Lease, stub), ImpatientClock(), every_s=10)
    yield beating
    beating.stop()


def test_heartbeat_renews_until_it_is_stopped(stub: StubLease, heartbeat: Heartbeat) -> None:
    """After `stop` has returned there is no further renewal."""
    heartbeat.start()
    wait_until(lambda: stub.renewals > 3, 5, "renewals")
    heartbeat.stop()
    heartbeat.stop()
    stopped_at = stub.renewals
    assert not any(thread.name == "sqs-fifo-heartbeat" and thread.is_alive() for thread in threading.enumerate())
    assert stub.renewals == stopped_at
    heartbeat.check()


def test_heartbeat_records_a_failure_and_check_raises_it(
    stub: StubLease, heartbeat: Heartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread goes on renewing, for the batch under way needs its lease; one that works ends the alarm."""

    def fail() -> None:
        raise AccessDeniedError("AWS denied it")

    stub.action = fail
    heartbeat.start()
    wait_until(lambda: stub.renewals > 3, 5, "renewals after the failure")
    with pytest.raises(AccessDeniedError, match="AWS denied it"):
        heartbeat.check()
    stub.action = lambda: None
    before = stub.renewals
    wait_until(lambda: stub.renewals > before + 2, 5, "renewals after the recovery")
    heartbeat.check()
    heartbeat.stop()
    assert caplog.text.count("the query stops") == 1


def test_failure_to_discover_is_recorded_too(stub: StubLease) -> None:
    """`discover` reads the journal, which may be gone."""

    def fail() -> None:
        raise AccessDeniedError("AWS denied the journal")

    heartbeat = Heartbeat(cast(Lease, stub), ImpatientClock(), every_s=10, discover=fail)
    heartbeat.start()

    def has_failed() -> bool:
        try:
            heartbeat.check()
        except AccessDeniedError:
            return True
        return False

    wait_until(has_failed, 5, "a recorded failure")
    heartbeat.stop()


def test_a_check_meets_what_sqs_refuses_however_long_the_journal_takes(
    queue: ModelQueue, lease: Lease, clock: ManualClock
) -> None:
    """A failure that was not tried again is not over."""
    heartbeat = Heartbeat(lease, clock, every_s=HEARTBEAT_S, discover=lambda: clock.advance(2 * PASS_S))
    lease.hold(queue.take("a"), since=clock.monotonic() - HEARTBEAT_S)

    def refuse() -> None:
        raise AccessDeniedError("AWS denied it")

    queue.before = refuse
    heartbeat._failures["sqs-fifo-heartbeat"] = AccessDeniedError("AWS denied it")
    with pytest.raises(AccessDeniedError):
        heartbeat.check()


def test_failure_to_discover_does_not_keep_from_renewing(stub: StubLease) -> None:
    """The batch under way needs the holds that are known, whatever the journal says."""

    def fail() -> None:
        raise AccessDeniedError("AWS denied the journal")

    heartbeat = Heartbeat(cast(Lease, stub), ImpatientClock(), every_s=10, discover=fail)
    heartbeat.start()
    try:
        wait_until(lambda: stub.renewals > 2, 2, "renewals in spite of the failure")
    finally:
        heartbeat.stop()


class Panic(BaseException):
    """As native code raises it."""


def test_a_panic_of_the_store_ends_no_thread_and_is_met(stub: StubLease, caplog: pytest.LogCaptureFixture) -> None:
    """Else nothing would be discovered any more, and nobody would know."""
    calls = []

    def discover() -> None:
        calls.append(1)
        raise Panic

    heartbeat = Heartbeat(cast(Lease, stub), ImpatientClock(), every_s=10, discover=discover)
    heartbeat.start()
    try:
        wait_until(lambda: len(calls) > 2, 5, "another look after the panic")
        with pytest.raises(Panic):
            heartbeat.check()
    finally:
        heartbeat.stop()


def test_stop_waits_for_one_call_and_not_for_all_that_are_due(queue: ModelQueue) -> None:
    """A task has sealed, and SQS does not answer: its rows do not wait until each of its renewals has failed."""
    lease = Lease(queue, SYSTEM_CLOCK, visibility_timeout_s=30, heartbeat_s=10)
    for receive in range(20):
        held = [each._replace(received_at=SYSTEM_CLOCK.now()) for each in queue.take(str(receive), receive=receive)]
        lease.hold(held, since=SYSTEM_CLOCK.monotonic() - 10)
    under_way, go_on = threading.Event(), threading.Event()

    def stall() -> None:
        under_way.set()
        assert go_on.wait(30)

    queue.before = stall
    heartbeat = Heartbeat(lease, SYSTEM_CLOCK, every_s=10)
    heartbeat.start()
    assert under_way.wait(5)
    stopping = threading.Thread(target=heartbeat.stop)
    stopping.start()
    wait_until(lambda: lease.next_renewal() is None, 5, "the end of all holds")
    go_on.set()
    stopping.join(30)
    assert not stopping.is_alive()
    assert len(queue.calls) == 1


def test_a_release_ends_though_sqs_does_not_answer(queue: ModelQueue, lease: Lease, clock: ManualClock) -> None:
    """What it does not reach is free when its visibility timeout is over."""
    held = queue.take("a") * 5_000
    queue.before = lambda: clock.advance(10)  # connect and read, until the client gives up
    queue.answer = lambda receipt, outcome: Outcome.FAILED
    began = clock.monotonic()
    release(held, queue=queue, lease=lease)
    assert clock.monotonic() - began <= RELEASE_BUDGET_S + 10


def test_heartbeat_that_never_started_can_be_stopped(heartbeat: Heartbeat) -> None:
    """Whatever fails before the start."""
    heartbeat.stop()
    heartbeat.check()


def test_heartbeat_sleeps_until_a_renewal_is_due(queue: ModelQueue) -> None:
    """It wakes for the earliest hold, and four times in a heartbeat for what another thread has begun to hold."""
    waits: list[float] = []

    class RecordingClock(SystemClock):
        def wait(self, event: threading.Event, timeout_s: float) -> bool:
            waits.append(timeout_s)
            return event.wait()

    now = SYSTEM_CLOCK.monotonic()
    lease = Lease(queue, SYSTEM_CLOCK, visibility_timeout_s=300, heartbeat_s=100)
    lease.hold(queue.take("a"), since=now - 80)
    heartbeat = Heartbeat(lease, RecordingClock(), every_s=100)
    heartbeat.start()
    wait_until(lambda: waits, 5, "the first wait")
    heartbeat.stop()
    assert 15 < waits[0] <= 20


def test_discovery_asks_the_journal_once_a_heartbeat_or_once_a_minute(queue: ModelQueue) -> None:
    """However many renewals are due meanwhile, for each look costs requests; and all of them are made in time."""

    class Sleepless(ManualClock):
        def wait(self, event: threading.Event, timeout_s: float) -> bool:
            self.advance(timeout_s)
            return self.monotonic() - began > 1_000

    clock = Sleepless()
    began = clock.monotonic()
    lease = Lease(queue, clock, visibility_timeout_s=300, heartbeat_s=100)
    for receive in range(5):
        held = [each._replace(received_at=clock.now()) for each in queue.take(f"g{receive}", receive=receive)]
        lease.hold(held, since=clock.monotonic() - 100 + 19 * receive)
    looks: list[float] = []

    def discover() -> None:
        looks.append(clock.monotonic() - began)
        clock.advance(7)
        found = [
            each._replace(received_at=clock.now()) for each in queue.take(f"n{len(looks)}", receive=10 + len(looks))
        ]
        lease.hold(found, since=clock.monotonic() - 40)

    heartbeat = Heartbeat(lease, clock, every_s=100, discover=discover)
    heartbeat._run("sqs-fifo-discovery", heartbeat._look, heartbeat._until_look_s)
    assert looks == [LONGEST_LOOK_S * number for number in range(1, len(looks) + 1)]
    assert len(looks) >= 9
    assert len(queue.calls) > 50
    assert lease.lost_count == 0


# Capacity


@pytest.mark.parametrize(
    ("messages", "heartbeat_s", "threads"),
    [(10, 40, 4), (20_000, 40, 10), (48_000, 40, 24), (48_000, 90, 16), (120_000, 40, 32), (10_000, 1, 32)],
)
def test_renewals_keep_up_with_a_full_micro_batch(messages: int, heartbeat_s: float, threads: int) -> None:
    """All that may be held is renewed within half of one, at 100 ms a call; and never with a hundred threads."""
    assert renewal_threads(messages, heartbeat_s) == threads


def test_reads_of_the_journal_that_stall_keep_no_renewal_waiting() -> None:
    """Nor does a commit: eight calls of each at once, and the driver's renewals have threads of their own."""
    go_on, renewed = threading.Event(), threading.Event()

    class Renewing(Queue):
        def extend(
            self, receipts: Sequence[Receipt], visibility_timeout_s: int, **limits: float | None
        ) -> list[Outcome]:
            renewed.set()
            return [Outcome.DONE] * len(receipts)

    pools = Pools()
    queue = Renewing(OPTIONS, SYSTEM_CLOCK, pools.make)
    driver = Driver(OPTIONS, queue=queue, store=lambda: cast(Store, None), clock=SYSTEM_CLOCK, pool=pools.make)
    held = Receipt("id", "handle", "a", 1, 1, 0, SYSTEM_CLOCK.now(), 0)
    driver._lease.hold([held], since=SYSTEM_CLOCK.monotonic() - OPTIONS.heartbeat_s)
    try:
        for pool in (driver._discovery_pool, driver._read_pool, queue._call_pool):
            pool.map(lambda _: go_on.wait(60), range(8))
        threading.Thread(target=driver._lease.renew, daemon=True).start()
        assert renewed.wait(5)
    finally:
        go_on.set()
        pools.close()


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
    assert [receipt for receipt in held if lease.is_held(receipt)] == held[10:]


def test_a_lease_that_is_given_up_renews_nothing(queue: ModelQueue, lease: Lease, clock: ManualClock) -> None:
    """Nor is it a loss: somebody else holds the messages, or lets them go."""
    lease.hold(queue.take("a", "b"), since=clock.monotonic())
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
    assert lease.is_held(kept)
    assert not lease.is_held(deleted)
    assert lease.lost_count == (0 if may_be_deleted else 1)
    assert ("lost the lease" in caplog.text) is not may_be_deleted


def test_what_a_task_may_have_deleted_and_fails_until_it_is_over_is_a_loss_all_the_same(
    queue: ModelQueue, lease: Lease, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Without an answer nobody knows that it is deleted: SQS may hand it out again."""
    lease.hold(queue.take("a"), since=clock.monotonic(), may_be_deleted=True)
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
    assert lease.is_held(new)
    assert not lease.is_held(old)
    assert queue.in_flight() == 1
    assert lease.lost_count == 0


def test_what_a_task_has_received_is_held_while_it_reads_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that somebody received before makes it look there; a store may take longer than the timeout."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    stalled, go_on = threading.Event(), threading.Event()

    class StallingStore(FileStore):
        lists = 0

        def list(self, prefix: str) -> list[str]:
            if prefix == "ledger":
                self.lists += 1
                if self.lists == 2:  # the first one is whether the epoch is open
                    stalled.set()
                    assert go_on.wait(30)
            return super().list(prefix)

    with LocalQueueServer(queues=["q.fifo"]) as server:
        url = server.queue_url("q.fifo")
        given = {"visibilityTimeoutSeconds": "30", "heartbeatSeconds": "0.3"}
        options = parse_source_options({"queueUrl": url, "journalLocation": str(tmp_path), **given})
        sent = {"QueueUrl": url, "MessageBody": "b", "MessageGroupId": "g", "MessageDeduplicationId": "1"}
        server.run(lambda model: model.call("SendMessage", sent))
        server.run(lambda model: model.call("ReceiveMessage", {"QueueUrl": url, "VisibilityTimeout": 0}))
        journal = Journal.create(StallingStore(tmp_path), "arn:aws:sqs:us-east-1:000000000000:q.fifo")
        plan = PartitionPlan(journal.id, 1, 1, 0, 10, 1 << 20, 0, "", 0, False, 0, b"", False)
        queue = Queue(options, SYSTEM_CLOCK)
        with ThreadPoolExecutor(1) as pool:
            task = pool.submit(lambda: list(serve(plan, queue, journal, options, SYSTEM_CLOCK)))
            try:
                assert stalled.wait(20)
                counts = server.requests.counts
                wait_until(
                    lambda: counts().get("ChangeMessageVisibilityBatch", 0) > 1, 20, "renewals while the store stalls"
                )
            finally:
                go_on.set()
            assert [rows.num_rows for rows in task.result()] == [0]  # it is deferred
