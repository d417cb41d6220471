"""The driver's side of a query: each of Spark's calls is one step.

    latest_offset   is there work?  -> the next epoch    (the last epoch leaves something; or the probe)
    commit          settle the last epoch                (delete, ledger, drop; its groups are unlocked)
    plan            the partitions of the next epoch

Spark commits an epoch only when it has logged the next one, so after an epoch that leaves something to settle or to
serve another is announced at once; after one that leaves nothing, the driver probes first. So at most two epochs live:

    open       next         meaning                              next call of Spark
    none       none         a start, or all is settled           latest_offset; at a restart also plan, which repeats
    none       announced    nothing is left to settle            plan
    planned    none         its tasks may be running             latest_offset, which closes it
    closed     none         it left nothing                      latest_offset, which probes
    closed     announced    the next one is in Spark's log       commit, which settles the closed one

Spark calls these methods one at a time. Beside them run the heartbeat's threads, which see the lease, these two epochs
and whether the claim holds; and the drop of settled objects.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import FencedError
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.logs import PROGRESS
from sqs_fifo_spark.options import SourceOptions
from sqs_fifo_spark.source.driver.checkpoint import Announce, Settle
from sqs_fifo_spark.source.driver.continuity import Continuity
from sqs_fifo_spark.source.driver.epochs import Epochs, Limits
from sqs_fifo_spark.source.driver.figures import Figures
from sqs_fifo_spark.source.driver.ownership import Ownership
from sqs_fifo_spark.source.driver.prober import Prober
from sqs_fifo_spark.source.driver.startup import Preflight, open_journal
from sqs_fifo_spark.source.driver.verdict import Verdict
from sqs_fifo_spark.source.lease import Heartbeat, Lease
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.owner import answer_questions
from sqs_fifo_spark.source.payload_deletes import PayloadDeletes
from sqs_fifo_spark.source.plan import PartitionPlan
from sqs_fifo_spark.source.pool import MakePool, in_calling_thread
from sqs_fifo_spark.source.queue import Queue

_log = logging.getLogger(__name__)

CONCURRENT_READS = 8
"""Reads of receipts that run at once while Spark waits for them."""
CONCURRENT_DISCOVERIES = 4
"""Reads of receipts that the heartbeat makes at once."""


class Driver:
    """One query's source on the driver. Built without any I/O; the first call opens queue and journal.

    The journal is read in two pools: one while Spark waits, one for the heartbeat. `queue` has pools of its own, so a
    journal that stalls delays no renewal. Settled objects are dropped in a third one, while the query goes on.
    """

    def __init__(
        self,
        options: SourceOptions,
        *,
        queue: Queue,
        store: Callable[[], Store],
        clock: Clock,
        pool: MakePool = in_calling_thread,
        payload_deletes: PayloadDeletes | None = None,
        before_poll: Callable[[], None] = lambda: None,
        most_partitions: Callable[[int], int] | None = None,
    ) -> None:
        """See `Prober` for `before_poll` and `most_partitions`."""
        self._options = options
        self._queue = queue
        self._make_store = store
        self._clock = clock
        self._read_pool = pool("read", CONCURRENT_READS)
        self._discovery_pool = pool("discovery", CONCURRENT_DISCOVERIES)
        self._drop_pool = pool("drop", 1)
        self._payload_deletes = payload_deletes or PayloadDeletes(None)
        self._lease = Lease(
            queue, clock, visibility_timeout_s=options.visibility_timeout_s, heartbeat_s=options.heartbeat_s
        )
        self._heartbeat = Heartbeat(self._lease, clock, every_s=options.heartbeat_s, discover=self._discover)
        self._epochs = Epochs(
            options, self._lease, clock, read_pool=self._read_pool, discovery_pool=self._discovery_pool
        )
        self._work = Prober(
            options,
            queue,
            self._lease,
            clock,
            before_poll=before_poll,
            most_partitions=most_partitions or (lambda waiting: options.num_partitions),
        )
        self._figures = Figures(options.queue_name, clock)
        self._owned_or_none: Ownership | None = None
        self._log_or_none: Continuity | None = None
        self.position: Offset | None = None
        """Spark's place in the journal, as far as it has said."""
        self.query: str | None = None
        """The query's id, once an epoch is settled whose tasks have reported it: Spark gives it to no driver."""

    def __repr__(self) -> str:
        return (
            f"<Driver epoch={self.position.epoch if self.position else 0} open={self._epochs.open!r} "
            f"next={self._epochs.next!r} owned={self._owned_or_none!r} lease={self._lease!r}>"
        )

    # Spark calls these

    def initial_offset(self) -> Offset:
        """Return the start of a new query: after all that is settled in the journal, which is made if needed.

        Nobody claims the journal with that: Spark asks a query for its start that has logged its first batch, too, and
        the journal may have become another one's since. Messages that older queries have left there come from the queue
        again. Raises every start-up error there is.
        """
        owned = self._owned_or_none
        journal = owned.journal if owned else self._preflight.find_or_make(self._clock.now())
        settled = owned.journal_state.settled_at_start if owned else journal.ledger()
        start = Offset(journal.id, settled.epoch, 0)
        self.position = self.position or start
        return start

    def prepare_available_now(self) -> None:
        """Serve the messages that wait now, then end: see `latest_offset`."""
        self._work.prepare_available_now()

    @property
    def announced(self) -> Offset | None:
        """The offset that was announced last, and that Spark has not planned."""
        return self._epochs.next.offset if self._epochs.next else None

    def latest_offset(self, start: Offset, max_messages: int | None = None) -> Offset:
        """Return the offset of the next epoch if there is work, else `start`.

        With nothing to do this blocks for one long poll. After `prepare_available_now`, `AvailableNow` says which epoch
        is the last one; an epoch without partitions follows it, so that Spark commits it. With nothing to do, this then
        blocks until all holds of dead attempts have lapsed, one visibility timeout at most.

        Raises FencedError when another driver owns the journal; the error of a heartbeat that failed; and, after
        `prepare_available_now`, TransientQueueError.
        """
        owned = self._owned(start)
        if self.announced is not None and not self._epochs.open_unread(owned, start):
            return self.announced
        self._heartbeat.check()
        self.position = start
        if self._work.is_finished:
            owned.require_claim()
            return start
        limit = max_messages or self._options.max_messages_per_trigger
        return self.announce_again(start, limit) or self._announce_next(owned, start, limit)

    def announce_again(self, start: Offset, max_messages: int) -> Offset | None:
        """Announce the epoch after `start` that Spark's log has lost, and return it; None if there is none.

        The sink may have its batch, so no other rows may get that batch's id, even if no task has read it: its chains
        are closed before Spark logs it.
        """
        owned = self._owned(start)
        lost = self._reconcile(owned, start, may_be_lost=self._epochs.open is None)
        if lost is None:
            return None
        owned.require_claim()
        _log.warning(
            "the checkpoint does not know of epoch %d, which the journal at '%s' knows of, so it is announced again, "
            "with the messages that it had.",
            lost.epoch,
            owned.journal.location,
        )
        self._epochs.announce_again(owned, lost, after=start.name, max_messages=max_messages)
        return lost

    def _announce_next(self, owned: Ownership, start: Offset, limit: int) -> Offset:
        """Close the epoch `start`, and announce the next one if there is work; return `start` if there is none."""
        # Before the verdict on `start`: messages that it has served, and they have taken over, are not carried.
        owned.release_others()
        if not self.log(start).begins_after(start) and start.epoch > owned.ledger.epoch:
            open_epoch = self._epochs.open_at(owned, start)
            verdict = owned.close(open_epoch)
            self._figures.note_over(open_epoch, verdict)
            carried = len(verdict.carried_receipts())
        else:
            owned.require_claim()
            verdict, carried = Verdict(), owned.carried_count()
        caught = self._work.find(owned, self._epochs.open, verdict, limit, carries=carried > 0)
        if self._work.is_finished:
            return self._epochs.announce(owned, self.log(start).next_offset(start, 0), limit)
        if caught is None:
            if self._work.may_end:
                owned.require_claim()  # the query ends, so nothing else shows that another one has the messages
                self._heartbeat.check()
            return start
        if self._queue.gone is not None:  # it serves what it has, and receives nothing more
            expected = limit = min(limit, len(caught) + carried)
            count = min(limit, 1)
        else:
            count, expected = self._work.size(
                self._epochs.open, verdict, len(caught), carried, max_messages=limit, deletes=self._epochs.deletes
            )
        is_restart = self._epochs.open is not None and self._epochs.open.is_replay
        offset = self.log(start).next_offset(start, self._partitions(count, carried if is_restart else 0))
        return self._epochs.announce(owned, offset, limit, expected=expected, caught=caught, after=start.name)

    def _partitions(self, count: int, carried: int) -> int:
        """Return the number of partitions, so many or fewer, of an epoch to which a restart carries `carried` messages.

        A payload that cannot be read is perhaps among these, and fails its task before that receives anything. Other
        tasks would receive at each start, and SQS takes a message that was received too often to a dead-letter queue.
        """
        return min(count, 1) if carried and self._options.payloads == "s3" else count

    def plan(self, start: Offset, end: Offset, limits: Limits | None = None) -> list[PartitionPlan]:
        """Return each partition's share of the plan of the epoch `end`; the same ones when this driver is asked again.

        `limits` are the options' unless they are given. Raises DataLossError for an epoch that is settled, or that lies
        behind where Spark is; OptionError where Spark reads on without having committed.
        """
        options = self._options
        limits = limits or Limits(options.max_messages_per_trigger, options.max_bytes_per_trigger)
        plans = self._plan(self._owned(end), start, end, limits)
        self.position = end
        return plans

    def _plan(self, owned: Ownership, start: Offset, end: Offset, limits: Limits) -> list[PartitionPlan]:
        if start == end:
            return []
        if self._epochs.open is not None and self._epochs.is_open(end) and self._epochs.open.plans is not None:
            return self._epochs.open.plans
        if not self.log(end).may_follow(start, end):
            return []
        if self._epochs.is_open(start):
            self._epochs.require_committed(owned, end)
        # Spark plans from an epoch only when it has committed it; a crash may have kept us from settling it.
        owned.take(end)
        self._commit(owned, start, followed_by=end)
        owned.release_others()
        return self._epochs.plan(owned, end, after=start.name, limits=limits)

    def commit(self, end: Offset, *, logs_next: bool = True) -> None:
        """Settle the epoch `end`, which Spark has committed: delete its messages, put the ledger, drop objects.

        Spark has logged the epoch after it by then, if one was announced; unless it does not log that (`logs_next`).
        Returns when SQS has confirmed the deletes or they stand in the ledger. Doing it again changes nothing.

        An epoch that leaves nothing is not settled before the next one is announced: where a batch is another source's
        alone, Spark commits ours without that, and a ledger that is put does not learn later what follows. Nor is one
        whose rows nobody has looked at, before Spark asks for the next one: there is nothing to delete.
        """
        owned = self._owned(end)
        is_unread = self._epochs.open_unread(owned, end)
        following = self.announced if logs_next else None
        epoch = self._epochs.open if self._epochs.is_open(end) else None
        if is_unread:
            self.position = end
            self._reconcile(owned, end)  # its generation begins with it, if it is the first one
        if logs_next and following is None and epoch is not None and (is_unread or epoch.leaves_nothing):
            return
        self._commit(owned, end, followed_by=following)

    def _commit(self, owned: Ownership, end: Offset, *, followed_by: Offset | None) -> None:
        if end.epoch <= owned.ledger.epoch or self.log(end).begins_after(end):
            return
        self._heartbeat.check()
        self._reconcile(owned, end)
        self._settle(owned, end, followed_by=followed_by)

    def _reconcile(self, owned: Ownership, given: Offset, *, may_be_lost: bool = False) -> Offset | None:
        """Bring the journal to where Spark's log is, which has `given` last. Return the epoch that the log has lost."""
        while True:
            has_planned = self._epochs.is_open(given)
            match self.log(given).next_step(given, has_planned=has_planned, may_be_lost=may_be_lost):
                case Settle(before):
                    self._settle(owned, before, followed_by=given)
                case Announce(lost):
                    return lost
                case None:
                    return None

    def _settle(self, owned: Ownership, end: Offset, *, followed_by: Offset | None) -> None:
        before = owned.ledger.unconfirmed
        settled = self._epochs.open_at(owned, end)
        owned.settle(settled, followed_by=followed_by)
        self.query = self.query or settled.query
        self._work.note_settled(before, owned.ledger.unconfirmed)
        self._epochs.open = None

    def recount(self) -> None:
        """Have an idle query's queue asked for the figures of `report`, at most once a minute."""
        if self._owned_or_none is not None:
            self._work.recount()

    def report(self, *, recounts: bool = True) -> dict[str, Any]:
        """Return figures for Spark's progress report; `recounts`: bring them up to date first."""
        if recounts:
            self.recount()
        owned = self._owned_or_none
        return self._figures.report(
            epoch=self.position.epoch if self.position else 0,
            counts=self._work.counts,
            calls=self._queue.call_counts,
            unconfirmed=len(owned.ledger.unconfirmed) if owned else 0,
            lost=self._lease.lost_count,
        )

    def stop(self) -> None:
        """End the heartbeat. Messages in flight are free within one visibility timeout."""
        self._heartbeat.stop()

    # The parts of the calls above

    @functools.cached_property
    def _preflight(self) -> Preflight:
        return Preflight(self._queue, self._make_store(), self._options)

    def _owned(self, known: Offset | None) -> Ownership:
        """Return the journal, opened and claimed by the first call; `known` is an offset from Spark's checkpoint."""
        if self._owned_or_none is None:
            opened_journal = open_journal(self._preflight, known, self._options, self._clock.now(), self._read_pool)
            self._owned_or_none = owned = Ownership(
                opened_journal,
                queue=self._queue,
                lease=self._lease,
                clock=self._clock,
                read_pool=self._read_pool,
                drop_pool=self._drop_pool,
                payload_deletes=self._payload_deletes,
            )
            self._log_or_none = Continuity(
                owned, fail_on_data_loss=self._options.fail_on_data_loss, gives_up=opened_journal.is_refused
            )
            self._heartbeat.start()
            PROGRESS.info(
                "reading %s: about %d messages wait, deleteAfter=%s, journal at '%s'.",
                self._options.queue_name,
                self._work.counts.waiting,
                self._options.delete_after,
                owned.journal.location,
            )
        return self._owned_or_none

    def log(self, known: Offset | None) -> Continuity:
        self._owned(known)
        assert self._log_or_none is not None
        return self._log_or_none

    def note_first(self, first: Offset) -> None:
        """Note that the epoch `first` is the first one in Spark's log, or is going to be.

        If nobody looks at its rows, nothing else shows later that a generation begins with it. A blindly announced one
        has no catch, so an empty one says it to the drivers that come.
        """
        owned = self._owned(first)
        if self.log(first).note_first(first):
            owned.require_claim()
            self._epochs.make(owned, first).catch((), "")

    def announce_blindly(self) -> Offset:
        """Announce an epoch after all that Spark's log may have, as Spark has not yet said where it is."""
        owned = self._owned(None)
        owned.require_claim()
        self._heartbeat.check()
        if self._queue.gone is not None:
            raise self._queue.gone  # its tasks would receive, in each run
        count, expected = self._work.blind_size()
        count = self._partitions(count, owned.carried_count())
        offset, limit = self.log(None).blind_offset(count), self._options.max_messages_per_trigger
        return self._epochs.announce(owned, offset, limit, expected=expected)

    def _discover(self) -> None:
        """Hold the messages of the open epoch's links while this driver owns the journal; answer operators' questions.

        Runs on a thread of the heartbeat's, and in its `check`.
        """
        owned, epoch = self._owned_or_none, self._epochs.open
        if owned is None:
            return
        try:
            names = owned.journal.require_claim(owned.claim)  # not in a pool: other reads there may take long
        except FencedError:
            self._lease.stop_renewing_all()  # the messages are now the other driver's, to hold or to release
            raise
        answer_questions(owned.journal.store, owned.claim, names)
        if epoch is not None:
            epoch.discover()
