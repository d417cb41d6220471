"""An epoch from its announcement to its settling, as the driver and its heartbeat both see it.

The chains that its tasks have put are the only truth about what an epoch received. The heartbeat looks for new links
while the tasks run, to hold their messages. When the tasks are over, the driver closes each chain that no task has
closed, so that nothing is appended any more, and judges. It reads of a chain only the last link, which tells what the
others leave, and those links that defer something; the first too, if anything is carried, or two, if SQS has refused
deletes; all links, if anything was deferred, or if more is carried than the tasks were told of.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.source.journal import Journal
from sqs_fifo_spark.source.lease import Lease
from sqs_fifo_spark.source.ledger import Ledger
from sqs_fifo_spark.source.message import Message, Receipt, to_arrow
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.plan import Deal, PartitionPlan, Remainder
from sqs_fifo_spark.source.pool import Pool
from sqs_fifo_spark.source.segment import Chain, Head, Origin, Segment
from sqs_fifo_spark.source.verdict import Verdict, judge

_log = logging.getLogger(__name__)

_CLOSER = "driver-"
"""How the writers of links begin that only close a chain."""


class Epoch:
    """One epoch that is not settled. The heartbeat calls `discover`; everything else runs on the driver's own thread.

    The journal is read in `read_pool` for the driver's thread, in `discovery_pool`
    for the heartbeat's.
    """

    def __init__(
        self,
        offset: Offset,
        *,
        journal: Journal,
        lease: Lease,
        clock: Clock,
        heartbeat_s: float,
        read_pool: Pool,
        discovery_pool: Pool,
        max_messages: int,
        expected: int,
        deletes: bool = False,
        has_returned: bool = False,
    ) -> None:
        self.offset = offset
        self.max_messages = max_messages
        self.expected = expected
        self.plans: list[PartitionPlan] | None = None
        self.deal = Deal()
        """The part of the plans that all tasks have in common."""
        self.verdict: Verdict | None = None
        """Set when the epoch's tasks are over."""
        self._journal = journal
        self._lease = lease
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._read_pool = read_pool
        self._discovery_pool = discovery_pool
        self.opened_at = clock.monotonic()
        """When the epoch was announced: its tasks receive after that."""
        self.is_replay = False
        """Whether an earlier driver's tasks may have read it: its chains are closed, and nothing more is received."""
        self._after = ""
        self.caught: tuple[Receipt, ...] = ()
        """What the driver itself has received, for this epoch to serve: what the journal has of it is carried."""
        self._sources: dict[str, Head] = {}
        """The objects that hold what is carried to it. They never change, so each is read once."""
        self.deletes = deletes
        """Whether its tasks delete what they have sealed."""
        self._has_returned = has_returned
        """Whether its query took it back after another one had gone on: what it has not served came from SQS again."""
        # `_lock` guards `_objects` and `_is_closed`; no I/O while it is held.
        self._lock = threading.Lock()
        self._objects: dict[str, Head] = {}
        """By name: of each chain the last link that was found, and those that defer something."""
        self._is_closed = False
        self._taken_over: dict[str, Remainder] = {}

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "announced" if self.plans is None else "planned"
        return (
            f"<Epoch {self.offset.name} {state} partitions={self.offset.partitions} caught={len(self.caught)} "
            f"objects={len(self._objects)} is_blind={self.offset.is_blind} is_replay={self.is_replay}>"
        )

    def catch(self, messages: Sequence[Message], after: str) -> None:
        """Make durable what the driver has received, before Spark logs the epoch, which follows `after`."""
        offset, writer = self.offset, f"{_CLOSER}{uuid.uuid4().hex}"
        origin = Origin(self._journal.id, offset.epoch, offset.partitions, 0, writer, offset.plan, after)
        messages = sorted(messages, key=lambda message: message.receipt.sequence_number)
        self.caught = tuple(message.receipt for message in messages)
        head = Head(origin, self.caught, sizes=tuple(message.size for message in messages))
        self._sources[self._journal.put_caught(Segment(head, to_arrow(messages)))] = head

    @property
    def query(self) -> str | None:
        """The query's id, if a link that was found tells it."""
        with self._lock:
            return next((head.query for head in self._objects.values() if head.query), None)

    def with_caught(self, ledger: Ledger) -> Ledger:
        """Return `ledger` with what was caught for this epoch, which is carried to it like what earlier ones left."""
        if not self.caught:
            return ledger
        name = Journal.caught_name(self.offset.epoch, self.offset.plan)
        ids = tuple(receipt.message_id for receipt in self.caught)
        return replace(ledger, carried={**ledger.carried, name: ids})

    def load_carried(self, ledger: Ledger) -> dict[str, Remainder]:
        """Return what is carried to this epoch, by the object that holds it: the newest receipt of each message.

        Raises JournalUnavailableError if such an object is gone: it may be all that there is of its messages.
        """
        carried = self.with_caught(ledger).carried
        unread = [name for name in carried if name not in self._sources]
        for name, head in zip(unread, self._read_pool.map(self._journal.head, unread), strict=True):
            if head is None:
                raise self._journal.vanished(name)
            self._sources[name] = head
        found = {}
        for name, message_ids in carried.items():
            head, wanted = self._sources[name], frozenset(message_ids)
            by_recency = sorted(enumerate(head.receipts), key=lambda each: each[1].recency)
            newest = {receipt.message_id: place for place, receipt in by_recency if receipt.message_id in wanted}
            found[name] = Remainder(head, tuple(newest.values()))
        return found

    def discover(self) -> None:
        """Hold what is in the links that tasks have put since it was asked last.

        Runs on a thread of the heartbeat's, and in its `check`.
        """
        with self._lock:
            if self._is_closed:
                return
            known = frozenset(self._objects)
        found = self._load(self._links(), known, self._discovery_pool)
        with self._lock:
            if not self._is_closed:
                self._take(found)

    def replay(self, after: str) -> None:
        """Close what an earlier driver's tasks have begun: all that it has by now, and no more, is served again.

        What follows `after` in Spark's log was perhaps in the sink already, and there without what no task had read.
        """
        self.is_replay, self._after = True, after
        self._close_chains()
        count = sum(head.chain.served for head in self._ends().values())
        if count:
            _log.warning(
                "epoch %d runs again, with the %d messages that it had: its micro-batch was not committed. They stand "
                "in the journal at '%s'. If the micro-batch fails each time, correct what fails on one of its rows, or "
                "move that row aside with `sqs-fifo-spark journal skip`; until then the journal keeps all of them.",
                self.offset.epoch,
                count,
                self._journal.location,
            )

    def close(self, ledger: Ledger) -> Verdict:
        """Return the verdict on this epoch, whose tasks are over; the same whenever it is asked."""
        if self.verdict is None:
            self._close_chains()
            carried = self.load_carried(ledger)
            ends = self._ends()
            # What of all that is left a task has served and deleted, only the link says that served it: where the plan
            # has told all tasks what is left, a chain's first one; else any. What is received for the first two also
            # shows that messages are gone whose deletes SQS has refused, as it follows them in their groups.
            counts = {partition: end.origin.link for partition, end in ends.items()}
            if self._has_planned(carried) and not any(head.chain.deferring for head in ends.values()):
                is_refused = any(entry.receipt is None for entry in ledger.unconfirmed.values())
                asked = 2 if is_refused else 1 if carried else 0
                counts = {partition: min(count, asked) for partition, count in counts.items()}
            links = [(partition, link) for partition, count in counts.items() for link in range(count)]
            self._take(self._heads(links, self._objects.keys(), self._read_pool))
            self._taken_over = carried
            left = {name: Head(each.head.origin, tuple(each.receipts)) for name, each in carried.items()}
            self.verdict = judge(
                self.offset, {**self._objects, **left}, self.with_caught(ledger), has_returned=self._has_returned
            )
        return self.verdict

    def _has_planned(self, carried: Mapping[str, Remainder]) -> bool:
        """Return whether all tasks that appended to this epoch were told to serve all of `carried`.

        Those of an earlier driver, whose epoch runs again, were told what was carried then. And what another query had
        sealed, and is released when the plan is made, may be a copy of what is in any link.
        """
        planned = {(share.name, place) for share in self.deal.shares for place in share.places}
        left = {(name, place) for name, (_, places) in carried.items() for place in places}
        return not self.is_replay and left <= planned

    def _close_chains(self) -> None:
        with self._lock:
            self._is_closed = True
        # Perhaps an earlier driver has caught something.
        if self.plans is None and not self.caught and not self._has_returned:
            name = Journal.caught_name(self.offset.epoch, self.offset.plan)
            head = self._journal.head(name)
            if head is not None:
                self._sources[name], self.caught = head, head.receipts
        there = self._links()
        self._take(self._load(there, frozenset(self._objects), self._read_pool))
        ends = self._ends()
        self._require_all_links(there, ends)
        for partition in range(self.offset.partitions):
            while (end := ends.get(partition)) is None or not end.chain.is_last:
                ends[partition] = self._close_chain(partition, end)

    def _require_all_links(self, there: Set[tuple[int, int]], ends: Mapping[int, Head]) -> None:
        """Raise JournalUnavailableError if a link before the last one of its chain is gone.

        Somebody has removed it: a task would put a link with other messages in its place.
        """
        for partition, end in ends.items():
            for link in range(end.origin.link):
                name = Journal.segment_name(self.offset.epoch, partition, self.offset.plan, link)
                # A list that is made while links are put may leave one out.
                if (partition, link) not in there and self._journal.head(name) is None:
                    raise self._journal.vanished(name)

    def _close_chain(self, partition: int, end: Head | None) -> Head:
        """Put an empty last link after `end`. Return it, or what a leftover has put there meanwhile."""
        offset, link = self.offset, 0 if end is None else end.origin.link + 1
        if self.plans is None:  # after a restart: other links of the plan say what it follows
            after = next((head.origin.after for head in self._objects.values()), self._after)
        else:
            after = self.plans[partition].after
        origin = Origin(
            self._journal.id,
            offset.epoch,
            offset.partitions,
            partition,
            f"{_CLOSER}{uuid.uuid4().hex}",
            offset.plan,
            after,
            link,
            self.deletes if end is None else end.origin.deletes,
        )
        if end is None:
            head = Head(origin, (), chain=Chain(is_last=True))
        else:
            chain = end.chain.with_link(link, end.in_flight(), (), is_last=True)
            head = Head(origin, (), end.deleted, chain, end.calls)
        sealed = self._journal.seal(Segment(head, to_arrow(())), self._journal.own_claim).head
        self._take({Journal.segment_name(offset.epoch, partition, offset.plan, link): sealed})
        return sealed

    def _take(self, found: Mapping[str, Head]) -> None:
        """Hold what is in the links that were `found`, and no longer what has been deleted since.

        Called with the lock, or of a closed epoch, which the heartbeat leaves alone.
        """
        before = self._ends()
        self._objects.update(found)
        ends = self._ends()
        for partition, end in ends.items():
            known = before.get(partition)
            if known is not None and known.origin.link < end.origin.link:
                left = {receipt.receipt_handle for receipt in end.in_flight()}
                self._lease.stop_renewing(each for each in known.in_flight() if each.receipt_handle not in left)
        for head in found.values():
            since, may_be_deleted = self._held_since(), head.origin.deletes
            if ends.get(head.origin.partition) is head:
                self._lease.hold(head.in_flight(), since=since, may_be_deleted=may_be_deleted)
            if not self._has_returned:
                self._lease.hold((each for each in head.receipts if each.deferred), since=since)

    def _ends(self) -> dict[int, Head]:
        """Return of each chain the last link that was found, by partition."""
        heads = sorted(self._objects.values(), key=lambda head: head.origin.link)
        return {head.origin.partition: head for head in heads}

    def is_unread(self) -> bool:
        """Whether no task has read anything of this closed epoch, though this driver has given it to Spark."""
        may_be_read = self.max_messages > 0 and self.offset.partitions > 0 and not self.is_replay
        return may_be_read and not self._begun()

    def taken_over(self) -> Iterator[Receipt]:
        """Yield what was carried to this closed epoch."""
        return (receipt for each in self._taken_over.values() for receipt in each.receipts)

    def _begun(self) -> frozenset[int]:
        """Return the partitions of which a task has put a link."""
        return frozenset(
            partition
            for partition, end in self._ends().items()
            if end.origin.link or not end.origin.writer.startswith(_CLOSER)
        )

    def stop_renewing(self) -> None:
        """Stop renewing this closed epoch's messages, except those that are carried."""
        carried = {receipt.receipt_handle for receipt in self.verdict.carried_receipts()} if self.verdict else set()
        # If SQS delivered a carried message again, its older handle is only in the object that carries it.
        left = [*self.taken_over()]
        for head in self._objects.values():
            left += (*head.receipts, *head.chain.unconfirmed)
        self._lease.stop_renewing(each for each in left if each.receipt_handle not in carried)

    def _held_since(self) -> float:
        """Return since when newly found messages are held: a heartbeat ago; unless replayed, not before the opening."""
        a_heartbeat_ago = self._clock.monotonic() - self._heartbeat_s
        is_earlier = self.is_replay or self.plans is None  # an earlier driver's tasks have put them
        return a_heartbeat_ago if is_earlier else max(self.opened_at, a_heartbeat_ago)

    def _load(self, there: Set[tuple[int, int]], known: frozenset[str], pool: Pool) -> dict[str, Head]:
        """Return those of the chains' last links, and of the links that defer, that are not `known` yet."""
        last = dict(sorted(there))
        ends = self._heads(last.items(), known, pool)
        deferring = [(head.origin.partition, link) for head in ends.values() for link in head.chain.deferring]
        return {**self._heads(deferring, known | ends.keys(), pool), **ends}

    def _links(self) -> set[tuple[int, int]]:
        """Return partition and number of each link that the journal has of this plan's chains."""
        offset = self.offset
        # What another plan's tasks hold was never given to Spark.
        places = (Journal.link_of(name, offset.plan) for name in self._journal.objects().get(offset.epoch, ()))
        return {place for place in places if place is not None and place[0] < offset.partitions}

    def _heads(self, links: Iterable[tuple[int, int]], known: Set[str], pool: Pool) -> dict[str, Head]:
        offset = self.offset
        names = [Journal.segment_name(offset.epoch, partition, offset.plan, link) for partition, link in links]
        names = [name for name in names if name not in known]
        heads = zip(names, pool.map(self._journal.head, names), strict=True)
        # An object that went after it was listed was a leftover's, of a settled epoch: nobody asks for it again.
        return {name: head for name, head in heads if head is not None}
