"""A queue's memory of deduplication ids, and of receives that may be repeated, each for a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values under keys, each until its own time. Holds nothing longer than that."""

    def __init__(self) -> None:
        # In the order of `until`: all values of one memory are kept equally long.
        self._values: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        found = self._values.get(key)
        return None if found is None else found[1]

    def remember(self, key: K, value: V, until: float) -> None:
        """Keep `value` under `key` until `until`, in place of the old one. No call names an earlier time."""
        self._values[key] = until, value
        self._values.move_to_end(key)

    def forget(self, now: float) -> None:
        """Drop values that were to be kept until `now` or earlier."""
        while self._values and next(iter(self._values.values()))[0] <= now:
            self._values.popitem(last=False)

    def clear(self) -> None:
        self._values.clear()
