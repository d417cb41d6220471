"""The same table in a Lakeflow pipeline: the pipeline keeps the checkpoint, the bucket the journal."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

import sqs_fifo_spark

QUEUE_URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo"
JOURNAL = "s3://my-bucket/journals/orders"

spark = SparkSession.active()
sqs_fifo_spark.register(spark)


@dp.table(name="orders")
def orders() -> DataFrame:
    return spark.readStream.format("sqsfifo").option("queueUrl", QUEUE_URL).option("journalLocation", JOURNAL).load()
