"""Sends a partition's rows: each group in order, several groups and several calls at once.

A group has rows in at most one call under way: one, or with `order=batch` up to ten. What follows is sent when SQS has
confirmed all of these, and when the record, if there is one, lacks less than `maxUnrecordedRows` of the group; or once
it has all that was sent, where it had, or was about to have, a later row without an earlier one. So no answer, refusal
or crash can put a row before one of an earlier call of its group.

A call may hang before it reaches SQS, and so may the record. Then the task fails without waiting for them: SQS forgets
what it has taken, and the task's next attempt must come before.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sqs_fifo_spark.aws.calls import MAX_CALL_BYTES, MAX_ENTRIES
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import DisorderError, JournalUnavailableError, SqsFifoError, TransientQueueError
from sqs_fifo_spark.options import SinkOptions
from sqs_fifo_spark.sink.bad_records import BadRecords
from sqs_fifo_spark.sink.digests import SHARD_WIDTH, WIDTH
from sqs_fifo_spark.sink.judge import Judge, Numbers
from sqs_fifo_spark.sink.message import Outgoing
from sqs_fifo_spark.sink.outcome import Confirmed
from sqs_fifo_spark.sink.queue import SinkQueue, StoppedError, UnsentError
from sqs_fifo_spark.sink.record import Record
from sqs_fifo_spark.sink.window import CONFIRM_BUDGET_S, SEND_BUDGET_S, Window

PUT_AGAIN_S = 10.0
"""How long a task pauses that could not record what it has sent, until it tries again."""
GRACE_S = 1.0
"""How long what is too late is waited for all the same: if the whole process stood still, it ends now."""
CALLS = 8
"""Calls that one task has under way at once."""
MAX_BUFFERED_BYTES = 64 << 20
"""How much memory what waits to be sent takes: much, so that ten groups are ready also where rows of one cluster."""

DISORDER = b"\xff" * SHARD_WIDTH + hashlib.sha256(b"disorder").digest()[: WIDTH - SHARD_WIDTH]
"""Recorded like a row's digest, which it cannot be: rows of this micro-batch are out of order, or may be so."""
_REMEDY = "No more rows of this partition are sent. To send the rest, repeat the write with onDisorder set to log."

_RECORDS = "the record of what was sent is held up: the journal does not have it {:g} s after the look before."
_KEEPS = "a refused row is held up: it is not kept {:g} s after that began."

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pace:
    """How far a group's rows may go ahead of what SQS and the record have confirmed."""

    rows_in_call: int = 1
    max_unrecorded: int = 1
    fails_on_disorder: bool = False


def pace_of(options: SinkOptions) -> Pace:
    rows_in_call = MAX_ENTRIES if options.order == "batch" else 1
    return Pace(rows_in_call, options.max_unrecorded_rows, options.on_disorder == "fail")


@dataclass
class _Group:
    """A group that has rows here: waiting, under way, or confirmed and not recorded."""

    waiting: deque[Outgoing] = field(default_factory=deque)
    is_ready: bool = False
    under_way: int = 0
    """Rows that are taken to be sent, and that SQS has not confirmed."""
    unrecorded: list[Outgoing] = field(default_factory=list)
    """What it has confirmed and the record lacks."""
    has_gap: bool = False
    """Whether the record lacks one of its rows and has later ones, or is about to. No further call is made until it has
    all: a row that is sent again, when SQS has forgotten it, is not to stand still further behind its original."""
    numbers: Numbers = field(default_factory=Numbers)


@dataclass(eq=False)
class _Sending:
    """A thread's rows from before they are sent until they are recorded; for good, if that fails."""

    limit: float
    """A monotonic time. What is not over by then can only fail, without a journal, too: a call under way has not left
    this process in time. But an earlier try may have sent the rows, and SQS will forget them."""
    unrecorded: dict[int, str]
    """Which of its rows the record lacks, by identity, and their groups."""
    puts: str = ""
    """What to say if a put that it makes is held up. Only its own thread writes this."""


