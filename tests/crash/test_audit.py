"""The audit of killed queries finds what it is there to find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest

from tests.crash.audit import Fate, audit, audit_each
from tests.spark.support import Row, Sent

SENT = {f"m{number}": Sent(f"g{number % 2}", number) for number in range(8)}
# Groups g0 and g1, each in a partition of its own, in two micro-batches.
ROWS = [
    Row(batch_id, f"{batch_id}/{group}", f"m{number}", f"g{group}", number)
    for batch_id in (0, 1)
    for group in (0, 1)
    for number in range(4 * batch_id + group, 4 * batch_id + 4, 2)
]
DELETED_AT = {message_id: 100.0 + 10 * (sent.sequence_number // 4) for message_id, sent in SENT.items()}
COMMITTED_AT = {0: 99.0, 1: 109.0, 2: 119.0}
AT_ONCE = dict.fromkeys(SENT, 0.0)
LATE = dict.fromkeys(SENT, 130.0)
# Two queues that have sent the same: each with its own ids, and with the other's groups and numbers.
QUEUES = {
    url: Fate(
        {f"{url}-{message_id}": sent for message_id, sent in SENT.items()},
        {f"{url}-{message_id}": at for message_id, at in DELETED_AT.items()},
    )
    for url in ("one", "two")
}

M0, M2, *OTHERS = ROWS
SWAPPED = [M2, M0, *OTHERS]
FIRST_OF_NEXT = [*ROWS[1:4], replace(M0, batch_id=1, place="1/9"), *ROWS[4:]]
LAST_OF_ALL = [*ROWS[1:], replace(M0, batch_id=2, place="2/0")]
SPLIT = [replace(row, place=f"{row.place}/{position % 2}") for position, row in enumerate(ROWS)]


def wrong(
    rows: list[Row],
    deleted_at: Mapping[str, float] = DELETED_AT,
    committed_at: Mapping[int, float] = COMMITTED_AT,
    *,
    tasks_delete: bool = False,
) -> dict[str, int]:
    """Return all that the audit has found, by name; without it the run is clean."""
    found = audit(SENT, rows, deleted_at, committed_at, tasks_delete=tasks_delete)
    assert (found.sent, found.delivered) == (8, len(rows))
    counts = {name: count for name, count in asdict(found).items() if count and name not in ("sent", "delivered")}
    assert found.is_clean == (not counts)
    return counts


def test_what_came_once_in_order_and_was_deleted_after_its_commit_is_clean() -> None:
    """The rule from which the cases below depart; an audit of nothing proves nothing."""
    assert wrong(ROWS) == {}
    assert not audit({}, [], {}, {}).is_clean


@pytest.mark.parametrize("missing", range(len(ROWS)))
def test_each_lost_message_is_found(missing: int) -> None:
    """Wherever it stood, and although it was deleted only when its micro-batch was committed."""
    assert wrong(ROWS[:missing] + ROWS[missing + 1 :]) == {"lost": 1, "deleted_early": 1}


@pytest.mark.parametrize("extra", [M0, replace(M0, batch_id=1, place="1/0")])
def test_a_doubled_message_is_found(extra: Row) -> None:
    """In its own micro-batch and in another one; and a message that is lost does not make up for it."""
    assert wrong([*ROWS[:-1], extra]) == {"lost": 1, "doubled": 1, "deleted_early": 1}


@pytest.mark.parametrize(
    ("rows", "tasks_delete"), [(SWAPPED, False), (SWAPPED, True), (LAST_OF_ALL, False), (FIRST_OF_NEXT, True)]
)
def test_messages_that_change_places_are_out_of_order(rows: list[Row], tasks_delete: bool) -> None:
    """Sequence numbers of a group rise within a partition, and from micro-batch to micro-batch."""
    assert wrong(rows, LATE, tasks_delete=tasks_delete) == {"out_of_order": 1}


def test_a_group_in_two_partitions_of_a_micro_batch_is_out_of_order() -> None:
    """Partitions have no order among themselves, however their numbers come out."""
    assert wrong([M0, replace(M2, place="0/1"), *OTHERS]) == {"out_of_order": 1}


def test_where_tasks_delete_a_group_may_stand_in_several_places_and_be_deleted_early() -> None:
    """In order in each place, above the micro-batch before; but what never came was deleted early all the same."""
    assert wrong(SPLIT, AT_ONCE, tasks_delete=True) == {}
    assert wrong(SPLIT) != {}
    assert wrong(SPLIT[1:], AT_ONCE, tasks_delete=True) == {"lost": 1, "deleted_early": 1}


@pytest.mark.parametrize("commits", [{0: 99.0, 1: 110.5}, {0: 99.0}])
def test_a_message_deleted_before_its_commit_is_found(commits: dict[int, float]) -> None:
    """By less than a second, or for want of any commit."""
    assert wrong(ROWS, committed_at=commits) == {"deleted_early": 4}


def test_a_message_that_is_never_deleted_is_found() -> None:
    """It would come again for as long as the queue keeps it."""
    assert wrong(ROWS, {message_id: at for message_id, at in DELETED_AT.items() if message_id != "m3"}) == {
        "never_deleted": 1
    }


@pytest.mark.parametrize("changes", [{"message_id": "x"}, {"message_group_id": "g1"}, {"sequence_number": 70}])
def test_a_row_that_nobody_sent_is_found(changes: dict[str, Any]) -> None:
    """Or one that says of its message what the queue did not say."""
    assert wrong([replace(M0, **changes), M2, *OTHERS]) == {"unknown": 1, "lost": 1, "deleted_early": 1}


def of_queues(rows: list[Row], *urls: str) -> list[Row]:
    """Return these rows of each queue, one queue's after the other's in each micro-batch and place."""
    return [replace(row, message_id=f"{url}-{row.message_id}", queue_url=url) for row in rows for url in urls]


def wrong_in_each(rows: list[Row]) -> dict[str, dict[str, int]]:
    """Return what is wrong by queue and name, without those that are clean."""
    audits = audit_each(QUEUES, rows, COMMITTED_AT)
    names = ("lost", "doubled", "out_of_order", "unknown", "deleted_early", "never_deleted")
    return {
        url: {name: count for name in names if (count := asdict(found)[name])}
        for url, found in audits.items()
        if not found.is_clean
    }


def test_groups_of_the_same_name_in_two_queues_have_nothing_to_do_with_each_other() -> None:
    """Neither do their numbers, nor their partitions."""
    apart = [*of_queues(ROWS, "one"), *(replace(row, place=f"{row.place}/x") for row in of_queues(ROWS, "two"))]
    assert wrong_in_each(of_queues(ROWS, "one", "two")) == wrong_in_each(apart) == {}


def test_a_queue_is_judged_by_its_own_messages() -> None:
    """A fault in one of them shows there, although the other one has the same groups."""
    assert wrong_in_each(of_queues(ROWS, "one") + of_queues(ROWS[1:], "two")) == {
        "two": {"lost": 1, "deleted_early": 1}
    }
    assert wrong_in_each(of_queues(SWAPPED, "one") + of_queues(ROWS, "two")) == {"one": {"out_of_order": 1}}
    assert wrong_in_each(of_queues(ROWS, "two"))["one"] == {"lost": 8, "deleted_early": 8}


@pytest.mark.parametrize("url", ["two", "three", ""])
def test_a_row_that_names_another_queue_is_found(url: str) -> None:
    """It is lost where it was sent, and unknown where it says that it is from."""
    first, *others = of_queues(ROWS, "one", "two")
    found = wrong_in_each([replace(first, queue_url=url), *others])
    assert found == {"one": {"lost": 1, "deleted_early": 1}, url: {"unknown": 1}}
