"""Repairs what it can of a dead-letter queue and sends it back in order; the rest goes to files.

    python dead_letters.py DEAD_LETTER_QUEUE_URL QUEUE_URL DIRECTORY

Each message goes back to the queue that it was moved from, or to QUEUE_URL if SQS does not say, in its old group. It is
a new message there, behind all that the group has delivered meanwhile. It gets the attribute `repaired`, so that one
that fails again is given up and does not go round. This repair: an amount with a decimal comma gets a point.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

REPAIRED = r"regexp_replace(body, '(\\d),(\\d)', '$1.$2')"
IS_GOOD = "try_cast(get_json_object(repaired, '$.amount') AS DECIMAL(18, 2)) IS NOT NULL"
IS_NEW = "NOT map_contains_key(messageAttributes, 'repaired') AND size(messageAttributes) < 10"
MARK = "map('repaired', named_struct('dataType', 'String', 'stringValue', 'yes', 'binaryValue', CAST(NULL AS BINARY)))"


def build(spark: SparkSession, dead_url: str, queue_url: str, home: str) -> StreamingQuery:
    def repair(df: DataFrame, batch_id: int) -> None:
        rows = df.withColumn("repaired", expr(REPAIRED))
        rows = rows.withColumn("goesBack", expr(f"coalesce({IS_GOOD} AND {IS_NEW}, false)"))
        back = rows.where("goesBack").selectExpr(
            "repaired AS body",
            "messageGroupId",
            "messageId AS messageDeduplicationId",
            f"map_concat(messageAttributes, {MARK}) AS messageAttributes",
            "deadLetterQueueSourceArn AS queueUrl",
        )
        writer = back.write.format("sqsfifo").mode("append").option("queueUrl", queue_url)
        writer.option("journalLocation", f"{home}/sent").save()
        # A micro-batch that runs again has the same rows, and writes them over what it has written.
        rows.where("NOT goesBack").write.mode("overwrite").parquet(f"{home}/given-up/batch={batch_id}")

    reader = spark.readStream.format("sqsfifo").option("queueUrl", dead_url)
    messages = reader.option("journalLocation", f"{home}/journal").load()
    writer = messages.writeStream.foreachBatch(repair)
    return writer.option("checkpointLocation", f"{home}/checkpoint").start()


def main() -> None:
    spark = SparkSession.builder.appName("dead letters").getOrCreate()
    build(spark, *sys.argv[1:]).awaitTermination()


if __name__ == "__main__":
    main()
