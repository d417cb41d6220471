"""The journal that this driver has claimed: its ledger, its unsettled objects, and the settlement of an epoch.

A journal belongs to one query at a time, which is its generation. A query that begins on it takes over the unsettled
objects of earlier ones: their messages are released, so that SQS delivers them again, but for those that tasks may have
deleted, which only the journal has. These are carried. With the ledger that says so their generations are over for
good.

Messages of earlier epochs are released, and an epoch is judged, only while no newer driver has claimed the journal.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import EpochSettledError, FencedError, JournalUnavailableError, SqsFifoError
from sqs_fifo_spark.source.driver.checkpoint import JournalState, UnsettledPlan
from sqs_fifo_spark.source.driver.epoch import Epoch
from sqs_fifo_spark.source.driver.startup import OpenedJournal
from sqs_fifo_spark.source.driver.verdict import Verdict
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.lease import Lease
from sqs_fifo_spark.source.ledger import Ledger, UnconfirmedMessage
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.offset import EpochPlan, Offset
from sqs_fifo_spark.source.payload_deletes import PayloadDeletes
from sqs_fifo_spark.source.pool import Answer, Pool
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.settlement import SETTLE_BUDGET_S, delete_committed, release

_GAP = 4


class Ownership:
    """One driver's ownership of a journal. Only this class makes ledgers.

    Used on the driver's own thread, but for the journal's `require_claim`, which the heartbeat calls, too. Settled
    objects are dropped in `drop_pool`, while the query goes on.
    """

    def __init__(
        self,
        opened_journal: OpenedJournal,
        *,
        queue: Queue,
        lease: Lease,
        clock: Clock,
        read_pool: Pool,
        drop_pool: Pool,
        payload_deletes: PayloadDeletes,
    ) -> None:
        self.journal = opened_journal.journal
        self.claim = opened_journal.claim
        self.skipped = opened_journal.skipped
        """Ids of messages that an operator has moved aside."""
        self._ledger = opened_journal.ledger
        self._settled_at_start = opened_journal.ledger.settled
        self._unsettled = _by_plan(opened_journal, read_pool)
        self._own: set[EpochPlan] = set()
        """Those of them that Spark's log has."""
        self._released: set[EpochPlan] = set()
        """Those of them that are left by others. Their objects stay until an epoch with a higher number is settled."""
        self._queue = queue
        self._lease = lease
        self._clock = clock
        self._read_pool = read_pool
        self._drop_pool = drop_pool
        self._payload_deletes = payload_deletes
        payload_deletes.add(opened_journal.ledger.payloads)
        self._judged: Epoch | None = None
        """The epoch that was judged last while this driver owned the journal."""
        self._dropping: Answer[None] | None = None
        """The drop after the last settlement."""

    def __repr__(self) -> str:
        return (
            f"<Ownership claim={self.claim} generation={self._ledger.generation} settled={self._ledger.settled.name} "
            f"unsettled={len(self._others())} unconfirmed={len(self._ledger.unconfirmed)} "
            f"carried={self.carried_count()}>"
        )

    @property
    def ledger(self) -> Ledger:
        """The newest ledger; with later news, which the next one that is put has."""
        return self._ledger

    @property
    def journal_state(self) -> JournalState:
        """Return the state of the journal that decides whether Spark's checkpoint fits."""
        return JournalState(
            self.journal.id,
            self.journal.location,
            self._ledger,
            self._settled_at_start,
            self._unsettled,
            frozenset(self._own),
        )

    def carried_count(self) -> int:
        return sum(map(len, self._ledger.carried.values()))

    def number_after(self, start: Offset) -> int:
        """Return the number of the epoch after `start`, above all those that stand in the journal."""
        return max(start.epoch, self._highest()) + 1

    def first_number(self) -> int:
        """Return a number above all that any offset log of this journal may have, with room before it.

        A log may have an epoch of each earlier driver that has left nothing else, and the two after it. If a generation
        begins with it, the epoch before it settles all those.
        """
        has_begun = self._ledger.generation == self.claim  # nobody was here before the first one
        return self._highest() + _GAP * (self.claim - self.journal.first_claim) + (1 if has_begun else 2)

    def _highest(self) -> int:
        return max([self._ledger.epoch, *(each.epoch for each in self._unsettled)])

    # The claim

    def require_claim(self) -> None:
        """Raise FencedError if another driver owns the journal."""
        self.journal.require_claim(self.claim, self._read_pool)

    def require_claim_of(self, receipts: Sequence[Receipt]) -> None:
        """Release the received messages and raise FencedError if another driver owns the journal."""
        try:
            self.require_claim()
        except SqsFifoError:
            self.release(receipts)
            raise

    @contextmanager
    def claim_checked_on_error(self) -> Iterator[None]:
        """Raise the driver's FencedError where an epoch is settled, gone or fenced: another one has done that."""
        try:
            yield
        except (EpochSettledError, FencedError, JournalUnavailableError):
            with suppress(JournalUnavailableError):
                self.require_claim()
            raise

    # Objects of earlier epochs

    def take(self, offset: Offset) -> None:
        """Take the epoch of `offset` for the query's own: Spark goes on with it."""
        self._own |= {offset.of} & self._unsettled.keys()

    def release_others(self) -> None:
        """Release the orphans: other drivers announced them, of this query or of earlier ones.

        Messages that their tasks have sealed and may have deleted are not released: they are carried. A link that a
        task of an earlier generation has put since that was over is none of these: its driver no longer owned the
        journal, so the task has deleted nothing.
        """
        others = self._others()
        if not others:
            return
        self.require_claim()  # else they are a newer driver's, to hold or to release
        known, found = {*self._ledger.unconfirmed}, dict[str, tuple[str, ...]]()
        left: list[Receipt] = []
        names = [name for each in others for name in self._unsettled[each].names]
        for name, head in zip(names, self._read_pool.map(self.journal.head, names), strict=True):
            if head is None:
                continue
            self._payload_deletes.add(head.chain.payloads)
            may_be_deleted = head.origin.deletes and not self._ledger.has_ended(head.origin.plan)
            sealed = [receipt for receipt in head.receipts if may_be_deleted and not receipt.deferred]
            new = tuple(receipt.message_id for receipt in sealed if receipt.message_id not in known)
            if new:
                found[name] = new
                known.update(new)
            left += (receipt for receipt in head.receipts if receipt.deferred or not may_be_deleted)
        self.release(left)  # at once: where SQS does not answer, that is waited for once
        self._released.update(others)
        # Messages that the ledger carried to them, and they have sealed, are carried from there: only there they may be
        # deleted.
        sealed_ids = {message_id for ids in found.values() for message_id in ids}
        for name, ids in self._ledger.carried.items():
            if rest := tuple(message_id for message_id in ids if message_id not in sealed_ids):
                found[name] = rest
        self._ledger = replace(self._ledger, carried=found)

    def _others(self) -> list[EpochPlan]:
        return sorted(self._unsettled.keys() - self._own - self._released)

    def begin(self, first: Offset, after: Offset) -> None:
        """Begin the generation of `first`, which Spark has logged: take over all else that stands in the journal.

        `after` is the entry of its log before that: nothing of a new query, or an epoch that the user has given up.

        All of it is settled with that, by an epoch of no plan before `first`. So links that earlier queries' tasks
        still put count for nothing, and their checkpoints are refused. A crash before the ledger is put changes nothing
        but that some messages come again; one after it leaves objects for the next driver to drop. Raises FencedError.
        """
        self._own = {first.of}
        self.release_others()
        end = EpochPlan(first.epoch - 1, 0)
        ledger = replace(
            self._ledger,
            epoch=end.epoch,
            plan=0,
            claim=self.claim,
            generation=first.generation,
            begun_by=self.claim,
            begun_after=after.of if after.plan else None,
            followed_by=first if after.plan else None,
        )
        self._put(ledger, end, ())

    # Ending epochs

    def close(self, epoch: Epoch) -> Verdict:
        """Return the verdict on an epoch whose tasks are over. Raises FencedError if another driver owns the journal.

        It is asked once the chains are closed. Else a newer driver may have settled the epoch, and late tasks have put
        segments since, with messages that it never served.
        """
        with self.claim_checked_on_error():
            verdict = epoch.close(self._ledger)
        self.require_claim()
        self._judged = epoch
        self._forget(verdict.gone)
        return verdict

    def settle(self, epoch: Epoch, *, followed_by: Offset | None) -> None:
        """Settle `epoch`, in the five steps of `docs/protocol.md`. Doing it again after a crash is safe.

        `followed_by` is the one that Spark has logged after it, if that is known. Orphans are released before it is
        judged, for messages that this one has served are not carried from them.
        """
        end = epoch.offset
        self.take(end)
        self.release_others()
        # 1. Close and judge, then check the claim, unless it is done. A crash after it leaves all as it was; the next
        #    driver judges for itself.
        verdict = epoch.close(self._ledger) if self._judged is epoch else self.close(epoch)
        # 2. Delete what it served, and copies: whoever owns the journal by now, Spark has committed that. A crash
        #    within or after it leaves the epoch whole in the journal, not settled: the next driver settles it, and SQS
        #    confirms the delete of what it no longer has.
        #    Deletes that got no answer last time are tried again with the handle that may still work.
        again = [entry.receipt for entry in self._ledger.unconfirmed.values() if entry.receipt is not None]
        again = [receipt for receipt in again if receipt.message_id not in verdict.copies]
        self._payload_deletes.add(verdict.payloads)
        done = [
            each._replace(payload="") if each.payload and each.message_id in self._kept else each
            for each in (*verdict.served.values(), *verdict.copies.values())
        ]
        unconfirmed = self._delete([*done, *again])
        # 3 to 5. Put the ledger, check the claim, drop what is behind it.
        self._put(
            Ledger(
                end.epoch,
                unconfirmed,
                {name: tuple(receipts) for name, receipts in verdict.carried.items()},
                end.plan,
                self.claim,
                max(self._ledger.generation, end.generation),
                self._ledger.begun_by,
                None,
                followed_by,
            ),
            end.of,
            {plan.deal for plan in epoch.plans or () if isinstance(plan.deal, str)},
        )
        epoch.stop_renewing()

    def _put(self, ledger: Ledger, end: EpochPlan, deals: Iterable[str]) -> None:
        ledger = replace(ledger, payloads=self._payload_deletes.left)
        # 3. Put the ledger. A crash after it leaves the epoch settled, with objects that the next driver drops when
        #    it opens the journal.
        self.journal.put_ledger(ledger)
        # 4. Check the claim: a newer driver may have found the ledger before this one, and judge by that; then the rest
        #    is that driver's to do. A crash after it leaves the same as one after 3.
        finding = self._read_pool.submit(lambda: self.journal.older_ledgers(ledger.epoch))
        try:
            self.require_claim()
        except FencedError:
            finding.result()  # says that it was in a commit, once the newer driver has put a ledger
            raise
        older = finding.result()
        self._ledger = ledger
        # 5. Drop what is behind it, while the query goes on. A crash within it leaves some of that, as one after 3; a
        #    crash after it leaves nothing to do.
        dropping, self._dropping = self._dropping, None
        if dropping is not None:
            dropping.result()
        drop = functools.partial(self._drop, end, [*older, *deals], ledger.carried.keys())
        self._dropping = self._drop_pool.submit(drop)
        self._payload_deletes.begin()

    def _drop(self, end: EpochPlan, older: Sequence[str], carried: Container[str]) -> None:
        """Drop the `older` objects, and all up to the epoch `end` but for those that are `carried`."""
        self.journal.drop(older)
        doomed, others = [], list[Receipt]()
        for number, names in self.journal.objects().items():
            for name in names:
                if number > end.epoch or name in carried:
                    continue
                doomed.append(name)
                if number == end.epoch and end.plan and self.journal.plan_of(name) != end.plan:
                    others += self.journal.receipts(name)  # another plan's: it is no content
        if others:
            self.release(others)
        self.journal.drop(doomed)

    def delete_copies(self, receipts: Iterable[Receipt], *, budget_s: float) -> None:
        """Delete messages that an earlier epoch has served; the ledger in memory names those that are not confirmed."""
        self._ledger = replace(self._ledger, unconfirmed=self._delete(receipts, budget_s))

    def release(self, receipts: Iterable[Receipt]) -> None:
        release(receipts, queue=self._queue, lease=self._lease)

    def _delete(self, receipts: Iterable[Receipt], budget_s: float = SETTLE_BUDGET_S) -> dict[str, UnconfirmedMessage]:
        left, payloads = delete_committed(
            receipts,
            self._ledger.unconfirmed,
            queue=self._queue,
            lease=self._lease,
            clock=self._clock,
            budget_s=budget_s,
        )
        self._payload_deletes.add(payloads)
        return left

    @functools.cached_property
    def _kept(self) -> frozenset[str]:
        """Ids of messages whose payloads stay, also if a later query is the one that deletes them."""
        return self.journal.pointers_aside()

    def _forget(self, gone: Container[str]) -> None:
        """Remove messages that SQS no longer has from the ledger in memory; the next one that is put lacks them."""
        left = {key: entry for key, entry in self._ledger.unconfirmed.items() if key not in gone}
        self._ledger = replace(self._ledger, unconfirmed=left)


def _by_plan(opened_journal: OpenedJournal, pool: Pool) -> Mapping[EpochPlan, UnsettledPlan]:
    """Return the unsettled objects by epoch and plan. One link of each plan has its offset."""
    journal = opened_journal.journal
    names: dict[EpochPlan, list[str]] = {}
    for epoch, found in opened_journal.unsettled.items():
        for name in found:
            names.setdefault(EpochPlan(epoch, journal.plan_of(name) or 0), []).append(name)
    links = {each: max(filter(Journal.is_link, of), default=None) for each, of in names.items()}
    plan_links = [(each, link) for each, link in links.items() if link is not None]
    heads = pool.map(journal.head, [link for _, link in plan_links])
    origins = {each: head.origin for (each, _), head in zip(plan_links, heads, strict=True) if head is not None}
    return {
        each: UnsettledPlan(
            tuple(of),
            Offset(journal.id, each.epoch, origins[each].partitions, each.plan) if each in origins else None,
            origins[each].after if each in origins else "",
            Journal.caught_name(*each) in of,
        )
        for each, of in names.items()
    }
