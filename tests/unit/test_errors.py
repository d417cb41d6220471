"""Errors: they cross Spark's processes whole, and leave towards Spark in one line, unless they are faults of ours."""

from __future__ import annotations

import inspect
import pickle
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

import sqs_fifo_spark
from sqs_fifo_spark import errors
from sqs_fifo_spark.boundary import called_by_spark
from sqs_fifo_spark.errors import OptionError, QueueNotFoundError, SqsFifoError

ALL = [
    found
    for _, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, Exception) and found.__module__ == errors.__name__
]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_error_survives_pickling(kind: type[SqsFifoError]) -> None:
    """Type, arguments and text are the same on the other side; it has the base of all, and a docstring."""
    assert issubclass(kind, SqsFifoError)
    assert kind.__doc__
    error = kind("the value 'x' is wrong; use 'y'.")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert copy.args == error.args
    assert str(copy) == str(error) == "the value 'x' is wrong; use 'y'."


def test_every_error_that_a_query_can_stop_with_is_in_the_docs() -> None:
    """One row for each, by name, with what to do; the base of all is named above the table."""
    page = Path(sqs_fifo_spark.__file__).parent / "docs" / "errors.md"
    section = page.read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    names = {f"`{kind.__name__}`" for kind in ALL} - {"`SqsFifoError`"}
    assert [row[0] for row in rows] == sorted(names)
    assert all(len(row) == 4 and all(row) for row in rows)
    assert all(re.match("yes|no", row[2]) for row in rows)
    assert "`SqsFifoError`" in section
    assert {kind.__name__ for kind in ALL} <= set(sqs_fifo_spark.__all__)


# Towards Spark


def deep_inside(error: Exception) -> None:
    try:
        raise OSError("a cause")
    except OSError as cause:
        raise error from cause


class Called:
    @called_by_spark
    def method(self, error: Exception) -> str:
        deep_inside(error)
        return "never"

    @called_by_spark
    def generator(self, error: Exception | None) -> Iterator[int]:
        yield 1
        if error is not None:
            deep_inside(error)
        yield 2

    @called_by_spark
    def fine(self, one: int, *, other: int) -> int:
        """Add."""
        return one + other


@pytest.mark.parametrize("name", ["method", "generator"])
@pytest.mark.parametrize("error", [OptionError("an option"), QueueNotFoundError("a queue")])
def test_our_errors_come_without_cause_and_frames(name: str, error: SqsFifoError) -> None:
    """The same error, of the same class, which Spark shows with its own frames only."""
    with pytest.raises(type(error)) as raised:
        list(getattr(Called(), name)(error) or ())
    assert raised.value is error
    shown = "".join(traceback.format_exception(error))
    assert "a cause" not in shown
    assert "deep_inside" not in shown
    assert not error.__cause__


def test_a_fault_keeps_its_traceback() -> None:
    """Its frames are all that tells where it is."""
    with pytest.raises(ValueError, match="a fault") as raised:
        Called().method(ValueError("a fault"))
    shown = "".join(traceback.format_exception(raised.value))
    assert "a cause" in shown
    assert "deep_inside" in shown


def test_what_is_returned_or_yielded_is_left_as_it_is() -> None:
    """So is what a function says of itself."""
    assert Called().fine(1, other=2) == 3
    assert list(Called().generator(None)) == [1, 2]
    assert Called.fine.__doc__ == "Add."
