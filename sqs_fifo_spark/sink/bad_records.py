"""Keeps rows that are refused: by the package, by SQS, or with their group. Each is durable before its group goes on.

Contract. A row is in the queue or here. A row kept here is refused by every later attempt, whatever that thinks of the
row itself; a known row is not refused. A kept row is recognised by the queue, by its columns, and by its number among
equal rows of its task, sent ones included: not by the reason, the time, or its place. So an attempt that refuses a row
again, in whatever partition, finds it there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import JournalUnavailableError, RowError
from sqs_fifo_spark.sink.digests import WIDTH, Digests
from sqs_fifo_spark.sink.keepers import Keeper, RecordOrigin
from sqs_fifo_spark.sink.outgoing import COLUMNS, QUEUE_COLUMN, OutgoingRow

_log = logging.getLogger(__name__)


class BadRecords:
    """The refused rows of one attempt of a task."""

    def __init__(self, keeper: Keeper, clock: Clock, origin: RecordOrigin, *, group_goes_on: bool, most: int) -> None:
        self._keeper = keeper
        self._clock = clock
        self._origin = origin
        self._group_goes_on = group_goes_on
        self._most = most
        self._copies = Digests()  # of the thread that adds rows, and of no other
        # `_lock` guards all fields below; nothing is made durable while it is held.
        self._lock = threading.Lock()
        self._refused: set[int] = set()  # by their numbers
        self._has_logged = False
        self._holds: dict[str, int] = {}  # groups that do not go on, and the row that was refused

    @property
    def count(self) -> int:
        return len(self._refused)

    def with_copy(self, row: OutgoingRow) -> OutgoingRow:
        """Return the row, which comes next in its task, with its `copy`. Equal rows cost no more memory than others."""
        message = row.digest or _content(row)
        there, free = 0, 1
        while _copy(message, free) in self._copies:
            there, free = free, 2 * free
        while free - there > 1:
            middle = (there + free) // 2
            there, free = (middle, free) if _copy(message, middle) in self._copies else (there, middle)
        self._copies.add(_copy(message, free))
        return row if free == row.copy else row._replace(copy=free)

    def refused_rows(self, rows: Sequence[OutgoingRow]) -> list[OutgoingRow]:
        """Return those of the rows that are refused: by themselves, with their group, or by an earlier attempt."""
        found = [(row, row.refusal or self._because_of_group(row) or self._as_before(row)) for row in rows]
        return [row._replace(refusal=reason) for row, reason in found if reason]

    def _because_of_group(self, row: OutgoingRow) -> str:
        with self._lock:
            behind = self._holds.get(row.group)
        return "" if behind is None else f"it stands behind row {behind:,} of its message group, which is refused"

    def _as_before(self, row: OutgoingRow) -> str:
        is_known = not self._keeper.is_empty and self._keeper.has(self._content(row), row.copy)
        return "an earlier attempt has refused it" if is_known else ""

    def keep(self, row: OutgoingRow, stopped: threading.Event) -> bool:
        """Take one step to make a refused row durable, and return whether it is: then its group may go on.

        With badRecordsGroup=hold later rows of the group are refused. Raises RowError for one more than `most` rows,
        and the keeper's errors.
        """
        partition = self._origin.partition
        with self._lock:
            if row.row not in self._refused and self.count == self._most:
                raise RowError(
                    f"row {row.row:,} of partition {partition} cannot be sent: {row.refusal}. It is one refused "
                    f"row more than the {self._most:,} that badRecordsMax allows each task; those are in "
                    f"{self._keeper.where}. Raise badRecordsMax, or filter such rows out before the sink, with "
                    "those of their groups that are kept."
                )
            self._refused.add(row.row)
        try:
            is_kept = self._keeper.keep(row, self._content(row), self._line(row), stopped)
        except JournalUnavailableError as error:
            raise JournalUnavailableError(
                f"row {row.row:,} of partition {partition} is refused, and cannot be kept in "
                f"{self._keeper.where}: {error}"
            ) from None
        if not is_kept:
            return False
        with self._lock:
            is_first, self._has_logged = not self._has_logged, True
        if is_first:
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
        return True

    def _content(self, row: OutgoingRow) -> str:
        return hashlib.sha256(self._origin.queue.encode() + _content(row)).hexdigest()

    def _line(self, row: OutgoingRow) -> bytes:
        line = {
            "reason": row.refusal,
            "time": datetime.fromtimestamp(self._clock.now(), timezone.utc).isoformat(timespec="milliseconds"),
            "queue": self._origin.queue,
            "query": self._origin.query,
            "batch": self._origin.batch,
            "partition": self._origin.partition,
            "rowNumber": row.row,
            "run": self._origin.run,
            "copy": row.copy,
            "row": _as_json(row.columns),
        }
        return json.dumps(line).encode() + b"\n"


def _content(row: OutgoingRow) -> bytes:
    return hashlib.sha256(json.dumps(_as_json(row.columns), sort_keys=True).encode()).digest()


def _copy(message: bytes, number: int) -> bytes:
    """Return the digest of so many an equal row."""
    return (
        message if number == 1 and len(message) == WIDTH else hashlib.sha256(message + b"%d" % number).digest()[:WIDTH]
    )


def _as_json(columns: Sequence[Any]) -> dict[str, Any]:
    """Return a row's columns; bytes stand in base64 under a name of their own, such as bodyBase64."""
    row: dict[str, Any] = {}
    for name, value in zip((*COLUMNS, QUEUE_COLUMN)[: len(columns)], columns, strict=True):
        if name == "messageAttributes":
            row[name] = None if value is None else [_attribute(*each) for each in value]
        else:
            row |= _texts({name: value})
    return row


def _attribute(name: Any, value: Any) -> dict[str, Any]:
    # A list of these, not an object: names may be there twice, for which the row is refused.
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
