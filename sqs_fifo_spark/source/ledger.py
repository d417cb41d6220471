"""A journal's ledger: what is settled, and what is not finished.

Whatever stands in the store is checked in full before it is used: names of objects, because they are going to be
read, and kinds of values, because a wrong one would fail much later and far from its cause.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from sqs_fifo_spark.errors import DataLossError
from sqs_fifo_spark.journal.documents import damaged, parse_json, to_json
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.offset import EpochPlan, Offset

_SOURCE_NAME = re.compile(r"epochs/[0-9]{20}/(?:[0-9]{4,}-[0-9]{6,}|caught)-[0-9]{20}")
_OFFSET_NAME = re.compile(r"[0-9]{1,20}/[0-9]{1,20}")
_KINDS: Mapping[str, Any] = {**get_type_hints(Receipt), "received_at": (int, float)}


@dataclass(frozen=True)
class Unconfirmed:
    """A message of a settled epoch whose delete SQS has not confirmed.

    It has expired by `until`, in wall-clock seconds, if it was not deleted before. What follows it in its group, by
    `sequence_number`, is delivered only once it is gone. `receipt` is None once SQS has refused its handle: if the
    message is there still, it comes again, with another one.
    """

    until: float
    message_group_id: str
    sequence_number: int
    receipt: Receipt | None


@dataclass(frozen=True)
class Ledger:
    """Says that all epochs up to `epoch` are settled, and what of them is not finished.

    `unconfirmed` maps message ids: if SQS delivers one of them, it is a copy. `carried` maps names of objects to ids of
    messages in them that were deferred and that a later epoch serves: they are no copies.
    """

    epoch: int
    unconfirmed: Mapping[str, Unconfirmed] = field(default_factory=dict)
    carried: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    plan: int = 0
    """The name of the plan of `epoch`, for two queries may use the same number."""
    claim: int = 0
    """The claim of the driver that settled it."""
    followed_by: Offset | None = None
    """The offset of the epoch that Spark has logged after this one, if that is known.

    With several sources, a batch may be another one's alone.
    """
    released: frozenset[str] = frozenset()
    """The names of the offsets of later epochs that were released: what is left of them is carried."""
    returned: frozenset[str] = frozenset()
    """The names of the offsets of later epochs whose own query took them back after another one had gone on.

    What they have not served came from SQS again since, perhaps to that other query, so it is not carried.
    """
    deletes: bool = False
    """Whether tasks may delete before a commit, from now on.

    So all tasks know that they have to look for other drivers before they put anything. It is said where no older
    driver's task can do without: by the journal's first driver, and with an epoch that is settled above all others.
    """

    @property
    def settled(self) -> EpochPlan:
        """The last epoch that is settled."""
        return EpochPlan(self.epoch, self.plan)

    def has_seen(self, plan: EpochPlan) -> bool:
        """Return whether the driver that settled `epoch` knew what an older driver's tasks had put of this later one.

        It listed all of them after its claim, and has released each but the one that follows. What it did not see was
        put after its claim, so tasks have not deleted that.
        """
        is_follower = self.followed_by is not None and self.followed_by.of == plan
        return plan.plan >= self.claim or plan.name in self.released or is_follower


def encode_ledger(ledger: Ledger, token: str) -> bytes:
    """Return the ledger's bytes; `token` tells them from another driver's."""
    return to_json(
        {
            "writer": token,
            "unconfirmed": {
                message_id: {
                    "until": entry.until,
                    "group": entry.message_group_id,
                    "sequence": entry.sequence_number,
                    "receipt": entry.receipt and entry.receipt._asdict(),
                }
                for message_id, entry in ledger.unconfirmed.items()
            },
            "carried": ledger.carried,
            "plan": ledger.plan,
            "claim": ledger.claim,
            "followed": _told(ledger.followed_by),
            "released": sorted(ledger.released),
            "returned": sorted(ledger.returned),
            "deletes": ledger.deletes,
        }
    )


def decode_ledger(data: bytes, epoch: int, name: str) -> Ledger:
    """Return the ledger of `epoch` whose bytes are `data`. Raises JournalCorruptError, naming the object `name`."""
    content = parse_json(data, name)
    try:
        unconfirmed = {
            message_id: Unconfirmed(
                _time(entry["until"]), _text(entry["group"]), _whole(entry["sequence"]), _receipt(entry["receipt"])
            )
            for message_id, entry in content["unconfirmed"].items()
        }
        carried = {_source(source): _ids(ids) for source, ids in content["carried"].items()}
        plan, claim = _whole(content["plan"]), _whole(content["claim"])
        followed_by = _followed(content["followed"])
        released, returned = frozenset(_ids(content["released"])), frozenset(_ids(content.get("returned", [])))
        deletes = _flag(content.get("deletes", False))
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, DataLossError):
        raise damaged(name) from None
    return Ledger(epoch, unconfirmed, carried, plan, claim, followed_by, released, returned, deletes)


def _time(value: Any) -> float:
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(value)
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def _told(followed_by: Offset | None) -> Any:
    """Return what `_followed` reads."""
    if followed_by is None:
        return ""
    return followed_by.to_json() if followed_by.journal else followed_by.name


def _followed(value: Any) -> Offset | None:
    """Return the offset that `value` is, or names: older versions wrote only its name. An empty text is none."""
    if not isinstance(value, str):
        return Offset.from_json(value)
    if not value:
        return None
    if not _OFFSET_NAME.fullmatch(value):
        raise ValueError(value)
    epoch, plan = map(int, value.split("/"))
    return Offset("", epoch, 0, plan)


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise ValueError(value)
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def _receipt(value: Any) -> Receipt | None:
    """Return the receipt that `_asdict` made `value` of. Raises TypeError or ValueError for anything else."""
    if value is None:
        return None
    receipt = Receipt(**value)
    for name, kind in _KINDS.items():
        if not isinstance(getattr(receipt, name), kind):
            raise ValueError(name)
    _time(receipt.received_at)
    return receipt


def _source(name: str) -> str:
    """Return `name` if an object of ours can have it: it is going to be read."""
    if not _SOURCE_NAME.fullmatch(name):
        raise ValueError(name)
    return name


def _ids(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(value)
    return tuple(value)
