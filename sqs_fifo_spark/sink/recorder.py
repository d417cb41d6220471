"""Records the rows that SQS has confirmed, and disorder among them; then their groups go on."""

from __future__ import annotations

import logging
import math

from sqs_fifo_spark.errors import DisorderError
from sqs_fifo_spark.sink.crew import Crew
from sqs_fifo_spark.sink.deadlines import RECORDS, RowsUnderWay
from sqs_fifo_spark.sink.digests import mark_of
from sqs_fifo_spark.sink.outcome import ConfirmedRow
from sqs_fifo_spark.sink.outgoing import OutgoingRow
from sqs_fifo_spark.sink.progress import Progress
from sqs_fifo_spark.sink.record import Record

PUT_AGAIN_S = 10.0
"""Seconds for which a task that could not record its sent rows pauses, until it tries again."""

DISORDER = mark_of("disorder")
"""Recorded where rows of this micro-batch are out of order, or may be so."""
_REMEDY = "No more rows of this partition are sent. To send the rest, repeat the write with onDisorder set to log."

_log = logging.getLogger(__name__)


class Recorder:
    """Runs in the threads of the crew of one task."""

    def __init__(self, record: Record, progress: Progress, crew: Crew, *, fails_on_disorder: bool) -> None:
        self._record = record
        self._progress = progress
        self._crew = crew
        self._fails_on_disorder = fails_on_disorder

    def look_for_disorder(self) -> None:
        """Raise DisorderError, or note it, if an earlier attempt has recorded that rows are out of order."""
        if not self._record.is_sent(DISORDER):
            return
        if self._fails_on_disorder:
            raise DisorderError(
                f"an earlier attempt found rows of this micro-batch, or batch write, out of order. {_REMEDY}"
            )
        self._progress.follow_disorder()

    def confirm(self, sending: RowsUnderWay, confirmed: list[ConfirmedRow], unconfirmed: list[OutgoingRow]) -> None:
        """Record the rows of a call that SQS has confirmed; `unconfirmed` rows of it may be tried again.

        Raises DisorderError if rows are out of order and the task is to fail then; and the record's errors.
        """
        rows = [each.row for each in confirmed]
        with self._crew.changed:
            overtaking = self._progress.judge(confirmed)
            # Unconfirmed rows may come to stand behind these. Only this attempt can see it, once they are confirmed:
            # one that finds these in the record sends them alone, and their numbers show nothing.
            exposed = self._progress.lanes.rows_after(unconfirmed)
            if self._fails_on_disorder and not self._crew.stopped.is_set():  # else the task fails anyway
                overtaking |= exposed
            if overtaking and self._fails_on_disorder:
                self._crew.stopped.set()
            digests = self._progress.confirm(rows, unconfirmed)
            self._crew.wake()
        sending.puts = RECORDS
        failure = self._disorder(overtaking) if overtaking else None
        is_disorder = bool(overtaking or exposed)
        self._crew.reason = self._crew.reason or failure
        self._add([*digests, DISORDER] if is_disorder else digests, by=sending.limit, at_once=is_disorder)
        sending.puts = ""
        if failure is not None:
            # After the put, or the task may end for it with nothing tried. Before its rows are released, or `finish`
            # may find none left, and succeed.
            self._crew.fail(failure)
        with self._crew.changed:
            sending.note_recorded(rows)
            self._progress.lanes.release(rows)
            self._crew.wake()
        if failure is not None:
            raise failure

    def _disorder(self, overtaking: set[int]) -> DisorderError | None:
        """Log that these rows are out of order, by their numbers; return the task's error, or None if it goes on."""
        first, others = f"row {min(overtaking):,}", len(overtaking) - 1
        what = f"{first} and {others} others stand" if others else f"{first} stands"
        what = f"{what} before an earlier row of the same message group"
        _log.warning("rows are out of order: %s, or may do so", what)
        if not self._fails_on_disorder:
            return None
        return DisorderError(
            f"{what}, or may do so: SQS failed that one, or gave no answer, and accepted these. {_REMEDY}"
        )

    def _add(self, digests: list[bytes], *, by: float, at_once: bool) -> None:
        """Record sent rows. If that fails, so does the task; but until the task ends, others may send the rows again.

        So it is tried again and again, and once more when the caller stops.
        """
        try:
            self._record.add(digests, by=by, at_once=at_once)
        except BaseException as error:  # a panic of the store too
            self._crew.fail(error)
            if self._crew.failure is not error:
                _log.warning("rows that were sent are not recorded yet: %s", error)
            is_over = False
            while not is_over:
                is_over = self._crew.pause_until_over(PUT_AGAIN_S)
                try:
                    return self._record.add(digests, by=math.inf, at_once=at_once)
                except BaseException:  # most likely the same: the task fails with the first one
                    continue
            raise
