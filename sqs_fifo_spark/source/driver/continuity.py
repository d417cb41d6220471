"""The driver's choice to go on from Spark's log, or to begin anew: it carries out the decisions of `checkpoint`."""

from __future__ import annotations

from sqs_fifo_spark.source.driver import checkpoint
from sqs_fifo_spark.source.driver.checkpoint import Announce, Refuse, Settle
from sqs_fifo_spark.source.driver.ownership import Ownership
from sqs_fifo_spark.source.driver.startup import report_data_loss
from sqs_fifo_spark.source.offset import Offset


class Continuity:
    """Spark's log, as one driver uses it. Used on the driver's own thread.

    With `failOnDataLoss=false` a log that does not fit is given up: a generation begins after it.
    """

    def __init__(self, owned: Ownership, *, fail_on_data_loss: bool, gives_up: bool) -> None:
        """`gives_up`: the log did not fit when the journal was opened, and the user chose to go on."""
        self._owned = owned
        self._fail_on_data_loss = fail_on_data_loss
        self._gives_up = gives_up
        self._given_up: Offset | None = None
        """The entry of Spark's log, of another journal, after which an earlier run has begun on this one."""
        self._first: Offset | None = None

    def begins_after(self, start: Offset) -> bool:
        """Return whether a generation begins after `start`: for a new query, or one that gives up its log."""
        is_own = start.journal == self._owned.journal.id and start.generation == self._owned.claim
        return not start.plan or start == self._given_up or (self._gives_up and not is_own)

    def next_offset(self, start: Offset, partitions: int) -> Offset:
        """Return the offset of a new epoch after `start`; a generation begins with it if one does after that."""
        owned, begins = self._owned, self.begins_after(start)
        return Offset(
            owned.journal.id,
            max(start.epoch + 1, owned.first_number()) if begins else owned.number_after(start),
            partitions,
            owned.claim,
            after=0 if begins else start.plan,
            after_epoch=0 if begins else start.epoch,
            generation=owned.claim if begins else max(owned.ledger.generation, start.generation),
        )

    def blind_offset(self, partitions: int) -> Offset:
        """Return the offset of a new epoch after all that Spark's log may have."""
        owned = self._owned
        number, claim = owned.first_number(), owned.claim
        return Offset(owned.journal.id, number, partitions, claim, is_blind=True, generation=claim)

    def knows(self, start: Offset) -> bool:
        """Return True if Spark's log, which has `start`, fits the journal, or is that of a query that begins.

        Else raise DataLossError, or give up the log and return False.
        """
        if self.begins_after(start):
            return True
        state = self._owned.journal_state
        refusal = checkpoint.fits(
            start, state.journal, state.ledger, state.location
        ) or checkpoint.in_the_place_of_another(start, start.follows, state)
        return refusal is None or self._refuse(refusal)

    def may_follow(self, start: Offset, end: Offset) -> bool:
        """Return whether `end` may be planned after `start`, both of which Spark has logged.

        If a generation begins with `end`, it begins now. Raises DataLossError, or gives up the log and returns False.
        """
        if end.begins and start.journal != self._owned.journal.id == end.journal:
            self._given_up = start  # whoever announced `end` was told so: nothing is given up once more
        if not self.knows(start) or self.begins_after(end):
            return False
        begins = self.begins_after(start)
        refusal = checkpoint.replan(start, end, self._owned.journal_state, begins=begins)
        if refusal is not None:
            return self._refuse(refusal)
        if begins and end.generation > self._owned.ledger.generation:
            self._owned.begin(end, start)
        return True

    def note_first(self, first: Offset) -> bool:
        """Note that `first` is the first one in Spark's log. Return True if the journal is to say so, too.

        That is, if its generation has not begun, and nothing in the offset shows that it begins with it.
        """
        is_known = first == self._first or self._owned.journal_state.is_noted_as_first(first)
        self._first = first
        has_begun = self.begins_after(first) or first.generation <= self._owned.ledger.generation
        return first.is_blind and not has_begun and not is_known

    def next_step(self, given: Offset, *, has_planned: bool, may_be_lost: bool) -> Settle | Announce | None:
        """Return the next step as `checkpoint.reconcile` does; raise DataLossError, or give up the log.

        The generation of `given` begins now if its plan was never asked for: nobody has looked at its batch's rows.
        """
        if self.begins_after(given):
            return None
        is_first = given.begins or given == self._first or self._owned.journal_state.is_noted_as_first(given)
        is_unplanned = is_first and given.generation > self._owned.ledger.generation
        if is_unplanned and not self.may_follow(Offset(self._owned.journal.id, 0, 0), given):
            return None
        self._owned.take(given)
        step = checkpoint.reconcile(given, self._owned.journal_state, has_planned=has_planned, may_be_lost=may_be_lost)
        if isinstance(step, Refuse):
            self._refuse(step)
            return None
        return step

    def require_none_lost(self, start: Offset) -> None:
        """Raise DataLossError, or give up the log, if it has a blind epoch where it has lost the one after `start`."""
        if (refusal := checkpoint.lost_behind_blind(start, self._owned.journal_state)) is not None:
            self._refuse(refusal)

    def _refuse(self, refusal: Refuse) -> bool:
        report_data_loss(refusal, fail_on_data_loss=self._fail_on_data_loss)
        self._gives_up = True
        return False
