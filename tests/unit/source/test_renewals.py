"""Thousands of holds on a queue of which some calls fail, with the heartbeat's own threads in simulated time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from unittest import mock

import pytest

from sqs_fifo_spark.aws.calls import CALL_BUDGET_S
from sqs_fifo_spark.errors import JournalUnavailableError, TransientQueueError
from sqs_fifo_spark.options import parse_source_options
from sqs_fifo_spark.retry import retry_transient
from sqs_fifo_spark.source import bandwidth
from sqs_fifo_spark.source import lease as lease_module
from sqs_fifo_spark.source import queue as queue_module
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.lease import Heartbeat, Lease
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.owner import ANSWER_MARGIN_S, LONGEST_LOOK_S
from sqs_fifo_spark.source.queue import Queue
from tests.simulation.hub import Hub, HubPool, Process, Threading

pytestmark = pytest.mark.law("source-7")

VISIBILITY_S, HEARTBEAT_S = 120, 40.0
HELD = 5_000
CALL_S, CLIENT_TIMEOUT_S = 0.05, 10.0


class UncertainQueue(Queue):
    """Answers each call after CALL_S, or as `fault` says of it; `hidden_until` is what SQS itself knows of the holds.

    A call's fault is drawn anew for each try, or once for its messages if it is `lasting`.
    """

    def __init__(self, hub: Hub, fault: Callable[[random.Random], str], *, is_lasting: bool = False) -> None:
        options = {"queueUrl": "http://localhost:1/0/q.fifo", "journalLocation": "/j", "maxMessagesPerTrigger": "5000"}
        super().__init__(parse_source_options(options), hub, lambda name, threads: HubPool(hub, name, threads))
        self._hub, self._fault, self._is_lasting = hub, fault, is_lasting
        self.hidden_until: dict[str, float] = {}
        self.failing: set[str] = set()
        """The handles of messages that no call can renew."""
        self.late = 0
        """The number of entries that were asked for after SQS had ended their holds."""

    def hand_out(self, count: int) -> list[Receipt]:
        now = self._hub.now()
        found = [Receipt(f"m{n}", f"h{n}", f"g{n}", n, 1, 0, now, n // 10) for n in range(count)]
        self.hidden_until.update({each.receipt_handle: now + VISIBILITY_S for each in found})
        return found

    def extend(
        self, receipts: Sequence[Receipt], timeout_s: int, *, budget_s: float = 30.0, answer_s: float | None = None
    ) -> list[Outcome]:
        dice = self._hub.rng
        if self._is_lasting:
            dice = random.Random(receipts[0].receive)

        def ask() -> list[Outcome]:
            fault = self._fault(dice)
            if self._is_lasting and fault:
                self.failing.update(each.receipt_handle for each in receipts)
            self._hub.sleep(min(answer_s or CLIENT_TIMEOUT_S, CLIENT_TIMEOUT_S) if fault == "hanging" else CALL_S)
            if fault not in ("throttled", "hanging"):
                outcomes = [self._extended(each, timeout_s) for each in receipts]
            if fault:
                raise TransientQueueError(fault)
            return outcomes

        try:
            return retry_transient(ask, clock=self._hub, budget_s=budget_s)
        except TransientQueueError:
            return [Outcome.FAILED] * len(receipts)

    def _extended(self, receipt: Receipt, timeout_s: int) -> Outcome:
        now = self._hub.now()
        if now > self.hidden_until[receipt.receipt_handle]:
            self.late += 1
            return Outcome.LOST
        self.hidden_until[receipt.receipt_handle] = now + timeout_s
        return Outcome.DONE

    def lapsed(self) -> int:
        """Return how many holds are over that SQS would have renewed."""
        now = self._hub.now()
        return sum(until < now for handle, until in self.hidden_until.items() if handle not in self.failing)


@contextmanager
def hub() -> Iterator[Hub]:
    hub = Hub(random.Random(7))
    with mock.patch.object(lease_module, "threading", Threading(hub)):
        yield hub
        hub.end()


def often(**shares: float) -> Callable[[random.Random], str]:
    """Return what draws one of these faults, each with its probability."""

    def draw(dice: random.Random) -> str:
        die = dice.random()
        for name, share in shares.items():
            die -= share
            if die < 0:
                return name
        return ""

    return draw


def require_no_healthy_hold_lapses(*, is_lasting: bool) -> None:
    """Hold HELD messages for ten minutes while a fifth of the calls fails."""
    with hub() as clock:
        fault = often(throttled=0.1, lost=0.05, hanging=0.05)
        queue = UncertainQueue(clock, fault, is_lasting=is_lasting)
        lease = Lease(queue, clock, visibility_timeout_s=VISIBILITY_S, heartbeat_s=HEARTBEAT_S)

        def hold() -> None:
            lease.hold(queue.hand_out(HELD), since=clock.monotonic())
            Heartbeat(lease, clock, every_s=HEARTBEAT_S).start()
            clock.sleep(600)

        thread = clock.spawn(Process("driver"), hold)
        clock.run(lambda: thread.is_done)
        assert not thread.error, thread.error
        assert queue.lapsed() == 0, f"{queue.lapsed()} healthy holds have lapsed"
        assert lease.lost_count <= len(queue.failing)


@pytest.mark.slow
@pytest.mark.parametrize("is_lasting", [False, True], ids=["by chance", "for some messages"])
def test_no_hold_lapses_that_sqs_would_renew(is_lasting: bool) -> None:
    """However the calls for others fail, now and then or always."""
    require_no_healthy_hold_lapses(is_lasting=is_lasting)


def _stubborn(extend: Callable[..., list[Outcome]]) -> Callable[..., list[Outcome]]:
    """Try again within the call, each time for as long as any call may take."""

    def stubborn(queue: Queue, receipts: Sequence[Receipt], timeout_s: int, **_: float) -> list[Outcome]:
        return extend(queue, receipts, timeout_s, budget_s=CALL_BUDGET_S)

    return stubborn


def test_what_is_tried_again_within_its_call_is_found_to_cost_others_their_holds() -> None:
    """The check of the law above finds this defect, on as many threads as do when nothing fails."""
    with (
        mock.patch.object(UncertainQueue, "extend", _stubborn(UncertainQueue.extend)),
        mock.patch.object(queue_module, "MOST_RENEWAL_THREADS", 4),
        mock.patch.object(bandwidth, "MOST_RENEWAL_THREADS", 4),
        pytest.raises(AssertionError, match="healthy holds have lapsed"),
    ):
        require_no_healthy_hold_lapses(is_lasting=True)


def test_a_silent_queue_keeps_no_driver_from_its_claim_and_from_operators() -> None:
    """Nor Spark's thread for longer than any call; and nothing is asked for that SQS can only refuse.

    HELD messages are held for 20 minutes, of which SQS is silent 15, and heartbeats fail.
    """
    with hub() as clock:
        queue = UncertainQueue(clock, lambda dice: "hanging" if 60 < clock.now() - began < 960 else "")
        lease = Lease(queue, clock, visibility_timeout_s=VISIBILITY_S, heartbeat_s=HEARTBEAT_S)
        began = clock.now()
        looks, checks = [began], [0.0]

        def discover() -> None:
            looks.append(clock.now())
            if len(looks) % 4 == 0:
                raise JournalUnavailableError("it does not answer")

        def hold() -> None:
            lease.hold(queue.hand_out(HELD), since=clock.monotonic())
            heartbeat = Heartbeat(lease, clock, every_s=HEARTBEAT_S, discover=discover)
            heartbeat.start()
            while clock.now() < began + 1_200:
                clock.sleep(1)
                asked_at, before = clock.now(), len(looks)
                with suppress(JournalUnavailableError):
                    heartbeat.check()
                checks.append(clock.now() - asked_at)
                if len(looks) > before:
                    del looks[before]  # it is Spark's thread that has looked

        thread = clock.spawn(Process("driver"), hold)
        clock.run(lambda: thread.is_done)
        assert not thread.error, thread.error
        look_s = max(after - before for before, after in pairwise(looks))
        assert look_s <= min(HEARTBEAT_S, LONGEST_LOOK_S) + ANSWER_MARGIN_S / 2, f"no look for {look_s:.0f} s"
        assert 0 < max(checks) <= CALL_BUDGET_S
        assert queue.late == 0
