"""A journal's ledger: the settled epochs, and their unfinished messages.

The text in the store is checked in full before it is used: names of objects, because they are going to be read, and
kinds of values, because a wrong one would fail much later and far from its cause.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from sqs_fifo_spark.errors import DataLossError
from sqs_fifo_spark.journal.documents import damaged, parse_json, texts, to_json
from sqs_fifo_spark.payloads.pointer import from_url
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.offset import EpochPlan, Offset

_SOURCE_NAME = re.compile(r"epochs/[0-9]{20}/(?:[0-9]{4,}-[0-9]{6,}|caught)-[0-9]{20}")
_KINDS: Mapping[str, Any] = {**get_type_hints(Receipt), "received_at": (int, float)}


@dataclass(frozen=True)
class UnconfirmedMessage:
    """A message of a settled epoch whose delete SQS has not confirmed.

    It has expired by `until`, in wall-clock seconds, if it was not deleted before. Later messages of its group, by
    `sequence_number`, are delivered only once it is gone. `receipt` is None once SQS has refused its handle: if the
    message is there still, it comes again, with another one.
    """

    until: float
    message_group_id: str
    sequence_number: int
    receipt: Receipt | None
    payload: str = ""
    """URL of the payload that is to be deleted once the message is; else empty."""


@dataclass(frozen=True)
class Ledger:
    """All epochs up to `epoch` are settled, but for these messages of them.

    `unconfirmed` maps message ids: if SQS delivers one of them, it is a copy. `carried` maps names of objects to ids of
    messages in them that were deferred and that a later epoch serves: they are no copies.
    """

    epoch: int
    unconfirmed: Mapping[str, UnconfirmedMessage] = field(default_factory=dict)
    carried: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    plan: int = 0
    """The name of the plan of `epoch`; 0 if a generation began with it, and settled all that was there before."""
    claim: int = 0
    """The claim of the driver that settled it."""
    generation: int = 0
    """The one that rules: checkpoints of earlier ones are refused."""
    begun_by: int = 0
    """The claim of the driver that began it, perhaps after the one that announced its first epoch."""
    begun_after: EpochPlan | None = None
    """Last epoch in Spark's log before the first of this generation, if it began because that log was given up."""
    followed_by: Offset | None = None
    """The offset that Spark has logged after this one, if known; batches of other sources alone may lie between."""
    payloads: tuple[str, ...] = ()
    """URLs of payloads that are to be deleted still, as their messages are gone."""

    @property
    def settled(self) -> EpochPlan:
        return EpochPlan(self.epoch, self.plan)

    def has_ended(self, generation: int) -> bool:
        """Return True if it is over: a driver with that claim announced its first epoch before the ruling one began.

        The ruling one may have been announced before it, all the same, and have the lower number.
        """
        return generation != self.generation and generation < max(self.generation, self.begun_by)


def encode_ledger(ledger: Ledger, token: str) -> bytes:
    """Return the ledger's bytes; `token` makes them differ from another driver's."""
    return to_json(
        {
            "writer": token,
            "unconfirmed": {
                message_id: {
                    "until": entry.until,
                    "group": entry.message_group_id,
                    "sequence": entry.sequence_number,
                    "receipt": entry.receipt and entry.receipt._asdict(),
                    "payload": entry.payload,
                }
                for message_id, entry in ledger.unconfirmed.items()
            },
            "carried": ledger.carried,
            "plan": ledger.plan,
            "claim": ledger.claim,
            "generation": ledger.generation,
            "begunBy": ledger.begun_by,
            "begunAfter": ledger.begun_after,
            "followed": ledger.followed_by and ledger.followed_by.to_json(),
            "payloads": ledger.payloads,
        }
    )


def decode_ledger(data: bytes, epoch: int, name: str) -> Ledger:
    """Return the ledger of `epoch` whose bytes are `data`. Raises JournalCorruptError, naming the object `name`."""
    content = parse_json(data, name)
    try:
        unconfirmed = {
            message_id: UnconfirmedMessage(
                _time(entry["until"]),
                _text(entry["group"]),
                _whole(entry["sequence"]),
                _receipt(entry["receipt"]),
                _payload(entry["payload"]),
            )
            for message_id, entry in content["unconfirmed"].items()
        }
        carried = {_source(source): texts(ids) for source, ids in content["carried"].items()}
        plan, claim, generation, begun_by = (_whole(content[key]) for key in ("plan", "claim", "generation", "begunBy"))
        begun_after = None if content["begunAfter"] is None else EpochPlan(*map(_whole, content["begunAfter"]))
        followed_by = None if content["followed"] is None else Offset.from_json(content["followed"])
        payloads = tuple(from_url(each).url for each in texts(content["payloads"]))
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, DataLossError):
        raise damaged(name) from None
    return Ledger(epoch, unconfirmed, carried, plan, claim, generation, begun_by, begun_after, followed_by, payloads)


def _time(value: Any) -> float:
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(value)
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def _payload(value: Any) -> str:
    return value and from_url(_text(value)).url


def _whole(value: Any) -> int:
    if not isinstance(value, int):
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
    _payload(receipt.payload)
    return receipt


def _source(name: str) -> str:
    """Return `name` if an object of ours can have it: it is going to be read."""
    if not _SOURCE_NAME.fullmatch(name):
        raise ValueError(name)
    return name
