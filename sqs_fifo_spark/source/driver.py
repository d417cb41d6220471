"""The driver's side of a query: which epoch comes next, what its tasks read, and what a commit does.

    latest_offset   is there work?  -> the next epoch    (the last epoch leaves something; or the probe)
    commit          settle the last epoch                (delete, ledger, drop; its groups are unlocked)
    plan            the partitions of the next epoch

Spark commits an epoch only when it has logged the next one, so after an epoch that leaves something to settle or to
serve another is announced at once; after one that leaves nothing, the driver probes first. Spark calls these methods
one at a time; only the heartbeat's threads run beside them, and see nothing but the lease and the open epoch.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from sqs_fifo_spark.aws.calls import MAX_ENTRIES
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import (
    EpochSettledError,
    FencedError,
    JournalUnavailableError,
    OptionError,
    SqsFifoError,
    TransientQueueError,
)
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.options import SourceOptions
from sqs_fifo_spark.source.available_now import WAIT_S, AvailableNow
from sqs_fifo_spark.source.epoch import Epoch
from sqs_fifo_spark.source.journal import Journal
from sqs_fifo_spark.source.lease import Heartbeat, Lease
from sqs_fifo_spark.source.ledger import Ledger, Unconfirmed
from sqs_fifo_spark.source.leftovers import Leftovers
from sqs_fifo_spark.source.message import Message, Receipt
from sqs_fifo_spark.source.offset import EpochPlan, Offset
from sqs_fifo_spark.source.partition import PartitionPlan
from sqs_fifo_spark.source.planning import expected_messages, partition_count, plan_partitions
from sqs_fifo_spark.source.pool import Answer, MakePool, in_calling_thread
from sqs_fifo_spark.source.queue import Queue, most_renewed
from sqs_fifo_spark.source.settling import delete_committed, release
from sqs_fifo_spark.source.startup import open_journal, report_data_loss, require_old_enough, require_same_journal
from sqs_fifo_spark.source.verdict import Verdict

_log = logging.getLogger(__name__)

CONCURRENT_READS = 8
"""How many reads of receipts run at once while Spark waits for them."""
CONCURRENT_DISCOVERIES = 4
"""How many reads of receipts the heartbeat makes at once."""
_UNKNOWN_GROUPS = 2
"""As how many groups what waits is taken, where tasks delete, until an epoch tells how many there are."""
_GAP = 4
"""How many numbers each claim skips for an epoch that does not follow another. An offset log may have an epoch of an
earlier claim and the two after it; so no new query takes a number that another has, and no log goes back. An older
query that comes back may: plans tell them apart."""


class Driver:
    """One query's source on the driver. Built without any I/O; the first call opens queue and journal.

    The journal is read in two pools: one while Spark waits, one for the heartbeat. `queue` has pools of its own, so a
    journal that stalls delays no renewal. What is settled is dropped in a third one, while the query goes on.
    """

    def __init__(
        self,
        options: SourceOptions,
        *,
        queue: Queue,
        store: Callable[[], Store],
        clock: Clock,
        pool: MakePool = in_calling_thread,
    ) -> None:
        self._options = options
        self._queue = queue
        self._make_store = store
        self._clock = clock
        self._read_pool = pool("read", CONCURRENT_READS)
        self._discovery_pool = pool("discovery", CONCURRENT_DISCOVERIES)
        self._drop_pool = pool("drop", 1)
        self._dropping: Answer[None] | None = None
        """The drop of what the last epoch has left behind."""
        self._lease = Lease(
            queue,
            clock,
            visibility_timeout_s=options.visibility_timeout_s,
            heartbeat_s=options.heartbeat_s,
        )
        self._heartbeat = Heartbeat(self._lease, clock, every_s=options.heartbeat_s, discover=self._discover)
        self._journal_or_none: Journal | None = None
        self._claim = 0
        self._ledger = Ledger(0)
        self._settled_at_start = EpochPlan(0, 0)
        """The last epoch that was settled when the journal was opened."""
        self._highest_ever = 0
        """No offset log had a higher number when the journal was opened."""
        self._leftovers_or_none: Leftovers | None = None
        self._open: Epoch | None = None
        """The epoch whose tasks may be running, or that is closed and waits for its commit."""
        self._next: Epoch | None = None
        """The epoch that was announced and not planned."""
        self._position: Offset | None = None
        self._waiting = 0
        self._available_now: AvailableNow | None = None
        self._is_finished = False

    def __repr__(self) -> str:
        return (
            f"<Driver epoch={self._position.epoch if self._position else 0} claim={self._claim} open={self._open!r} "
            f"next={self._next!r} unsettled={len(self._leftovers_or_none or ())} "
            f"unconfirmed={len(self._ledger.unconfirmed)} "
            f"carried={sum(map(len, self._ledger.carried.values()))} lease={self._lease!r}>"
        )

    # What Spark calls

    def initial_offset(self) -> Offset:
        """Return where a new query starts: after all that is settled in the journal, which is made if needed.

        What older queries have left there comes from the queue again. Raises every start-up error there is.
        """
        journal = self._journal(None)
        start = Offset(journal.id, self._settled_at_start.epoch, 0)
        self._position = self._position or start
        return start

    def prepare_available_now(self) -> None:
        """Serve what waits now, then end: see `latest_offset`."""
        self._available_now = AvailableNow(
            self._queue, self._clock, visibility_timeout_s=self._options.visibility_timeout_s
        )

    def latest_offset_without_start(self) -> Offset:
        """Do `latest_offset` for Spark before 4.2, which gives no start: Spark is then at the offset it got last.

        If it got none yet, its log may have epochs that are not settled. Then return an epoch
        after all of them, announced blindly, and the same one until Spark has said where it is.
        """
        told = self._next.offset if self._next else self._position
        if told is None:
            return self._announce_blindly(self._journal(None))
        if self._next is not None and told.is_blind:
            return told
        return self.latest_offset(told)

    def latest_offset(self, start: Offset, max_messages: int | None = None) -> Offset:
        """Return the offset of the next epoch if there is work, else `start`.

        With nothing to do this blocks for one long poll. After `prepare_available_now`, `AvailableNow` says which epoch
        is the last one; an epoch without partitions follows it, so that Spark commits it. With nothing to do, this then
        blocks until all holds of dead attempts have lapsed, one visibility timeout at most.

        Raises FencedError when another driver owns the journal; the error of a heartbeat that failed; and, after
        `prepare_available_now`, TransientQueueError.
        """
        journal = self._journal(start)
        if self._next is not None:
            if self._next.offset != start:
                return self._next.offset
            # The batch ran without a look at its rows, so its plan was never asked for.
            self._open, self._next = self._next, None
        self._require_ours(journal)
        self._position = start
        if self._is_finished:
            return start
        self._settle_before(journal, start)
        limit = max_messages or self._options.max_messages_per_trigger
        number = self._number_after(start)
        if start.plan:
            lost = self._announce_lost(journal, start, number, limit)
            if lost is not None:
                return lost
        # Those of other queries, which ran on this journal since, or before a new one. Before the verdict on `start`:
        # what that has served, and they have taken over, is not carried.
        self._release_plans(journal, self._leftovers.others())
        if start.epoch > self._ledger.epoch:
            verdict = self._close(journal, start)
            carried = len(verdict.carried_receipts())
        else:
            verdict = Verdict()
            carried = sum(map(len, self._ledger.carried.values()))
        caught = self._find_work(journal, limit, verdict, carries=carried > 0)
        if self._is_finished:
            return self._announce(self._new_offset(journal, number, 0, start), limit)
        if caught is None:
            if self._available_now:
                self._require_ours(journal)  # the query ends, so nothing else tells that another one has the messages
            return start
        count, expected = self._size(limit, verdict, len(caught), carried)
        return self._announce(self._new_offset(journal, number, count, start), limit, expected, caught, start.name)

    def _announce_lost(self, journal: Journal, start: Offset, number: int, limit: int) -> Offset | None:
        """Announce the epoch after `start` that Spark's log has lost, if a restart finds one: Spark gives it again.

        Spark commits an epoch after it has logged the next. So if `start` is settled, and the next was one of ours, the
        log has lost that.
        """
        if self._open is not None or start.epoch != self._settled_at_start.epoch:
            return None
        lost = self._leftovers.following(start)
        if lost is not None:
            _log.warning(
                "the checkpoint does not know of epoch %d, which is in the journal at '%s', so it is announced "
                "again, with what it had.",
                lost.epoch,
                journal.location,
            )
            self._ledger = self._leftovers.take(lost, self._ledger)
            return self._announce(lost, limit)
        if self._ledger.followed_by:
            # The sink may have written the next batch, without rows: no other rows may get that batch's id. A closed
            # chain tells so, should the log lose this one, too, and tasks of the lost one still put something.
            empty = self._announce(self._new_offset(journal, number, 1, start), limit)
            if self._next is not None:
                self._next.replay(start.name)
            return empty
        return None

    def _find_work(
        self, journal: Journal, limit: int, verdict: Verdict, *, carries: bool
    ) -> tuple[Message, ...] | None:
        """Return what was caught for a next epoch, perhaps nothing; or None if there is nothing for one to do.

        An AvailableNow query may be finished with that: then it only wants its last epoch committed.
        """
        caught: tuple[Message, ...] = ()
        if self._available_now and self._open:
            if self._available_now.may_end_with(self._open, verdict):
                found, is_all = self._poll(journal, limit)
                caught = self._without_held(found, verdict)
                if is_all and len(caught) == len(found) and self._available_now.ends_with(found):
                    receipts = [message.receipt for message in found]
                    self._require_claim_of(receipts, journal)
                    self._release(receipts)
                    self._is_finished = True
                    return None
            if self._open.is_unread() and (caught or carries):
                _log.warning("the last micro-batch read nothing of what it got, so this AvailableNow query ends.")
                self._release([*(message.receipt for message in caught), *self._open.taken_over()])
                return None
        if verdict.is_empty and not carries:
            return caught or self._probe(journal, limit) or None
        return caught

    def _size(self, limit: int, verdict: Verdict, caught: int, carried: int) -> tuple[int, int]:
        """Return how many partitions the next epoch gets, and about how many messages it can get."""
        self._count_waiting(verdict.held + caught)
        waiting = self._waiting + caught
        has_read = self._open is not None and self._open.plans is not None
        if has_read and not waiting and not carried:
            # It only makes Spark commit the last epoch. A driver that has planned nothing yet does not trust the number
            # of waiting messages, which may lag behind: with Trigger.Once there is no other epoch.
            return 0, 0
        most = min(self._options.num_partitions, limit)
        if not self._deletes:
            last = self._open.expected if self._open else 0
            expected = expected_messages(waiting, verdict.count, last) + carried
            return partition_count(expected, most), expected
        # A group goes on as soon as its messages are deleted. So a few hot groups need few partitions, and one of them
        # may get all that there is.
        most = min(most, verdict.groups or _UNKNOWN_GROUPS)
        return partition_count(waiting + carried, most), waiting + carried

    def plan(self, start: Offset, end: Offset) -> list[PartitionPlan]:
        """Return each partition's share of the plan of the epoch `end`; the same ones when this driver is asked again.

        Raises DataLossError for an epoch that is settled, or that lies behind where Spark is; OptionError
        where Spark reads on without having committed.
        """
        journal = self._journal(end)
        plans = self._plan(journal, start, end)
        self._position = end
        return plans

    def _plan(self, journal: Journal, start: Offset, end: Offset) -> list[PartitionPlan]:
        self._require_known(journal, start)
        if start == end:
            self._require_none_lost(journal, start)
            return []  # Spark 4.0 and 4.1 ask this at a restart, to say where they are
        if self._open is not None and self._open.offset == end and self._open.plans is not None:
            return self._open.plans
        # A restart that replays its first batch asks for the initial offset first, which does not check the checkpoint.
        fail_on_data_loss = self._options.fail_on_data_loss
        require_same_journal(end, journal, journal.location, fail_on_data_loss=fail_on_data_loss)
        if end.epoch <= start.epoch:
            report_data_loss(
                f"Spark's offset log goes back, from epoch {start.epoch} to epoch {end.epoch}, which Spark "
                "was given before",
                "Start the query with a new checkpoint location, on the same journal.",
                fail_on_data_loss=fail_on_data_loss,
            )
            return []
        if end.epoch <= self._ledger.epoch:
            report_data_loss(
                f"Spark asks for epoch {end.epoch} again, but the journal at '{journal.location}' has committed epoch "
                f"{self._ledger.epoch}: the checkpoint is old, or another query has consumed the queue since",
                "If two runs of the query overlapped, start it again; else restore the matching checkpoint.",
                fail_on_data_loss=fail_on_data_loss,
            )
            return []
        if self._open is not None and self._open.offset == start and self._open.plans is not None:
            journal.require_claim(self._claim)
            raise OptionError(
                f"Spark plans epoch {end.epoch} and has not committed epoch {start.epoch}, as it does with the option "
                "'asyncProgressTrackingEnabled'. Leave that out: a message is deleted, and its group goes on, only "
                "when its micro-batch is committed."
            )
        # Spark plans from an epoch only when it has committed it; a crash may have kept us from settling it.
        self._ledger = self._leftovers.take(end, self._ledger)
        self._commit(start, followed_by=end)
        self._release_plans(journal, self._leftovers.others(start.epoch, end.epoch))
        limit = self._options.max_messages_per_trigger
        is_replay = self._leftovers.has(end)
        if self._next is not None and self._next.offset == end:
            epoch = self._next
        else:
            epoch, is_replay = self._epoch(journal, end, limit, expected=limit), True
        if is_replay:
            with self._told_as_fenced(journal):
                epoch.replay(start.name)
        with self._told_as_fenced(journal):
            carried = epoch.load_carried(self._ledger)
        since = self._clock.monotonic() - self._options.heartbeat_s
        for head in carried.values():
            may_be_deleted = epoch.deletes or head.origin.deletes
            self._lease.hold(head.receipts, since=since, may_be_deleted=may_be_deleted)
        self._lease.renew()  # what an earlier driver left may be about to lapse; all else is not due
        epoch.plans = plan_partitions(
            replace(end, journal=journal.id),
            after=start.name,
            carried=carried,
            expected=epoch.expected,
            max_messages=epoch.max_messages,
            max_bytes=self._options.max_bytes_per_trigger,
            claim=self._claim,
            deletes=epoch.deletes,
            looks=self._ledger.deletes,
        )
        self._open = epoch
        if self._next is not None and self._next.offset.epoch <= end.epoch:
            if self._next is not epoch:
                self._release(self._next.caught)
            self._next = None
        return epoch.plans

    def _require_known(self, journal: Journal, known: Offset) -> None:
        """Raise DataLossError unless the journal is the one that the checkpoint's offset `known` refers to."""
        fail_on_data_loss = self._options.fail_on_data_loss
        require_same_journal(known, journal, journal.location, fail_on_data_loss=fail_on_data_loss)
        require_old_enough(known, self._settled_at_start, journal.location, fail_on_data_loss=fail_on_data_loss)

    def _require_none_lost(self, journal: Journal, start: Offset) -> None:
        """Raise DataLossError if Spark's log has lost an epoch, and Spark is about to log another one in its place."""
        is_blind = self._next is not None and self._next.offset.is_blind
        if not is_blind or not start.plan or start.epoch != self._ledger.epoch:
            return
        lost = self._leftovers.following(start)
        if lost is not None or self._ledger.followed_by:
            what = f"epoch {lost.epoch}" if lost is not None else f"the epoch that followed epoch {start.epoch}"
            report_data_loss(
                f"the checkpoint does not know of {what}, which the journal at '{journal.location}' knows of, and "
                "another one was announced before Spark said where the query was",
                "Start the query with 'spark.sql.streaming.triggerAvailableNowWrapper.enabled' set to false.",
                fail_on_data_loss=self._options.fail_on_data_loss,
            )

    def commit(self, end: Offset) -> None:
        """Settle the epoch `end`, which Spark has committed: delete its messages, put the ledger, drop objects.

        Spark has logged the epoch after it by then, if one was announced.
        Returns when SQS has confirmed the deletes or they stand in the ledger. Doing it again changes nothing.
        """
        self._commit(end, followed_by=self._next.offset if self._next else None)

    def _commit(self, end: Offset, *, followed_by: Offset | None) -> None:
        journal = self._journal(end)
        if end.epoch <= self._ledger.epoch:
            return
        self._heartbeat.check()
        self._settle_before(journal, end)
        self._settle(journal, end, followed_by=followed_by)

    def _settle_before(self, journal: Journal, given: Offset) -> None:
        """Settle or release the epochs in the journal that come before `given`, which Spark has been given.

        Spark has committed the epoch that `given` follows, and a crash kept the driver from settling it: settle that
        one. Release the older ones, which are another query's. If `given` was announced blindly and its tasks have not
        run, nobody can tell them apart: DataLossError.
        """
        leftovers = self._leftovers
        self._ledger = leftovers.take(given, self._ledger)
        before = leftovers.preceding(given, self._ledger.epoch)
        if before is not None:
            self._settle(journal, before, followed_by=given)
            return
        if given.journal == journal.id and not self._follows_what_is_settled(given):
            report_data_loss(
                f"the checkpoint stands at epoch {given.name}, and the journal at '{journal.location}', which has "
                f"committed epoch {self._ledger.settled.name}, does not tell that what came before it was committed: "
                "another query has consumed the queue since",
                "Restore the matching checkpoint, or start the query with a new one.",
                fail_on_data_loss=self._options.fail_on_data_loss,
            )
        others = leftovers.others(self._ledger.epoch, given.epoch)
        begun = [each.epoch for each in others if leftovers.has_links(each)]
        if begun and given.is_blind and not leftovers.has_links(given.of):
            report_data_loss(
                f"epoch {given.epoch} was announced before Spark said where the query was, and its rows were never "
                f"read, so nobody can tell whether Spark has committed epoch {begun[-1]}, which is in the journal "
                f"at '{journal.location}'",
                "Start the query with a new checkpoint location, on the same journal, and with "
                "'spark.sql.streaming.triggerAvailableNowWrapper.enabled' set to false.",
                fail_on_data_loss=self._options.fail_on_data_loss,
            )
        self._release_plans(journal, others)

    def _follows_what_is_settled(self, given: Offset) -> bool:
        """Return whether the epoch that `given` follows, and that is no longer in the journal, is known to be settled.

        Else a query that has overtaken this one may have released it, and dropped it with an epoch of its own: a driver
        that stands still may announce one more epoch, and Spark log it, after that. Tasks put links of `given` only
        once what it follows is settled.
        """
        _, _, plan = self._ledger.followed_by.rpartition("/")
        settled = {self._ledger.plan, int(plan or 0)}  # the one that follows may have left nothing to settle
        is_settled = not given.after or given.after in settled or self._leftovers.has_links(given.of)
        return is_settled or given.epoch <= self._ledger.epoch

    def _release_plans(self, journal: Journal, plans: Sequence[EpochPlan]) -> None:
        if plans:
            journal.require_claim(self._claim)  # else they are a newer driver's, to hold or to release
            self._ledger = self._leftovers.release(plans, self._ledger)

    def _settle(self, journal: Journal, end: Offset, *, followed_by: Offset | None) -> None:
        """Settle the epoch `end`, in the six steps of `docs/protocol.md`. Doing it again after a crash is safe.

        `followed_by` is the one that Spark has logged after it, if that is known.
        """
        # All others, wherever their numbers lie, are other queries'. Released before this one is judged, for what this
        # one has served is not carried from them; and for good, as the ledger says, for only this one could tell.
        self._ledger = self._leftovers.take(end, self._ledger)
        self._release_plans(journal, self._leftovers.others())
        # 1. Close and judge. A crash after it leaves all as it was; the next driver judges for itself.
        verdict = self._close(journal, end)
        # 2. Check the claim: a newer driver may have settled the epoch, and leftovers may since have put segments with
        #    messages that it never served. A crash after it leaves all as it was.
        journal.require_claim(self._claim)
        # 3. Delete what it served, and copies. A crash within or after it leaves the epoch whole in the journal, not
        #    settled: the next driver settles it, and SQS confirms the delete of what it no longer has.
        #    Deletes that got no answer last time are tried again with the handle that may still work.
        again = [entry.receipt for entry in self._ledger.unconfirmed.values() if entry.receipt is not None]
        again = [receipt for receipt in again if receipt.message_id not in verdict.copies]
        unconfirmed = self._delete([*verdict.served.values(), *verdict.copies.values(), *again])
        carried = {name: tuple(receipts) for name, receipts in verdict.carried.items()}
        ledger = Ledger(
            end.epoch,
            unconfirmed,
            carried,
            end.plan,
            self._claim,
            followed_by.name if followed_by else "",
            self._leftovers.released_above(end.epoch),
            self._leftovers.returned_above(end.epoch),
            self._ledger.deletes or (self._wants_deletes and end.plan == self._claim),
        )
        # 4. Put the ledger. A crash after it leaves the epoch settled, with objects that the next driver drops when
        #    it opens the journal.
        journal.put_ledger(ledger)
        # 5. Check the claim: a newer driver may have put, and dropped, a ledger of this name before; then the rest is
        #    that driver's to do. A crash after it leaves the same as one after 4.
        journal.require_claim(self._claim)
        self._ledger = ledger
        # 6. Drop all objects up to the epoch, but for those that the ledger carries, while the query goes on. A crash
        #    within it leaves some of them, as one after 4; a crash after it leaves nothing to do.
        self._wait_for_drop()
        doomed: list[str] = []
        for epoch, names in journal.objects().items():
            if epoch <= end.epoch:
                doomed += (name for name in names if name not in carried)
                if epoch == end.epoch:
                    for name in names:
                        if name not in carried and journal.plan_of(name) != end.plan:
                            self._release(journal.receipts(name))  # another plan's: it is no content
        self._dropping = self._drop_pool.submit(functools.partial(journal.drop, doomed))
        if self._open is not None:
            self._open.stop_renewing()
            self._open = None

    def _wait_for_drop(self) -> None:
        dropping, self._dropping = self._dropping, None
        if dropping is not None:
            dropping.result()

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
        self._heartbeat.stop()

    # Owning the journal

    @property
    def _wants_deletes(self) -> bool:
        return self._options.delete_after == "journal"

    @property
    def _deletes(self) -> bool:
        """Whether tasks delete what they have sealed."""
        return self._wants_deletes and self._ledger.deletes

    def _journal(self, known: Offset | None) -> Journal:
        """Return the journal, opened by the first call; `known` is an offset from Spark's checkpoint."""
        if self._journal_or_none is None:
            opened = open_journal(
                self._queue,
                self._make_store(),
                known,
                deletes=self._wants_deletes,
                fail_on_data_loss=self._options.fail_on_data_loss,
            )
            self._claim = opened.claim
            self._ledger = opened.ledger
            self._settled_at_start = opened.ledger.settled
            self._leftovers_or_none = Leftovers(
                opened.journal, self._read_pool, opened.unsettled, opened.ledger, release=self._release
            )
            highest = max(opened.ledger.epoch, self._leftovers_or_none.highest)
            self._highest_ever = highest + _GAP * (self._claim - 1)
            self._journal_or_none = opened.journal
            self._warn_of_long_renewals()
            self._heartbeat.start()
        return self._journal_or_none

    @property
    def _leftovers(self) -> Leftovers:
        assert self._leftovers_or_none is not None
        return self._leftovers_or_none

    def _warn_of_long_renewals(self) -> None:
        most = most_renewed(self._options.heartbeat_s)
        if self._options.max_messages_per_trigger > most:
            _log.warning(
                "maxMessagesPerTrigger is %d, but about %d messages can be renewed within heartbeatSeconds (%g), so a "
                "full micro-batch that takes longer may lose its hold on some. Lower it, or raise "
                "visibilityTimeoutSeconds.",
                self._options.max_messages_per_trigger,
                most,
                self._options.heartbeat_s,
            )

    def _require_ours(self, journal: Journal) -> None:
        """Raise FencedError if another driver owns the journal, or the error of a heartbeat that failed."""
        journal.require_claim(self._claim)
        self._heartbeat.check()

    # Finding work

    def _probe(self, journal: Journal, max_messages: int) -> tuple[Message, ...]:
        """Return what a long poll brings and no epoch has served; nothing when the queue gives no answer."""
        while True:
            asked_at = self._clock.monotonic()
            try:
                found, _ = self._poll(journal, max_messages)
            except TransientQueueError as error:
                if self._available_now:
                    raise  # it would end as if nothing were left
                _log.warning("the queue gives no answer, so the query waits for it: %s", error)
                return ()
            if found or not self._available_now or self._available_now.may_end_empty(asked_at):
                return found

    def _poll(self, journal: Journal, max_messages: int) -> tuple[tuple[Message, ...], bool]:
        """Return the messages of a long poll that no epoch has served, and whether none of those was released.

        Copies are deleted. If nothing is left to return, poll again. No task can seal anything meanwhile, so what is
        returned need not be deferred, however often it was received before.
        """
        wait_time_s = min(self._options.wait_time_s, WAIT_S) if self._available_now else self._options.wait_time_s
        is_all = True
        while True:
            received = self._queue.receive(min(MAX_ENTRIES, max_messages), receive=0, wait_time_s=wait_time_s)
            if not received:
                return (), is_all
            self._lease.hold([message.receipt for message in received], since=self._clock.monotonic())
            found, has_released = self._without_copies(journal, received)
            is_all = is_all and not has_released
            if found:
                return found, is_all

    def _without_copies(self, journal: Journal, received: list[Message]) -> tuple[tuple[Message, ...], bool]:
        """Delete the copies in `received`. Return the other messages, and whether some of those were released.

        They are released if a copy of their group could not be deleted: a later message of the group, once sealed,
        would be taken as proof that the copy is gone.
        """
        copies = {each.receipt.message_id for each in received if each.receipt.message_id in self._ledger.unconfirmed}
        if not copies:
            return tuple(received), False
        self._require_claim_of([each.receipt for each in received], journal)
        doomed = [each.receipt for each in received if each.receipt.message_id in copies]
        unconfirmed = self._delete(doomed)
        self._ledger = replace(self._ledger, unconfirmed=unconfirmed)
        left = {receipt.message_group_id for receipt in doomed if receipt.message_id in unconfirmed}
        others = [each for each in received if each.receipt.message_id not in copies]
        if self._available_now and any(unconfirmed[key].receipt for key in copies & unconfirmed.keys()):
            # They hide what is behind them in their groups: the next poll would find nothing, and the query would end.
            self._release([each.receipt for each in others])
            raise TransientQueueError(
                f"{len(copies)} copies of committed messages could not be deleted, and they hide what follows them. "
                "Start the query again."
            )
        released = [each.receipt for each in others if each.receipt.message_group_id in left]
        self._release(released)
        return tuple(each for each in others if each.receipt.message_group_id not in left), bool(released)

    def _without_held(self, found: tuple[Message, ...], verdict: Verdict) -> tuple[Message, ...]:
        """Release the groups of `found` in which a message of the last epoch came again; return the other messages.

        The hold on such a message is lost, but the last epoch is not settled yet: the message is left to the
        commit, and to the tasks after it.
        """
        held = {*verdict.served, *verdict.copies, *(each.message_id for each in verdict.carried_receipts())}
        again = {each.receipt.message_group_id for each in found if each.receipt.message_id in held}
        self._release([each.receipt for each in found if each.receipt.message_group_id in again])
        return tuple(each for each in found if each.receipt.message_group_id not in again)

    def _count_waiting(self, ours: int) -> None:
        """Ask roughly how many messages wait, which guides the number of partitions: an old answer will do."""
        try:
            self._waiting, in_flight = self._queue.approximate_counts()
            if self._available_now is not None:
                self._available_now.note_announced(in_flight, ours)
        except TransientQueueError as error:
            _log.warning("the number of waiting messages is not known, so the last one is used: %s", error)

    def _announce_blindly(self, journal: Journal) -> Offset:
        """Announce an epoch after all that Spark's log may have, as Spark has not yet said where it is."""
        self._require_ours(journal)
        self._count_waiting(0)
        limit = self._options.max_messages_per_trigger
        count = partition_count(self._waiting, min(self._options.num_partitions, limit))
        offset = Offset(journal.id, self._number_after(None), count, self._claim, is_blind=True)
        return self._announce(offset, limit, self._waiting)

    def _number_after(self, start: Offset | None) -> int:
        """Return the number of the epoch after `start`, above all those that stand in the journal.

        It is above all that any older query's offset log may have, too, for a query that begins; and for one whose
        tasks are going to delete: the older one's, which do not look for others, are refused once this one is settled.
        """
        last = max(start.epoch if start else 0, self._ledger.epoch, self._leftovers.highest)
        begins = start is None or not start.plan
        if begins or (self._wants_deletes and not self._ledger.deletes):
            last = max(last, self._highest_ever)
        return last + 1

    def _new_offset(self, journal: Journal, number: int, partitions: int, start: Offset) -> Offset:
        return Offset(journal.id, number, partitions, self._claim, after=start.plan)

    def _announce(
        self,
        offset: Offset,
        max_messages: int,
        expected: int = 0,
        caught: tuple[Message, ...] = (),
        after: str = "",
    ) -> Offset:
        assert self._journal_or_none is not None
        announced = self._epoch(self._journal_or_none, offset, max_messages, expected)
        if caught:
            announced.catch(caught, after)
            # A newer driver knows of what was put before its claim, and of nothing else.
            self._require_claim_of(announced.caught, self._journal_or_none)
        self._next = announced
        return offset

    def _require_claim_of(self, receipts: Sequence[Receipt], journal: Journal) -> None:
        """Release what was received and raise FencedError if another driver owns the journal."""
        try:
            journal.require_claim(self._claim)
        except SqsFifoError:
            self._release(receipts)
            raise

    def _epoch(
        self,
        journal: Journal,
        offset: Offset,
        max_messages: int,
        expected: int = 0,
    ) -> Epoch:
        return Epoch(
            offset,
            journal=journal,
            lease=self._lease,
            clock=self._clock,
            heartbeat_s=self._options.heartbeat_s,
            read_pool=self._read_pool,
            discovery_pool=self._discovery_pool,
            max_messages=max_messages,
            expected=expected,
            deletes=self._deletes,
            has_returned=self._leftovers.has_returned(offset),
        )

    # Holding, closing, deleting

    def _discover(self) -> None:
        """Hold what the open epoch's tasks have put, while there is one or the next, and this driver owns the journal.

        Runs on a thread of the heartbeat's, and in its `check`.
        """
        journal, epoch = self._journal_or_none, self._open
        if journal is None or (epoch is None and self._next is None):
            return
        try:
            journal.require_claim(self._claim)
        except FencedError:
            self._lease.stop_renewing_all()  # the messages are now the other driver's, to hold or to release
            raise
        if epoch is not None:
            epoch.discover()

    def _close(self, journal: Journal, offset: Offset) -> Verdict:
        """Return the verdict on an epoch whose tasks are over."""
        if self._open is None or self._open.offset != offset:
            self._open = self._epoch(journal, offset, 0)
        with self._told_as_fenced(journal):
            verdict = self._open.close(self._ledger)
        self._forget(verdict.gone)
        return verdict

    @contextmanager
    def _told_as_fenced(self, journal: Journal) -> Iterator[None]:
        """Raise FencedError where an epoch that this driver closes is settled, or gone: another one has done that."""
        try:
            yield
        except (EpochSettledError, JournalUnavailableError):
            with suppress(JournalUnavailableError):
                journal.require_claim(self._claim)
            raise

    def _forget(self, gone: Container[str]) -> None:
        """Remove from the ledger in memory what SQS no longer has; the next commit puts a ledger without it."""
        left = {key: entry for key, entry in self._ledger.unconfirmed.items() if key not in gone}
        self._ledger = replace(self._ledger, unconfirmed=left)

    def _delete(self, receipts: Iterable[Receipt]) -> dict[str, Unconfirmed]:
        return delete_committed(
            receipts, self._ledger.unconfirmed, queue=self._queue, lease=self._lease, clock=self._clock
        )

    def _release(self, receipts: Iterable[Receipt]) -> None:
        release(receipts, queue=self._queue, lease=self._lease)
