"""What a sink does on either side, without Spark: check on the driver, send on executors, tidy up after the write."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from sqs_fifo_spark.calls import MAX_CALL_BYTES
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import OptionError, RowError, SqsFifoError
from sqs_fifo_spark.journal import Journal
from sqs_fifo_spark.options import SinkOptions
from sqs_fifo_spark.outgoing import RefusedRow, RowForm, columns_of, outgoing
from sqs_fifo_spark.sender import Sender
from sqs_fifo_spark.sent_record import NoRecord, Record, SentRecord, forget, forget_batch_writes
from sqs_fifo_spark.sink_queue import SinkQueue
from sqs_fifo_spark.store import Store

MAX_PART_ROWS = 1_000
MAX_PART_BYTES = 4 << 20


@dataclass(frozen=True)
class SinkPlan:
    """What the driver has found out, for the tasks of one micro-batch or batch write. Pickled to the executors."""

    options: SinkOptions
    form: RowForm
    journal: str | None
    """The id of the journal at `journalLocation`."""
    run: str
    """Unique to this execution, of which all tasks and all their attempts are a part."""
    began_ms: int


@dataclass(frozen=True)
class Place:
    """Where a task stands: its partition, and, in a stream, its query and its micro-batch."""

    partition: int
    query: str | None
    batch: int | None


@dataclass(frozen=True)
class Sent:
    """What one task has done: all of its `rows` are sent.

    The journal knew `known` of them before; at least `equal` of the others SQS has taken for equal to earlier ones.
    """

    place: Place
    rows: int
    known: int = 0
    equal: int = 0


def prepare(options: SinkOptions, *, by_column: bool, queue: SinkQueue, store: Store | None, clock: Clock) -> SinkPlan:
    """Return the plan of one write, after a look at queue and journal; the journal is made if there is none.

    Runs on the driver, before the first row is sent. `by_column` says that rows have a deduplication id that is used.
    Raises OptionError, JournalMismatchError, JournalUnavailableError and JournalCorruptError, and what
    `QueueCalls.describe` raises.
    """
    facts = queue.describe()
    if not by_column and not facts.has_content_based_deduplication:
        raise OptionError(
            f"option 'deduplication' is 'content', but the queue '{options.queue_url}' has no "
            "ContentBasedDeduplication, so SQS would refuse every row. Turn it on, or give the rows a column "
            "messageDeduplicationId."
        )
    journal = None
    if store is not None:
        journal = Journal.find(store, facts.arn)
        if journal is None:
            Journal.check_store(store)
            journal = Journal.create(store, facts.arn)
    return SinkPlan(
        options,
        RowForm(options.message_group_id, by_column, min(facts.max_message_bytes, MAX_CALL_BYTES)),
        journal=journal.id if journal else None,
        run=uuid.uuid4().hex,
        began_ms=int(clock.now() * 1000),
    )


def send_partition(
    plan: SinkPlan,
    batches: Iterable[pa.RecordBatch],
    place: Place,
    *,
    queue: SinkQueue,
    store: Store | None,
    clock: Clock,
) -> Sent:
    """Send a partition's rows, each group in order, and return when SQS has confirmed and the journal recorded all.

    Runs on an executor, at most once at a time in a process. Rows that the journal knows are not sent. Raises RowError
    for a row that SQS does not take, and the errors of queue and store. Each says how many rows this attempt has sent,
    but for those that come before its first row; when it is raised, nothing more is.
    """
    parts = (part for batch in batches for part in _parts(batch))
    first = next(parts, None)
    if first is None:  # most partitions of a small shuffle: they cost no call
        return Sent(place, rows=0)
    sender = Sender(queue, _record(plan, place, store, clock), clock)
    next_row = 1
    try:
        try:
            for part in itertools.chain((first,), parts):
                rows = outgoing(columns_of(part, first_row=next_row), plan.form, first_row=next_row)
                next_row += len(rows)
                sender.add(rows)
            sender.finish()
        finally:
            sender.stop()
    except RefusedRow as refused:
        raise RowError(
            f"row {refused.row:,} of partition {place.partition} cannot be sent: {refused.reason}. {sender.sent:,} "
            f"rows of the partition were sent{_before(sender)}, none of its group after it. Correct such rows, or "
            "filter them out before the sink, which never skips any."
        ) from None
    except SqsFifoError as error:
        sent = f"{sender.sent:,} rows of partition {place.partition} were sent{_before(sender)}."
        raise type(error)(f"{error} {sent}") from None
    return Sent(place, rows=next_row - 1, known=sender.known, equal=sender.equal)


def finish_write(store: Store | None, sent: Iterable[Sent], clock: Clock) -> None:
    """Forget what the journal need not know any more, now that all rows are sent.

    Runs on the driver, when Spark commits the write. In a stream that is before Spark commits the micro-batch, which
    may run again: its own record stays.
    """
    if store is None:
        return
    for query, batch in {(each.place.query, each.place.batch) for each in sent}:
        if query is None or batch is None:
            forget_batch_writes(store, clock.now())
        else:
            forget(store, query, batch)


def _record(plan: SinkPlan, place: Place, store: Store | None, clock: Clock) -> Record:
    if plan.journal is None or store is None:
        return NoRecord(clock)
    Journal.join(store, plan.journal)
    batch = f"{plan.began_ms}-{plan.run}" if place.query is None else str(place.batch)
    return SentRecord(store, clock, query=place.query, batch=batch, run=plan.run, partition=place.partition)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in parts small enough to be held several times over; rows of one part are checked together."""
    start = 0
    while start < batch.num_rows:
        part = batch.slice(start, MAX_PART_ROWS)
        while part.nbytes > MAX_PART_BYTES and part.num_rows > 1:
            part = part.slice(0, part.num_rows // 2)
        yield part
        start += part.num_rows


def _before(sender: Sender) -> str:
    return f", besides {sender.known:,} that had been sent before" if sender.known else ""
