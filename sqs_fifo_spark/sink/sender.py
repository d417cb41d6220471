"""Sends a partition's rows: each group in order, several groups and several calls at once.

Each thread of its `crew` does this again and again, until all rows have come to their end:

    take rows that may be sent          `lanes` knows them
    keep those that are refused         in `bad_records`
    look at the record                  but wait, if rows of their groups ahead of them may be sent again
    send the rows that it lacks         `queue` tries them again
    record the confirmed ones           `recorder`, for each answer; then later ones may be sent

`progress` counts the rows, and `deadlines` says when the task fails though a thread hangs.

Where large bodies go to S3, as many threads write them, in the order in which the rows come, unless the record has the
row; then the row may be taken. No window has begun by then, so a write may take its time. A task that ends waits for no
write under way: whenever that ends, it puts there what belongs there.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import PayloadError
from sqs_fifo_spark.payloads.pointer import Pointer
from sqs_fifo_spark.sink.bad_records import BadRecords
from sqs_fifo_spark.sink.crew import Crew
from sqs_fifo_spark.sink.deadlines import KEEPS, RowsUnderWay
from sqs_fifo_spark.sink.lanes import Stride
from sqs_fifo_spark.sink.outgoing import OutgoingRow
from sqs_fifo_spark.sink.progress import Progress, RowCounts
from sqs_fifo_spark.sink.record import Record
from sqs_fifo_spark.sink.recorder import DISORDER, Recorder
from sqs_fifo_spark.sink.sink_queue import SinkQueue, StoppedError, UnsentError
from sqs_fifo_spark.sink.window import SEND_BUDGET_S, Window

MAX_BUFFERED_BYTES = 64 << 20
"""Memory of waiting rows: much, so that ten groups are ready also where rows of one cluster."""

_log = logging.getLogger(__name__)


class Sender:
    """Sends the rows of one partition from threads of its own, from the first `add` until `finish` or `stop`.

    Runs on an executor. One thread adds rows. Once `finish` or `stop` has returned, no call begins, and one that has
    begun is not completed: only pieces already on their way reach SQS. A write to S3 under way goes on until it ends.
    """

    def __init__(
        self,
        queue: SinkQueue,
        record: Record,
        clock: Clock,
        stride: Stride,
        *,
        may_be_older: bool = False,
        bad_records: BadRecords | None = None,
        on_messages: Callable[[Iterable[str]], None] = lambda message_ids: None,
        write_payload: Callable[[Pointer, bytes], None] | None = None,
        others: Mapping[str, SinkQueue] = MappingProxyType({}),
    ) -> None:
        """`queue` is the option's, and has the pace of all calls; `others` are those that rows name, as rows come.

        `may_be_older` says that an earlier attempt of the task may have sent rows.

        `bad_records` keeps refused rows; without it, the first one fails the task. See `Progress` for `on_messages`.
        `write_payload` is `Buckets.write`, if rows may have payloads.
        """
        self._queue = queue
        self._others = others
        self._record = record
        self._clock = clock
        self._may_be_older = may_be_older
        self._bad_records = bad_records
        self._write_payload = write_payload
        self.progress = Progress(stride, record, on_messages)
        """Guarded by the crew's lock while that works."""
        self._crew = Crew(clock)
        self._recorder = Recorder(record, self.progress, self._crew, fails_on_disorder=stride.fails_on_disorder)
        self._warned_at = -math.inf  # of throttling; guarded in the same way

    def __repr__(self) -> str:
        # Without the lock: the caller may hold it, and each number is read in one step.
        counts, lanes, crew = self.progress.counts, self.progress.lanes, self._crew
        failure = None if crew.failure is None else type(crew.failure).__name__
        return (
            f"<Sender sent={counts.sent} known={counts.known} equal={counts.equal} waiting={lanes.rows} "
            f"bytes={lanes.bytes} groups={len(lanes)} is_stopped={crew.stopped.is_set()} failure={failure}>"
        )

    @property
    def counts(self) -> RowCounts:
        """Return the counts so far; they are final once `finish` or `stop` has returned, unless threads are left."""
        return self.progress.counts

    def add(self, rows: Iterable[OutgoingRow]) -> None:
        """Take rows, in order; return when there is room for more. Raises the error that any row or call has met.

        Raises TransientQueueError or JournalUnavailableError when a call, or the record of its rows, is held up: a few
        moments of GRACE_S after the time at which it can only fail.
        """
        if self._bad_records is not None:
            rows = list(map(self._bad_records.with_copy, rows))
        with self._crew.changed:
            self.progress.lanes.add(rows)
            self._crew.wake()
        self._crew.start(self._work, *([] if self._write_payload is None else [self._write_next]))
        self._wait_until(self._may_go_on_locked)

    def _may_go_on_locked(self) -> bool:
        """Return whether there is room; if something is late, or has failed, the adding thread waits all the same."""
        has_room = self.progress.lanes.bytes <= MAX_BUFFERED_BYTES
        return has_room and not self._crew.stopped.is_set() and not self._crew.is_late_locked()

    def finish(self) -> None:
        """Return when all rows are sent and recorded. Raises the error that any row or call has met, as `add` does."""
        self._wait_until(lambda: not self.progress.lanes)
        with self._crew.changed:
            self._crew.deadlines.clear()  # all is recorded: the threads end when they end
        self.stop()
        self._record.close()

    def stop(self) -> None:
        """Send no more. A call under way is waited for, and not tried again; its sent rows are recorded.

        A write to S3 under way is not waited for.

        If the rows of any call are not recorded in time, the threads that are left are abandoned.
        """
        self._crew.stop()

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        failure = self._crew.wait_until(condition)
        if failure is not None:
            self.stop()  # so that counts of sent rows are final, unless threads are abandoned
            raise failure

    # In the threads

    def _write_next(self) -> None:
        crew, lanes = self._crew, self.progress.lanes
        with crew.changed:
            crew.wait_for(lambda: lanes.has_unwritten)
            row = None if crew.stopped.is_set() else lanes.take_unwritten()
        if row is None:
            return
        self._record.refresh([row.digest])
        if not self._record.is_sent(row.digest):
            self._write(row)
        with crew.changed:
            lanes.note_written(row)
            crew.wake()

    def _write(self, row: OutgoingRow) -> None:
        assert self._write_payload is not None
        assert row.payload is not None
        pointer = row.payload.pointer
        try:
            with self._crew.away():
                self._write_payload(pointer, row.payload.data)
        except PayloadError as error:
            remedy = (
                f"Grant the permission 's3:PutObject' on the prefix, correct payloadLocation (bucket "
                f"'{pointer.bucket}'), or the credentials."
                if error.is_final
                else "Check the network, and the endpoint and the region of S3; then run it again."
            )
            raise PayloadError(
                f"cannot write the body of row {row.row:,} to '{pointer.url}': {error}. It is not sent. {remedy}",
                is_final=error.is_final,
            ) from None

    def _work(self) -> None:
        rows, is_turn = self._without_refused(self._take()), True
        while rows and not self._crew.stopped.is_set():
            rows, is_turn = self._look_and_send(rows, is_turn=is_turn), False

    def _take(self) -> list[OutgoingRow]:
        """Return the next rows of up to ten groups, as many as one call holds, or none if others have taken them."""
        crew, lanes = self._crew, self.progress.lanes
        with crew.changed:
            crew.wait_for(lambda: lanes.has_ready)
        self._queue.pace.wait(stopped=crew.stopped)  # before rows are chosen: those that come meanwhile go with them
        with crew.changed:
            return [] if crew.stopped.is_set() else lanes.take()

    def _without_refused(self, rows: list[OutgoingRow]) -> list[OutgoingRow]:
        """Keep those elsewhere that are refused and not known; return the others."""
        refused = [] if self._bad_records is None else self._bad_records.refused_rows(rows)
        if refused:
            self._record.refresh([DISORDER, *(row.digest for row in refused if row.digest)])
            self._recorder.look_for_disorder()
            refused = [row for row in refused if not (row.digest and self._record.is_sent(row.digest))]
            self._keep(refused)
        numbers = {row.row for row in refused}
        return [row for row in rows if row.row not in numbers]

    def _keep(self, refused: list[OutgoingRow]) -> None:
        """Keep them elsewhere; their groups go on after that."""
        for row in refused:
            self._keep_one(row)
        with self._crew.changed:
            self.progress.refuse(refused)
            self._crew.wake()

    def _keep_one(self, row: OutgoingRow) -> None:
        """Keep it elsewhere, each step in time, or as long as the queue there throttles it."""
        assert self._bad_records is not None
        while not self._crew.stopped.is_set():
            keeping = self._crew.begin(RowsUnderWay(Window(self._clock.monotonic()).limit, puts=KEEPS))
            try:
                if self._bad_records.keep(row, self._crew.stopped):
                    return
            except UnsentError:
                self._warn_of_throttling()
            finally:
                self._crew.end(keeping)
        raise StoppedError

    def _look_and_send(self, rows: list[OutgoingRow], *, is_turn: bool) -> list[OutgoingRow]:
        """Send the rows that the record lacks; return those of them that SQS has throttled all the time."""
        window = self._look(rows)
        self._recorder.look_for_disorder()
        # Asked once of each row: another thread's look meanwhile changes the answer.
        is_known = [self._record.is_sent(row.digest) for row in rows]
        with self._crew.changed:
            missing = self.progress.begin(rows, is_known, is_turn=is_turn)
            self._crew.wake()
        unsent = self._send(missing, window) if missing else []
        if missing and not self._crew.stopped.is_set():
            self._record.tidy()
        return unsent

    def _look(self, rows: list[OutgoingRow]) -> Window:
        """Look at the record until these rows can be tried before those ahead are overdue; return their window.

        Rows of their groups that the record lacks may be sent again then, and would stand behind these.
        """
        groups, digests = {row.group for row in rows}, [DISORDER, *(row.digest for row in rows)]
        crew = self._crew
        while True:
            window = Window(self._record.refresh(digests))
            is_clear = functools.partial(crew.deadlines.is_clear, groups, window.last_try)
            with crew.changed:
                if is_clear():
                    return window
                crew.wait_for(is_clear)
                if crew.stopped.is_set():
                    raise StoppedError

    def _send(self, rows: list[OutgoingRow], window: Window) -> list[OutgoingRow]:
        """Send these rows; return those of which no try had an effect, for all were throttled.

        Nobody need know of those by the window's limit, so they may have another one, after another look.
        """
        unsent: list[OutgoingRow] = []
        sending = self._crew.begin(RowsUnderWay(window.limit, {id(row): row.group for row in rows}))
        try:
            queue = rows[0].queue  # all are of one
            refused = (self._others[queue] if queue else self._queue).send(
                rows,
                functools.partial(self._recorder.confirm, sending),
                stopped=self._crew.stopped,
                deadline=window.last_try,
                may_be_older=self._may_be_older,
                keeps_refused=self._bad_records is not None,
            )
        except StoppedError:
            raise
        except UnsentError as throttled:
            unsent, refused = throttled.rows, throttled.refused
        except BaseException as error:
            self._crew.fail(error)
            raise
        self._crew.end(sending)
        if refused:
            self._keep(refused)
        if unsent:
            self._warn_of_throttling()
        return unsent

    def _warn_of_throttling(self) -> None:
        with self._crew.changed:
            now = self._clock.monotonic()
            is_news = now >= self._warned_at + SEND_BUDGET_S
            if is_news:
                self._warned_at = now
        if is_news:
            _log.warning(
                "SQS throttles this task: for %.0f s it has refused each call with some of its rows. They are not "
                "sent, and are tried on. Fewer tasks at once, or the option maxCallsPerSecond, leave the queue's quota "
                "to those that run; high throughput for the queue raises it.",
                SEND_BUDGET_S,
            )
