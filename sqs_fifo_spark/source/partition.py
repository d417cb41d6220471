"""The executor's side: read one partition of one epoch, the same rows however often it is asked.

    a link there?   -> serve it, and go on with the next, up to the last
    else            receive under a lease, seal the next link, serve what is sealed there

A row is served after its segment exists, so what is not in the chain was never shown to anyone. All attempts append to
one chain: who finds a link taken serves that, and puts what it has received into the next. Once a link says that it is
the last, nothing is appended any more, and what was received is released. About a message that somebody received before, a task decides only one thing: if the
ledger lists it as unconfirmed, it is a copy, and is deleted at once. Any other is deferred, also one that the ledger
carries, and the driver judges it once the epoch is closed and nothing can be sealed any more.
"""

from __future__ import annotations

import functools
import logging
import os
import uuid
from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa

from sqs_fifo_spark.aws.calls import MAX_ENTRIES
from sqs_fifo_spark.clock import SYSTEM_CLOCK, Clock
from sqs_fifo_spark.errors import EpochSettledError, JournalCorruptError, TransientQueueError
from sqs_fifo_spark.journal.location import open_store
from sqs_fifo_spark.options import SourceOptions
from sqs_fifo_spark.source.journal import Journal
from sqs_fifo_spark.source.lease import Heartbeat, Lease
from sqs_fifo_spark.source.message import Message, Receipt, from_arrow, to_arrow
from sqs_fifo_spark.source.queue import Outcome, Queue
from sqs_fifo_spark.source.segment import Chain, Head, Origin, Segment
from sqs_fifo_spark.source.settling import release

_log = logging.getLogger(__name__)
ROWS_PER_BATCH = 2_000


@dataclass(frozen=True)
class PartitionPlan:
    """One task's share of a plan: what it is to read. The same for every attempt, until another driver plans again.

    `handed` are messages that the driver itself received, and `carried` names messages that an earlier epoch
    deferred: both are decided, and served before anything that the task receives itself. `reserved_groups` are the
    groups of all that is decided for any partition, or left for a later epoch, or already stands in an object that an
    earlier driver's task has put: SQS keeps them locked, unless our hold on them was lost; what a task then receives of
    them is deferred. `plan` is the plan's name, and `after` that of the task's `Origin`.
    """

    journal: str
    epoch: int
    partitions: int
    partition: int
    max_messages: int
    max_bytes: int
    plan: int = 0
    after: str = ""
    claim: int = 0
    """The claim of the driver that made this plan: only while no other has a higher one, tasks delete."""
    deletes: bool = False
    """Whether tasks delete what they have sealed; else nothing is deleted before Spark has committed it."""
    handed: tuple[Message, ...] = ()
    carried: tuple[tuple[str, tuple[str, ...]], ...] = ()
    reserved_groups: frozenset[str] = frozenset()


def read_partition(options: SourceOptions, plan: PartitionPlan) -> Iterator[pa.RecordBatch]:
    """Yield the partition's rows, in order, with the columns of `ARROW_SCHEMA`.

    Runs in an executor's Python worker; may run many times, at once and after the query. Raises EpochSettledError
    for an epoch that is settled, JournalCorruptError for a damaged segment, and the errors of queue and store.
    """
    journal = _journal(options.journal_location, options.region, plan.journal)
    for rows in serve(plan, Queue(options, SYSTEM_CLOCK), journal, options, SYSTEM_CLOCK):
        for start in range(0, rows.num_rows, ROWS_PER_BATCH):
            yield rows.slice(start, ROWS_PER_BATCH)


