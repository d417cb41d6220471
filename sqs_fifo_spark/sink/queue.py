"""The one SQS call that the sink makes: sending up to ten rows. Each row ends up sent, or its task fails.

SQS adds the rows of a call in the order in which they stand there, and answers for each. So rows of one group in one
call stay in order, unless it fails one of them and takes another one behind it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqs_fifo_spark.aws.calls import QueueCalls, named_apart
from sqs_fifo_spark.aws.client import CONNECT_TIMEOUT_S
from sqs_fifo_spark.aws.codes import MessageRefusedError
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import TransientQueueError
from sqs_fifo_spark.options import SinkOptions
from sqs_fifo_spark.pace import Pace as CallPace
from sqs_fifo_spark.retry import SharedPause, retry_transient
from sqs_fifo_spark.sink.message import Outgoing, RefusedRowError
from sqs_fifo_spark.sink.outcome import OPERATION, Confirmed, classify


class StoppedError(Exception):
    """The task has failed elsewhere, so this is not tried again."""


class UnsentError(TransientQueueError):
    """SQS has throttled each try of these rows, so none had an effect: the time to try them may begin anew."""

    is_throttling = True

    def __init__(self, text: str, rows: Sequence[Outgoing] = ()) -> None:
        super().__init__(text)
        self.rows = list(rows)


class SinkQueue(QueueCalls):
    """The queue as one task of the sink sees it."""

    def __init__(self, options: SinkOptions, clock: Clock, *, sharer: int = 0, sharers: int = 1) -> None:
        """`sharers` is how many tasks share `maxCallsPerSecond` equally; this one's first turn is by its number."""
        super().__init__(options, clock)
        limit = options.max_calls_per_s
        first_in_s = sharer % sharers / limit if limit else 0.0
        self.pace = CallPace(clock, limit and limit / sharers, first_in_s=first_in_s)
        """What each call is to wait for before its rows are chosen."""
        self._pause = SharedPause(clock)

    def send(
        self,
        rows: Sequence[Outgoing],
        confirm: Callable[[list[Confirmed], list[Outgoing]], None],
        *,
        stopped: threading.Event,
        deadline: float,
        may_be_older: bool = False,
    ) -> None:
        """Send up to ten rows; hand each to `confirm`, in their order, as soon as SQS has confirmed it.

        `confirm` is told, too, which rows of that call SQS has neither confirmed nor refused.

        `may_be_older` is whether an earlier attempt of the task may have sent them.

        What SQS throttles, fails or does not answer is tried again, alone, until it is sent. Raises RefusedRowError
        for a row that SQS refuses for good, and sets `stopped` before others of that call are confirmed; StoppedError
        instead of another try once `stopped` is set; whatever `confirm` raises; and the errors of `aws.calls`. When no
        further try can begin by `deadline`, a monotonic time, it raises UnsentError if each try of the rows that are
        not confirmed was throttled, else TransientQueueError, and they may be sent. Nothing leaves this process later
        than CONNECT_TIMEOUT_S after `deadline`, or once `stopped` is set, however long a call takes to find and reach
        SQS.
        """
        pending, later = list(rows), list[Outgoing]()
        in_doubt: set[int] = set()
        is_throttled = False

        def call() -> None:
            nonlocal pending, may_be_older, is_throttled
            self._pause.wait(deadline, stopped)
            if stopped.is_set():
                raise StoppedError
            if self._clock.monotonic() > deadline:
                raise TransientQueueError(
                    f"{OPERATION} on '{self._url}' was not made in time: this process stood still."
                )
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
            if outcome.fault is not None:
                stopped.set()  # at once, for to record what was sent may take a while
            if outcome.confirmed:
                confirm(outcome.confirmed, pending)
            if outcome.fault is not None:
                raise outcome.fault
            if pending:
                may_be_older = may_be_older or outcome.is_silent
                raise TransientQueueError(
                    f"{OPERATION} on '{self._url}': {outcome.code}, and again until the time to retry was over."
                )

        while pending:
            try:
                budget_s = deadline - self._clock.monotonic()
                retry_transient(call, clock=self._clock, budget_s=budget_s, stopped=stopped)
            except MessageRefusedError as error:
                if len(pending) == 1:
                    raise RefusedRowError(pending[0].row, f"SQS refuses it ({error.code})") from None
                later = pending  # it is one of them, and SQS does not tell which
            except TransientQueueError as error:
                pending += later
                if is_throttled and in_doubt.isdisjoint(map(id, pending)):
                    raise UnsentError(str(error), pending) from None
                raise
            pending, later = later[:1], later[1:]

    def _call_once(
        self, latest: float, entries: Sequence[Mapping[str, Any]], stopped: threading.Event
    ) -> Mapping[str, Any]:
        try:
            return self._call(OPERATION, latest=latest, stopped=stopped, Entries=entries)
        except TransientQueueError as error:
            if stopped.is_set():
                raise StoppedError from None
            if error.is_throttling:
                self._pause.throttled()
            raise
