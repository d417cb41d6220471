"""The driver's side of a query: epochs are opened, planned, closed and settled here.

    latest_offset   is there work?  -> the next epoch            (the probe; or the last epoch received something)
    commit          settle the last epoch: delete, ledger, drop  (its groups are unlocked)
    plan            the partitions of the next epoch

Spark commits an epoch only when it plans the next one, so an epoch that received anything is always followed by
another; one that received nothing is followed by a probe. Spark calls these methods one at a time. The heartbeat is
the only other thread.
"""

from __future__ import annotations

import itertools
import logging
import threading
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import DataLossError, SqsFifoError
from sqs_fifo_spark.journal import Journal, Ledger, Unconfirmed
from sqs_fifo_spark.lease import Heartbeat, Lease
from sqs_fifo_spark.message import Message, Receipt
from sqs_fifo_spark.offset import Offset
from sqs_fifo_spark.options import SourceOptions
from sqs_fifo_spark.partition import PartitionPlan
from sqs_fifo_spark.queue import MAX_ENTRIES, Outcome, Queue, over_all
from sqs_fifo_spark.store import Store
from sqs_fifo_spark.verdict import Verdict, judge

_log = logging.getLogger(__name__)

MESSAGES_PER_PARTITION = 100
"""How many waiting messages are worth a partition of their own."""
LEDGER_MAX_AGE_S = 28 * 86_400
"""SQS keeps a message for at most 14 days, and a dead-letter queue for 14 more."""
SETTLE_BUDGET_S = 60.0
"""How long a commit goes on trying to delete, before it leaves the rest to the ledger and the next commit."""
_SHORT_RETENTION_S = 86_400


@dataclass
class _Epoch:
    """An epoch that is not settled yet."""

    offset: Offset
    opened_at: float
    max_messages: int
    handed: tuple[Message, ...] = ()
    plans: list[PartitionPlan] | None = None
    contents: dict[str, tuple[Receipt, ...]] = field(default_factory=dict)
    """Receipts by object, of what is sealed so far. Guarded by the driver's `_lock`."""
    verdict: Verdict | None = None
    """Set once the epoch's tasks are over."""