def serve(
    plan: PartitionPlan, queue: Queue, journal: Journal, options: SourceOptions, clock: Clock
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each link of the partition's chain, which is made, or gone on with, if it is not closed."""
    end: Head | None = None
    while end is None or not end.chain.is_last:
        link = 0 if end is None else end.origin.link + 1
        segment = journal.read(journal.segment_name(plan.epoch, plan.partition, plan.plan, link))
        # What is there may be a leftover's, put where the epoch's own has been dropped.
        journal.require_open(plan.epoch)
        if segment is None:
            break
        yield segment.served()
        end = segment.head
    else:
        return
    with _Attempt(plan, end, queue, journal, options, clock) as attempt:
        for segment in attempt.append():
            yield segment.served()


class _Attempt:
    """One attempt that appends to a chain, from the link after `end` on."""

    def __init__(
        self,
        plan: PartitionPlan,
        end: Head | None,
        queue: Queue,
        journal: Journal,
        options: SourceOptions,
        clock: Clock,
    ) -> None:
        self._plan = plan
        self._queue = queue
        self._journal = journal
        self._options = options
        self._clock = clock
        self._writer = uuid.uuid4().hex
        self._lease = Lease(
            queue, clock, visibility_timeout_s=options.visibility_timeout_s, heartbeat_s=options.heartbeat_s
        )
        self._heartbeat = Heartbeat(self._lease, clock, every_s=options.heartbeat_s)
        self._end = end
        self._in_flight: tuple[Receipt, ...] = () if end is None else end.in_flight()
        """What the chain serves up to its end, and SQS has not confirmed to have deleted."""

    def __enter__(self) -> _Attempt:
        self._heartbeat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._heartbeat.stop()

    def append(self) -> Iterator[Segment]:
        """Yield the links that this attempt appends, and those that others do meanwhile, up to the last."""
        decided = _decided(self._plan, self._journal) if self._end is None else []
        received = _receive(self._plan, decided, self._queue, self._journal, self._lease, self._options, self._clock)
        self._heartbeat.check()
        while True:
            segment = self._segment(decided, received, is_last=True)
            try:
                sealed = self._journal.seal(segment)
            except EpochSettledError:
                self._release(received)
                raise
            if sealed.head.origin.writer == self._writer:
                del decided, received, segment  # what is sealed has the bodies, too
                self._heartbeat.stop()  # from now on the driver holds it
                yield sealed
                return
            decided = []  # the chain has it
            self._end, self._in_flight = sealed.head, sealed.head.in_flight()
            yield sealed
            if sealed.head.chain.is_last:
                self._release(received)
                return

    def _release(self, received: _Received) -> None:
        release([message.receipt for message in received.messages], queue=self._queue, lease=self._lease)

    def _segment(self, decided: list[Message], received: _Received, *, is_last: bool) -> Segment:
        """Return the chain's next link: first what is decided, then what was received, each by sequence number.

        A received message is deferred if anybody received it before, or if its group is one of the plan's
        `reserved_groups`, or if an earlier message of its group is deferred.
        """
        plan, end = self._plan, self._end
        messages = sorted(decided, key=_sequence_number)
        deferred_groups = set(plan.reserved_groups)
        for message in sorted(received.messages, key=_sequence_number):
            receipt = message.receipt
            if receipt.receive_count > 1 or receipt.message_group_id in deferred_groups:
                deferred_groups.add(receipt.message_group_id)
                message = replace(message, receipt=replace(receipt, deferred=True))
            messages.append(message)
        receipts = tuple(message.receipt for message in messages)
        link = 0 if end is None else end.origin.link + 1
        origin = Origin(
            plan.journal, plan.epoch, plan.partitions, plan.partition, self._writer, plan.plan, plan.after, link
        )
        before = Chain() if end is None else end.chain
        deleted = received.deleted if end is None else received.deleted | end.deleted
        chain = before.with_link(link, self._in_flight, receipts, is_last=is_last)
        return Segment(Head(origin, receipts, frozenset(deleted), chain), to_arrow(messages))


def _decided(plan: PartitionPlan, journal: Journal) -> list[Message]:
    """Return the decided messages: those that the plan hands, and those carried, with their rows from the journal.

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
                f"'{name}', which holds messages that epoch {plan.epoch} serves, is gone from the journal. Either the "
                "epoch is committed and this task runs too late, or somebody has removed it: start the query again."
            )
        receipts = source.head.receipts
        places = {receipt.message_id: place for place, receipt in enumerate(receipts)}
        if not places.keys() >= set(message_ids):
            raise JournalCorruptError(
                f"'{name}' in the journal is not what the driver saw there: it lacks messages that epoch {plan.epoch} "
                "serves. What is not committed is still in the queue. Restore the object."
            )
        wanted = [places[message_id] for message_id in message_ids]
        for message in from_arrow([receipts[place] for place in wanted], source.rows.take(wanted)):
            take(message, name)
    return messages


@dataclass
class _Received:
    """What an attempt received itself: the `messages` that it holds, and the ids of copies that it has `deleted`."""

    messages: list[Message] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)


def _receive(
    plan: PartitionPlan,
    decided: list[Message],
    queue: Queue,
    journal: Journal,
    lease: Lease,
    options: SourceOptions,
    clock: Clock,
) -> _Received:
    """Receive until a limit, the first empty answer, or the end of the fetch time. Return what is still held."""
    received = _Received()
    copies = _Copies(queue, journal, lease, budget_s=options.heartbeat_s)
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
        receive += 1
        # Hold them first: finding the copies among them reads the ledger, which may take long.
        lease.hold((message.receipt for message in answer), since=asked_at)
        kept = copies.delete_from(answer)
        lease.hold((message.receipt for message in kept), since=asked_at)
        if len(kept) < len(answer) and not received.messages:
            # The fetch time counts from the first message to serve. It comes in the end: a copy is deleted only once.
            deadline = clock.monotonic() + options.max_fetch_s
        received.messages += kept
        count += len(kept)
        size += sum(message.size for message in kept)
    received.deleted = copies.deleted
    # A group of which anything has lapsed may be somebody else's by now. SQS delivers it again.
    lapsed = copies.lost_groups.union(
        each.receipt.message_group_id for each in received.messages if not lease.is_held(each.receipt)
    )
    received.messages = [each for each in received.messages if each.receipt.message_group_id not in lapsed]
    return received


class _Copies:
    """Deletes copies as soon as a task receives them: no later verdict can change what they are.

    So their groups are free at once, and their next messages are received in the same micro-batch. The ledger is read
    only when a message comes that somebody received before.
    """

    def __init__(self, queue: Queue, journal: Journal, lease: Lease, *, budget_s: float) -> None:
        self._queue = queue
        self._journal = journal
        self._lease = lease
        self._budget_s = budget_s
        self._unconfirmed: Container[str] | None = None
        self.deleted: set[str] = set()
        """Ids whose delete SQS has confirmed."""
        self.lost_groups: set[str] = set()
        """Groups of copies that had lapsed again before they were deleted."""

    def delete_from(self, answer: list[Message]) -> list[Message]:
        """Delete the copies in one answer. Return the others, and copies whose delete failed: hold those again."""
        copies = [each.receipt for each in answer if each.receipt.receive_count > 1 and self._is_copy(each)]
        if not copies:
            return answer
        kept = set()
        self._lease.stop_renewing(copies)
        for receipt, outcome in self._queue.delete(copies, budget_s=self._budget_s):
            if outcome is Outcome.DONE:
                self.deleted.add(receipt.message_id)
            elif outcome is Outcome.LOST:
                self.lost_groups.add(receipt.message_group_id)
            else:
                kept.add(receipt.message_id)  # it is deferred, and the commit tries again
        handled = {receipt.message_id for receipt in copies} - kept
        return [each for each in answer if each.receipt.message_id not in handled]

    def _is_copy(self, message: Message) -> bool:
        if self._unconfirmed is None:
            self._unconfirmed = self._journal.ledger().unconfirmed
        return message.receipt.message_id in self._unconfirmed


def _sequence_number(message: Message) -> int:
    return message.receipt.sequence_number


@functools.cache
def _journal(location: str, region: str | None, journal_id: str) -> Journal:
    """This process's view of the journal, found once; never shared with a forked child."""
    return Journal.join(open_store(location, region), journal_id)


os.register_at_fork(after_in_child=_journal.cache_clear)
