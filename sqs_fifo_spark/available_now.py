"""When a query with `trigger(availableNow=True)` has served what waited at its beginning, and may end."""

from __future__ import annotations

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.epoch import Epoch
from sqs_fifo_spark.queue import Queue
from sqs_fifo_spark.verdict import Verdict

WAIT_S = 2
"""How long it looks for more: any long poll asks all of SQS's servers."""


class AvailableNow:
    """What waited when the trigger began. Built on the driver, with three calls to the queue."""

    def __init__(self, queue: Queue, clock: Clock, *, visibility_timeout_s: int) -> None:
        self._queue = queue
        self._clock = clock
        self._until_ms = queue.time_ms() + 1_000  # SQS tells its time in whole seconds
        in_flight = queue.approximate_in_flight()
        self._still_to_serve = queue.approximate_messages() + in_flight
        # A run that crashed, and is started again at once, has left messages in flight that nobody renews.
        self._all_lapsed_at = clock.monotonic() + (visibility_timeout_s if in_flight else 0)

    def may_end_with(self, epoch: Epoch, verdict: Verdict) -> bool:
        """Whether the closed `epoch` is the last one: it served only what was sent after the trigger began.

        SQS hands out the oldest messages first, but promises no order between groups. So as many messages as the queue
        had at the beginning must have been served, too, and what was in flight then must have been there to be had. To
        be asked once for each epoch.
        """
        if not verdict.served:
            return False
        if epoch.plans is not None:  # else the run before has served it
            self._still_to_serve -= len(verdict.served)
        all_are_new = all(receipt.sent_at_ms > self._until_ms for receipt in verdict.served.values())
        nothing_is_left = not verdict.carried and not epoch.unread() and self._still_to_serve <= 0
        return all_are_new and nothing_is_left and epoch.opened_at >= self._all_lapsed_at

    def may_end_empty(self) -> bool:
        """Whether a query that holds nothing, and finds nothing, is done: nothing can lapse that was held before."""
        return self._clock.monotonic() >= self._all_lapsed_at or not self._queue.approximate_in_flight()
