"""Write files into queues with tasks that say where they run, so that a test can kill them.

Arguments: directory, master, then jobs as JSON, which are done in turn: {"mode": "stream" or "batch", "options": {}}.
The directory holds `files`, and gets `checkpoint` and `writers`: there each attempt at a partition has a file as long
as it writes, called `<partition>-<attempt>-<process id>`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.types import StructType

from sqs_fifo_spark import SqsFifoDataSource
from tests.helpers import spark_builder
from tests.spark.sink import COLUMNS, SCHEMA, file_stream, to_the_end

HOME, MASTER = Path(sys.argv[1]), sys.argv[2]
FILES = 8


def told(writer: Any) -> Any:
    """Return the writer, whose attempts have files in `writers`."""

    class Telling(type(writer)):  # type: ignore[misc]
        def write(self, iterator: Iterator[Any]) -> Any:
            context = TaskContext.get()
            assert context is not None
            told = HOME / "writers" / f"{context.partitionId()}-{context.attemptNumber()}-{os.getpid()}"
            told.touch()
            try:
                return super().write(iterator)
            finally:
                told.unlink(missing_ok=True)

    writer.__class__ = Telling
    return writer


class TellingSink(SqsFifoDataSource):
    @classmethod
    def name(cls) -> str:
        return "telling"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return told(super().writer(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        return told(super().streamWriter(schema, overwrite))


def main() -> None:
    spark = spark_builder(MASTER, HOME).config("spark.sql.files.minPartitionNum", FILES).getOrCreate()
    (HOME / "writers").mkdir()
    spark.dataSource.register(TellingSink)
    for job in map(json.loads, sys.argv[3:]):
        if job["mode"] == "batch":
            frame = spark.read.schema(SCHEMA).parquet(str(HOME / "files")).select(COLUMNS)
            frame.write.format("telling").options(**job["options"]).mode("append").save()
        else:
            stream = file_stream(spark, HOME / "files", files=FILES).select(COLUMNS)
            writer = stream.writeStream.format("telling").options(**job["options"])
            to_the_end(writer.option("checkpointLocation", str(HOME / "checkpoint")))
    spark.stop()


if __name__ == "__main__":
    main()
