"""Move the messages of a queue into another by a source and a sink whose workers `sqs_fifo_spark.daemon` has forked.

Arguments: directory, URL of the queue that is read, URL of the one that is written. Each worker writes a file
`worker-*.json` into the directory at the end of a task: the name of the main module of the process that it was forked
from, and what it imported before and after the fork.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, InputPartition
from pyspark.sql.types import StructType

from sqs_fifo_spark import SqsFifoDataSource
from sqs_fifo_spark.sink.writer import SqsFifoStreamWriter
from sqs_fifo_spark.source.reader import SqsFifoStreamReader
from tests.helpers import spark_builder

HOME, URL, INTO = Path(sys.argv[1]), *sys.argv[2:4]


def look(task: str) -> None:
    names = list(sys.modules)
    forked = names.index("pyspark.daemon")
    main: Any = sys.modules["__main__"]
    told = {"main": main.__spec__.name, "before": names[:forked], "after": names[forked + 1 :]}
    (HOME / f"worker-{task}.json").write_text(json.dumps(told))


class Reader(SqsFifoStreamReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from super().read(partition)
        look("source")


class Writer(SqsFifoStreamWriter):
    def write(self, iterator: Iterator[Any]) -> Any:
        message = super().write(iterator)
        look("sink")
        return message


class Looked(SqsFifoDataSource):
    @classmethod
    def name(cls) -> str:
        return "looked"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        reader = super().streamReader(schema)
        reader.__class__ = Reader
        return reader

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        writer = super().streamWriter(schema, overwrite)
        writer.__class__ = Writer
        return writer


def main() -> None:
    builder = spark_builder("local[2]", HOME).config("spark.python.daemon.module", "sqs_fifo_spark.daemon")
    spark = builder.getOrCreate()
    spark.dataSource.register(Looked)
    query = (
        spark.readStream.format("looked")
        .options(queueUrl=URL, journalLocation=str(HOME / "received"), waitTimeSeconds="1", numPartitions="1")
        .load()
        .selectExpr("body", "messageGroupId", "messageId AS messageDeduplicationId")
        .writeStream.format("looked")
        .options(queueUrl=INTO, journalLocation=str(HOME / "sent"), checkpointLocation=str(HOME / "checkpoint"))
        .start()
    )
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
