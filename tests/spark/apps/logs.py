"""Drain a queue while plain boto3 calls on another queue are made in the same processes.

Arguments: queue URL, URL of the control's queue, directory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sqs_fifo_spark import SqsFifoDataSource
from sqs_fifo_spark.source.reader import SqsFifoStreamReader
from tests.helpers import spark_builder
from tests.spark.apps.control import control_call

URL, CONTROL_URL, HOME = sys.argv[1], sys.argv[2], Path(sys.argv[3])


class ControlledReader(SqsFifoStreamReader):
    """The reader with a control call behind each of ours."""

    def latestOffset(self, *arguments: Any) -> dict[str, Any]:
        offset = super().latestOffset(*arguments)
        control_call(CONTROL_URL, "reader")
        return offset

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from super().read(partition)
        control_call(CONTROL_URL, "worker")


class ControlledSource(SqsFifoDataSource):
    @classmethod
    def name(cls) -> str:
        return "controlled"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        reader = super().streamReader(schema)
        reader.__class__ = ControlledReader
        return reader


def main() -> None:
    spark = spark_builder("local[2]", HOME).getOrCreate()
    spark.dataSource.register(ControlledSource)
    options = {
        "queueUrl": URL,
        "journalLocation": str(HOME / "journal"),
        "waitTimeSeconds": "1",
        "visibilityTimeoutSeconds": "6",
        "heartbeatSeconds": "0.2",
        "maxMessagesPerTrigger": "100",
    }
    writer = spark.readStream.format("controlled").options(**options).load().writeStream.format("parquet")
    query = writer.option("checkpointLocation", str(HOME / "checkpoint")).start(str(HOME / "parquet"))
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
