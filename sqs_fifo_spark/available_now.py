"""When a query with `trigger(availableNow=True)` has served what waited at its beginning, and may end."""

from __future__ import annotations

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.epoch import Epoch
from sqs_fifo_spark.queue import Queue
from sqs_fifo_spark.verdict import Verdict

WAIT_S = 2
"""How long it looks for more: any long poll asks all of SQS's servers."""


class AvailableNow:
    """What waited when the trigger began. Built on the driver, with three calls to the queue.

    Messages that somebody holds show again within one visibility timeout: those of a run that crashed before, and those
    that an attempt of this run received before it died. Nobody renews them.
    """

    def __init__(self, queue: Queue, clock: Clock, *, visibility_timeout_s: int) -> None:
        self._queue = queue
        self._clock = clock
        self._visibility_timeout_s = visibility_timeout_s
        self._until_ms = queue.time_ms() + 1_000  # SQS tells its time in whole seconds
        in_flight = queue.approximate_in_flight()
        self._old_to_serve = queue.approximate_messages() + in_flight
        # By when has lapsed what was held at the beginning, what was held when an old message was served last, and
        # what was held when any tasks ran last.
        self._first_lapse_at = clock.monotonic() + (visibility_timeout_s if in_flight else 0)
        self._old_lapse_at = self._any_lapse_at = self._first_lapse_at

    def may_end_with(self, epoch: Epoch, verdict: Verdict) -> bool:
        """Whether the closed `epoch` is the last one: it served only what was sent after the trigger began.

        SQS hands out the oldest messages first, but promises no order between groups, and others may have taken some
        of the old ones. So all of them must have been served, or one visibility timeout must have passed without any.
        To be asked once for each epoch.
        """
        old = sum(receipt.sent_at_ms <= self._until_ms for receipt in verdict.served.values())
        if epoch.plans is not None:  # else the run before has served it
            self._old_to_serve -= old
            self._any_lapse_at = self._clock.monotonic() + self._visibility_timeout_s
            if old:
                self._old_lapse_at = self._any_lapse_at
        if old or not verdict.served or verdict.carried or epoch.unread():
            return False
        is_all_served = self._old_to_serve <= 0 and epoch.opened_at >= self._first_lapse_at
        return is_all_served or epoch.opened_at >= self._old_lapse_at

    def may_end_empty(self, asked_at: float) -> bool:
        """Whether a query that holds nothing is done, as a poll that began at `asked_at` found nothing.

        It is, if the queue says that it is empty, or if all that a dead attempt held had lapsed by then.
        """
        if asked_at >= self._any_lapse_at:
            return True
        return not (self._queue.approximate_in_flight() or self._queue.approximate_messages())
