"""The application that is killed: `python -m tests.emulators.app HOME COUNT` sends messages once, and reads them.

HOME/<mode>/options.json has the options of each mode's source. HOME/<mode>/out gets one file for each micro-batch:
group, number and sequence number of its rows, in their order; `error` and `done` tell of the end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from sqs_fifo_spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUPS = 50


def bodies(messages: int) -> list[tuple[str, str]]:
    """Return group and body of each message, in the order of the sends."""
    return [(f"g{number % GROUPS}", f"{number // GROUPS}") for number in range(messages)]


def writer_to(home: Path) -> Callable[[DataFrame, int], None]:
    def keep(frame: DataFrame, batch_id: int) -> None:
        rows = frame.select("messageGroupId", "body", "sequenceNumber").collect()
        new = home / "new"
        new.write_text(json.dumps([[row[0], int(row[1]), int(row[2])] for row in rows]))
        new.replace(home / "out" / f"{batch_id:06}.json")

    return keep


def main() -> None:
    homes = {each.parent: json.loads(each.read_text()) for each in sorted(Path(sys.argv[1]).glob("*/options.json"))}
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    register(spark)
    rows = [(group, body, f"{group}-{body}") for group, body in bodies(int(sys.argv[2]))]
    frame = spark.createDataFrame(rows, "messageGroupId STRING, body STRING, messageDeduplicationId STRING").coalesce(1)
    for home, options in homes.items():
        if not (home / "sent").exists():
            queue = {name: options[name] for name in ("queueUrl", "endpointUrl")}
            frame.write.format("sqsfifo").mode("append").options(**queue).save()
            (home / "sent").touch()
    queries = {}
    for home, options in homes.items():
        source = spark.readStream.format("sqsfifo").options(**options, journalLocation=str(home / "journal")).load()
        writer = source.writeStream.option("checkpointLocation", str(home / "checkpoint"))
        queries[home] = writer.foreachBatch(writer_to(home)).trigger(availableNow=True).start()
    for home, query in queries.items():
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            (home / "error").write_text(str(error))
        (home / "done").touch()


if __name__ == "__main__":
    main()
