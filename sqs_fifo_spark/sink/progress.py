"""Moves a partition's rows on to their ends, and counts these. Pure; the user holds one lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from sqs_fifo_spark.sink.judge import Judge
from sqs_fifo_spark.sink.lanes import Lanes, Stride
from sqs_fifo_spark.sink.outcome import ConfirmedRow
from sqs_fifo_spark.sink.outgoing import OutgoingRow
from sqs_fifo_spark.sink.record import Record


@dataclass
class RowCounts:
    """Counts of a partition's rows, by the end to which they have come."""

    sent: int = 0
    """Rows that SQS has confirmed."""
    known: int = 0
    """Rows that the record had before."""
    refused: int = 0
    """Rows that are kept elsewhere."""
    equal: int = 0
    """Rows not sent, as an earlier one is equal; and sent ones that SQS was seen to take for equal to others."""
    overtaking: int = 0
    """Sent rows that stand, or may stand, before an earlier one of their group."""
    follows_disorder: bool = False
    """True if an earlier attempt has recorded that rows are out of order."""
    calls: int = 0
    """Turns of the queue's pace that were used; another try needs none."""


class Progress:
    """The rows of one partition, from the first to the last."""

    def __init__(self, stride: Stride, record: Record, on_messages: Callable[[Iterable[str]], None]) -> None:
        """`on_messages` gets the message ids of sent rows that do not count as equal, in one thread at a time."""
        self.lanes = Lanes(stride, record.is_repeated)
        self._counts = RowCounts()
        self._judge = Judge()
        self._record = record
        self._on_messages = on_messages

    @property
    def counts(self) -> RowCounts:
        return replace(self._counts, equal=self._counts.equal + self.lanes.equal)

    def follow_disorder(self) -> None:
        self._counts.follows_disorder = True

    def begin(self, rows: list[OutgoingRow], is_known: list[bool], *, is_turn: bool) -> list[OutgoingRow]:
        """Return those of the rows that the record does not know; the others have come to their end."""
        known = [row for row, is_sent in zip(rows, is_known, strict=True) if is_sent]
        missing = [row for row, is_sent in zip(rows, is_known, strict=True) if not is_sent]
        self._counts.known += len(known)
        # Another attempt has sent them since this one tried to: they may stand behind later rows of that call.
        self._counts.overtaking += sum(self.lanes[row.group].numbers.note_late(row.row) for row in known)
        self._counts.calls += is_turn and bool(missing)
        self.lanes.note_gaps(rows, is_known)
        self._note(known)
        self.lanes.let_follow(known)
        self.lanes.release(known)
        return missing

    def judge(self, confirmed: list[ConfirmedRow]) -> set[int]:
        """Count them, and those equal to others; return the rows that show now as overtaking."""
        overtaking: set[int] = set()
        message_ids = []
        for each in confirmed:
            is_equal, found = self._judge.is_equal(each, self.lanes[each.row.group].numbers)
            self._counts.equal += is_equal
            if each.message_id is not None and not is_equal:
                message_ids.append(each.message_id)
            overtaking |= found
        self._on_messages(message_ids)
        self._counts.sent += len(confirmed)
        self._counts.overtaking += len(overtaking)
        return overtaking

    def confirm(self, rows: list[OutgoingRow], unconfirmed: list[OutgoingRow]) -> list[bytes]:
        """Note that SQS has these rows, as `Lanes.confirm` does; return the digests to record."""
        self._note(rows)
        return self.lanes.confirm(rows, unconfirmed)

    def refuse(self, rows: list[OutgoingRow]) -> None:
        """Note that these rows are kept elsewhere."""
        self._counts.refused += len(rows)
        self.lanes.let_follow(rows)
        self.lanes.release(rows)

    def _note(self, rows: list[OutgoingRow]) -> None:
        """Have later rows that are equal left out: SQS has these."""
        self._record.note([row.digest for row in rows])
