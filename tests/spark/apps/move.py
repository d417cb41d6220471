"""Move the messages of a queue into another, and tell which file of the package a worker imports.

Arguments: directory, URL of the queue that is read, URL of the one that is written. The directory gets checkpoint and
journals. Master and settings are spark-submit's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession

import sqs_fifo_spark


def origin(_: Iterable[int]) -> Iterator[str]:
    """Yield the file that a Python worker imports: on an executor Spark puts a relative name on the path."""
    import sqs_fifo_spark

    yield str(Path(sqs_fifo_spark.__file__).absolute())


def main() -> None:
    home, url, into = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    spark = SparkSession.builder.getOrCreate()
    sqs_fifo_spark.register(spark)
    source = (
        spark.readStream.format("sqsfifo")
        .option("queueUrl", url)
        .option("journalLocation", str(home / "received"))
        .option("waitTimeSeconds", "1")
        .load()
    )
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
    (home / "origins.json").write_text(
        json.dumps(spark.sparkContext.parallelize([0], 1).mapPartitions(origin).collect())
    )
    spark.stop()


if __name__ == "__main__":
    main()
