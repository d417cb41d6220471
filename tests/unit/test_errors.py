"""All errors cross Spark's processes whole, and are one line."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import pytest

import sqs_fifo_spark
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


def test_every_error_that_a_query_can_stop_with_is_in_the_docs() -> None:
    """One row for each, by name, with what to do; the base of all is named above the table."""
    page = Path(sqs_fifo_spark.__file__).parent / "docs" / "operate.md"
    section = page.read_text(encoding="utf-8").partition("### A query stops with an error\n")[2].partition("\n###")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    names = {f"`{kind.__name__}`" for kind in ALL} - {"`SqsFifoError`"}
    assert [row[0] for row in rows] == sorted(names)
    assert all(len(row) == 4 and all(row) for row in rows)
    assert all(re.match("yes|no", row[2]) for row in rows)
    assert "`SqsFifoError`" in section
    assert {kind.__name__ for kind in ALL} <= set(sqs_fifo_spark.__all__)
