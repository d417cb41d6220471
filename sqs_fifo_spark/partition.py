"""The executor's side: read one partition of one epoch, the same rows however often it is asked.

    segment there?  -> serve it
    else            receive under a lease, seal, serve what is sealed

The first row is served after the segment exists, so a partition without a segment has never shown a row to
anyone and may receive afresh. What is received twice is not decided here: a message that somebody received before
is deferred, and the driver decides about it once the epoch is closed and nothing can be sealed any more.
"""

from __future__ import annotations

import functools
import logging
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from sqs_fifo_spark.calls import MAX_ENTRIES
from sqs_fifo_spark.clock import SYSTEM_CLOCK, Clock
from sqs_fifo_spark.errors import EpochSettledError, JournalCorruptError, JournalUnavailableError, TransientQueueError
from sqs_fifo_spark.journal import Journal
from sqs_fifo_spark.lease import Heartbeat, Lease
from sqs_fifo_spark.message import Message, from_arrow, to_arrow
from sqs_fifo_spark.options import SourceOptions
from sqs_fifo_spark.queue import Queue
from sqs_fifo_spark.segment import Origin, Segment
from sqs_fifo_spark.settling import release
from sqs_fifo_spark.store import open_store

_log = logging.getLogger(__name__)
ROWS_PER_BATCH = 2_000


@dataclass(frozen=True)
class PartitionPlan:
    """What one task is to read, made by the driver; the same for every attempt.

    `handed` are messages that the driver's probe received, and `carried` names messages that an earlier epoch
    deferred: both are decided, and served before anything that the task receives itself. `decided_groups` are the
    groups of all that is decided for any partition, or left for a later epoch: SQS locks them, unless it has lost
    what we hold of them, and then what a task receives of them waits for its turn.
    """

    journal: str
    epoch: int
    partitions: int
    partition: int
    max_messages: int
    max_bytes: int
    handed: tuple[Message, ...] = ()
    carried: tuple[tuple[str, tuple[str, ...]], ...] = ()
    decided_groups: frozenset[str] = frozenset()


def read_partition(options: SourceOptions, plan: PartitionPlan) -> Iterator[pa.RecordBatch]:
    """Yield the partition's rows, in order, with the columns of `ARROW_SCHEMA`.

    Runs in an executor's Python worker; may run many times, at once and after the query. Raises EpochSettledError
    for an epoch that is committed, JournalCorruptError for a damaged segment, and the errors of queue and store.
    """
    journal = _journal(options.journal_location, options.region, plan.journal)
    rows = serve(plan, Queue(options, SYSTEM_CLOCK), journal, options, SYSTEM_CLOCK)
    for start in range(0, rows.num_rows, ROWS_PER_BATCH):
        yield rows.slice(start, ROWS_PER_BATCH)


def serve(plan: PartitionPlan, queue: Queue, journal: Journal, options: SourceOptions, clock: Clock) -> pa.RecordBatch:
    """Return the partition's rows, from its segment, which is made first if there is none."""
    sealed = journal.read(journal.segment_name(plan.epoch, plan.partition))
    if sealed is None:
        sealed = _receive_and_seal(plan, queue, journal, options, clock)
    else:
        journal.require_open(plan.epoch)  # or it may be a leftover's, put where the epoch's own has been dropped
    return sealed.served()


def _receive_and_seal(
    plan: PartitionPlan, queue: Queue, journal: Journal, options: SourceOptions, clock: Clock
) -> Segment:
    journal.require_open(plan.epoch)
    origin = Origin(plan.journal, plan.epoch, plan.partitions, plan.partition, uuid.uuid4().hex)
    lease = Lease(queue, clock, visibility_timeout_s=options.visibility_timeout_s, heartbeat_s=options.heartbeat_s)
    heartbeat = Heartbeat(lease, clock, every_s=options.heartbeat_s)
    decided = _decided(plan, journal)
    heartbeat.start()
    try:
        received = _receive(plan, decided, queue, lease, options, clock)
        heartbeat.check()
        own = len(decided)
        segment = _segment(origin, plan, decided, received)
        del decided, received  # the segment has the bodies, too; sealing makes more copies of them
        try:
            sealed = journal.seal(segment)
            if sealed.origin.writer != origin.writer:
                _keep_spare(segment, own, journal)
        except EpochSettledError:
            release(segment.receipts[own:], queue=queue, lease=lease)
            raise
    finally:
        heartbeat.stop()
    return sealed


