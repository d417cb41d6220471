"""The driver's rules for a checkpoint that does not fit the journal: which step comes next. Pure: no call, no clock.

Spark's log names the last epochs that it was given; the journal's ledger says which of them are settled, and which
generation of queries rules. A crash may leave the journal one step behind the log, for Spark commits an epoch before
this source settles it; or the log one step behind the journal, for Spark's log may lose its last entry with a machine.
Any other checkpoint does not belong to this journal, or no longer does: it is refused, and the text says how the query
goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from sqs_fifo_spark.source.ledger import Ledger
from sqs_fifo_spark.source.offset import EpochPlan, Offset

_RESTORE = "If two runs of the query overlapped, start it again; else restore the matching checkpoint."


class Refuse(NamedTuple):
    """The checkpoint does not fit: DataLossError, or a warning and a new generation with `failOnDataLoss=false`."""

    reason: str
    remedy: str


class Settle(NamedTuple):
    """Spark has committed this epoch, and a crash kept the driver from settling it: that comes first."""

    offset: Offset


class Announce(NamedTuple):
    """Spark's log has lost this epoch, which the sink may have: it takes its place again."""

    offset: Offset


Decision = Refuse | Settle | Announce | None
"""None: checkpoint and journal fit."""


class UnsettledPlan(NamedTuple):
    """The objects of one plan of an epoch that stood in the journal, not settled, when it was opened."""

    names: tuple[str, ...]
    offset: Offset | None = None
    """From a link of it; None if it has no link, so that no task has read anything of it."""
    after: str = ""
    """The `Offset.name` of the epoch that it follows in Spark's log, from its links."""
    has_catch: bool = False
    """True if it has a driver's catch; an empty one says the same as `Driver.note_first`."""


@dataclass(frozen=True)
class JournalState:
    """The state of the journal, as the driver that owns it knows it."""

    journal: str
    """Its id."""
    location: str
    ledger: Ledger
    settled_at_start: EpochPlan
    """The last epoch that was settled when this driver opened the journal."""
    unsettled: Mapping[EpochPlan, UnsettledPlan]
    own: frozenset[EpochPlan] = frozenset()
    """Those of them that Spark's log has, as far as it has said."""

    def is_foreign(self, offset: Offset) -> bool:
        """Return whether `offset` is of no generation, or of one that does not rule: this query begins after it.

        The epoch that it began after, when a log was given up, is known.
        """
        is_over = self.ledger.has_ended(offset.generation) and offset.of != self.ledger.begun_after
        return offset.journal != self.journal or not offset.plan or is_over

    def is_noted_as_first(self, offset: Offset) -> bool:
        """Return whether the journal says that the blindly announced `offset` is the first one in Spark's log."""
        found = self.unsettled.get(offset.of)
        return offset.is_blind and found is not None and found.has_catch

    def has_links(self, of: EpochPlan) -> bool:
        """Return whether tasks had put any link of it. They do so only once the epoch that it follows is settled."""
        found = self.unsettled.get(of)
        return found is not None and found.offset is not None


def fits(known: Offset, found: str | None, ledger: Ledger, location: str) -> Refuse | None:
    """Return the reason why a query whose checkpoint has `known` cannot go on with the journal `found`, if any."""
    settled = ledger.settled
    if found != known.journal:
        return _of_another(known, found, location)
    if not known.plan or known.of == ledger.begun_after:
        return None
    has_gone_on = known.generation > ledger.generation and known.epoch <= settled.epoch  # an older query
    if ledger.has_ended(known.generation) or has_gone_on:
        return _of_another(known, found, location)
    is_other = known.epoch == settled.epoch and known.plan != settled.plan
    if known.epoch < settled.epoch or is_other:
        return Refuse(
            f"the checkpoint stands at epoch {known.epoch}, but the journal at '{location}' has committed "
            f"{'another ' if is_other else ''}epoch {settled.epoch}: the checkpoint is old",
            _RESTORE,
        )
    return None


def reconcile(given: Offset, state: JournalState, *, has_planned: bool = False, may_be_lost: bool = False) -> Decision:
    """Return the step that comes before the query goes on from `given`, the last epoch in Spark's log.

    `has_planned`: this driver has planned it, so Spark has said which epoch it follows. `may_be_lost`: Spark is about
    to ask for the epoch after it, and this driver has announced none so far.
    """
    if not given.plan:
        return None
    if state.is_foreign(given):
        return _of_another(given, state.journal, state.location)
    refusal = in_the_place_of_another(given, given.follows, state)
    if refusal is not None:
        return refusal
    before = _committed_before(given, state)
    if before is not None:
        return Settle(before)
    doubtful = None if has_planned else _doubtful_before(given, state)
    if doubtful is not None:
        return Refuse(
            f"epoch {given.epoch} was announced before Spark said where the query was, and its rows were never read, "
            f"so nobody can tell whether Spark has committed epoch {doubtful} of the journal at "
            f"'{state.location}'",
            f"{_without_entry(given)}, with 'spark.sql.streaming.triggerAvailableNowWrapper.enabled' set to false.",
        )
    lost = lost_after(given, state) if may_be_lost else None
    return None if lost is None else Announce(lost)


