"""What the driver tells a task, and where what is decided of a group stands."""

from __future__ import annotations

import zlib
from dataclasses import dataclass


@dataclass(frozen=True)
class PartitionPlan:
    """One task's share of a plan: what it is to read. The same for every attempt, until another driver plans again.

    `carried` names messages that the driver itself received, or that an earlier epoch deferred: they are decided, and
    served before anything that the task receives itself. `decided_groups` are the groups of all that is decided for any
    partition, and not `skipped`, `reserved_groups` those of what is left for a later epoch. SQS keeps both locked while
    it has those messages, and we hold them. `plan` is the plan's name, and `after` that of the task's `Origin`.
    """

    journal: str
    epoch: int
    partitions: int
    partition: int
    max_messages: int
    max_bytes: int
    plan: int = 0
    after: str = ""
    claim: int = 0
    """The claim of the driver that made this plan: only while no other has a higher one, tasks delete."""
    deletes: bool = False
    """Whether tasks delete what they have sealed; else nothing is deleted before Spark has committed it."""
    looks: bool = False
    """Whether other drivers' tasks may delete so: then tasks look for other drivers before they put anything."""
    expected: int = 0
    """About how many messages the whole epoch can get, carried ones included."""
    carried: tuple[tuple[str, tuple[str, ...]], ...] = ()
    decided_groups: frozenset[str] = frozenset()
    reserved_groups: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()
    """Ids of messages that an operator has moved aside: they are received, sealed and deleted, but not served."""


def partition_of(message_group_id: str, count: int) -> int:
    """Return the partition, of `count`, of what is decided of a group: the same in every process and replay."""
    return zlib.crc32(message_group_id.encode()) % count
