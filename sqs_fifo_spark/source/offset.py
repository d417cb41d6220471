"""The offset that Spark writes to its offset log for this source: the last epoch that the query was given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqs_fifo_spark.errors import DataLossError

MOST_PARTITIONS = 1_000
"""No epoch has more; a checkpoint that says so would have the driver make as many plans."""
_MOST_EPOCHS = 10**18
_JOURNAL_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")


class EpochPlan(NamedTuple):
    """The key that sets one epoch, as one driver has announced it, apart from all others of a journal."""

    epoch: int
    plan: int

    @property
    def name(self) -> str:
        """The same as text, such as `7/3`."""
        return f"{self.epoch}/{self.plan}"


@dataclass(frozen=True)
class Offset:
    """All epochs up to `epoch` of the journal `journal` have been given to Spark.

    An epoch is what one micro-batch takes. `partitions` is the number of partitions of `epoch` itself; it stands here
    so that a replay plans the same partitions. `plan` is the plan's name, which is the claim of the driver that
    announced the epoch: no two plans of an epoch have the same, and only the links of its tasks are its content. The
    rest of the plan is not here: a driver makes it again after a restart. The start of a new query has no plan and no
    partitions.
    """

    journal: str
    epoch: int
    partitions: int
    plan: int = 0
    is_blind: bool = False
    """Announced before Spark had said where the query was, so nobody knows which epoch came before it."""
    after: int = 0
    """The name of the plan of the epoch that Spark was given before; 0 if this one follows none."""
    after_epoch: int = 0
    """The number of that epoch."""
    generation: int = 0
    """The claim of the driver that began the query on this journal. A later generation takes the journal for good."""

    @property
    def of(self) -> EpochPlan:
        """The key of this epoch, of this plan, among all of the journal."""
        return EpochPlan(self.epoch, self.plan)

    @property
    def name(self) -> str:
        return self.of.name

    @property
    def follows(self) -> EpochPlan:
        """The epoch that Spark was given before this one, with its plan."""
        return EpochPlan(self.after_epoch, self.after)

    @property
    def begins(self) -> bool:
        """True if it is known to be the first epoch of its generation."""
        return bool(self.plan) and not self.after and not self.is_blind

    def to_json(self) -> dict[str, Any]:
        """Return the dict for Spark. Its key order is fixed, because Spark compares the JSON texts."""
        return {
            "journal": self.journal,
            "epoch": self.epoch,
            "partitions": self.partitions,
            "plan": self.plan,
            "generation": self.generation,
            "after": self.after,
            "afterEpoch": self.after_epoch,
            "blind": self.is_blind,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Offset:
        """Return the offset that Spark handed back. Raises DataLossError for a checkpoint not written by us."""
        names = ("journal", "epoch", "partitions", "plan", "generation", "after", "afterEpoch", "blind")
        match [value.get(name) for name in names] if isinstance(value, Mapping) else []:
            case [
                str(journal),
                int(epoch),
                int(partitions),
                int(plan),
                int(generation),
                int(after),
                int(after_epoch),
                bool(is_blind),
            ] if (
                _JOURNAL_ID.fullmatch(journal)
                and 0 <= partitions <= MOST_PARTITIONS
                and all(0 <= number <= _MOST_EPOCHS for number in (epoch, plan, generation, after, after_epoch))
            ):
                return cls(journal, epoch, partitions, plan, is_blind, after, after_epoch, generation)
        raise DataLossError(
            "the checkpoint holds an offset that this source did not write. Use the checkpoint of this query, or "
            "a new checkpoint location."
        )
