"""Payloads of a schedule: a bucket that fails, hides and replaces objects, and the laws about them."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sqs_fifo_spark.errors import PayloadError
from sqs_fifo_spark.payloads.pointer import SIZE_ATTRIBUTES, Pointer, body_of
from sqs_fifo_spark.source.segment import Segment
from tests.simulation.climate import PAUSES_S

if TYPE_CHECKING:
    from tests.simulation.world import Row, World

BUCKET = "payloads"
_PART = 0.6
"""The share of messages that are pointers."""


class Bucket:
    """S3, as far as source and producers use it. Each call is a step before and after its effect."""

    def __init__(self, world: World, dice: random.Random, violate: Callable[[str], None]) -> None:
        self._world = world
        self._dice = dice
        self._violate = violate
        self.is_faulty = True
        self._rates = {kind: dice.choice((0.0, 0.05, 0.2)) for kind in ("fails", "slow", "hidden", "replaced", "lost")}
        self._objects: dict[str, str] = {}
        self._hidden: set[str] = set()
        """Objects that nobody finds, until somebody puts them right."""
        self._missed: set[str] = set()
        """Those that were hidden when somebody read them."""
        self._texts: defaultdict[str, set[str]] = defaultdict(set)
        """All texts that an object has had."""
        self._key: dict[str, str | None] = {}
        """The object of each message, by the message's id; None for one that is no pointer."""
        self._sealed: defaultdict[str, set[str | None]] = defaultdict(set)
        """The bodies that links have served for a message with a payload."""
        self._deleted: set[str] = set()
        self._refused: set[str] = set()
        """Messages of which a delete was refused: the next one who looks cannot tell whether it was deleted."""

    def _happens(self, kind: str) -> bool:
        return self.is_faulty and self._dice.random() < self._rates[kind]

    def clear(self) -> None:
        """Let all faults be over."""
        self.is_faulty = False
        self._hidden.clear()

    # A producer

    def pointer_to(self, body: str) -> tuple[str, Mapping[str, Mapping[str, str]]] | None:
        """Return body and attributes of a pointer to an object with this text; None for a message without one."""
        if self._dice.random() > _PART:
            return None
        key = f"{body}/{len(self._texts)}"
        self._objects[key] = body
        self._texts[key].add(body)
        if self._happens("hidden"):
            self._hidden.add(key)
        attribute = {"DataType": "Number", "StringValue": str(self._dice.choice((len(body), 0, 10_000_000)))}
        return body_of(Pointer(BUCKET, key)), {self._dice.choice(SIZE_ATTRIBUTES): attribute}

    def has_sent(self, message_id: str, body: str) -> None:
        """A producer has sent this. If SQS knows the message already, it stays what it was."""
        if message_id not in self._key:
            key = next((key for key in self._objects if body_of(Pointer(BUCKET, key)) == body), None)
            self._key[message_id] = key

    # The source

    def read(self, pointer: Pointer, most: int) -> bytes:
        key = pointer.key
        self._world.step(f"before read s3 {key}")
        self._slows()
        if self._happens("fails"):
            raise PayloadError("S3 fails with 503")
        if key in self._hidden:
            self._missed.add(key)
            if self._dice.random() < 0.3:
                self._hidden.discard(key)
            raise PayloadError("it is missing", is_final=True)
        text = self._objects.get(key)
        if text is None:
            self._world.note(f"{key} is gone")
            raise PayloadError("it is missing", is_final=True)
        self._world.step(f"after read s3 {key}")
        if self._happens("replaced"):
            self._objects[key] = f"{text}!"
            self._texts[key].add(f"{text}!")
        return text.encode()[:most]

    def delete(self, pointers: Sequence[Pointer]) -> dict[Pointer, PayloadError]:
        self._world.step(f"before delete s3 {[pointer.key for pointer in pointers]}")
        self._slows()
        left = {}
        for pointer in pointers:
            if self._happens("fails"):
                left[pointer] = PayloadError("S3 fails with 503")
                continue
            self._audit_delete(pointer.key)
            if self._objects.pop(pointer.key, None) is not None:
                self._deleted.add(pointer.key)
            if self._happens("lost"):
                left[pointer] = PayloadError("S3 gives no answer")
        self._world.step("after delete s3")
        return left

    def _slows(self) -> None:
        if self._happens("slow"):
            self._world.clock.sleep(self._dice.choice(PAUSES_S))

    # The laws

    def has_put(self, segment: Segment) -> None:
        """A task has put a link."""
        bodies = segment.rows.column("body").to_pylist()
        for receipt, body in zip(segment.head.receipts, bodies, strict=True):
            if self._key.get(receipt.message_id) is not None and not receipt.deferred:
                self._sealed[receipt.message_id].add(body)

    def refused(self, message_id: str) -> None:
        self._refused.add(message_id)

    def audit_row(self, row: Row, sent: str) -> None:
        """No loss: a row's body is what its object has had; none, if that was missing, and such are to be null."""
        key = self._key.get(row.message_id)
        if key is None:
            is_right = row.body == sent
        elif row.body is None:
            is_right = self._world.options.payload_errors == "null" and key in self._missed
        else:
            is_right = row.body in self._texts[key]
        if not is_right:
            self._violate(f"no loss: {sent} came with the body {row.body!r}")

    def is_whole(self, row: Row, sent: Row) -> bool:
        """Return whether a row that was moved aside is the message: with its payload, or as the pointer to that."""
        key = self._key.get(row.message_id)
        if key is None:
            return row == sent
        if row.body == body_of(Pointer(BUCKET, key)):
            return row == sent._replace(body=row.body)
        return row == sent._replace(body=row.body) and (row.body in self._texts[key] or key in self._missed)

    def leads_nowhere(self, row: Row) -> bool:
        """Return whether a row is a pointer to an object that is not there any more."""
        key = self._key.get(row.message_id)
        return key is not None and row.body == body_of(Pointer(BUCKET, key)) and key not in self._objects

    def _audit_delete(self, key: str) -> None:
        """Delete after commit: a payload goes once its message has, and a link has what it says."""
        present = self._world.present()
        for message_id, own in self._key.items():
            if own != key:
                continue
            if message_id in present:
                self._violate(f"delete after commit: the payload {key} goes before its message")
            if not self._sealed[message_id] - {None}:
                self._violate(f"delete after commit: the payload {key} goes, and no link has it")

    def audit(self, served: Iterable[Row], asked_for: Container[str]) -> None:
        """Bounded: the payload of a message that was served, and deleted by us, is gone, or named by the ledger.

        But for one whose message SQS has refused to delete, or that an operator, who has `asked_for` it, wanted to move
        aside as a pointer. A new query does not know what a dead one had deleted since its last ledger.
        """
        if not self._world.options.delete_payloads:
            if self._deleted:
                self._violate(f"delete after commit: payloads are to stay, and these went: {self._deleted}")
            return
        ledger = self._world.journal().ledger()
        named = {*ledger.payloads, *(entry.payload for entry in ledger.unconfirmed.values())}
        for row in served:
            key = self._key.get(row.message_id)
            if key is None or key not in self._objects or row.body is None or row.message_id in self._refused:
                continue
            if row.message_id in asked_for and f"pointers/{row.message_id}" in self._world.store.objects:
                continue
            if Pointer(BUCKET, key).url not in named:
                self._violate(f"bounded: the payload {key} is left, and nothing names it")