def _decided(plan: PartitionPlan, journal: Journal) -> list[Message]:
    """Return the messages that the plan hands over, those carried from the journal with their rows.

    Their receives are numbered afresh from 0; this attempt's own follow.
    """
    messages: list[Message] = []
    numbers: dict[tuple[str, int], int] = {}

    def take(message: Message, name: str) -> None:
        number = numbers.setdefault((name, message.receipt.receive), len(numbers))
        messages.append(replace(message, receipt=replace(message.receipt, deferred=False, receive=number)))

    for message in plan.handed:
        take(message, "")
    for name, message_ids in plan.carried:
        source = journal.read(name)
        if source is None:
            raise EpochSettledError(
                f"'{name}', from which epoch {plan.epoch} takes over messages, is gone. Unless the epoch is committed, "
                "and this task is a leftover, somebody has removed it: start the query again."
            )
        places = {receipt.message_id: place for place, receipt in enumerate(source.receipts)}
        if not places.keys() >= set(message_ids):
            raise JournalCorruptError(
                f"'{name}' in the journal is not what the driver saw there: it lacks messages that epoch {plan.epoch} "
                "takes over. What is not committed is still in the queue. Restore the object."
            )
        wanted = [places[message_id] for message_id in message_ids]
        for message in from_arrow([source.receipts[place] for place in wanted], source.rows.take(wanted)):
            take(message, name)
    return messages


def _receive(
    plan: PartitionPlan,
    decided: list[Message],
    queue: Queue,
    lease: Lease,
    options: SourceOptions,
    clock: Clock,
) -> list[Message]:
    """Receive until a limit, the first empty answer, or the end of the fetch time. Return what is still held."""
    received: list[Message] = []
    count, size = len(decided), sum(message.size for message in decided)
    deadline = clock.monotonic() + options.max_fetch_s
    receive = 1 + max((message.receipt.receive for message in decided), default=-1)
    while count < plan.max_messages and size < plan.max_bytes:
        asked_at = clock.monotonic()
        if asked_at >= deadline:
            break
        try:
            answer = queue.receive(
                min(MAX_ENTRIES, plan.max_messages - count), receive=receive, budget_s=deadline - asked_at
            )
        except TransientQueueError as error:
            _log.warning("epoch %d, partition %d stops receiving early: %s", plan.epoch, plan.partition, error)
            break
        if not answer:
            break
        lease.hold((message.receipt for message in answer), since=asked_at)
        received += answer
        count += len(answer)
        size += sum(message.size for message in answer)
        receive += 1
    # A group of which anything has lapsed may be somebody else's by now. SQS hands it out again.
    lapsed = {each.receipt.message_group_id for each in received if not lease.is_held(each.receipt)}
    return [message for message in received if message.receipt.message_group_id not in lapsed]


def _segment(origin: Origin, plan: PartitionPlan, decided: list[Message], received: list[Message]) -> Segment:
    """Return this attempt's segment: what is decided in front, then what it received itself, each by sequence number.

    What it received is deferred if somebody received it before, whoever that was, if its group is among the plan's
    decided ones, and if something of its group before it is deferred.
    """
    messages = sorted(decided, key=_sequence_number)
    deferred_groups = set(plan.decided_groups)
    for message in sorted(received, key=_sequence_number):
        receipt = message.receipt
        if receipt.receive_count > 1 or receipt.message_group_id in deferred_groups:
            deferred_groups.add(receipt.message_group_id)
            message = replace(message, receipt=replace(receipt, deferred=True))
        messages.append(message)
    return Segment(origin, tuple(message.receipt for message in messages), to_arrow(messages))


def _sequence_number(message: Message) -> int:
    return message.receipt.sequence_number


def _keep_spare(lost: Segment, first: int, journal: Journal) -> None:
    """Give what this attempt received, from row `first` on, to the next epoch, as another attempt's segment won."""
    receipts = tuple(replace(receipt, deferred=True) for receipt in lost.receipts[first:])
    if not receipts:
        return
    try:
        journal.put_spare(Segment(lost.origin, receipts, lost.rows.slice(first)))
    except JournalUnavailableError as error:
        _log.warning(
            "%d messages that a second attempt received come again after their visibility timeout: %s",
            len(receipts),
            error,
        )


@functools.cache
def _journal(location: str, region: str | None, journal_id: str) -> Journal:
    """This process's view of the journal, found once; never shared with a forked child."""
    return Journal.join(open_store(location, region), journal_id)


os.register_at_fork(after_in_child=_journal.cache_clear)
