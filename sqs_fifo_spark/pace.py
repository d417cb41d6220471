"""The pace of the calls of a source or a sink, where others need the queue, too."""

from __future__ import annotations

import math
import threading

from sqs_fifo_spark.clock import Clock

SLOW_S = 0.1
"""From this time between two calls on, one is over before the next one is made."""

_SOON_S = 1e-6
"""Shorter than any sleep."""


class Pace:
    """Gives calls their turns, so many a second; or all at once. Used by all threads of driver or task."""

    def __init__(self, clock: Clock, per_second: float | None, *, first_in_s: float = 0.0) -> None:
        self._clock = clock
        self._every_s = 0.0 if per_second is None else 1 / per_second
        # Guards `_next` and `_behind`; nobody sleeps while it is held.
        self._lock = threading.Lock()
        self._began = clock.monotonic()
        self._next = self._began + first_in_s
        """Time of the next call, on the monotonic clock."""
        self._behind = 0
        """Number of callers that wait behind all others."""

    @property
    def is_slow(self) -> bool:
        """True if turns are so far apart that a call begun before is not to wait for the next one."""
        return self._every_s >= SLOW_S

    def wait(self, latest: float = math.inf, stopped: threading.Event | None = None) -> bool:
        """Return True when it is the caller's turn; or False at once, without a turn, if that comes after `latest`.

        It returns True, too, once `stopped` is set.
        """
        if not self._every_s:
            return True
        with self._lock:
            turn = max(self._clock.monotonic(), self._next)
            if turn > latest:
                return False
            self._next = turn + self._every_s
        left_s = turn - self._clock.monotonic()
        if left_s > 0 and stopped is not None:
            self._clock.wait(stopped, left_s)
        elif left_s > 0:
            self._clock.sleep(left_s)
        return True

    def wait_behind(self) -> None:
        """Return when nobody else has the turn: it is taken only then, so that calls with a deadline go before.

        Of a thousand idle queues that share a pace, each waits long for its poll, and no delete is to wait for them.
        """
        if not self._every_s:
            return
        with self._lock:
            ahead, self._behind = self._behind, self._behind + 1
        while True:
            with self._lock:
                now = self._clock.monotonic()
                left_s = max(0.0, self._next - now) + ahead * self._every_s
                if left_s < _SOON_S:
                    self._next, self._behind = max(now, self._next) + self._every_s, self._behind - 1
                    return
            self._clock.sleep(left_s)
            ahead = 0

    def rest(self, calls: int) -> None:
        """Return once the time is over that so many calls take: the next caller may begin at once."""
        left_s = self._began + self.needed_s(calls) - self._clock.monotonic()
        if left_s > 0:
            self._clock.sleep(left_s)

    def needed_s(self, calls: int) -> float:
        """Return the seconds for which so many calls wait for each other."""
        return calls * self._every_s
