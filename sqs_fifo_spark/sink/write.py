"""A sink's write on both sides, without Spark: check on the driver, send on executors, tidy up after the write."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sqs_fifo_spark.aws.calls import MAX_CALL_BYTES
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import (
    AccessDeniedError,
    JournalUnavailableError,
    OptionError,
    RowError,
    SqsFifoError,
    TransientQueueError,
)
from sqs_fifo_spark.journal.identity import JournalIdentity
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.options import SinkOptions, bad_records_in_queue
from sqs_fifo_spark.payloads.pointer import Pointer
from sqs_fifo_spark.sink.bad_records import BadRecords
from sqs_fifo_spark.sink.keepers import Keeper, PathKeeper, QueueKeeper, RecordOrigin, find_place
from sqs_fifo_spark.sink.lanes import Stride
from sqs_fifo_spark.sink.marks import forget, forget_batch_writes, new_run
from sqs_fifo_spark.sink.offload import PayloadForm
from sqs_fifo_spark.sink.outgoing import RefusedRowError, RowForm, columns_of, outgoing, queues_of
from sqs_fifo_spark.sink.progress import RowCounts
from sqs_fifo_spark.sink.record import Record, SentRecord, folder_of
from sqs_fifo_spark.sink.row_queues import RowQueues
from sqs_fifo_spark.sink.sender import Sender
from sqs_fifo_spark.sink.sink_queue import SinkQueue
from sqs_fifo_spark.sink.summary import Summary, Tally

MAX_PART_ROWS = 1_000
MAX_PART_BYTES = 4 << 20

_log = logging.getLogger(__name__)
_warned: set[str] = set()
"""Warnings that this process has logged once. Spark plans each micro-batch anew, mostly in the same process."""


@dataclass(frozen=True)
class Draft:
    """The driver's knowledge of one micro-batch or batch write without any call."""

    options: SinkOptions
    by_column: bool
    """True if rows have a deduplication id that is used."""
    run: str
    """Unique to this execution, of which all tasks and all their attempts are a part."""
    began_ms: int
    failure: str = ""
    """Reason for which the driver could not make a plan of it, if it tried and failed."""
    journal: str | None = None
    """The id of the journal that the driver has found, if it has got so far."""
    bad_records: str | None = None
    """The id of the place at `badRecordsPath` that the driver has found or made, if it could."""


@dataclass(frozen=True)
class SinkPlan:
    """A draft, with facts of queue and journal, from driver or task: how rows are sent, not which."""

    draft: Draft
    """With the ids of the journal and of the place at `badRecordsPath`, if the options have these."""
    form: RowForm
    queue: str
    """The queue's ARN."""


@dataclass(frozen=True)
class Place:
    """A task's partition and attempt, and, in a stream, its query and its micro-batch."""

    partition: int
    query: str | None
    batch: int | None
    attempt: int = 0
    """Number of attempts of this task before."""


@dataclass(frozen=True)
class Sent:
    """The end of one task: all of its `rows` are sent, but for the refused ones, which are kept elsewhere."""

    place: Place
    rows: int
    counts: RowCounts = field(default_factory=RowCounts)
    summary: Summary = field(default=Summary(), compare=False)
    """Its groups and messages, some of which other tasks may have, too."""


def draft(options: SinkOptions, *, by_column: bool, clock: Clock) -> Draft:
    began_ms = int(clock.now() * 1000)
    return Draft(options, by_column, run=new_run(began_ms), began_ms=began_ms)


def plan_for_tasks(
    given: Draft,
    *,
    queue: SinkQueue,
    open_journal: Callable[[], Store | None],
    open_bad_records: Callable[[], Store | SinkQueue | None] = lambda: None,
) -> SinkPlan | Draft | SqsFifoError:
    """Return the plan to pickle to the tasks. Runs on the driver, before the first row is sent.

    Or the draft, if queue or journal did not answer, or the AWS chain gave no credentials: each task then asks for
    itself, so that a short fault stops no query. Or an error that no retry cures, for the tasks to raise.
    """
    store: Store | None = None
    try:
        store = open_journal()
        kept_in = open_bad_records()
        if kept_in is not None and not isinstance(kept_in, SinkQueue):
            # Before the queue is asked: if that does not answer, tasks cannot make the place, and need it all the same.
            given = dataclasses.replace(given, bad_records=find_place(kept_in, may_create=True))
        return prepare(given, queue=queue, store=store, may_create=True, bad_records=kept_in)
    except SqsFifoError as error:
        if not _may_pass(error):
            return error
        failure = str(error)
        if isinstance(error, JournalUnavailableError):
            store = None  # not asked again, for each call may take minutes
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the store, or credentials that fail in a way of their own
        failure = f"The driver met {type(error).__name__}."
    _log.warning("queue or journal did not answer the driver, so each task asks for itself: %s", failure)
    return dataclasses.replace(given, failure=failure, journal=_known_id(store))


def _may_pass(error: SqsFifoError) -> bool:
    if isinstance(error, AccessDeniedError):
        return error.has_no_credentials
    return isinstance(error, (TransientQueueError, JournalUnavailableError))


