"""Holds the rows of a partition on their way to SQS, by message group, and says which may be sent now.

A group has rows in at most one call under way: one, or with `order=batch` up to ten. Later ones are sent when SQS has
confirmed all of these, and when the record, if there is one, lacks less than `maxUnrecordedRows` of the group; or once
it has all sent rows, where it had, or was about to have, a later row without an earlier one. So no answer, refusal or
crash can put a row before one of an earlier call of its group. A row whose body goes to S3 waits until that is written,
and its group with it.

Pure: no call, no clock, no thread. The user holds one lock.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from sqs_fifo_spark.aws.calls import MAX_CALL_BYTES, MAX_ENTRIES
from sqs_fifo_spark.options import SinkOptions
from sqs_fifo_spark.sink.judge import Numbers
from sqs_fifo_spark.sink.outgoing import OutgoingRow


@dataclass(frozen=True)
class Stride:
    """Limits the distance by which a group's rows go ahead of those that SQS and the record have confirmed."""

    rows_in_call: int = 1
    max_unrecorded: int = 1
    fails_on_disorder: bool = False

    @classmethod
    def of(cls, options: SinkOptions) -> Stride:
        rows_in_call = MAX_ENTRIES if options.order == "batch" else 1
        return cls(rows_in_call, options.max_unrecorded_rows, options.on_disorder == "fail")


@dataclass(slots=True)
class Lane:
    """A group that has rows here: waiting, under way, or confirmed and not recorded."""

    queue: str = ""
    waiting: deque[OutgoingRow] = field(default_factory=deque)
    is_ready: bool = False
    under_way: int = 0
    """Rows that are taken to be sent, and that SQS has not confirmed."""
    unrecorded: list[OutgoingRow] = field(default_factory=list)
    """Rows that it has confirmed and the record lacks."""
    has_gap: bool = False
    """True if the record lacks one of its rows and has later ones, or is about to.

    No further call is made until it has all: a row that is sent again, when SQS has forgotten it, is not to stand still
    further behind its original.
    """
    numbers: Numbers = field(default_factory=Numbers)


