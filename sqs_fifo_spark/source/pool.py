"""Pools of threads, for calls that are made at once. Only the driver has any."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

S = TypeVar("S")
T = TypeVar("T")


class Pool(Protocol):
    """What is used of `ThreadPoolExecutor`."""

    def map(self, call: Callable[[S], T], items: Iterable[S], /) -> Iterable[T]:
        """Return `call`'s result for each item, in order. Raises the error of the first that failed."""


MakePool = Callable[[str, int], Pool]
"""Makes a pool by its name, for so many calls at once."""


class CallingThread:
    """No threads: the calls are made one after another, by whoever asks for them."""

    def map(self, call: Callable[[S], T], items: Iterable[S], /) -> Iterable[T]:
        return map(call, items)


def in_calling_thread(name: str, threads: int) -> Pool:
    """Make no threads, as in tasks, which Spark runs at once by itself."""
    return CallingThread()


class Pools:
    """The pools of one driver, which end together."""

    def __init__(self) -> None:
        self._made: list[ThreadPoolExecutor] = []

    def make(self, name: str, threads: int) -> Pool:
        """Return a new pool. Its threads start with the calls that need them."""
        self._made.append(ThreadPoolExecutor(threads, thread_name_prefix=f"sqs-fifo-{name}"))
        return self._made[-1]

    def close(self) -> None:
        """End all threads: calls under way are waited for, those behind them are not made."""
        for pool in self._made:
            pool.shutdown(cancel_futures=True)
