"""The application that is killed: `python -m tests.emulators.app HOME` sends messages once, and reads them.

HOME/messages.json has group and body of each, and HOME/<mode>/options.json the options of each mode's source.
HOME/<mode>/out gets one file for each micro-batch: group, number and sequence number of its rows, in their order;
`error` and `done` tell of the end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from sqs_fifo_spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

LATE = "Python worker failed to connect back"
"""Spark waits 10 s for that, and a busy machine takes longer."""


def writer_to(home: Path) -> Callable[[DataFrame, int], None]:
    def keep(frame: DataFrame, batch_id: int) -> None:
        rows = frame.select("messageGroupId", "body", "sequenceNumber").collect()
        new = home / "new"
        new.write_text(json.dumps([[row[0], int(row[1]), int(row[2])] for row in rows]))
        new.replace(home / "out" / f"{batch_id:06}.json")

    return keep


def run(home: Path, start: Callable[[], StreamingQuery]) -> None:
    """Start the query, and note its end; again where Spark did not wait long enough for a Python worker."""
    try:
        start().awaitTermination()
    except StreamingQueryException as error:
        if LATE in str(error):
            run(home, start)
            return
        (home / "error").write_text(str(error))
    (home / "done").touch()


def main() -> None:
    given = Path(sys.argv[1])
    homes = {each.parent: json.loads(each.read_text()) for each in sorted(given.glob("*/options.json"))}
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    register(spark)
    rows = [(group, body, f"{group}-{body}") for group, body in json.loads((given / "messages.json").read_text())]
    frame = spark.createDataFrame(rows, "messageGroupId STRING, body STRING, messageDeduplicationId STRING").coalesce(1)
    for home, options in homes.items():
        if not (home / "sent").exists():
            queue = {name: options[name] for name in ("queueUrl", "endpointUrl")}
            frame.write.format("sqsfifo").mode("append").options(**queue).save()
            (home / "sent").touch()
    starts = []
    for home, options in homes.items():
        source = spark.readStream.format("sqsfifo").options(**options, journalLocation=str(home / "journal")).load()
        writer = source.writeStream.option("checkpointLocation", str(home / "checkpoint"))
        starts.append(writer.foreachBatch(writer_to(home)).trigger(availableNow=True).start)
    with ThreadPoolExecutor() as pool:
        list(pool.map(run, homes, starts))


if __name__ == "__main__":
    main()
