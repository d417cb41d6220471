"""Arranges rows so that the sink sends each message group in order: a group in one partition, its rows sorted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sqs_fifo_spark.errors import SchemaError, needs_spark

with needs_spark():
    from pyspark.sql import Column, DataFrame
    from pyspark.sql import functions as F
    from pyspark.sql.types import (
        BinaryType,
        BooleanType,
        DateType,
        NumericType,
        StringType,
        TimestampNTZType,
        TimestampType,
    )

_GROUP = "messageGroupId"
_ROWS_AT_ONCE = 10_000
_BYTES_AT_ONCE = 64 << 20
_SORT_DIRECTION = re.compile(r"(?:ASC|DESC) NULLS (?:FIRST|LAST)'>$")
_SORTED_ALIKE = (BooleanType, NumericType, StringType, BinaryType, DateType, TimestampType, TimestampNTZType)
_KEY = "_in_group_order_{}"


def in_group_order(
    df: DataFrame, order_by: str | Column | Sequence[str | Column], *, num_partitions: int | None = None
) -> DataFrame:
    """Return `df` with each message group in one partition, and each partition sorted by `order_by`, nulls first.

    Runs as a part of the query: one shuffle by `messageGroupId`, into `num_partitions`, or as many as Spark chooses.
    Spark itself does not sort a streaming frame. There, Python workers do, for which pandas must be installed; each
    holds a whole partition of the micro-batch, and `order_by` must be ascending. The order is that within a
    micro-batch; from one to the next it is the stream's. Rows that are equal in `order_by` have none.

    Raises SchemaError without any key, and without a column `messageGroupId`: rows that all go to one group need one
    partition, as `df.coalesce(1)` gives it. On a streaming frame, raises it also for a key with a sort direction, or of
    a type by which Arrow sorts differently. A key that is not a column of `df` is Spark's AnalysisException.
    """
    group = next((each for each in df.columns if each.lower() == _GROUP.lower()), None)
    if group is None:
        raise SchemaError(
            f"the rows have no column '{_GROUP}', by which they are put in order. If all go to one group, use "
            "df.coalesce(1) and sort within partitions."
        )
    keys = [order_by] if isinstance(order_by, (str, Column)) else list(order_by)
    if not keys:
        raise SchemaError("'order_by' is empty; name the column, or columns, that rows of a group are sorted by.")
    by_group = df.repartition(group) if num_partitions is None else df.repartition(num_partitions, group)
    if not df.isStreaming:
        return by_group.sortWithinPartitions(*keys)
    # Arrow puts nulls last; before each key stands whether there is one.
    keyed = by_group
    names: list[str] = []
    for key in keys:
        column = F.col(key) if isinstance(key, str) else key
        if _SORT_DIRECTION.search(str(column)):
            raise SchemaError(
                "'order_by' has a sort direction, but in a streaming frame the order is ascending, nulls first. Leave "
                "it out, or call in_group_order inside foreachBatch."
            )
        for value in (column.isNotNull(), column):
            names.append(_KEY.format(len(names)))
            keyed = keyed.withColumn(names[-1], value)

    for name in names:
        kind = keyed.schema[name].dataType
        if not isinstance(kind, _SORTED_ALIKE) or (isinstance(kind, StringType) and kind != StringType()):
            raise SchemaError(
                f"'order_by' has the type {kind.simpleString()}, by which Spark and Arrow sort in different ways. In a "
                "streaming frame, order by numbers, times, strings or binaries, or call in_group_order in foreachBatch."
            )

    def in_order(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return sorted_batches(list(batches), names)

    return keyed.mapInArrow(in_order, keyed.schema).drop(*names)


def sorted_batches(batches: Sequence[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all batches, sorted by the columns `names`, in batches of _BYTES_AT_ONCE, or of one row.

    Runs on an executor. Arrow's own `take` makes one array of all batches first, in which strings end at 2 GiB.
    """
    import numpy as np  # it comes with pandas

    if not batches:
        return
    keys = pa.Table.from_batches(batches).select(names)
    order = pc.sort_indices(keys, [(name, "ascending") for name in names]).to_numpy().astype(np.int64)
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])[:-1]
    row_bytes = np.array([batch.nbytes / max(1, batch.num_rows) for batch in batches])
    slices = [order[at : at + _ROWS_AT_ONCE] for at in range(0, len(order), _ROWS_AT_ONCE)][::-1]
    while slices:
        wanted = slices.pop()
        of_batch = np.searchsorted(starts, wanted, side="right") - 1
        is_large = row_bytes[of_batch].sum() > _BYTES_AT_ONCE
        if len(wanted) == 1 or not is_large:
            found = [
                batches[each].take(pa.array(wanted[of_batch == each] - starts[each])) for each in np.unique(of_batch)
            ]
            is_large = sum(part.nbytes for part in found) > _BYTES_AT_ONCE  # where rows differ much in size
        if is_large and len(wanted) > 1:
            half = len(wanted) // 2
            slices += [wanted[half:], wanted[:half]]
            continue
        place = np.argsort(np.argsort(of_batch, kind="stable"))
        yield from pa.Table.from_batches(found).take(pa.array(place)).combine_chunks().to_batches()
