"""The application that is killed: `python -m tests.crash.app HOME` runs one query until HOME/stop exists.

HOME/app.json says what it runs. A query that fails is started again three times, in the same application; then the
application ends with status 3, and whoever started it starts another one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from tests.crash.cluster import ROOT
from tests.crash.lake import Delta, Iceberg, audited
from tests.crash.trapped import HOME_VARIABLE, TrappedSource
from tests.crash.traps import Traps
from tests.helpers import spark_builder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RESTARTS = 3
FAILED = 3
"""The exit status after the last restart's query has failed."""
POLL_S = 1


class PostgresSink:
    """`foreachBatch` into PostgreSQL in one transaction, with the batch id first."""

    def __init__(self, address: str, traps: Traps) -> None:
        self._address = address
        self._traps = traps

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write the micro-batch unless it is there; if it is, note whether it has the same rows this time."""
        import psycopg

        counted = frame.count()
        # What stands here is what the second action gave, in the order of the partitions.
        rows = [(ordinal, *row) for ordinal, row in enumerate(audited(frame).collect())]
        with psycopg.connect(self._address) as connection:
            taken = connection.execute("INSERT INTO batches VALUES (%s) ON CONFLICT DO NOTHING", [batch_id]).rowcount
            if not taken:
                stored = connection.execute(
                    "SELECT ordinal, message_id, message_group_id, sequence_number, queue_url, partition FROM rows "
                    "WHERE batch_id = %s ORDER BY ordinal",
                    [batch_id],
                ).fetchall()
            else:
                stored = rows
                with connection.cursor() as cursor:
                    cursor.executemany(
                        "INSERT INTO rows VALUES (%s, %s, %s, %s, %s, %s, %s)", [(batch_id, *row) for row in rows]
                    )
            if stored != rows or counted != len(rows):
                connection.execute("INSERT INTO changed VALUES (%s)", [batch_id])
            self._traps.reach("writing")
        self._traps.reach("sink-committed")


def start(spark: SparkSession, home: Path, settings: dict[str, Any]) -> StreamingQuery:
    """Start the query into the sink that the settings name."""
    frame = spark.readStream.format("trapped").options(**settings["source"]).load()
    writer = frame.writeStream.option("checkpointLocation", str(home / "checkpoint"))
    if settings["sink"] == "parquet":
        return writer.format("parquet").option("path", str(home / "parquet")).start()
    traps = Traps(home / "traps")
    if settings["sink"] == "postgres":
        return writer.foreachBatch(PostgresSink(settings["address"], traps)).start()
    lake = {"delta": Delta, "iceberg": Iceberg}[settings["sink"]](home)
    return writer.foreachBatch(lake.writer(traps)).start()


def causes(error: StreamingQueryException) -> list[str]:
    """Return what the query's failure says, and each of its causes."""
    said = [str(error)]
    cause: Any = error._origin  # type: ignore[attr-defined]
    while cause is not None:
        said.append(str(cause.toString()))
        cause = cause.getCause()
    return said


def main() -> int:
    home = Path(sys.argv[1])
    settings = json.loads((home / "app.json").read_text())
    builder = spark_builder(settings["master"], home).appName(f"crash-{settings['sink']}")
    conf = {
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        f"spark.executorEnv.{HOME_VARIABLE}": str(home),
        "spark.sql.session.timeZone": "UTC",
        # The audit compares each message's delete with the commit log.
        "spark.sql.streaming.minBatchesToRetain": "1000000",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.25",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "200ms",
        "spark.speculation.task.duration.threshold": "500ms",
        # Where the harness counts the speculative copies.
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (home / "events").as_uri(),
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(TrappedSource)
    for _ in range(1 + RESTARTS):
        query = start(spark, home, settings)
        try:
            while not (home / "stop").exists():
                query.awaitTermination(POLL_S)
            query.stop()
            spark.stop()
            return 0
        except StreamingQueryException as error:
            with (home / "failures.txt").open("a") as failures:
                failures.write(json.dumps(causes(error)) + "\n")
    return FAILED


if __name__ == "__main__":
    status = main()
    # At once, whatever Spark's own threads do.
    sys.stdout.flush()
    os._exit(status)
