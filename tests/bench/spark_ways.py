"""Drains and writes by Spark: the connector's, the naive source's, and empty micro-batches.

A drain's sink is `foreachBatch` that brings group, number and size of each row to the driver as Arrow: little work, but
all rows are there, and are checked once the time is taken.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.bench.measure import Way, Window
from tests.bench.model import Bench, Job
from tests.bench.peers import SENDERS, check_sent
from tests.bench.queue_process import body_of
from tests.helpers import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

PROGRESS_S = 120.0
"""A query that gives no row for so long has failed."""
COLUMNS = ("messageGroupId", "sequenceNumber", "length(body) AS size")
S3_LOCATION = "s3://journals"
SOURCE_WAYS = ("commit", "journal", "commit-s3", "journal-s3", "commit-pointers", "journal-pointers")
_numbers = itertools.count(1)


class Arrivals:
    """Rows that a query has given its sink, one table for each micro-batch."""

    def __init__(self, columns: tuple[str, ...] = COLUMNS) -> None:
        self._columns = columns
        # Held while a micro-batch is taken; guards _is_closed.
        self._taking = threading.Lock()
        self._is_closed = False
        # Guards what follows; notified at each micro-batch.
        self._changed = threading.Condition()
        self.tables: list[pa.Table] = []
        self.numbers: list[int] = []
        self.times: list[tuple[float, float]] = []
        """When each was there: `time.monotonic()`, and the wall clock."""
        self.count = 0

    def take(self, batch: DataFrame, number: int) -> None:
        """The function for `foreachBatch`."""
        with self._taking:
            if not self._is_closed:
                self._take(batch, number)

    def close(self) -> None:
        """Take nothing any more, and return when nothing is being taken: a query that is stopped then logs no error."""
        with self._taking:
            self._is_closed = True

    def _take(self, batch: DataFrame, number: int) -> None:
        table = batch.selectExpr(*self._columns).toArrow()
        with self._changed:
            self.tables.append(table)
            self.numbers.append(number)
            self.times.append((time.monotonic(), time.time()))
            self.count += table.num_rows
            self._changed.notify_all()

    def wait(self, query: StreamingQuery, *, rows: int = 0, micro_batches: int = 0) -> None:
        """Return once so many are there. RuntimeError if the query ends, or gives nothing for `PROGRESS_S`."""
        with self._changed:
            while self.count < rows or len(self.tables) < micro_batches:
                before = len(self.tables), self.count
                deadline = time.monotonic() + PROGRESS_S
                while (len(self.tables), self.count) == before:
                    self._changed.wait(1.0)
                    if not query.isActive or time.monotonic() > deadline:
                        raise RuntimeError(f"{self.count} rows of {rows}: {query.exception() or query.status}")

    def first_rows_at(self) -> float:
        return next(at for (at, _), table in zip(self.times, self.tables, strict=True) if table.num_rows)

    def last_rows_at(self) -> float:
        return next(at for (at, _), table in zip(self.times[::-1], self.tables[::-1], strict=True) if table.num_rows)

    def filled(self) -> int:
        """Return how many micro-batches had rows."""
        return sum(table.num_rows > 0 for table in self.tables)

    def check(self, messages: int, groups: int, size: int | None) -> None:
        """RuntimeError unless each message came once, whole, and each group in order from micro-batch to micro-batch.

        Within one, a group may stand in several partitions, where it is deleted before the commit.
        """
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        for table in self.tables:
            named, numbered = (table.column(name).to_pylist() for name in ("messageGroupId", "sequenceNumber"))
            for group, number in sorted(zip(named, map(int, numbered), strict=True)):
                numbers[group].append(number)
            if size is not None and set(table.column("size").to_pylist()) - {size}:
                raise RuntimeError(f"a body is not of {size} bytes")
        told = sum(map(len, numbers.values()))
        if told != messages or len(numbers) != min(groups, messages):
            raise RuntimeError(f"{told} rows of {messages} messages, {len(numbers)} of {groups} groups")
        for group, each in numbers.items():
            if each != sorted(set(each)):
                raise RuntimeError(f"group {group} is not in order, or has a message twice")


@contextmanager
def query(bench: Bench, way: str, job: Job, arrivals: Arrivals) -> Iterator[StreamingQuery]:
    """Run a query over the job's queue into `arrivals`, and stop it with the block."""
    home = bench.home / f"query-{next(_numbers)}"
    options = bench.options(job)
    if way in SOURCE_WAYS:
        is_remote = way.endswith("-s3")
        options["journalLocation"] = f"{S3_LOCATION}/{home.name}" if is_remote else str(home / "journal")
        options["deleteAfter"] = way.partition("-")[0]
        if way.endswith("-pointers"):
            options.update(payloads="s3", journalEndpointUrl=bench.payloads)
    name = {"naive": "naive", "empty": "empty"}.get(way, "sqsfifo")
    stream = bench.sessions.session.readStream.format(name).options(**options).load()
    writer = stream.writeStream.foreachBatch(arrivals.take)
    running = writer.option("checkpointLocation", str(home / "checkpoint")).start()
    try:
        yield running
    finally:
        arrivals.close()
        running.stop()


