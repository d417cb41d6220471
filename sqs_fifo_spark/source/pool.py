"""Pools of threads, for calls that are made at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

S = TypeVar("S")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Answer(Protocol[T_co]):
    """The part of `Future` that is used."""

    def result(self) -> T_co:
        """Wait until the call is over, and return its result, or raise its error."""


class Pool(Protocol):
    """The part of `ThreadPoolExecutor` that is used."""

    def map(self, call: Callable[[S], T], items: Iterable[S], /) -> Iterable[T]:
        """Return `call`'s result for each item, in order. Raises the error of the first that failed."""

    def submit(self, call: Callable[[], T], /) -> Answer[T]:
        """Begin `call`."""


MakePool = Callable[[str, int], Pool]
"""Makes a pool by its name, for so many calls at once."""


class CallingThread:
    """No threads: the calls are made one after another, by the thread that asks for them."""

    def map(self, call: Callable[[S], T], items: Iterable[S], /) -> Iterable[T]:
        return map(call, items)

    def submit(self, call: Callable[[], T], /) -> Answer[T]:
        future: Future[T] = Future()
        try:
            future.set_result(call())
        except Exception as error:
            future.set_exception(error)
        return future


IN_CALLING_THREAD = CallingThread()


def in_calling_thread(name: str, threads: int) -> Pool:
    """Make no threads."""
    return IN_CALLING_THREAD


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
        for pool in reversed(self._made):  # the driver's own first, whose calls need the queue's
            pool.shutdown(cancel_futures=True)
