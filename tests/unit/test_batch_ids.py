"""Each micro-batch is written once by its batch id, or refused where it cannot be the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from sqs_fifo_spark import DataLossError, once

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame


class Conflict(Exception):
    """Another writer was first."""


class Table:
    """Takes rows and a batch id at once, from who has loaded it as it is."""

    def __init__(self, last: int | None = None) -> None:
        self.version, self.last = 0, last
        self.batches: list[tuple[str, int]] = []
        self.failures: list[Exception] = []
        self.loads = 0

    def load(self) -> tuple[int, int | None]:
        self.loads += 1
        return self.version, self.last

    def write(self, df: DataFrame, batch_id: int, loaded: int) -> None:
        if self.failures:
            raise self.failures.pop(0)
        if loaded != self.version:
            raise Conflict
        self.version, self.last = self.version + 1, batch_id
        self.batches.append((cast("str", df), batch_id))

    def once(self, **given: Any) -> Callable[[str, int], None]:
        """Frames stand for themselves here: `once` only hands them on."""
        return cast("Callable[[str, int], None]", once(self.load, self.write, **given))


@pytest.fixture
def table() -> Table:
    return Table()


def test_a_micro_batch_that_comes_again_is_not_written_again(table: Table) -> None:
    write = table.once()
    for batch_id in (0, 0, 1, 1, 1, 2):
        write(f"rows of {batch_id}", batch_id)
    assert table.batches == [("rows of 0", 0), ("rows of 1", 1), ("rows of 2", 2)]


def test_a_write_whose_answer_was_lost_is_found_by_the_next_run(table: Table) -> None:
    def write_without_answer(df: DataFrame, batch_id: int, loaded: int) -> None:
        table.write(df, batch_id, loaded)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        once(table.load, write_without_answer)(cast("DataFrame", "rows"), 0)
    table.once()("rows", 0)
    assert table.batches == [("rows", 0)]


@pytest.mark.parametrize(("last", "batch_id"), [(4, 3), (4, 0), (4, 6), (0, 2)])
def test_a_micro_batch_out_of_turn_is_refused(last: int, batch_id: int) -> None:
    """It would be left out, as if the table had it, or leave out one that the table has not."""
    table = Table(last)
    with pytest.raises(DataLossError, match=rf"micro-batch {batch_id} does not follow {last}, .+ a new name in the ta"):
        table.once()("rows", batch_id)
    assert not table.batches


def test_a_table_without_a_batch_id_begins_with_the_first_one() -> None:
    """So a table whose record is lost is not taken for a new one."""
    with pytest.raises(DataLossError, match=r"no batch id yet, and this is 7, not 0: .+ give once\(\.\.\., first=7\)"):
        Table().once()("rows", 7)
    table = Table()
    for batch_id in (7, 8):
        table.once(first=7)("rows", batch_id)
    assert table.batches == [("rows", 7), ("rows", 8)]
    with pytest.raises(DataLossError, match="this is 9, not 7"):
        Table().once(first=7)("rows", 9)


def test_a_driver_that_stood_still_writes_nothing(table: Table) -> None:
    """It had loaded the table before another driver wrote this micro-batch, and the next one."""
    loaded = table.load()
    for batch_id in (0, 1):
        table.once()("rows", batch_id)
    late = once(lambda: loaded, table.write)
    with pytest.raises(Conflict):
        late(cast("DataFrame", "rows"), 0)
    assert table.batches == [("rows", 0), ("rows", 1)]


def test_a_conflict_is_looked_at_anew(table: Table) -> None:
    """With another writer's rows the write is tried again; with its own batch id there is nothing left to do."""
    table.failures = [Conflict(), Conflict()]
    table.once(conflicts=Conflict)("rows", 0)
    assert (table.batches, table.loads) == ([("rows", 0)], 3)

    def write_behind_another(df: DataFrame, batch_id: int, loaded: int) -> None:
        table.write(cast("DataFrame", "the other's rows"), batch_id, loaded)
        table.write(df, batch_id, loaded)

    once(table.load, write_behind_another, conflicts=Conflict)(cast("DataFrame", "rows"), 1)
    assert table.batches[1:] == [("the other's rows", 1)]


def test_what_is_no_conflict_is_not_tried_again(table: Table) -> None:
    """Nor is a conflict for ever."""
    table.failures = [TimeoutError()]
    with pytest.raises(TimeoutError):
        table.once(conflicts=Conflict)("rows", 0)
    assert table.loads == 1
    table.failures = [Conflict() for _ in range(5)]
    with pytest.raises(Conflict):
        table.once(conflicts=(Conflict, KeyError))("rows", 0)
    assert (table.loads, table.failures, table.batches) == (6, [], [])
