"""The places that keep refused rows: a folder or a bucket, or another FIFO queue.

    badRecordsPath/_place                                    names the place, so that an executor finds the driver's
    badRecordsPath/<query>/<batch>/<content>-<place>.json    one refused row: a JSON line
    badRecordsPath/batch-writes/<time>-<run>/...             the same for a batch write outside of a stream
    badRecordsPath/_found/<query>/<batch>/<content>-<place>-<run>   the row of a later run that has found it there

Equal rows, also those of several tasks, have places 1, 2, ... of their own. A row takes the first one that is free, or
that an earlier run of the micro-batch has filled and no other row of this run has found. A line says which row of which
run has made it. So there are as many objects as refused rows, in whatever partitions the micro-batch runs again.

With badRecordsQueueUrl the record has two marks of each row instead, and SQS knows the deduplication id for 5 minutes.
One mark says that such a row is refused, and stands before it is sent there: so it is in one queue alone, whatever a
later run thinks of it. The other one, and the id, say which task has sent it. So where the micro-batch runs again in
other partitions, the row may be sent there twice, but no other one is taken for it.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
import uuid
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sqs_fifo_spark.aws.calls import MAX_CALL_BYTES
from sqs_fifo_spark.errors import JournalCorruptError, JournalUnavailableError, RowError
from sqs_fifo_spark.journal.identity import JournalIdentity
from sqs_fifo_spark.journal.location import anchored
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.sink.digests import mark_of
from sqs_fifo_spark.sink.outgoing import OutgoingRow, RefusedRowError
from sqs_fifo_spark.sink.record import Record
from sqs_fifo_spark.sink.sink_queue import SinkQueue
from sqs_fifo_spark.sink.window import Window

PLACE = "_place"
"""Spark leaves files out that begin so when it reads the folder."""
ANY_REFUSED = mark_of("refused rows")
"""Recorded beside the first mark: only where it is must a task compare its rows with marks."""


@dataclass(frozen=True)
class RecordOrigin:
    """The write whose rows are refused, as their lines say it."""

    queue: str
    """The ARN of the option's queue; a row that names another one says so itself."""
    run: str
    """One execution of the write."""
    partition: int
    query: str | None
    batch: int | None


class Keeper(Protocol):
    """A place for refused rows. All methods may be called by several threads."""

    where: str

    @property
    def is_empty(self) -> bool:
        """True if earlier attempts have kept no row of this write."""

    def has(self, content: str, copy: int) -> bool:
        """Return whether an earlier attempt has kept this copy of a row."""

    def keep(self, row: OutgoingRow, content: str, line: bytes, stopped: threading.Event) -> bool:
        """Take one step to make the line of a row with this content durable, once; return whether it is.

        Equal rows are kept one after the other. Raises JournalUnavailableError, JournalCorruptError or RowError;
        UnsentError if a queue has throttled each try, StoppedError instead of another try once `stopped` is set, and
        the other errors of the queue's calls.
        """


class PathKeeper:
    """Keeps rows below `badRecordsPath`, each in an object of its own."""

    def __init__(self, store: Store, place: str | None, folder: str, origin: RecordOrigin) -> None:
        """List the rows that earlier attempts have kept; the driver got `place` from `find_place`."""
        self.where = f"'{store.location}'"
        if place is None or find_place(store, may_create=False) != place:
            raise JournalUnavailableError(
                f"this executor does not find the driver's badRecordsPath at {self.where}, so it sends nothing. It "
                "must be one place that driver and all executors share."
            )
        self._store = anchored(store, PLACE)
        self._folder = folder
        self._origin = origin
        self._before = frozenset(self._store.list(folder))
        self._owners: dict[str, _Owner] = {}
        self._next: dict[str, int] = {}
        """By content, the place that comes after the last one that was tried."""

    @property
    def is_empty(self) -> bool:
        return not self._before

    def has(self, content: str, copy: int) -> bool:
        own, place = _Owner(self._origin.run, self._origin.partition, copy), copy
        while self._object(name := f"{content}-{place}") in self._before:
            owner = self._owner(name)
            if owner == own or owner.run != own.run:
                return True
            place = max(place + 1, self._next.get(content, 1))  # own rows that come later stand behind those before
        return False

    def keep(self, row: OutgoingRow, content: str, line: bytes, stopped: threading.Event) -> bool:
        place = max(row.copy, self._next.get(content, 1))
        self._next[content] = place + 1
        name, own = f"{content}-{place}", _Owner(self._origin.run, self._origin.partition, row.copy)
        if self._store.put_if_absent(self._object(name), line):
            return True
        owner = self._owner(name)
        if owner.run == own.run:
            return owner == own
        mark, mine = f"_found/{self._folder}/{name}-{own.run}", f"{own.partition}-{own.copy}".encode()
        return self._store.put_if_absent(mark, mine) or self._store.get(mark) == mine

    def _object(self, name: str) -> str:
        return f"{self._folder}/{name}.json"

    def _owner(self, name: str) -> _Owner:
        """Return the row that has made the object. Raises JournalCorruptError if it does not say so."""
        if name not in self._owners:
            try:
                line = json.loads(self._store.get(self._object(name)) or b"")
                self._owners[name] = _Owner(line["run"], line["partition"], line["copy"])
            except (ValueError, TypeError, KeyError):
                raise JournalCorruptError(
                    f"'{self._object(name)}' below badRecordsPath, {self.where}, is not what the sink has put there. "
                    "Move it elsewhere."
                ) from None
        return self._owners[name]


