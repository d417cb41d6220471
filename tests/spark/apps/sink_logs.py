"""Write to a queue, as a table and as a stream, while plain boto3 calls are made in the same processes; then fail.

Arguments: queue URL, URL of the control's queue, directory. The rows are the JSON files in `rows` there, a bad row is
in `bad`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

URL, CONTROL_URL, HOME = sys.argv[1], sys.argv[2], Path(sys.argv[3])
SCHEMA = "body STRING, messageGroupId STRING, messageDeduplicationId STRING, messageAttributes MAP<STRING, STRING>"


def make_sink(control_url: str) -> type[DataSource]:
    """Return the sink with a control call after each of ours. Carried by value, as it stands in a function."""
    from sqs_fifo_spark.datasource import SqsFifoDataSource
    from sqs_fifo_spark.options import parse_sink_options
    from sqs_fifo_spark.sink.writer import SqsFifoStreamWriter, SqsFifoWriter

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
        client.receive_message(QueueUrl=control_url, VisibilityTimeout=0)
        print(f"control call in the {where}", file=sys.stderr, flush=True)

    class ControlledWriter(SqsFifoWriter):
        def write(self, iterator: Any) -> Any:
            sent = super().write(iterator)
            control("worker of a table")
            return sent

        def commit(self, messages: Any) -> None:
            super().commit(messages)
            control("commit of a table")

    class ControlledStreamWriter(SqsFifoStreamWriter):
        def write(self, iterator: Any) -> Any:
            sent = super().write(iterator)
            control("worker of a stream")
            return sent

        def commit(self, messages: Any, batchId: int) -> None:
            super().commit(messages, batchId)
            control("commit of a stream")

    class ControlledSink(SqsFifoDataSource):
        @classmethod
        def name(cls) -> str:
            return "controlled"

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            control("plan of a table")
            return ControlledWriter(parse_sink_options(self.options), schema)

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            control("plan of a stream")
            made: DataSourceStreamWriter = ControlledStreamWriter(parse_sink_options(self.options), schema)
            return made

    return ControlledSink


def told(what: str, call: Callable[[], object]) -> None:
    """Print what `call` raises, with all that Spark puts around it."""
    try:
        call()
    except Exception as error:
        print(f"{what} failed: {type(error).__name__}: {error}", flush=True)


def main() -> None:
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(HOME / "local"))
        .getOrCreate()
    )
    spark.dataSource.register(make_sink(CONTROL_URL))

    def as_table(frame: DataFrame, **options: str) -> None:
        options = {"queueUrl": URL, "journalLocation": str(HOME / "journal"), **options}
        frame.write.format("controlled").mode("append").options(**options).save()

    def as_stream(source: str, **options: str) -> None:
        frame = spark.readStream.schema(SCHEMA).json(str(HOME / source))
        options = {"queueUrl": URL, "journalLocation": str(HOME / "journal"), **options}
        query = (
            frame.writeStream.format("controlled")
            .options(**options)
            .option("checkpointLocation", str(HOME / f"checkpoint-{source}"))
            .start()
        )
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    as_table(spark.read.schema(SCHEMA).json(str(HOME / "rows")))
    as_stream("rows")
    told("the table", lambda: as_table(spark.read.schema(SCHEMA).json(str(HOME / "bad"))))
    told("the stream", lambda: as_stream("bad"))
    told("the option", lambda: as_table(spark.read.schema(SCHEMA).json(str(HOME / "rows")), password="OPTION-5e0a44"))
    spark.stop()


if __name__ == "__main__":
    main()
