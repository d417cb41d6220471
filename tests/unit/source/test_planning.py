"""The shares of an epoch: pure arithmetic."""

from __future__ import annotations

from collections import Counter

import pytest

from sqs_fifo_spark.options import MAX_PARTITION_BYTES
from sqs_fifo_spark.source.driver.planning import deal_out, expected_messages, partition_count, plan_partitions
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.plan import Deal, PartitionPlan, Remainder
from sqs_fifo_spark.source.segment import Head, Origin

pytestmark = pytest.mark.law("source-4")


def left(*receipts: Receipt, sizes: tuple[int, ...] | None = None) -> Remainder:
    """All messages of an object, of one byte each unless told otherwise."""
    head = Head(Origin("j", 6, 1, 0, "w", 0, ""), receipts, sizes=(1,) * len(receipts) if sizes is None else sizes)
    return Remainder(head, tuple(range(len(receipts))))


def receipt(number: int, group: str) -> Receipt:
    return Receipt(f"id{number}", f"handle{number}", group, number, 1, 0, 0.0, 0)


def plans(count: int, deal: Deal | None = None, **arguments: object) -> list[PartitionPlan]:
    deal = deal or Deal()
    given: dict[str, object] = {"after": "", "deal": deal, "deal_in_plans": deal.encode(), "claim": 0, "deletes": False}
    limits = {"expected": 10_000, "max_messages": 100, "max_bytes": 1_000}
    return plan_partitions(Offset("j", 7, count), **{**given, **limits, **arguments})  # type: ignore[arg-type]


def ids(deal: Deal, carried: dict[str, Remainder], partition: int | None = None) -> list[str]:
    """Return the ids of the messages that are dealt out, to one partition or to all."""
    shares = [share for share in deal.shares if partition in (None, share.partition)]
    return [carried[share.name].head.receipts[place].message_id for share in shares for place in share.places]


@pytest.mark.parametrize(
    ("waiting", "served", "expected", "count"),
    [(0, 0, 0, 1), (1, 0, 0, 1), (100, 0, 0, 1), (101, 0, 0, 2), (20_000, 0, 0, 8), (490, 10, 490, 1)],
)
def test_partitions_follow_what_is_expected(waiting: int, served: int, expected: int, count: int) -> None:
    """At least one, one for each hundred messages, and never more than allowed.

    Without a last epoch all that waits is expected; with one that got ten of 490 behind one lock, ten more.
    """
    assert partition_count(expected_messages(waiting, served, expected), 8) == count


def test_an_epoch_that_got_all_that_was_expected_is_followed_by_one_twice_as_large() -> None:
    """So a backlog is met within a few epochs."""
    size, epochs = 10, 0
    while size < 10_000:
        size, epochs = expected_messages(1_000_000, served=size, expected=size), epochs + 1
    assert epochs == 10


def test_a_partition_that_runs_early_leaves_the_others_their_part() -> None:
    """2,000 messages are to be had: no partition may take more than its share and a quarter."""
    shares = [
        plan.max_messages for plan in plans(8, expected=expected_messages(20_000, 2_000, 9_000), max_messages=10_000)
    ]
    assert shares == [320] * 8


@pytest.mark.parametrize("limit", [1, 7, 8, 100])
def test_shares_add_up_to_the_limit(limit: int) -> None:
    """Rests go to the first partitions."""
    shares = [plan.max_messages for plan in plans(8, max_messages=limit)]
    assert sum(shares) == limit
    assert max(shares) - min(shares) <= 1


@pytest.mark.parametrize("caught", [0, 10, 20])
def test_many_messages_are_shared_out_by_whole_receives(caught: int) -> None:
    """A receive for five messages may leave five of a group behind, locked until the commit."""
    deal = deal_out({"x": left(*(receipt(number, "a") for number in range(caught)))}, 8, max_messages=25_000)
    made = plans(8, deal, max_messages=25_000, expected=50_000)
    shares = [plan.max_messages for plan in made]
    shares[deal.groups.get("a", 0)] -= caught
    assert sum(shares) == 25_000 - caught
    assert all(share % 10 == 0 for share in shares)
    assert max(shares) - min(shares) <= 10


@pytest.mark.parametrize("limit", [24_997, 25_003])
def test_what_is_no_whole_receive_goes_to_one_partition(limit: int) -> None:
    shares = [plan.max_messages for plan in plans(8, max_messages=limit, expected=50_000)]
    assert sum(shares) == limit
    assert sum(share % 10 > 0 for share in shares) == 1


@pytest.mark.parametrize(("max_bytes", "count", "share"), [(4 << 30, 1, 1 << 30), (4 << 30, 8, 1 << 29), (1, 8, 1)])
def test_a_partition_s_bodies_fit_into_one_arrow_array(max_bytes: int, count: int, share: int) -> None:
    """It ends at 2 GiB, and a receive that begins below the share still brings ten messages of 1 MiB."""
    assert {plan.max_bytes for plan in plans(count, max_bytes=max_bytes)} == {share}


