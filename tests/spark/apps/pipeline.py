"""Read a queue, transform its messages, and write them into another queue, until killed.

Arguments: directory, URL of the queue that is read, URL of the one that is written, then the source's options as
`name=value`. The directory gets the checkpoint and both journals.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, upper


def main() -> None:
    home, url, into = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(home / "local"))
        .getOrCreate()
    )
    source = (
        spark.readStream.format("sqsfifo")
        .option("queueUrl", url)
        .option("journalLocation", str(home / "received"))
        .options(**dict(argument.split("=", 1) for argument in sys.argv[4:]))
        .load()
    )
    query = (
        source.withColumn("body", upper(col("body")))
        .writeStream.format("sqsfifo")
        .option("queueUrl", into)
        .option("deduplication", "column")
        .option("journalLocation", str(home / "sent"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
