"""An offset says which plan of an epoch it is; one that this source did not write is refused."""

from __future__ import annotations

from typing import Any

import pytest

from sqs_fifo_spark.errors import DataLossError
from sqs_fifo_spark.options import SOURCE
from sqs_fifo_spark.source.offset import MOST_PARTITIONS, Offset


def test_an_offset_says_which_plan_it_follows() -> None:
    """And of which generation it is."""
    given = Offset("j", 7, 2, 3, after=2, after_epoch=5, generation=2)
    assert Offset.from_json(given.to_json()) == given


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("journal", ["../../x", "", "x" * 65, None, "a\n"]),
        ("epoch", [-1, 10**30, 1.5, "7"]),
        ("partitions", [-1, 10**9, 1e9, MOST_PARTITIONS + 1, None]),
        ("plan", [-1, "1"]),
        ("generation", [-1, None]),
    ],
)
def test_a_forged_offset_is_refused(key: str, values: list[Any]) -> None:
    """No path is made of it, and no thousand million plans."""
    sound = Offset("0123456789abcdef", 7, 4, 3, generation=2).to_json()
    assert Offset.from_json(sound).to_json() == sound
    for value in values:
        with pytest.raises(DataLossError, match="an offset that this source did not write"):
            Offset.from_json({**sound, key: value})


def test_an_offset_of_another_kind_is_refused() -> None:
    """Another source's, or none."""
    values: list[Any] = [7, None, [], "x", {}, {"topic": {"0": 1}}]
    for value in values:
        with pytest.raises(DataLossError):
            Offset.from_json(value)


def test_an_offset_takes_all_partitions_that_the_options_allow() -> None:
    """Else a query could not be started again."""
    (option,) = (option for option in SOURCE.options if option.name == "numPartitions")
    assert option.bounds[1] == MOST_PARTITIONS
