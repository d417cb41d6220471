"""Figures of a running query are the queue's own: in the progress report, in exporters, and where they are shown."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

import sqs_fifo_spark
from sqs_fifo_spark.watch import EmbeddedMetrics, Exporter, Prometheus, SqsFifoListener
from tests.helpers import wait_until
from tests.spark.support import LONG_S, SPARK_VERSION, Rig
from tests.unit.test_readme import DOCS, snippets

pytestmark = pytest.mark.skipif(SPARK_VERSION < (4, 2), reason="Spark asks sources for no figures")


def figures(query: StreamingQuery) -> dict[str, Any]:
    progress = query.lastProgress
    told: dict[str, Any] = json.loads((progress and progress["sources"][0]["latestOffset"]) or "{}")
    return told


@pytest.fixture
def reports_at_once(spark: SparkSession) -> Iterator[None]:
    """Spark reports on an idle query every ten seconds, unless it is told otherwise."""
    name = "spark.sql.streaming.noDataProgressEventInterval"
    spark.conf.set(name, "200ms")
    try:
        yield
    finally:
        spark.conf.unset(name)


@contextmanager
def listening(spark: SparkSession, *exporters: Exporter) -> Iterator[None]:
    listener = SqsFifoListener(*exporters)
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)


@pytest.mark.usefixtures("reports_at_once")
def test_exporters_have_the_queues_own_figures_while_the_query_is_idle(rig: Rig) -> None:
    """All rows and all receives; and what waits behind a message that somebody else holds, which nothing else tells."""
    registry, lines = CollectorRegistry(), io.StringIO()
    rig.send(100, groups=10)
    rig.call("ReceiveMessage", QueueUrl=rig.url, MaxNumberOfMessages=1, VisibilityTimeout=3_600)
    frame = rig.source().observe(
        "age", expr("max(unix_millis(current_timestamp()) - unix_millis(sentTimestamp)) AS oldest_ms")
    )
    with listening(rig.spark, Prometheus(registry), EmbeddedMetrics(lines)), rig.to_parquet(frame) as query:
        labels = {"query": query.id, "queue": "test.fifo"}

        def figure(name: str) -> float | None:
            return registry.get_sample_value(f"sqs_fifo_{name}", labels)

        def is_idle() -> bool:
            left = [figure(f"{name}_messages") for name in ("waiting", "in_flight", "delayed")]
            return rig.depth() == (9, 1) and figure("rows_total") == 90 and left == [9, 1, 0]

        wait_until(is_idle, LONG_S, "the figures are those of a queue with one group that is locked")
        reported = figures(query)
        assert (reported["waitingMessages"], reported["inFlightMessages"]) == (9, 1)
        receives = figure("receives_total")
        assert receives is not None
        assert 9 < receives <= rig.server.requests.counts()["ReceiveMessage"]
        ages = [each["observedMetrics"]["age"].oldest_ms for each in query.recentProgress if each["observedMetrics"]]
        assert any(ages)

        rig.send(1, groups=7)
        wait_until(lambda: figure("rows_total") == 91, LONG_S, "its row is told")
        told = [json.loads(line) for line in lines.getvalue().splitlines()]
        assert sum(line["Rows"] for line in told) == 91
        assert {line["Queue"] for line in told} == {"test.fifo"}


def test_a_run_has_a_bar_while_it_lasts_and_a_plot_of_its_lag_afterwards(
    rig: Rig, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plot is the example on the page, with what draws it taken out."""
    rig.send(60, groups=6)
    with rig.to_parquet(rig.source(maxMessagesPerTrigger=20), availableNow=True) as query:
        sqs_fifo_spark.show_progress(query, every_s=0.1)
        assert not query.isActive
        assert re.search(r"test\.fifo .* 60/60 [\d,]+ rows/s", capsys.readouterr().out)
    pd: Any = pytest.importorskip("pandas")
    plots: list[Any] = []
    drawer = SimpleNamespace(plot=lambda frame, **named: plots.append(frame), __name__="drawer")
    monkeypatch.setitem(sys.modules, "drawer", drawer)
    (example,) = (code for code in snippets(DOCS / "troubleshooting.md") if code.startswith("import json\n"))
    with pd.option_context("plotting.backend", "drawer"):
        exec(example, {"query": query})
    (plot,) = plots
    assert plot["waitingMessages"].iloc[-1] == 0
    assert plot["oldestMessageAgeSeconds"].isna().tolist() == [True, *[False] * (len(plot) - 1)]
