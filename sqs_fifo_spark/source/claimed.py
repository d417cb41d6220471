"""A journal that this driver has claimed: what in it is settled, and how another epoch is.

What other queries have left is released, and an epoch is judged, only while no newer driver has claimed the journal.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import EpochSettledError, FencedError, JournalUnavailableError, SqsFifoError
from sqs_fifo_spark.source.epoch import Epoch
from sqs_fifo_spark.source.lease import Lease
from sqs_fifo_spark.source.ledger import Ledger, Unconfirmed
from sqs_fifo_spark.source.leftovers import Leftovers
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.offset import EpochPlan, Offset
from sqs_fifo_spark.source.pool import Answer, Pool
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.settling import SETTLE_BUDGET_S, delete_committed, release
from sqs_fifo_spark.source.startup import Opened
from sqs_fifo_spark.source.verdict import Verdict

_GAP = 4
"""How many numbers each claim skips for an epoch that does not follow another. An offset log may have an epoch of an
earlier claim and the two after it; so no new query takes a number that another has, and no log goes back. An older
query that comes back may: plans tell them apart."""


class Claimed:
    """The journal, its newest ledger and what stood in it besides.

    Used on the driver's own thread, but for the journal's `require_claim`, which the heartbeat calls, too. What is
    settled is dropped in `drop_pool`, while the query goes on.
    """

    def __init__(
        self,
        opened: Opened,
        *,
        queue: Queue,
        lease: Lease,
        clock: Clock,
        read_pool: Pool,
        drop_pool: Pool,
        wants_deletes: bool,
    ) -> None:
        """`wants_deletes` is whether the query wants its tasks to delete what they have sealed."""
        self.journal = opened.journal
        self.claim = opened.claim
        self.ledger = opened.ledger
        self.skipped = opened.skipped
        """Ids of messages that an operator has moved aside."""
        self.settled_at_start = opened.ledger.settled
        """The last epoch that was settled when the journal was opened."""
        self.leftovers = Leftovers(opened.journal, read_pool, opened.unsettled, opened.ledger, release=self.release)
        self._queue = queue
        self._lease = lease
        self._clock = clock
        self._read_pool = read_pool
        self._drop_pool = drop_pool
        self._wants_deletes = wants_deletes
        claims_before = max(0, opened.claim - opened.journal.first_claim)
        self._highest_ever = max(opened.ledger.epoch, self.leftovers.highest) + _GAP * claims_before
        """No offset log had a higher number when the journal was opened."""
        self._judged: Epoch | None = None
        """The epoch that was judged last while this driver owned the journal."""
        self._dropping: Answer[None] | None = None
        """The drop of what the last epoch has left behind."""

    def __repr__(self) -> str:
        return (
            f"<Claimed claim={self.claim} settled={self.ledger.settled.name} unsettled={len(self.leftovers)} "
            f"unconfirmed={len(self.ledger.unconfirmed)} carried={self.carried_count()}>"
        )

    @property
    def deletes(self) -> bool:
        """Whether tasks delete what they have sealed."""
        return self._wants_deletes and self.ledger.deletes

    def carried_count(self) -> int:
        """Return how many messages the ledger carries."""
        return sum(map(len, self.ledger.carried.values()))

    def number_after(self, start: Offset | None) -> int:
        """Return the number of the epoch after `start`, above all those that stand in the journal.

        It is above all that any older query's offset log may have, too, for a query that begins; and for one whose
        tasks are going to delete: the older one's, which do not look for others, are refused once this one is settled.
        """
        last = max(start.epoch if start else 0, self.ledger.epoch, self.leftovers.highest)
        begins = start is None or not start.plan
        if begins or (self._wants_deletes and not self.ledger.deletes):
            last = max(last, self._highest_ever)
        return last + 1

    # The claim

    def require_claim(self) -> None:
        """Raise FencedError if another driver owns the journal."""
        self.journal.require_claim(self.claim, self._read_pool)

    def require_claim_of(self, receipts: Sequence[Receipt]) -> None:
        """Release what was received and raise FencedError if another driver owns the journal."""
        try:
            self.require_claim()
        except SqsFifoError:
            self.release(receipts)
            raise

    @contextmanager
    def told_as_fenced(self) -> Iterator[None]:
        """Raise the driver's FencedError where it finds an epoch settled, gone or fenced: another one has done that."""
        try:
            yield
        except (EpochSettledError, FencedError, JournalUnavailableError):
            with suppress(JournalUnavailableError):
                self.require_claim()
            raise

    # What is left of earlier epochs

    def take(self, offset: Offset) -> None:
        """Take what `offset` names for the query's own: Spark goes on with it."""
        self.ledger = self.leftovers.take(offset, self.ledger)

    def release_plans(self, plans: Sequence[EpochPlan]) -> None:
        """Release what other queries have left of `plans`; what may be deleted already is carried."""
        if plans:
            self.require_claim()  # else they are a newer driver's, to hold or to release
            self.ledger = self.leftovers.release(plans, self.ledger)

    def lost_after(self, start: Offset) -> Offset | None:
        """Return the offset that followed `start` in Spark's log, if `start` is settled and the log has lost it.

        Spark commits an epoch after it has logged the next, so who settled `start` mostly knew which that was. Links
        tell where not, for a batch between the two was another source's alone; where an older version's ledger has only
        the name; and where a newer one has its place, as the user chose to go on without what was lost.
        """
        if not start.plan or start.of != self.ledger.settled:
            return None
        lost, found = self.ledger.followed_by, self.leftovers.following(start)
        if lost is not None and lost.of == start.of:  # as an older version may have told
            lost = None
        if lost is None or (found is not None and found.plan >= lost.plan):
            lost = found
        if lost is None:
            return None
        return replace(lost, journal=self.journal.id, is_blind=False, after=start.plan, after_epoch=start.epoch)

    def lost_for(self, given: Offset, after: EpochPlan) -> Offset | None:
        """Return the epoch in whose place Spark's log has `given`, which follows `after`; None if it has its own place.

        Who settled `after` knew that Spark had logged another one. The log has lost that since, and an older driver,
        which stood still meanwhile, has had its own logged. If a newer driver's stands there, the user chose to go on
        without the lost one.
        """
        follower = self.ledger.followed_by
        if follower is None or after != self.ledger.settled or follower.of in (given.of, after):
            return None
        return follower if given.plan < follower.plan else None

    def follows_what_is_settled(self, given: Offset) -> bool:
        """Return whether the epoch that `given` follows, and that is no longer in the journal, is known to be settled.

        Else a query that has overtaken this one may have released it, and dropped it with an epoch of its own: a driver
        that stands still may announce one more epoch, and Spark log it, after that. Tasks put links of `given` only
        once what it follows is settled.
        """
        follower = self.ledger.followed_by
        settled = {self.ledger.plan, follower.plan if follower else 0}  # the follower may have left nothing to settle
        is_settled = not given.after or given.after in settled or self.leftovers.has_links(given.of)
        return is_settled or given.epoch <= self.ledger.epoch

    def doubtful_before(self, given: Offset) -> int | None:
        """Return an epoch of which nobody can tell whether Spark has committed it, before it was given `given`.

        None where there is no such epoch: `given` was not announced blindly; or it has links, which tasks put only once
        what it follows is settled; or the driver that settled the last epoch knew that `given` follows it; or no tasks
        have read anything in between, and no driver has settled anything since `given` was announced.
        """
        follower = self.ledger.followed_by
        is_known = not given.is_blind or self.leftovers.has_links(given.of) or (follower and follower.of == given.of)
        if is_known or given.epoch <= self.ledger.epoch:
            return None
        begun = self.leftovers.begun(self.ledger.epoch, given.epoch)
        if begun:
            return begun[-1].epoch
        return self.ledger.epoch if self.ledger.claim > given.plan else None

    # Ending epochs

    def close(self, epoch: Epoch) -> Verdict:
        """Return the verdict on an epoch whose tasks are over. Raises FencedError if another driver owns the journal.

        It is asked once the chains are closed. Else a newer driver may have settled the epoch, and leftovers have put
        segments since, with messages that it never served.
        """
        with self.told_as_fenced():
            verdict = epoch.close(self.ledger)
        self.require_claim()
        self._judged = epoch
        self._forget(verdict.gone)
        return verdict

    def begin_settling(self, end: Offset) -> None:
        """Make certain whose everything is, before the epoch `end` is judged and settled.

        All others, wherever their numbers lie, are other queries'. They are released before this one is judged, for
        what this one has served is not carried from them; and for good, as the ledger says, for only this one could
        tell.
        """
        self.take(end)
        self.release_plans(self.leftovers.others())

    def settle(self, epoch: Epoch, *, followed_by: Offset | None) -> None:
        """Settle `epoch`, in the five steps of `docs/protocol.md`, after `begin_settling`.

        Doing it again after a crash is safe. `followed_by` is the one that Spark has logged after it, if that is known.
        """
        end = epoch.offset
        # 1. Close and judge, then check the claim, unless it is done. A crash after it leaves all as it was; the next
        #    driver judges for itself.
        verdict = epoch.close(self.ledger) if self._judged is epoch else self.close(epoch)
        # 2. Delete what it served, and copies: whoever owns the journal by now, Spark has committed that. A crash
        #    within or after it leaves the epoch whole in the journal, not settled: the next driver settles it, and SQS
        #    confirms the delete of what it no longer has.
        #    Deletes that got no answer last time are tried again with the handle that may still work.
        again = [entry.receipt for entry in self.ledger.unconfirmed.values() if entry.receipt is not None]
        again = [receipt for receipt in again if receipt.message_id not in verdict.copies]
        unconfirmed = self._delete([*verdict.served.values(), *verdict.copies.values(), *again])
        ledger = Ledger(
            end.epoch,
            unconfirmed,
            {name: tuple(receipts) for name, receipts in verdict.carried.items()},
            end.plan,
            self.claim,
            followed_by,
            self.leftovers.released_above(end.epoch),
            self.leftovers.returned_above(end.epoch),
            self.ledger.deletes or (self._wants_deletes and end.plan == self.claim),
        )
        # 3. Put the ledger. A crash after it leaves the epoch settled, with objects that the next driver drops when
        #    it opens the journal.
        self.journal.put_ledger(ledger)
        # 4. Check the claim: a newer driver may have found the ledger before this one, and judge by that; then the rest
        #    is that driver's to do. A crash after it leaves the same as one after 3.
        finding = self._read_pool.submit(lambda: self.journal.older_ledgers(end.epoch))
        try:
            self.require_claim()
        except FencedError:
            finding.result()  # says that it was in a commit, once the newer driver has put a ledger
            raise
        older = finding.result()
        self.ledger = ledger
        # 5. Drop what is behind it, while the query goes on. A crash within it leaves some of that, as one after 3; a
        #    crash after it leaves nothing to do.
        self._wait_for_drop()
        told = {plan.deal for plan in epoch.plans or () if isinstance(plan.deal, str)}
        drop = functools.partial(self._drop, end, [*older, *told], ledger.carried.keys())
        self._dropping = self._drop_pool.submit(drop)
        epoch.stop_renewing()

    def _drop(self, end: Offset, older: Sequence[str], carried: Container[str]) -> None:
        """Drop what is `older`, and all objects up to the epoch `end` but for those that are `carried`."""
        self.journal.drop(older)
        doomed, others = [], list[Receipt]()
        for number, names in self.journal.objects().items():
            for name in names:
                if number > end.epoch or name in carried:
                    continue
                doomed.append(name)
                if number == end.epoch and self.journal.plan_of(name) != end.plan:
                    others += self.journal.receipts(name)  # another plan's: it is no content
        if others:
            self.release(others)
        self.journal.drop(doomed)

    def delete_copies(self, receipts: Iterable[Receipt], *, budget_s: float) -> None:
        """Delete what an earlier epoch has served; the ledger in memory tells what of it is not confirmed."""
        self.ledger = replace(self.ledger, unconfirmed=self._delete(receipts, budget_s))

    def release(self, receipts: Iterable[Receipt]) -> None:
        """Release these messages: SQS can deliver them at once."""
        release(receipts, queue=self._queue, lease=self._lease)

    def _delete(self, receipts: Iterable[Receipt], budget_s: float = SETTLE_BUDGET_S) -> dict[str, Unconfirmed]:
        return delete_committed(
            receipts,
            self.ledger.unconfirmed,
            queue=self._queue,
            lease=self._lease,
            clock=self._clock,
            budget_s=budget_s,
        )

    def _forget(self, gone: Container[str]) -> None:
        """Remove from the ledger in memory what SQS no longer has; the next commit puts a ledger without it."""
        left = {key: entry for key, entry in self.ledger.unconfirmed.items() if key not in gone}
        self.ledger = replace(self.ledger, unconfirmed=left)

    def _wait_for_drop(self) -> None:
        dropping, self._dropping = self._dropping, None
        if dropping is not None:
            dropping.result()
