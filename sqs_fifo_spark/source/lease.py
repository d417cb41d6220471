"""Leases: driver and tasks hold received messages, by renewing their visibility timeout before it is over.

A hold is renewed `heartbeat_s` after a receive or the last renewal, which is at most a third of the visibility timeout:
a failed renewal is repeated for two heartbeats before the hold is lost. Short work makes no call at all. SQS lets a
message be held for at most 12 hours from its receive, however often it is renewed.

Renewals are made in passes, of one short try for each call. So failures never keep others waiting that are due.

A lost hold is logged once for each group, and never fatal: sealed messages are served from the journal, and those that
SQS delivers again are recognised.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from sqs_fifo_spark.aws.calls import CALL_BUDGET_S
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import SqsFifoError
from sqs_fifo_spark.options import MAX_VISIBILITY_S
from sqs_fifo_spark.source.batches import Outcome, split_into_batches
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.owner import LONGEST_LOOK_S
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.receive import ReceivedMessages

_log = logging.getLogger(__name__)
CAP_MARGIN_S = 5
"""Seconds by which a renewed hold ends before SQS's limit of 12 hours, because our clock and SQS's may differ."""
FIRST_ANSWER_S, LONGEST_ANSWER_S = 2.0, 10.0
"""Seconds for which a renewal waits for its answer, at first and at most: twice as long after each second failure."""
FIRST_PAUSE_S = 0.5
"""Pause before a renewal that failed is tried again: twice as long each time, up to an eighth of the time left."""
PASS_S = CALL_BUDGET_S - LONGEST_ANSWER_S
"""Seconds for which a pass begins calls, so that it ends within the budget of one call, whatever SQS does."""
LATE_PASS_S = 1.0
"""The same where an answer came late: others wait to be read."""
_MOST_DOUBLINGS = 8


@dataclass
class _Hold:
    receipt: Receipt
    renew_at: float
    """Monotonic time of the next renewal."""
    expires_at: float
    """Monotonic time at which SQS ends the hold, as far as we know."""
    may_be_deleted: bool
    failures: int = 0
    """Renewals that have failed since the last one that did not."""


class Lease:
    """The holds of one attempt of a task, or of the driver. All methods may be called from several threads."""

    def __init__(self, queue: Queue, clock: Clock, *, visibility_timeout_s: int, heartbeat_s: float) -> None:
        self._queue = queue
        self._clock = clock
        self._visibility_timeout_s = visibility_timeout_s
        self._heartbeat_s = heartbeat_s
        # `_lock` guards `_holds`, `_lost`, `_lost_groups` and `lost_count`; no call is made while it is held.
        self._lock = threading.Lock()
        self._holds: dict[str, _Hold] = {}
        self._lost: dict[str, str] = {}  # receipt handle -> group
        self._lost_groups: Counter[str] = Counter()
        self.lost_count = 0
        """Number of holds lost so far."""

    def __repr__(self) -> str:
        # Without the lock: the caller may hold it, and a length is read in one step.
        return (
            f"<Lease held={len(self._holds)} lost={self.lost_count} heartbeat_s={self._heartbeat_s:g} "
            f"visibility_timeout_s={self._visibility_timeout_s}>"
        )

    def hold(self, receipts: Iterable[Receipt], *, since: float, may_be_deleted: bool = False) -> None:
        """Renew these receipts from now on. `since` is the monotonic time of their receive or last renewal.

        A receipt that is held, or that was lost, is left as it is. If one `may_be_deleted`, by a task, it is no loss
        when SQS does not know it any more.
        """
        with self._lock:
            renew_at, expires_at = since + self._heartbeat_s, since + self._visibility_timeout_s
            for receipt in receipts:
                handle = receipt.receipt_handle
                hold = self._holds.get(handle)
                if hold is not None:
                    hold.may_be_deleted = hold.may_be_deleted or may_be_deleted
                elif handle not in self._lost:
                    self._holds[handle] = _Hold(receipt, renew_at, expires_at, may_be_deleted)

    def hold_received(self, received: ReceivedMessages) -> None:
        """Hold the messages of one receive. If they were long on their way, renew them at once, by one try.

        A heartbeat that held nothing may wake only after they have lapsed. A refusal is left to it: it meets the same.
        """
        self.hold((message.receipt for message in received), since=received.since)
        if received and self._clock.monotonic() - received.since >= self._heartbeat_s:
            with suppress(SqsFifoError):
                self.renew(within_s=LATE_PASS_S)

    def next_renewal(self) -> float | None:
        """Return the monotonic time of the next renewal that is due, or None while nothing is held."""
        with self._lock:
            return min((hold.renew_at for hold in self._holds.values()), default=None)

    def lapsed_receipts(self, receipts: Iterable[Receipt]) -> list[Receipt]:
        """Return the receipts whose hold is, as far as this process knows, no longer ours."""
        with self._lock:
            now = self._clock.monotonic()
            holds = self._holds
            return [
                each for each in receipts if (hold := holds.get(each.receipt_handle)) is None or now >= hold.expires_at
            ]

    def stop_renewing(self, receipts: Iterable[Receipt]) -> None:
        """Stop renewing these: they are being deleted or released. A renewal that is under way then counts no loss.

        A lost one is forgotten: the next loss of its group is logged anew.
        """
        with self._lock:
            for receipt in receipts:
                self._holds.pop(receipt.receipt_handle, None)
                group = self._lost.pop(receipt.receipt_handle, None) if self._lost else None
                if group is not None:
                    self._lost_groups[group] -= 1
                    if not self._lost_groups[group]:
                        del self._lost_groups[group]  # or it grows with every group that ever lost anything

    def stop_renewing_all(self) -> None:
        with self._lock:
            self._holds.clear()

    def renew(self, *, within_s: float = PASS_S) -> None:
        """Try once to renew each hold that is due, in calls for ten of the same receives; the first to end go first.

        No call is begun after `within_s`, nor after half a heartbeat: the other holds stay due. A hold whose renewal
        fails is due again after a pause that grows with its failures, behind those without failures. A hold that is
        over is lost without a call. Another pass at the same time makes other calls. Raises errors that no retry
        cures, once all calls are made: AccessDeniedError, QueueNotFoundError, QueueRequestError.
        """
        began = self._clock.monotonic()
        latest = began + min(within_s, self._heartbeat_s / 2)
        errors: list[Exception] = []
        self._queue.renew(
            [functools.partial(self._extend, *call, latest, errors) for call in self._calls_for_due(began)]
        )
        if errors:
            raise errors[0]

    def _calls_for_due(self, now: float) -> list[tuple[list[Receipt], int]]:
        """Return the receipts to extend, and for how many seconds, by call; lose those that cannot be."""
        with self._lock:
            due = [hold for hold in self._holds.values() if hold.renew_at <= now]
            due.sort(key=lambda hold: (hold.failures, hold.expires_at))
            for hold in due:
                hold.renew_at = now + self._heartbeat_s  # no other pass takes it meanwhile
        by_timeout: dict[int, list[Receipt]] = {}
        for hold in due:
            timeout_s = self._allowed_timeout(hold.receipt)
            if hold.expires_at <= now:
                why = "its renewals failed until it was over" if hold.failures else "it was over before its renewal"
                self._lose(hold.receipt, why)
            elif timeout_s <= 0:
                self._lose(hold.receipt, "SQS's limit of 12 hours is reached")
            else:
                by_timeout.setdefault(timeout_s, []).append(hold.receipt)
        return [(part, timeout_s) for timeout_s, held in by_timeout.items() for part in split_into_batches(held)]

    def _extend(self, due: list[Receipt], timeout_s: int, latest: float, errors: list[Exception]) -> None:
        with self._lock:
            # Nobody needs the others any more.
            holds = [hold for receipt in due if (hold := self._holds.get(receipt.receipt_handle)) is not None]
            asked_at = self._clock.monotonic()
            if asked_at > latest:
                for hold in holds:
                    hold.renew_at = asked_at
        if asked_at > latest or not holds:
            return
        entries = [hold.receipt for hold in holds]
        # Short, so that a call that hangs costs the others little; longer after a failure, for the link may be slow.
        answer_s = FIRST_ANSWER_S * 2 ** min(_MOST_DOUBLINGS, max(hold.failures for hold in holds) // 2)
        answer_s = min(answer_s, LONGEST_ANSWER_S, max(FIRST_ANSWER_S, self._heartbeat_s / 2))
        is_refused = False
        try:
            outcomes = self._queue.extend(entries, timeout_s, budget_s=0.0, answer_s=answer_s)
        except Exception as error:
            errors.append(error)  # raised when the other calls are made: they need not lose their holds with it
            outcomes, is_refused = [Outcome.FAILED] * len(entries), True
        with self._lock:
            now = self._clock.monotonic()
            for hold, outcome in zip(holds, outcomes, strict=True):
                if outcome is Outcome.DONE:
                    hold.renew_at = asked_at + min(self._heartbeat_s, timeout_s / 3)
                    hold.expires_at = asked_at + timeout_s
                    hold.failures = 0
                elif outcome is Outcome.FAILED:
                    # A refused hold is due at once: the heartbeat pauses by itself, and its `check` is to meet it.
                    pause_s = 0.0 if is_refused else FIRST_PAUSE_S * 2 ** min(_MOST_DOUBLINGS, hold.failures)
                    pause_s = min(pause_s, max(FIRST_PAUSE_S, (hold.expires_at - now) / 8))
                    hold.renew_at = min(now + pause_s, hold.expires_at)
                    hold.failures += 1
        for receipt, outcome in zip(entries, outcomes, strict=True):
            if outcome is Outcome.LOST and self._may_be_deleted(receipt):
                self.stop_renewing([receipt])
            elif outcome is Outcome.LOST:
                self._lose(receipt, "SQS ended it")

    def _may_be_deleted(self, receipt: Receipt) -> bool:
        with self._lock:
            hold = self._holds.get(receipt.receipt_handle)
            return hold is not None and hold.may_be_deleted

    def _allowed_timeout(self, receipt: Receipt) -> int:
        held_s = self._clock.now() - receipt.received_at
        return min(self._visibility_timeout_s, int(MAX_VISIBILITY_S - CAP_MARGIN_S - held_s))

    def _lose(self, receipt: Receipt, reason: str) -> None:
        with self._lock:
            if self._holds.pop(receipt.receipt_handle, None) is None:
                return
            self._lost[receipt.receipt_handle] = receipt.message_group_id
            first_of_group = not self._lost_groups[receipt.message_group_id]
            self._lost_groups[receipt.message_group_id] += 1
            self.lost_count += 1
        if first_of_group:
            _log.warning(
                "lost the lease on messages of group '%s': %s. SQS may hand them out again; this query recognises "
                "them and serves none twice.",
                receipt.message_group_id,
                reason,
            )


class Heartbeat:
    """Renews one lease until it is stopped, on one thread, or on two with `discover`.

    `discover` is called as often, and may hold more receipts. Its thread is another one, so that a journal that stalls
    costs no hold. A failure is recorded for `check`, and the threads go on: the epoch under way needs its lease.
    """

    def __init__(
        self, lease: Lease, clock: Clock, *, every_s: float, discover: Callable[[], None] | None = None
    ) -> None:
        self._lease = lease
        self._clock = clock
        self._every_s = every_s
        self._discover = discover
        self._look_every_s = min(every_s, LONGEST_LOOK_S)
        self._look_at = clock.monotonic() + self._look_every_s
        """Monotonic time of the next discovery. Only the thread that discovers uses it."""
        self._stopped = threading.Event()
        # By thread; each sets and removes its own, `check` all. Only whole items are read or written.
        self._failures: dict[str, BaseException] = {}
        steps: dict[str, tuple[Callable[[], None], Callable[[], float]]] = {
            "sqs-fifo-heartbeat": (self._lease.renew, self._until_due_s)
        }
        if discover is not None:
            steps["sqs-fifo-discovery"] = self._look, self._until_look_s
        self._threads = [
            threading.Thread(target=self._run, args=(name, *step), name=name, daemon=True)
            for name, step in steps.items()
        ]

    def start(self) -> None:
        """Begin renewing; once begun, this does nothing."""
        for thread in self._threads:
            if thread.ident is None:
                thread.start()

    def stop(self) -> None:
        """Stop renewing. Waits for a call under way; calls that have not begun are not made."""
        self._stopped.set()
        self._lease.stop_renewing_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def check(self) -> None:
        """If a heartbeat failed, try once more, and raise the error if that fails too. Otherwise do nothing.

        So a failure that has passed meanwhile does not stop the query. SQS keeps it for CALL_BUDGET_S at most.
        """
        if self._failures:
            self._lease.renew()  # first: however long a journal takes, a refusal of SQS is met
            if self._discover is not None:
                self._discover()
            self._failures.clear()

    def _run(self, name: str, step: Callable[[], None], usual_s: Callable[[], float]) -> None:
        pause_s = usual_s()
        while not self._clock.wait(self._stopped, pause_s):
            try:
                step()
            except BaseException as error:  # a panic of the journal's native code too: `check` is to meet it
                if not self._failures:
                    _log.warning(
                        "a heartbeat failed; the query stops unless one works before its next micro-batch: %s", error
                    )
                self._failures[name] = error
                pause_s = self._look_every_s / 4
            else:
                self._failures.pop(name, None)
                pause_s = usual_s()

    def _look(self) -> None:
        """Renew holds that are due; before that, discover, once a heartbeat, and at least once in LONGEST_LOOK_S.

        A discovered hold may be due before the other thread, which knew nothing of it, wakes. A pass is short, so looks
        are on time whatever SQS does.
        """
        now = self._clock.monotonic()
        if now >= self._look_at and self._discover is not None:
            self._discover()
            self._look_at = now + self._look_every_s
        self._lease.renew()

    def _until_look_s(self) -> float:
        return min(self._until_due_s(), max(0.0, self._look_at - self._clock.monotonic()))

    def _until_due_s(self) -> float:
        due = self._lease.next_renewal()
        soon_s = self._every_s / 4  # another thread may have a hold that is due earlier
        return soon_s if due is None else min(soon_s, max(0.0, due - self._clock.monotonic()))
