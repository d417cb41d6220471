"""Rows of a partition in order, however many bytes they have."""

from __future__ import annotations

import itertools
import random

import pyarrow as pa
import pytest

from sqs_fifo_spark import ordering


def batch(bodies: pa.Array, keys: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([bodies, pa.array(keys, pa.int64())], ["body", "key"])


@pytest.mark.parametrize(("rows_at_once", "bytes_at_once"), [(10_000, 64 << 20), (7, 64 << 20), (10_000, 100), (1, 1)])
def test_all_rows_come_once_in_order(monkeypatch: pytest.MonkeyPatch, rows_at_once: int, bytes_at_once: int) -> None:
    """From batches of any size, empty ones too; rows of one key stay as they are."""
    monkeypatch.setattr(ordering, "_ROWS_AT_ONCE", rows_at_once)
    monkeypatch.setattr(ordering, "_BYTES_AT_ONCE", bytes_at_once)
    dice = random.Random(1)
    keys = [dice.randrange(30) for _ in range(200)]
    cuts = [0, 0, 1, 50, 50, 120, 200]
    batches = [
        batch(pa.array([f"{row} {'x' * (row % 9)}" for row in range(start, end)], pa.string()), keys[start:end])
        for start, end in itertools.pairwise(cuts)
    ]
    made = list(ordering.sorted_batches(batches, ["key"]))
    assert max(each.num_rows for each in made) <= rows_at_once
    found = [(row["key"], int(row["body"].split()[0])) for each in made for row in each.to_pylist()]
    assert found == sorted((key, number) for number, key in enumerate(keys))
    assert {each.schema for each in made} == {batches[0].schema}
    assert list(ordering.sorted_batches([], ["key"])) == []


def test_rows_that_differ_much_in_size_are_cut_where_they_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside many small ones in their batch."""
    monkeypatch.setattr(ordering, "_BYTES_AT_ONCE", 1_000)
    bodies = pa.array(["x" * (900 if number < 3 else 1) for number in range(200)])
    made = list(ordering.sorted_batches([batch(bodies, list(range(200)))], ["key"]))
    assert [row["body"] for each in made for row in each.to_pylist()] == bodies.to_pylist()
    assert max(each.nbytes for each in made) <= 1_000


@pytest.mark.slow
def test_a_partition_of_more_than_2_gib_is_sorted() -> None:
    """Its bodies stand in one mebibyte of memory here, which 2,100 batches have in common."""
    body, count = pa.array(["x" * (1 << 20)]), 2_100
    batches = [batch(body, [number]) for number in reversed(range(count))]
    assert sum(each.nbytes for each in batches) > 1 << 31
    seen: list[int] = []
    for made in ordering.sorted_batches(batches, ["key"]):
        assert made.nbytes <= 64 << 20
        seen += made.column("key").to_pylist()
    assert seen == list(range(count))
