"""The one SQS call that the sink makes: sending up to ten rows. Each row ends up sent, or its task fails.

SQS adds the rows of a call in the order in which they stand there, and answers for each. So rows of one group in one
call stay in order, unless it fails one of them and takes another one behind it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqs_fifo_spark.aws.calls import QueueCalls, named_apart
from sqs_fifo_spark.aws.codes import SEND, MessageRefusedError
from sqs_fifo_spark.aws.credentials import CONNECT_TIMEOUT_S
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import OptionError, TransientQueueError
from sqs_fifo_spark.options import SinkOptions
from sqs_fifo_spark.pace import Pace as CallPace
from sqs_fifo_spark.retry import SharedPause, retry_transient
from sqs_fifo_spark.sink.outcome import ConfirmedRow, classify, refusal
from sqs_fifo_spark.sink.outgoing import OutgoingRow, RefusedRowError, too_large


class StoppedError(Exception):
    """The task ends for something else, so this is not tried again."""


class UnsentError(TransientQueueError):
    """SQS has throttled each try of these rows, so none had an effect: the time to try them may begin anew.

    Others of their call are `refused`, if such are kept.
    """

    is_throttling = True

    def __init__(self, text: str, rows: Sequence[OutgoingRow] = (), refused: Sequence[OutgoingRow] = ()) -> None:
        super().__init__(text)
        self.rows = list(rows)
        self.refused = list(refused)


class SinkQueue(QueueCalls):
    """The queue as one task of the sink sees it."""

    def __init__(self, options: SinkOptions, clock: Clock, *, sharer: int = 0, sharers: int = 1) -> None:
        """`sharers` tasks share `maxCallsPerSecond` equally; this one's first turn is by its number."""
        super().__init__(options, clock)
        limit = options.max_calls_per_s
        first_in_s = sharer % sharers / limit if limit else 0.0
        self.pace = CallPace(clock, limit and limit / sharers, first_in_s=first_in_s)
        """Each call waits for it before its rows are chosen."""
        self._pause = SharedPause(clock)

    def send(
        self,
        rows: Sequence[OutgoingRow],
        confirm: Callable[[list[ConfirmedRow], list[OutgoingRow]], None],
        *,
        stopped: threading.Event,
        deadline: float,
        may_be_older: bool = False,
        keeps_refused: bool = False,
    ) -> list[OutgoingRow]:
        """Send up to ten rows; hand each to `confirm`, in their order, as soon as SQS has confirmed it.

        `confirm` also gets the rows of that call that SQS has neither confirmed nor refused. `may_be_older` says that
        an earlier attempt of the task may have sent them.

        Rows that SQS throttles, fails or does not answer for are tried again, alone, until they are sent. Returns the
        rows that SQS refuses for good, if `keeps_refused`; else raises RefusedRowError for the first one, and sets
        `stopped` before others of that call are confirmed. If it refuses all rows of a call, the queue is asked for its
        settings, and OptionError raised, or the error of `describe`, if these are the reason. Raises StoppedError
        instead of another try once `stopped` is set; the errors of `confirm`; and those of `aws.calls`. When no further
        try can begin by `deadline`, a monotonic time, it raises UnsentError if each try of the rows that are neither
        confirmed nor refused was throttled, else TransientQueueError, and they may be sent. Nothing leaves this process
        later than CONNECT_TIMEOUT_S after `deadline`, or once `stopped` is set, however long a call takes to find and
        reach SQS.
        """
        pending, later = list(rows), list[OutgoingRow]()
        refused: list[OutgoingRow] = []
        said: str | None = None  # of a call of which all rows are refused
        in_doubt: set[int] = set()
        is_throttled = False

        def call() -> None:
            nonlocal pending, refused, said, may_be_older, is_throttled
            self._pause.wait(deadline, stopped)
            if stopped.is_set():
                raise StoppedError
            if self._clock.monotonic() > deadline:
                raise TransientQueueError(f"{SEND} on '{self._url}' was not made in time: this process stood still.")
            tried = named_apart(pending)
            entries = [{"Id": key, **row.entry} for key, row in tried.items()]
            try:
                answer = self._call_once(deadline + CONNECT_TIMEOUT_S, entries, stopped)
            except TransientQueueError as unanswered:
                if unanswered.is_throttling:
                    is_throttled = True
                else:
                    in_doubt.update(map(id, pending))
                    may_be_older = True
                raise
            outcome = classify(answer, tried, self._url, may_be_older=may_be_older)
            pending = outcome.pending
            in_doubt.update(map(id, outcome.in_doubt))
            is_throttled = is_throttled or outcome.is_throttled
            self._pause.throttled() if outcome.is_throttled else self._pause.answered()
            refused += outcome.refused
            said = "" if len(outcome.refused) == len(tried) else None
            ends = bool(outcome.refused) and not keeps_refused
            if ends or outcome.fault is not None:
                stopped.set()  # at once, for to record sent rows may take a while
            if outcome.confirmed:
                confirm(outcome.confirmed, pending)
            if outcome.fault is not None:
                raise outcome.fault
            if ends:
                return
            if pending:
                may_be_older = may_be_older or outcome.is_silent
                raise TransientQueueError(
                    f"{SEND} on '{self._url}': {outcome.code}, and again until the time to retry was over."
                )

        while pending:
            try:
                budget_s = deadline - self._clock.monotonic()
                retry_transient(call, clock=self._clock, budget_s=budget_s, stopped=stopped)
            except MessageRefusedError as error:
                if len(pending) == 1:
                    said = error.reason
                    refused.append(refusal(pending[0], error.code, said))
                else:
                    self._require_fit(pending, error.reason)
                    later = pending  # it is one of them, and SQS does not say which
            except TransientQueueError as error:
                pending += later
                if is_throttled and in_doubt.isdisjoint(map(id, pending)):
                    raise UnsentError(str(error), pending, refused) from None
                raise
            if said is not None:
                refused, said = self._require_fit(refused, said), None
            if refused and not keeps_refused:
                raise RefusedRowError(refused[0].row, refused[0].refusal)
            pending, later = later[:1], later[1:]
        return refused

    def _require_fit(self, rows: list[OutgoingRow], said: str) -> list[OutgoingRow]:
        """Return the rows of a call that is refused as a whole, unless the queue's settings are the reason.

        They may have changed since the plan was made, and SQS may have `said` so before it shows it. Raises
        OptionError, or the errors of `describe`.
        """
        facts = self.describe()
        said = " ".join([said, *(row.refusal for row in rows)])
        is_off = not facts.has_content_based_deduplication or "ContentBasedDeduplication" in said
        if is_off and any("MessageDeduplicationId" not in row.entry for row in rows):
            # No other remedy: rows that were sent without ids, and have some then, would be sent again.
            raise OptionError(
                f"option 'deduplication' is 'content', but ContentBasedDeduplication of the queue '{self._url}' was "
                "switched off during the write, so SQS refuses each row. Turn it on again."
            )
        most = facts.max_message_bytes
        return [row._replace(refusal=too_large(row.size, most)) if row.size > most else row for row in rows]

    def _call_once(
        self, latest: float, entries: Sequence[Mapping[str, Any]], stopped: threading.Event
    ) -> Mapping[str, Any]:
        try:
            return self._call(SEND, latest=latest, stopped=stopped, Entries=entries)
        except TransientQueueError as error:
            if stopped.is_set():
                raise StoppedError from None
            if error.is_throttling:
                self._pause.throttled()
            raise
