"""Move the messages of a queue into another; tell how many rows a listener saw, and which file a worker imports.

Arguments: directory, URL of the queue that is read, URL of the one that is written, how Spark finds the format, and
for Spark Connect what `SparkSession.builder.remote` is given. The format is found `plain`, by itself, or `registered`,
which is needed and helps. The directory gets checkpoint, journals and what is told. Master and settings are
spark-submit's. With WITHOUT_UDF in the environment no function of the application runs on a worker.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

import sqs_fifo_spark
from sqs_fifo_spark.watch import Sample, SqsFifoListener


class Rows:
    """An exporter that knows how many rows the query had, and when its last figures have come."""

    def __init__(self) -> None:
        self.total = 0.0
        self.has_all = threading.Event()

    def export(self, sample: Sample) -> None:
        self.total = sample.figures["rows"]

    def end(self, run_id: str) -> None:
        self.has_all.set()


def main() -> None:
    home, url, into, found = Path(sys.argv[1]), *sys.argv[2:5]
    builder = SparkSession.builder
    for remote in sys.argv[5:]:
        builder = builder.remote(remote)
    spark = builder.getOrCreate()
    options = {"queueUrl": url, "journalLocation": str(home / "received"), "waitTimeSeconds": "1", "numPartitions": "2"}

    def load() -> DataFrame:
        return spark.readStream.format("sqsfifo").options(**options).load()

    if found == "registered":
        require_not_found(load)
        sqs_fifo_spark.register(spark)
    rows = Rows()
    listener = SqsFifoListener(rows)
    spark.streams.addListener(listener)
    source = load()
    query = (
        source.withColumn("messageDeduplicationId", source.messageId)
        .writeStream.format("sqsfifo")
        .option("queueUrl", into)
        .option("journalLocation", str(home / "sent"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .start()
    )
    query.processAllAvailable()
    query.stop()
    assert rows.has_all.wait(60), "the listener is told of the query's end"
    spark.streams.removeListener(listener)
    (home / "rows.txt").write_text(f"{rows.total:g}")
    if "WITHOUT_UDF" not in os.environ:
        (told,) = spark.range(1).select(udf(origin)("id")).collect()
        (home / "origin.txt").write_text(told[0])
    spark.stop()


def require_not_found(load: Callable[[], DataFrame]) -> None:
    """Fail if Spark finds the format by itself, and if anything else goes wrong."""
    try:
        assert load().columns  # Connect's `load` asks nobody
    except Exception as error:
        if "[DATA_SOURCE_NOT_FOUND]" not in str(error):
            raise
    else:
        raise AssertionError("Spark finds the format without `register`")


def origin(_: int) -> str:
    """Return the file that a Python worker imports: on an executor Spark puts a relative name on the path."""
    from pathlib import Path

    import sqs_fifo_spark

    return str(Path(sqs_fifo_spark.__file__).absolute())


if __name__ == "__main__":
    main()