class Lanes:
    """A lane for each group that has rows."""

    def __init__(self, stride: Stride, is_repeated: Callable[[bytes], bool]) -> None:
        """`is_repeated` says of a row's digest whether an equal one of this attempt is sent."""
        self._stride = stride
        self._is_repeated = is_repeated
        self._lanes: dict[str, Lane] = {}
        self._ready: defaultdict[str, deque[Lane]] = defaultdict(deque)  # by queue: their next rows may be sent
        self._unwritten: dict[int, OutgoingRow] = {}  # by their numbers: their bodies are not on S3 yet
        self._to_write: deque[int] = deque()  # those of them of which nobody writes the body
        self.rows = 0
        """Number of rows here."""
        self.bytes = 0
        """Bytes of memory that they take."""
        self.equal = 0
        """Number of rows left out, as an earlier one is equal."""

    def __len__(self) -> int:
        return len(self._lanes)

    def __getitem__(self, group: str) -> Lane:
        return self._lanes[group]

    def add(self, rows: Iterable[OutgoingRow]) -> None:
        for row in rows:
            lane = self._lanes.get(row.group)
            if lane is None:
                lane = self._lanes[row.group] = Lane(row.queue)
            lane.waiting.append(row)
            if row.payload is not None:
                self._unwritten[row.row] = row
                self._to_write.append(row.row)
            self.rows += 1
            self.bytes += row.held_bytes
            self._offer(lane)
            self._drop_if_done(row.group)

    @property
    def has_ready(self) -> bool:
        """True if there is a row that may be sent now."""
        return bool(self._ready)

    @property
    def has_unwritten(self) -> bool:
        """True if there is a row whose body is to be written to S3, and nobody does so."""
        return bool(self._to_write)

    def take_unwritten(self) -> OutgoingRow | None:
        """Return the next one whose body is to be written, in the order in which they came, or None."""
        while self._to_write:
            row = self._unwritten.get(self._to_write.popleft())
            if row is not None:
                return row
        return None

    def note_written(self, row: OutgoingRow) -> None:
        """Let the row be sent in its turn: its body is on S3, or need not be there."""
        if self._unwritten.pop(row.row, None) is not None:  # else it was left out meanwhile
            self._offer(self._lanes[row.group])

    def take(self) -> list[OutgoingRow]:
        """Return the next rows of up to ten groups, as many as one call holds; they are under way from now on.

        They are of one queue; the others have their turns before it has its next one.
        """
        rows: list[OutgoingRow] = []
        size = 0
        queue = next(iter(self._ready), "")
        ready = self._ready.pop(queue, ())
        while ready and len(rows) < MAX_ENTRIES:
            lane = ready[0]
            most = min(self._stride.rows_in_call, self._stride.max_unrecorded - len(lane.unrecorded))
            count = 0
            while count < most and lane.waiting and len(rows) < MAX_ENTRIES:
                row = lane.waiting[0]
                if row.row in self._unwritten:
                    break
                if count and (self._is_repeated(row.digest) or any(row.digest == each.digest for each in rows)):
                    break  # the next one is not taken before the end of these is known
                size += row.size
                if size > MAX_CALL_BYTES:
                    break
                rows.append(lane.waiting.popleft())
                count += 1
            if count:
                ready.popleft()
                lane.is_ready = False
                lane.under_way = count
                lane.numbers.begin_call()
            if size > MAX_CALL_BYTES:
                break
        if ready:
            self._ready[queue] = ready
        return rows

    def note_gaps(self, rows: list[OutgoingRow], is_known: list[bool]) -> None:
        """Note the groups of which the record has one of these rows, and lacks one before it."""
        lacking = {row.group for row in rows if self._lanes[row.group].unrecorded}
        for row, is_sent in zip(rows, is_known, strict=True):
            if not is_sent:
                lacking.add(row.group)
            elif row.group in lacking:
                self._lanes[row.group].has_gap = True

    def rows_after(self, unconfirmed: Iterable[OutgoingRow]) -> set[int]:
        """Return the confirmed rows behind these in their groups' last calls, by their numbers."""
        return {other for row in unconfirmed for other in self._lanes[row.group].numbers.rows_after(row.row)}

    def confirm(self, rows: list[OutgoingRow], unconfirmed: Iterable[OutgoingRow]) -> list[bytes]:
        """Note that SQS has these rows, and not yet the `unconfirmed` ones of their call: others may follow.

        Return the digests to record: with those that others are about to record of these groups, so that the record
        never lacks an earlier row.
        """
        for row in rows:
            self._lanes[row.group].unrecorded.append(row)
        for row in unconfirmed:
            if any(other.group == row.group and other.row > row.row for other in rows):
                self._lanes[row.group].has_gap = True
        self.let_follow(rows)
        groups = dict.fromkeys(row.group for row in rows)  # a set has another order in each process
        return [row.digest for name in groups for row in self._lanes[name].unrecorded]

    def let_follow(self, rows: Iterable[OutgoingRow]) -> None:
        """Let the rows behind these be sent, so far as the record has kept up: these have come to their end."""
        for row in rows:
            lane = self._lanes[row.group]
            lane.under_way -= 1
            self._offer(lane)

    def release(self, rows: Collection[OutgoingRow]) -> None:
        """Let as many more rows of their groups be sent: the record has these."""
        done = set(map(id, rows))
        for row in rows:
            self.rows -= 1
            self.bytes -= row.held_bytes
        for name in dict.fromkeys(row.group for row in rows):
            lane = self._lanes[name]
            lane.unrecorded = [row for row in lane.unrecorded if id(row) not in done]
            lane.has_gap = lane.has_gap and bool(lane.unrecorded or lane.under_way)
            self._offer(lane)
            self._drop_if_done(name)

    def _offer(self, lane: Lane) -> None:
        """Let the group's next rows be taken, if they may be sent now; those that are equal to earlier ones never."""
        unrecorded = len(lane.unrecorded)
        has_room = unrecorded < self._stride.max_unrecorded and not (lane.has_gap and unrecorded)
        if lane.under_way or lane.is_ready or not has_room:
            return
        # The end of all rows before is known, so a row is not left out for one that is refused.
        while lane.waiting and self._is_repeated(lane.waiting[0].digest):
            row = lane.waiting.popleft()
            self._unwritten.pop(row.row, None)
            self.equal += 1
            self.rows -= 1
            self.bytes -= row.held_bytes
        if lane.waiting and lane.waiting[0].row not in self._unwritten:
            lane.is_ready = True
            self._ready[lane.queue].append(lane)

    def _drop_if_done(self, name: str) -> None:
        lane = self._lanes[name]
        if not lane.waiting and not lane.under_way and not lane.unrecorded:
            del self._lanes[name]
