"""The SQS calls that the source makes on its queue.

A batch call takes at most ten entries and answers for each of them. `Failed` entries are never dropped: they
are tried again while there is time, and each receipt ends in exactly one `Outcome`. Errors are those of `aws.calls`.
More receipts than ten are split into batches, which the driver's queue calls for at once, in pools of its own.
"""

from __future__ import annotations

import functools
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeVar

from sqs_fifo_spark.aws.calls import CALL_BUDGET_S, Ask, QueueCalls
from sqs_fifo_spark.aws.codes import error_from_aws
from sqs_fifo_spark.aws.lean import answered_within
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import (
    AccessDeniedError,
    NotFifoQueueError,
    QueueNotFoundError,
    QueueRequestError,
    SqsFifoError,
    TransientQueueError,
)
from sqs_fifo_spark.options import SourceOptions
from sqs_fifo_spark.pace import Pace
from sqs_fifo_spark.retry import PendingCall
from sqs_fifo_spark.source.bandwidth import MOST_RENEWAL_THREADS, RENEWAL_S, renewal_threads
from sqs_fifo_spark.source.batches import Entries, Outcome, split_into_batches
from sqs_fifo_spark.source.message import Receipt, from_sqs
from sqs_fifo_spark.source.pool import Answer, MakePool, in_calling_thread
from sqs_fifo_spark.source.receive import Receive, ReceivedMessages

T = TypeVar("T")
_log = logging.getLogger(__name__)

RECEIVE_TRIES = 3
"""Tries of a receive, at least: if its answer is lost, its messages stay hidden unless it is repeated."""
RELEASE_BUDGET_S = 10.0
"""Seconds for which a release goes on without an answer; the rest is free when its visibility timeout is over."""

CONCURRENT_CALLS = 8
"""Receives, or deletes and releases, that driver or task has under way at once."""
DRIVER_DELETES = 32
"""Deletes that the driver has under way at once: they are those of all tasks."""
LONGEST_BEGIN_S = 1.0
"""Seconds after which no call is begun beside others: new connections may be slow, and answers wait to be read."""

# Never a valid handle: SQS checks the permission first, then refuses the entry, and nothing happens.
NO_HANDLE = "sqs-fifo-spark-permission-check"


def is_about_queue(error: Exception) -> bool:
    """Return True if the error is of one queue, and others may be well: it is gone, not ours to call, or silent."""
    if isinstance(error, AccessDeniedError):
        return error.is_of_queue
    return isinstance(error, (NotFifoQueueError, QueueNotFoundError, TransientQueueError))


class Counts(NamedTuple):
    """About how many messages a queue has: SQS's own figures, which lag behind."""

    waiting: int = 0
    """To be handed out, those of locked groups too."""
    in_flight: int = 0
    """Received, by anybody, and not deleted yet."""
    delayed: int = 0
    """Hidden by the queue's `DelaySeconds`."""


_COUNTED = tuple(f"ApproximateNumberOfMessages{which}" for which in ("", "NotVisible", "Delayed"))


def _counts(found: Mapping[str, str]) -> Counts:
    # A stand-in for SQS may not count delayed ones, without which all works.
    waiting, in_flight, delayed = _COUNTED
    return Counts(int(found[waiting]), int(found[in_flight]), int(found.get(delayed, 0)))


def is_held_up(begun_at: float, clock: Clock) -> bool:
    """Return whether to begin calls has taken so long, since the first one, that their answers are to be read first."""
    return clock.monotonic() - begun_at > LONGEST_BEGIN_S


