"""The audit of killed queries finds what it is there to find."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.crash.audit import Delivered, audit
from tests.spark.support import Sent

SENT = {f"m{number}": Sent(f"g{number % 2}", number) for number in range(8)}
# Groups g0 and g1, each in a partition of its own, in two micro-batches.
ROWS = [
    Delivered(batch_id, f"{batch_id}/{group}", f"m{number}", f"g{group}", number)
    for batch_id in (0, 1)
    for group in (0, 1)
    for number in range(4 * batch_id + group, 4 * batch_id + 4, 2)
]
DELETED_AT = {message_id: 100.0 + 10 * (sent.sequence_number // 4) for message_id, sent in SENT.items()}
COMMITTED_AT = {0: 99.0, 1: 109.0}


def index(message_id: str) -> int:
    return next(position for position, row in enumerate(ROWS) if row.message_id == message_id)


def test_what_came_once_in_order_and_was_deleted_after_its_commit_is_clean() -> None:
    """The rule from which the cases below depart."""
    found = audit(SENT, ROWS, DELETED_AT, COMMITTED_AT)
    assert found.is_clean
    assert (found.sent, found.delivered) == (8, 8)


def test_a_run_without_messages_is_not_clean() -> None:
    """An audit of nothing proves nothing."""
    assert not audit({}, [], {}, {}).is_clean


@pytest.mark.parametrize("missing", range(len(ROWS)))
def test_each_lost_message_is_found(missing: int) -> None:
    """Wherever it stood, and although it was deleted only when its micro-batch was committed."""
    found = audit(SENT, ROWS[:missing] + ROWS[missing + 1 :], DELETED_AT, COMMITTED_AT)
    assert (found.lost, found.doubled, found.out_of_order) == (1, 0, 0)
    assert found.deleted_early == 1
    assert not found.is_clean


@pytest.mark.parametrize("again", ["the same place", "a later micro-batch"])
def test_a_doubled_message_is_found(again: str) -> None:
    """In its own micro-batch and in another one; and a message that is lost does not make up for it."""
    row = ROWS[0]
    extra = row if again == "the same place" else replace(row, batch_id=1, place="1/0")
    found = audit(SENT, [*ROWS[:-1], extra], DELETED_AT, COMMITTED_AT)
    assert found.delivered == found.sent
    assert (found.lost, found.doubled) == (1, 1)
    assert not found.is_clean


def test_messages_that_change_places_are_out_of_order() -> None:
    """Within a partition."""
    rows = list(ROWS)
    first, second = index("m0"), index("m2")
    rows[first], rows[second] = rows[second], rows[first]
    found = audit(SENT, rows, DELETED_AT, COMMITTED_AT)
    assert (found.lost, found.doubled, found.out_of_order) == (0, 0, 1)
    assert not found.is_clean


def test_a_later_message_in_an_earlier_micro_batch_is_out_of_order() -> None:
    """Sequence numbers of a group rise from micro-batch to micro-batch."""
    late = ROWS[index("m0")]
    rows = [row for row in ROWS if row is not late] + [replace(late, batch_id=2, place="2/0")]
    found = audit(SENT, rows, {**DELETED_AT, "m0": 130.0}, {**COMMITTED_AT, 2: 120.0})
    assert (found.lost, found.doubled, found.out_of_order) == (0, 0, 1)


def test_a_group_in_two_partitions_of_a_micro_batch_is_out_of_order() -> None:
    """Partitions have no order among themselves, however their numbers come out."""
    rows = list(ROWS)
    rows[index("m2")] = replace(rows[index("m2")], place="0/1")
    found = audit(SENT, rows, DELETED_AT, COMMITTED_AT)
    assert found.out_of_order == 1
    assert not found.is_clean


@pytest.mark.parametrize("commits", [{0: 99.0, 1: 110.5}, {0: 99.0}])
def test_a_message_deleted_before_its_commit_is_found(commits: dict[int, float]) -> None:
    """By less than a second, or for want of any commit."""
    found = audit(SENT, ROWS, DELETED_AT, commits)
    assert found.deleted_early == 4
    assert not found.is_clean


def test_a_message_that_is_never_deleted_is_found() -> None:
    """It would come again for as long as the queue keeps it."""
    deleted_at = {message_id: at for message_id, at in DELETED_AT.items() if message_id != "m3"}
    found = audit(SENT, ROWS, deleted_at, COMMITTED_AT)
    assert found.never_deleted == 1
    assert not found.is_clean


@pytest.mark.parametrize("changes", [{"message_id": "x"}, {"message_group_id": "g1"}, {"sequence_number": 70}])
def test_a_row_that_nobody_sent_is_found(changes: dict[str, str]) -> None:
    """Or one that says of its message what the queue did not say."""
    found = audit(SENT, [replace(ROWS[0], **changes), *ROWS[1:]], DELETED_AT, COMMITTED_AT)  # type: ignore[arg-type]
    assert (found.unknown, found.lost) == (1, 1)
    assert not found.is_clean


def test_where_tasks_delete_a_group_may_stand_in_several_places_and_be_deleted_early() -> None:
    """In order in each place, above the micro-batch before; but what never came was deleted early all the same."""
    split = [replace(row, place=f"{row.place}/{position % 2}") for position, row in enumerate(ROWS)]
    found = audit(SENT, split, dict.fromkeys(SENT, 0.0), COMMITTED_AT, tasks_delete=True)
    assert found.is_clean
    assert not audit(SENT, split, DELETED_AT, COMMITTED_AT).is_clean
    lost = audit(SENT, split[1:], dict.fromkeys(SENT, 0.0), COMMITTED_AT, tasks_delete=True)
    assert (lost.lost, lost.deleted_early) == (1, 1)


@pytest.mark.parametrize("is_later_batch", [False, True])
def test_where_tasks_delete_a_group_out_of_order_is_found(is_later_batch: bool) -> None:
    """Within a place, and from micro-batch to micro-batch."""
    rows = list(ROWS)
    if is_later_batch:
        place = index("m0")
        rows[place], other = replace(rows[place], batch_id=1, place="1/9"), rows[place]
        rows.sort(key=lambda row: row.batch_id)
        assert other not in rows
    else:
        first, second = index("m0"), index("m2")
        rows[first], rows[second] = rows[second], rows[first]
    found = audit(SENT, rows, DELETED_AT, COMMITTED_AT, tasks_delete=True)
    assert (found.lost, found.doubled, found.out_of_order) == (0, 0, 1)
