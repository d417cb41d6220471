"""Drain a queue into Parquet with `spark.speculation`, and with a first attempt that stalls until it has a copy.

Arguments: queue URL, directory. In epoch 1 the first attempt at partition 1 stalls holding
messages that it has not sealed, in epoch 2 with a segment of which it has shown no row yet.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sqs_fifo_spark import SqsFifoDataSource
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.reader import SqsFifoStreamReader
from tests.helpers import depth, wait_until
from tests.spark.apps.two_hosts import start_session
from tests.spark.support import require_alive

URL, HOME = sys.argv[1], Path(sys.argv[2])


class StallingReader(SqsFifoStreamReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        attempt = context.attemptNumber()
        plan = partition.value
        if plan.epoch > 2 or plan.partition != 1:
            yield from super().read(partition)
            return
        copied = HOME / f"epoch-{plan.epoch}-copied"
        begun = [HOME / f"epoch-{plan.epoch}-attempt-{number}" for number in range(attempt + 1)]
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
                    (HOME / "never-copied").touch()
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
        reader = super().streamReader(schema)
        reader.__class__ = StallingReader
        return reader


def main() -> None:
    spark = start_session(HOME)
    spark.dataSource.register(StallingSource)
    options = {
        "queueUrl": URL,
        "journalLocation": str(HOME / "journal"),
        "waitTimeSeconds": "1",
        "visibilityTimeoutSeconds": "6",
        "maxMessagesPerTrigger": "200",
    }
    writer = spark.readStream.format("stalling").options(**options).load().writeStream.format("parquet")
    query = writer.option("checkpointLocation", str(HOME / "checkpoint")).start(str(HOME / "parquet"))
    sqs = boto3.client("sqs", endpoint_url=URL.rsplit("/", 2)[0])

    def is_drained() -> bool:
        require_alive(query)
        return depth(sqs.get_queue_attributes, URL) == (0, 0)

    wait_until(is_drained, 240, "the queue is empty")
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
