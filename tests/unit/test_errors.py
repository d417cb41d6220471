"""All errors cross Spark's processes whole, and are one line."""

from __future__ import annotations

import inspect
import pickle

import pytest

from sqs_fifo_spark import errors
from sqs_fifo_spark.errors import SqsFifoError

ALL = [
    found
    for _, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, Exception) and found.__module__ == errors.__name__
]


def test_every_error_is_known_to_this_test() -> None:
    """The list below is not empty by accident."""
    assert {"OptionError", "FencedError", "EpochSettledError", "DataLossError"} <= {found.__name__ for found in ALL}


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_error_survives_pickling(kind: type[SqsFifoError]) -> None:
    """Type, arguments and text are the same on the other side."""
    error = kind("the value 'x' is wrong; use 'y'.")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert copy.args == error.args
    assert str(copy) == str(error) == "the value 'x' is wrong; use 'y'."


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_error_says_what_its_reader_should_know(kind: type[SqsFifoError]) -> None:
    """Each error has a base that catches all of them, and a docstring."""
    assert issubclass(kind, SqsFifoError)
    assert kind.__doc__
