"""Lanes: which rows may be sent now, with which others, and after what."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from sqs_fifo_spark.aws.calls import MAX_CALL_BYTES
from sqs_fifo_spark.sink.lanes import Lanes, Stride
from sqs_fifo_spark.sink.message import Outgoing
from tests.unit.sending import STRICT, digests_of, numbered, rows, rows_of

BATCH = Stride(rows_in_call=10, max_unrecorded=10)


def holding(stride: Stride, given: Iterable[Outgoing], repeated: frozenset[bytes] = frozenset()) -> Lanes:
    lanes = Lanes(stride, repeated.__contains__)
    lanes.add(given)
    return lanes


def bodies(taken: Iterable[Outgoing]) -> list[str]:
    return [row.entry["MessageBody"] for row in taken]


def calls(lanes: Lanes) -> list[list[Outgoing]]:
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


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([600_000, 600_000], 2),
        ([400_000, 400_000, 400_000], 2),
        ([524_288, 524_288], 1),
        ([524_288, 524_289], 2),
        ([104_857] * 9 + [104_863], 1),
        ([104_857] * 9 + [104_864], 2),
        ([1_048_576, 1], 2),
        ([1_048_576], 1),
    ],
)
@pytest.mark.parametrize("stride", [STRICT, BATCH])
def test_a_call_is_no_larger_than_sqs_takes(sizes: list[int], expected: int, stride: Stride) -> None:
    """To the byte, and no smaller than it need be: of several groups, or of one."""
    given = rows_of(
        (f"g{number * (stride is STRICT)}", f"{number}" + "x" * (size - 1)) for number, size in enumerate(sizes)
    )
    taken = calls(holding(stride, given))
    assert len(taken) == expected
    assert all(sum(row.size for row in call) <= MAX_CALL_BYTES for call in taken)
    assert [row.row for call in taken for row in call] == [row.row for row in given]


@pytest.mark.parametrize("most", [1, 3])
def test_a_group_goes_on_when_all_is_confirmed_and_the_record_lacks_few(most: int) -> None:
    """What is recorded has all that came before it: a put that fails leaves no gap."""
    lanes = holding(Stride(1, most), rows(*numbered("a", 5)))
    sent: list[Outgoing] = []
    for number in range(most):
        (row,) = lanes.take()
        assert not lanes.has_ready, "one is under way"
        sent.append(row)
        assert {*lanes.confirm([row], [])} == digests_of(*numbered("a", number + 1))
    assert not lanes.has_ready, "the record lacks as many as it may"
    lanes.release(sent[:1])
    assert bodies(lanes.take()) == [f"a{most + 1}"]


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
    missing: list[Outgoing] = []
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


def test_a_row_that_is_equal_to_a_sent_one_is_left_out() -> None:
    """Not before it is known what became of all rows before it."""
    lanes = holding(BATCH, rows("a1", "a2", "a1", "b1"), frozenset(digests_of("b1")))
    taken = lanes.take()
    assert bodies(taken) == ["a1", "a2"]
    assert (lanes.equal, lanes.rows) == (1, 3)
    lanes._is_repeated = frozenset(digests_of("a1")).__contains__
    lanes.confirm(taken, [])
    assert (lanes.equal, lanes.rows, lanes.has_ready) == (2, 2, False)
    lanes.release(taken)
    assert len(lanes) == 0