class _Owner(NamedTuple):
    run: str
    partition: int
    copy: int


class QueueKeeper:
    """Sends rows to `badRecordsQueueUrl`, in their groups; the record, if there is one, knows them."""

    def __init__(self, queue: SinkQueue, url: str, record: Record, write: str) -> None:
        """`write` names the partition's part of the micro-batch, or batch write."""
        self.where = f"'{url}'"
        self._write = write
        self._queue = queue
        self._record = record
        self._marked: set[bytes] = set()
        """Marks that this task has put, of rows that are not there yet."""
        self._most = 0
        """Bytes that a message may have there, once it is known."""
        record.refresh([ANY_REFUSED])

    @property
    def is_empty(self) -> bool:
        return not self._record.is_sent(ANY_REFUSED)

    def has(self, content: str, copy: int) -> bool:
        return self._record.is_sent(mark_of(f"refused\n{content}-{copy}"))

    def keep(self, row: OutgoingRow, content: str, line: bytes, stopped: threading.Event) -> bool:
        mark = mark_of(f"refused\n{content}-{row.copy}")
        own_id = hashlib.sha256(f"{self._write}\n{content}-{row.copy}".encode()).hexdigest()
        if why := self._why_not(row, line):
            raise _not_kept(row, why)
        if mark not in self._marked and not self._record.is_sent(mark):
            # First: once the line is there each attempt refuses the row, also where nothing else is wrong with it.
            self._record.add([mark, ANY_REFUSED], by=math.inf)
            self._marked.add(mark)
        looked_at = self._record.refresh([ANY_REFUSED])
        if not self._record.is_sent(mark_of(own_id)):
            # Its group alone: the line says the queue.
            ids = {"MessageGroupId": row.group.rpartition("\n")[2], "MessageDeduplicationId": own_id}
            message = OutgoingRow(row.row, row.group, {"MessageBody": line.decode().rstrip(), **ids}, len(line), b"")
            try:
                deadline = Window(looked_at).last_try
                self._queue.send([message], lambda _, __: None, stopped=stopped, deadline=deadline)
            except RefusedRowError as refused:
                raise _not_kept(row, refused.reason) from None
            self._record.add([mark_of(own_id)], by=math.inf)
        self._marked.discard(mark)
        return True

    def _why_not(self, row: OutgoingRow, line: bytes) -> str:
        """Return why the other queue cannot take the line: else a mark would refuse a row that is nowhere."""
        if not row.group:
            return "it has no message group to be sent in"
        self._most = self._most or min(MAX_CALL_BYTES, self._queue.describe().max_message_bytes)
        if len(line) <= self._most:
            return ""
        return f"its line of {len(line):,} bytes is larger than the {self._most:,} of a message there"


def _not_kept(row: OutgoingRow, why: str) -> RowError:
    return RowError(
        f"row {row.row:,} cannot be sent ({row.refusal}), nor to 'badRecordsQueueUrl': {why}. Correct such rows, or "
        "filter them out before the sink."
    )


def find_place(store: Store, *, may_create: bool) -> str | None:
    """Return the id of the place at `badRecordsPath`, or None; the driver makes it. Raises as stores do."""
    data = store.get(PLACE)
    if data is None and may_create:
        JournalIdentity.check_store(store)
        store.put_if_absent(PLACE, uuid.uuid4().hex.encode())
        data = store.get(PLACE)
    return None if data is None else data.hex()
