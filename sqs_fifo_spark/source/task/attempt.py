"""An attempt of a task appends to its partition's chain: it receives, seals a link, serves it, deletes its messages.

All attempts append to one chain: one that finds a link taken serves that, and puts the messages it has received into
the next. Once a link says that it is the last, nothing is appended any more, and received messages are released.

Where tasks delete, they delete sealed messages, and name in the next link those that are not confirmed. So only the
messages of a chain's last link are in flight, and those that it names. The last link then serves nothing, as no further
one can say which of its messages are deleted. Elsewhere the chain has one link.
"""

from __future__ import annotations

import functools
import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqs_fifo_spark.aws.calls import MAX_ENTRIES, NO_CALLS, CallCounts
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import SqsFifoError
from sqs_fifo_spark.options import SourceOptions
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.lease import Heartbeat, Lease
from sqs_fifo_spark.source.message import Message, Receipt, to_arrow
from sqs_fifo_spark.source.plan import Deal, PartitionPlan
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.segment import Chain, Head, Origin, Segment
from sqs_fifo_spark.source.task.demand import LINK_BYTES, Allowance
from sqs_fifo_spark.source.task.payloads import Payloads
from sqs_fifo_spark.source.task.receiver import DELETE_BUDGET_S, Receiver
from sqs_fifo_spark.source.task.sieve import Sieve, sequence_number
from sqs_fifo_spark.worker import without_collection

_log = logging.getLogger(__name__)