class Driver:
    """One query's source on the driver. Built without any I/O; the first call opens queue and journal.

    `mapper` maps a function over items, in order, perhaps several at once.
    """

    def __init__(
        self,
        options: SourceOptions,
        *,
        queue: Queue,
        store: Callable[[], Store],
        clock: Clock,
        mapper: Callable[..., Iterable[Any]] = map,
    ) -> None:
        self._options = options
        self._queue = queue
        self._make_store = store
        self._clock = clock
        self._map = mapper
        self._lease = Lease(
            queue,
            clock,
            visibility_timeout_s=options.visibility_timeout_s,
            heartbeat_s=options.heartbeat_s,
            mapper=mapper,
        )
        self._heartbeat: Heartbeat | None = None
        self._journal: Journal | None = None
        self._claim = 0
        self._ledger = Ledger(0)
        self._receive_numbers = itertools.count()
        # `_lock` guards `_open` and the contents of epochs, which the heartbeat reads too; no I/O while it is held.
        self._lock = threading.Lock()
        self._open: _Epoch | None = None
        self._next: _Epoch | None = None
        self._position: Offset | None = None
        self._found: dict[int, list[str]] = {}
        """Epochs that stood in the journal when it was opened, and were not committed."""
        self._waiting = 0
        self._busy_partitions = 0
        self._until_ms: int | None = None
        self._still_to_serve = 0
        self._is_finished = False

    # What Spark calls

    def initial_offset(self) -> Offset:
        """Return where a new query starts: after all that is committed in the journal, which is made if needed.

        Epochs in the journal that were not committed come first. Raises every start-up error there is.
        """
        journal = self._journal or self._start(None)
        self._position = self._position or Offset(journal.id, self._ledger.epoch, 0)
        return self._position

    def prepare_available_now(self) -> None:
        """Serve what waits now, then end: see `latest_offset`."""
        self._until_ms = self._queue.time_ms() + 1_000  # SQS tells its time in whole seconds
        self._still_to_serve = self._queue.approximate_messages()

    def latest_offset(self, start: Offset | None, max_messages: int | None = None) -> Offset:
        """Return the offset of the next epoch if there is work, else `start`.

        `start` is None before Spark 4.2, which does not say where it is: it has taken what it was told last. With
        nothing to do this blocks for one long poll. After `prepare_available_now` the first epoch in which every
        message was sent later is the last one, closed by an epoch without partitions, so that it is committed.

        Raises FencedError when another query owns the journal, and what the heartbeat met.
        """
        start = start or (self._next.offset if self._next else self._position) or self.initial_offset()
        journal = self._journal or self._start(start)
        if self._next is not None:
            if self._next.offset != start:
                return self._next.offset
            # The batch ran without a look at its rows, so its plan was never asked for.
            with self._lock:
                self._open, self._next = self._next, None
        self._require_ours(journal)
        if self._is_finished:
            return start
        number = max(start.epoch, self._ledger.epoch) + 1
        found = self._found.get(number)
        if found is not None:
            # A new query on an old journal: an epoch that was sealed, and never committed, is served first.
            partitions = 1 + max((Journal.partition_of(name) or 0 for name in found), default=0)
            return self._announce(Offset(journal.id, number, partitions), (), max_messages)
        verdict = self._close(journal, start) if start.epoch > self._ledger.epoch else Verdict()
        if self._until_ms is not None and self._is_last(verdict, self._until_ms):
            self._is_finished = True
            return self._announce(Offset(journal.id, number, 0), (), max_messages)
        carries = bool(verdict.carried or (start.epoch <= self._ledger.epoch and self._ledger.carried))
        handed: tuple[Message, ...] = ()
        if verdict.is_empty and not carries:
            handed = self._probe(journal, max_messages)
            if not handed:
                return start
        partitions = self._partitions(verdict, len(handed), carries, max_messages)
        return self._announce(Offset(journal.id, number, partitions), handed, max_messages)

    def plan(self, start: Offset, end: Offset) -> list[PartitionPlan]:
        """Return one plan for each partition of the epoch `end`; the same ones whenever it is asked again.

        Raises DataLossError for an epoch that is committed and dropped.
        """
        journal = self._journal or self._start(end)
        self._position = end
        if start == end:
            return []  # Spark 4.0 and 4.1 ask this at a restart, to say where they are
        if self._open is not None and self._open.offset == end and self._open.plans is not None:
            return self._open.plans
        self._require_ours(journal)
        if end.epoch <= self._ledger.epoch:
            self._lose(
                f"Spark asks for epoch {end.epoch} again, but the journal at '{journal.location}' has committed epoch "
                f"{self._ledger.epoch}: the checkpoint is older than the journal, or another query used the journal"
            )
            return []
        if start.epoch > self._ledger.epoch:
            # Spark plans from an epoch only when it has committed it. It stopped before it could say so.
            self.commit(start)
        epoch = self._next if self._next and self._next.offset == end else self._epoch(end)
        epoch.plans = self._plans(journal, epoch)
        with self._lock:
            self._open = epoch
        self._next = None
        self._found.pop(end.epoch, None)
        self._beat()
        return epoch.plans

    def commit(self, end: Offset) -> None:
        """Settle the epoch `end`, which Spark has committed: delete its messages, record the ledger, drop segments.

        Returns when SQS has confirmed the deletes or they stand in the ledger. Doing it again changes nothing.
        """
        journal = self._journal or self._start(end)
        if end.epoch <= self._ledger.epoch:
            return
        self._require_ours(journal)
        verdict = self._close(journal, end)
        with self._lock:
            epoch, self._open = self._open, None
        if epoch is not None:
            self._settle(journal, epoch, verdict)

    def report(self) -> dict[str, Any]:
        """Return figures for Spark's progress report, from what is known without a call."""
        return {
            "epoch": self._position.epoch if self._position else 0,
            "waitingMessages": self._waiting,
            "unconfirmedDeletes": len(self._ledger.unconfirmed),
            "lostLeases": self._lease.lost_count,
        }

    def stop(self) -> None:
        """End the heartbeat. What is in flight is free within one visibility timeout."""
        if self._heartbeat is not None:
            self._heartbeat.stop()

    # Opening

    def _start(self, known: Offset | None) -> Journal:
        """Check the queue and the store, open the journal, and claim it. `known` is where Spark has been."""
        facts = self._queue.describe()
        self._queue.require_permissions()
        store = self._make_store()
        journal = Journal.find(store, facts.arn)
        if known is not None and (journal is None or journal.id != known.journal):
            state = "holds no journal" if journal is None else "holds another journal than this checkpoint's"
            self._lose(
                f"'{store.location}' {state} ({known.journal}), so what Spark may read again is gone",
                "journalLocation",
            )
        Journal.check_store(store)
        journal = journal or Journal.create(store, facts.arn)
        self._claim = journal.claim()
        self._ledger = journal.ledger()
        if known is not None and known.epoch < self._ledger.epoch:
            self._lose(
                f"the checkpoint stands at epoch {known.epoch}, but the journal at '{store.location}' has committed epoch "
                f"{self._ledger.epoch}: the checkpoint is old, or another query has consumed the queue since"
            )
        self._found = journal.objects()
        stale = [name for epoch in tuple(self._found) if epoch <= self._ledger.epoch for name in self._found.pop(epoch)]
        journal.drop(name for name in stale if name not in self._ledger.carried)
        if facts.max_receive_count is not None and facts.max_receive_count < 3:
            _log.warning(
                "the queue's redrive policy moves a message after %d receives; crashes of tasks or drivers count as "
                "receives, so set maxReceiveCount to 3 or more.",
                facts.max_receive_count,
            )
        if facts.retention_s < _SHORT_RETENTION_S:
            _log.warning(
                "the queue keeps messages for only %d s: SQS drops what waits longer, also while this query is down.",
                facts.retention_s,
            )
        self._journal = journal
        return journal

    def _require_ours(self, journal: Journal) -> None:
        """Raise if another query owns the journal, or what the heartbeat met."""
        journal.require_claim(self._claim)
        if self._heartbeat is not None:
            self._heartbeat.check()

    def _lose(self, what: str, option: str = "") -> None:
        """Raise DataLossError, or only warn if the user chose `failOnDataLoss=false`."""
        if self._options.fail_on_data_loss:
            remedy = f"Correct {option}, or restore it. " if option else "Restore the matching checkpoint. "
            raise DataLossError(
                f"{what}. {remedy}To go on with what the queue still holds, set failOnDataLoss to false; messages may "
                "then be missing from the sink, or stand in it twice."
            )
        _log.warning("%s. Going on, because failOnDataLoss is false.", what)

    # Finding work

    def _probe(self, journal: Journal, max_messages: int | None) -> tuple[Message, ...]:
        """Return what one long poll brings and no epoch has served; nothing is open, so all of it is decided."""
        while True:
            received = self._queue.receive(
                min(MAX_ENTRIES, max_messages or MAX_ENTRIES),
                receive=next(self._receive_numbers),
                wait_time_s=self._options.wait_time_s,
            )
            if not received:
                return ()
            receipts = [message.receipt for message in received]
            try:
                journal.require_claim(self._claim)
            except SqsFifoError:
                self._release(receipts)
                raise
            self._lease.hold(receipts, since=self._clock.monotonic())
            served_before = [receipt for receipt in receipts if receipt.message_id in self._ledger.unconfirmed]
            if served_before:
                self._ledger = replace(self._ledger, unconfirmed=self._delete({}, served_before))
            handed = tuple(each for each in received if each.receipt not in served_before)
            if handed:
                return handed

    def _is_last(self, verdict: Verdict, until_ms: int) -> bool:
        """Whether the epoch ends an AvailableNow query: it served only what was sent after the trigger began."""
        self._still_to_serve -= len(verdict.served)
        return (
            bool(verdict.served)
            and not verdict.carried
            and self._still_to_serve <= 0
            and all(receipt.sent_at_ms > until_ms for receipt in verdict.served.values())
        )

    def _partitions(self, last: Verdict, handed: int, carries: bool, max_messages: int | None) -> int:
        """Return how many partitions the next epoch gets; none if it is only there to commit the last one."""
        self._waiting = self._queue.approximate_messages()
        work = self._waiting + handed
        if not work and not carries:
            return 0
        limit = min(self._options.num_partitions, max_messages or self._options.max_messages_per_trigger)
        if last.served and self._busy_partitions:
            # With few unlocked groups most partitions stayed empty: waiting messages alone are no work.
            limit = min(limit, 2 * self._busy_partitions)
        return max(1, min(limit, -(-work // MESSAGES_PER_PARTITION)))

    def _announce(self, offset: Offset, handed: tuple[Message, ...], max_messages: int | None) -> Offset:
        self._next = self._epoch(offset, max_messages, handed)
        return offset

    def _epoch(self, offset: Offset, max_messages: int | None = None, handed: tuple[Message, ...] = ()) -> _Epoch:
        limit = max_messages or self._options.max_messages_per_trigger
        return _Epoch(offset, self._clock.monotonic(), limit, handed)

    def _plans(self, journal: Journal, epoch: _Epoch) -> list[PartitionPlan]:
        """Return the plans: decided messages go to partitions by their group, limits are shared out evenly."""
        count = epoch.offset.partitions
        if not count:
            return []
        handed: list[list[Message]] = [[] for _ in range(count)]
        for message in epoch.handed:
            handed[_partition_of_group(message.receipt.message_group_id, count)].append(message)
        carried: list[dict[str, list[str]]] = [{} for _ in range(count)]
        for name, message_ids in self._ledger.carried.items():
            wanted = frozenset(message_ids)
            for receipt in journal.receipts(name):
                if receipt.message_id in wanted:
                    ids = carried[_partition_of_group(receipt.message_group_id, count)].setdefault(name, [])
                    ids.append(receipt.message_id)
        decided = [len(handed[index]) + sum(map(len, carried[index].values())) for index in range(count)]
        share, rest = divmod(max(0, epoch.max_messages - sum(decided)), count)
        return [
            PartitionPlan(
                journal=journal.id,
                epoch=epoch.offset.epoch,
                partition=index,
                max_messages=decided[index] + share + (index < rest),
                max_bytes=max(1, self._options.max_bytes_per_trigger // count),
                handed=tuple(handed[index]),
                carried=tuple((name, tuple(ids)) for name, ids in carried[index].items()),
            )
            for index in range(count)
        ]

    # Holding

    def _beat(self) -> None:
        if self._heartbeat is None:
            self._heartbeat = Heartbeat(
                self._lease, self._clock, every_s=self._options.heartbeat_s, discover=self._discover
            )
            self._heartbeat.start()

    def _discover(self) -> None:
        """Hold what tasks of the open epoch have sealed since the last look. Runs on the heartbeat's thread."""
        with self._lock:
            epoch, journal = self._open, self._journal
            known = frozenset(epoch.contents) if epoch else frozenset()
        if epoch is None or journal is None or epoch.verdict is not None:
            return
        found = self._load(journal, epoch.offset.epoch, known)
        with self._lock:
            if self._open is epoch and epoch.verdict is None:
                epoch.contents.update(found)
                for receipts in found.values():
                    self._lease.hold(receipts, since=self._held_since(epoch))

    def _held_since(self, epoch: _Epoch) -> float:
        """The messages of an epoch were received after it was opened, perhaps a whole heartbeat ago."""
        return max(epoch.opened_at, self._clock.monotonic() - self._options.heartbeat_s)

    def _load(self, journal: Journal, epoch: int, known: frozenset[str]) -> dict[str, tuple[Receipt, ...]]:
        """Return the receipts in the epoch's objects but the known ones, with receives numbered apart."""
        names = [name for name in journal.objects().get(epoch, ()) if name not in known]
        return dict(zip(names, map(self._numbered, self._map(journal.receipts, names)), strict=True))

    def _numbered(self, receipts: tuple[Receipt, ...]) -> tuple[Receipt, ...]:
        numbers: dict[int, int] = {}
        return tuple(
            replace(receipt, receive=numbers.setdefault(receipt.receive, next(self._receive_numbers)))
            for receipt in receipts
        )

    # Closing and settling

    def _close(self, journal: Journal, offset: Offset) -> Verdict:
        """Return the verdict on an epoch whose tasks are over. What the probe got and no task sealed is released."""
        with self._lock:
            if self._open is None or self._open.offset != offset:
                self._open = self._epoch(offset)
            epoch = self._open
            known = frozenset(epoch.contents)
        if epoch.verdict is not None:
            return epoch.verdict
        found = self._load(journal, offset.epoch, known)
        sources = list(self._ledger.carried)
        earlier = dict(zip(sources, map(self._numbered, self._map(journal.receipts, sources)), strict=True))
        with self._lock:
            epoch.contents.update(found)
            contents = {**epoch.contents, **earlier}
            epoch.verdict = judge(offset, contents, self._ledger)
        sealed = {receipt.message_id for receipts in contents.values() for receipt in receipts}
        # A task that never ran, because nobody read its partition, has sealed nothing.
        self._release([each.receipt for each in epoch.handed if each.receipt.message_id not in sealed])
        self._busy_partitions = sum(
            any(not receipt.deferred for receipt in receipts) for receipts in epoch.contents.values()
        )
        return epoch.verdict

    def _settle(self, journal: Journal, epoch: _Epoch, verdict: Verdict) -> None:
        number = epoch.offset.epoch
        carried = verdict.carried_receipts()
        self._lease.hold(carried, since=self._held_since(epoch))
        # Deletes that got no answer last time are tried again with the handle that may still work.
        again = [each.receipt for each in self._ledger.unconfirmed.values() if each.receipt is not None]
        again = [each for each in again if each.message_id not in verdict.served_before]
        unconfirmed = self._delete(verdict.served, [*verdict.served_before.values(), *again])
        ledger = Ledger(number, unconfirmed, {name: tuple(held) for name, held in verdict.carried.items()})
        journal.commit(ledger)
        self._ledger = ledger
        journal.drop(
            name
            for each, names in journal.objects().items()
            if each <= number
            for name in names
            if name not in ledger.carried
        )
        kept = {receipt.receipt_handle for receipt in carried}
        self._lease.drop(
            receipt
            for receipts in epoch.contents.values()
            for receipt in receipts
            if receipt.receipt_handle not in kept
        )

    def _delete(self, committed: Any, served_before: Iterable[Receipt]) -> dict[str, Unconfirmed]:
        """Delete what is committed now and what was committed before. Return all that is still unconfirmed."""
        now = self._clock.now()
        unconfirmed = {
            message_id: entry
            for message_id, entry in self._ledger.unconfirmed.items()
            if now - entry.committed_at < LEDGER_MAX_AGE_S
        }

        deadline = self._clock.monotonic() + SETTLE_BUDGET_S

        def call(entries: list[Receipt]) -> list[Outcome]:
            # Renewing stops with the delete itself, so that a renewal under way does not report a loss.
            self._lease.drop(entries)
            left_s = deadline - self._clock.monotonic()
            if left_s <= 0:
                return [Outcome.FAILED] * len(entries)
            return self._queue.delete(entries, budget_s=left_s)

        for receipt, outcome in over_all(call, [*committed.values(), *served_before], self._map):
            known = unconfirmed.pop(receipt.message_id, None)
            if outcome is not Outcome.DONE:
                unconfirmed[receipt.message_id] = Unconfirmed(
                    known.committed_at if known else now, receipt if outcome is Outcome.FAILED else None
                )
        return unconfirmed

    def _release(self, receipts: list[Receipt]) -> None:
        self._lease.drop(receipts)
        over_all(lambda entries: self._queue.extend(entries, 0, budget_s=1.0), receipts, self._map)


def _partition_of_group(message_group_id: str, count: int) -> int:
    """The same group goes to the same partition, in every process and at every replay."""
    return zlib.crc32(message_group_id.encode()) % count
