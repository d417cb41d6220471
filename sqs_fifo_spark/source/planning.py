"""How many partitions an epoch gets, and what each of them is to read. Pure: no call, no clock.

Carried messages are dealt out by group, those of one object to few partitions, as each reads it whole. What else a
partition gets is whatever SQS gives it: the group lock keeps a group in one partition.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping

from sqs_fifo_spark.aws.calls import MAX_CALL_BYTES, MAX_ENTRIES
from sqs_fifo_spark.options import MAX_PARTITION_BYTES
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.plan import Deal, PartitionPlan, Remainder, Share

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


def deal_out(
    carried: Mapping[str, Remainder],
    count: int,
    *,
    max_messages: int,
    skipped: frozenset[str] = frozenset(),
    is_replay: bool = False,
) -> Deal:
    """Return which of `count` partitions serves what of the messages that are left in objects, by the objects' names.

    Each group goes to one partition, and each partition gets about as many messages. More than `max_messages` waits for
    the epoch after, and so does what would take a partition past its limit of bytes. Of the `skipped` ids, an epoch
    that is no replay needs those that it is dealt: it defers all else that somebody received before.
    """
    if not count:
        return Deal()
    # By sequence number, so that of each group what is left over comes after what is taken.
    left = sorted(
        ((head.receipts[place], name, place) for name, (head, places) in carried.items() for place in places),
        key=lambda each: each[0].sequence_number,
    )
    reserved = {receipt.message_group_id for receipt, _, _ in left[max_messages:]}
    by_group: dict[str, list[tuple[str, str, int]]] = {}
    for receipt, name, place in left[:max_messages]:
        by_group.setdefault(receipt.message_group_id, []).append((receipt.message_id, name, place))
    # Those that stand in the same objects next to each other, so that only a few partitions read each of those.
    rank = {name: number for number, name in enumerate(sorted(carried))}
    order = sorted(by_group, key=lambda group: sorted({rank[name] for _, name, _ in by_group[group]}))
    first = zlib.crc32(order[0].encode()) if order else 0  # else a few groups would always go to the first partition
    groups: dict[str, int] = {}
    taken: dict[tuple[int, str], list[int]] = {}
    ids: set[str] = set()
    sizes, before = Counter[int](), 0
    for group in order:
        partition = (before * count // min(len(left), max_messages) + first) % count
        before += len(by_group[group])
        for message_id, name, place in by_group[group]:
            if sizes[partition] >= MAX_PARTITION_BYTES:
                reserved.add(group)
                break
            told = carried[name].head.sizes
            sizes[partition] += told[place] if told else MAX_CALL_BYTES  # an older version's object tells none
            groups[group] = partition
            taken.setdefault((partition, name), []).append(place)
            ids.add(message_id)
    shares = (
        Share(partition, name, carried[name].head.origin.writer, tuple(sorted(places)))
        for (partition, name), places in taken.items()
    )
    return Deal(tuple(shares), groups, frozenset(reserved), skipped if is_replay else skipped & ids)


def plan_partitions(
    offset: Offset,
    *,
    after: str = "",
    deal: Deal,
    told: bytes | str,
    expected: int,
    max_messages: int,
    max_bytes: int,
    claim: int = 0,
    deletes: bool = False,
    looks: bool = False,
) -> list[PartitionPlan]:
    """Return each partition's share of the plan of the epoch `offset`, which follows the one that `after` names.

    `told` is how the plans tell of `deal`. Limits are shared out evenly, after what is decided has been counted, and so
    is what is `expected`: a partition that runs early leaves the others their part. Where tasks delete, all that is
    expected may be of one group, which only one partition gets at a time.
    """
    count = offset.partitions
    if not count:
        return []
    counts = [0] * count
    for share in deal.shares:
        counts[share.partition] += len(share.places)
    # By whole receives where they are many: one that asks for less costs as much, and locks what it leaves of a group.
    unit = MAX_ENTRIES if min(max_messages, expected) >= _MANY * count else 1
    units, rest = divmod(max(0, max_messages - sum(counts)), unit)
    share_units, odd = divmod(units, count)
    fair = max_messages if deletes else max(MESSAGES_PER_PARTITION, -(-expected // (count * unit)) * unit)
    return [
        PartitionPlan(
            journal=offset.journal,
            epoch=offset.epoch,
            partitions=count,
            partition=index,
            max_messages=counts[index] + min(fair, (share_units + (index < odd)) * unit + (rest if index == 0 else 0)),
            max_bytes=max(1, min(MAX_PARTITION_BYTES, max_bytes // count)),
            plan=offset.plan,
            after=after,
            claim=claim,
            deletes=deletes,
            looks=looks,
            expected=expected,
            deal=told,
            skips=bool(deal.skipped),
        )
        for index in range(count)
    ]