def _known_id(store: Store | None) -> str | None:
    """Return the id of the journal in `store`, if there is one and it answers now."""
    try:
        return None if store is None else JournalIdentity.id_in(store)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # most likely the same error as before: a panic of the store too
        return None


def prepare(
    given: Draft,
    *,
    queue: SinkQueue,
    store: Store | None,
    may_create: bool,
    bad_records: Store | SinkQueue | None = None,
) -> SinkPlan:
    """Return the plan of one write, by the facts of queue and journal; the driver makes the journal if there is none.

    Raises OptionError, JournalMismatchError, JournalUnavailableError and JournalCorruptError, and the errors of
    `QueueCalls.describe`.
    """
    options = given.options
    facts = queue.describe()
    if not given.by_column and not facts.has_content_based_deduplication:
        raise OptionError(
            f"option 'deduplication' is 'content', but the queue '{options.queue_url}' has no "
            "ContentBasedDeduplication, so SQS would refuse every row. Turn it on, or give the rows a column "
            "messageDeduplicationId."
        )
    # With one group for all rows there are no others.
    if may_create and facts.deduplicates_across_groups and options.message_group_id is None:
        what, remedy = (
            ("messageDeduplicationId", "give no two rows the same id")
            if given.by_column
            else ("body", "give the rows a column messageDeduplicationId")
        )
        warn_once(
            f"the DeduplicationScope of the queue '{options.queue_url}' is 'queue': of rows with the same {what} "
            "within 5 minutes SQS keeps only the first, also when they stand in different groups, and takes the others "
            f"without adding them. If each group is to have its own, set the queue's DeduplicationScope to "
            f"messageGroup, or {remedy}."
        )
    journal = None
    if store is not None:
        if given.journal is not None:
            JournalIdentity.join(store, given.journal)  # the driver's, or none
        journal = JournalIdentity.find(store, facts.arn)
        if journal is None:
            if not may_create:  # on a path of its own it would make one that nobody else finds
                raise JournalUnavailableError(
                    f"{given.failure} So the driver, which makes the journal at '{store.location}', could not, and "
                    "this task does not."
                )
            JournalIdentity.check_store(store)
            journal = JournalIdentity.create(store, facts.arn)
    place = given.bad_records  # the driver's; a task that keeps rows elsewhere finds that out
    if isinstance(bad_records, SinkQueue):
        # Asked now, so that it is known to be there before a row needs it.
        if bad_records.describe().arn == facts.arn:
            raise bad_records_in_queue()
    elif bad_records is not None and place is None:
        place = find_place(bad_records, may_create=may_create)
        if place is None and not may_create:
            raise JournalUnavailableError(
                f"{given.failure} So the driver, which makes the badRecordsPath at '{bad_records.location}', could "
                "not, and this task does not."
            )
    most = min(facts.max_message_bytes, MAX_CALL_BYTES)
    form = RowForm(options.message_group_id, given.by_column, most, keeps_refused=bad_records is not None)
    return SinkPlan(
        dataclasses.replace(given, journal=journal.id if journal else None, bad_records=place), form, facts.arn
    )


def warn_once(text: str) -> None:
    """Log a warning that is the same for every micro-batch."""
    if text not in _warned:
        _warned.add(text)
        _log.warning("%s", text)


def send_partition(
    planned: SinkPlan | Draft | SqsFifoError,
    batches: Iterable[pa.RecordBatch],
    place: Place,
    *,
    queue: SinkQueue,
    open_journal: Callable[[], Store | None],
    clock: Clock,
    open_bad_records: Callable[[], Store | SinkQueue | None] = lambda: None,
    write_payload: Callable[[Pointer, bytes], None] | None = None,
) -> Sent:
    """Send a partition's rows, each group in order, and return when SQS has confirmed and the journal recorded all.

    Runs on an executor, at most once at a time in a process. `planned` is the result of `plan_for_tasks`. Rows that the
    journal knows are not sent, nor those that are refused, if there is a place for them. `write_payload` is
    `Buckets.write`, where the options have a `payloadLocation`. Raises RowError for a row that SQS does not take where
    there is no place for it, or if there are too many; PayloadError; and the errors of queue and store. Each error says
    how many rows this attempt has sent, unless it came before the first row. Once it is raised, nothing more is sent.
    """
    if isinstance(planned, SqsFifoError):
        raise planned
    parts = (part for batch in batches for part in _parts(batch))
    first = next(parts, None)
    if first is None:  # most partitions of a small shuffle: they cost no call
        return Sent(place, rows=0)
    store = open_journal()
    place_of_refused = open_bad_records()
    plan = planned
    if isinstance(plan, Draft):
        plan = prepare(plan, queue=queue, store=store, may_create=False, bad_records=place_of_refused)
    record = _record(plan, place, store, clock)
    tally = Tally(place.partition, plan.draft.run)
    form = dataclasses.replace(plan.form, payloads=_payload_form(plan, place))
    queues = RowQueues(plan.draft.options, plan.queue, form, clock)
    sender = Sender(
        queue,
        record,
        clock,
        Stride.of(plan.draft.options),
        may_be_older=place.attempt > 0,
        bad_records=_bad_records(plan, place, place_of_refused, record, clock),
        on_messages=tally.add_message_ids,
        write_payload=write_payload,
        others=queues.others,
    )
    next_row = 1
    try:
        try:
            for part in itertools.chain((first,), parts):
                own = form if (named := queues_of(part)) is None else _forms(named, queues, sender)
                rows = outgoing(columns_of(part), own, first_row=next_row)
                next_row += len(rows)
                tally.add_groups({row.group for row in rows if row.group})
                sender.add(rows)
            sender.finish()
            queue.pace.rest(sender.counts.calls)
        finally:
            sender.stop()
    except RefusedRowError as refused:
        raise RowError(
            f"row {refused.row:,} of partition {place.partition} cannot be sent: {refused.reason}. "
            f"{sender.counts.sent:,} rows of the partition were sent{_before(sender.counts)}, none of its group after "
            f"it{_but_those_of(plan)}. Correct such rows, filter them out before the sink, which never skips any, or "
            "give badRecordsPath, where they are kept."
        ) from None
    except SqsFifoError as error:
        sent = f"{sender.counts.sent:,} rows of partition {place.partition} were sent{_before(sender.counts)}."
        raise type(error)(f"{error} {sent}") from None
    return Sent(place, next_row - 1, sender.counts, tally.summary())


