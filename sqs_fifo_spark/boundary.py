"""The package's boundary to Spark: an error of ours leaves it as one line, without the frames that led to it.

Spark shows the user the traceback of any error of its Python processes, with all causes, and some of it twice. Our
errors name the remedy, and their frames are of no use there.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from sqs_fifo_spark.errors import SqsFifoError

F = TypeVar("F", bound=Callable[..., Any])


def called_by_spark(function: F) -> F:
    """Let a function that Spark calls, or a generator that it reads, raise our errors without cause and frames.

    Any other error is a fault of this package, and keeps its traceback.
    """

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except SqsFifoError as error:
            raise error.with_traceback(None) from None

    @functools.wraps(function)
    def generate(*given: Any, **named: Any) -> Any:
        try:
            yield from function(*given, **named)
        except SqsFifoError as error:
            raise error.with_traceback(None) from None

    return generate if inspect.isgeneratorfunction(function) else call  # type: ignore[return-value]
