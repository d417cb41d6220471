"""How many partitions an epoch gets, and what each of them is to read. Pure: no call, no clock.

Carried messages go to the partition of their group. What else a partition gets is whatever SQS gives it: the group lock
keeps a group in one partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqs_fifo_spark.aws.calls import MAX_ENTRIES
from sqs_fifo_spark.options import MAX_PARTITION_BYTES
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.plan import PartitionPlan, partition_of
from sqs_fifo_spark.source.segment import Head

MESSAGES_PER_PARTITION = 100
"""How many waiting messages are worth a partition of their own."""
_MANY = 100
"""From how many messages for each partition on it is shares of whole receives."""


def expected_messages(waiting: int, served: int, expected: int) -> int:
    """Return about how many messages the next epoch can get, of those that wait.

    Most may wait behind locked groups, so it is a little more than the last epoch served, or twice as much if that
    was all that was `expected` of it. Without a last epoch that served, it is all that wait.
    """
    if not served:
        return waiting
    return min(waiting, 2 * served if served >= expected else served + served // 4)


def partition_count(expected: int, most: int) -> int:
    """Return the number of partitions, from one to `most`, for about `expected` messages."""
    return max(1, min(most, -(-expected // MESSAGES_PER_PARTITION)))


def plan_partitions(
    offset: Offset,
    *,
    after: str = "",
    carried: Mapping[str, Head],
    expected: int,
    max_messages: int,
    max_bytes: int,
    claim: int = 0,
    deletes: bool = False,
    looks: bool = False,
    skipped: frozenset[str] = frozenset(),
) -> list[PartitionPlan]:
    """Return each partition's share of the plan of the epoch `offset`, which follows the one that `after` names.

    `carried` maps the names of journal objects to what is left in them, as receipts; more than `max_messages` waits for
    the epoch after. What is `skipped` of it is sealed, so that it is settled, but not served: it takes nothing of the
    limits, and keeps nothing of its group waiting. Limits are shared out evenly, after what is decided has been
    counted, and so is what is `expected`: a partition that runs early leaves the others their part. Where tasks delete,
    all that is expected may be of one group, which only one partition gets at a time.
    """
    count = offset.partitions
    if not count:
        return []
    pairs = [(receipt, name) for name, head in carried.items() for receipt in head.receipts]
    aside = [pair for pair in pairs if pair[0].message_id in skipped]
    # By sequence number, so that of each group what is left over comes after what is taken.
    left = sorted(
        (pair for pair in pairs if pair[0].message_id not in skipped), key=lambda pair: pair[0].sequence_number
    )
    taken: list[dict[str, list[str]]] = [{} for _ in range(count)]
    decided_groups, reserved_groups = _groups(left[:max_messages]), _groups(left[max_messages:])
    for receipt, name in (*aside, *left[:max_messages]):
        taken[partition_of(receipt.message_group_id, count)].setdefault(name, []).append(receipt.message_id)
    counts = [sum(map(len, names.values())) for names in taken]
    # By whole receives where they are many: one that asks for less costs as much, and locks what it leaves of a group.
    unit = MAX_ENTRIES if min(max_messages, expected) >= _MANY * count else 1
    units, rest = divmod(max(0, max_messages - len(left)), unit)
    share, odd = divmod(units, count)
    fair = max_messages if deletes else max(MESSAGES_PER_PARTITION, -(-expected // (count * unit)) * unit)
    return [
        PartitionPlan(
            journal=offset.journal,
            epoch=offset.epoch,
            partitions=count,
            partition=index,
            max_messages=counts[index] + min(fair, (share + (index < odd)) * unit + (rest if index == 0 else 0)),
            max_bytes=max(1, min(MAX_PARTITION_BYTES, max_bytes // count)),
            plan=offset.plan,
            after=after,
            claim=claim,
            deletes=deletes,
            looks=looks,
            carried=tuple((name, tuple(ids)) for name, ids in taken[index].items()),
            decided_groups=decided_groups,
            reserved_groups=reserved_groups,
            expected=expected,
            skipped=skipped,
        )
        for index in range(count)
    ]


def _groups(pairs: Iterable[tuple[Receipt, str]]) -> frozenset[str]:
    return frozenset(receipt.message_group_id for receipt, _ in pairs)
