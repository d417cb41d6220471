"""The payloads of one task: read before a link is sealed, so that whoever reads the link needs no S3.

Only messages that the link serves are looked up. Of the others some are copies, whose payload is perhaps deleted.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from sqs_fifo_spark.errors import PayloadError
from sqs_fifo_spark.options import SourceOptions
from sqs_fifo_spark.payloads.buckets import CONCURRENT_CALLS, Buckets
from sqs_fifo_spark.payloads.pointer import Pointer
from sqs_fifo_spark.source.message import Message, pointer_of, with_payload
from sqs_fifo_spark.source.payload_deletes import PayloadDeletes
from sqs_fifo_spark.source.pool import MakePool, in_calling_thread


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

    def loaded(self, messages: Sequence[Message], skipped: Container[str]) -> list[Message]:
        """Return the messages, those that are served with their payloads as bodies.

        Not read are the `skipped` ones, which an operator has moved aside. Raises PayloadError, which names the object,
        or AccessDeniedError.
        """
        buckets = self._buckets
        if buckets is None:
            return list(messages)

        def load(message: Message) -> Message:
            receipt = message.receipt
            pointer = None if receipt.deferred or receipt.message_id in skipped else pointer_of(message)
            return message if pointer is None else self._load(buckets, message, pointer)

        return list(self._pool.map(load, messages))

    def _load(self, buckets: Buckets, message: Message, pointer: Pointer) -> Message:
        try:
            body = self._body(buckets, pointer)
        except PayloadError as error:
            if error.is_final and self._options.payload_errors == "null":
                return with_payload(message, pointer, None, str(error))
            raise PayloadError(_text(message, pointer, error), is_final=error.is_final) from None
        message = with_payload(message, pointer, body, None)
        if not self._options.delete_payloads:
            return message
        return message._replace(receipt=message.receipt._replace(payload=pointer.url))

    def _body(self, buckets: Buckets, pointer: Pointer) -> str:
        most = self._options.max_payload_bytes
        data = buckets.read(pointer, most + 1)
        if len(data) > most:
            raise PayloadError(f"it has more than the {most:,} bytes of maxPayloadBytes", is_final=True)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise PayloadError("it is not UTF-8", is_final=True) from None


def _text(message: Message, pointer: Pointer, error: PayloadError) -> str:
    why = f"the payload '{pointer.key}' in the bucket '{pointer.bucket}' cannot be read: {error}."
    if not error.is_final:
        return f"{why} Message {message.receipt.message_id} stays in the queue. Check the network, then restart."
    return (
        f"{why} Message {message.receipt.message_id} stays in the queue, and so does what follows it in its group. "
        "Correct that, or set payloadErrors=null: then such a message has no body, and its payloadError says why."
    )
