"""Keeps rows that are refused: by the package, by SQS, or with their group. Each is durable before its group goes on.

    badRecordsPath/_place                              names the place, so that an executor finds the driver's
    badRecordsPath/<query>/<batch>/<digest>.json       one refused row: a JSON line
    badRecordsPath/batch-writes/<time>-<run>/...       the same for a batch write outside of a stream

Contract. A row is in the queue or here. What is kept here is refused by every later attempt, whatever it thinks of the
row itself; what the record knows as sent is not refused. The name of a row's object follows from its columns alone, and
from which of several equal rows of its task it is: not from the reason, the time, or where it stands. So whoever
refuses a row again, in whatever partition, finds its object there.

With badRecordsQueueUrl the name is the deduplication id of a message, and the record has a mark of it, for SQS forgets
the id after 5 minutes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import math
import threading
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Protocol

from sqs_fifo_spark.aws.calls import CALL_BUDGET_S, MAX_CALL_BYTES
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import JournalUnavailableError, RowError
from sqs_fifo_spark.journal.identity import JournalIdentity
from sqs_fifo_spark.journal.location import anchored
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.sink.message import COLUMNS, Outgoing, RefusedRowError
from sqs_fifo_spark.sink.queue import SinkQueue
from sqs_fifo_spark.sink.record import Record

PLACE = "_place"
"""Spark leaves files out that begin so when it reads the folder."""
ANY_REFUSED = hashlib.sha256(b"refused rows").digest()
"""Recorded beside the first mark: only where it is must a task compare its rows with marks."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Origin:
    """Whose rows are refused, as their lines say it."""

    partition: int
    query: str | None
    batch: int | None


class Keeper(Protocol):
    """Where refused rows are kept. All methods may be called by several threads."""

    where: str

    @property
    def is_empty(self) -> bool:
        """Whether earlier attempts have kept no row of this write."""

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
        record.refresh()

    @property
    def is_empty(self) -> bool:
        return not self._record.is_sent(ANY_REFUSED)

    def has(self, name: str) -> bool:
        return self._record.is_sent(_mark(name))

    def keep(self, name: str, line: bytes, row: Outgoing) -> None:
        self._record.refresh()
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


class BadRecords:
    """The refused rows of one attempt of a task."""

    def __init__(self, keeper: Keeper, clock: Clock, origin: Origin, *, group_goes_on: bool, most: int) -> None:
        self._keeper = keeper
        self._clock = clock
        self._origin = origin
        self._group_goes_on = group_goes_on
        self._most = most
        # `_lock` guards all that follows; nothing is made durable while it is held.
        self._lock = threading.Lock()
        self.count = 0
        self._kept: Counter[bytes] = Counter()  # by content
        self._holds: dict[str, int] = {}  # groups that do not go on, and the row that was refused

    def refused(self, rows: Sequence[Outgoing]) -> list[Outgoing]:
        """Return those of the rows that are refused: by themselves, with their group, or by an earlier attempt."""
        found = [(row, row.refusal or self._because_of_group(row) or self._as_before(row)) for row in rows]
        return [replace(row, refusal=reason) for row, reason in found if reason]

    def _because_of_group(self, row: Outgoing) -> str:
        with self._lock:
            behind = self._holds.get(row.group)
        return "" if behind is None else f"it stands behind row {behind:,} of its message group, which is refused"

    def _as_before(self, row: Outgoing) -> str:
        if self._keeper.is_empty:
            return ""
        content = _content(row)
        with self._lock:
            name = _name(content, self._kept[content] + 1)
        return "an earlier attempt has refused it" if self._keeper.has(name) else ""

    def keep(self, rows: Sequence[Outgoing]) -> None:
        """Make refused rows durable, in order; with badRecordsGroup=hold, refuse what follows in their groups.

        Raises RowError for one more than `most` rows, and what the keeper raises.
        """
        for row in rows:
            content, partition = _content(row), self._origin.partition
            with self._lock:
                if self.count == self._most:
                    raise RowError(
                        f"row {row.row:,} of partition {partition} cannot be sent: {row.refusal}. It is one refused "
                        f"row more than the {self._most:,} that badRecordsMax allows each task; those are in "
                        f"{self._keeper.where}. Raise badRecordsMax, or filter such rows out before the sink, with "
                        "those of their groups that are kept."
                    )
                self.count += 1
                self._kept[content] += 1
                name = _name(content, self._kept[content])
            try:
                self._keeper.keep(name, self._line(row), row)
            except JournalUnavailableError as error:
                raise JournalUnavailableError(
                    f"row {row.row:,} of partition {partition} is refused, and cannot be kept in "
                    f"{self._keeper.where}: {error}"
                ) from None
            if self.count == 1:
                _log.warning(
                    "row %d of partition %d is refused, and kept in %s: %s. How many there are is logged when the "
                    "write ends.",
                    row.row,
                    partition,
                    self._keeper.where,
                    row.refusal,
                )
            if row.group and not self._group_goes_on:
                with self._lock:
                    self._holds.setdefault(row.group, row.row)

    def _line(self, row: Outgoing) -> bytes:
        told = {
            "reason": row.refusal,
            "time": datetime.fromtimestamp(self._clock.now(), timezone.utc).isoformat(timespec="milliseconds"),
            "query": self._origin.query,
            "batch": self._origin.batch,
            "partition": self._origin.partition,
            "rowNumber": row.row,
            "row": _as_json(row.columns),
        }
        return json.dumps(told).encode() + b"\n"


def find_place(store: Store, *, may_create: bool) -> str | None:
    """Return the id of the place at `badRecordsPath`, or None; the driver makes it. Raises as stores do."""
    data = store.get(PLACE)
    if data is None and may_create:
        JournalIdentity.check_store(store)
        store.put_if_absent(PLACE, uuid.uuid4().hex.encode())
        data = store.get(PLACE)
    return None if data is None else data.hex()


def _mark(name: str) -> bytes:
    return hashlib.sha256(f"refused\n{name}".encode()).digest()


def _content(row: Outgoing) -> bytes:
    return hashlib.sha256(json.dumps(_as_json(row.columns), sort_keys=True).encode()).digest()


def _name(content: bytes, number: int) -> str:
    """Return the name of the row that is number so many of those with this content."""
    return hashlib.sha256(content + str(number).encode()).hexdigest()


def _as_json(columns: Sequence[Any]) -> dict[str, Any]:
    """Return a row's columns; bytes stand in base64 under a name of their own, such as bodyBase64."""
    told: dict[str, Any] = {}
    for name, value in zip(COLUMNS, columns, strict=True):
        if name == "messageAttributes":
            told[name] = None if value is None else [_attribute(*each) for each in value]
        else:
            told |= _texts({name: value})
    return told


def _attribute(name: Any, value: Any) -> dict[str, Any]:
    # A list of these, not an object: names may be there twice, which is why the row is refused.
    return _texts({"name": name, **(value if isinstance(value, Mapping) else {"stringValue": value})})


def _texts(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{name: value for name, value in values.items() if not isinstance(value, bytes)},
        **{
            f"{name}Base64": base64.b64encode(value).decode()
            for name, value in values.items()
            if isinstance(value, bytes)
        },
    }
