"""Writes each micro-batch once into a table that takes its batch id and its rows in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from sqs_fifo_spark.errors import DataLossError, UnsupportedWriteError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Table = TypeVar("Table")

_QUERY = "sql.streaming.queryId"
_TRIES = 5
_LONGEST_PAUSE_S = 2.0


class Batch(NamedTuple):
    """The name of a micro-batch: no other has the same two, in any query, however often it runs."""

    query: str
    """The id of the query, which its checkpoint keeps: a new checkpoint makes another query of it."""
    id: int
    """Spark's batch id, which rises by one from micro-batch to micro-batch."""


def once(
    load: Callable[[Batch], tuple[Table, int | None]],
    write: Callable[[DataFrame, Batch, Table], None],
    *,
    query: str | None = None,
    first: int = 0,
    changed: type[Exception] | tuple[type[Exception], ...] = (),
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that writes each micro-batch once, however often Spark runs it.

    Runs on the driver. `load(batch)` returns the table as it stands, and the last batch id that it has of the query
    `batch.query`, or None. `write(df, batch, table)` commits the rows and `batch.id`, as the last one of that query, in
    one transaction on that same state of the table. It must fail if the query's last batch id is another one by then:
    a driver that stood still may come back and write, too. What it raises ends the query, which looks at the table when
    it starts again; after errors of the types `changed` this is done at once, at most 5 times in all.

    `query` stands for the query's id where Spark does not tell it: on Spark Connect, and outside `foreachBatch`. No
    other query, and no other checkpoint, may write to the table under that name. `first` is the batch id with which a
    table begins that has none of this query: another than 0 for a query that has run before.

    Raises DataLossError, and writes nothing, for a batch id that does not follow the table's last one: the table's
    record was lost, or went back. Raises UnsupportedWriteError where the query's id is not known.
    """

    def write_once(df: DataFrame, batch_id: int) -> None:
        batch = Batch(query or _query_of(df), batch_id)
        for attempt in Retrying(
            retry=retry_if_exception_type(changed),
            stop=stop_after_attempt(_TRIES),
            wait=wait_random_exponential(multiplier=0.1, max=_LONGEST_PAUSE_S),
            reraise=True,
        ):
            with attempt:
                table, last = load(batch)
                if last == batch_id:
                    return
                if batch_id != (first if last is None else last + 1):
                    raise _out_of_turn(batch, last, first)
                write(df, batch, table)

    return write_once


def _query_of(df: DataFrame) -> str:
    # Spark Connect's session has no such context.
    context = getattr(df.sparkSession, "sparkContext", None)
    found: str | None = context and context.getLocalProperty(_QUERY)
    if not found:
        raise UnsupportedWriteError(
            "Spark does not say which query this micro-batch is of: on Spark Connect, and outside foreachBatch, give "
            "once(..., query=...), a name that no other query and no other checkpoint has in this table."
        )
    return found


def _out_of_turn(batch: Batch, last: int | None, first: int) -> DataLossError:
    if last is None:
        return DataLossError(
            f"the table has no batch id of the query {batch.query}, and this is {batch.id}, not {first}: if it is new "
            f"to a query that has run before, give once(..., first={batch.id}); else its record was lost, so find out "
            "which rows it has."
        )
    return DataLossError(
        f"micro-batch {batch.id} of the query {batch.query} does not follow {last}, the last one that the table has: "
        "one of them, checkpoint or table, was brought back to an earlier state. Find out which rows the table has, "
        "then give the query a new checkpoint."
    )
