"""The payloads of one task: read before a link is sealed, so that whoever reads the link needs no S3.

Only messages that the link serves are looked up. Of the others some are copies, whose payload is perhaps deleted.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sqs_fifo_spark.aws.s3 import CONCURRENT_CALLS
from sqs_fifo_spark.errors import AccessDeniedError, PayloadError
from sqs_fifo_spark.options import SourceOptions
from sqs_fifo_spark.payloads.pointer import Pointer
from sqs_fifo_spark.source.message import Message, pointer_of, with_payload
from sqs_fifo_spark.source.payload_deletes import PayloadDeletes
from sqs_fifo_spark.source.pool import Answer, MakePool, in_calling_thread
from sqs_fifo_spark.source.task.sieve import deferred

if TYPE_CHECKING:
    from sqs_fifo_spark.payloads.buckets import Buckets

_log = logging.getLogger(__name__)


class _Early(NamedTuple):
    """A read that was begun for the message at a place: of `most` bytes, and one more if the object is larger."""

    place: int
    most: int
    answer: Answer[bytes]


class Payloads:
    """Reads payloads, and has those that are to be deleted; does neither without `buckets`."""

    def __init__(
        self, options: SourceOptions, buckets: Buckets | None = None, make_pool: MakePool = in_calling_thread
    ) -> None:
        self._options = options
        self._buckets = buckets
        self._pool = make_pool("payload", CONCURRENT_CALLS)
        deletes = buckets is not None and options.delete_payloads
        self.deletes = PayloadDeletes(
            buckets.delete if buckets is not None and deletes else None, make_pool("payload-delete", 1)
        )

    @property
    def are_read(self) -> bool:
        return self._buckets is not None

    def loaded(
        self,
        messages: Sequence[Message],
        room: int,
        skipped: Container[str],
        *,
        serves_one: bool = True,
        defers: bool = False,
    ) -> list[Message]:
        """Return the messages in their order, those that are served with their payloads as bodies.

        Once they have `room` bytes, payloads are left unread, and their messages deferred, with what follows those in
        their groups; but of all messages one is served, if it `serves_one`. Not read are the `skipped` ones, which an
        operator has moved aside. Raises PayloadError, which names the object, or AccessDeniedError; with `defers`, such
        a message is deferred instead, and after an outage nothing more is read.
        """
        if not self.are_read:
            return list(messages)
        pointers = [
            None if each.receipt.deferred or each.receipt.message_id in skipped else pointer_of(each)
            for each in messages
        ]
        early = self._begun(messages, pointers, room)
        ahead: deque[_Early] = deque()
        left: set[str] = set()
        found = []
        for place, (message, pointer) in enumerate(zip(messages, pointers, strict=True)):
            group = message.receipt.message_group_id
            is_left = group in left or (pointer is not None and room <= 0 and not serves_one)
            while room > 0 and len(ahead) < CONCURRENT_CALLS and (next_early := next(early, None)) is not None:
                ahead.append(next_early)
            own = ahead.popleft() if ahead and ahead[0].place == place else None
            if pointer is not None and not is_left:
                try:
                    message = self._load(message, pointer, own)
                except (PayloadError, AccessDeniedError) as error:
                    _note_or_raise(message, pointer, error, defers=defers)
                    is_left = True
                    if not _is_final(error):
                        room, serves_one = 0, False
            if is_left:
                left.add(group)
                message = deferred(message)
            elif not message.receipt.deferred and message.receipt.message_id not in skipped:
                room, serves_one = room - message.size, False
            found.append(message)
        return found

    def _begun(self, messages: Sequence[Message], pointers: Sequence[Pointer | None], room: int) -> Iterator[_Early]:
        """Begin to read, as they are asked for, those payloads that have room by the sizes that their messages state.

        Of each as much as it states, or as a share of the room: more than that is read when its turn comes.
        """
        share = max(0, room) // CONCURRENT_CALLS
        for place, (message, pointer) in enumerate(zip(messages, pointers, strict=True)):
            if room <= 0:
                return
            if pointer is not None:
                most = min(self._options.max_payload_bytes, max(pointer.stated_size, share))
                yield _Early(place, most, self._pool.submit(functools.partial(self._read, pointer, most + 1)))
            if not message.receipt.deferred:
                room -= message.size

    def _read(self, pointer: Pointer, most: int) -> bytes:
        assert self._buckets is not None
        return self._buckets.read(pointer, most)

    def _load(self, message: Message, pointer: Pointer, early: _Early | None) -> Message:
        try:
            body = self._body(pointer, early)
        except PayloadError as error:
            if error.is_final and self._options.payload_errors == "null":
                return with_payload(message, pointer, None, str(error))
            raise
        message = with_payload(message, pointer, body, None)
        if not self._options.delete_payloads:
            return message
        return message._replace(receipt=message.receipt._replace(payload=pointer.url))

    def _body(self, pointer: Pointer, early: _Early | None) -> str:
        most = self._options.max_payload_bytes
        data = None if early is None else early.answer.result()
        if early is None or data is None or early.most < len(data) <= most:
            data = self._read(pointer, most + 1)
        if len(data) > most:
            raise PayloadError(f"it has more than the {most:,} bytes of maxPayloadBytes", is_final=True)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise PayloadError("it is not UTF-8", is_final=True) from None


def _is_final(error: PayloadError | AccessDeniedError) -> bool:
    return isinstance(error, PayloadError) and error.is_final


def _note_or_raise(
    message: Message, pointer: Pointer, error: PayloadError | AccessDeniedError, *, defers: bool
) -> None:
    """Log that the message waits, if it `defers`; else raise the error, which then says what to do."""
    if defers:
        _log.warning(
            "the payload %r in the bucket %r cannot be read, so message %s waits for the next micro-batch: %s",
            *(pointer.key, pointer.bucket, message.receipt.message_id, error),
        )
    elif isinstance(error, PayloadError):
        raise PayloadError(_text(message, pointer, error), is_final=error.is_final) from None
    else:
        raise error


def _text(message: Message, pointer: Pointer, error: PayloadError) -> str:
    why = f"the payload {pointer.key!r} in the bucket {pointer.bucket!r} cannot be read: {error}."
    if not error.is_final:
        return (
            f"{why} Nothing of the micro-batch is served. Check the network, and the endpoint (journalEndpointUrl) and "
            "the region of S3; then start the query again."
        )
    return (
        f"{why} Nothing of the micro-batch is served, as message {message.receipt.message_id} is part of it. Correct "
        "that; or set payloadErrors=null, with which such a message has no body, and its payloadError says why; or "
        "move it aside with `sqs-fifo-spark journal skip`."
    )
