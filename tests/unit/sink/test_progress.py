"""Progress: each row is counted by the end to which it comes, and its group is told."""

from __future__ import annotations

from sqs_fifo_spark.sink.lanes import Stride
from sqs_fifo_spark.sink.message import Outgoing
from sqs_fifo_spark.sink.outcome import Confirmed
from sqs_fifo_spark.sink.progress import Progress
from tests.unit.sending import Noted, rows


class Told:
    """A partition's progress, and the groups and messages that it has told."""

    def __init__(self, *bodies: str) -> None:
        self.groups: list[str] = []
        self.messages: list[str] = []
        self.progress = Progress(Stride(10, 10), Noted(), self.groups.append, self.messages.append)
        self.progress.lanes.add(rows(*bodies))
        self.taken = self.progress.lanes.take()

    def judge(self, row: Outgoing, number: int, message_id: str, *, may_be_older: bool = False) -> set[int]:
        return self.progress.judge([Confirmed(row, number, message_id, may_be_older)])


def test_rows_are_counted_by_their_ends() -> None:
    """A call counts as a turn of the queue's pace if it sends, and is the first one for its rows."""
    told = Told("a1", "b1", "c1")
    known, sent, refused = told.taken
    assert told.progress.begin([known], [True], is_turn=True) == []
    assert told.progress.begin([sent, refused], [False, False], is_turn=True) == [sent, refused]
    assert told.progress.begin([sent], [False], is_turn=False) == [sent]
    assert told.judge(sent, 1, "m1") == set()
    assert told.progress.confirm([sent], [refused]) == [sent.digest]
    told.progress.refuse([refused])
    told.progress.lanes.release([sent])
    counts = told.progress.counts
    assert (counts.known, counts.sent, counts.refused, counts.calls) == (1, 1, 1, 1)
    assert (told.groups, told.messages, len(told.progress.lanes)) == (["a", "b", "c"], ["m1"], 0)


def test_a_row_that_stands_before_an_earlier_one_is_told_once() -> None:
    """By the numbers, whichever of them is confirmed first."""
    told = Told("a1", "a2", "a3")
    first, second, third = told.taken
    assert told.judge(third, 10, "m3") == set()
    assert told.judge(second, 20, "m2", may_be_older=True) == {3}
    assert told.judge(first, 30, "m1", may_be_older=True) == {2}
    assert (told.progress.counts.overtaking, told.progress.counts.equal) == (2, 0)


def test_a_row_that_another_attempt_sends_after_this_one_could_not_may_stand_behind_later_ones() -> None:
    """It is known then, and has no number."""
    told = Told("a1", "a2", "a3", "b1")
    first, second, third, other = told.taken
    assert told.progress.begin(told.taken, [False] * 4, is_turn=True) == told.taken
    for row, number in ((second, 10), (third, 20), (other, 5)):
        assert told.judge(row, number, f"m{number}") == set()
    told.progress.confirm([second, third, other], [first])
    assert told.progress.begin([first], [True], is_turn=False) == []
    assert told.progress.counts.overtaking == 2


def test_a_row_with_another_ones_message_is_equal_and_its_message_is_told_once() -> None:
    """It overtakes nothing."""
    told = Told("a1", "b1")
    for row in told.taken:
        assert told.judge(row, 10, "m") == set()
    assert (told.progress.counts.equal, told.messages) == (1, ["m"])


def test_an_attempt_takes_note_of_earlier_disorder() -> None:
    progress = Told().progress
    assert not progress.counts.follows_disorder
    progress.follow_disorder()
    assert progress.counts.follows_disorder
