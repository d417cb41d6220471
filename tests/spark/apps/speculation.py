"""Drain a queue into Parquet with `spark.speculation`, and with a first attempt that stalls until it has a copy.

Arguments: queue URL, directory. In epoch 1 the first attempt at partition 1 stalls holding
messages that it has not sealed, in epoch 2 with a segment of which it has shown no row yet.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tests.spark.apps.two_hosts import start_session

URL, HOME = sys.argv[1], Path(sys.argv[2])


def make_source(home: str) -> type[DataSource]:
    """Return the source with a stall in it. A function, so that cloudpickle carries the classes by value."""
    from sqs_fifo_spark.datasource import SqsFifoDataSource
    from sqs_fifo_spark.options import parse_source_options
    from sqs_fifo_spark.source.reader import SqsFifoStreamReader

    class StallingReader(SqsFifoStreamReader):
        def read(self, partition: InputPartition) -> Iterator[Any]:
            from sqs_fifo_spark.source.journal_objects import Journal
            from tests.helpers import wait_until

            context = TaskContext.get()
            assert context is not None
            attempt = context.attemptNumber()
            plan = partition.value
            if plan.epoch > 2 or plan.partition != 1:
                yield from super().read(partition)
                return
            copied = Path(home, f"epoch-{plan.epoch}-copied")
            begun = [Path(home, f"epoch-{plan.epoch}-attempt-{number}") for number in range(attempt + 1)]
            if attempt:  # it may run ahead of the first one, whose worker has to be started anew
                wait_until(begun[0].exists, 40, "the first attempt stalls")
                begun[-1].touch()
            seal = Journal.seal

            def stall() -> None:
                if attempt == 0:
                    begun[0].touch()
                    try:
                        wait_until(copied.exists, 40, "a copy has read the partition")
                    except AssertionError:
                        Path(home, "never-copied").touch()
                        raise

            def slow_seal(journal: Journal, segment: Any, *given: Any, **named: Any) -> Any:
                if plan.epoch == 1:
                    stall()
                sealed = seal(journal, segment, *given, **named)
                if attempt:
                    copied.touch()
                return sealed

            Journal.seal = slow_seal  # type: ignore[assignment,method-assign]
            try:
                batches = list(super().read(partition))
            finally:
                Journal.seal = seal  # type: ignore[method-assign]
            if attempt:
                copied.touch()
            stall()
            yield from batches

    class StallingSource(SqsFifoDataSource):
        @classmethod
        def name(cls) -> str:
            return "stalling"

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return StallingReader(parse_source_options(self.options), schema)

    return StallingSource


def main() -> None:
    spark = start_session(HOME)
    spark.dataSource.register(make_source(str(HOME)))
    query = (
        spark.readStream.format("stalling")
        .option("queueUrl", URL)
        .option("journalLocation", str(HOME / "journal"))
        .option("waitTimeSeconds", "1")
        .option("visibilityTimeoutSeconds", "6")
        .option("maxMessagesPerTrigger", "200")
        .load()
        .writeStream.format("parquet")
        .option("path", str(HOME / "parquet"))
        .option("checkpointLocation", str(HOME / "checkpoint"))
        .start()
    )
    import boto3

    from tests.helpers import depth, wait_until

    sqs = boto3.client("sqs", endpoint_url=URL.rsplit("/", 2)[0])

    def is_drained() -> bool:
        if not query.isActive:
            raise AssertionError(str(query.exception()))
        return depth(sqs.get_queue_attributes, URL) == (0, 0)

    wait_until(is_drained, 240, "the queue is empty")
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
