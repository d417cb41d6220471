"""The heartbeat's threads: when they renew and look, what they record, and what they wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from sqs_fifo_spark.clock import SYSTEM_CLOCK, SystemClock
from sqs_fifo_spark.errors import AccessDeniedError, JournalUnavailableError
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.local import LocalQueueServer
from sqs_fifo_spark.options import parse_source_options
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.driver.driver import Driver
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.lease import PASS_S, Heartbeat, Lease
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.owner import LONGEST_LOOK_S
from sqs_fifo_spark.source.plan import PartitionPlan
from sqs_fifo_spark.source.pool import Pools
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.task.partition import serve
from tests.helpers import wait_until
from tests.manual_clock import ManualClock
from tests.unit.sending import Panic
from tests.unit.source.leases import HEARTBEAT_S, OPTIONS, ModelQueue

pytestmark = pytest.mark.law("source-7")


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


@contextmanager
def beating(stub: StubLease, discover: Callable[[], None] | None = None) -> Iterator[Heartbeat]:
    """A heartbeat that is started, and stopped in the end."""
    heartbeat = Heartbeat(cast(Lease, stub), ImpatientClock(), every_s=10, discover=discover)
    heartbeat.start()
    try:
        yield heartbeat
    finally:
        heartbeat.stop()


def deny() -> None:
    raise AccessDeniedError("AWS denied it")


def test_heartbeat_renews_until_it_is_stopped(stub: StubLease) -> None:
    """After `stop` has returned there is no further renewal; one that never started can be stopped, too."""
    unstarted = Heartbeat(cast(Lease, stub), ImpatientClock(), every_s=10)
    unstarted.stop()
    unstarted.check()
    with beating(stub) as heartbeat:
        wait_until(lambda: stub.renewals > 3, 5, "renewals")
        heartbeat.stop()
    stopped_at = stub.renewals
    assert not any(thread.name == "sqs-fifo-heartbeat" and thread.is_alive() for thread in threading.enumerate())
    assert stub.renewals == stopped_at
    heartbeat.check()


def test_heartbeat_records_a_failure_and_check_raises_it(stub: StubLease, caplog: pytest.LogCaptureFixture) -> None:
    """The thread goes on renewing, for the batch under way needs its lease; one that works ends the alarm."""
    stub.action = deny
    with beating(stub) as heartbeat:
        wait_until(lambda: stub.renewals > 3, 5, "renewals after the failure")
        with pytest.raises(AccessDeniedError, match="AWS denied it"):
            heartbeat.check()
        stub.action = lambda: None
        before = stub.renewals
        wait_until(lambda: stub.renewals > before + 2, 5, "renewals after the recovery")
        heartbeat.check()
    assert caplog.text.count("the query stops") == 1


def test_a_check_meets_what_sqs_refuses_however_long_the_journal_takes(
    queue: ModelQueue, lease: Lease, clock: ManualClock
) -> None:
    """A failure that was not tried again is not over."""
    heartbeat = Heartbeat(lease, clock, every_s=HEARTBEAT_S, discover=lambda: clock.advance(2 * PASS_S))
    lease.hold(queue.take("a"), since=clock.monotonic() - HEARTBEAT_S)
    queue.before = deny
    heartbeat._failures["sqs-fifo-heartbeat"] = AccessDeniedError("AWS denied it")
    with pytest.raises(AccessDeniedError):
        heartbeat.check()


@pytest.mark.parametrize("error", [AccessDeniedError("AWS denied the journal"), Panic()], ids=["error", "panic"])
def test_a_failure_to_discover_keeps_no_thread_from_its_work_and_is_met(stub: StubLease, error: BaseException) -> None:
    """`discover` reads the journal, which may be gone; the batch under way needs the holds that are known."""
    calls = []

    def discover() -> None:
        calls.append(1)
        raise error

    with beating(stub, discover) as heartbeat:
        wait_until(lambda: len(calls) > 2 and stub.renewals > 2, 5, "another look, and renewals, after the failure")
        with pytest.raises(type(error)):
            heartbeat.check()


@pytest.mark.law("source-1", "source-3")
def test_a_journal_that_stalls_does_not_keep_from_renewing(stub: StubLease) -> None:
    """The driver's heartbeat goes on while its look into the journal hangs."""
    stalled, go_on = threading.Event(), threading.Event()

    def discover() -> None:
        stalled.set()
        go_on.wait(60)

    with beating(stub, discover):
        try:
            assert stalled.wait(10)
            before = stub.renewals
            wait_until(lambda: stub.renewals > before + 5, 10, "renewals during the stall")
        finally:
            go_on.set()


@pytest.mark.law("source-1", "source-3")
def test_one_failed_look_into_the_journal_stops_no_query(stub: StubLease) -> None:
    """The failed look is repeated once before the query stops for it; here it succeeds."""
    looks: list[None] = []
    heartbeat = Heartbeat(cast(Lease, stub), ManualClock(), every_s=10, discover=lambda: looks.append(None))
    heartbeat._failures["sqs-fifo-discovery"] = JournalUnavailableError("cannot list")
    heartbeat.check()
    heartbeat.check()
    assert len(looks) == 1


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
