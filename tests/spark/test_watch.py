"""What is seen of a running query: figures that are the queue's own, in the progress report and in each exporter."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

from sqs_fifo_spark.watch import EmbeddedMetrics, Exporter, Prometheus, SqsFifoListener
from tests.helpers import wait_until
from tests.spark.support import LONG_S, SPARK_VERSION, Rig

pytestmark = pytest.mark.skipif(SPARK_VERSION < (4, 2), reason="Spark asks sources for no figures")


def figures(query: StreamingQuery) -> dict[str, Any]:
    progress = query.lastProgress
    told: dict[str, Any] = json.loads((progress and progress["sources"][0]["latestOffset"]) or "{}")
    return told


@contextmanager
def listening(spark: SparkSession, *exporters: Exporter) -> Iterator[None]:
    listener = SqsFifoListener(*exporters)
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)


def test_what_another_consumer_blocks_shows_in_the_progress_report(rig: Rig) -> None:
    """The query is idle, and the queue has messages: only its figures tell why."""
    rig.send(20, groups=1)
    rig.call("ReceiveMessage", QueueUrl=rig.url, MaxNumberOfMessages=1, VisibilityTimeout=3_600)
    with rig.to_parquet(rig.source()) as query:
        wait_until(lambda: figures(query).get("waitingMessages") == 19, LONG_S, "the report shows what waits")
        assert figures(query)["inFlightMessages"] == 1


def test_exporters_have_the_queues_own_figures_while_the_query_is_idle(rig: Rig) -> None:
    """All rows, all receives, and nothing left; then what comes behind a message that somebody else holds."""
    registry, lines = CollectorRegistry(), io.StringIO()
    rig.send(500, groups=50)
    frame = rig.source().observe(
        "age", expr("max(unix_millis(current_timestamp()) - unix_millis(sentTimestamp)) AS oldest_ms")
    )
    with listening(rig.spark, Prometheus(registry), EmbeddedMetrics(lines)), rig.to_parquet(frame) as query:
        labels = {"query": query.id, "queue": "test.fifo"}

        def figure(name: str) -> float | None:
            return registry.get_sample_value(f"sqs_fifo_{name}", labels)

        def is_drained() -> bool:
            left = [figure(f"{name}_messages") for name in ("waiting", "in_flight", "delayed")]
            return rig.depth() == (0, 0) and figure("rows_total") == 500 and left == [0, 0, 0]

        rig.drain(query)
        wait_until(is_drained, LONG_S, "the figures are those of a drained queue")
        asked = rig.server.requests.counts()["ReceiveMessage"]
        receives = figure("receives_total")
        assert receives is not None
        assert 50 < receives <= asked
        ages = [each["observedMetrics"]["age"].oldest_ms for each in query.recentProgress if each["observedMetrics"]]
        assert any(ages)

        rig.send(1, groups=1)
        wait_until(lambda: figure("rows_total") == 501, LONG_S, "its row is told")
        told = [json.loads(line) for line in lines.getvalue().splitlines()]
        assert sum(line["Rows"] for line in told) == 501
        assert {line["Queue"] for line in told} == {"test.fifo"}
