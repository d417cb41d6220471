"""The pace of a query's calls, where a queue has other consumers, too."""

from __future__ import annotations

import threading

from sqs_fifo_spark.clock import Clock


class Pace:
    """Lets calls go one after the other, so many a second; or all at once. Used by all threads of driver or task."""

    def __init__(self, clock: Clock, per_second: float | None) -> None:
        self._clock = clock
        self._every_s = 0.0 if per_second is None else 1 / per_second
        # Guards `_next`; nobody sleeps while it is held.
        self._lock = threading.Lock()
        self._next = 0.0
        """When the next call may go, on the monotonic clock."""

    def wait(self) -> None:
        """Return when it is the caller's turn to make a call."""
        left_s = self.count()
        if left_s > 0:
            self._clock.sleep(left_s)

    def count(self) -> float:
        """Count a call, and return how long it has to wait for its turn: one that cannot wait delays those after it."""
        if not self._every_s:
            return 0.0
        with self._lock:
            now = self._clock.monotonic()
            turn = max(now, self._next)
            self._next = turn + self._every_s
            return turn - now

    def needed_s(self, calls: int) -> float:
        """Return how long so many calls wait for each other."""
        return calls * self._every_s
