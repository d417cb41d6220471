"""The driver's side of a query: each of Spark's calls is one step.

    latest_offset   is there work?  -> the next epoch    (the last epoch leaves something; or the probe)
    commit          settle the last epoch                (delete, ledger, drop; its groups are unlocked)
    plan            the partitions of the next epoch

Spark commits an epoch only when it has logged the next one, so after an epoch that leaves something to settle or to
serve another is announced at once; after one that leaves nothing, the driver probes first. So at most two epochs live:

    open       next         what it means                        what Spark does then
    none       none         a start, or all is settled           latest_offset; at a restart also plan, which repeats
    none       announced    nothing is left to settle            plan
    planned    none         its tasks may be running             latest_offset, which closes it
    closed     none         it left nothing                      latest_offset, which probes
    closed     announced    the next one is in Spark's log       commit, which settles the closed one

Spark calls these methods one at a time. Beside them run the heartbeat's threads, which see the lease, these two epochs
and whether the claim holds; and the drop of what is settled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import FencedError, OptionError
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.options import SourceOptions
from sqs_fifo_spark.source.claimed import Claimed
from sqs_fifo_spark.source.epoch import Epoch
from sqs_fifo_spark.source.figures import Figures
from sqs_fifo_spark.source.lease import Heartbeat, Lease
from sqs_fifo_spark.source.message import Message
from sqs_fifo_spark.source.offset import EpochPlan, Offset
from sqs_fifo_spark.source.owner import answer_questions
from sqs_fifo_spark.source.plan import PartitionPlan, tell
from sqs_fifo_spark.source.planning import deal_out, expected_messages, partition_count, plan_partitions
from sqs_fifo_spark.source.pool import MakePool, in_calling_thread
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.startup import open_journal, report_data_loss, require_old_enough, require_same_journal
from sqs_fifo_spark.source.verdict import Verdict
from sqs_fifo_spark.source.work import Work

_log = logging.getLogger(__name__)

CONCURRENT_READS = 8
"""How many reads of receipts run at once while Spark waits for them."""
CONCURRENT_DISCOVERIES = 4
"""How many reads of receipts the heartbeat makes at once."""


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
        self._lease = Lease(
            queue,
            clock,
            visibility_timeout_s=options.visibility_timeout_s,
            heartbeat_s=options.heartbeat_s,
        )
        self._heartbeat = Heartbeat(self._lease, clock, every_s=options.heartbeat_s, discover=self._discover)
        self._work = Work(options, queue, self._lease, clock)
        self._figures = Figures(options.queue_name, clock)
        self._claimed_or_none: Claimed | None = None
        self._open: Epoch | None = None
        """The epoch whose tasks may be running, or that is closed and waits for its commit."""
        self._next: Epoch | None = None
        """The epoch that was announced and not planned."""
        self._position: Offset | None = None
        self.query: str | None = None
        """The query's id, once an epoch is settled whose tasks have told it: Spark does not tell the driver."""
        self._is_wrapped = False
        """Whether Spark, before 4.2, logs only what was announced blindly: all else it only reports."""

    def __repr__(self) -> str:
        return (
            f"<Driver epoch={self._position.epoch if self._position else 0} open={self._open!r} next={self._next!r} "
            f"claimed={self._claimed_or_none!r} lease={self._lease!r}>"
        )

    # What Spark calls

    def initial_offset(self) -> Offset:
        """Return where a new query starts: after all that is settled in the journal, which is made if needed.

        What older queries have left there comes from the queue again. Raises every start-up error there is.
        """
        claimed = self._claimed(None)
        start = Offset(claimed.journal.id, claimed.settled_at_start.epoch, 0)
        self._position = self._position or start
        return start

    def prepare_available_now(self) -> None:
        """Serve what waits now, then end: see `latest_offset`."""
        self._work.prepare_available_now()

    def latest_offset_without_start(self) -> Offset:
        """Do `latest_offset` for Spark before 4.2, which gives no start: Spark is then at the offset it got last.

        If it got none yet, its log may have epochs that are not settled. Then return an epoch
        after all of them, announced blindly, and the same one until Spark has said where it is. Under the
        wrapper it only reports later ones: the same one is returned again, however often it asks.
        """
        if self._next is not None and self._is_wrapped:
            return self._next.offset
        told = self._next.offset if self._next else self._position
        return self._announce_blindly(self._claimed(None)) if told is None else self.latest_offset(told)

    def latest_offset(self, start: Offset, max_messages: int | None = None) -> Offset:
        """Return the offset of the next epoch if there is work, else `start`.

        With nothing to do this blocks for one long poll. After `prepare_available_now`, `AvailableNow` says which epoch
        is the last one; an epoch without partitions follows it, so that Spark commits it. With nothing to do, this then
        blocks until all holds of dead attempts have lapsed, one visibility timeout at most.

        Raises FencedError when another driver owns the journal; the error of a heartbeat that failed; and, after
        `prepare_available_now`, TransientQueueError.
        """
        claimed = self._claimed(start)
        if self._next is not None:
            if self._next.offset != start:
                return self._next.offset
            self._open_unread(claimed, start)
        self._heartbeat.check()
        self._position = start
        if self._work.is_finished:
            claimed.require_claim()
            return start
        self._settle_before(claimed, start)
        limit = max_messages or self._options.max_messages_per_trigger
        lost = self._announce_lost(claimed, start, limit)
        if lost is not None:
            return lost
        return self._announce_next(claimed, start, limit)

    def _announce_lost(self, claimed: Claimed, start: Offset, limit: int) -> Offset | None:
        """Announce the epoch after `start` that Spark's log has lost, if a restart finds one: Spark gives it again.

        The sink may have its batch, so no other rows may get that batch's id, even if no task has read it: its chains
        are closed before Spark logs it.
        """
        if self._open is not None or start.epoch != claimed.settled_at_start.epoch:
            return None
        claimed.require_claim()
        lost = claimed.lost_after(start)
        if lost is None:
            return None
        _log.warning(
            "the checkpoint does not know of epoch %d, which the journal at '%s' knows of, so it is announced again, "
            "with what it had.",
            lost.epoch,
            claimed.journal.location,
        )
        claimed.take(lost)
        self._next = self._epoch(claimed, lost, limit)
        with claimed.told_as_fenced():
            self._next.replay(start.name)
        return lost

    def _announce_next(self, claimed: Claimed, start: Offset, limit: int) -> Offset:
        """Close the epoch `start`, and announce the next one if there is work; return `start` if there is none."""
        # Those of other queries, which ran on this journal since, or before a new one. Before the verdict on `start`:
        # what that has served, and they have taken over, is not carried.
        claimed.release_plans(claimed.leftovers.others())
        if start.epoch > claimed.ledger.epoch:
            open_epoch = self._opened(claimed, start)
            verdict = claimed.close(open_epoch)
            self._figures.note_over(open_epoch, verdict)
            carried = len(verdict.carried_receipts())
        else:
            claimed.require_claim()
            verdict, carried = Verdict(), claimed.carried_count()
        caught = self._work.find(claimed, self._open, verdict, limit, carries=carried > 0)
        if self._work.is_finished:
            return self._announce(claimed, self._new_offset(claimed, 0, start), limit)
        if caught is None:
            if self._work.may_end:
                claimed.require_claim()  # the query ends, so nothing else tells that another one has the messages
                self._heartbeat.check()
            return start
        count, expected = self._size(claimed, limit, verdict, len(caught), carried)
        return self._announce(claimed, self._new_offset(claimed, count, start), limit, expected, caught, start.name)

    def _size(self, claimed: Claimed, limit: int, verdict: Verdict, caught: int, carried: int) -> tuple[int, int]:
        """Return how many partitions the next epoch gets, and about how many messages it can get."""
        self._work.count_waiting(verdict.held + caught)
        waiting = self._work.counts.waiting + caught
        has_read = self._open is not None and self._open.plans is not None
        if has_read and not waiting and not carried:
            # It only makes Spark commit the last epoch. A driver that has planned nothing yet does not trust the number
            # of waiting messages, which may lag behind: with Trigger.Once there is no other epoch.
            return 0, 0
        most = min(self._options.num_partitions, limit)
        if not claimed.deletes:
            last = self._open.expected if self._open else 0
            expected = expected_messages(waiting, verdict.count, last) + carried
            return partition_count(expected, most), expected
        # A group goes on as soon as its messages are deleted. So a few hot groups need few partitions, and one of them
        # may get all that there is. Until an epoch has told how many groups there are, many cost less than few.
        most = min(most, verdict.groups or most)
        return partition_count(waiting + carried, most), waiting + carried

    def plan(self, start: Offset, end: Offset) -> list[PartitionPlan]:
        """Return each partition's share of the plan of the epoch `end`; the same ones when this driver is asked again.

        Raises DataLossError for an epoch that is settled, or that lies behind where Spark is; OptionError
        where Spark reads on without having committed.
        """
        plans = self._plan(self._claimed(end), start, end)
        self._position = end
        return plans

    def _plan(self, claimed: Claimed, start: Offset, end: Offset) -> list[PartitionPlan]:
        journal = claimed.journal
        self._require_known(claimed, start)
        if start == end:
            self._require_own_place(claimed, start, EpochPlan(start.after_epoch, start.after))
            self._require_none_lost(claimed, start)
            return []  # Spark 4.0 and 4.1 ask this at a restart, to say where they are
        if self._open is not None and self._open.offset == end and self._open.plans is not None:
            return self._open.plans
        # A restart that replays its first batch asks for the initial offset first, which does not check the checkpoint.
        fail_on_data_loss = self._options.fail_on_data_loss
        require_same_journal(end, journal, journal.location, fail_on_data_loss=fail_on_data_loss)
        if start.plan and end.epoch <= start.epoch:
            report_data_loss(
                f"Spark's offset log goes back, from epoch {start.epoch} to epoch {end.epoch}, which Spark "
                "was given before",
                "Start the query with a new checkpoint location, on the same journal.",
                fail_on_data_loss=fail_on_data_loss,
            )
            return []
        if end.epoch <= claimed.ledger.epoch:
            report_data_loss(
                f"Spark asks for epoch {end.epoch} again, but the journal at '{journal.location}' has committed epoch "
                f"{claimed.ledger.epoch}: the checkpoint is old, or another query has consumed the queue since",
                "If two runs of the query overlapped, start it again; else restore the matching checkpoint.",
                fail_on_data_loss=fail_on_data_loss,
            )
            return []
        if self._open is not None and self._open.offset == start:
            self._require_committed(claimed, end)
        self._require_own_place(claimed, end, start.of)
        # Spark plans from an epoch only when it has committed it; a crash may have kept us from settling it.
        claimed.take(end)
        self._commit(claimed, start, followed_by=end)
        claimed.release_plans(claimed.leftovers.others(start.epoch, end.epoch))
        limit = self._options.max_messages_per_trigger
        if self._next is not None and self._next.offset == end:
            epoch = self._next
        else:
            epoch = self._epoch(claimed, end, limit, expected=limit)
            with claimed.told_as_fenced():
                epoch.replay(start.name)
        with claimed.told_as_fenced():
            carried = epoch.load_carried(claimed.ledger)
        since = self._clock.monotonic() - self._options.heartbeat_s
        for left in carried.values():
            may_be_deleted = epoch.deletes or left.head.origin.deletes
            self._lease.hold(left.receipts, since=since, may_be_deleted=may_be_deleted)
        # What an earlier driver left may be about to lapse; all else is not due. The heartbeat does the rest of it.
        self._lease.renew()
        epoch.deal = deal_out(
            carried,
            end.partitions,
            max_messages=epoch.max_messages,
            skipped=claimed.skipped,
            is_replay=epoch.is_replay,
        )
        epoch.plans = plan_partitions(
            replace(end, journal=journal.id),
            after=start.name,
            deal=epoch.deal,
            told=tell(epoch.deal, journal, end),
            expected=epoch.expected,
            max_messages=epoch.max_messages,
            max_bytes=self._options.max_bytes_per_trigger,
            claim=claimed.claim,
            deletes=epoch.deletes,
            looks=claimed.ledger.deletes,
        )
        self._open = epoch
        if self._next is not None and self._next.offset.epoch <= end.epoch:
            if self._next is not epoch:
                claimed.release(self._next.caught)
            self._next = None
        return epoch.plans

    def _open_unread(self, claimed: Claimed, given: Offset) -> None:
        """Open the epoch `given` if its batch ran without a look at its rows, so that its plan was never asked for."""
        if self._next is not None and self._next.offset == given:
            self._require_committed(claimed, given)
            self._open, self._next = self._next, None

    def _require_committed(self, claimed: Claimed, later: Offset) -> None:
        """Raise OptionError if Spark has read the open epoch, and goes on with a `later` one without a commit."""
        if self._open is None or self._open.plans is None:
            return
        claimed.require_claim()
        raise OptionError(
            f"Spark plans epoch {later.epoch} and has not committed epoch {self._open.offset.epoch}, as it does with "
            "the option 'asyncProgressTrackingEnabled'. Leave that out: a message is deleted, and its group goes on, "
            "only when its micro-batch is committed."
        )

    def _require_known(self, claimed: Claimed, known: Offset) -> None:
        """Raise DataLossError unless the journal is the one that the checkpoint's offset `known` refers to."""
        fail_on_data_loss = self._options.fail_on_data_loss
        journal = claimed.journal
        require_same_journal(known, journal, journal.location, fail_on_data_loss=fail_on_data_loss)
        require_old_enough(known, claimed.settled_at_start, journal.location, fail_on_data_loss=fail_on_data_loss)

    def _require_own_place(self, claimed: Claimed, given: Offset, after: EpochPlan) -> None:
        """Raise DataLossError if Spark's log has `given` in the place of an epoch that it has lost."""
        lost = claimed.lost_for(given, after)
        if lost is not None:
            report_data_loss(
                f"the checkpoint has epoch {given.name} in the place of epoch {lost.name}, which it had before, as the "
                f"journal at '{claimed.journal.location}' tells: the checkpoint has lost that epoch since, and an "
                "overtaken run of the query has logged one of its own",
                f"{_without_entry(given)}.",
                fail_on_data_loss=self._options.fail_on_data_loss,
            )

    def _require_none_lost(self, claimed: Claimed, start: Offset) -> None:
        """Raise DataLossError if Spark's log has lost an epoch, and Spark is about to log another one in its place."""
        is_blind = self._next is not None and self._next.offset.is_blind
        lost = claimed.lost_after(start) if is_blind else None
        if lost is not None:
            report_data_loss(
                f"the checkpoint does not know of epoch {lost.epoch}, which the journal at "
                f"'{claimed.journal.location}' knows of, and another one was announced before Spark said where the "
                "query was",
                "Start the query with 'spark.sql.streaming.triggerAvailableNowWrapper.enabled' set to false.",
                fail_on_data_loss=self._options.fail_on_data_loss,
            )

    def commit(self, end: Offset) -> None:
        """Settle the epoch `end`, which Spark has committed: delete its messages, put the ledger, drop objects.

        Spark has logged the epoch after it by then, if one was announced.
        Returns when SQS has confirmed the deletes or they stand in the ledger. Doing it again changes nothing.
        """
        claimed = self._claimed(end)
        self._open_unread(claimed, end)
        is_logged = self._next is not None and (self._next.offset.is_blind or not self._is_wrapped)
        self._commit(claimed, end, followed_by=self._next.offset if self._next and is_logged else None)

    def _commit(self, claimed: Claimed, end: Offset, *, followed_by: Offset | None) -> None:
        if end.epoch <= claimed.ledger.epoch:
            return
        self._heartbeat.check()
        self._settle_before(claimed, end)
        self._settle(claimed, end, followed_by=followed_by)

    def _settle_before(self, claimed: Claimed, given: Offset) -> None:
        """Settle or release the epochs in the journal that come before `given`, which Spark has been given.

        Spark has committed the epoch that `given` follows, and a crash kept the driver from settling it: settle that
        one. Release the older ones, which are another query's. If `given` was announced blindly and its tasks have not
        run, nobody can tell them apart: DataLossError.
        """
        journal, leftovers = claimed.journal, claimed.leftovers
        self._require_own_place(claimed, given, EpochPlan(given.after_epoch, given.after))
        claimed.take(given)
        before = leftovers.preceding(given, claimed.ledger.epoch)
        if before is not None:
            self._settle(claimed, before, followed_by=given)
            return
        if given.journal == journal.id and not claimed.follows_what_is_settled(given):
            report_data_loss(
                f"the checkpoint stands at epoch {given.name}, and the journal at '{journal.location}', which has "
                f"committed epoch {claimed.ledger.settled.name}, does not tell that what came before it was committed: "
                "another query has consumed the queue since",
                "Restore the matching checkpoint, or start the query with a new one.",
                fail_on_data_loss=self._options.fail_on_data_loss,
            )
        has_planned = self._open is not None and self._open.offset == given  # then Spark has said what it follows
        doubtful = None if has_planned else claimed.doubtful_before(given)
        if doubtful is not None:
            report_data_loss(
                f"epoch {given.epoch} was announced before Spark said where the query was, and its rows were never "
                f"read, so nobody can tell whether Spark has committed epoch {doubtful} of the journal at "
                f"'{journal.location}'",
                f"{_without_entry(given)}, with 'spark.sql.streaming.triggerAvailableNowWrapper.enabled' set to false.",
                fail_on_data_loss=self._options.fail_on_data_loss,
            )
        claimed.release_plans(leftovers.others(claimed.ledger.epoch, given.epoch))

    def _settle(self, claimed: Claimed, end: Offset, *, followed_by: Offset | None) -> None:
        claimed.begin_settling(end)
        before = claimed.ledger.unconfirmed
        settled = self._opened(claimed, end)
        claimed.settle(settled, followed_by=followed_by)
        self.query = self.query or settled.query
        for message_id, entry in claimed.ledger.unconfirmed.items() - before.items():
            last = before.get(message_id)
            receipt = entry.receipt or (last.receipt if last else None)
            self._work.note_unconfirmed(receipt.sent_at_ms if receipt else None)
        self._open = None

    def report(self) -> dict[str, Any]:
        """Return figures for Spark's progress report. An idle query's queue is asked for them once a minute."""
        claimed = self._claimed_or_none
        if claimed is not None:
            self._work.recount()
        return self._figures.report(
            epoch=self._position.epoch if self._position else 0,
            counts=self._work.counts,
            calls=self._queue.call_counts,
            unconfirmed=len(claimed.ledger.unconfirmed) if claimed else 0,
            lost=self._lease.lost_count,
        )

    def stop(self) -> None:
        """End the heartbeat. What is in flight is free within one visibility timeout."""
        self._heartbeat.stop()

    # What the calls above are made of

    def _claimed(self, known: Offset | None) -> Claimed:
        """Return the journal, opened and claimed by the first call; `known` is an offset from Spark's checkpoint."""
        if self._claimed_or_none is None:
            opened = open_journal(self._queue, self._make_store(), known, self._options, self._clock.now())
            self._claimed_or_none = Claimed(
                opened,
                queue=self._queue,
                lease=self._lease,
                clock=self._clock,
                read_pool=self._read_pool,
                drop_pool=self._drop_pool,
                wants_deletes=self._options.delete_after == "journal",
            )
            self._heartbeat.start()
        return self._claimed_or_none

    def _announce_blindly(self, claimed: Claimed) -> Offset:
        """Announce an epoch after all that Spark's log may have, as Spark has not yet said where it is."""
        claimed.require_claim()
        self._heartbeat.check()
        self._is_wrapped = True
        self._work.count_waiting(0)
        limit = self._options.max_messages_per_trigger
        waiting = self._work.counts.waiting
        count = partition_count(waiting, min(self._options.num_partitions, limit))
        offset = Offset(claimed.journal.id, claimed.number_after(None), count, claimed.claim, is_blind=True)
        return self._announce(claimed, offset, limit, waiting)

    def _new_offset(self, claimed: Claimed, partitions: int, start: Offset) -> Offset:
        number = claimed.number_after(start)
        offset = Offset(claimed.journal.id, number, partitions, claimed.claim)
        return replace(offset, after=start.plan, after_epoch=start.epoch) if start.plan else offset

    def _announce(
        self,
        claimed: Claimed,
        offset: Offset,
        max_messages: int,
        expected: int = 0,
        caught: Sequence[Message] = (),
        after: str = "",
    ) -> Offset:
        announced = self._epoch(claimed, offset, max_messages, expected)
        if caught:
            announced.catch(caught, after)
            # A newer driver knows of what was put before its claim, and of nothing else.
            claimed.require_claim_of(announced.caught)
        self._next = announced
        return offset

    def _opened(self, claimed: Claimed, offset: Offset) -> Epoch:
        """Return the open epoch, which is the one that `offset` names, be it of an earlier driver."""
        if self._open is None or self._open.offset != offset:
            self._open = self._epoch(claimed, offset, 0)
        return self._open

    def _epoch(self, claimed: Claimed, offset: Offset, max_messages: int, expected: int = 0) -> Epoch:
        return Epoch(
            offset,
            journal=claimed.journal,
            lease=self._lease,
            clock=self._clock,
            heartbeat_s=self._options.heartbeat_s,
            read_pool=self._read_pool,
            discovery_pool=self._discovery_pool,
            max_messages=max_messages,
            expected=expected,
            deletes=claimed.deletes,
            has_returned=claimed.leftovers.has_returned(offset),
        )

    def _discover(self) -> None:
        """Hold what the open epoch's tasks have put, while this driver owns the journal; tell who asks that it runs.

        Runs on a thread of the heartbeat's, and in its `check`.
        """
        claimed, epoch = self._claimed_or_none, self._open
        if claimed is None:
            return
        try:
            names = claimed.journal.require_claim(claimed.claim)  # not in a pool: what else is read there may take long
        except FencedError:
            self._lease.stop_renewing_all()  # the messages are now the other driver's, to hold or to release
            raise
        answer_questions(claimed.journal.store, claimed.claim, names)
        if epoch is not None:
            epoch.discover()


def _without_entry(given: Offset) -> str:
    """Return how the query goes on without what Spark's log has of `given`."""
    return (
        f"Remove the entry of epoch {given.epoch} and those behind it, if any, below 'offsets' in the checkpoint, and "
        "those of the same names below 'commits', and start the query again"
    )