def _forms(named: Sequence[Any], queues: RowQueues, sender: Sender) -> Iterable[RowForm]:
    """Return each row's form by the queue that it names."""
    for given in dict.fromkeys(named):
        if given not in queues:
            sender.add(())  # raises what has failed, or is late: the next queue may take its time to answer
            queues.form(given)
    return map(queues.form, named)


def finish_write(open_journal: Callable[[], Store | None], sent: Iterable[Sent], clock: Clock) -> None:
    """Forget digests that the journal need not know any more, now that all rows are sent.

    Raises only KeyboardInterrupt and SystemExit. Runs on the driver, when Spark commits the write. In a stream that is
    before Spark commits the micro-batch, which may run again: its own record stays.
    """
    try:
        store = open_journal()
        if store is None:
            return
        for query, batch in {(each.place.query, each.place.batch) for each in sent}:
            if query is None or batch is None:
                forget_batch_writes(store, clock.now())
            else:
                forget(store, query, batch)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # all rows are sent: a write that failed now, by a panic too, would be repeated
        _log.warning("all rows are sent; what the journal need not know any more stays for now: %s", error)


def _record(plan: SinkPlan, place: Place, store: Store | None, clock: Clock) -> Record:
    if plan.draft.journal is None or store is None:
        return Record(clock)
    store = JournalIdentity.join(store, plan.draft.journal).store
    return SentRecord(
        store,
        clock,
        query=place.query,
        batch=_batch_of(plan, place),
        run=plan.draft.run,
        partition=place.partition,
        is_txn=plan.draft.options.txn_app_id is not None,
    )


def _batch_of(plan: SinkPlan, place: Place) -> str:
    return f"{plan.draft.began_ms}-{plan.draft.run}" if place.query is None else str(place.batch)


def _payload_form(plan: SinkPlan, place: Place) -> PayloadForm | None:
    options, write = plan.draft.options, folder_of(place.query, _batch_of(plan, place))
    if options.payload_location is None:
        return None
    most = plan.form.max_message_bytes
    return PayloadForm(options.payload_location, options.payload_threshold_bytes or most, f"{plan.queue}\n{write}")


def _bad_records(
    plan: SinkPlan, place: Place, kept_in: Store | SinkQueue | None, record: Record, clock: Clock
) -> BadRecords | None:
    if kept_in is None:
        return None
    options, folder = plan.draft.options, folder_of(place.query, _batch_of(plan, place))
    origin = RecordOrigin(plan.queue, plan.draft.run, place.partition, place.query, place.batch)
    keeper: Keeper
    if isinstance(kept_in, SinkQueue):
        write = f"{folder}/{place.partition}"
        keeper = QueueKeeper(kept_in, str(options.bad_records_queue_url), record, write)
    else:
        keeper = PathKeeper(kept_in, plan.draft.bad_records, folder, origin)
    goes_on = options.bad_records_group == "continue"
    return BadRecords(keeper, clock, origin, group_goes_on=goes_on, most=options.bad_records_max)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in parts small enough to be held several times over; rows of one part are checked together."""
    start = 0
    while start < batch.num_rows:
        part = batch.slice(start, MAX_PART_ROWS)
        while part.nbytes > MAX_PART_BYTES and part.num_rows > 1:
            part = part.slice(0, part.num_rows // 2)
        yield part
        start += part.num_rows


def _but_those_of(plan: SinkPlan) -> str:
    return " but in the same call, if SQS took those" if plan.draft.options.order == "batch" else ""


def _before(counts: RowCounts) -> str:
    return f", besides {counts.known:,} that had been sent before" if counts.known else ""
