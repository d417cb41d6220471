"""Spark's events of running queries as samples: one for each progress report, idle ones too."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from sqs_fifo_spark.clock import SYSTEM_CLOCK, Clock
from sqs_fifo_spark.watch.sample import METRICS, Exporter, Sample

_log = logging.getLogger(__name__)


class SqsFifoListener(StreamingQueryListener):
    """Gives the figures of all sources of this format to exporters. Runs on the driver; other sources are left alone.

    Spark calls it beside the queries, on a thread of its own: a slow exporter delays no query.
    """

    def __init__(self, *exporters: Exporter, spark: SparkSession | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        """`spark` is the session whose queries it is added to, if that is not the application's first."""
        if spark is not None:
            self.spark = spark
        self._exporters = exporters
        self._clock = clock
        self._totals: dict[tuple[str, str], dict[str, float]] = {}
        """What the totals of each run and queue were."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """There is nothing to tell yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self._take(event.progress, has_run=True)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Take the report that Spark makes of an idle query, but sends to no listener."""
        session = self.spark or SparkSession.active()
        for query in session.streams.active:
            progress = query.lastProgress
            if progress is not None and str(progress.runId) == str(event.runId):
                self._take(progress, has_run=False)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        run_id = str(event.runId)
        self._totals = {key: totals for key, totals in self._totals.items() if key[0] != run_id}
        for exporter in self._exporters:
            try:
                exporter.end(run_id)
            except Exception as error:
                self._tell(exporter, error)

    def _take(self, progress: StreamingQueryProgress, *, has_run: bool) -> None:
        """Export what a report tells. `has_run`: of a micro-batch, whose rows count."""
        query, run_id = progress.name or str(progress.id), str(progress.runId)
        for source in progress.sources:
            told = _figures(source.latestOffset)
            if told is None:
                continue
            queue = str(told["queue"])
            before = self._totals.get((run_id, queue), {})
            figures = {each.figure: float(told.get(each.figure, 0)) for each in METRICS}
            figures["rows"] = before.get("rows", 0.0) + (source.numInputRows if has_run else 0)
            totals = {each.figure: figures[each.figure] for each in METRICS if each.is_total}
            growth = {name: total - before.get(name, 0.0) for name, total in totals.items()}
            self._totals[run_id, queue] = totals
            self._export(Sample(query, queue, run_id, self._clock.now(), figures, growth))

    def _export(self, sample: Sample) -> None:
        for exporter in self._exporters:
            try:
                exporter.export(sample)
            except Exception as error:  # another exporter's sample need not be lost with it
                self._tell(exporter, error)

    def _tell(self, exporter: Exporter, error: Exception) -> None:
        _log.warning("%s has not sent the figures of a query: %s", type(exporter).__name__, error)


def _figures(told: str | None) -> Mapping[str, Any] | None:
    """Return what our `reportLatestOffset` has told; None for another source, or where it has told nothing yet."""
    try:
        figures = json.loads(told or "null")
    except ValueError:
        return None
    return figures if isinstance(figures, dict) and "queue" in figures and "waitingMessages" in figures else None