class Attempt:
    """One attempt that appends to a chain, from the link after `end` on."""

    def __init__(
        self,
        plan: PartitionPlan,
        deal: Deal,
        end: Head | None,
        deferred_groups: set[str],
        queue: Queue,
        journal: Journal,
        options: SourceOptions,
        clock: Clock,
        payloads: Payloads,
    ) -> None:
        self._plan = plan
        self._queue = queue
        self._journal = journal
        self._options = options
        self._clock = clock
        self._deleting: Callable[[], None] | None = None
        """Waits for the delete that is under way, beside which the next link is received."""
        self._writer = uuid.uuid4().hex
        self._lease = Lease(
            queue, clock, visibility_timeout_s=options.visibility_timeout_s, heartbeat_s=options.heartbeat_s
        )
        self._heartbeat = Heartbeat(self._lease, clock, every_s=options.heartbeat_s)
        self._payloads = payloads
        self._end = end
        self._in_flight: tuple[Receipt, ...] = () if end is None else end.in_flight()
        """Served messages of the chain that SQS has not confirmed to have deleted."""
        self._skipped = deal.skipped
        self._refused: set[str] = set()
        """Handles among those that SQS has refused."""
        self._sieve = Sieve(
            deferred_groups | deal.reserved | (set() if plan.deletes else deal.groups.keys()),
            {group: partition for group, partition in deal.groups.items() if partition != plan.partition},
        )
        self._counted_calls = NO_CALLS
        """Calls of this attempt that its links have counted."""

    def __enter__(self) -> Attempt:
        self._heartbeat.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._wait_for_deletes()
        except SqsFifoError as error:
            _log.warning("a task ended before its sealed messages were deleted: %s", error)
        finally:
            self._heartbeat.stop()

    def append(self, decided: list[Message]) -> Iterator[Segment]:
        """Yield the links that this attempt appends, and those that others do meanwhile, up to the last.

        `decided` are the assigned messages that a chain without a link serves before anything else.
        """
        receiver = self._receiver(decided)
        self._sieve.deferred_groups.update(each.receipt.message_group_id for each in decided if each.receipt.deferred)
        if self._end is not None:
            self._payloads.deletes.add(self._end.chain.payloads)
        if self._plan.deletes:
            self._delete()  # a later attempt does not know which messages of the chain are deleted
        while True:
            with _released_on_error(receiver):
                received = self._without_known(self._receive(receiver, may_end=not decided), decided)
                received = self._without_overtaking(received, receiver)
                received = self._with_payloads(received, decided, receiver)
                self._heartbeat.check()
            decided = [each._replace(receipt=self._sieve.newest(each.receipt)) for each in decided]
            is_last = not self._plan.deletes or (receiver.is_over and not decided and not received)
            others: list[Segment | int] = []
            waiting = 0
            while True:
                calls = self._queue.call_counts
                segment = self._segment(decided, received, receiver.deleted, calls, is_last=is_last)
                sealed = self._journal.seal(segment, self._plan.claim, unserved=receiver.release)
                before, counted, decided = self._end, decided, []  # the chain has the assigned messages
                self._end, self._in_flight = sealed.head, (*self._in_flight, *_served(sealed.head))
                if sealed.head.origin.writer == self._writer:
                    self._sieve.note_link(sealed.head)
                    receiver.unsealed = []
                    self._counted_calls = calls
                    break
                # Another attempt appends, too: its counts are as new as its link.
                self._in_flight = tuple(map(self._sieve.newest, sealed.head.in_flight()))
                self._payloads.deletes.add(sealed.head.chain.payloads)
                chain = Chain() if before is None else before.chain
                receiver.chain.spend(
                    sealed.head.chain.served - chain.served - len(counted),
                    sealed.head.chain.size - chain.size - self._size(counted),
                )
                self._sieve.note_link(sealed.head)
                with _released_on_error(receiver):
                    received, released = self._sieve.without_overtaken(received, sealed.head, self._in_flight)
                    receiver.release(released)
                # Spark gets them once the received messages are put or released, for it may take long over the rows.
                if sealed.head.chain.is_last:
                    receiver.release()
                    self._heartbeat.stop()
                    del received, segment, counted
                    yield from map(self._in_full, others)
                    yield sealed
                    return
                waiting += sealed.rows.nbytes
                others.append(sealed if waiting <= LINK_BYTES else sealed.head.origin.link)
            del received, segment, counted  # the sealed segment has the bodies, too
            if is_last:
                self._heartbeat.stop()  # from now on the driver holds the rest
            else:
                self._delete(beside=receiver.may_wait)
            yield from map(self._in_full, others)
            yield sealed
            if is_last:
                return

    def _with_payloads(self, received: list[Message], decided: list[Message], receiver: Receiver) -> list[Message]:
        """Return the received messages in order, with their payloads; deferred are those for which there is no room.

        So are those whose payload cannot be read: the next epoch fails for them, before it receives anything. Else each
        attempt would receive all again, until SQS takes them to the dead-letter queue. Without payloads a receive
        brings too little for a limit, and all of it is served.
        """
        if not self._payloads.are_read:
            return received
        chain = Chain() if self._end is None else self._end.chain
        before, room = self._size(received), self._plan.max_bytes - chain.size - self._size(decided)
        received = self._payloads.loaded(
            self._sieve.in_order(received), room, self._skipped, serves_one=not (chain.served or decided), defers=True
        )
        receiver.chain.spend(0, self._size(received) - before)  # an object may be larger than its message says
        return received

    def _in_full(self, link: Segment | int) -> Segment:
        """Return a link of the chain that was too large to keep, from the journal."""
        if isinstance(link, Segment):
            return link
        plan = self._plan
        name = self._journal.segment_name(plan.epoch, plan.partition, plan.plan, link)
        found = self._journal.read(name)
        self._journal.require_current(plan.epoch, plan.claim)
        if found is None:
            raise self._journal.vanished(name)
        return found

    def _receive(self, receiver: Receiver, *, may_end: bool) -> list[Message]:
        """Receive messages for the next link, beside the deletes of the last one if they are under way."""
        received: list[Message] = []
        if self._deleting is not None:
            received = receiver.beside_delete()
            self._wait_for_deletes()
        if not received and not receiver.is_over:
            received = receiver.next_link(may_end=may_end)
        return received

    def _wait_for_deletes(self) -> None:
        wait, self._deleting = self._deleting, None
        if wait is not None:
            wait()

    def _receiver(self, decided: list[Message]) -> Receiver:
        plan, chain = self._plan, Chain() if self._end is None else self._end.chain
        known = len(decided) + chain.served
        return Receiver(
            self._queue,
            self._journal,
            self._lease,
            self._options,
            self._clock,
            chain=Allowance(
                messages=plan.max_messages - known,
                size=plan.max_bytes - self._size(decided) - chain.size,
                expected=plan.expected - known,
                share=-(-plan.expected // plan.partitions) - known,
                until=self._clock.monotonic() + self._options.max_fetch_s,
                began_ms=self._clock.now() * 1_000,
            ),
            in_links=plan.deletes,
        )

    def _size(self, messages: list[Message]) -> int:
        """Return the bytes of `messages` that count towards the limit: none, where an operator has moved them aside."""
        return sum(each.size for each in messages if each.receipt.message_id not in self._skipped)

    def _delete(self, *, beside: bool = False) -> None:
        """Delete the durable messages of the chain, so that SQS hands out the next ones of their groups.

        This comes after a look at the journal that no other driver had opened: the chain may be no content of that
        one's, and it knows only of earlier objects. One call may go on `beside` the next steps, until it is waited for.
        """
        doomed = [receipt for receipt in self._in_flight if receipt.receipt_handle not in self._refused]
        asked_at, budget_s = self._clock.monotonic(), min(self._options.heartbeat_s, DELETE_BUDGET_S)
        if beside and 0 < len(doomed) <= MAX_ENTRIES:
            wait = self._queue.begin_delete(doomed, budget_s=budget_s, before_call=self._lease.stop_renewing)
            self._deleting = lambda: self._note(wait(), asked_at)
        else:
            outcomes = self._queue.delete(doomed, budget_s=budget_s, before_call=self._lease.stop_renewing)
            self._note(outcomes, asked_at)

    def _note(self, outcomes: list[tuple[Receipt, Outcome]], asked_at: float) -> None:
        """Keep in flight the messages that are not deleted; hold those that SQS has not refused."""
        done: set[str] = set()
        again: list[Receipt] = []
        for receipt, outcome in outcomes:
            if outcome is Outcome.DONE:
                done.add(receipt.receipt_handle)
                if receipt.payload and receipt.message_id not in self._kept:
                    self._payloads.deletes.add([receipt.payload])
            elif outcome is Outcome.LOST:
                self._refused.add(receipt.receipt_handle)
            else:
                again.append(receipt)
        self._lease.hold(again, since=asked_at - self._options.heartbeat_s, may_be_deleted=True)
        self._in_flight = tuple(each for each in self._in_flight if each.receipt_handle not in done)
        self._payloads.deletes.begin()

    @functools.cached_property
    def _kept(self) -> frozenset[str]:
        """Ids of messages whose payloads stay, also if a later query is the one that deletes them."""
        return self._journal.pointers_aside()

    def _without_known(self, received: list[Message], decided: list[Message]) -> list[Message]:
        """Return the messages that the chain does not have; of the others, keep the newer handles."""
        known = {message.receipt.message_id for message in decided}
        known.update(receipt.message_id for receipt in self._in_flight)
        unknown = self._sieve.without_known(received, known)
        self._in_flight = tuple(map(self._sieve.newest, self._in_flight))
        return unknown

    def _without_overtaking(self, received: list[Message], receiver: Receiver) -> list[Message]:
        """Release messages that would overtake those assigned to another partition and not in its chain yet.

        If the first link of that chain defers something of a group, later messages of the group are deferred here, too.
        """
        if not self._plan.deletes:
            return received  # all of these are deferred anyway
        for partition in self._sieve.partitions_to_look_at(received):
            name = self._journal.segment_name(self._plan.epoch, partition, self._plan.plan)
            first = self._journal.head(name)  # all assigned messages are in there, unless the driver has put it
            if first is not None:
                self._sieve.note_first_link(first)
        kept, released = self._sieve.without_overtaking(received)
        receiver.release(released)
        return kept

    @without_collection()
    def _segment(
        self,
        decided: list[Message],
        received: list[Message],
        deleted: frozenset[str],
        calls: CallCounts,
        *,
        is_last: bool,
    ) -> Segment:
        """Return the chain's next link: first assigned, then received messages, each by sequence number."""
        plan, end = self._plan, self._end
        messages = sorted(decided, key=sequence_number) + self._sieve.in_order(received)
        receipts = tuple(message.receipt for message in messages)
        link = 0 if end is None else end.origin.link + 1
        origin = Origin(
            plan.journal,
            plan.epoch,
            plan.partitions,
            plan.partition,
            self._writer,
            plan.plan,
            plan.after,
            link,
            plan.deletes,
        )
        before = Chain() if end is None else end.chain
        deleted = deleted if end is None else deleted | end.deleted
        sizes = tuple(message.size for message in messages)
        chain = before.with_link(
            link,
            self._in_flight,
            receipts,
            size=self._size(messages),
            is_last=is_last,
            payloads=self._payloads.deletes.left,
        )
        calls = (NO_CALLS if end is None else end.calls).plus(calls.minus(self._counted_calls))
        return Segment(Head(origin, receipts, deleted, chain, calls, sizes, plan.query), to_arrow(messages))


@contextmanager
def _released_on_error(receiver: Receiver) -> Iterator[None]:
    """Release the received messages of this link if the step inside fails: nobody is going to put them."""
    try:
        yield
    except Exception:
        try:
            receiver.release()
        except SqsFifoError as error:
            _log.warning("a task that stops could not release the messages that it had received: %s", error)
        raise


def _served(head: Head) -> tuple[Receipt, ...]:
    return tuple(receipt for receipt in head.receipts if not receipt.deferred)
