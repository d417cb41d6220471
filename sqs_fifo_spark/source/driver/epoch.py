"""An epoch from its announcement to its settlement, as the driver and its heartbeat both see it.

The chains that its tasks have put are the only truth about the messages that an epoch received. A verdict on it reads
the last link of each chain, and those that defer something; the first too, if anything is carried, or two, if SQS has
refused deletes; all links, if anything was deferred.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.options import MAX_PARTITION_BYTES
from sqs_fifo_spark.source.driver.chains import CLOSER, Chains
from sqs_fifo_spark.source.driver.planning import deal_out, partition_bytes, plan_partitions
from sqs_fifo_spark.source.driver.verdict import Verdict, judge
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.lease import Lease
from sqs_fifo_spark.source.ledger import Ledger
from sqs_fifo_spark.source.message import Message, Receipt, to_arrow
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.plan import PartitionPlan, Remainder, publish
from sqs_fifo_spark.source.pool import Pool
from sqs_fifo_spark.source.segment import Head, Origin, Segment
from sqs_fifo_spark.worker import without_collection

_log = logging.getLogger(__name__)


class Epoch:
    """One epoch that is not settled. The heartbeat calls `discover`; everything else runs on the driver's own thread.

    The journal is read in `read_pool` for the driver's thread, in `discovery_pool` for the heartbeat's.
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
        deletes: bool,
        skipped: frozenset[str] = frozenset(),
    ) -> None:
        """`skipped` are ids of messages that an operator has moved aside; `deletes` says that tasks delete."""
        self.offset = offset
        self.max_messages = max_messages
        self.expected = expected
        self.deletes = deletes
        self.plans: list[PartitionPlan] | None = None
        self.verdict: Verdict | None = None
        """Set when the epoch's tasks are over."""
        self.is_replay = False
        """True if an earlier driver's tasks may have read it: its chains are closed, and nothing more is received."""
        self.caught: tuple[Receipt, ...] = ()
        """Receipts of the driver's own catch for this epoch, which the journal has and carries to it."""
        self.opened_at = clock.monotonic()
        """Monotonic time of the announcement: its tasks receive after that."""
        self._journal = journal
        self._lease = lease
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._read_pool = read_pool
        self._discovery_pool = discovery_pool
        self._skipped = skipped
        self._after = ""
        self._chains = Chains(offset, journal, lease)
        self._sources: dict[str, Head] = {}
        """The objects that hold carried messages. They never change, so each is read once."""
        self._carried: dict[str, Remainder] = {}
        """Messages carried to it, by the time that it was closed."""

    def __repr__(self) -> str:
        state = "closed" if self._chains.is_closed else "announced" if self.plans is None else "planned"
        return (
            f"<Epoch {self.offset.name} {state} partitions={self.offset.partitions} caught={len(self.caught)} "
            f"objects={len(self._chains.objects)} is_blind={self.offset.is_blind} is_replay={self.is_replay}>"
        )

    def catch(self, messages: Sequence[Message], after: str) -> None:
        """Make the driver's own received messages durable, before Spark logs the epoch, which follows `after`."""
        offset, writer = self.offset, f"{CLOSER}{uuid.uuid4().hex}"
        origin = Origin(self._journal.id, offset.epoch, offset.partitions, 0, writer, offset.plan, after)
        messages = sorted(messages, key=lambda message: message.receipt.sequence_number)
        self.caught = tuple(message.receipt for message in messages)
        head = Head(origin, self.caught, sizes=tuple(message.size for message in messages))
        self._sources[self._journal.put_caught(Segment(head, to_arrow(messages)))] = head

    @property
    def query(self) -> str | None:
        return self._chains.query

    def with_caught(self, ledger: Ledger) -> Ledger:
        """Return `ledger` with the catch of this epoch, which is carried to it like messages of earlier ones."""
        if not self.caught:
            return ledger
        name = Journal.caught_name(self.offset.epoch, self.offset.plan)
        ids = tuple(receipt.message_id for receipt in self.caught)
        return replace(ledger, carried={**ledger.carried, name: ids})

    def load_carried(self, ledger: Ledger) -> dict[str, Remainder]:
        """Return the messages carried to this epoch, by the object that holds them: the newest receipt of each.

        Raises JournalUnavailableError if such an object is gone: it may be the only trace of its messages.
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

    def plan(
        self, ledger: Ledger, *, after: str, claim: int, max_bytes: int, carried_bytes: int | None = None
    ) -> list[PartitionPlan]:
        """Deal out the carried messages, hold them, and return each partition's share of the plan: the tasks may begin.

        Of those it takes `carried_bytes`, if given: with payloads they may be far larger than in SQS. The epoch follows
        `after` in Spark's log; the driver that plans it has this `claim`.
        """
        carried, partitions = self.load_carried(ledger), self.offset.partitions
        since = self._clock.monotonic() - self._heartbeat_s
        for left in carried.values():
            self._lease.hold(left.receipts, since=since, may_be_deleted=self.deletes or left.head.origin.deletes)
        # Holds that an earlier driver left may be about to lapse; no other is due. The heartbeat does the rest of it.
        self._lease.renew()
        deal = deal_out(
            carried,
            partitions,
            max_messages=self.max_messages,
            max_partition_bytes=partition_bytes(carried_bytes, partitions) if carried_bytes else MAX_PARTITION_BYTES,
            skipped=self._skipped,
            is_replay=self.is_replay,
        )
        self.plans = plan_partitions(
            self.offset,
            after=after,
            deal=deal,
            deal_in_plans=publish(deal, self._journal, self.offset),
            expected=self.expected,
            max_messages=self.max_messages,
            max_bytes=max_bytes,
            claim=claim,
            deletes=self.deletes,
        )
        return self.plans

    def discover(self) -> None:
        """Hold the messages in new links. Runs on a thread of the heartbeat's, and in its `check`."""
        self._chains.discover(self._held_since(), self._discovery_pool)

    def replay(self, after: str) -> None:
        """Close the chains that an earlier driver's tasks have begun: their messages, and no others, are served again.

        The epoch was perhaps in the sink already, and there without the messages that no task had read.
        """
        self.is_replay, self._after = True, after
        # Holds that the earlier driver left may be about to lapse, and to close the chains takes a put for each.
        self._find_catch()
        self._lease.hold(self.caught, since=self._held_since(), may_be_deleted=self.deletes)
        self._chains.discover(self._held_since(), self._read_pool)
        self._lease.renew()
        self._close_chains()
        count = sum(head.chain.served for head in self._chains.ends().values())
        if count:
            _log.warning(
                "epoch %d runs again, with the %d messages that it had: its micro-batch was not committed. They stand "
                "in the journal at '%s'. If the micro-batch fails each time, correct what fails on one of its rows, or "
                "move that row aside with `sqs-fifo-spark journal skip`; until then the journal keeps all of them.",
                self.offset.epoch,
                count,
                self._journal.location,
            )

    @property
    def leaves_nothing(self) -> bool:
        """True if it is known to leave nothing to settle or to carry: it is judged, or it has no tasks."""
        return not self.offset.partitions or (self.verdict is not None and self.verdict.is_empty)

    @without_collection()
    def close(self, ledger: Ledger) -> Verdict:
        """Return the verdict on this epoch, whose tasks are over; the same whenever it is asked."""
        if self.verdict is None:
            self._close_chains()
            carried = self.load_carried(ledger)
            self._chains.read(self._links_to_judge(ledger, carried), self._held_since(), self._read_pool)
            self._carried = carried
            left = {name: Head(each.head.origin, tuple(each.receipts)) for name, each in carried.items()}
            objects = {**self._chains.objects, **left}
            self.verdict = judge(self.offset, objects, self.with_caught(ledger), self._skipped)
        return self.verdict

    def _links_to_judge(self, ledger: Ledger, carried: Mapping[str, Remainder]) -> list[tuple[int, int]]:
        """Return the links that a verdict needs besides those that are read, by partition and number.

        Only the link that served a carried message says that it is served and deleted. That is a chain's first one,
        which has the assigned messages: all others that SQS delivers again are deferred, and then any link may have
        served them. Messages received for the first two also show that messages are gone whose deletes SQS has refused,
        as they follow those in their groups.
        """
        ends = self._chains.ends()
        counts = {partition: end.origin.link for partition, end in ends.items()}
        if not any(head.chain.deferring for head in ends.values()):
            is_refused = any(entry.receipt is None for entry in ledger.unconfirmed.values())
            most = 2 if is_refused else 1 if carried else 0
            counts = {partition: min(count, most) for partition, count in counts.items()}
        return [(partition, link) for partition, count in counts.items() for link in range(count)]

    def _find_catch(self) -> None:
        """Read what an earlier driver has perhaps caught for it."""
        if self.plans is None and not self.caught:
            name = Journal.caught_name(self.offset.epoch, self.offset.plan)
            head = self._journal.head(name)
            if head is not None:
                self._sources[name], self.caught = head, head.receipts

    def _close_chains(self) -> None:
        self._find_catch()
        self._chains.close(self._follows, self.deletes, self._held_since(), self._read_pool)

    def _follows(self, partition: int) -> str:
        """Return the name of the offset that a chain follows; after a restart other links may know better."""
        if self.plans is not None:
            return self.plans[partition].after
        return next((head.origin.after for head in self._chains.objects.values()), self._after)

    def is_unread(self) -> bool:
        """True if no task has read anything of this closed epoch, though this driver has given it to Spark."""
        may_be_read = self.max_messages > 0 and self.offset.partitions > 0 and not self.is_replay
        return may_be_read and not self._chains.begun_partitions()

    def taken_over(self) -> Iterator[Receipt]:
        """Yield the receipts that were carried to this closed epoch."""
        return (receipt for each in self._carried.values() for receipt in each.receipts)

    def stop_renewing(self) -> None:
        """Stop renewing this closed epoch's messages, except those that are carried."""
        carried = {receipt.receipt_handle for receipt in self.verdict.carried_receipts()} if self.verdict else set()
        # If SQS delivered a carried message again, its older handle is only in the object that carries it.
        left = [*self.taken_over(), *self._chains.receipts()]
        self._lease.stop_renewing(each for each in left if each.receipt_handle not in carried)

    def _held_since(self) -> float:
        """Return the time since when new finds are held: a heartbeat ago; unless replayed, not before the opening."""
        a_heartbeat_ago = self._clock.monotonic() - self._heartbeat_s
        is_earlier = self.is_replay or self.plans is None  # an earlier driver's tasks have put them
        return a_heartbeat_ago if is_earlier else max(self.opened_at, a_heartbeat_ago)
