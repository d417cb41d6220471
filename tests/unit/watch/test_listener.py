"""Spark's progress reports as samples: which sources, which figures, and what of them counts when."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.streaming.listener import QueryIdleEvent, QueryProgressEvent, QueryTerminatedEvent

from sqs_fifo_spark.watch import METRICS, Sample, SqsFifoListener
from sqs_fifo_spark.watch import listener as module

ID, RUN, OTHER_RUN = (str(UUID(int=number)) for number in (1, 2, 3))
FIGURES = {
    "queue": "orders.fifo",
    "epoch": 7,
    "waitingMessages": 19,
    "inFlightMessages": 1,
    "delayedMessages": 2,
    "oldestMessageAgeSeconds": 3.5,
    "receives": 40,
    "retries": 1,
    "unconfirmedDeletes": 4,
    "lostLeases": 5,
}


class Kept:
    """An exporter that keeps what it gets."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.ended: list[str] = []

    def export(self, sample: Sample) -> None:
        self.samples.append(sample)

    def end(self, run_id: str) -> None:
        self.ended.append(run_id)


class Broken:
    def export(self, given: object) -> None:
        raise OSError("no route")

    end = export


def progress(*told: Any, rows: int = 0, name: str | None = "orders", run: str = RUN) -> QueryProgressEvent:
    """A report of a micro-batch with one source for each of `told`, which is what the source has told."""
    counted = {"numInputRows": rows, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0, "metrics": {}}
    offsets = {"description": "PythonMicroBatchStream", "startOffset": None, "endOffset": None}
    source: dict[str, Any] = {**counted, **offsets}
    report = {
        **counted,
        "id": ID,
        "runId": run,
        "name": name,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "batchId": 3,
        "batchDuration": 100,
        "durationMs": {"triggerExecution": 100},
        "eventTime": {},
        "stateOperators": [],
        "sources": [{**source, "latestOffset": each if isinstance(each, str) else json.dumps(each)} for each in told],
        "sink": {"description": "sink", "numOutputRows": rows, "metrics": {}},
        "observedMetrics": {},
    }
    return QueryProgressEvent.fromJson({"progress": report})


def idle(listener: SqsFifoListener, last: QueryProgressEvent | None, run: str = RUN) -> None:
    """Let Spark tell that the query is idle, when its last report is `last`."""
    query = SimpleNamespace(lastProgress=last and last.progress)
    listener.spark = SimpleNamespace(streams=SimpleNamespace(active=[query]))
    listener.onQueryIdle(QueryIdleEvent(UUID(ID), UUID(run), "2026-01-01T00:00:00.000Z"))


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def listener(kept: Kept) -> SqsFifoListener:
    return SqsFifoListener(kept)


def test_a_sample_has_all_figures_of_the_report(kept: Kept, listener: SqsFifoListener) -> None:
    """And the rows of the micro-batch, by the query's name."""
    listener.onQueryProgress(progress(FIGURES, rows=12))
    (sample,) = kept.samples
    assert (sample.query, sample.queue, sample.run_id) == ("orders", "orders.fifo", RUN)
    assert sample.at_s == datetime(2026, 1, 1, tzinfo=timezone.utc).timestamp()
    told = {name: value for name, value in FIGURES.items() if name not in ("queue", "epoch")}
    assert sample.figures == {**told, "rows": 12}
    assert list(sample.figures) == [each.figure for each in METRICS]


def test_a_figure_that_is_not_known_is_in_no_sample(kept: Kept, listener: SqsFifoListener) -> None:
    """As the age before the first micro-batch is over."""
    listener.onQueryProgress(progress({**FIGURES, "oldestMessageAgeSeconds": None}))
    assert {each.figure for each in METRICS} - kept.samples[0].figures.keys() == {"oldestMessageAgeSeconds"}


def test_a_query_without_a_name_goes_by_its_id(kept: Kept, listener: SqsFifoListener) -> None:
    """It is the same after a restart."""
    listener.onQueryProgress(progress(FIGURES, name=None))
    assert kept.samples[0].query == ID


@pytest.mark.parametrize("told", [None, "null", "7", "not JSON", {"offset": 4}, {"queue": "q"}, [1], "[1]"])
def test_other_sources_are_left_alone(told: Any, kept: Kept, listener: SqsFifoListener) -> None:
    """Also before Spark 4.2, where no source tells any figures."""
    listener.onQueryProgress(progress(told, FIGURES, told))
    assert [sample.queue for sample in kept.samples] == ["orders.fifo"]


