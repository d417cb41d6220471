"""The one SQS call that the sink makes: sending up to ten rows, of which each ends sent, or fails its task.

A call never holds two rows of one group, so that whatever order SQS takes or refuses them in is the groups' order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from sqs_fifo_spark.calls import QueueCalls
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import QueueRequestError, TransientQueueError
from sqs_fifo_spark.options import SinkOptions
from sqs_fifo_spark.outgoing import Outgoing, RefusedRow
from sqs_fifo_spark.refusal import error_of
from sqs_fifo_spark.retry import retry_transient

_OPERATION = "send_message_batch"


class StoppedError(Exception):
    """The task has failed elsewhere, so this is not tried again."""


class SinkQueue(QueueCalls):
    """The queue as the sink sees it."""

    def __init__(self, options: SinkOptions, clock: Clock) -> None:
        super().__init__(options, clock)

    def send(
        self,
        rows: Sequence[Outgoing],
        confirm: Callable[[list[Outgoing]], None],
        *,
        stopped: threading.Event,
        deadline: float,
    ) -> None:
        """Send up to ten rows of as many groups; hand each to `confirm`, as soon as SQS has confirmed it.

        What SQS throttles, fails or does not answer is tried again, alone, until it is sent. Raises RefusedRow for a
        row that SQS refuses for good; StoppedError instead of another try once `stopped` is set; whatever `confirm`
        raises; and the errors of `calls`, TransientQueueError when no further try can begin by `deadline`, a monotonic
        time: what is not confirmed may be sent.
        """
        pending = list(rows)

        def call() -> None:
            nonlocal pending
            if stopped.is_set():
                raise StoppedError
            if self._clock.monotonic() > deadline:
                raise TransientQueueError(
                    f"{_OPERATION} on '{self._url}' was not made in time: this process stood still."
                )
            entries = [{"Id": str(index), **row.entry} for index, row in enumerate(pending)]
            answer = self._call(_OPERATION, Entries=entries)
            sent = {int(entry["Id"]) for entry in answer.get("Successful", ())}
            tried, pending = pending, [row for index, row in enumerate(pending) if index not in sent]
            if sent:
                confirm([row for index, row in enumerate(tried) if index in sent])
            for failed in answer.get("Failed", ()):
                code = str(failed["Code"])
                error = error_of(_OPERATION, self._url, code, str(failed.get("Message", "")), sender_fault=failed)
                if isinstance(error, QueueRequestError):
                    raise RefusedRow(tried[int(failed["Id"])].row, f"SQS refuses it ({code})")
                if not isinstance(error, TransientQueueError):
                    raise error
            if pending:
                raise TransientQueueError(f"{_OPERATION} on '{self._url}': entries failed until the time was over.")

        try:
            retry_transient(call, clock=self._clock, budget_s=deadline - self._clock.monotonic())
        except QueueRequestError as error:
            if len(pending) == 1:
                raise RefusedRow(pending[0].row, f"SQS refuses it ({error})") from None
            for row in pending:  # it is one of them, and SQS does not tell which
                self.send([row], confirm, stopped=stopped, deadline=deadline)
