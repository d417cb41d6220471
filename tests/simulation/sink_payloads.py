"""The bucket of a sink's large bodies, its faults, and the law that each message finds its body there."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from sqs_fifo_spark.errors import PayloadError
from sqs_fifo_spark.options import SinkOptions
from sqs_fifo_spark.payloads.pointer import SIZE_ATTRIBUTE, Pointer, pointer_in
from sqs_fifo_spark.sink.outgoing import OutgoingRow

Entry = Mapping[str, Any]

LOCATION = "s3://b/p"
THRESHOLDS = (1, 20, 40, None)
"""Bytes; None for the most that the queue takes, which no row here has."""
WRITES_TAKE_S = (1, 20, 90, 400)


class Payloads:
    """Bodies on S3 in one schedule, or none: of the same seed, but of dice of its own."""

    def __init__(self, seed: int, *, is_calm: bool) -> None:
        self.rng = rng = random.Random(f"{seed}/payloads")
        self.are_used = rng.random() < 0.25
        self._slow = rng.choice((0.0, 0.02, 0.2))
        self._failing = 0.0 if is_calm else rng.choice((0.0, 0.0, 0.01, 0.05))
        self._lost = 0.0 if is_calm else rng.choice((0.0, 0.02, 0.1))
        self.objects: dict[str, bytes] = {}
        self._bodies: dict[str, str] = {}
        """The body of each object, as rows have it."""
        self._keys: dict[tuple[str, str, str, str], str] = {}
        """The object of each row of each micro-batch."""
        self._due: Counter[tuple[str, str]] = Counter()
        """The number of rows of each object that each process has, less its writes."""
        self.step: Callable[[str], None] = lambda event: None
        self.take: Callable[[float], None] = lambda seconds: None
        """Told how long a write takes."""
        self.violate: Callable[[str], None] = lambda law: None
        self.fail: Callable[[], None] = lambda: None
        """Told of a write that fails, when it does."""
        self.who: Callable[[], tuple[str, str]] = lambda: ("", "")
        """Returns the process and the thread that run."""
        self.away: set[str] = set()
        """Threads that are about to write, or do: a task that ends does not wait for them."""
        self._may_write: set[str] = set()
        """Those of them that have not begun to."""
        self._writing: set[str] = set()
        self.is_over: Callable[[], bool] = lambda: False
        """Returns True if the task that runs has returned or raised."""

    def options(self) -> dict[str, str]:
        """Return the options of the sink that this makes."""
        threshold = self.rng.choice(THRESHOLDS)
        if not self.are_used:
            return {}
        return {"payloadLocation": LOCATION} | ({} if threshold is None else {"payloadThresholdBytes": str(threshold)})

    def others(self, options: SinkOptions) -> SinkOptions:
        """Return the options that somebody has given in between: to a row it makes no difference where its body is."""
        if not self.are_used or self.rng.random() < 0.5:
            return options
        location = LOCATION if self.rng.random() < 0.8 else None
        threshold = self.rng.choice(THRESHOLDS) if location else None
        return replace(options, payload_location=location, payload_threshold_bytes=threshold)

    def calm_down(self) -> None:
        """Let no write fail, or take long, any more."""
        self._slow = self._failing = self._lost = 0.0

    # The bucket

    def write(self, pointer: Pointer, data: bytes) -> None:
        """Stand for `Buckets.write`, which has tried for long when it fails."""
        process, thread = self.who()
        if thread not in self._may_write and self.is_over():
            self._begins_late()
        self._may_write.discard(thread)
        self._writing.add(thread)
        try:
            self._write(process, pointer, data)
        finally:
            self._writing.discard(thread)

    def _write(self, process: str, pointer: Pointer, data: bytes) -> None:
        self.step(f"before the body of {pointer.key[:12]} is written")
        if self._happens(self._slow):
            self.take(self.rng.choice(WRITES_TAKE_S))
        if self._happens(self._failing):
            self.fail()
            is_final = self.rng.random() < 0.3
            raise PayloadError("S3 refuses it" if is_final else "S3 gives no answer", is_final=is_final)
        if self.objects.get(pointer.url, data) != data:
            self.violate(f"payload: {pointer.url} has another body from now on")
        self.objects[pointer.url] = data
        self._due[process, pointer.url] -= 1
        self.step(f"after the body of {pointer.key[:12]} is written")
        if self._happens(self._lost):
            self.fail()
            raise PayloadError("S3 gives no answer")

    @contextmanager
    def going_away(self, away: AbstractContextManager[None]) -> Iterator[None]:
        """Note the thread that runs while it is `away`; one that only begins to be is waited for all the same.

        It may write one body: nobody begins to once its task is over.
        """
        _, thread = self.who()
        was_over = self.is_over()
        self.away.add(thread)
        try:
            with away:
                if was_over:
                    self._begins_late()
                self._may_write.add(thread)
                yield
        finally:
            self.away.discard(thread)
            self._may_write.discard(thread)

    def _begins_late(self) -> None:
        process, thread = self.who()
        self.violate(f"end: {process} is over, and {thread} begins to write to S3")

    def audit_step(self, event: str) -> None:
        """Require that a thread for which its task does not wait takes no step but those of its write."""
        process, thread = self.who()
        if thread in self.away and not self.is_writing():
            self.violate(f"end: {process} waits for no end of {thread}, which is to write to S3, and is {event}")

    def is_writing(self) -> bool:
        """Return whether the thread that runs writes a body."""
        return self.who()[1] in self._writing

    def _happens(self, rate: float) -> bool:
        return rate > 0 and self.rng.random() < rate

    # What is seen of rows and calls

    def row(self, row: OutgoingRow, folder: str, *, by_column: bool) -> str:
        """Note what a row says that is to be sent, and return its body."""
        body: str = row.entry["MessageBody"]
        if row.payload is None:
            return body
        body, url = row.payload.data.decode(), row.payload.pointer.url
        told = row.entry["MessageDeduplicationId"] if by_column else ""
        if (same := self._keys.setdefault((folder, row.group, told, body), url)) != url:
            self.violate(f"payload: a row that is made again goes to {url}, and went to {same}")
        self._bodies[url] = body
        self._due[self.who()[0], url] += 1
        return body

    def resolved(self, entries: Sequence[Entry], *, is_sent: bool = False) -> list[Entry]:
        """Return the entries as a reader has them; `is_sent` says that a call sends them now."""
        return [self._resolved(entry, is_sent=is_sent) for entry in entries]

    def _resolved(self, entry: Entry, *, is_sent: bool) -> Entry:
        attributes = {name: value.get("StringValue") for name, value in entry.get("MessageAttributes", {}).items()}
        pointer = pointer_in(entry["MessageBody"], attributes)
        if pointer is None:
            return entry
        data = self.objects.get(pointer.url)
        if data is None and is_sent:
            self.violate(f"payload: a message points to {pointer.url}, where nothing is yet")
        body = self._bodies[pointer.url] if data is None else data.decode()
        if is_sent and pointer.stated_size != len(body.encode()):
            self.violate(f"payload: {pointer.url} has {len(body.encode())} bytes, and its message says otherwise")
        plain = {name: value for name, value in entry["MessageAttributes"].items() if name != SIZE_ATTRIBUTE}
        found = {**entry, "MessageBody": body, "MessageAttributes": plain}
        if entry.get("MessageDeduplicationId") == hashlib.sha256(body.encode()).hexdigest():
            del found["MessageDeduplicationId"]  # as SQS takes it from a body itself
        return found

    def audit_cost(self, process: str) -> None:
        """Require that a task of a calm schedule writes each body once for each of its rows, at most."""
        if often := [url for (who, url), due in self._due.items() if who == process and due < 0]:
            self.violate(f"cost: {process} writes {often} again and again")
