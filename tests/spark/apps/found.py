"""Read a queue until it is empty, in whatever set-up Spark was started.

Arguments: directory, URL of the queue, and how Spark finds the format: `plain`, by itself, or `registered`, which is
needed and helps. The directory gets checkpoint and journal. Master and settings are spark-submit's.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import sqs_fifo_spark


def load(spark: SparkSession, url: str, journal: Path) -> DataFrame:
    options = {"queueUrl": url, "journalLocation": str(journal), "waitTimeSeconds": "1"}
    return spark.readStream.format("sqsfifo").options(**options).load()


def require_not_found(spark: SparkSession, url: str, journal: Path) -> None:
    """Fail if Spark finds the format by itself, and if anything else goes wrong."""
    try:
        load(spark, url, journal)
    except Exception as error:
        if "[DATA_SOURCE_NOT_FOUND]" not in str(error):
            raise
    else:
        raise AssertionError("Spark finds the format without `register`")


def main() -> None:
    home, url, found = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    spark = SparkSession.builder.getOrCreate()
    if found == "registered":
        require_not_found(spark, url, home / "journal")
        sqs_fifo_spark.register(spark)
    frame = load(spark, url, home / "journal")
    query = frame.writeStream.format("noop").option("checkpointLocation", str(home / "checkpoint")).start()
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