def test_a_group_goes_to_one_partition_whoever_received_it() -> None:
    """The probe's messages of a group stand together with those that earlier epochs left."""
    groups = [f"group-{number}" for number in range(40)]
    carried = {
        "epochs/caught": left(*(receipt(number, group) for number, group in enumerate(groups))),
        "epochs/a": left(*(receipt(100 + number, group) for number, group in enumerate(reversed(groups)))),
    }
    deal = deal_out(carried, 4, max_messages=1_000)
    assert sorted(ids(deal, carried)) == sorted(each.message_id for some in carried.values() for each in some.receipts)
    for partition in range(4):
        dealt = ids(deal, carried, partition)
        assert len(dealt) == 20, "each gets as many"
        assert len({int(each[2:]) if int(each[2:]) < 100 else 139 - int(each[2:]) for each in dealt}) == 10


def test_few_tasks_read_one_object() -> None:
    """Each reads whole what it has any share in: all together about as many as there are objects and partitions.

    Here two links of a chain have the same groups each, and a few groups stand in many objects.
    """
    carried = {
        f"{chain}-{link}": left(
            *(receipt(200 * chain + 100 * link + number, f"{chain}/{number}") for number in range(99)),
            receipt(100_000 + 2 * chain + link, f"hot {chain % 2}"),
        )
        for chain in range(100)
        for link in range(2)
    }
    deal = deal_out(carried, 200, max_messages=100_000)
    counts = Counter[int]()
    for share in deal.shares:
        counts[share.partition] += len(share.places)
    assert len(ids(deal, carried)) == 20_000
    assert len(counts) == 200
    assert max(counts.values()) <= 100 + 100, "a hot group stays whole"
    assert len(deal.shares) <= 2 * (200 + 200), "two links have the same groups, so both are read for each of them"


def test_no_partition_is_dealt_more_bytes_than_one_may_have() -> None:
    """A message that would take a partition past 2 GiB waits for the next epoch, the rest of its group with it."""
    part = MAX_PARTITION_BYTES // 4
    carried = {"x": left(*(receipt(number, "ab"[number > 5]) for number in range(8)), sizes=(part,) * 8)}
    deal = deal_out(carried, 1, max_messages=100)
    assert ids(deal, carried) == ["id0", "id1", "id2", "id3"]
    assert (set(deal.groups), set(deal.reserved)) == ({"a"}, {"a", "b"})
    deal = deal_out(carried, 2, max_messages=100)
    assert len(ids(deal, carried)) == 6
    assert (set(deal.groups), set(deal.reserved)) == ({"a", "b"}, {"a"})


def test_of_what_is_carried_each_group_is_taken_from_its_head() -> None:
    """More than the limit waits, and what is left of a group comes after what is taken."""
    carried = {
        "late": left(*(receipt(number, "ab"[number % 2]) for number in range(10, 20))),
        "early": left(*(receipt(number, "ab"[number % 2]) for number in range(10))),
    }
    taken = ids(deal_out(carried, 3, max_messages=13), carried)
    assert sorted(int(each[2:]) for each in taken) == list(range(13))


@pytest.mark.parametrize(("most", "decided", "reserved"), [(1, "a", "ab"), (2, "ab", "a"), (3, "ab", "")])
def test_each_task_knows_the_groups_of_all_that_is_decided_or_left(most: int, decided: str, reserved: str) -> None:
    """SQS keeps them locked while it has those messages; it may have lost them, whatever partition they are in."""
    deal = deal_out({"x": left(receipt(1, "a"), receipt(2, "b"), receipt(3, "a"))}, 3, max_messages=most)
    assert all(isinstance(plan.deal, bytes) and Deal.decode(plan.deal) == deal for plan in plans(3, deal))
    assert (set(deal.groups), set(deal.reserved)) == (set(decided), set(reserved))


@pytest.mark.parametrize("is_replay", [False, True])
def test_only_a_replay_names_the_marks(is_replay: bool) -> None:
    """A fresh epoch serves, of what was received before, only what is carried; a replay has links, with any of them."""
    carried = {"x": left(receipt(1, "a"), receipt(2, "b"))}
    deal = deal_out(carried, 3, max_messages=9, skipped=frozenset({"id2", "id7"}), is_replay=is_replay)
    assert deal.skipped == ({"id2", "id7"} if is_replay else set())
    assert {plan.skips for plan in plans(3, deal)} == {is_replay}


def test_what_stands_aside_is_dealt_to_nobody() -> None:
    """Nor does it keep what follows in its group waiting, be it among what is decided or behind it."""
    carried = {"x": left(receipt(1, "a"), receipt(2, "b"), receipt(3, "c"), receipt(4, "d"), receipt(5, "e"))}
    for most, decided, reserved in ((1, "b", "d"), (2, "bd", ""), (3, "bd", "")):
        deal = deal_out(carried, 3, max_messages=most, skipped=frozenset({"id1", "id3", "id5"}))
        assert (set(deal.groups), set(deal.reserved)) == (set(decided), set(reserved))
        assert set(ids(deal, carried)) == {"id2"} | ({"id4"} if most > 1 else set())
        assert sum(plan.max_messages for plan in plans(3, deal, max_messages=most)) == most


@pytest.mark.parametrize("deletes", [False, True])
def test_each_plan_tells_whose_it_is_and_whether_its_task_deletes(deletes: bool) -> None:
    """A task of a driver that owns the journal no more must find that out by itself."""
    made = plans(3, claim=5, deletes=deletes)
    assert {(plan.claim, plan.deletes) for plan in made} == {(5, deletes)}


def test_an_epoch_without_partitions_has_no_plan() -> None:
    """It is there to commit the one before; what is carried waits."""
    assert plans(0, deal_out({"x": left(receipt(1, "a"))}, 0, max_messages=100)) == []
