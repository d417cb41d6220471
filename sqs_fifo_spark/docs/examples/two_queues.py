"""Joins the bids of one queue with the lots of another, and says what comes too late for the watermark.

    python two_queues.py LOTS_URL BIDS_URL DIRECTORY

While somebody else holds a message of a group, SQS hands out nothing that stands behind it; other groups go on, and the
watermark with them. When the group is free its rows are old, and Spark drops those that are older than the watermark;
their messages are deleted like all others. So the watermark's delay must be longer than a group can be behind:

- held elsewhere: the visibility timeout times the redrive policy's `maxReceiveCount`; without such a policy, as long as
  the queue keeps messages;
- in a backlog: as long as the longest group takes to drain, for a micro-batch has at most ten messages of each.

The watermark is that of the slower queue. While one of them brings nothing it stands still, and the state grows.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

DELAY = "15 minutes"


def build(spark: SparkSession, lots_url: str, bids_url: str, home: str, delay: str = DELAY) -> StreamingQuery:
    def read(queue_url: str, name: str, *columns: str) -> DataFrame:
        # Spark asks one source after the other: an empty queue must not keep the other waiting.
        reader = spark.readStream.format("sqsfifo").option("queueUrl", queue_url).option("waitTimeSeconds", 1)
        return reader.option("journalLocation", f"{home}/{name}-journal").load().selectExpr(*columns)

    lots = read(lots_url, "lots", "messageGroupId AS lot", "body AS title", "sentTimestamp AS openedAt")
    bids = read(bids_url, "bids", "messageGroupId AS bidLot", "body AS bid", "sentTimestamp AS placedAt")
    is_in_time = "lot = bidLot AND placedAt BETWEEN openedAt AND openedAt + INTERVAL 1 HOUR"
    joined = lots.withWatermark("openedAt", delay).join(bids.withWatermark("placedAt", delay), expr(is_in_time))
    writer = joined.drop("bidLot").writeStream.format("parquet").option("path", f"{home}/joined")
    return writer.option("checkpointLocation", f"{home}/checkpoint").start()


def late_rows(query: StreamingQuery) -> int:
    """Return how many rows the latest micro-batches have dropped: of as many as Spark keeps reports, by default 100."""
    operators = [operator for report in query.recentProgress for operator in report["stateOperators"]]
    return sum(operator["numRowsDroppedByWatermark"] for operator in operators)


def main() -> None:
    # Each has a state store; the checkpoint keeps their number for good.
    builder = SparkSession.builder.appName("two queues").config("spark.sql.shuffle.partitions", 4)
    query = build(builder.getOrCreate(), *sys.argv[1:])
    while not query.awaitTermination(60):
        print(f"{late_rows(query)} rows were late lately", flush=True)


if __name__ == "__main__":
    main()
