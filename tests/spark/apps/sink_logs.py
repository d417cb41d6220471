"""Write to a queue, as a table and as a stream, while plain boto3 calls are made in the same processes; then fail.

Arguments: queue URL, URL of the control's queue, directory. The rows are the JSON files in `rows` there, a bad row is
in `bad`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from sqs_fifo_spark import SqsFifoDataSource
from tests.helpers import spark_builder
from tests.spark.apps.control import control_call

URL, CONTROL_URL, HOME = sys.argv[1], sys.argv[2], Path(sys.argv[3])
SCHEMA = "body STRING, messageGroupId STRING, messageDeduplicationId STRING, messageAttributes MAP<STRING, STRING>"


def controlled(writer: Any, kind: str) -> Any:
    """Return the writer, with a control call now and behind each of its own."""
    control_call(CONTROL_URL, f"plan of a {kind}")

    class Controlled(type(writer)):  # type: ignore[misc]
        def write(self, iterator: Any) -> Any:
            sent = super().write(iterator)
            control_call(CONTROL_URL, f"worker of a {kind}")
            return sent

        def commit(self, *given: Any) -> None:
            super().commit(*given)
            control_call(CONTROL_URL, f"commit of a {kind}")

    writer.__class__ = Controlled
    return writer


class ControlledSink(SqsFifoDataSource):
    @classmethod
    def name(cls) -> str:
        return "controlled"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return controlled(super().writer(schema, overwrite), "table")

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        return controlled(super().streamWriter(schema, overwrite), "stream")


def told(what: str, call: Callable[[], object]) -> None:
    """Print what `call` raises, with all that Spark puts around it."""
    try:
        call()
    except Exception as error:
        print(f"{what} failed: {type(error).__name__}: {error}", flush=True)


def main() -> None:
    spark = spark_builder("local[1]", HOME).getOrCreate()
    spark.dataSource.register(ControlledSink)
    given = {"queueUrl": URL, "journalLocation": str(HOME / "journal")}

    def as_table(source: str, **options: str) -> None:
        frame = spark.read.schema(SCHEMA).json(str(HOME / source))
        frame.write.format("controlled").mode("append").options(**given, **options).save()

    def as_stream(source: str) -> None:
        frame = spark.readStream.schema(SCHEMA).json(str(HOME / source))
        writer = frame.writeStream.format("controlled").options(**given)
        query = writer.option("checkpointLocation", str(HOME / f"checkpoint-{source}")).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    as_table("rows")
    as_stream("rows")
    told("the table", lambda: as_table("bad"))
    told("the stream", lambda: as_stream("bad"))
    told("the option", lambda: as_table("rows", password="OPTION-5e0a44"))
    spark.stop()


if __name__ == "__main__":
    main()
