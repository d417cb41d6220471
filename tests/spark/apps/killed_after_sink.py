"""Write a queue into a table by batch id, and die with the JVM between the sink's commit and Spark's commit log.

Arguments: directory, the batch id after whose write everything is killed, then options as `name=value`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.spark.table import write_once


def main() -> None:
    home, last = Path(sys.argv[1]), int(sys.argv[2])
    options = dict(argument.split("=", 1) for argument in sys.argv[3:])
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(home / "local"))
        .getOrCreate()
    )

    def write(frame: DataFrame, batch_id: int) -> None:
        write_once(home / "table", frame, batch_id)
        if batch_id == last:
            os.killpg(0, signal.SIGKILL)

    source = spark.readStream.format("sqsfifo").options(**options).load()
    writer = source.writeStream.foreachBatch(write).option("checkpointLocation", str(home / "checkpoint"))
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
