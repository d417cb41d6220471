"""Each micro-batch is written once by its batch id, or refused where it cannot be the next one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sqs_fifo_spark import DataLossError, UnsupportedWriteError, once
from sqs_fifo_spark.batch_ids import Batch


class Changed(Exception):
    """Another writer was first."""


class Frame:
    """Rows of a micro-batch, in a session that may say which query it is of."""

    def __init__(self, rows: str = "rows", *, query: str | None = "q1", has_context: bool = True) -> None:
        self.rows = rows
        context = SimpleNamespace(getLocalProperty=lambda name: query if name == "sql.streaming.queryId" else None)
        self.sparkSession = SimpleNamespace(**({"sparkContext": context} if has_context else {}))


class Table:
    """Takes rows and a batch id at once, from who has loaded it as it is."""

    def __init__(self, **last: int) -> None:
        self.version, self.last = 0, dict(last)
        self.written: list[tuple[str, str, int]] = []
        self.failures: list[Exception] = []
        self.loads = 0

    def load(self, batch: Batch) -> tuple[int, int | None]:
        self.loads += 1
        return self.version, self.last.get(batch.query)

    def write(self, df: Any, batch: Batch, loaded: int) -> None:
        if self.failures:
            raise self.failures.pop(0)
        if loaded != self.version:
            raise Changed
        self.version += 1
        self.last[batch.query] = batch.id
        self.written.append((df.rows, *batch))

    def once(self, **given: Any) -> Any:
        return once(self.load, self.write, **given)


@pytest.fixture
def table() -> Table:
    return Table()


def test_a_micro_batch_that_comes_again_is_not_written_again(table: Table) -> None:
    write = table.once()
    for batch_id in (0, 0, 1, 1, 1, 2):
        write(Frame(f"rows of {batch_id}"), batch_id)
    assert table.written == [("rows of 0", "q1", 0), ("rows of 1", "q1", 1), ("rows of 2", "q1", 2)]


def test_a_write_whose_answer_was_lost_is_found_by_the_next_run(table: Table) -> None:
    def write_without_answer(df: Any, batch: Batch, loaded: int) -> None:
        table.write(df, batch, loaded)
        raise TimeoutError

    write: Any = once(table.load, write_without_answer)
    with pytest.raises(TimeoutError):
        write(Frame(), 0)
    write = once(table.load, write_without_answer, changed=TimeoutError)
    for batch_id in (0, 1):
        write(Frame(), batch_id)
    assert table.written == [("rows", "q1", 0), ("rows", "q1", 1)]


def test_the_same_batch_id_of_another_query_is_another_micro_batch(table: Table) -> None:
    """So a second query, and the same one with a new checkpoint, lose nothing to the first one's record."""
    for query in ("q1", "q2"):
        for _ in range(2):
            table.once()(Frame(query, query=query), 0)
    assert table.written == [("q1", "q1", 0), ("q2", "q2", 0)]


@pytest.mark.parametrize("frame", [Frame(query=None), Frame(has_context=False)])
def test_a_query_that_spark_does_not_name_must_be_named(table: Table, frame: Frame) -> None:
    """Outside `foreachBatch`, or on Spark Connect."""
    with pytest.raises(UnsupportedWriteError, match=r"give once\(\.\.\., query=\.\.\.\), a name that no other query"):
        table.once()(frame, 0)
    assert table.loads == 0
    table.once(query="bids")(frame, 0)
    assert table.written == [("rows", "bids", 0)]


@pytest.mark.parametrize(("last", "batch_id"), [(4, 3), (4, 0), (4, 6), (0, 2)])
def test_a_micro_batch_out_of_turn_is_refused(last: int, batch_id: int) -> None:
    """It would be left out, as if the table had it, or leave out one that the table has not."""
    table = Table(q1=last)
    with pytest.raises(DataLossError, match=rf"micro-batch {batch_id} of the query q1 does not follow {last}, "):
        table.once()(Frame(), batch_id)
    assert not table.written


def test_a_table_without_a_batch_id_begins_with_the_first_one() -> None:
    """So a table whose record is lost is not taken for a new one."""
    told = r"no batch id of the query q1, and this is 7, not 0: .+ give once\(\.\.\., first=7\)"
    with pytest.raises(DataLossError, match=told):
        Table(q2=6).once()(Frame(), 7)
    table = Table()
    for batch_id in (7, 8):
        table.once(first=7)(Frame(), batch_id)
    assert table.written == [("rows", "q1", 7), ("rows", "q1", 8)]
    with pytest.raises(DataLossError, match="this is 9, not 7"):
        Table().once(first=7)(Frame(), 9)


def test_a_change_is_looked_at_anew(table: Table) -> None:
    """With another writer's rows the write is tried again; with its own batch id there is nothing left to do."""
    table.failures = [Changed(), Changed()]
    table.once(changed=Changed)(Frame(), 0)
    assert (table.written, table.loads) == ([("rows", "q1", 0)], 3)

    def write_behind_another_driver(df: Any, batch: Batch, loaded: int) -> None:
        table.write(Frame("the other driver's rows"), batch, loaded)
        table.write(df, batch, loaded)

    write: Any = once(table.load, write_behind_another_driver, changed=Changed)
    write(Frame(), 1)
    assert table.written[1:] == [("the other driver's rows", "q1", 1)]


def test_what_is_no_change_is_not_tried_again(table: Table) -> None:
    """Nor is a change for ever."""
    table.failures = [TimeoutError()]
    with pytest.raises(TimeoutError):
        table.once(changed=Changed)(Frame(), 0)
    assert table.loads == 1
    table.failures = [Changed() for _ in range(5)]
    with pytest.raises(Changed):
        table.once(changed=(Changed, KeyError))(Frame(), 0)
    assert (table.loads, table.failures, table.written) == (6, [], [])
