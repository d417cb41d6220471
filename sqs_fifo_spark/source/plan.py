"""The plan that the driver gives each task, and the deal that all tasks of one planning have in common.

A short `Deal` stands in each plan. A longer one is put into the journal, once for all tasks, so that plans do not grow
with the number of carried messages.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sqs_fifo_spark.errors import EpochSettledError, JournalCorruptError
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.segment import Head

LONGEST_INLINE = 1 << 16
"""Bytes of a deal that may stand in each plan; all plans of an epoch may have sixteen times as many."""
_OBJECT_NAME = re.compile(r"plans/(\d{20})-\d{20}-[0-9a-f]{32}")


class Remainder(NamedTuple):
    """The carried messages in one of the journal's objects: `places` of their receipts in its head."""

    head: Head
    places: tuple[int, ...]

    @property
    def receipts(self) -> list[Receipt]:
        return [self.head.receipts[place] for place in self.places]


class Share(NamedTuple):
    """The messages that `partition` serves of those in the object called `name`, which `writer` has put."""

    partition: int
    name: str
    writer: str
    places: tuple[int, ...]
    """Their positions in the object, from 0 on."""


@dataclass(frozen=True)
class Deal:
    """The decisions made before any task of a plan receives: the same for all tasks, and for every attempt."""

    shares: tuple[Share, ...] = ()
    """The messages of the driver's catch, or deferred by an earlier epoch: they are served before all others."""
    groups: Mapping[str, int] = field(default_factory=dict)
    """The partition of each group of the assigned messages. SQS keeps it locked while it has those messages."""
    reserved: frozenset[str] = frozenset()
    """The reserved groups, locked as well."""
    skipped: frozenset[str] = frozenset()
    """Ids of messages that an operator has moved aside: they are received, sealed and deleted, but not served."""

    def encode(self) -> bytes:
        """Return the deal's bytes, none if it is empty; the same ones for the same deal."""
        if self == Deal():
            return b""
        parts = (self.shares, self.groups, sorted(self.reserved), sorted(self.skipped))
        return zlib.compress(json.dumps(parts, separators=(",", ":")).encode(), 1)

    @staticmethod
    def decode(data: bytes) -> Deal:
        """Return the deal that `encode` made `data` of."""
        if not data:
            return Deal()
        shares, groups, reserved, skipped = json.loads(zlib.decompress(data))
        made = tuple(Share(partition, name, writer, tuple(places)) for partition, name, writer, places in shares)
        return Deal(made, groups, frozenset(reserved), frozenset(skipped))


@dataclass(frozen=True)
class PartitionPlan:
    """One task's share of a plan, the same for every attempt, until another driver plans again.

    `plan` is the plan's name, and `after` that of the task's `Origin`.
    """

    journal: str
    epoch: int
    partitions: int
    partition: int
    max_messages: int
    max_bytes: int
    plan: int
    after: str
    claim: int
    """The claim of the driver that made this plan: only while no other has a higher one, tasks delete."""
    deletes: bool
    """True if tasks delete their sealed messages; else nothing is deleted before Spark has committed it."""
    expected: int
    """About how many messages the whole epoch can get, carried ones included."""
    deal: bytes | str = field(repr=False)
    """The deal's bytes, or the name of the object that has them: see `deal_of`."""
    skips: bool
    """True if the deal names messages that were moved aside. Else a task that finds a whole chain needs no deal."""
    query: str | None = None
    """The query's id, for its log lines: Spark gives it to the task, and not to the driver that plans."""


def publish(deal: Deal, journal: Journal, offset: Offset) -> bytes | str:
    """Return the deal's bytes for the plans of `offset`, or the name of its object if it is long. Runs on the driver.

    The name holds a checksum: an object that is there already is this one, whose put has lost its answer. Raises
    JournalUnavailableError.
    """
    data = deal.encode()
    if len(data) <= min(LONGEST_INLINE, 16 * LONGEST_INLINE // max(1, offset.partitions)):
        return data
    name = f"plans/{journal.own_claim:020d}-{offset.epoch:020d}-{_checksum(data)}"
    journal.store.put_if_absent(name, data)
    return name


def deal_of(plan: PartitionPlan, journal: Journal) -> Deal:
    """Return the deal of the plan's tasks. Runs on executors; the last object read is kept.

    Raises EpochSettledError if the object is gone, JournalCorruptError if it is another one.
    """
    if isinstance(plan.deal, bytes):
        return Deal.decode(plan.deal)
    return _read(journal, plan.deal, plan.epoch)


@functools.lru_cache(maxsize=1)
def _read(journal: Journal, name: str, epoch: int) -> Deal:
    data = journal.store.get(name)
    if data is None:
        raise gone(name, epoch)
    if not name.endswith(_checksum(data)):
        raise JournalCorruptError(
            f"'{name}' in the journal is damaged: a checksum does not match. Start the query again: it plans epoch "
            f"{epoch} anew."
        )
    return Deal.decode(data)


def gone(name: str, epoch: int) -> EpochSettledError:
    """Return the error for an object that tasks of `epoch` need and that is gone."""
    return EpochSettledError(
        f"'{name}', which epoch {epoch} needs, is gone from the journal. Either the epoch is committed and this task "
        "runs too late, or somebody has removed it: start the query again."
    )


def older_deals(journal: Journal, claim: int) -> list[str]:
    """Return the names of the deals of drivers before that of `claim`: their tasks stop. Runs on the driver."""
    names = journal.store.list("plans")
    return [name for name in names if (match := _OBJECT_NAME.fullmatch(name)) and int(match[1]) < claim]


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
