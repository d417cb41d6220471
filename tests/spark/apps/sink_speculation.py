"""Write files into a queue with `spark.speculation`, and with a first attempt at a partition that is slow.

Arguments: directory, options as JSON. The directory holds `files`. The first attempt at partition 1 stalls after a
part of its rows, until its copy has come further; the copy then waits until the first attempt has gone on. So both
send at once, rows that the other has sent and rows that it has not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.types import StructType

from sqs_fifo_spark import SqsFifoDataSource
from sqs_fifo_spark.sink.writer import SqsFifoStreamWriter
from tests.helpers import wait_until
from tests.spark.apps.two_hosts import start_session
from tests.spark.sink import COLUMNS, file_stream, to_the_end

HOME = Path(sys.argv[1])
FILES = 8
ROWS_AT_ONCE = 50


def meet(mine: str, other: str) -> None:
    (HOME / mine).touch()
    try:
        wait_until((HOME / other).exists, 60, f"the other attempt is there: {other}")
    except AssertionError:
        (HOME / f"never-{other}").touch()
        raise


def rendezvous(iterator: Iterator[Any], attempt: int) -> Iterator[Any]:
    for number, rows in enumerate(iterator):
        if attempt == 0 and number == 2:
            meet("stalled", "copied")
        elif attempt == 1 and number == 4:
            meet("copied", "resumed")
        elif attempt == 0 and number == 3:
            (HOME / "resumed").touch()
        yield rows


class SlowWriter(SqsFifoStreamWriter):
    def write(self, iterator: Iterator[Any]) -> Any:
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1:
            iterator = rendezvous(iterator, context.attemptNumber())
        return super().write(iterator)


class SlowSink(SqsFifoDataSource):
    @classmethod
    def name(cls) -> str:
        return "slow"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        writer = super().streamWriter(schema, overwrite)
        writer.__class__ = SlowWriter
        return writer


def main() -> None:
    spark = start_session(HOME)
    spark.conf.set("spark.sql.files.minPartitionNum", str(FILES))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ROWS_AT_ONCE))
    spark.dataSource.register(SlowSink)
    stream = file_stream(spark, HOME / "files", files=FILES).select(COLUMNS)
    writer = stream.writeStream.format("slow").options(**json.loads(sys.argv[2]))
    to_the_end(writer.option("checkpointLocation", str(HOME / "checkpoint")))
    spark.stop()


if __name__ == "__main__":
    main()
