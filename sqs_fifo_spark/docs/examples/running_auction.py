"""Keeps the state of each auction, which is a message group, and writes a row for each bid that leads.

    python running_auction.py QUEUE_URL DIRECTORY

Needs Spark 4.1 and `pip install protobuf`. The source gives the rows of a group in order, but `groupBy` moves them, and
keeps no order that Spark promises: so they are sorted by their sequence number, as a number. From micro-batch to
micro-batch these rise. The body is an amount; of equal amounts the first leads.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

LEADING = "auction STRING, bids INT, leading DECIMAL(18, 2), sequenceNumber STRING"
ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Auction(StatefulProcessor):
    """Its state: how many bids there were, and the highest."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("auction", "bids INT, leading DECIMAL(18, 2)")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        bids, leading = self._state.get() or (0, Decimal(0))
        for row in sorted(rows, key=lambda row: int(row.sequenceNumber)):
            bids, amount = bids + 1, Decimal(row.body)
            if amount > leading:
                leading = amount
                yield Row(auction=key[0], bids=bids, leading=leading, sequenceNumber=row.sequenceNumber)
        self._state.update((bids, leading))


def build(spark: SparkSession, queue_url: str, home: str) -> StreamingQuery:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS_DB)
    reader = spark.readStream.format("sqsfifo").option("queueUrl", queue_url)
    messages = reader.option("journalLocation", f"{home}/journal").load()
    bids = messages.select("messageGroupId", "sequenceNumber", "body").groupBy("messageGroupId")
    leading = bids.transformWithState(Auction(), LEADING, outputMode="Append", timeMode="None")
    writer = leading.writeStream.format("parquet").option("path", f"{home}/leading")
    return writer.option("checkpointLocation", f"{home}/checkpoint").start()


def main() -> None:
    # Each has a state store; the checkpoint keeps their number for good.
    builder = SparkSession.builder.appName("running auction").config("spark.sql.shuffle.partitions", 4)
    build(builder.getOrCreate(), *sys.argv[1:]).awaitTermination()


if __name__ == "__main__":
    main()
