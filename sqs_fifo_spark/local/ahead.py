"""A clock that a test sets ahead: it moves the local queue's time, and nobody else's."""

from __future__ import annotations

from sqs_fifo_spark.clock import Clock, SystemClock

# Some thirty years: with more, the time would soon be none that a date can tell.
_MOST_S = 1e9


class AheadClock(SystemClock):
    """`clock`, later by the sum of all calls to `advance`; but nobody waits on it.

    One thread advances it; any may read it.
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
