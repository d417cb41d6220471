"""Calls of commands that may have no answer for long: they are reported, given up, and keep no command from ending."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import click

from sqs_fifo_spark.aws.calls import NOTICE_AFTER_S

T = TypeVar("T")


class NoAnswerError(Exception):
    """A call was not over in time. It may have its effect all the same."""


def begin(call: Callable[[], T]) -> Future[T]:
    """Begin `call` in a thread of its own, and return its future. If it is not over when the process ends, so be it."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def is_over(future: Future[T], within_s: float) -> bool:
    """Return whether the call is over, as soon as it is, or else after `within_s`."""
    return bool(concurrent.futures.wait([future], within_s).done)


def answer(call: Callable[[], T], whose: str, budget_s: float) -> T:
    """Return `call()`, given up after `budget_s`; until then, the standard error says whose answer is waited for.

    Raises NoAnswerError, and the errors of `call`.
    """
    future = begin(call)
    if not is_over(future, min(NOTICE_AFTER_S, budget_s)):
        left_s = budget_s - NOTICE_AFTER_S
        if left_s > 0:
            click.echo(f"waiting for an answer of {whose}, for up to {left_s:.0f} s more ...", err=True)
        if not is_over(future, max(0.0, left_s)):
            raise NoAnswerError
    return future.result()
