"""Write a queue into Parquet, through a gate, until killed or stopped. Arguments: directory, options `name=value`."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql.functions import col

from sqs_fifo_spark import await_termination
from tests.helpers import spark_builder
from tests.spark.support import Gate


def main() -> None:
    home = Path(sys.argv[1])
    options = dict(argument.split("=", 1) for argument in sys.argv[2:])
    spark = spark_builder("local[2]", home).getOrCreate()
    source = spark.readStream.format("sqsfifo").options(**options).load()
    query = (
        source.withColumn("body", Gate(home / "gate").column(col("body")))
        .writeStream.format("parquet")
        .option("path", str(home / "parquet"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .start()
    )
    await_termination(query)


if __name__ == "__main__":
    main()
