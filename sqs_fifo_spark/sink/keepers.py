"""Where refused rows are kept: a folder or a bucket, or another FIFO queue.

    badRecordsPath/_place                              names the place, so that an executor finds the driver's
    badRecordsPath/<query>/<batch>/<name>.json         one refused row: a JSON line
    badRecordsPath/batch-writes/<time>-<run>/...       the same for a batch write outside of a stream
    badRecordsPath/_found/<query>/<batch>/<name>-<run> which task found it there when the micro-batch ran again

Equal rows of two tasks would have one name. So the line says which task has made it, in which run of the write; in
another run the first task that finds it takes it for its own; all others go on to the name of the next copy.

With badRecordsQueueUrl the deduplication id of a message follows from name, write and partition, and the record has a
mark of the name, for SQS forgets the id after 5 minutes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sqs_fifo_spark.aws.calls import MAX_CALL_BYTES
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import JournalUnavailableError, RowError
from sqs_fifo_spark.journal.identity import JournalIdentity
from sqs_fifo_spark.journal.location import anchored
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.sink.digests import SHARD_WIDTH, WIDTH
from sqs_fifo_spark.sink.message import Outgoing, RefusedRowError
from sqs_fifo_spark.sink.queue import SinkQueue
from sqs_fifo_spark.sink.record import Record
from sqs_fifo_spark.sink.window import Window

PLACE = "_place"
"""Spark leaves files out that begin so when it reads the folder."""


def _recorded(what: str) -> bytes:
    # Like a row's digest. All in one shard, so that a look for one finds the others.
    return b"\xff" * SHARD_WIDTH + hashlib.sha256(what.encode()).digest()[: WIDTH - SHARD_WIDTH]


ANY_REFUSED = _recorded("refused rows")
"""Recorded beside the first mark: only where it is must a task compare its rows with marks."""


@dataclass(frozen=True)
class Origin:
    """Whose rows are refused, as their lines say it."""

    queue: str
    """The ARN of the queue that the rows were for."""
    run: str
    """One execution of the write."""
    partition: int
    query: str | None
    batch: int | None


class Keeper(Protocol):
    """Where refused rows are kept. All methods may be called by several threads."""

    where: str

    @property
    def is_empty(self) -> bool:
        """True if earlier attempts have kept no row of this write."""

    def has(self, name: str) -> bool:
        """Return whether an earlier attempt has kept the row of this name."""

    def keep(self, names: Callable[[int], str], line: bytes, row: Outgoing, stopped: threading.Event) -> None:
        """Make the line durable, once; `names` gives the name of each copy of the row.

        Raises JournalUnavailableError or RowError; UnsentError if a queue has throttled each try, StoppedError instead
        of another try once `stopped` is set, and what else the queue's calls raise.
        """


class PathKeeper:
    """Keeps rows below `badRecordsPath`, each in an object of its own."""

    def __init__(self, store: Store, place: str | None, folder: str, origin: Origin) -> None:
        """Look at what earlier attempts have kept. `place` is what `find_place` has returned on the driver."""
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

    @property
    def is_empty(self) -> bool:
        return not self._before

    def has(self, name: str) -> bool:
        return self._object(name) in self._before

    def keep(self, names: Callable[[int], str], line: bytes, row: Outgoing, stopped: threading.Event) -> None:
        for copy in itertools.count(row.copy):
            if self._is_kept(names(copy), line, row.copy):
                return

    def _is_kept(self, name: str, line: bytes, copy: int) -> bool:
        """Return whether the object of this name is that of the row, rather than of an equal one."""
        if self._store.put_if_absent(self._object(name), line):
            return True
        data = self._store.get(self._object(name))
        if data is None:
            raise JournalUnavailableError(f"'{self._object(name)}' was there, and is gone.")
        there = json.loads(data)
        run, own = self._origin.run, [self._origin.partition, copy]
        if there.get("run") == run:
            return [there["partition"], there["copy"]] == own
        mark, mine = f"_found/{self._folder}/{name}-{run}", json.dumps(own).encode()
        return self._store.put_if_absent(mark, mine) or self._store.get(mark) == mine

    def _object(self, name: str) -> str:
        return f"{self._folder}/{name}.json"


class QueueKeeper:
    """Sends rows to `badRecordsQueueUrl`, in their groups; the record, if there is one, knows which."""

    def __init__(self, queue: SinkQueue, url: str, record: Record, clock: Clock, write: str) -> None:
        """`write` names the partition's part of the micro-batch, or batch write."""
        self.where = f"'{url}'"
        self._write = write
        self._queue = queue
        self._record = record
        self._clock = clock
        record.refresh([ANY_REFUSED])

    @property
    def is_empty(self) -> bool:
        return not self._record.is_sent(ANY_REFUSED)

    def has(self, name: str) -> bool:
        return self._record.is_sent(_mark(name))

    def keep(self, names: Callable[[int], str], line: bytes, row: Outgoing, stopped: threading.Event) -> None:
        name = names(row.copy)
        self._record.refresh([ANY_REFUSED])
        if self.has(name):
            return
        why = "" if row.group else "it has no message group to be sent in"
        if len(line) > MAX_CALL_BYTES:
            why = f"its line of {len(line):,} bytes is larger than the {MAX_CALL_BYTES:,} of a message"
        if not why:
            own_id = hashlib.sha256(f"{self._write}\n{name}".encode()).hexdigest()
            ids = {"MessageGroupId": row.group, "MessageDeduplicationId": own_id}
            message = Outgoing(row.row, row.group, {"MessageBody": line.decode().rstrip(), **ids}, len(line), b"")
            deadline = Window(self._clock.monotonic()).last_try
            try:
                self._queue.send([message], lambda _, __: None, stopped=stopped, deadline=deadline)
            except RefusedRowError as refused:
                why = refused.reason
        if why:
            raise RowError(
                f"row {row.row:,} cannot be sent ({row.refusal}), nor to 'badRecordsQueueUrl': {why}. Correct such "
                "rows, or filter them out before the sink."
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
