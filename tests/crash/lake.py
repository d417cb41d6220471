"""Tables of Delta and Iceberg, written by `once` as docs/tables.md says, and read by the audit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql.functions import lit, spark_partition_id

from sqs_fifo_spark import once
from sqs_fifo_spark.batch_ids import Batch
from tests.crash.traps import Traps
from tests.spark.support import Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

_SCHEMA = pa.schema(
    [
        ("messageId", pa.string()),
        ("messageGroupId", pa.string()),
        ("sequenceNumber", pa.string()),
        ("queueUrl", pa.string()),
        ("partition", pa.int32()),
        ("batchId", pa.int64()),
        ("ordinal", pa.int64()),
    ]
)


def audited(frame: DataFrame) -> DataFrame:
    """Return the columns that the audit asks for. A source that reads one queue says nothing of it."""
    url = "queueUrl" if "queueUrl" in frame.columns else lit("").alias("queueUrl")
    return frame.select("messageId", "messageGroupId", "sequenceNumber", url, spark_partition_id().alias("partition"))


class Changed(Exception):
    """PyIceberg wants to append to a later state of the table."""


def changed() -> NoReturn:
    raise Changed


class Lake(ABC):
    """A table in `home`."""

    name: str

    @abstractmethod
    def load(self, batch: Batch) -> tuple[Any, int | None]:
        """Return the table as it stands, and the last batch id that it has of this query."""

    @abstractmethod
    def append(self, rows: pa.Table, batch: Batch, table: Any) -> None:
        """Commit rows and batch id, unless another driver has committed since `load`."""

    @abstractmethod
    def read(self) -> pa.Table:
        """Return all rows."""

    def writer(self, traps: Traps) -> Callable[[DataFrame, int], None]:
        """Return the function for `foreachBatch`, which can be held before its commit and after it."""

        def write(df: DataFrame, batch: Batch, table: Any) -> None:
            rows = audited(df).toArrow()
            rows = rows.append_column("batchId", pa.array([batch.id] * len(rows), pa.int64()))
            rows = rows.append_column("ordinal", pa.array(range(len(rows)), pa.int64())).cast(_SCHEMA)
            traps.reach("writing")
            self.append(rows, batch, table)
            traps.reach("sink-committed")

        return once(self.load, write, changed=Changed)

    def rows(self) -> Iterator[Row]:
        for row in self.read().sort_by([("batchId", "ascending"), ("ordinal", "ascending")]).to_pylist():
            ids = row["messageId"], row["messageGroupId"], int(row["sequenceNumber"])
            yield Row(row["batchId"], str(row["partition"]), *ids, row["queueUrl"])

    def changed(self) -> int:
        return 0  # a micro-batch that the table has is not read again


class Delta(Lake):
    """delta-rs, with the batch id as an application's transaction."""

    name = "delta"

    def __init__(self, home: Path) -> None:
        self._path = str(home / "delta")
        DeltaTable.create(self._path, _SCHEMA, mode="ignore")

    def load(self, batch: Batch) -> tuple[DeltaTable, int | None]:
        table = DeltaTable(self._path)
        return table, table.transaction_version(batch.query)

    def append(self, rows: pa.Table, batch: Batch, table: DeltaTable) -> None:
        properties = CommitProperties(app_transactions=[Transaction(batch.query, batch.id)])
        write_deltalake(table, rows, mode="append", commit_properties=properties)

    def read(self) -> pa.Table:
        return DeltaTable(self._path).to_pyarrow_table()


class Iceberg(Lake):
    """PyIceberg on a catalog in SQLite, with the batch id as a property of the table."""

    name = "iceberg"

    def __init__(self, home: Path) -> None:
        folder = home / "iceberg"
        folder.mkdir(exist_ok=True)
        self._catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
        self._catalog.create_namespace_if_not_exists("crash")
        self._catalog.create_table_if_not_exists("crash.rows", _SCHEMA)

    def load(self, batch: Batch) -> tuple[Any, int | None]:
        table = self._catalog.load_table("crash.rows")
        table.refresh = changed  # type: ignore[method-assign]
        last = table.properties.get(batch.query)
        return table, None if last is None else int(last)

    def append(self, rows: pa.Table, batch: Batch, table: Any) -> None:
        with table.transaction() as change:
            change.append(rows)
            change.set_properties({batch.query: str(batch.id)})

    def read(self) -> pa.Table:
        return self._catalog.load_table("crash.rows").scan().to_arrow()
