"""Writes each micro-batch once into a table that takes its batch id and its rows in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from sqs_fifo_spark.errors import DataLossError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Table = TypeVar("Table")

_TRIES = 5
_LONGEST_PAUSE_S = 2.0


def once(
    load: Callable[[], tuple[Table, int | None]],
    write: Callable[[DataFrame, int, Table], None],
    *,
    first: int = 0,
    conflicts: type[Exception] | tuple[type[Exception], ...] = (),
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that writes each micro-batch once, however often Spark runs it.

    Runs on the driver. `load()` returns the table as it stands, and the batch id that it has committed last, or None.
    `write(df, batch_id, table)` commits the rows and the batch id in one transaction on that same state, and must fail
    if another driver has committed a batch id since: one that stood still may come back and write too. What it raises
    ends the query, which finds out at its next start; errors of the types `conflicts` mean that nothing was committed,
    because another writer came first, so that `load` and `write` are called again, at most 5 times in all.

    Batch ids rise by one. Raises DataLossError, and writes nothing, if this one does not follow the table's last: a
    checkpoint was lost or exchanged, or the table has lost its record. `first` is the batch id with which a table
    without one begins, for a query that has run before.
    """

    def write_once(df: DataFrame, batch_id: int) -> None:
        for attempt in Retrying(
            retry=retry_if_exception_type(conflicts),
            stop=stop_after_attempt(_TRIES),
            wait=wait_random_exponential(multiplier=0.1, max=_LONGEST_PAUSE_S),
            reraise=True,
        ):
            with attempt:
                table, last = load()
                if last == batch_id:
                    return
                if batch_id != (first if last is None else last + 1):
                    raise _out_of_turn(batch_id, last, first)
                write(df, batch_id, table)

    return write_once


def _out_of_turn(batch_id: int, last: int | None, first: int) -> DataLossError:
    if last is None:
        return DataLossError(
            f"the table has no batch id yet, and this is {batch_id}, not {first}: if it is new to a query that has run "
            f"before, give once(..., first={batch_id}); else its record was lost, so find out which rows it has."
        )
    return DataLossError(
        f"micro-batch {batch_id} does not follow {last}, the last one that the table has: the query has another "
        "checkpoint than before, or another query writes under its name. Give it its checkpoint back, or, with a new "
        "one, a new name in the table."
    )
