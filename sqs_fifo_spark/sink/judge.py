"""Judges confirmed rows by the sequence numbers and message ids that SQS gave: equal rows, and rows out of order.

Sequence numbers rise within a group, also in a replay, for which SQS gives those of the first time. So a row with no
higher number than one before it is equal to an older message. Or, if an earlier try of its call may have added it, it
has overtaken that one. Nothing here is locked: the caller sees to that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from sqs_fifo_spark.sink.outcome import ConfirmedRow

KEPT_IDS = 10_000
"""Ids of the last messages that are kept (up to twice as many), to see which rows SQS took for equal ones."""


@dataclass(slots=True)
class Numbers:
    """The sequence numbers that SQS has given for a group's rows, and the overtaking rows that they show."""

    last: int = -1
    """The highest one of earlier calls."""
    of_call: dict[int, int] = field(default_factory=dict)
    """Those of rows of the last call, by the rows' own numbers; without rows that are equal to others."""
    overtaking: set[int] = field(default_factory=set)
    """Rows of the last call that stand before an earlier one, or may do so."""

    def begin_call(self) -> None:
        if self.of_call:
            self.last = max(self.last, *self.of_call.values())
            self.of_call, self.overtaking = {}, set()

    def rows_after(self, row: int) -> set[int]:
        """Return the rows of the last call that stand behind this one in it, and have numbers."""
        return {other for other in self.of_call if other > row}

    def note_late(self, row: int) -> int:
        """Note that this row may stand behind those; return the number that may now be overtaking, and were not."""
        found = self.rows_after(row) - self.overtaking
        self.overtaking |= found
        return len(found)


class Judge:
    """Judges the rows of one task, one after the other."""

    def __init__(self) -> None:
        # Ids of messages, by which rows are known as equal; True if one was counted before its message had come.
        self._newer_ids: dict[str, bool] = {}
        self._older_ids: dict[str, bool] = {}

    def is_equal(self, each: ConfirmedRow, numbers: Numbers) -> tuple[bool, set[int]]:
        """Return whether SQS took the row for equal to another; and the rows that show now as overtaking one.

        Those may be rows that were confirmed before. None is returned twice.
        """
        row = each.row.row
        number = math.inf if each.sequence_number is None else each.sequence_number
        ahead, found = [], set()
        for other, known in numbers.of_call.items():
            if other < row:
                ahead.append(known)
            elif other > row and known < number < math.inf:
                found.add(other)
        before = max(ahead) if ahead else numbers.last
        # A number below all of earlier calls is an older message's.
        may_overtake = numbers.last < number <= before and each.may_be_older
        is_equal = self._is_equal(each, is_late=number <= max(before, numbers.last) and not may_overtake)
        if not is_equal:
            if may_overtake:
                found.add(row)
            if each.sequence_number is not None:
                numbers.of_call[row] = each.sequence_number
        found -= numbers.overtaking
        numbers.overtaking |= found
        return is_equal, found

    def _is_equal(self, each: ConfirmedRow, *, is_late: bool) -> bool:
        """Return whether SQS gave another row's id, or no higher number: a try without an answer gave no id."""
        if each.message_id is None:
            return is_late
        ahead = self._newer_ids.get(each.message_id, self._older_ids.get(each.message_id))
        # Of an equal row and the message itself, the row may be confirmed first: then the message does not count.
        self._newer_ids[each.message_id] = is_late and ahead is not False
        if len(self._newer_ids) >= KEPT_IDS:
            self._older_ids, self._newer_ids = self._newer_ids, {}
        return is_late or ahead is False
