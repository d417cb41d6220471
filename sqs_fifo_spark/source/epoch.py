"""An epoch from its announcement to its settling, as the driver and its heartbeat both see it.

The objects that its tasks have put are the only truth about what an epoch received. The heartbeat looks for new ones
while the tasks run, to hold their messages; the driver reads the rest when the tasks are over, and judges.
"""

from __future__ import annotations

import itertools
import logging
import threading
from dataclasses import replace

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.source.journal import Journal
from sqs_fifo_spark.source.lease import Lease
from sqs_fifo_spark.source.ledger import Ledger
from sqs_fifo_spark.source.message import Message
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.partition import PartitionPlan
from sqs_fifo_spark.source.pool import Pool
from sqs_fifo_spark.source.segment import Head
from sqs_fifo_spark.source.verdict import Verdict, judge

_log = logging.getLogger(__name__)

# Different tasks number their receives alike; the driver gives each receive a number of its own.
_receive_numbers = itertools.count()


class Epoch:
    """One epoch that is not settled. The heartbeat calls `discover`; everything else runs on the driver's own thread.

    `is_replay` says that the journal had objects of it at start-up: an earlier driver's tasks have put them, and nobody
    has renewed what is in them since. The journal is read in `read_pool` for the driver's thread, in `discovery_pool`
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
        handed: tuple[Message, ...] = (),
        is_replay: bool = False,
    ) -> None:
        self.offset = offset
        self.handed = handed
        self.max_messages = max_messages
        self.expected = expected
        self.plans: list[PartitionPlan] | None = None
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
        self._is_replay = is_replay
        # `_lock` guards `_objects` and `_is_closed`; no I/O while it is held.
        self._lock = threading.Lock()
        self._objects: dict[str, Head] = {}
        self._is_closed = False
        self._taken_over: dict[str, Head] = {}

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "announced" if self.plans is None else "planned"
        return (
            f"<Epoch {self.offset.name} {state} partitions={self.offset.partitions} handed={len(self.handed)} "
            f"objects={len(self._objects)} is_blind={self.offset.is_blind} is_replay={self._is_replay}>"
        )

    def discover(self) -> None:
        """Hold what is in the objects that tasks have put since it was asked last.

        Runs on a thread of the heartbeat's, in its `check`, and before a replay.
        """
        with self._lock:
            if self._is_closed:
                return
            known = frozenset(self._objects)
        found = self._load(known, self._discovery_pool)
        with self._lock:
            if not self._is_closed:
                self._objects.update(found)
                for head in found.values():
                    self._lease.hold(head.receipts, since=self._held_since())

    def replay(self) -> None:
        """Hold what is in the objects that an earlier driver's tasks have put, and log that it is served again."""
        self.discover()
        _log.warning(
            "epoch %d runs again, with the %d messages that it had: its micro-batch was not committed. They stand in "
            "the journal at '%s'. If the micro-batch fails each time, correct what fails on one of its rows: until it "
            "is committed, none is skipped or deleted from the queue.",
            self.offset.epoch,
            self.put_before()[1],
            self._journal.location,
        )

    def close(self, ledger: Ledger) -> Verdict:
        """Return the verdict on this epoch, whose tasks are over; the same whenever it is asked."""
        if self.verdict is None:
            with self._lock:
                self._is_closed = True
            self._objects.update(self._load(frozenset(self._objects), self._read_pool))
            self._taken_over = load_carried(self._journal, ledger)
            self.verdict = judge(self.offset, {**self._objects, **self._taken_over}, ledger)
            for head in self._objects.values():
                self._lease.hold(head.receipts, since=self._held_since())
        return self.verdict

    def put_before(self) -> tuple[frozenset[str], int]:
        """Return the groups in objects that an earlier driver's tasks have put, and how many messages those serve."""
        with self._lock:
            objects = dict(self._objects)
        groups = {receipt.message_group_id for head in objects.values() for receipt in head.receipts}
        return frozenset(groups), len(judge(self.offset, objects, Ledger(0)).served)

    def seen(self) -> frozenset[str]:
        """Return the names of the objects that the verdict on this closed epoch is about."""
        return frozenset(self._objects)

    def unread(self) -> tuple[Message, ...]:
        """Return the handed messages that no task has read, whole groups only. Call it when the epoch is closed."""
        put = {receipt.message_id for head in self._objects.values() for receipt in head.receipts}
        # Where some task has received of a group what was handed to another, our hold on it was lost.
        lost = {message.receipt.message_group_id for message in self.handed if message.receipt.message_id in put}
        return tuple(message for message in self.handed if message.receipt.message_group_id not in lost)

    def is_unread(self) -> bool:
        """Whether no task has read anything of this closed epoch, though this driver has given it to Spark."""
        return self.max_messages > 0 and self.offset.partitions > 0 and not self._objects

    def stop_renewing(self) -> None:
        """Stop renewing this closed epoch's messages, except those that are carried, or handed and not read."""
        carried = {receipt.receipt_handle for receipt in self.verdict.carried_receipts()} if self.verdict else set()
        # If SQS delivered a carried message again, its older handle is only in the object that carries it.
        for head in (*self._objects.values(), *self._taken_over.values()):
            self._lease.stop_renewing(receipt for receipt in head.receipts if receipt.receipt_handle not in carried)
        unread = {message.receipt.receipt_handle for message in self.unread()}
        self._lease.stop_renewing(
            message.receipt for message in self.handed if message.receipt.receipt_handle not in carried | unread
        )

    def _held_since(self) -> float:
        """Return since when newly found messages are held: a heartbeat ago; unless replayed, not before the opening."""
        a_heartbeat_ago = self._clock.monotonic() - self._heartbeat_s
        return a_heartbeat_ago if self._is_replay else max(self.opened_at, a_heartbeat_ago)

    def _load(self, known: frozenset[str], pool: Pool) -> dict[str, Head]:
        names = [name for name in self._journal.objects().get(self.offset.epoch, ()) if name not in known]
        heads = zip(names, pool.map(self._journal.head, names), strict=True)
        # An object that went after it was listed was a leftover's, of a settled epoch: nobody asks for it again. What
        # tasks of another plan hold was never given to Spark: SQS still has it, or another epoch has served it.
        return {
            name: _numbered_apart(head)
            for name, head in heads
            if head is not None and head.origin.plan == self.offset.plan
        }


def load_carried(journal: Journal, ledger: Ledger) -> dict[str, Head]:
    """Return what `ledger` carries, by the object that holds it: only those receipts, one for each message."""
    found = {}
    for name, message_ids in ledger.carried.items():
        wanted = frozenset(message_ids)
        head = journal.head(name)
        if head is not None:
            # An attempt may have received again what its plan had handed to it.
            by_recency = sorted(head.receipts, key=lambda receipt: receipt.recency)
            newest = {receipt.message_id: receipt for receipt in by_recency if receipt.message_id in wanted}
            found[name] = _numbered_apart(Head(head.origin, tuple(newest.values())))
    return found


def _numbered_apart(head: Head) -> Head:
    receives = dict.fromkeys(receipt.receive for receipt in head.receipts)
    numbers = {number: next(_receive_numbers) for number in receives}
    return replace(
        head, receipts=tuple(replace(receipt, receive=numbers[receipt.receive]) for receipt in head.receipts)
    )
