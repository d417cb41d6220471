"""Deadlines: by when a task fails, and with what."""

from __future__ import annotations

import math

import pytest

from sqs_fifo_spark.errors import JournalUnavailableError, SqsFifoError, TransientQueueError
from sqs_fifo_spark.sink.deadlines import KEEPS, RECORDS, Deadlines, Pending
from tests.unit.sending import rows


def under_way(*pending: Pending) -> Deadlines:
    deadlines = Deadlines()
    for each in pending:
        deadlines.add(each)
    return deadlines


def test_the_limit_is_that_of_what_began_first_and_is_not_over() -> None:
    """Of nothing there is none."""
    first, second = Pending(5.0), Pending(7.0)
    deadlines = under_way(second, first)
    assert deadlines.limit() == 5
    deadlines.discard(first)
    deadlines.discard(first)
    assert deadlines.limit() == 7
    deadlines.clear()
    assert deadlines.limit() == math.inf


def test_groups_are_overdue_whose_rows_the_record_lacks_after_the_limit() -> None:
    """Those of other groups are not, nor what is recorded."""
    first, second = rows("a1", "b1")
    pending = Pending(5.0, {id(row): row.group for row in (first, second)})
    deadlines = under_way(pending)
    assert not deadlines.is_overdue({"a"}, 5.0)
    assert deadlines.is_overdue({"a", "x"}, 5.1)
    assert not deadlines.is_overdue({"x"}, 5.1)
    pending.note_recorded([first])
    assert (deadlines.is_overdue({"a"}, 5.1), deadlines.is_overdue({"b"}, 5.1)) == (False, True)


@pytest.mark.parametrize(
    ("late", "kind", "said"),
    [
        (Pending(5.0), TransientQueueError, "a call to SQS is held up: 175 s after the time to try its rows began"),
        (Pending(5.0, puts=RECORDS), JournalUnavailableError, "the record of what was sent is held up: the journal"),
        (Pending(5.0, puts=KEEPS), JournalUnavailableError, "a refused row is held up: it is not kept 175 s after"),
        (Pending(5.1, puts=KEEPS), TransientQueueError, "a call to SQS is held up"),
    ],
)
def test_what_is_held_up_is_told_in_one_line(late: Pending, kind: type[SqsFifoError], said: str) -> None:
    """By what is late by now: a put that may still come is not blamed."""
    error = under_way(Pending(5.0), late).held_up(now=5.0)
    assert type(error) is kind
    assert str(error).startswith(said)
    assert "this attempt ends without it." in str(error)
    assert len(str(error).splitlines()) == 1
