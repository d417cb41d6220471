"""The driver's verdict on each message of a closed epoch: served, a copy of one served before, or carried on.

Tasks defer a message that was received before, unless the ledger lists it as unconfirmed: that is a copy. Once all that
an epoch served is sealed, nothing can change any more, and the driver judges from the receipts alone. The same journal
gives the same verdict.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from sqs_fifo_spark.aws.calls import NO_CALLS, CallCounts
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.ledger import Ledger
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.segment import Head


@dataclass(frozen=True)
class Verdict:
    """The receipts in one epoch's objects, and of the messages carried to it: for each message, the newest."""

    served: Mapping[str, Receipt] = field(default_factory=dict)
    """Messages given to Spark that SQS may still have, by message id: to be deleted once the epoch is committed."""
    copies: Mapping[str, Receipt] = field(default_factory=dict)
    """Messages to be deleted and never served: an earlier epoch served them, or an operator has moved them aside."""
    carried: Mapping[str, Mapping[str, Receipt]] = field(default_factory=dict)
    """Messages that nobody served yet, by the name of the object that holds them: left to a later epoch."""
    gone: frozenset[str] = frozenset()
    """Unconfirmed, and SQS no longer has it: a task has deleted it, or received a later message of its group."""
    count: int = 0
    """Number of messages that the epoch gave to Spark: those of `served`, and those that its tasks have deleted."""
    oldest_ms: int | None = None
    """Time at which the oldest of those was sent."""
    groups: int = 0
    """About how many message groups it served, of each chain as many as one link did at most; or carries, if more."""
    held: int = 0
    """Number of the messages that SQS surely still has: no task may have deleted them."""
    served_held: int = 0
    """Number of those that the epoch gave to Spark."""
    calls: CallCounts = NO_CALLS
    """Calls of its tasks, but for those of attempts that put nothing."""
    payloads: tuple[str, ...] = ()
    """URLs of payloads that are to be deleted still: its tasks have deleted their messages, or copies of those."""

    @property
    def is_empty(self) -> bool:
        """True if the epoch leaves nothing to settle or to carry; copies that its tasks deleted leave nothing."""
        return not (self.count or self.copies or self.carried)

    def carried_receipts(self) -> list[Receipt]:
        return [receipt for held in self.carried.values() for receipt in held.values()]


def judge(
    offset: Offset, objects: Mapping[str, Head], ledger: Ledger, skipped: Container[str] = frozenset()
) -> Verdict:
    """Return the verdict on the epoch of `offset`, whose chains are closed.

    `objects` maps names of objects to their heads: of each chain of this plan of the epoch the last link, and those
    that serve any carried message (the first; perhaps any, if a link defers something); and the objects that `ledger`
    carries messages from. Messages that the other links serve, the last one names, or SQS has deleted them. Carried
    messages that an operator has moved aside, `skipped`, are to be deleted like copies.
    """
    served: dict[str, Receipt] = {}
    shown: set[str] = set()
    left: dict[str, tuple[str, Receipt]] = {}
    newest: dict[str, Receipt] = {}
    count = 0
    oldest_ms: int | None = None
    groups = 0
    calls = NO_CALLS
    may_be_deleted: set[str] = set()
    payloads: list[str] = []
    deleted = {message_id for head in objects.values() for message_id in head.deleted}

    def take(receipt: Receipt) -> None:
        known = newest.setdefault(receipt.message_id, receipt)
        if known is not receipt and receipt.recency > known.recency:
            newest[receipt.message_id] = receipt

    for name, head in objects.items():
        is_carried = name in ledger.carried
        wanted = frozenset(ledger.carried.get(name, ()))
        for receipt in head.receipts:
            message_id = receipt.message_id
            if (is_carried and message_id in wanted) or (not is_carried and receipt.deferred):
                take(receipt)
                if message_id not in left or receipt.recency > left[message_id][1].recency:
                    left[message_id] = (name, receipt)
            elif not is_carried:
                shown.add(message_id)
                take(receipt)
        if head.origin.deletes:
            may_be_deleted.update(receipt.message_id for receipt in head.in_flight())
        link = None if is_carried else Journal.link_of(name, offset.plan)
        if head.chain.is_last and link is not None and link[0] < offset.partitions:
            count += head.chain.served
            groups += head.chain.groups
            calls = calls.plus(head.calls)
            payloads += head.chain.payloads
            if head.chain.oldest_ms is not None:
                oldest_ms = min(head.chain.oldest_ms, head.chain.oldest_ms if oldest_ms is None else oldest_ms)
            for receipt in head.in_flight():
                take(receipt)
                served[receipt.message_id] = receipt
    gone = _gone(deleted, newest, ledger)
    payloads += (entry.payload for key, entry in ledger.unconfirmed.items() if key in deleted and entry.payload)
    carried: dict[str, dict[str, Receipt]] = {}
    copies: dict[str, Receipt] = {}
    for message_id, (name, receipt) in left.items():
        if message_id in served or message_id in shown or message_id in gone:
            continue
        if message_id in ledger.unconfirmed or message_id in skipped:
            copies[message_id] = receipt  # its payload is in the ledger, if an epoch has served it
        else:
            carried.setdefault(name, {})[message_id] = receipt
    about = {*served, *copies, *(message_id for held in carried.values() for message_id in held)}
    return Verdict(
        {key: _with_payload(newest[key], receipt.payload) for key, receipt in served.items()},
        copies,
        carried,
        gone,
        count,
        oldest_ms,
        max(groups, len({receipt.message_group_id for held in carried.values() for receipt in held.values()})),
        len(about - may_be_deleted),
        len(served.keys() - may_be_deleted),
        calls,
        tuple(payloads),
    )


def _with_payload(receipt: Receipt, payload: str) -> Receipt:
    return receipt if receipt.payload == payload else receipt._replace(payload=payload)


def _gone(deleted: Container[str], received: Mapping[str, Receipt], ledger: Ledger) -> frozenset[str]:
    """Return the ledger's unconfirmed messages that SQS has no longer.

    SQS delivers a group in order: if a later message of a group was received, and this one was not, this one is gone.
    Carried messages were received before the ledger was put, so they prove nothing.
    """
    if not ledger.unconfirmed:
        return frozenset()
    carried = {message_id for message_ids in ledger.carried.values() for message_id in message_ids}
    last: dict[str, int] = {}
    for receipt in received.values():
        if receipt.message_id not in carried:
            group = receipt.message_group_id
            last[group] = max(last.get(group, 0), receipt.sequence_number)
    return frozenset(
        message_id
        for message_id, entry in ledger.unconfirmed.items()
        if message_id in deleted
        or (message_id not in received and entry.sequence_number < last.get(entry.message_group_id, 0))
    )
