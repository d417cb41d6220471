"""A journal as an operator's command sees it, which only looks: nothing is claimed, put or dropped.

A query may change it meanwhile. So an object that is gone when it is read was dropped since, and is left out; and lines
about different epochs may be of different moments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from sqs_fifo_spark.cli.output import Track
from sqs_fifo_spark.errors import JournalCorruptError, JournalUnavailableError
from sqs_fifo_spark.journal.location import open_store
from sqs_fifo_spark.journal.object_store import S3Access
from sqs_fifo_spark.sink.marks import Writer, writers
from sqs_fifo_spark.source.journal import Journal
from sqs_fifo_spark.source.ledger import Ledger
from sqs_fifo_spark.source.owner import Owner
from sqs_fifo_spark.source.segment import Chain


def open_to_look(location: str, access: S3Access, queue_arn: str | None = None) -> Journal:
    """Return the journal at `location`. Raises JournalUnavailableError if there is none.

    Raises JournalMismatchError if it is of another format, or of another queue than that of `queue_arn`.
    """
    store = open_store(location, access)
    journal = Journal.look(store) if queue_arn is None else Journal.find(store, queue_arn)
    if journal is None:
        raise JournalUnavailableError(
            f"there is no journal at '{location}'. Correct the location; a source makes its journal when it starts, a "
            "sink with its first row."
        )
    return journal


@dataclass(frozen=True)
class PlanView:
    """The objects of one epoch in the journal, as one driver has planned it."""

    epoch: int
    plan: int
    partitions: int
    """Number with which it was planned; 0 if nothing but the driver's catch is there."""
    chains: Mapping[int, Chain]
    """The sums of each partition, by its newest link."""
    segments: int
    deferred: int
    """Messages in these segments that a later epoch serves."""
    caught: int
    """Messages of the driver's catch, for the tasks of this epoch to serve."""
    oldest_caught_ms: int | None

    @property
    def messages(self) -> int:
        return sum(chain.served for chain in self.chains.values())

    @property
    def size(self) -> int:
        """Bytes of bodies and attributes, as SQS counts them, of all messages in the chains."""
        return sum(chain.size for chain in self.chains.values())

    @property
    def oldest_ms(self) -> int | None:
        """Time of sending of the oldest message that it serves, or that was caught for it."""
        times = [self.oldest_caught_ms, *(each.oldest_ms for each in self.chains.values())]
        return min((each for each in times if each is not None), default=None)

    @property
    def is_closed(self) -> bool:
        """True if all partitions are there to their last link."""
        return 0 < len(self.chains) == self.partitions and all(chain.is_last for chain in self.chains.values())


@dataclass(frozen=True)
class JournalView:
    """The findings of `look_at`."""

    claims: list[int]
    owner: Owner | None
    """The owner by the highest claim."""
    skipped: list[str]
    """Ids of the messages that were moved aside."""
    ledger: Ledger
    plans: list[PlanView]
    """Those that are not settled, by epoch and plan."""
    leftovers: int
    """Objects of settled epochs: those that the ledger carries, and those that the next commit drops."""
    writers: list[Writer]
    """Writers whose sent rows are recorded here, if this is a sink's journal."""
    damage: list[str]
    """Faults of objects that cannot be used, one line for each."""


def look_at(journal: Journal, track: Track) -> JournalView:
    """Return a view of the journal now. `track` goes once through the objects that are read.

    Raises JournalUnavailableError, and JournalCorruptError for a ledger that is damaged.
    """
    ledger = journal.ledger()
    objects = journal.objects().items()
    leftovers = sum(len(names) for epoch, names in objects if epoch <= ledger.epoch)
    opened = [(epoch, name) for epoch, names in objects if epoch > ledger.epoch for name in names]
    places = sorted((epoch, journal.plan_of(name) or 0, name) for epoch, name in opened)
    plans, damage = [], []
    for (epoch, plan), of_plan in groupby(track(places, "open epochs"), itemgetter(0, 1)):
        seen, wrong = _look_at_plan(journal, epoch, plan, (name for _, _, name in of_plan))
        damage += wrong
        if seen.segments or seen.caught:
            plans.append(seen)
    owner, skipped = journal.owner(), sorted(journal.skipped())
    found, wrong = writers(journal.store)
    return JournalView(journal.claims(), owner, skipped, ledger, plans, leftovers, found, damage + wrong)


def _look_at_plan(journal: Journal, epoch: int, plan: int, names: Iterable[str]) -> tuple[PlanView, list[str]]:
    """Return a plan's objects there, and their faults; `names` are by partition and link."""
    chains: dict[int, Chain] = {}
    partitions = segments = deferred = 0
    caught: list[int] = []
    damage = []
    for name in names:
        place = journal.link_of(name, plan)
        try:
            head = journal.head(name)
        except JournalCorruptError as error:
            damage.append(str(error))
            continue
        if head is None:
            continue
        if place is None:
            caught += [receipt.sent_at_ms for receipt in head.receipts]
            continue
        partitions, segments = head.origin.partitions, segments + 1
        deferred += sum(receipt.deferred for receipt in head.receipts)
        chains[place[0]] = head.chain
    return PlanView(epoch, plan, partitions, chains, segments, deferred, len(caught), min(caught, default=None)), damage


def plans_of(journal: Journal, epoch: int) -> dict[int, list[str]]:
    """Return the names of the segments of an epoch by plan, each plan's in order: by partition and link."""
    found: dict[int, list[str]] = {}
    for name in sorted(journal.objects().get(epoch, ())):
        plan = journal.plan_of(name)
        if plan is not None and journal.link_of(name, plan):
            found.setdefault(plan, []).append(name)
    return found
