"""The only place that asks the time or sleeps.

Everything else is handed a `Clock`, so that a test, or a simulation, can turn time by hand.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """The time, as the rest of the package knows it. All durations are seconds."""

    def now(self) -> float:
        """The wall-clock time, in seconds since the Unix epoch."""

    def monotonic(self) -> float:
        """A reading that never runs backwards; only differences mean anything."""

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Return True as soon as `event` is set, or False after `timeout_s`."""

    def wait_on(self, changed: threading.Condition, timeout_s: float) -> None:
        """Return when `changed`, which is held, is notified, or after `timeout_s`, perhaps infinite; or earlier."""


# Linux's plain one stands still while the machine is suspended, when SQS's does not.
_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The machine's own time."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.clock_gettime(_MONOTONIC)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return event.wait(timeout_s)

    def wait_on(self, changed: threading.Condition, timeout_s: float) -> None:
        # Its own time stands still while the machine is suspended: the caller looks at the clock again each second.
        changed.wait(min(timeout_s, 1.0))


SYSTEM_CLOCK = SystemClock()
