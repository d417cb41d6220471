"""The figures of a query's source, and the samples of them that an exporter gets."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol


class Metric(NamedTuple):
    """One figure of the progress report, or counted from it."""

    figure: str
    """Its name in the report."""
    meaning: str
    unit: str = "messages"
    is_total: bool = False
    """True if it only grows, from 0 at the start of each run of a query."""

    @property
    def snake_name(self) -> str:
        return re.sub(r"(?=[A-Z])", "_", self.figure).lower()

    @property
    def camel_name(self) -> str:
        return self.figure[0].upper() + self.figure[1:]


METRICS = (
    Metric("waitingMessages", "About how many messages the queue has to hand out."),
    Metric("inFlightMessages", "About how many messages anybody holds."),
    Metric("delayedMessages", "About how many messages the queue's DelaySeconds hides."),
    Metric(
        "oldestMessageAgeSeconds",
        "Age of the last micro-batch's oldest message when the next trigger began.",
        "seconds",
    ),
    Metric("unconfirmedDeletes", "Committed messages whose deletes SQS has not confirmed."),
    Metric("rows", "Rows that micro-batches have read from this source.", "rows", is_total=True),
    Metric("receives", "Receives of the driver, and of tasks whose micro-batch is over.", "calls", is_total=True),
    Metric("retries", "Calls that SQS throttled, failed or did not answer.", "calls", is_total=True),
    Metric("lostLeases", "Holds on messages that the driver has lost.", is_total=True),
)


SHOWN = (
    *METRICS,
    Metric("lastReportTimestampSeconds", "When the trigger of the last report began, since 1970.", "seconds"),
)
"""The figures of an exporter that is asked for them; one that sends them gives the time of each."""
_LAST_REPORT = SHOWN[-1].figure


@dataclass(frozen=True)
class Sample:
    """All figures of one source of a query at one time."""

    query: str
    """Its name, or if it has none its id."""
    queue: str
    """Its name, with the source's place in the query if an earlier source has one of this name."""
    run_id: str
    """Of the run of the query: its totals begin at 0."""
    at_s: float
    """Beginning of the trigger, in seconds since 1970."""
    figures: Mapping[str, float]
    """By `Metric.figure`; one that is not known is missing, as the age is before the first micro-batch is over."""
    growth: Mapping[str, float]
    """Growth of each total since the sample before."""


class Exporter(Protocol):
    """Takes samples somewhere. Called on the driver, on one thread of Spark's that no query waits for."""

    def export(self, sample: Sample) -> None:
        """Send a sample, now or with later ones. Its errors are logged, and nothing stops."""

    def end(self, run_id: str) -> None:
        """Send the rest: this run is over."""


class LastSamples:
    """An exporter that keeps the last sample of each query and queue, for a reader on another thread.

    Its totals grow from run to run: a reader may miss that a query was started again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[tuple[str, str], Sample] = {}
        """Guarded by `_lock`."""

    def export(self, sample: Sample) -> None:
        with self._lock:
            last = self._last.get((sample.query, sample.queue))
            before = last.figures if last else {}
            totals = {name: before.get(name, 0.0) + growth for name, growth in sample.growth.items()}
            figures = {**sample.figures, **totals, _LAST_REPORT: sample.at_s}
            self._last[sample.query, sample.queue] = replace(sample, figures=figures)

    def end(self, run_id: str) -> None:
        """Keep the figures that stay true until the query runs again: its totals, and the time of its last report.

        Totals of a short run are asked for when it is over. The queue's counts are nobody's any more.
        """
        with self._lock:
            for key, sample in self._last.items():
                if sample.run_id == run_id:
                    kept = {name: sample.figures[name] for name in (*sample.growth, _LAST_REPORT)}
                    self._last[key] = replace(sample, figures=kept)

    def last(self) -> list[Sample]:
        with self._lock:
            return list(self._last.values())
