"""Where refused rows are kept: a folder or a bucket, or another FIFO queue.

    badRecordsPath/_place                              names the place, so that an executor finds the driver's
    badRecordsPath/<query>/<batch>/<digest>.json       one refused row: a JSON line
    badRecordsPath/batch-writes/<time>-<run>/...       the same for a batch write outside of a stream

With badRecordsQueueUrl the name is the deduplication id of a message, and the record has a mark of it, for SQS forgets
the id after 5 minutes.
"""

from __future__ import annotations

import hashlib
import math
import threading
import uuid
from typing import Protocol

from sqs_fifo_spark.aws.calls import CALL_BUDGET_S, MAX_CALL_BYTES
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import JournalUnavailableError, RowError
from sqs_fifo_spark.journal.identity import JournalIdentity
from sqs_fifo_spark.journal.location import anchored
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.sink.digests import SHARD_WIDTH, WIDTH
from sqs_fifo_spark.sink.message import Outgoing, RefusedRowError
from sqs_fifo_spark.sink.queue import SinkQueue
from sqs_fifo_spark.sink.record import Record

PLACE = "_place"
"""Spark leaves files out that begin so when it reads the folder."""


def _recorded(what: str) -> bytes:
    # Like a row's digest. All in one shard, so that a look for one finds the others.
    return b"\xff" * SHARD_WIDTH + hashlib.sha256(what.encode()).digest()[: WIDTH - SHARD_WIDTH]


ANY_REFUSED = _recorded("refused rows")
"""Recorded beside the first mark: only where it is must a task compare its rows with marks."""


class Keeper(Protocol):
    """Where refused rows are kept. All methods may be called by several threads."""

    where: str

    @property
    def is_empty(self) -> bool:
        """True if earlier attempts have kept no row of this write."""

    def has(self, name: str) -> bool:
        """Return whether an earlier attempt has kept the row of this name."""

    def keep(self, name: str, line: bytes, row: Outgoing) -> None:
        """Make the line durable, once. Raises JournalUnavailableError or RowError, and what the queue's calls raise."""


class PathKeeper:
    """Keeps rows below `badRecordsPath`, each in an object of its own."""

    def __init__(self, store: Store, place: str | None, folder: str) -> None:
        """Look at what earlier attempts have kept. `place` is what `find_place` has returned on the driver."""
        self.where = f"'{store.location}'"
        if place is None or find_place(store, may_create=False) != place:
            raise JournalUnavailableError(
                f"this executor does not find the driver's badRecordsPath at {self.where}, so it sends nothing. It "
                "must be one place that driver and all executors share."
            )
        self._store = anchored(store, PLACE)
        self._folder = folder
        self._before = frozenset(self._store.list(folder))

    @property
    def is_empty(self) -> bool:
        return not self._before

    def has(self, name: str) -> bool:
        return self._object(name) in self._before

    def keep(self, name: str, line: bytes, row: Outgoing) -> None:
        self._store.put_if_absent(self._object(name), line)

    def _object(self, name: str) -> str:
        return f"{self._folder}/{name}.json"


class QueueKeeper:
    """Sends rows to `badRecordsQueueUrl`, in their groups; the record, if there is one, knows which."""

    def __init__(self, queue: SinkQueue, url: str, record: Record, clock: Clock) -> None:
        self.where = f"'{url}'"
        self._queue = queue
        self._record = record
        self._clock = clock
        record.refresh([ANY_REFUSED])

    @property
    def is_empty(self) -> bool:
        return not self._record.is_sent(ANY_REFUSED)

    def has(self, name: str) -> bool:
        return self._record.is_sent(_mark(name))

    def keep(self, name: str, line: bytes, row: Outgoing) -> None:
        self._record.refresh([ANY_REFUSED])
        if self.has(name):
            return
        why = "" if row.group else "it has no message group to be sent in"
        if len(line) > MAX_CALL_BYTES:
            why = f"its line of {len(line):,} bytes is larger than the {MAX_CALL_BYTES:,} of a message"
        if not why:
            ids = {"MessageGroupId": row.group, "MessageDeduplicationId": name}
            message = Outgoing(row.row, row.group, {"MessageBody": line.decode().rstrip(), **ids}, len(line), b"")
            deadline = self._clock.monotonic() + CALL_BUDGET_S
            try:
                self._queue.send([message], lambda _, __: None, stopped=threading.Event(), deadline=deadline)
            except RefusedRowError as refused:
                why = refused.reason
        if why:
            raise RowError(
                f"row {row.row:,} cannot be sent ({row.refusal}), nor to 'badRecordsQueueUrl': {why}. Correct such "
                "rows, filter them out before the sink, or give badRecordsPath instead."
            )
        self._record.add([_mark(name), ANY_REFUSED], by=math.inf)


def find_place(store: Store, *, may_create: bool) -> str | None:
    """Return the id of the place at `badRecordsPath`, or None; the driver makes it. Raises as stores do."""
    data = store.get(PLACE)
    if data is None and may_create:
        JournalIdentity.check_store(store)
        store.put_if_absent(PLACE, uuid.uuid4().hex.encode())
        data = store.get(PLACE)
    return None if data is None else data.hex()


def _mark(name: str) -> bytes:
    return _recorded(f"refused\n{name}")
