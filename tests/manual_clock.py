"""A clock that is turned by hand."""

from __future__ import annotations

import math
import threading


class ManualClock:
    """Time that stands still until `advance`, or a sleep on it, moves it.

    One reading serves as wall clock and as monotonic time. Not for use by several threads.
    """

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._reading = start

    def now(self) -> float:
        return self._reading

    def monotonic(self) -> float:
        return self._reading

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        if not event.is_set():
            self.advance(timeout_s)
        return event.is_set()

    def wait_on(self, changed: threading.Condition, timeout_s: float) -> None:
        self.advance(timeout_s)

    def advance(self, seconds: float) -> None:
        """Move time forward by `seconds`, which must not be negative, nor infinite: nobody would end such a wait."""
        if not 0 <= seconds < math.inf:
            raise ValueError(f"time goes forward, and not for ever: {seconds} s")
        self._reading += seconds
