"""Spark's events of running queries as samples: one for each progress report, idle ones too."""

from __future__ import annotations

import functools
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from operator import methodcaller
from typing import Any

from sqs_fifo_spark.errors import needs_spark
from sqs_fifo_spark.logs import set_up
from sqs_fifo_spark.watch.sample import METRICS, Exporter, Sample

with needs_spark():
    import pyspark
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
        StreamingQueryProgress,
    )

_log = logging.getLogger(__name__)
_FIGURES_SINCE = "4.2"
"""The first Spark that asks sources for figures; with it came the module that is looked for."""

try:
    import pyspark.sql.streaming.datasource

    HAS_FIGURES = True
except ImportError:  # before Spark 4.2
    HAS_FIGURES = False


class Samples:
    """Makes samples of progress reports. Other sources are left alone."""

    def __init__(self) -> None:
        self._rows: dict[str, Counter[int]] = defaultdict(Counter)
        """Number of rows that each run had from each of its sources, by the source's place in the query."""
        self._totals: dict[str, dict[int, dict[str, float]]] = defaultdict(dict)
        """Their totals then."""

    def of(self, progress: StreamingQueryProgress, *, has_run: bool) -> Iterator[Sample]:
        """Yield the samples of a report. `has_run`: of a micro-batch, whose rows count."""
        query, run_id = progress.name or str(progress.id), str(progress.runId)
        at_s = datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00")).timestamp()
        rows, totals_of = self._rows[run_id], self._totals[run_id]
        queues: set[str] = set()
        for place, source in enumerate(progress.sources):
            rows[place] += source.numInputRows if has_run else 0
            report = _figures(source.latestOffset)
            if report is None:
                continue  # its rows come with the next report
            queue = str(report["queue"])
            if queue in queues:
                queue = f"{queue} ({place})"
            queues.add(queue)
            before = totals_of.get(place, {})
            told = {each.figure: report.get(each.figure, 0) for each in METRICS}
            figures = {name: float(value) for name, value in told.items() if value is not None}  # null: not known
            figures["rows"] = rows[place]
            # The report of an idle query may come before those of the micro-batches that it follows.
            totals = {
                each.figure: max(figures[each.figure], before.get(each.figure, 0.0))
                for each in METRICS
                if each.is_total
            }
            growth = {name: total - before.get(name, 0.0) for name, total in totals.items()}
            totals_of[place] = totals
            yield Sample(query, queue, run_id, at_s, {**figures, **totals}, growth)

    def forget(self, run_id: str) -> None:
        """Drop what is known of a run, which is over."""
        self._rows.pop(run_id, None)
        self._totals.pop(run_id, None)


class SqsFifoListener(StreamingQueryListener):
    """Gives the figures of all sources of this format to exporters. Runs on the driver; other sources are left alone.

    Spark calls it beside the queries, on a thread of its own: a slow exporter delays no query.
    """

    def __init__(self, *exporters: Exporter, spark: SparkSession | None = None) -> None:
        """`spark` is the session whose queries it is added to, if that is not the application's first."""
        warn_of_old_spark()
        if spark is not None:
            self.spark = spark
        self._exporters = exporters
        self._samples = Samples()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: there are no figures yet."""

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
        self._samples.forget(str(event.runId))
        self._to_each(methodcaller("end", str(event.runId)))

    def _take(self, progress: StreamingQueryProgress, *, has_run: bool) -> None:
        for sample in self._samples.of(progress, has_run=has_run):
            self._to_each(methodcaller("export", sample))

    def _to_each(self, call: Callable[[Exporter], None]) -> None:
        for exporter in self._exporters:
            try:
                call(exporter)
            except Exception as error:  # another exporter's sample need not be lost with it
                _log.warning("%s has not sent the figures of a query: %s", type(exporter).__name__, error)


@functools.cache
def warn_of_old_spark() -> None:
    """Set logging up, and say once in a process if this Spark is too old to show anything of a queue."""
    set_up()
    if not HAS_FIGURES:
        _log.warning(
            "Spark %s asks sources for no figures, so nothing of a queue is shown: not %s. Use Spark %s or later; or "
            "take figures from the driver's log, with SQS_FIFO_SPARK_LOG_LEVEL=INFO.",
            pyspark.__version__,
            ", ".join(each.figure for each in METRICS),
            _FIGURES_SINCE,
        )


def _figures(document: str | None) -> Mapping[str, Any] | None:
    """Return the figures of our `reportLatestOffset`; None for another source, or where it has given none yet."""
    try:
        figures = json.loads(document or "null")
    except ValueError:
        return None
    return figures if isinstance(figures, dict) and "queue" in figures and "waitingMessages" in figures else None
