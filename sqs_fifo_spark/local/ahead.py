"""A clock that a test sets ahead: it moves the local queue's time, and nobody else's."""

from __future__ import annotations

import threading

from sqs_fifo_spark.clock import Clock

# Some thirty years: with more, the time would soon be none that a date can tell.
_MOST_S = 1e9


class AheadClock:
    """`clock`, later by the sum of all calls to `advance`.

    One thread advances it; any may read it. Waits take as long as they take on `clock`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_s = 0.0

    def advance(self, seconds: float) -> None:
        """Set the clock ahead by `seconds`. Raises ValueError for a negative number, a huge one, or none."""
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= _MOST_S:
            raise ValueError(f"the clock cannot be advanced by {seconds!r}; it takes 0 to {_MOST_S:.0f} seconds")
        self._ahead_s += seconds

    def now(self) -> float:
        return self._clock.now() + self._ahead_s

    def monotonic(self) -> float:
        return self._clock.monotonic() + self._ahead_s

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return self._clock.wait(event, timeout_s)

    def wait_on(self, changed: threading.Condition, timeout_s: float) -> None:
        self._clock.wait_on(changed, timeout_s)
