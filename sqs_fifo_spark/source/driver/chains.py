"""The chains of one epoch, as its tasks put them and the driver finds them in the journal.

The heartbeat discovers new links while the tasks run, to hold their messages. When the tasks are over, the driver
closes each chain that no task has closed, so that nothing is appended any more. It reads of a chain only the last link,
which names the unfinished messages of the others, and those links that defer something; a verdict asks for the others
it needs.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Set

from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.lease import Lease
from sqs_fifo_spark.source.message import Receipt, to_arrow
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.pool import Pool
from sqs_fifo_spark.source.segment import Head, Origin, Segment

CLOSER = "driver-"
"""Beginning of the writer's name in links that only close a chain."""


class Chains:
    """All chains of an epoch's plan. The heartbeat calls `discover`, all else runs on the driver's own thread."""

    def __init__(self, offset: Offset, journal: Journal, lease: Lease) -> None:
        self._offset = offset
        self._journal = journal
        self._lease = lease
        # `_lock` guards `objects` and `is_closed`; no I/O while it is held.
        self._lock = threading.Lock()
        self.objects: dict[str, Head] = {}
        """By name: of each chain the last link that was found, and those that defer something, or were asked for."""
        self.is_closed = False

    @property
    def query(self) -> str | None:
        """The query's id, if a link that was found has it."""
        with self._lock:
            return next((head.query for head in self.objects.values() if head.query), None)

    def discover(self, since: float, pool: Pool) -> None:
        """Hold the messages in links that tasks have put since the last call, from the monotonic time `since` on.

        Runs on a thread of the heartbeat's, and in its `check`.
        """
        with self._lock:
            if self.is_closed:
                return
            known = frozenset(self.objects)
        found = self._load(self._links(), known, pool)
        with self._lock:
            if not self.is_closed:
                self._take(found, since)

    def close(self, after: Callable[[int], str], deletes: bool, since: float, pool: Pool) -> None:
        """Put a last link on each chain that has none; from now on nothing is appended.

        `after` gives the name of the offset that a partition's chain follows; `since` is as in `discover`.
        """
        with self._lock:
            self.is_closed = True
        there = self._links()
        self._take(self._load(there, frozenset(self.objects), pool), since)
        ends = self.ends()
        self._require_all_links(there, ends)
        for partition in range(self._offset.partitions):
            while (end := ends.get(partition)) is None or not end.chain.is_last:
                ends[partition] = end = self._close(partition, end, after(partition), deletes)
                self._take({_name(self._offset, partition, end.origin.link): end}, since)

    def read(self, links: Iterable[tuple[int, int]], since: float, pool: Pool) -> None:
        """Read these links of closed chains, too, by partition and number."""
        self._take(self._heads(links, self.objects.keys(), pool), since)

    def ends(self) -> dict[int, Head]:
        """Return the last link found of each chain, by partition."""
        heads = sorted(self.objects.values(), key=lambda head: head.origin.link)
        return {head.origin.partition: head for head in heads}

    def begun_partitions(self) -> frozenset[int]:
        """Return the partitions of which a task has put a link."""
        return frozenset(
            partition
            for partition, end in self.ends().items()
            if end.origin.link or not end.origin.writer.startswith(CLOSER)
        )

    def receipts(self) -> Iterator[Receipt]:
        for head in self.objects.values():
            yield from (*head.receipts, *head.chain.unconfirmed)

    def _require_all_links(self, there: Set[tuple[int, int]], ends: Mapping[int, Head]) -> None:
        """Raise JournalUnavailableError if a link before the last is gone: a task would put another in its place."""
        for partition, end in ends.items():
            for link in range(end.origin.link):
                name = _name(self._offset, partition, link)
                # A list that is made while links are put may leave one out.
                if (partition, link) not in there and self._journal.head(name) is None:
                    raise self._journal.vanished(name)

    def _close(self, partition: int, end: Head | None, after: str, deletes: bool) -> Head:
        """Put an empty last link after `end`. Return it, or the one that a task has put there meanwhile."""
        offset, link = self._offset, 0 if end is None else end.origin.link + 1
        origin = Origin(
            self._journal.id,
            offset.epoch,
            offset.partitions,
            partition,
            f"{CLOSER}{uuid.uuid4().hex}",
            offset.plan,
            after,
            link,
            deletes if end is None else end.origin.deletes,
        )
        before = end or Head(origin, ())
        chain = before.chain.with_link(link, before.in_flight(), (), is_last=True)
        head = Head(origin, (), before.deleted, chain, before.calls)
        return self._journal.seal(Segment(head, to_arrow(())), self._journal.own_claim).head

    def _take(self, found: Mapping[str, Head], since: float) -> None:
        """Hold the messages in the links that were `found`, and no longer those that have been deleted since.

        Called with the lock, or of closed chains, which the heartbeat leaves alone.
        """
        before = self.ends()
        self.objects.update(found)
        ends = self.ends()
        for partition, end in ends.items():
            known = before.get(partition)
            if known is not None and known.origin.link < end.origin.link:
                left = {receipt.receipt_handle for receipt in end.in_flight()}
                self._lease.stop_renewing(each for each in known.in_flight() if each.receipt_handle not in left)
        for head in found.values():
            if ends.get(head.origin.partition) is head:
                self._lease.hold(head.in_flight(), since=since, may_be_deleted=head.origin.deletes)
            self._lease.hold((each for each in head.receipts if each.deferred), since=since)

    def _load(self, there: Set[tuple[int, int]], known: frozenset[str], pool: Pool) -> dict[str, Head]:
        """Return those of the chains' last links, and of the links that defer, that are not `known` yet."""
        last = dict(sorted(there))
        ends = self._heads(last.items(), known, pool)
        deferring = [(head.origin.partition, link) for head in ends.values() for link in head.chain.deferring]
        return {**self._heads(deferring, known | ends.keys(), pool), **ends}

    def _links(self) -> set[tuple[int, int]]:
        """Return partition and number of each link that the journal has of this plan's chains."""
        offset = self._offset
        # Messages that another plan's tasks hold were never given to Spark.
        places = (Journal.link_of(name, offset.plan) for name in self._journal.objects().get(offset.epoch, ()))
        return {place for place in places if place is not None and place[0] < offset.partitions}

    def _heads(self, links: Iterable[tuple[int, int]], known: Set[str], pool: Pool) -> dict[str, Head]:
        names = [_name(self._offset, *place) for place in links]
        names = [name for name in names if name not in known]
        heads = zip(names, pool.map(self._journal.head, names), strict=True)
        # An object that went after it was listed was a leftover's, of a settled epoch: nobody asks for it again.
        return {name: head for name, head in heads if head is not None}


def _name(offset: Offset, partition: int, link: int) -> str:
    return Journal.segment_name(offset.epoch, partition, offset.plan, link)
