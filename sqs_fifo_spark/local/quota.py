"""SQS's quota on calls, so many a second for each API action and queue: over it, a call is refused as throttled."""

from __future__ import annotations

_ALMOST = 1 - 1e-3
"""Of a call, which is enough: a second on the clock may come out a little shorter."""


class Quota:
    """Admits calls up to a rate, and at most those of one second at once. Not for use by several threads.

    It depends on nothing but the times that it is given, so it refuses the same calls each time.
    """

    def __init__(self, per_second: int | None) -> None:
        self._per_second = per_second
        self._left: dict[tuple[str, str], tuple[float, float]] = {}
        """Calls of an action on a queue that were left, and the monotonic time of that."""

    def admits(self, action: str, queue: str, now: float) -> bool:
        """Return whether the quota has room for this call, and count it if so. One that is refused costs nothing."""
        if self._per_second is None:
            return True
        left, since = self._left.get((action, queue), (self._per_second, now))
        left = min(self._per_second, left + (now - since) * self._per_second)
        is_admitted = left >= _ALMOST
        self._left[action, queue] = max(0.0, left - 1) if is_admitted else left, now
        return is_admitted