@pytest.mark.parametrize(("other", "shown"), [("other.fifo", "other.fifo"), ("orders.fifo", "orders.fifo (1)")])
def test_two_queues_of_a_query_are_two_samples(other: str, shown: str, kept: Kept, listener: SqsFifoListener) -> None:
    """Each with its own totals. Two of one name lie in two regions, or it is one queue that is read twice."""
    for receives in (10, 15):
        listener.onQueryProgress(progress(FIGURES, {**FIGURES, "queue": other, "receives": receives}, rows=3))
    assert [(each.queue, each.growth["receives"], each.figures["rows"]) for each in kept.samples] == [
        ("orders.fifo", 40, 3),
        (shown, 10, 3),
        ("orders.fifo", 0, 6),
        (shown, 5, 6),
    ]


def test_rows_of_a_report_without_figures_are_told_with_the_next(kept: Kept, listener: SqsFifoListener) -> None:
    """As of the first micro-batch after some restarts."""
    listener.onQueryProgress(progress(None, rows=5))
    listener.onQueryProgress(progress(FIGURES, rows=2))
    assert [sample.growth["rows"] for sample in kept.samples] == [7]


def test_totals_do_not_go_back(kept: Kept, listener: SqsFifoListener) -> None:
    """The last report, which an idle query's event stands for, may be told before those that came before it."""
    idle(listener, progress({**FIGURES, "receives": 9}))
    listener.onQueryProgress(progress({**FIGURES, "receives": 4}, rows=2))
    assert [sample.figures["receives"] for sample in kept.samples] == [9, 9]
    assert [sample.growth["receives"] for sample in kept.samples] == [9, 0]


def test_growth_adds_up_to_the_totals(kept: Kept, listener: SqsFifoListener) -> None:
    """From 0 at the start of each run."""
    for run, receives, rows in ((RUN, 3, 5), (RUN, 10, 0), (OTHER_RUN, 4, 7), (RUN, 10, 2)):
        listener.onQueryProgress(progress({**FIGURES, "receives": receives}, rows=rows, run=run))
    assert [sample.growth["receives"] for sample in kept.samples] == [3, 7, 4, 0]
    assert [sample.growth["rows"] for sample in kept.samples] == [5, 0, 7, 2]
    assert [sample.figures["rows"] for sample in kept.samples] == [5, 5, 7, 7]


def test_an_idle_query_is_told_too_and_its_rows_count_once(kept: Kept, listener: SqsFifoListener) -> None:
    """Spark's event has no figures, and its last report may still be that of a micro-batch."""
    listener.onQueryProgress(progress({**FIGURES, "waitingMessages": 3}, rows=12))
    idle(listener, progress(FIGURES, rows=12))
    assert [sample.figures["waitingMessages"] for sample in kept.samples] == [3, 19]
    assert [sample.figures["rows"] for sample in kept.samples] == [12, 12]


def test_an_idle_event_without_a_report_of_its_run_is_no_sample(kept: Kept, listener: SqsFifoListener) -> None:
    """The run has only begun, or is over by the time that its event is handled."""
    idle(listener, None)
    idle(listener, progress(FIGURES), run=OTHER_RUN)
    listener.spark = SimpleNamespace(streams=SimpleNamespace(active=[]))
    listener.onQueryIdle(QueryIdleEvent(UUID(ID), UUID(RUN), "2026-01-01T00:00:00.000Z"))
    assert not kept.samples


def test_an_exporter_that_fails_is_told_of_and_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Nor does it stop the query."""
    kept = Kept()
    listener = SqsFifoListener(Broken(), kept)
    with caplog.at_level(logging.WARNING, "sqs_fifo_spark"):
        listener.onQueryProgress(progress(FIGURES))
        listener.onQueryTerminated(QueryTerminatedEvent(UUID(ID), UUID(RUN), None, None))
    assert len(kept.samples) == 1
    assert kept.ended == [RUN]
    assert [one.getMessage() for one in caplog.records] == ["Broken has not sent the figures of a query: no route"] * 2


@pytest.mark.parametrize("has_figures", [True, False])
def test_a_spark_that_asks_for_no_figures_is_told_of_once(
    has_figures: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a dashboard stays empty, and nothing says why."""
    monkeypatch.setattr(module, "HAS_FIGURES", has_figures)
    module.warn_of_old_spark.cache_clear()
    with caplog.at_level(logging.WARNING, "sqs_fifo_spark"):
        SqsFifoListener(Kept())
        SqsFifoListener(Kept())
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (0 if has_figures else 1)
    assert all("Use Spark 4.2 or later" in each and all(one.figure in each for one in METRICS) for each in said)