class Sender:
    """Sends the rows of one partition from threads of its own, from the first `add` until `finish` or `stop`.

    Runs on an executor. One thread adds rows. Once `finish` or `stop` has returned, no call begins, and one that has
    begun is not completed: nothing but what is on its way already reaches SQS.
    """

    def __init__(
        self,
        queue: SinkQueue,
        record: Record,
        clock: Clock,
        pace: Pace,
        *,
        may_be_older: bool = False,
        bad_records: BadRecords | None = None,
        on_group: Callable[[str], None] = lambda group: None,
        on_message: Callable[[str], None] = lambda message_id: None,
    ) -> None:
        """`may_be_older` is whether an earlier attempt of the task may have sent rows.

        Refused rows are kept by `bad_records`; without them, the first one fails the task. `on_group` gets the group of
        each row that is sent, or was before, `on_message` the message id of each sent row that does not count as equal:
        each in one thread at a time.
        """
        self._queue = queue
        self._record = record
        self._clock = clock
        self._pace = pace
        self._may_be_older = may_be_older
        self._bad_records = bad_records
        self._on_group = on_group
        self._on_message = on_message
        self._stopped = threading.Event()
        # `_changed` guards all that follows; no call is made while it is held.
        self._changed = threading.Condition()
        self._groups: dict[str, _Group] = {}
        self._ready: deque[_Group] = deque()  # those whose next rows may be sent
        self._rows = 0
        self._bytes = 0
        self._judge = Judge()
        self._failure: BaseException | None = None
        self._is_over = False  # once the caller stops: it may wait for its next rows long after a failure
        self._sending: set[_Sending] = set()
        self._ended = 0  # threads
        self.calls = 0
        """How many turns of the queue's pace it has used; what is tried again needs none."""
        self._warned_at = -math.inf  # of throttling
        # These two are the caller's.
        self._threads: list[threading.Thread] = []
        self._is_abandoned = False
        self.sent = 0
        """Rows that SQS has confirmed."""
        self.known = 0
        """Rows that the record had before."""
        self.refused = 0
        """Rows that are kept elsewhere."""
        self.equal = 0
        """Rows that are not sent, as an earlier one of this attempt is equal; and sent ones that SQS took for equal to
        others, as far as the task can tell."""
        self.overtaking = 0
        """How many of the sent rows stand, or may stand, before an earlier one of their group."""
        self.follows_disorder = False
        """Whether an earlier attempt has recorded that rows are out of order."""

    def __repr__(self) -> str:
        # Without the lock: the caller may hold it, and each number is read in one step.
        failure = None if self._failure is None else type(self._failure).__name__
        return (
            f"<Sender sent={self.sent} known={self.known} equal={self.equal} waiting={self._rows} "
            f"bytes={self._bytes} groups={len(self._groups)} is_stopped={self._stopped.is_set()} failure={failure}>"
        )

    def add(self, rows: Iterable[Outgoing]) -> None:
        """Take rows, in order; return when there is room for more. Raises what any row or call has met.

        Raises TransientQueueError or JournalUnavailableError when a call, or the record of what it has sent, is held
        up: a few moments of GRACE_S after the time at which it can only fail.
        """
        if self._bad_records is not None:
            rows = list(map(self._bad_records.numbered, rows))
        with self._changed:
            for row in rows:
                group = self._groups.setdefault(row.group, _Group())
                group.waiting.append(row)
                self._rows += 1
                self._bytes += row.held
                self._offer_locked(group)
                self._drop_if_done_locked(row.group)
            self._changed.notify_all()
        self._start()
        self._wait_until(self._may_go_on_locked)

    def finish(self) -> None:
        """Return when all rows are sent and recorded. Raises what any row or call has met, as `add` does."""
        self._wait_until(lambda: not self._groups)
        with self._changed:
            self._sending.clear()  # all is recorded: the threads end when they end
        self.stop()
        self._record.close()

    def stop(self) -> None:
        """Send no more. A call under way is waited for, and not tried again; what it sent is recorded.

        If what any call has sent is not recorded in time, the threads that are left are abandoned.
        """
        if self._is_abandoned:
            return
        with self._changed:
            self._is_over = True
            self._stopped.set()
            self._changed.notify_all()
            self._is_abandoned = not self._wait_locked(lambda: self._ended == len(self._threads))
        if self._is_abandoned:
            # They cannot send: `_stopped` is asked before each call, and once more before each piece of it leaves. A
            # put of theirs may still come, and records rows that SQS has confirmed: that is true at any time, and
            # whoever reads it in time sends them no more.
            return
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        while len(self._threads) < CALLS:
            name = f"sqs-fifo-send-{len(self._threads)}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _may_go_on_locked(self) -> bool:
        """Return whether there is room; if something is late, or has failed, whoever adds waits for it all the same."""
        has_room = self._bytes <= MAX_BUFFERED_BYTES
        return has_room and not self._stopped.is_set() and self._clock.monotonic() < self._limit_locked()

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            if not self._wait_locked(lambda: condition() or self._failure is not None):
                self._failure = self._held_up_locked()
            failure = self._failure
        if failure is not None:
            self.stop()  # so that `sent` is final, unless threads are abandoned
            raise failure

    def _wait_locked(self, condition: Callable[[], bool]) -> bool:
        """Return True once `condition` holds, or False if something is held up: sent, and not recorded in time."""
        while not condition():
            limit, now = self._limit_locked(), self._clock.monotonic()
            if now < limit:
                self._clock.wait_on(self._changed, limit - now)
                continue
            until = now + GRACE_S
            while (is_late := self._limit_locked() <= limit) and now < until and not condition():
                self._clock.wait_on(self._changed, until - now)
                now = self._clock.monotonic()
            if is_late and not condition():
                return False
        return True

    def _limit_locked(self) -> float:
        return min((each.limit for each in self._sending), default=math.inf)

    def _held_up_locked(self) -> SqsFifoError:
        budget_s, now = SEND_BUDGET_S + CONFIRM_BUDGET_S, self._clock.monotonic()
        end = "So that Spark tries the task again while SQS knows what it has taken, this attempt ends without it."
        if puts := next((each.puts for each in self._sending if each.puts and each.limit <= now), ""):
            return JournalUnavailableError(f"{puts.format(budget_s)} {end}")
        return TransientQueueError(
            f"a call to SQS is held up: {budget_s:g} s after the time to try its rows began it is not over, and can "
            f"send nothing any more. {end} Check the network, how names are looked up, and where "
            "credentials come from."
        )

    # In the threads

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                rows, is_turn = self._without_refused(self._take()), True
                while rows and not self._stopped.is_set():
                    rows, is_turn = self._look_and_send(rows, is_turn=is_turn), False
        except StoppedError:
            return  # whoever set it knows why
        except BaseException as error:  # whatever ends a thread, a panic of native code too: the caller waits for it
            self._fail(error)
        finally:
            with self._changed:
                self._ended += 1
                self._changed.notify_all()

    def _look_and_send(self, rows: list[Outgoing], *, is_turn: bool) -> list[Outgoing]:
        """Send what the record lacks of these rows; return those of them that SQS has throttled all the time."""
        window = self._look(rows)
        self._look_for_disorder()
        # Asked once of each row: what another thread reads of the record meanwhile changes the answer.
        is_known = [self._record.is_sent(row.digest) for row in rows]
        known = [row for row, is_sent in zip(rows, is_known, strict=True) if is_sent]
        missing = [row for row, is_sent in zip(rows, is_known, strict=True) if not is_sent]
        with self._changed:
            self.known += len(known)
            self.calls += is_turn and bool(missing)
            self._note_gaps_locked(rows, is_known)
            self._note_locked(known)
            self._let_follow_locked(known)
            self._release_locked(known)
        unsent = self._send(missing, window) if missing else []
        if missing and not self._stopped.is_set():
            self._record.tidy()
        return unsent

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._stopped.set()
            self._changed.notify_all()

    def _take(self) -> list[Outgoing]:
        """Return the next rows of up to ten groups, as many as one call holds, or none if others have taken them."""
        self._wait_for_rows()
        self._queue.pace.wait(stopped=self._stopped)  # before rows are chosen: those that come meanwhile go with them
        with self._changed:
            rows: list[Outgoing] = []
            size = 0
            while self._ready and len(rows) < MAX_ENTRIES and not self._stopped.is_set():
                group = self._ready[0]
                most = min(self._pace.rows_in_call, self._pace.max_unrecorded - len(group.unrecorded))
                taken = 0
                while taken < most and group.waiting and len(rows) < MAX_ENTRIES:
                    if taken and self._is_repeated_locked(group.waiting[0], rows):
                        break  # the next one is not taken before it is known what became of these
                    size += group.waiting[0].size
                    if size > MAX_CALL_BYTES:
                        break
                    rows.append(group.waiting.popleft())
                    taken += 1
                if taken:
                    self._ready.popleft()
                    group.is_ready = False
                    group.under_way = taken
                    group.numbers.begin_call()
                if size > MAX_CALL_BYTES:
                    break
            return rows

    def _is_repeated_locked(self, row: Outgoing, taken: list[Outgoing]) -> bool:
        return self._record.is_repeated(row.digest) or any(row.digest == each.digest for each in taken)

    def _wait_for_rows(self) -> None:
        with self._changed:
            while not self._ready and not self._stopped.is_set():
                self._changed.wait()

    def _note_gaps_locked(self, rows: list[Outgoing], is_known: list[bool]) -> None:
        """Take note of the groups of which the record has one of these rows, and lacks one before it."""
        lacking = {row.group for row in rows if self._groups[row.group].unrecorded}
        for row, is_sent in zip(rows, is_known, strict=True):
            if not is_sent:
                lacking.add(row.group)
            elif row.group in lacking:
                self._groups[row.group].has_gap = True

    def _offer_locked(self, group: _Group) -> None:
        """Let the group's next rows be taken, if they may be sent now; those that are equal to earlier ones never."""
        if not group.under_way and not group.is_ready:
            # What became of all rows before is known, so a row is not left out for one that is refused.
            while group.waiting and self._record.is_repeated(group.waiting[0].digest):
                row = group.waiting.popleft()
                self.equal += 1
                self._rows -= 1
                self._bytes -= row.held
        unrecorded = len(group.unrecorded)
        has_room = unrecorded < self._pace.max_unrecorded and not (group.has_gap and unrecorded)
        may_be = group.waiting and not group.under_way and has_room
        if may_be and not group.is_ready:
            group.is_ready = True
            self._ready.append(group)

    def _without_refused(self, rows: list[Outgoing]) -> list[Outgoing]:
        """Keep those elsewhere that are refused and not known; return the others."""
        refused = [] if self._bad_records is None else self._bad_records.refused(rows)
        if refused:
            self._record.refresh([DISORDER, *(row.digest for row in refused if row.digest)])
            self._look_for_disorder()
            refused = [row for row in refused if not (row.digest and self._record.is_sent(row.digest))]
            self._keep(refused)
        numbers = {row.row for row in refused}
        return [row for row in rows if row.row not in numbers]

    def _keep(self, refused: list[Outgoing]) -> None:
        """Keep them elsewhere; their groups go on after that."""
        for row in refused:
            self._keep_one(row)
        with self._changed:
            self.refused += len(refused)
            for row in refused:
                if row.group:
                    self._on_group(row.group)
            self._let_follow_locked(refused)
            self._release_locked(refused)

    def _keep_one(self, row: Outgoing) -> None:
        """Keep it elsewhere, each step in time, or as long as the queue there throttles it."""
        assert self._bad_records is not None
        while not self._stopped.is_set():
            keeping = _Sending(Window(self._clock.monotonic()).limit, {}, _KEEPS)
            with self._changed:
                self._sending.add(keeping)
                self._changed.notify_all()
            try:
                if self._bad_records.keep(row, self._stopped):
                    return
            except UnsentError:
                self._warn_of_throttling()
            finally:
                with self._changed:
                    self._sending.discard(keeping)
        raise StoppedError

    def _look(self, rows: list[Outgoing]) -> Window:
        """Look at the record until these rows can be tried before those ahead are overdue; return when they may be.

        Rows of their groups that the record lacks may be sent again then, and would stand behind these.
        """
        groups, digests = {row.group for row in rows}, [DISORDER, *(row.digest for row in rows)]
        while True:
            window = Window(self._record.refresh(digests))
            with self._changed:
                if not (has_to_wait := self._is_overdue_locked(groups, window.last_try)):
                    return window
                while has_to_wait and not self._stopped.is_set():
                    self._changed.wait()
                    has_to_wait = self._is_overdue_locked(groups, window.last_try)
                if self._stopped.is_set():
                    raise StoppedError

    def _is_overdue_locked(self, groups: set[str], by: float) -> bool:
        """Return whether the record may lack rows of these groups then, and others send them again."""
        return any(each.limit < by and not groups.isdisjoint(each.unrecorded.values()) for each in self._sending)

    def _look_for_disorder(self) -> None:
        """Raise DisorderError, or take a note, if an earlier attempt has recorded that rows are out of order."""
        if not self._record.is_sent(DISORDER):
            return
        if self._pace.fails_on_disorder:
            raise DisorderError(
                f"an earlier attempt found rows of this micro-batch, or batch write, out of order. {_REMEDY}"
            )
        self.follows_disorder = True

    def _send(self, rows: list[Outgoing], window: Window) -> list[Outgoing]:
        """Send these rows; return those of which no try had an effect, for all were throttled.

        Nobody need know of those by the window's limit, so they may have another one, after another look.
        """
        unsent: list[Outgoing] = []
        sending = _Sending(window.limit, {id(row): row.group for row in rows})
        with self._changed:
            self._sending.add(sending)
            self._changed.notify_all()  # whoever waits, waits no longer than that
        confirm = functools.partial(self._confirm, sending)
        try:
            refused = self._queue.send(
                rows,
                confirm,
                stopped=self._stopped,
                deadline=window.last_try,
                may_be_older=self._may_be_older,
                keeps_refused=self._bad_records is not None,
            )
        except StoppedError:
            raise
        except UnsentError as throttled:
            unsent, refused = throttled.rows, throttled.refused
        except BaseException as error:
            self._fail(error)
            raise
        with self._changed:
            self._sending.discard(sending)
        if refused:
            self._keep(refused)
        if unsent:
            self._warn_of_throttling()
        return unsent

    def _warn_of_throttling(self) -> None:
        with self._changed:
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

    def _confirm(self, sending: _Sending, confirmed: list[Confirmed], pending: list[Outgoing]) -> None:
        with self._changed:
            overtaking = self._judge_locked(confirmed)
            # What is pending may come to stand behind these. Only this attempt can tell, once that is confirmed: one
            # that finds these in the record sends it alone, and its number tells nothing.
            exposed = {other for row in pending for other in self._groups[row.group].numbers.rows_after(row.row)}
            if self._pace.fails_on_disorder and not self._stopped.is_set():  # else it fails for something else
                overtaking |= exposed
            if overtaking and self._pace.fails_on_disorder:
                self._stopped.set()
            rows = [each.row for each in confirmed]
            for row in rows:
                self._groups[row.group].unrecorded.append(row)
            for row in pending:
                if any(other.group == row.group and other.row > row.row for other in rows):
                    self._groups[row.group].has_gap = True
            self._note_locked(rows)
            self._let_follow_locked(rows)
            # With what others are about to record of these groups, so that the record never lacks an earlier row.
            groups = dict.fromkeys(row.group for row in rows)  # a set has another order in each process
            digests = [row.digest for name in groups for row in self._groups[name].unrecorded]
        failure = None
        if overtaking:
            first, others = f"row {min(overtaking):,}", len(overtaking) - 1
            what = f"{first} and {others} others stand" if others else f"{first} stands"
            what = f"{what} before an earlier row of the same message group"
            _log.warning("rows are out of order: %s, or may do so", what)
            if self._pace.fails_on_disorder:
                failure = DisorderError(
                    f"{what}, or may do so: SQS failed that one, or gave no answer, and accepted these. {_REMEDY}"
                )
                self._fail(failure)
        is_disorder = bool(overtaking or exposed)
        sending.puts = _RECORDS
        self._add_to_record([*digests, DISORDER] if is_disorder else digests, by=sending.limit, at_once=is_disorder)
        sending.puts = ""
        with self._changed:
            for row in rows:
                del sending.unrecorded[id(row)]
            self._release_locked(rows)
        if failure is not None:
            raise failure

    def _add_to_record(self, digests: list[bytes], *, by: float, at_once: bool) -> None:
        """Record what is sent. If that fails, so does the task; but until it can end, others may send the rows again.

        So it is tried again and again, and once more when the caller stops.
        """
        try:
            self._record.add(digests, by=by, at_once=at_once)
        except BaseException as error:  # a panic of the store too
            self._fail(error)
            is_over = False
            while not is_over:
                is_over = self._pause_until_over()
                try:
                    return self._record.add(digests, by=math.inf, at_once=at_once)
                except BaseException:  # most likely the same: the task fails with the first one
                    continue
            raise

    def _pause_until_over(self) -> bool:
        """Pause before the next try, and return whether the caller has stopped."""
        until = self._clock.monotonic() + PUT_AGAIN_S
        with self._changed:
            while not self._is_over and (left_s := until - self._clock.monotonic()) > 0:
                self._clock.wait_on(self._changed, left_s)
            return self._is_over

    def _judge_locked(self, confirmed: list[Confirmed]) -> set[int]:
        """Count them, and which of them are equal to others; return which rows show now as overtaking."""
        overtaking: set[int] = set()
        for each in confirmed:
            is_equal, found = self._judge.is_equal(each, self._groups[each.row.group].numbers)
            self.equal += is_equal
            if each.message_id is not None and not is_equal:
                self._on_message(each.message_id)
            overtaking |= found
        self.sent += len(confirmed)
        self.overtaking += len(overtaking)
        return overtaking

    def _note_locked(self, rows: list[Outgoing]) -> None:
        """SQS has these rows: later ones that are equal are left out."""
        for row in rows:
            self._record.note(row.digest)
            self._on_group(row.group)

    def _let_follow_locked(self, rows: list[Outgoing]) -> None:
        """SQS has these rows: those that follow in their groups may be sent, so far as the record has kept up."""
        for row in rows:
            group = self._groups[row.group]
            group.under_way -= 1
            self._offer_locked(group)
        if self._ready:
            self._changed.notify_all()

    def _release_locked(self, rows: list[Outgoing]) -> None:
        """The record has these rows: so many more of their groups may be sent."""
        done = set(map(id, rows))
        for row in rows:
            self._rows -= 1
            self._bytes -= row.held
        for name in dict.fromkeys(row.group for row in rows):
            group = self._groups[name]
            group.unrecorded = [row for row in group.unrecorded if id(row) not in done]
            group.has_gap = group.has_gap and bool(group.unrecorded or group.under_way)
            self._offer_locked(group)
            self._drop_if_done_locked(name)
        self._changed.notify_all()

    def _drop_if_done_locked(self, name: str) -> None:
        group = self._groups[name]
        if not group.waiting and not group.under_way and not group.unrecorded:
            del self._groups[name]
