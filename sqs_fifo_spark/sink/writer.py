"""Spark's writers over `write`: each of Spark's calls, and the side on which it runs.

Spark builds a stream's writer twice for each micro-batch, to pickle it to the executors and to commit or abort; that of
a batch write is built once. `write` runs on executors, everything else beside the driver.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyspark.sql.datasource
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sqs_fifo_spark.boundary import called_by_spark
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import OptionError, SqsFifoError
from sqs_fifo_spark.journal.location import journal_access, open_store
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.logs import set_subject
from sqs_fifo_spark.options import SinkOptions, bad_records_queue
from sqs_fifo_spark.payloads.buckets import open_buckets
from sqs_fifo_spark.payloads.pointer import Pointer
from sqs_fifo_spark.sink.rows import rows_to_arrow, sink_schema, uses_deduplication_column, with_known_names
from sqs_fifo_spark.sink.sink_queue import SinkQueue
from sqs_fifo_spark.sink.slots import tasks_at_once
from sqs_fifo_spark.sink.summary import compare, finding
from sqs_fifo_spark.sink.write import (
    Draft,
    Place,
    Sent,
    SinkPlan,
    draft,
    finish_write,
    plan_for_tasks,
    send_partition,
    warn_once,
)
from sqs_fifo_spark.worker import exempt_from_collection

_log = logging.getLogger(__name__)
_HAS_STREAM_ARROW = hasattr(pyspark.sql.datasource, "DataSourceStreamArrowWriter")  # from Spark 4.1 on
_StreamWriter: type = getattr(
    pyspark.sql.datasource, "DataSourceStreamArrowWriter", pyspark.sql.datasource.DataSourceStreamWriter
)
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties that Spark gives the tasks of a micro-batch, also those of batch writes inside `foreachBatch`."""
_ROWS_AT_ONCE = 100
"""Rows that become one Arrow batch where Spark gives rows."""


@dataclass
class SentMessage(WriterCommitMessage):
    """A task's report to the driver."""

    sent: Sent


class _PlannedWrite:
    """The part that both writers share: options, and a plan that is made on the driver and used on executors."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Raises SchemaError or OptionError. Makes no call: Spark builds writers to commit and to abort, too."""
        self._options = options
        self._schema = sink_schema(schema)
        self._by_column = uses_deduplication_column(self._schema, options)
        self._plan: SinkPlan | Draft | SqsFifoError | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Look at queue and journal, for the tasks; this is where the driver does so.

        Spark pickles the writer on the driver, once a write, and only for the tasks to write with it; it builds others
        that never write. If queue or journal are wrong, the tasks raise that first of all: an error raised
        here would lose its class.
        """
        if self._plan is None:
            given = draft(self._options, by_column=self._by_column, clock=SYSTEM_CLOCK)
            queue = SinkQueue(self._options, SYSTEM_CLOCK)
            self._plan = plan_for_tasks(
                given,
                queue=queue,
                open_journal=lambda: _store(self._options),
                open_bad_records=lambda: _place_of_refused(self._options),
            )
        return self.__dict__

    def _send(self, batches: Iterable[pa.RecordBatch], place: Place) -> SentMessage:
        assert self._plan is not None
        set_subject(self._options.queue_name, query=place.query, batch=place.batch, partition=place.partition)
        sharers = 1 if self._options.max_calls_per_s is None else tasks_at_once(_spark_conf())
        sent = send_partition(
            self._plan,
            map(with_known_names, batches),
            place,
            queue=SinkQueue(self._options, SYSTEM_CLOCK, sharer=place.partition, sharers=sharers),
            open_journal=lambda: _store(self._options),
            open_bad_records=lambda: _place_of_refused(self._options),
            write_payload=_payload_writer(self._options),
            clock=SYSTEM_CLOCK,
        )
        exempt_from_collection()
        return SentMessage(sent)

    def _commit(self, messages: Sequence[WriterCommitMessage | None], what: str, why_known: str) -> None:
        sent = self._sent_of(messages)
        rows = sum(each.rows for each in sent)
        known, equal, overtaking, refused = (
            sum(getattr(each.counts, name) for each in sent) for name in ("known", "equal", "overtaking", "refused")
        )
        overlap = compare([(each.place.partition, each.summary) for each in sent])
        equal += overlap.equal
        _log.info(
            "%s: partitions=%d rows=%d known=%d equal=%d overtaking=%d refused=%d",
            what,
            len(sent),
            rows,
            known,
            equal,
            overtaking,
            refused,
        )
        if refused:
            kept_in = self._options.bad_records_path or self._options.bad_records_queue_url
            _log.warning(
                "%s: %d of its %d rows are refused, and kept in '%s', each with its reason. They are not in the queue.",
                what,
                refused,
                rows,
                kept_in,
            )
        if known:
            _log.warning(
                "%s: %d of its %d rows had been sent before, and were not sent twice: %s.",
                what,
                known,
                rows,
                why_known,
            )
        if equal:
            _log.warning(
                "%s: at least %d of its %d rows are equal to rows before them, and were not added to the queue. See "
                "'deduplication'.",
                what,
                equal,
                rows,
            )
        if overtaking:
            _log.warning(
                "%s: %d of its %d rows stand in the queue before an earlier row of their group, or may do so: SQS "
                "failed that one, or gave no answer, and took these. Set 'order' to strict to exclude that.",
                what,
                overtaking,
                rows,
            )
        elif any(each.counts.follows_disorder for each in sent):
            _log.warning(
                "%s: rows stand in the queue before an earlier one of their group; its tasks log how many.", what
            )
        finish_write(lambda: _store(self._options), sent, SYSTEM_CLOCK)
        if line := finding(overlap, what, self._options):
            _log.warning("%s", line)

    def _tell_aborted(self, messages: Sequence[WriterCommitMessage | None], what: str) -> None:
        # Nothing can be taken back, and nothing need be: a row that is sent again is recognised.
        sent = self._sent_of(messages)
        _log.warning(
            "%s was aborted. Its finished partitions, %d of %d, have sent %d rows, which stay sent. The others may "
            "have sent some, too: an error of this package says how many, unless it came before the first row.",
            what,
            len(sent),
            len(messages),
            sum(each.rows - each.counts.refused for each in sent),
        )

    def _sent_of(self, messages: Sequence[WriterCommitMessage | None]) -> list[Sent]:
        """Return the tasks' reports, from which the driver knows the write for its log lines."""
        sent = [message.sent for message in messages if isinstance(message, SentMessage)]
        place = sent[0].place if sent else None
        set_subject(self._options.queue_name, query=place and place.query, batch=place and place.batch)
        return sent


