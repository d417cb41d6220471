"""Drain a queue while plain boto3 calls on another queue are made in the same processes.

Arguments: queue URL, URL of the control's queue, directory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

URL, CONTROL_URL, HOME = sys.argv[1], sys.argv[2], Path(sys.argv[3])


def make_source(control_url: str) -> type[DataSource]:
    """Return the source with a control call before each of ours. Carried by value, as it stands in a function."""
    from sqs_fifo_spark.datasource import SqsFifoDataSource
    from sqs_fifo_spark.options import parse_source_options
    from sqs_fifo_spark.source.reader import SqsFifoStreamReader

    def control(where: str) -> None:
        import sys

        import boto3

        client = boto3.client(
            "sqs",
            endpoint_url=control_url.rsplit("/", 2)[0],
            aws_access_key_id="control",
            aws_secret_access_key="control",
            aws_session_token="CONTROL-5e0a44-TOKEN",
        )
        client.receive_message(QueueUrl=control_url)
        print(f"control call in the {where}", file=sys.stderr, flush=True)

    class ControlledReader(SqsFifoStreamReader):
        def latestOffset(self, *arguments: Any) -> dict[str, Any]:
            offset = super().latestOffset(*arguments)
            control("reader")
            return offset

        def read(self, partition: InputPartition) -> Iterator[Any]:
            yield from super().read(partition)
            control("worker")

    class ControlledSource(SqsFifoDataSource):
        @classmethod
        def name(cls) -> str:
            return "controlled"

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return ControlledReader(parse_source_options(self.options), schema)

    return ControlledSource


def main() -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(HOME / "local"))
        .getOrCreate()
    )
    spark.dataSource.register(make_source(CONTROL_URL))
    query = (
        spark.readStream.format("controlled")
        .option("queueUrl", URL)
        .option("journalLocation", str(HOME / "journal"))
        .option("waitTimeSeconds", "1")
        .option("visibilityTimeoutSeconds", "6")
        .option("heartbeatSeconds", "0.2")
        .option("maxMessagesPerTrigger", "100")
        .load()
        .writeStream.format("parquet")
        .option("path", str(HOME / "parquet"))
        .option("checkpointLocation", str(HOME / "checkpoint"))
        .start()
    )
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
