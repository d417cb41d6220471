"""A table that honours batch ids, for `foreachBatch`: what it has written it does not write again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from tests.spark.support import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = ("messageId", "messageGroupId", "sequenceNumber")


def write_once(table: Path, frame: DataFrame, batch_id: int) -> None:
    """Write a micro-batch unless its id is there, as Delta does; then its rows must be the same ones."""
    path = table / f"batch-{batch_id}"
    rows = frame.select(*COLUMNS)
    if not (path / "_SUCCESS").exists():
        rows.write.mode("overwrite").parquet(str(path))  # an attempt that failed may have left files
        return
    written = sorted(row.message_id for row in _rows(path, batch_id))
    if sorted(row.messageId for row in rows.collect()) != written:
        raise AssertionError(f"batch {batch_id} has other rows than when it was written")


def read_table(table: Path) -> list[Row]:
    """Return all rows in the order of micro-batches, files, and positions in a file."""
    batches = sorted(int(path.name.rpartition("-")[2]) for path in table.iterdir())
    return [row for batch_id in batches for row in _rows(table / f"batch-{batch_id}", batch_id)]


def _rows(path: Path, batch_id: int) -> list[Row]:
    rows = []
    for file in sorted(path.glob("*.parquet")):
        for each in pq.ParquetFile(file).read(columns=list(COLUMNS)).to_pylist():
            message_id, group, number = (each[name] for name in COLUMNS)
            rows.append(Row(batch_id, str(file), message_id, group, int(number)))
    return rows
