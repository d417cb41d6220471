"""Lanes: which rows may be sent now, with which others, and after what."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from sqs_fifo_spark.sink.lanes import Lanes, Stride
from sqs_fifo_spark.sink.outgoing import OutgoingRow
from tests.unit.sending import STRICT, numbered, rows

BATCH = Stride(rows_in_call=10, max_unrecorded=10)


def holding(stride: Stride, given: Iterable[OutgoingRow], repeated: frozenset[bytes] = frozenset()) -> Lanes:
    lanes = Lanes(stride, repeated.__contains__)
    lanes.add(given)
    return lanes


def bodies(taken: Iterable[OutgoingRow]) -> list[str]:
    return [row.entry["MessageBody"] for row in taken]


def calls(lanes: Lanes) -> list[list[OutgoingRow]]:
    """Take rows as long as there are any, each call confirmed and recorded before the next one."""
    found = []
    while taken := lanes.take():
        found.append(taken)
        lanes.confirm(taken, [])
        lanes.release(taken)
    assert (len(lanes), lanes.rows, lanes.bytes, lanes.has_ready) == (0, 0, 0, False)
    return found


@pytest.mark.parametrize(
    ("stride", "given", "expected"),
    [
        (STRICT, [*numbered("a", 2), *numbered("b", 3)], [["a1", "b1"], ["a2", "b2"], ["b3"]]),
        (STRICT, [f"{group}1" for group in "abcdefghijkl"], [[f"{group}1" for group in "abcdefghij"], ["k1", "l1"]]),
        (BATCH, [*numbered("a", 7), *numbered("b", 4)], [[*numbered("a", 7), *numbered("b", 3)], ["b4"]]),
        (Stride(10, 4), numbered("a", 9), [numbered("a", 4), numbered("a", 8)[4:], ["a9"]]),
    ],
)
def test_a_call_has_ten_rows_of_groups_in_turn(stride: Stride, given: list[str], expected: list[list[str]]) -> None:
    """Of each as many as the stride allows; what one group leaves of a call is the next one's."""
    assert list(map(bodies, calls(holding(stride, rows(*given))))) == expected


def test_a_call_holds_no_more_than_the_record_may_lack() -> None:
    """With what it lacks already."""
    lanes = holding(Stride(rows_in_call=3, max_unrecorded=4), rows(*numbered("a", 9)))
    lanes.confirm(lanes.take(), [])
    assert bodies(lanes.take()) == ["a4"]


def test_a_row_that_sqs_failed_is_recorded_before_its_group_goes_on() -> None:
    """The record may have those behind it by then: its copy, if it becomes one, stands no further behind."""
    lanes = holding(BATCH, rows(*numbered("a", 25)))
    call = lanes.take()
    others = [*call[:2], *call[3:]]
    lanes.confirm(others, [call[2]])
    lanes.confirm([call[2]], [])
    lanes.release(others)
    assert not lanes.has_ready
    lanes.release([call[2]])
    assert bodies(lanes.take()) == numbered("a", 25)[10:20]


@pytest.mark.parametrize(("rows_in_call", "sent"), [(10, [7]), (7, [7, 11, 12, 13, 14])])
def test_a_row_that_the_record_lacks_before_others_is_recorded_before_its_group_goes_on(
    rows_in_call: int, sent: list[int]
) -> None:
    """Also if the record is found to have the others only when it is sent."""
    lanes = holding(Stride(rows_in_call, max_unrecorded=10), rows(*numbered("a", 30)))
    missing: list[OutgoingRow] = []
    while call := lanes.take():
        is_known = [row.row != 7 and row.row <= 10 for row in call]
        lanes.note_gaps(call, is_known)
        known = [row for row, is_sent in zip(call, is_known, strict=True) if is_sent]
        lanes.let_follow(known)
        lanes.release(known)
        missing += (others := [row for row in call if row not in known])
        lanes.confirm(others, [])
    assert [row.row for row in missing] == sent
    lanes.release(missing[1:])
    assert not lanes.has_ready
    lanes.release(missing[:1])
    assert lanes.has_ready
