"""Keeps one row for each key in a Delta table: that of the newest message, by its sequence number.

    python newest_of_each.py QUEUE_URL DIRECTORY

Needs `pip install deltalake` and no jar. The key is the message group. Another key does as well, if all messages of a
key are sent to one group: between groups, sequence numbers say nothing. They are compared as numbers. The merge
records the micro-batch in the same transaction, so that `once` merges none twice.
"""

from __future__ import annotations

import sys

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

from sqs_fifo_spark import once
from sqs_fifo_spark.batch_ids import Batch

COLUMNS = pa.schema([("lot", pa.string()), ("number", pa.decimal128(38, 0)), ("body", pa.string())])


def build(spark: SparkSession, queue_url: str, home: str) -> StreamingQuery:
    DeltaTable.create(f"{home}/lots", COLUMNS, mode="ignore")

    def load(batch: Batch) -> tuple[DeltaTable, int | None]:
        table = DeltaTable(f"{home}/lots")
        return table, table.transaction_version(batch.query)

    def write(df: DataFrame, batch: Batch, table: DeltaTable) -> None:
        rows = df.selectExpr("messageGroupId AS lot", "CAST(sequenceNumber AS DECIMAL(38, 0)) AS number", "body")
        newest = rows.groupBy("lot").agg(expr("max(number) AS number"), expr("max_by(body, number) AS body")).toArrow()
        commit = CommitProperties(app_transactions=[Transaction(batch.query, batch.id)])
        merge = table.merge(newest, "old.lot = new.lot", "new", "old", commit_properties=commit)
        merge.when_matched_update_all("new.number > old.number").when_not_matched_insert_all().execute()
        if table.transaction_version(batch.query) != batch.id:
            # A merge that changes no row commits nothing (deltalake 1.6.6), and so does not record the micro-batch.
            write_deltalake(table, newest.slice(0, 0), mode="append", commit_properties=commit)

    reader = spark.readStream.format("sqsfifo").option("queueUrl", queue_url)
    messages = reader.option("journalLocation", f"{home}/journal").load()
    writer = messages.writeStream.foreachBatch(once(load, write))
    return writer.option("checkpointLocation", f"{home}/checkpoint").start()


def main() -> None:
    spark = SparkSession.builder.appName("newest of each").getOrCreate()
    build(spark, *sys.argv[1:]).awaitTermination()


if __name__ == "__main__":
    main()