class Queue(QueueCalls):
    """The queue as the source sees it, on driver and executors, with pools of threads.

    Renewals have a pool that makes no other calls: neither a long commit nor a journal that stalls keeps them waiting.
    """

    def __init__(
        self,
        options: SourceOptions,
        clock: Clock,
        pool: MakePool = in_calling_thread,
        *,
        sharer: int = 0,
        sharers: int = 1,
        deletes: int = CONCURRENT_CALLS,
        pace: Pace | None = None,
        may_go: bool = False,
    ) -> None:
        """`sharers` processes share `maxCallsPerSecond`; the first turn is by the number `sharer`.

        `deletes` is the number of deletes under way at once. A `pace` may be another queue's, too. A queue that
        `may_go` is one of several: if SQS no longer has it, or refuses a call on its messages, that call has no answer,
        and `gone` has the error.
        """
        super().__init__(options, clock)
        limit = options.max_calls_per_s
        self.pace = pace or Pace(clock, limit and limit / sharers, first_in_s=sharer / limit if limit else 0.0)
        """A receive waits for it before `begin_receive`; deletes wait by themselves."""
        self.gone: SqsFifoError | None = None
        self.may_go = may_go
        self.counts: Counts | None = None
        """The queue's last answer about its messages, if it was asked."""
        self._visibility_timeout_s = options.visibility_timeout_s
        self._to_message = functools.partial(
            from_sqs,
            opens_envelopes=options.unwrap == "sns",
            max_payload_bytes=options.max_payload_bytes if options.payloads == "s3" else None,
        )
        self._refused: set[str] = set()
        """Codes of refused entries that were logged."""
        self._deletes = 1 if self.pace.is_slow else deletes
        # For a client that cannot send a call without waiting for its answer. Calls there wait for nothing else.
        self._ask_pool = pool("begun", max(CONCURRENT_CALLS, deletes))
        self._call_pool = pool("call", CONCURRENT_CALLS)
        self._renewal_pool = pool("renewal", MOST_RENEWAL_THREADS)
        self._renewals = renewal_threads(options.max_messages_per_trigger, options.heartbeat_s)
        self._slow_renewals = 0
        """Number of renewals that took too long, in the last pass."""

    def _beside(self, ask: Ask) -> Ask:
        return self._ask_pool.submit(ask).result

    def require_permissions(self) -> None:
        """Raise AccessDeniedError unless messages may be deleted and their visibility changed.

        Both calls carry one impossible handle, which SQS refuses after it has checked the permission; no message
        is touched. Whether receiving is allowed shows at the first receive.
        """
        entry = {"Id": "0", "ReceiptHandle": NO_HANDLE}
        checks: Sequence[tuple[str, Mapping[str, Any]]] = (
            ("delete_message_batch", entry),
            ("change_message_visibility_batch", {**entry, "VisibilityTimeout": 0}),
        )
        for _ in self._call_pool.map(self._require_permission, checks):
            pass

    def _require_permission(self, check: tuple[str, Mapping[str, Any]]) -> None:
        operation, refused = check
        try:
            answer = self._retrying(operation, CALL_BUDGET_S, Entries=[refused])
        except QueueRequestError:
            return  # refused for the handle, so allowed
        for failed in answer.get("Failed") or ():
            error = error_from_aws(operation, self._url, str(failed.get("Code", "")), str(failed.get("Message", "")))
            if isinstance(error, AccessDeniedError):
                raise error

    def approximate_counts(self, *, budget_s: float = CALL_BUDGET_S) -> Counts:
        """Ask how many messages the queue has; `counts` has the answer, too."""
        self.counts = _counts(self._attributes(*_COUNTED, budget_s=budget_s))
        return self.counts

    def _attributes(self, *names: str, budget_s: float = CALL_BUDGET_S) -> Mapping[str, str]:
        found = super()._attributes(*names, budget_s=budget_s)
        if self.counts is None and found.keys() >= set(_COUNTED[:2]):
            self.counts = _counts(found)  # all attributes were asked for, at the start
        return found

    def time_ms(self) -> int:
        """Return SQS's own time, the clock of `SentTimestamp`, cut to whole seconds; in milliseconds."""
        answer = self._retrying("get_queue_attributes", CALL_BUDGET_S, AttributeNames=["QueueArn"])
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        return int(parsedate_to_datetime(date).timestamp() if date else self._clock.now()) * 1_000

    def receive(self, max_messages: int, *, wait_time_s: int = 0, budget_s: float = CALL_BUDGET_S) -> ReceivedMessages:
        """Do as `begin_receive` when it is its turn, behind other calls, and wait for its answer."""
        self.pace.wait_behind()
        return self.begin_receive(max_messages, wait_time_s=wait_time_s, budget_s=budget_s, is_beside=False).result()

    def begin_receive(
        self, max_messages: int, *, wait_time_s: int = 0, budget_s: float = CALL_BUDGET_S, is_beside: bool = True
    ) -> PendingCall[ReceivedMessages]:
        """Ask for up to `max_messages` (at most ten) messages, hidden from others for the visibility timeout.

        With `wait_time_s` SQS answers when a message comes or the time is over. Retries carry the same attempt id, so
        that messages whose answer was lost on the wire are delivered again (SQS keeps them for 5 minutes); so there are
        some retries also when the budget is used up. Not `is_beside`: asked only when somebody waits.
        """
        receive = Receive(
            self._url,
            self._clock,
            max_messages=max_messages,
            wait_time_s=wait_time_s,
            visibility_timeout_s=self._visibility_timeout_s,
            to_message=self._to_message,
        )
        if is_beside:
            receive.begin(functools.partial(self._begin, "receive_message", receive.long_s, self._beside))
        call = functools.partial(self._call, "receive_message", receive.long_s)
        ask = self._unless_gone(functools.partial(receive.ask, call), ReceivedMessages)
        return PendingCall(ask, clock=self._clock, budget_s=budget_s, min_tries=RECEIVE_TRIES)

    def finish_receive(self, finish: Callable[[], T]) -> Answer[T]:
        """Do the rest of a receive beside others, once its first try has failed."""
        return self._call_pool.submit(finish)

    def delete(
        self,
        receipts: Iterable[Receipt],
        *,
        budget_s: float = CALL_BUDGET_S,
        before_call: Callable[[Sequence[Receipt]], None] = lambda entries: None,
    ) -> list[tuple[Receipt, Outcome]]:
        """Delete messages; return each receipt with its outcome, those of one receive in their order.

        LOST says that SQS refused the handle: if the message is there still, it comes again. FAILED are also those for
        which no call was begun within `budget_s`. `before_call` gets the receipts of each call, up to ten, just before
        the call, or before it is found to be too late for one.
        """
        parts = split_into_batches(receipts)
        deadline = self._clock.monotonic() + budget_s + self.pace.needed_s(len(parts))

        def begin(entries: list[Receipt]) -> PendingCall[list[Outcome]]:
            has_turn = self.pace.wait(latest=deadline)
            before_call(entries)
            return self._begin_delete(entries, deadline if has_turn else -math.inf)

        calls: list[PendingCall[list[Outcome]]] = []
        begun_at: list[float] = []
        answered = 0
        all_well = True
        # One thread sends and waits, while all goes well; calls that fail, or are slow to begin, are made in several.
        for part in parts:
            while all_well and answered < len(calls):
                is_slow = is_held_up(begun_at[answered], self._clock) and not self.pace.is_slow
                if len(calls) - answered < self._deletes and not is_slow:
                    break
                all_well = calls[answered].wait() and not (is_slow and len(calls) < CONCURRENT_CALLS)
                answered += 1
            if not all_well:
                break
            begun_at.append(self._clock.monotonic())
            calls.append(begin(part))
        there = [each.wait() for each in calls]
        is_done = all(there) and len(there) == len(parts)

        def outcomes(place: int) -> list[Outcome]:
            return (calls[place] if place < len(calls) else begin(parts[place])).result()

        answers = map(outcomes, range(len(parts))) if is_done else self._call_pool.map(outcomes, range(len(parts)))
        return [pair for part, found in zip(parts, answers, strict=True) for pair in zip(part, found, strict=True)]

    def begin_delete(
        self, receipts: Sequence[Receipt], *, budget_s: float, before_call: Callable[[Sequence[Receipt]], None]
    ) -> Callable[[], list[tuple[Receipt, Outcome]]]:
        """Send the one call that deletes these messages, up to ten; return a function that waits, and does as `delete`.

        Calls before that find the messages deleted, or not yet.
        """
        self.pace.wait()
        before_call(receipts)
        call = self._begin_delete(receipts, self._clock.monotonic() + budget_s)
        return lambda: list(zip(receipts, call.result(), strict=True))

    def _begin_delete(self, receipts: Sequence[Receipt], deadline: float) -> PendingCall[list[Outcome]]:
        left_s = deadline - self._clock.monotonic()
        if left_s <= 0:
            return PendingCall(lambda: [Outcome.FAILED] * len(receipts), clock=self._clock, budget_s=0.0)
        handles = [{"ReceiptHandle": receipt.receipt_handle} for receipt in receipts]
        return self._begin_batch("delete_message_batch", handles, left_s)

    def release(self, receipts: Iterable[Receipt]) -> Counter[Outcome]:
        """Release these messages, or, without an answer, let them lapse; return the number of each outcome."""
        # Since the last answer: when the first call that failed began, and ended, and whether one that began after that
        # failed, too. Else the process may only have stood still.
        since = ended_at = math.inf
        is_silent = False

        def call(entries: list[Receipt]) -> list[Outcome]:
            nonlocal since, ended_at, is_silent
            asked_at = self._clock.monotonic()
            if is_silent and asked_at - since >= RELEASE_BUDGET_S:
                return [Outcome.FAILED] * len(entries)
            outcomes = self.extend(entries, 0, budget_s=1.0)
            if Outcome.FAILED in outcomes:
                is_silent = is_silent or asked_at >= ended_at
                since, ended_at = min(since, asked_at), min(ended_at, self._clock.monotonic())
            else:
                since = ended_at = math.inf
                is_silent = False
            return outcomes

        answers = self._call_pool.map(call, split_into_batches(receipts))
        return Counter(outcome for outcomes in answers for outcome in outcomes)

    def renew(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make these calls to `extend`, the first ones first, several at once; return when all are over.

        At one time there are as many calls as renew a full micro-batch in time, and one more for each that was slow
        last time: calls that hang keep no others waiting.
        """
        left = iter(calls)
        slow: list[float] = []

        def work(_: int) -> None:
            for call in left:  # each thread takes the next one
                began = self._clock.monotonic()
                call()
                if self._clock.monotonic() - began > RENEWAL_S:
                    slow.append(began)

        threads = min(len(calls), self._renewals + self._slow_renewals, MOST_RENEWAL_THREADS)
        for _ in self._renewal_pool.map(work, range(threads)):
            pass
        self._slow_renewals = len(slow)

    def extend(
        self,
        receipts: Sequence[Receipt],
        visibility_timeout_s: int,
        *,
        budget_s: float = CALL_BUDGET_S,
        answer_s: float | None = None,
    ) -> list[Outcome]:
        """Hide up to ten messages for `visibility_timeout_s` from now; 0 releases them. Return the outcomes.

        It is tried again for `budget_s`; each try is over after `answer_s`, if given.
        """
        entries = [
            {"ReceiptHandle": receipt.receipt_handle, "VisibilityTimeout": visibility_timeout_s} for receipt in receipts
        ]
        with answered_within(answer_s):
            return self._begin_batch("change_message_visibility_batch", entries, budget_s, is_beside=False).result()

    def _warn_of_refused(self, operation: str, code: str) -> None:
        if code not in self._refused:
            self._refused.add(code)
            _log.warning(
                "SQS refuses an entry of %s on '%s' with the code '%s'. The query goes on without it, tries again "
                "later, and serves no message twice.",
                operation,
                self._url,
                code,
            )

    def _begin_batch(
        self, operation: str, given: Sequence[Mapping[str, Any]], budget_s: float, *, is_beside: bool = True
    ) -> PendingCall[list[Outcome]]:
        """Send a call for up to ten entries, only on demand if not `is_beside`; return outcomes, FAILED if in vain."""
        entries = Entries(operation, self._url, given)
        request = entries.request()
        pending = self._begin(operation, 0, self._beside, Entries=request) if is_beside else None

        def ask() -> list[Outcome]:
            nonlocal request, pending
            batch, request = request or entries.request(), []
            first, pending = pending, None
            for code in entries.note(self._call(operation, pending=first, Entries=batch)):
                self._warn_of_refused(operation, code)
            entries.require_all()
            return entries.outcomes

        def otherwise() -> list[Outcome]:
            return entries.outcomes

        return PendingCall(self._unless_gone(ask, otherwise), clock=self._clock, budget_s=budget_s, otherwise=otherwise)

    def _unless_gone(self, ask: Callable[[], T], otherwise: Callable[[], T]) -> Callable[[], T]:
        """Return `ask`; of a queue that may go, with the result of `otherwise` once it has gone."""
        if not self.may_go:
            return ask

        def call() -> T:
            try:
                return ask()
            except (AccessDeniedError, QueueNotFoundError) as error:
                if not is_about_queue(error):
                    raise
                if self.gone is None:
                    _log.warning("%s The query goes on with its other queues.", error)
                self.gone = error
                return otherwise()

        return call
