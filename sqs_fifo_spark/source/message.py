"""A received message, its Arrow form, and the receipt that holds it.

Sources: `ReceiveMessage` in the SQS API for the system attributes; SQS gives times in milliseconds since
the Unix epoch and all system attributes as strings.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from sqs_fifo_spark.columns import ARROW_SCHEMA
from sqs_fifo_spark.payloads.pointer import SIZE_ATTRIBUTES, Pointer, pointer_in
from sqs_fifo_spark.source.envelope import Attributes, open_envelope

SYSTEM_ATTRIBUTES = (
    "MessageGroupId",
    "MessageDeduplicationId",
    "SequenceNumber",
    "SentTimestamp",
    "ApproximateFirstReceiveTimestamp",
    "ApproximateReceiveCount",
    "SenderId",
    "AWSTraceHeader",
    "DeadLetterQueueSourceArn",
)
ALWAYS_THERE = "MessageGroupId", "SequenceNumber", "ApproximateReceiveCount"
"""Those without which nothing can be served in order, and no copy be recognised."""
_TYPES: tuple[pa.DataType, ...] = tuple(ARROW_SCHEMA.types)
_BODY, _ATTRIBUTES = (ARROW_SCHEMA.names.index(name) for name in ("body", "messageAttributes"))
_PAYLOAD = ARROW_SCHEMA.names.index("payloadBucket")
"""Place of the first of the three columns of a payload."""


class Receipt(NamedTuple):
    """All that renewing, deleting and judging one message takes, without its body.

    `receive` is a number of its receive's own, whoever made that: delete and renew calls are built from receipts of the
    same receive. `received_at` is the holder's wall-clock time in seconds. `deferred` marks a message that is held but
    not served in its epoch: see `source.task.attempt`.
    """

    message_id: str
    receipt_handle: str
    message_group_id: str
    sequence_number: int
    receive_count: int
    sent_at_ms: int
    received_at: float
    receive: int
    deferred: bool = False
    payload: str = ""
    """URL of the payload on S3 that its row has, and that is to be deleted once the message is; else empty."""

    def __repr__(self) -> str:
        return f"<Receipt {self.message_id} of group {self.message_group_id!r}>"

    @property
    def recency(self) -> tuple[int, float]:
        """Rises with each receive of the same message; the newest receipt is the one whose handle works."""
        return self.receive_count, self.received_at


class Message(NamedTuple):
    """One received message: its receipt, and its row with a value for each column of `ARROW_SCHEMA`."""

    receipt: Receipt
    row: tuple[Any, ...]
    size: int
    """Bytes of the body and of the attributes' names, types and values; a pointer's body is as large as it says."""

    def __repr__(self) -> str:
        return f"<Message {self.receipt.message_id}: {self.size} bytes>"


def from_sqs(
    answer: Mapping[str, Any],
    *,
    receive: int,
    received_at: float,
    opens_envelopes: bool = False,
    max_payload_bytes: int | None = None,
) -> Message:
    """Return the message that stands in one entry of a `ReceiveMessage` answer, without SNS's envelope if it is to be.

    An envelope stays closed if the message has an attribute of its own by the name of one in there. If pointers are
    followed, payloads may have `max_payload_bytes`.
    """
    system: Mapping[str, str] = answer.get("Attributes", {})
    body: str = answer["Body"]
    attributes: Attributes = answer.get("MessageAttributes") or {}
    size = _size(body, attributes)
    notification = open_envelope(body) if opens_envelopes else None
    if notification is not None and attributes.keys() & notification.attributes.keys():
        notification = None
    if notification is not None:
        body, attributes = notification.body, {**attributes, **notification.attributes}
    sent_at_ms = int(system.get("SentTimestamp", 0))
    first_received_ms = system.get("ApproximateFirstReceiveTimestamp")
    message_id, group, number = answer["MessageId"], system["MessageGroupId"], system["SequenceNumber"]
    count = int(system["ApproximateReceiveCount"])
    receipt = Receipt(message_id, answer["ReceiptHandle"], group, int(number), count, sent_at_ms, received_at, receive)
    row = (
        message_id,
        body,
        group,
        system.get("MessageDeduplicationId"),
        number,
        sent_at_ms * 1000,
        int(first_received_ms) * 1000 if first_received_ms else None,
        count,
        system.get("SenderId"),
        system.get("AWSTraceHeader"),
        system.get("DeadLetterQueueSourceArn"),
        _attribute_values(attributes),
        None if notification is None else notification.sns,
        None,
        None,
        None,
    )
    message = Message(receipt, row, size)
    pointer = None if max_payload_bytes is None else pointer_of(message)
    if pointer is None or max_payload_bytes is None:
        return message
    return message._replace(size=size + min(pointer.stated_size, max_payload_bytes))


def _attribute_values(attributes: Attributes) -> list[tuple[str, dict[str, Any]]]:
    kinds = {"dataType": "DataType", "stringValue": "StringValue", "binaryValue": "BinaryValue"}
    return [(name, {ours: value.get(theirs) for ours, theirs in kinds.items()}) for name, value in attributes.items()]


def _size(body: str, attributes: Attributes) -> int:
    size = len(body) if body.isascii() else len(body.encode("utf-8"))
    for name, value in attributes.items():
        size += len(name.encode("utf-8")) + len(value.get("DataType", "").encode("utf-8"))
        size += len(value.get("StringValue", "").encode("utf-8")) + len(value.get("BinaryValue", b""))
    return size


def pointer_of(message: Message) -> Pointer | None:
    """Return the pointer to a payload that the message still is; None for any other."""
    row = message.row
    if not row[_ATTRIBUTES]:
        return None
    return pointer_in(row[_BODY], {name: value["stringValue"] for name, value in row[_ATTRIBUTES]})


def with_payload(message: Message, pointer: Pointer, body: str | None, error: str | None) -> Message:
    """Return the message with its payload as the body, or with the reason for which it has none; a pointer no more."""
    row = list(message.row)
    row[_BODY] = body
    row[_ATTRIBUTES] = attributes = [each for each in row[_ATTRIBUTES] if each[0] not in SIZE_ATTRIBUTES]
    row[_PAYLOAD:] = pointer.bucket, pointer.key, error
    texts = (text for name, value in attributes for text in (name, value["dataType"], value["stringValue"]))
    binaries = sum(len(value["binaryValue"] or b"") for _, value in attributes)
    return Message(message.receipt, tuple(row), binaries + sum(len((each or "").encode()) for each in (body, *texts)))


def to_arrow(messages: Sequence[Message]) -> pa.RecordBatch:
    """Return the messages' rows, in order, with the schema `ARROW_SCHEMA`."""
    columns = zip(*(message.row for message in messages), strict=True) if messages else ([] for _ in _TYPES)
    arrays = [_array(values, kind) for values, kind in zip(columns, _TYPES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Do as `pa.array`, which imports pandas in each process, if it is there: that takes 0.3 s."""
    count = len(values)
    if pa.types.is_map(kind):
        if any(values):
            return _map_array(values, kind)
        nothing = pa.nulls(0, pa.struct([kind.key_field, kind.item_field]))
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(bytes(4 * (count + 1)))], children=[nothing])
    if values.count(None) == count:
        return pa.nulls(count, kind)
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        children = [[None if value is None else value[name] for value in values] for name in names]
        arrays = [_array(each, field.type) for each, field in zip(children, kind, strict=True)]
        return pa.Array.from_buffers(kind, count, [_validity(values)], children=arrays)
    if pa.types.is_string(kind):
        texts: Sequence[Any] = values if None not in values else [value or "" for value in values]
        text = "".join(texts)
        lengths = map(len, texts) if text.isascii() else (len(each.encode()) for each in texts)
        ends = array("i", itertools.accumulate(lengths, initial=0))
        return pa.Array.from_buffers(kind, count, [_validity(values), pa.py_buffer(ends), pa.py_buffer(text.encode())])
    numbers = array("q" if kind.bit_width == 64 else "i", [value or 0 for value in values])
    return pa.Array.from_buffers(kind, count, [_validity(values), pa.py_buffer(numbers)])


def _map_array(values: Sequence[Sequence[tuple[str, Mapping[str, Any]]]], kind: pa.DataType) -> pa.Array:
    entries = [entry for value in values for entry in value]
    names = _array([name for name, _ in entries], pa.string())
    items = [_array_of_bytes([item[each.name] for _, item in entries], each.type) for each in kind.item_type]
    fields = [names, pa.Array.from_buffers(kind.item_type, len(entries), [None], children=items)]
    pairs = pa.Array.from_buffers(pa.struct([kind.key_field, kind.item_field]), len(entries), [None], children=fields)
    ends = array("i", itertools.accumulate(map(len, values), initial=0))
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(ends)], children=[pairs])


def _array_of_bytes(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_binary(kind):
        return _array(values, kind)
    data = [value or b"" for value in values]
    ends = array("i", itertools.accumulate(map(len, data), initial=0))
    return pa.Array.from_buffers(
        kind, len(values), [_validity(values), pa.py_buffer(ends), pa.py_buffer(b"".join(data))]
    )


def repeated(text: str, count: int) -> pa.Array:
    """Do as `pa.repeat`, which imports pandas, too."""
    return _array([text] * count, pa.string())


def rows_at(rows: pa.RecordBatch, places: Iterable[int]) -> pa.RecordBatch:
    """Return these rows. Arrow would import pandas for a list, too."""
    numbers = array("q", places)
    return rows.take(pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)]))


def _validity(values: Sequence[Any]) -> pa.Buffer | None:
    """Return Arrow's bitmap of the values that are not None; None if all are."""
    if None not in values:
        return None
    bits = bytearray((len(values) + 7) // 8)
    for place, value in enumerate(values):
        bits[place // 8] |= (value is not None) << place % 8
    return pa.py_buffer(bytes(bits))


def from_arrow(receipts: Sequence[Receipt], rows: pa.RecordBatch, sizes: Sequence[int]) -> list[Message]:
    """Return the messages that `to_arrow` made `rows` of; there is a receipt and a size for each row, in order."""
    columns = [column.cast(_numbers_for(column.type)).to_pylist() for column in rows.columns]
    return [
        Message(receipt, row, size)
        for receipt, row, size in zip(receipts, zip(*columns, strict=True), sizes, strict=True)
    ]


def _numbers_for(kind: pa.DataType) -> pa.DataType:
    """Return the type with numbers in place of timestamps, of which they were made: Arrow takes no mix of the two."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _numbers_for(field.type)) for field in kind])
    return pa.int64() if pa.types.is_timestamp(kind) else kind
