"""Read a queue, transform its messages, and write them into another queue, until killed.

Arguments: directory, URL of the queue that is read, URL of the one that is written, then the source's options as
`name=value`. The directory gets the checkpoint and both journals.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql.functions import col, upper

from tests.helpers import spark_builder


def main() -> None:
    home, url, into = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    spark = spark_builder("local[2]", home).getOrCreate()
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
