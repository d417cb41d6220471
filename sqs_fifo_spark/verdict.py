"""What became of the messages of a closed epoch: served, served before, or left for the next epoch.

Tasks never decide about a message that was received before: they defer it. Once all that an epoch served is sealed,
nothing can change any more, and the driver judges from the receipts alone. The same journal gives the same verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqs_fifo_spark.journal import Journal
from sqs_fifo_spark.ledger import Ledger
from sqs_fifo_spark.message import Receipt
from sqs_fifo_spark.offset import Offset


@dataclass(frozen=True)
class Verdict:
    """The receipts of one epoch's messages, each message once, with the newest of its receipts."""

    served: Mapping[str, Receipt] = field(default_factory=dict)
    """What the epoch gave to Spark, by message id: to be deleted once the epoch is committed."""
    served_before: Mapping[str, Receipt] = field(default_factory=dict)
    """What an earlier epoch gave to Spark and SQS handed out again: to be deleted, and never served."""
    carried: Mapping[str, Mapping[str, Receipt]] = field(default_factory=dict)
    """What nobody served yet, by the name of the object that holds it: the next epoch serves it."""

    @property
    def is_empty(self) -> bool:
        """Whether the epoch received nothing at all."""
        return not (self.served or self.served_before or self.carried)

    def carried_receipts(self) -> list[Receipt]:
        """Return the receipts of everything that is carried over."""
        return [receipt for held in self.carried.values() for receipt in held.values()]


def judge(offset: Offset, contents: Mapping[str, Iterable[Receipt]], ledger: Ledger) -> Verdict:
    """Return the verdict on the epoch of `offset`.

    `contents` maps the names of this epoch's objects, and of those that `ledger` carries messages from, to their
    receipts. An object that is not the segment of one of the offset's partitions serves nothing: what it holds is
    as good as deferred.
    """
    served: dict[str, Receipt] = {}
    left: dict[str, tuple[str, Receipt]] = {}
    newest: dict[str, Receipt] = {}
    for name, receipts in contents.items():
        is_carried = name in ledger.carried
        wanted = frozenset(ledger.carried.get(name, ()))
        partition = Journal.partition_of(name)
        serves = not is_carried and partition is not None and partition < offset.partitions
        for receipt in receipts:
            message_id = receipt.message_id
            if is_carried and message_id not in wanted:
                continue
            if message_id not in newest or _age(receipt) > _age(newest[message_id]):
                newest[message_id] = receipt
            if serves and not receipt.deferred:
                served[message_id] = receipt
            elif message_id not in left or _age(receipt) > _age(left[message_id][1]):
                left[message_id] = (name, receipt)
    carried: dict[str, dict[str, Receipt]] = {}
    served_before: dict[str, Receipt] = {}
    for message_id, (name, receipt) in left.items():
        if message_id in served:
            continue
        if message_id in ledger.unconfirmed:
            served_before[message_id] = receipt
        else:
            carried.setdefault(name, {})[message_id] = receipt
    return Verdict({message_id: newest[message_id] for message_id in served}, served_before, carried)


def _age(receipt: Receipt) -> tuple[int, float]:
    """A later receive of the same message has a higher count, and its handle is the one that works."""
    return receipt.receive_count, receipt.received_at
