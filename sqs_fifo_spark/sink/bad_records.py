"""Keeps rows that are refused: by the package, by SQS, or with their group. Each is durable before its group goes on.

Contract. A row is in the queue or here. What is kept here is refused by every later attempt, whatever it thinks of the
row itself; what the record knows as sent is not refused. The name of a kept row follows from the queue, from its
columns, and from which of several equal rows of its task it is, sent ones included: not from the reason, the time, or
where it stands. So whoever refuses a row again, in whatever partition, finds it there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import JournalUnavailableError, RowError
from sqs_fifo_spark.sink.digests import WIDTH, Digests
from sqs_fifo_spark.sink.keepers import Keeper, Origin
from sqs_fifo_spark.sink.message import COLUMNS, Outgoing

_log = logging.getLogger(__name__)


class BadRecords:
    """The refused rows of one attempt of a task."""

    def __init__(self, keeper: Keeper, clock: Clock, origin: Origin, *, group_goes_on: bool, most: int) -> None:
        self._keeper = keeper
        self._clock = clock
        self._origin = origin
        self._group_goes_on = group_goes_on
        self._most = most
        # These two are used by whoever adds rows, and by nobody else.
        self._messages = Digests()
        self._copies: Counter[bytes] = Counter()  # of those that came more than once
        # `_lock` guards all that follows; nothing is made durable while it is held.
        self._lock = threading.Lock()
        self._refused: set[int] = set()  # by their numbers
        self._holds: dict[str, int] = {}  # groups that do not go on, and the row that was refused

    @property
    def count(self) -> int:
        return len(self._refused)

    def numbered(self, row: Outgoing) -> Outgoing:
        """Return the row, which comes next in its task, with its `copy`."""
        message = row.digest or _content(row)[:WIDTH]
        if self._messages.add(message):
            return row
        self._copies[message] += 1
        return replace(row, copy=1 + self._copies[message])

    def refused(self, rows: Sequence[Outgoing]) -> list[Outgoing]:
        """Return those of the rows that are refused: by themselves, with their group, or by an earlier attempt."""
        found = [(row, row.refusal or self._because_of_group(row) or self._as_before(row)) for row in rows]
        return [replace(row, refusal=reason) for row, reason in found if reason]

    def _because_of_group(self, row: Outgoing) -> str:
        with self._lock:
            behind = self._holds.get(row.group)
        return "" if behind is None else f"it stands behind row {behind:,} of its message group, which is refused"

    def _as_before(self, row: Outgoing) -> str:
        if self._keeper.is_empty or not self._keeper.has(self._names(row)(row.copy)):
            return ""
        return "an earlier attempt has refused it"

    def keep(self, row: Outgoing, stopped: threading.Event) -> None:
        """Make a refused row durable; with badRecordsGroup=hold, refuse what follows in its group.

        It may be called again for a row that it could not keep. Raises RowError for one more than `most` rows, and what
        the keeper raises.
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
            self._keeper.keep(self._names(row), self._line(row), row, stopped)
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

    def _names(self, row: Outgoing) -> Callable[[int], str]:
        """Return what each copy of the row is called."""
        content = self._origin.queue.encode() + _content(row)
        return lambda copy: hashlib.sha256(content + str(copy).encode()).hexdigest()

    def _line(self, row: Outgoing) -> bytes:
        told = {
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
        return json.dumps(told).encode() + b"\n"


def _content(row: Outgoing) -> bytes:
    return hashlib.sha256(json.dumps(_as_json(row.columns), sort_keys=True).encode()).digest()


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
