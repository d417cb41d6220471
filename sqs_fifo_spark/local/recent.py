"""A queue's memory of deduplication ids, and of receives that may be repeated, each for a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values under keys, each until its own time. Holds nothing longer than that."""

    def __init__(self) -> None:
        self._values: dict[K, tuple[float, V]] = {}
        # In the order of `until`: all values of one memory are kept equally long.
        self._to_forget: deque[tuple[float, K]] = deque()

    def get(self, key: K) -> V | None:
        found = self._values.get(key)
        return None if found is None else found[1]

    def remember(self, key: K, value: V, until: float) -> None:
        """Keep `value` under `key` until `until`, in place of the old one. No call names an earlier time."""
        self._values[key] = until, value
        self._to_forget.append((until, key))

    def forget(self, now: float) -> None:
        """Drop values that were to be kept until `now` or earlier."""
        while self._to_forget and self._to_forget[0][0] <= now:
            until, key = self._to_forget.popleft()
            # Another time there means that the key was used anew since.
            if key in self._values and self._values[key][0] == until:
                del self._values[key]

    def clear(self) -> None:
        self._values.clear()
        self._to_forget.clear()
