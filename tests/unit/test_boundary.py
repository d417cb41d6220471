"""What leaves this package towards Spark: one line of ours, or the whole traceback of a fault."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import pytest

from sqs_fifo_spark.boundary import called_by_spark
from sqs_fifo_spark.errors import OptionError, QueueNotFoundError, SqsFifoError


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
