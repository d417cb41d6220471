"""Writes JSON bodies as columns, and every other body as it came, into one table.

    python json_and_the_rest.py QUEUE_URL DIRECTORY

A message is deleted with its micro-batch, whatever became of its row. `from_json` makes null of a body that is no JSON,
so a query that keeps only its fields loses such bodies without a word. Here each row goes to `kind=bid` or, with its
body, to `kind=other`. It is one query with one sink: two queries on one queue would each get some of its groups.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr, from_json
from pyspark.sql.streaming.query import StreamingQuery

BID = "id STRING, amount DECIMAL(18, 2), malformed STRING"
# A field of a wrong type makes a body malformed; one that is missing, or null, does not.
IS_BID = "bid.malformed IS NULL AND bid.id IS NOT NULL AND bid.amount IS NOT NULL"


def build(spark: SparkSession, queue_url: str, home: str) -> StreamingQuery:
    reader = spark.readStream.format("sqsfifo").option("queueUrl", queue_url)
    messages = reader.option("journalLocation", f"{home}/journal").load()
    parsed = messages.withColumn("bid", from_json("body", BID, {"columnNameOfCorruptRecord": "malformed"}))
    rows = parsed.withColumn("kind", expr(f"IF({IS_BID}, 'bid', 'other')")).selectExpr(
        "kind",
        "messageId",
        "messageGroupId",
        "sequenceNumber",
        "bid.id",
        "bid.amount",
        "IF(kind = 'bid', NULL, body) AS body",
    )
    writer = rows.writeStream.format("parquet").partitionBy("kind").option("path", f"{home}/bids")
    return writer.option("checkpointLocation", f"{home}/checkpoint").start()


def main() -> None:
    spark = SparkSession.builder.appName("JSON and the rest").getOrCreate()
    build(spark, *sys.argv[1:]).awaitTermination()


if __name__ == "__main__":
    main()