def replan(start: Offset, end: Offset, state: JournalState, *, begins: bool) -> Refuse | None:
    """Return the reason why the epoch `end` cannot be planned after `start`, if any; `begins` a generation, perhaps."""
    location, ledger = state.location, state.ledger
    # An older query may have gone on since Spark has logged the first epoch of this one.
    is_late = begins and end.generation > ledger.generation and end.epoch <= ledger.epoch + 1
    if state.is_foreign(end) or is_late:
        return _of_another(end, state.journal, location)
    if start.plan and end.epoch <= start.epoch:
        return Refuse(
            f"Spark's offset log goes back, from epoch {start.epoch} to epoch {end.epoch}, which it had before",
            "Start the query with a new checkpoint location, on the same journal.",
        )
    if end.epoch <= ledger.epoch:
        return Refuse(
            f"Spark asks for epoch {end.epoch} again, but the journal at '{location}' has committed epoch "
            f"{ledger.epoch}: the checkpoint is old",
            _RESTORE,
        )
    return in_the_place_of_another(end, start.of, state)


def in_the_place_of_another(given: Offset, after: EpochPlan, state: JournalState) -> Refuse | None:
    """Return a refusal if Spark's log has `given`, which follows `after`, in the place of an epoch that it has lost.

    The driver that settled `after` knew that Spark had logged another one. The log has lost that since, and an older
    driver, which stood still meanwhile, has had its own logged. If a newer driver's stands there, the user chose to go
    on without the lost one.
    """
    follower = state.ledger.followed_by
    if follower is None or after != state.ledger.settled or follower.of in (given.of, after):
        return None
    if given.plan >= follower.plan:
        return None
    return Refuse(
        f"the checkpoint has lost epoch {follower.epoch}, which the journal at '{state.location}' knows of, and has "
        "another one in its place, which an overtaken run of the query has announced",
        f"{_without_entry(given)}.",
    )


def lost_after(start: Offset, state: JournalState) -> Offset | None:
    """Return the offset that followed `start` in Spark's log, if `start` is settled and the log has lost it.

    Spark commits an epoch after it has logged the next, so the driver that settled `start` mostly knew which that was.
    Links say it where not, for that driver ran under Spark's AvailableNow wrapper; and where a newer one has its place,
    as the user chose to go on without the lost one. Of several that links name, the log has lost all but the newest
    plan, and may have lost that: its driver saw no link of the others.
    """
    ledger = state.ledger
    if not start.plan or start.of not in (ledger.settled, ledger.begun_after):
        return None
    if ledger.settled != state.settled_at_start:
        return None  # this driver has settled it
    by_links = [
        each.offset for each in state.unsettled.values() if each.offset is not None and each.after == start.name
    ]
    found = max(by_links, key=lambda offset: (offset.plan, offset.epoch), default=None)
    lost = ledger.followed_by
    if lost is None or (found is not None and found.plan >= lost.plan):
        lost = found
    if lost is None:
        return None
    return replace(
        lost,
        journal=state.journal,
        is_blind=False,
        after=start.plan,
        after_epoch=start.epoch,
        generation=ledger.generation,
    )


def lost_behind_blind(start: Offset, state: JournalState) -> Refuse | None:
    """Return a refusal if Spark's log has lost the epoch after `start`, and is about to have a blind one there."""
    lost = lost_after(start, state)
    if lost is None:
        return None
    return Refuse(
        f"the checkpoint does not know of epoch {lost.epoch}, which the journal at '{state.location}' knows of, and "
        "another one was announced before Spark said where the query was",
        "Start the query with 'spark.sql.streaming.triggerAvailableNowWrapper.enabled' set to false.",
    )


def _of_another(known: Offset, found: str | None, location: str) -> Refuse:
    """Return the refusal of a checkpoint of another journal than the one `found`, or of an earlier generation."""
    if found == known.journal:
        return Refuse(
            f"the journal at '{location}' belongs to another query, which began on it later, and has taken over what "
            "this one had not committed",
            "Start this query with a new checkpoint location, which takes the journal back; or give it a journal of "
            "its own.",
        )
    state = "holds no journal" if found is None else "holds another journal"
    return Refuse(
        f"'{location}' {state}, but the checkpoint refers to journal {known.journal}, so the messages that "
        "Spark may have to read again are gone",
        "Correct journalLocation, or restore the journal.",
    )


def _committed_before(given: Offset, state: JournalState) -> Offset | None:
    """Return the epoch that `given` follows, if it is not settled. None where `given` has links."""
    if not given.after or state.has_links(given.of):
        return None
    found = state.unsettled.get(given.follows)
    is_it = found is not None and state.ledger.epoch < given.after_epoch < given.epoch
    return found.offset if found is not None and is_it else None


def _doubtful_before(given: Offset, state: JournalState) -> int | None:
    """Return an epoch that Spark may or may not have committed before it was given `given`: nobody knows.

    None where there is no such epoch: `given` was not announced blindly; or it has links; or the driver that settled
    the last epoch knew that `given` follows it; or no tasks have read anything in between, and no driver has settled
    anything since `given` was announced.
    """
    ledger = state.ledger
    if not ledger.plan and ledger.generation == given.generation:
        return None  # a new query's first epoch, with which its generation has begun
    is_follower = ledger.followed_by is not None and ledger.followed_by.of == given.of
    is_known = not given.is_blind or state.has_links(given.of) or is_follower
    if is_known or given.epoch <= ledger.epoch:
        return None
    open_epochs = [
        each.epoch
        for each in state.unsettled.keys() - state.own
        if ledger.epoch < each.epoch < given.epoch and not ledger.has_ended(each.plan) and state.has_links(each)
    ]
    if open_epochs:
        return max(open_epochs)
    return ledger.epoch if ledger.claim > given.plan else None


def _without_entry(given: Offset) -> str:
    """Return the way for the query to go on without the entry `given` in Spark's log."""
    return (
        f"Remove the entry of epoch {given.epoch} and those behind it, if any, below 'offsets' in the checkpoint, and "
        "those of the same names below 'commits', and start the query again"
    )
