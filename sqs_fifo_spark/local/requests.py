"""The log of the local queue's requests, for tests that count calls."""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass

HISTORY = 10_000


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request that was dealt with.

    `at` is the server's wall-clock time in seconds then; `entries` the number of messages that a receive returned, of
    entries of a batch, else 1. `outcome` is "ok", the error's code, "reset" (no effect), "dropped" (effect, but no
    answer) or "gone" (the client left while it waited; no effect).
    """

    at: float
    action: str
    entries: int
    outcome: str


class RequestLog:
    """Counts per action since the start, and the last 10,000 requests. For use by any thread."""

    def __init__(self) -> None:
        # Guards _counts and _recent.
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._recent: deque[RequestRecord] = deque(maxlen=HISTORY)

    def add(self, record: RequestRecord) -> None:
        """Count `record` and remember it until 10,000 more have come."""
        with self._lock:
            self._counts[record.action] += 1
            self._recent.append(record)

    def counts(self) -> dict[str, int]:
        """Numbers of requests, by action."""
        with self._lock:
            return dict(self._counts)

    def recent(self, action: str | None = None) -> list[RequestRecord]:
        """The last requests, oldest first; only those for `action` if it is given."""
        with self._lock:
            return [record for record in self._recent if action is None or record.action == action]

    def clear(self) -> None:
        """Forget all requests so far."""
        with self._lock:
            self._counts.clear()
            self._recent.clear()
