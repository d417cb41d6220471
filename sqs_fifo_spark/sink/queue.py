"""The one SQS call that the sink makes: sending up to ten rows. Each row ends up sent, or its task fails.

SQS adds the rows of a call in the order in which they stand there, and answers for each. So rows of one group in one
call stay in order, unless it fails one of them and takes another one behind it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqs_fifo_spark.aws.calls import QueueCalls, named_apart
from sqs_fifo_spark.aws.client import CONNECT_TIMEOUT_S
from sqs_fifo_spark.aws.codes import MessageRefusedError, error_from_aws
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import QueueRequestError, TransientQueueError
from sqs_fifo_spark.options import SinkOptions
from sqs_fifo_spark.retry import SharedPause, retry_transient
from sqs_fifo_spark.sink.message import Outgoing, RefusedRowError

_OPERATION = "send_message_batch"


@dataclass(frozen=True)
class Confirmed:
    """A row that SQS has added, or took for equal to one that it has; then number and id are that one's, if given."""

    row: Outgoing
    sequence_number: int | None
    message_id: str | None
    may_be_older: bool = False
    """Whether an earlier try, which had no answer for all rows, may have added it."""


class StoppedError(Exception):
    """The task has failed elsewhere, so this is not tried again."""


class SinkQueue(QueueCalls):
    """The queue as one task of the sink sees it."""

    def __init__(self, options: SinkOptions, clock: Clock) -> None:
        super().__init__(options, clock)
        self._pause = SharedPause(clock)

    def send(
        self,
        rows: Sequence[Outgoing],
        confirm: Callable[[list[Confirmed]], None],
        *,
        stopped: threading.Event,
        deadline: float,
        may_be_older: bool = False,
    ) -> None:
        """Send up to ten rows; hand each to `confirm`, in their order, as soon as SQS has confirmed it.

        `may_be_older` is whether an earlier attempt of the task may have sent them.

        What SQS throttles, fails or does not answer is tried again, alone, until it is sent. Raises RefusedRowError
        for a row that SQS refuses for good, and then sets `stopped` at once; StoppedError instead of another try once
        `stopped` is set; whatever `confirm` raises; and the errors of `aws.calls`, TransientQueueError when no further
        try can begin by `deadline`, a monotonic time: what is not confirmed may be sent. Nothing leaves this process
        later than CONNECT_TIMEOUT_S after `deadline`, or once `stopped` is set, however long a call takes to find and
        reach SQS.
        """
        pending = list(rows)

        def call() -> None:
            nonlocal pending, may_be_older
            self._pause.wait(deadline, stopped)
            if stopped.is_set():
                raise StoppedError
            if self._clock.monotonic() > deadline:
                raise TransientQueueError(
                    f"{_OPERATION} on '{self._url}' was not made in time: this process stood still."
                )
            tried = named_apart(pending)
            entries = [{"Id": key, **row.entry} for key, row in tried.items()]
            try:
                answer = self._call_once(deadline + CONNECT_TIMEOUT_S, entries, stopped)
            except TransientQueueError as unanswered:
                may_be_older = may_be_older or not unanswered.is_throttling
                raise
            sent = {entry["Id"]: entry for entry in answer.get("Successful") or () if entry.get("Id") in tried}
            pending = [row for key, row in tried.items() if key not in sent]
            failing = 0
            code = "no answer for some entries"
            is_throttled = False
            fault: Exception | None = None
            refused: dict[int, str] = {}
            for failed in answer.get("Failed") or ():
                row = tried.get(failed.get("Id"))
                if row is None:
                    continue  # not of this call; what is ours and not confirmed is sent again
                code = str(failed.get("Code"))
                error = error_from_aws(_OPERATION, self._url, code, str(failed.get("Message", "")), sender_fault=failed)
                if isinstance(error, QueueRequestError):
                    refused[row.row] = f"SQS refuses it ({code})"
                elif isinstance(error, TransientQueueError):
                    failing += 1
                    is_throttled = is_throttled or error.is_throttling
                else:
                    fault = fault or error
            if refused and fault is None:
                row_number, reason = next(iter(refused.items()))
                fault = RefusedRowError(row_number, reason, others=frozenset(refused))
            self._pause.throttled() if is_throttled else self._pause.answered()
            if fault is not None:
                stopped.set()  # at once, for to record what was sent may take a while
            if sent:
                confirm(_confirmed(tried, sent, may_be_older=may_be_older))
            if fault is not None:
                raise fault
            if pending:
                may_be_older = may_be_older or len(sent) + failing < len(tried)
                raise TransientQueueError(
                    f"{_OPERATION} on '{self._url}': {code}, and again until the time to retry was over."
                )

        try:
            budget_s = deadline - self._clock.monotonic()
            retry_transient(call, clock=self._clock, budget_s=budget_s, stopped=stopped)
        except MessageRefusedError as error:
            if len(pending) == 1:
                raise RefusedRowError(pending[0].row, f"SQS refuses it ({error.code})") from None
            for row in pending:  # it is one of them, and SQS does not tell which
                self.send([row], confirm, stopped=stopped, deadline=deadline, may_be_older=may_be_older)

    def _call_once(
        self, latest: float, entries: Sequence[Mapping[str, Any]], stopped: threading.Event
    ) -> Mapping[str, Any]:
        try:
            return self._call(_OPERATION, latest=latest, stopped=stopped, Entries=entries)
        except TransientQueueError as error:
            if stopped.is_set():
                raise StoppedError from None
            if error.is_throttling:
                self._pause.throttled()
            raise


def _confirmed(
    tried: Mapping[str, Outgoing], sent: Mapping[str, Mapping[str, Any]], *, may_be_older: bool
) -> list[Confirmed]:
    return [
        Confirmed(row, _sequence_number(sent[key]), sent[key].get("MessageId"), may_be_older)
        for key, row in tried.items()
        if key in sent
    ]


def _sequence_number(entry: Mapping[str, Any]) -> int | None:
    number = str(entry.get("SequenceNumber"))
    return int(number) if number.isdecimal() else None
