"""How an epoch is shared out: pure arithmetic."""

from __future__ import annotations

import pytest

from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.plan import PartitionPlan
from sqs_fifo_spark.source.planning import expected_messages, partition_count, plan_partitions
from sqs_fifo_spark.source.segment import Head, Origin


def head(*receipts: Receipt, deletes: bool = False) -> Head:
    return Head(Origin("j", 6, 1, 0, "w", deletes=deletes), receipts)


def receipt(number: int, group: str) -> Receipt:
    return Receipt(f"id{number}", f"handle{number}", group, number, 1, 0, 0.0, 0)


def plans(count: int, **arguments: object) -> list[PartitionPlan]:
    chosen: dict[str, object] = {
        "carried": {},
        "expected": 10_000,
        "max_messages": 100,
        "max_bytes": 1_000,
        **arguments,
    }
    return plan_partitions(Offset("j", 7, count), **chosen)  # type: ignore[arg-type]


@pytest.mark.parametrize(("expected", "count"), [(0, 1), (1, 1), (100, 1), (101, 2), (20_000, 8)])
def test_partitions_follow_what_is_expected(expected: int, count: int) -> None:
    """At least one, one for each hundred messages, and never more than allowed."""
    assert partition_count(expected, 8) == count


def test_without_a_last_epoch_all_that_waits_is_expected() -> None:
    """There is nothing better to go by."""
    assert expected_messages(20_000, served=0, expected=0) == 20_000


def test_a_hot_group_does_not_ask_for_partitions_that_stay_empty() -> None:
    """490 messages wait behind one lock, and the last epoch served ten of them."""
    assert partition_count(expected_messages(490, served=10, expected=490), 8) == 1


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
    carried = {"x": head(*(receipt(number, "a") for number in range(caught)))}
    made = plans(8, carried=carried, max_messages=25_000, expected=50_000)
    shares = [plan.max_messages - sum(len(ids) for _, ids in plan.carried) for plan in made]
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
    """What the probe got and what earlier epochs left of a group stand together, in every process."""
    groups = [f"group-{number}" for number in range(40)]
    carried = {
        "epochs/caught": head(*(receipt(number, group) for number, group in enumerate(groups))),
        "epochs/a": head(*(receipt(100 + number, group) for number, group in enumerate(groups))),
    }
    made = plans(4, carried=carried, max_messages=1_000)
    for plan in made:
        taken = {name: {int(message_id[2:]) % 100 for message_id in ids} for name, ids in plan.carried}
        assert taken["epochs/caught"] == taken["epochs/a"]
    assert sum(len(ids) for plan in made for _, ids in plan.carried) == 80
    assert len({len(plan.carried[0][1]) for plan in made} - {0}) > 1, "they are spread by their groups"


def test_of_what_is_carried_each_group_is_taken_from_its_head() -> None:
    """More than the limit waits, and what is left of a group comes after what is taken."""
    carried = {
        "late": head(*(receipt(number, "ab"[number % 2]) for number in range(10, 20))),
        "early": head(*(receipt(number, "ab"[number % 2]) for number in range(10))),
    }
    taken = sorted(
        int(message_id[2:])
        for plan in plans(3, carried=carried, max_messages=13)
        for _, ids in plan.carried
        for message_id in ids
    )
    assert taken == list(range(13))


@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize(("most", "decided", "reserved"), [(1, "a", "ab"), (2, "ab", "a"), (3, "ab", "")])
def test_each_task_knows_the_groups_of_all_that_is_decided_or_left(
    most: int, decided: str, reserved: str, deletes: bool
) -> None:
    """SQS keeps them locked while it has those messages; it may have lost them, whatever partition they are in."""
    carried = {"x": head(receipt(1, "a"), receipt(2, "b"), receipt(3, "a"))}
    made = plans(3, carried=carried, max_messages=most, deletes=deletes)
    assert {(plan.decided_groups, plan.reserved_groups) for plan in made} == {(frozenset(decided), frozenset(reserved))}


def test_what_stands_aside_is_sealed_and_takes_nothing_of_the_limit() -> None:
    """Nor does it keep what follows in its group waiting, be it among what is decided or behind it."""
    carried = {"x": head(receipt(1, "a"), receipt(2, "b"), receipt(3, "c"), receipt(4, "d"), receipt(5, "e"))}
    for most, decided, reserved in ((1, "b", "d"), (2, "bd", ""), (3, "bd", "")):
        made = plans(3, carried=carried, max_messages=most, skipped=frozenset({"id1", "id3", "id5"}))
        groups = {(plan.decided_groups, plan.reserved_groups) for plan in made}
        assert groups == {(frozenset(decided), frozenset(reserved))}
        taken = {each for plan in made for _, ids in plan.carried for each in ids}
        assert taken == {"id1", "id2", "id3", "id5"} | ({"id4"} if most > 1 else set())
        assert sum(plan.max_messages for plan in made) == most + 3


@pytest.mark.parametrize("deletes", [False, True])
def test_each_plan_tells_whose_it_is_and_whether_its_task_deletes(deletes: bool) -> None:
    """A task of a driver that owns the journal no more must find that out by itself."""
    made = plans(3, claim=5, deletes=deletes)
    assert {(plan.claim, plan.deletes) for plan in made} == {(5, deletes)}


def test_an_epoch_without_partitions_has_no_plan() -> None:
    """It is there to commit the one before; what is carried waits."""
    assert plans(0, carried={"x": head(receipt(1, "a"))}) == []
