"""Adds a FIFO queue's messages to a table: all the time, or what waits now and then no more."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyspark.sql import SparkSession

import sqs_fifo_spark


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    for name in ("--queue-url", "--journal", "--checkpoint", "--table"):
        parser.add_argument(name, required=True)
    parser.add_argument("--available-now", action="store_true", help="end when what waits now is in the table")
    given = parser.parse_args(arguments)

    spark = SparkSession.builder.getOrCreate()
    sqs_fifo_spark.register(spark)
    orders = (
        spark.readStream.format("sqsfifo")
        .option("queueUrl", given.queue_url)
        .option("journalLocation", given.journal)
        .load()
    )
    writer = orders.writeStream.queryName("orders").option("checkpointLocation", given.checkpoint)
    if not given.available_now:
        writer.toTable(given.table).awaitTermination()
    elif _drains_by_trigger():
        writer.trigger(availableNow=True).toTable(given.table).awaitTermination()
    else:
        query = writer.toTable(given.table)
        query.processAllAvailable()
        query.stop()


def _drains_by_trigger() -> bool:
    """Return whether Spark asks this source for AvailableNow's end: before 4.2 that trigger is one micro-batch."""
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow  # noqa: F401
    except ImportError:
        return False
    return True


if __name__ == "__main__":
    main()