def _drain(way: str) -> Way:
    def drain(bench: Bench, job: Job, window: Window) -> None:
        """From when the backlog shows up before a running query, until the sink has it and the queue is empty."""
        arrivals = Arrivals()
        if way != "naive":
            # A query is known to run by its first micro-batch, which is empty and comes after one long poll.
            job = replace(job, options={"waitTimeSeconds": "1", **job.options})
        with query(bench, way, job, arrivals) as running:
            arrivals.wait(running, micro_batches=1)
            window.open()
            bench.queue.release(job.url)
            arrivals.wait(running, rows=job.messages)
            wait_until(lambda: bench.queue.depth(job.url) == 0, PROGRESS_S, "the queue is empty")
            window.close()
        window.first(arrivals.first_rows_at())
        window.run.micro_batches = arrivals.filled()
        arrivals.check(job.messages, job.groups, job.size)

    return drain


def empty(bench: Bench, job: Job, window: Window) -> None:
    """So many micro-batches of a source that gives nothing: Spark's own part in each."""
    arrivals = Arrivals()
    with query(bench, "empty", job, arrivals) as running:
        arrivals.wait(running, micro_batches=3)
        begun = len(arrivals.tables)
        window.open()
        arrivals.wait(running, micro_batches=begun + job.messages)
        window.close()
        window.run.micro_batches = window.run.messages = len(arrivals.tables) - begun


def _sink(*, journal: bool) -> Way:
    def write(bench: Bench, job: Job, window: Window) -> None:
        """A batch write of rows that Spark makes up, in two tasks; each group's rows are in one of them."""
        options: Mapping[str, Any] = bench.options(job)
        if journal:
            options = {**options, "journalLocation": str(bench.home / f"sent-{next(_numbers)}")}
        frame = _rows(bench, job)
        window.open()
        frame.write.format("sqsfifo").mode("append").options(**options).save()
        window.close()
        check_sent(bench, job)

    return write


def _rows(bench: Bench, job: Job) -> DataFrame:
    groups = max(job.groups // SENDERS, 1)
    share = job.messages // SENDERS
    noise = body_of(0, job.size + 512).partition(" ")[2]
    return bench.sessions.session.range(0, share * SENDERS, 1, SENDERS).selectExpr(
        f"concat(lpad(id, 12, '0'), ' ', substr('{noise}', 1 + id % 400, {job.size - 13})) AS body",
        f"concat('g', id div {share}, '-', id % {groups}) AS messageGroupId",
        "concat('d', id) AS messageDeduplicationId",
    )


SPARK_WAYS: dict[str, Way] = {
    **{way: _drain(way) for way in (*SOURCE_WAYS, "naive")},
    "empty": empty,
    "sink": _sink(journal=False),
    "sink-journal": _sink(journal=True),
}