class SqsFifoWriter(_PlannedWrite, DataSourceArrowWriter):
    @called_by_spark
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentMessage:
        place = _place()
        if self._options.txn_app_id is not None:
            place = replace(place, query=self._options.txn_app_id, batch=self._options.txn_version)
        if self._options.on_disorder == "fail" and place.query is None:
            raise OptionError(
                "option 'onDisorder' is 'fail', and nothing says who writes what, so that the write, if it is "
                "repeated, would not know of the disorder. Give txnAppId and txnVersion, or set onDisorder to log."
            )
        return self._send(iterator, place)

    @called_by_spark
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        has_query = all(each.place.query is not None for each in self._sent_of(messages))
        if self._options.journal_location is not None and not has_query:
            warn_once(
                "a batch write with a journal does not say who writes what, so the journal knows what was sent only "
                "until the write ends: started again, it sends everything again. If it may be repeated, give it "
                "'txnAppId' and 'txnVersion'. Inside foreachBatch Spark says it, but not to other threads than the "
                "function's own, nor with Spark Connect."
            )
        self._commit(
            messages,
            "the batch write",
            "it, or a task of it, ran again, or another write of the same micro-batch, or of the same 'txnAppId' and "
            "'txnVersion', had equal rows",
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._tell_aborted(messages, "the batch write")


class SqsFifoStreamWriter(_PlannedWrite, _StreamWriter):  # type: ignore[misc]
    """Sends the rows of one micro-batch; before Spark 4.1 they come as rows, then as Arrow batches."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        if options.txn_app_id is not None:
            raise OptionError(
                "options 'txnAppId' and 'txnVersion' are for batch writes: each micro-batch of a stream has a number "
                "of its own. Leave them out."
            )
        super().__init__(options, schema)

    @called_by_spark
    def write(self, iterator: Iterator[pa.RecordBatch] | Iterator[Row]) -> SentMessage:
        place = _place()
        if place.query is None and self._options.journal_location is not None:
            raise OptionError(
                "option 'journalLocation' is given, but Spark does not tell its tasks which query and micro-batch they "
                "belong to, by which the journal knows what was sent. Leave journalLocation out."
            )
        return self._send(iterator if _HAS_STREAM_ARROW else self._batches(iterator), place)

    @called_by_spark
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._commit(messages, f"micro-batch {batchId}", "it, or a task of it, ran again")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._tell_aborted(messages, f"micro-batch {batchId}")

    def _batches(self, rows: Iterator[Row]) -> Iterator[pa.RecordBatch]:
        while part := list(itertools.islice(rows, _ROWS_AT_ONCE)):
            yield rows_to_arrow(part, self._schema)


def _place() -> Place:
    context = TaskContext.get()
    assert context is not None
    batch = context.getLocalProperty(_BATCH)
    return Place(
        context.partitionId(),
        context.getLocalProperty(_QUERY),
        None if batch is None else int(batch),
        context.attemptNumber(),
    )


def _spark_conf() -> Callable[[str], str | None]:
    """Return a function that asks for Spark's settings, which it copies to the tasks' local properties."""
    context = TaskContext.get()
    assert context is not None
    return context.getLocalProperty


def _store(options: SinkOptions) -> Store | None:
    location = options.journal_location
    return None if location is None else open_store(location, journal_access(options))


def _payload_writer(options: SinkOptions) -> Callable[[Pointer, bytes], None] | None:
    return None if options.payload_location is None else open_buckets(journal_access(options)).write


def _place_of_refused(options: SinkOptions) -> Store | SinkQueue | None:
    queue = bad_records_queue(options)
    if queue is not None:
        return SinkQueue(queue, SYSTEM_CLOCK)
    path = options.bad_records_path
    return None if path is None else open_store(path, journal_access(options))
