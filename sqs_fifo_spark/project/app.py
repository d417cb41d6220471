"""Bids from a FIFO queue to Parquet: each once, and those of an auction in order.

A message is deleted with its micro-batch, whatever its body is. So a body that is no bid is kept as it came, in rows of
their own: `kind` is `rejected`.
"""

from __future__ import annotations

import os
from pathlib import Path

from prometheus_client import start_http_server
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import from_json
from pyspark.sql.streaming.query import StreamingQuery

import sqs_fifo_spark
from sqs_fifo_spark.watch import Prometheus, SqsFifoListener

BID = "bidder STRING, amount DECIMAL(18, 2), malformed STRING"
IS_BID = "bid.malformed IS NULL AND bid.bidder IS NOT NULL AND bid.amount IS NOT NULL"


def rows_of(messages: DataFrame) -> DataFrame:
    """Return a row for each message: of a bid its fields, of anything else its `body`."""
    return messages.withColumn("bid", from_json("body", BID, {"columnNameOfCorruptRecord": "malformed"})).selectExpr(
        "messageGroupId AS auction",
        "sequenceNumber",
        "sentTimestamp",
        "bid.bidder",
        "bid.amount",
        f"IF({IS_BID}, NULL, body) AS body",
        f"IF({IS_BID}, 'bid', 'rejected') AS kind",
    )


def start(spark: SparkSession, queue_url: str, data: str, **trigger: bool) -> StreamingQuery:
    """Start the query. Its journal and its checkpoint belong together: move or remove both, or neither."""
    source = spark.readStream.format("sqsfifo").option("queueUrl", queue_url)
    rows = rows_of(source.option("journalLocation", f"{data}/journal").load())
    writer = rows.writeStream.format("parquet").partitionBy("kind").queryName("bids")
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.option("checkpointLocation", f"{data}/checkpoint").start(f"{data}/rows")


def main() -> None:
    """Run the query until Ctrl-C or SIGTERM, and serve its figures to Prometheus."""
    spark = SparkSession.builder.appName("bids").getOrCreate()
    sqs_fifo_spark.register(spark)
    spark.streams.addListener(SqsFifoListener(Prometheus()))
    start_http_server(9108)
    data = os.environ.get("DATA", str(Path("data").absolute()))
    sqs_fifo_spark.await_termination(start(spark, os.environ["QUEUE_URL"], data))
    spark.stop()


if __name__ == "__main__":
    main()
