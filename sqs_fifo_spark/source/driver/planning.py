"""The division of an epoch into partitions: their number, and the messages of each. Pure: no call, no clock.

Carried messages are dealt out by group, those of one object to few partitions, as each reads it whole. All others come
to the partition that SQS gives them to: the group lock keeps a group in one partition.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from sqs_fifo_spark.aws.calls import MAX_ENTRIES
from sqs_fifo_spark.options import MAX_PARTITION_BYTES
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.plan import Deal, PartitionPlan, Remainder, Share

MESSAGES_PER_PARTITION = 100
"""Waiting messages that are worth a partition of their own."""
_MANY = 100
"""Messages for each partition from which on its shares are whole receives."""


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


def epoch_size(
    waiting: int, carried: int, *, served: int, groups: int, expected_before: int | None, most: int, deletes: bool
) -> tuple[int, int]:
    """Return the number of partitions of an epoch, `most` at most, and about how many messages it can get.

    So many messages wait and are carried. The epoch before has `served` messages of about so many `groups`, where
    `expected_before` were expected; None if this driver has not planned it. `deletes` says that tasks delete.
    """
    if expected_before is not None and not waiting and not carried:
        # It only makes Spark commit the last epoch. A driver that has planned nothing yet does not trust the number
        # of waiting messages, which may lag behind: with Trigger.Once there is no other epoch.
        return 0, 0
    if not deletes:
        expected = expected_messages(waiting, served, expected_before or 0) + carried
        return partition_count(expected, most), expected
    # A group goes on as soon as its messages are deleted. So a few hot groups need few partitions, and one of them may
    # get all messages. Until an epoch has shown how many groups there are, many cost less than few.
    return partition_count(waiting + carried, min(most, groups or most)), waiting + carried


def deal_out(
    carried: Mapping[str, Remainder],
    count: int,
    *,
    max_messages: int,
    max_partition_bytes: int = MAX_PARTITION_BYTES,
    skipped: frozenset[str] = frozenset(),
    is_replay: bool = False,
) -> Deal:
    """Return the deal of carried messages to `count` partitions, by the names of the objects that hold them.

    Each group goes to one partition, and each partition gets about as many messages. Messages beyond `max_messages`, or
    beyond `max_partition_bytes`, wait for the epoch after. Those `skipped` are left to the commit: no task gets
    them. Only the deal of a replay names them, for a chain may have some.
    """
    if not count:
        return Deal()
    names = sorted(carried)
    heads = [carried[name].head for name in names]
    # By sequence number, so that of each group the messages left over come after those taken.
    left: list[tuple[int, int, int]] = []
    for number, name in enumerate(names):
        for place in carried[name].places:
            receipt = heads[number].receipts[place]
            if receipt.message_id not in skipped:
                left.append((receipt.sequence_number, number, place))
    left.sort()
    by_group: dict[str, list[tuple[int, int]]] = {}
    for _, number, place in left[:max_messages]:
        by_group.setdefault(heads[number].receipts[place].message_group_id, []).append((number, place))
    reserved = {heads[number].receipts[place].message_group_id for _, number, place in left[max_messages:]}
    # Those that stand in the same objects next to each other, so that only a few partitions read each of those.
    order = sorted(by_group, key=lambda group: sorted({number for number, _ in by_group[group]}))
    first = zlib.crc32(order[0].encode()) if order else 0  # else a few groups would always go to the first partition
    groups: dict[str, int] = {}
    places_by_object: dict[tuple[int, int], list[int]] = {}
    sizes, before = [0] * count, 0
    for group in order:
        partition = (before * count // min(len(left), max_messages) + first) % count
        before += len(by_group[group])
        for number, place in by_group[group]:
            if sizes[partition] >= max_partition_bytes:
                reserved.add(group)
                break
            sizes[partition] += heads[number].sizes[place]
            places_by_object.setdefault((partition, number), []).append(place)
            groups[group] = partition
    shares = tuple(
        Share(partition, names[number], heads[number].origin.writer, tuple(sorted(places)))
        for (partition, number), places in places_by_object.items()
    )
    return Deal(shares, groups, frozenset(reserved), skipped if is_replay else frozenset())


def partition_bytes(max_bytes: int, count: int) -> int:
    """Return the bytes after which one of `count` partitions receives no more."""
    return max(1, min(MAX_PARTITION_BYTES, max_bytes // max(1, count)))


def plan_partitions(
    offset: Offset,
    *,
    after: str,
    deal: Deal,
    deal_in_plans: bytes | str,
    expected: int,
    max_messages: int,
    max_bytes: int,
    claim: int,
    deletes: bool,
) -> list[PartitionPlan]:
    """Return each partition's share of the plan of the epoch `offset`, which follows the one that `after` names.

    `deal_in_plans` is the result of `plan.publish`. Limits are shared out evenly, after the assigned messages have been
    counted, and so are the `expected` messages: a partition that runs early leaves the others their part.
    Where tasks delete, all expected messages may be of one group, which only one partition gets at a time.
    """
    count = offset.partitions
    if not count:
        return []
    counts = [0] * count
    for share in deal.shares:
        counts[share.partition] += len(share.places)
    # By whole receives where they are many: one that asks for less costs as much, and locks the rest of a group.
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
            max_bytes=partition_bytes(max_bytes, count),
            plan=offset.plan,
            after=after,
            claim=claim,
            deletes=deletes,
            expected=expected,
            deal=deal_in_plans,
            skips=bool(deal.skipped),
        )
        for index in range(count)
    ]
