"""Drain a queue into Parquet with `spark.speculation`, and with a first attempt that stalls until it has a copy.

Arguments: queue URL, directory. In epoch 1 the first attempt at partition 1 stalls holding messages that it has not
sealed, in epoch 2 with a segment of which it has shown no row yet.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import SparkContext, TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

URL, HOME = sys.argv[1], Path(sys.argv[2])


def make_source(home: str) -> type[DataSource]:
    """Return the source with a stall in it. A function, so that cloudpickle carries the classes by value."""
    from sqs_fifo_spark.datasource import SqsFifoDataSource
    from sqs_fifo_spark.options import parse_source_options
    from sqs_fifo_spark.reader import SqsFifoStreamReader

    class StallingReader(SqsFifoStreamReader):
        def read(self, partition: InputPartition) -> Iterator[Any]:
            from sqs_fifo_spark.journal import Journal
            from tests.helpers import wait_until

            context = TaskContext.get()
            assert context is not None
            attempt = context.attemptNumber()
            plan = partition.value
            if plan.epoch > 2 or plan.partition != 1:
                yield from super().read(partition)
                return
            Path(home, f"epoch-{plan.epoch}-attempt-{attempt}").touch()
            copied = Path(home, f"epoch-{plan.epoch}-copied")
            seal = Journal.seal

            def stall() -> None:
                if attempt == 0:
                    try:
                        wait_until(copied.exists, 40, "a copy has read the partition")
                    except AssertionError:
                        Path(home, "never-copied").touch()
                        raise

            def slow_seal(journal: Journal, segment: Any) -> Any:
                if plan.epoch == 1:
                    stall()
                sealed = seal(journal, segment)
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


def start_cluster() -> str:
    """Start Spark's standalone cluster in this JVM, with a worker on each of two hosts, and return its URL.

    Spark makes no speculative copy in local mode, and none on the host where the first attempt runs: `local-cluster`
    has one host. Linux answers to all of 127.0.0.0/8.
    """
    SparkContext._ensure_initialized()
    jvm, gateway = SparkContext._jvm, SparkContext._gateway
    assert jvm is not None
    assert gateway is not None
    deploy = jvm.org.apache.spark.deploy
    conf = jvm.org.apache.spark.SparkConf()
    master = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, conf)._1()
    url = f"spark://127.0.0.1:{master.address().port()}"
    urls = gateway.new_array(jvm.java.lang.String, 1)
    urls[0] = url
    for number, host in enumerate(("127.0.0.1", "127.0.0.2"), 1):
        option = jvm.scala.Option
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            host, 0, 0, 2, 512, urls, str(HOME / "work"), option.apply(number), conf, option.empty()
        )
    return url


def main() -> None:
    spark = (
        SparkSession.builder.master(start_cluster())
        .config("spark.executor.memory", "512m")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(HOME / "local"))
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "100ms")
        .config("spark.speculation.quantile", "0.25")
        .config("spark.speculation.multiplier", "1.1")
        .config("spark.speculation.minTaskRuntime", "200ms")
        .getOrCreate()
    )
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
        return depth(sqs, URL) == (0, 0)

    wait_until(is_drained, 90, "the queue is empty")
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
