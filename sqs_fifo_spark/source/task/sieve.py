"""The fate of the messages that an attempt receives, pure: known, overtaking, overtaken, deferred, or served."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from sqs_fifo_spark.source.message import Message, Receipt
from sqs_fifo_spark.source.segment import Head


class SieveResult(NamedTuple):
    kept: list[Message]
    released: list[Receipt]
    """Messages for SQS to hand out again."""


class Sieve:
    """One attempt's knowledge of groups and handles. Nothing here calls SQS or the journal."""

    def __init__(self, deferred_groups: Iterable[str], elsewhere: Mapping[str, int]) -> None:
        """`elsewhere` are the groups of messages assigned to other partitions, with the partition's number."""
        self.deferred_groups = set(deferred_groups)
        self._elsewhere = dict(elsewhere)
        """Those whose assigned messages are not in their chains yet, when this attempt has looked last."""
        self._again: dict[str, Receipt] = {}
        """Messages of the chain that SQS has delivered again to this attempt, by message id: the handles that work."""

    def newest(self, receipt: Receipt) -> Receipt:
        again = self._again.get(receipt.message_id, receipt)
        if again.recency <= receipt.recency:
            return receipt
        return again._replace(deferred=receipt.deferred, payload=receipt.payload)

    def without_known(self, received: Sequence[Message], known: Collection[str]) -> list[Message]:
        """Return the messages that the chain does not have, by these ids; of the others, keep the newer handles."""
        again = [each.receipt for each in received if each.receipt.message_id in known]
        self._again.update((receipt.message_id, receipt) for receipt in again)
        return [each for each in received if each.receipt.message_id not in known]

    def partitions_to_look_at(self, received: Iterable[Message]) -> list[int]:
        """Return the partitions to which messages of the same groups are assigned that this attempt has not seen."""
        return sorted({self._elsewhere[group] for group in _groups(received) & self._elsewhere.keys()})

    def note_first_link(self, head: Head) -> None:
        """Note the first link of another partition: all messages assigned to that are in there."""
        for receipt in head.receipts:
            if not receipt.deferred:
                self._elsewhere.pop(receipt.message_group_id, None)
        self.note_link(head)

    def note_link(self, head: Head) -> None:
        """Note a link of the chain: later messages of a group of which it defers something are deferred."""
        self.deferred_groups |= deferred_groups(head)

    def without_overtaking(self, received: Sequence[Message]) -> SieveResult:
        """Release messages that would overtake those assigned to another partition and not in its chain yet.

        SQS hands out later messages of a group only once the earlier ones are sealed and deleted; or have expired, or
        somebody else has taken them away: then nothing may be served before those. A released message comes again, and
        any task of this epoch that receives it then defers it, for it was received before.
        """
        overtaking = _groups(received) & self._elsewhere.keys()
        again = _groups(each for each in received if each.receipt.receive_count > 1)
        self.deferred_groups |= overtaking & again
        return _split(received, lambda receipt: receipt.message_group_id in overtaking - again)

    def without_overtaken(self, received: Sequence[Message], head: Head, in_flight: Iterable[Receipt]) -> SieveResult:
        """Release messages of whose groups `head`, another attempt's link, has later ones; keep the rest.

        SQS hands those out only once it has let go of the messages that this attempt has received: they have expired,
        or somebody has taken them away. Or they came to that attempt, too, which then has put them. They would now
        stand behind the later ones.
        """
        last: dict[str, int] = {}
        for receipt in head.receipts:
            last[receipt.message_group_id] = max(receipt.sequence_number, last.get(receipt.message_group_id, 0))
        there = {receipt.message_id for receipt in (*head.receipts, *in_flight)}
        return _split(
            received,
            lambda receipt: (
                receipt.message_id not in there and receipt.sequence_number < last.get(receipt.message_group_id, 0)
            ),
        )

    def in_order(self, received: Iterable[Message]) -> list[Message]:
        """Return these messages by sequence number, as a link has them: served, or deferred.

        A message is deferred if it is already, if anybody received it before, or if its group is: because a message of
        it is left for a later epoch, or deferred; or assigned, where the commit deletes.
        """
        messages = []
        groups: set[str] = set()  # not kept: until the link is sealed, another attempt's may come in its place
        for message in sorted(received, key=sequence_number):
            receipt = message.receipt
            group = receipt.message_group_id
            if receipt.deferred or receipt.receive_count > 1 or group in self.deferred_groups or group in groups:
                groups.add(group)
                message = deferred(message)
            messages.append(message)
        return messages


def deferred(message: Message) -> Message:
    return message._replace(receipt=message.receipt._replace(deferred=True))


def deferred_groups(head: Head) -> set[str]:
    return {receipt.message_group_id for receipt in head.receipts if receipt.deferred}


def sequence_number(message: Message) -> int:
    return message.receipt.sequence_number


def _groups(messages: Iterable[Message]) -> set[str]:
    return {message.receipt.message_group_id for message in messages}


def _split(received: Sequence[Message], is_released: Callable[[Receipt], bool]) -> SieveResult:
    released = [each.receipt for each in received if is_released(each.receipt)]
    return SieveResult([each for each in received if not is_released(each.receipt)], released)
