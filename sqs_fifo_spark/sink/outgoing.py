"""A row on its way to SQS: the entry to send, its size, and the digest that recognises it if it is sent again.

Rows that SQS would refuse are refused here, before anybody sends them. Sources: `SendMessageBatch` in the SQS API, and
"Amazon SQS message quotas" and "message metadata" in its developer guide.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from sqs_fifo_spark.option_rules import FIFO_ID, FIFO_ID_RULE
from sqs_fifo_spark.payloads.pointer import SIZE_ATTRIBUTE, SIZE_ATTRIBUTES
from sqs_fifo_spark.sink.digests import digest_of
from sqs_fifo_spark.sink.offload import MAX_PAYLOAD_BYTES, Payload, PayloadForm

MAX_ATTRIBUTES = 10
COLUMNS = ("body", "messageGroupId", "messageDeduplicationId", "messageAttributes", "awsTraceHeader")
"""The columns that a sink sends."""
QUEUE_COLUMN = "queueUrl"
"""The column that names a row's queue."""

ROW_BYTES = 2_450
"""Memory of a row besides body and attributes, with ids of any length and a group of its own."""
ATTRIBUTE_BYTES = 400
"""Memory of an attribute besides its name and its values."""
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ASCII_NOT_XML = bytes({*range(0x20)} - {*b"\t\n\r"})
_ATTRIBUTE_NAME = re.compile(r"(?!\.)(?!.*\.\.)(?!(?i:aws|amazon)\.)[A-Za-z0-9_.-]{1,256}(?<!\.)")
_DATA_TYPE = re.compile(r"(String|Number|Binary)(?:\..+)?")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_LONGEST_NAME = 256


@dataclass(frozen=True)
class RowForm:
    """The form of a sink's rows. `message_group_id` is the group of all rows, or None for each row's own."""

    message_group_id: str | None
    by_column: bool
    """True if equal messages have the same `messageDeduplicationId`, rather than the same body."""
    max_message_bytes: int
    keeps_refused: bool = False
    """True if refused rows are kept elsewhere, rather than fail their task: then each row keeps its columns."""
    payloads: PayloadForm | None = None
    """The form of large bodies on S3, if they go there."""
    queue: str = ""
    """The rows' queue, if that is another one than the option's."""
    queue_url: Any = None
    """The value of the rows' own column QUEUE_COLUMN."""
    refusal: str = ""
    """Reason for which no row goes to this queue, if so."""

    def kept(self, *values: Any) -> tuple[Any, ...]:
        """Return the values of COLUMNS with that of QUEUE_COLUMN, if the row has one, for a row that may be refused."""
        return values if self.queue_url is None else (*values, self.queue_url)


class OutgoingRow(NamedTuple):
    """One row as it is sent, or as it is refused. `row` is its number in its partition, from 1."""

    row: int
    group: str
    """Its message group; that of another queue than the option's has the queue before it, on a line of its own."""
    entry: Mapping[str, Any]
    """The entry of `SendMessageBatch`, all but its `Id`."""
    size: int
    """Bytes of body and attributes that are sent, as SQS counts them."""
    digest: bytes
    """Sets this message apart from others, as SQS's deduplication does: by its queue, its group, and id or body."""
    held_bytes: int = 0
    """Bytes of memory that it takes, at most, with a group of its own."""
    columns: Sequence[Any] = ()
    """The values of COLUMNS, and of QUEUE_COLUMN if the row has one, if refused rows are kept.

    A body is text where it can be.
    """
    refusal: str = ""
    """Reason for which it cannot be sent, if so; only its group is set besides then, if it has one, "" if not."""
    copy: int = 1
    """Its number among the rows of its task that are the same message, if refused rows are kept."""
    payload: Payload | None = None
    """Its body, if that goes to S3: there before its entry, which points to it, is sent."""
    queue: str = ""
    """Its queue, if that is another one than the option's."""

    def __repr__(self) -> str:
        return f"<OutgoingRow {self.row} group={self.group!r} size={self.size} refusal={self.refusal!r}>"


def _held_bytes(entry: Mapping[str, Any], columns: Sequence[Any]) -> int:
    texts, count = [entry.get("MessageBody", "")], 0
    if attributes := entry.get("MessageAttributes"):
        texts += [*attributes, *(each for value in attributes.values() for each in value.values())]
        count = len(attributes)
    if header := entry.get("MessageSystemAttributes"):
        texts += [value["StringValue"] for value in header.values()]
    if columns:
        *others, kept, trace_header = columns
        texts += [*others, trace_header]
        for name, value in kept or ():
            texts += [name, *(value.values() if isinstance(value, Mapping) else (value,))]
            count += 1
    return ROW_BYTES + ATTRIBUTE_BYTES * count + sum(map(sys.getsizeof, texts))


class RefusedRowError(Exception):
    """A row cannot be sent. `reason` never holds anything of its body or its attributes' values."""

    def __init__(self, row: int, reason: str, digest: bytes = b"") -> None:
        super().__init__(row, reason, digest)
        self.row = row
        self.reason = reason
        self.digest = digest
        """The digest of the message, if the queue takes it under another setting."""


def outgoing(
    columns: Sequence[Sequence[Any]], form: RowForm | Iterable[RowForm], *, first_row: int
) -> list[OutgoingRow]:
    """Return the rows as they are sent, in order. `columns` are the values of COLUMNS; the first row is `first_row`.

    `form` is that of all rows, or each row's own. A row that SQS would not take has a `refusal` if its form says that
    such are kept. Else RefusedRowError is raised for the first one.
    """
    forms = itertools.repeat(form) if isinstance(form, RowForm) else form
    rows = zip(itertools.count(first_row), forms, zip(*columns, strict=True), strict=False)
    return [_row_or_refusal(row, own, *values) for row, own, values in rows]


def columns_of(batch: pa.RecordBatch) -> list[Sequence[Any]]:
    """Return the values of COLUMNS in `batch`: None for a column it lacks, bytes for strings that are not UTF-8."""
    return [_values(batch, name) for name in COLUMNS]


def queues_of(batch: pa.RecordBatch) -> Sequence[Any] | None:
    """Return the values of QUEUE_COLUMN in the same way, or None if `batch` lacks it."""
    return None if batch.schema.get_field_index(QUEUE_COLUMN) < 0 else _values(batch, QUEUE_COLUMN)


def _values(batch: pa.RecordBatch, name: str) -> Sequence[Any]:
    index = batch.schema.get_field_index(name)
    if index < 0:
        return [None] * batch.num_rows
    column = batch.column(index)
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        values = [_value(each) for each in column]
    return values


def _value(scalar: pa.Scalar) -> Any:
    """Return the value as `as_py` does, but bytes for strings that are not UTF-8."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        if isinstance(scalar, pa.MapScalar):
            return list(zip(*(map(_value, scalar.values.field(place)) for place in (0, 1)), strict=True))
        if isinstance(scalar, pa.StructScalar):
            return {name: _value(scalar[name]) for name in scalar}
        return scalar.as_buffer().to_pybytes()


def _row_or_refusal(
    row: int, form: RowForm, body: Any, group: Any, deduplication_id: Any, attributes: Any, trace_header: Any
) -> OutgoingRow:
    group = form.message_group_id or group
    try:
        return _row(row, form, body, group, deduplication_id, attributes, trace_header)
    except RefusedRowError as refused:
        if not form.keeps_refused:
            raise
        is_group = isinstance(group, str) and FIFO_ID.fullmatch(group) is not None
        kept = (_text_of(body), group, deduplication_id, attributes, trace_header)
        held = _held_bytes({}, kept) + sys.getsizeof(form.queue_url)
        group, kept = _in_queue(form.queue, group) if is_group else "", form.kept(*kept)
        return OutgoingRow(row, group, {}, 0, refused.digest, held, kept, refused.reason, queue=form.queue)


def _in_queue(queue: str, group: str) -> str:
    """Return the group as one of its queue's, so that equal names in two queues are two groups."""
    return f"{queue}\n{group}" if queue else group


def _text_of(body: Any) -> Any:
    try:
        return body.decode() if isinstance(body, bytes) else body
    except UnicodeDecodeError:
        return body


def _row(
    row: int, form: RowForm, body: Any, group: Any, deduplication_id: Any, attributes: Any, trace_header: Any
) -> OutgoingRow:
    text = _body(row, body)
    data = text.encode()
    entry: dict[str, Any] = {"MessageBody": text}
    group = _id(row, "messageGroupId", group)
    entry["MessageGroupId"] = group
    if form.by_column:
        key = _id(row, "messageDeduplicationId", deduplication_id)
        entry["MessageDeduplicationId"] = key
    else:
        key = text
    wire: dict[str, dict[str, Any]] = {}
    for name, value in _attributes(row, attributes) if attributes else ():
        if name in wire:
            raise RefusedRowError(row, f"its attribute {name!r} is there twice")
        wire[name] = value
    if len(wire) > MAX_ATTRIBUTES:
        raise RefusedRowError(row, f"it has {len(wire)} attributes, and SQS takes at most {MAX_ATTRIBUTES}")
    if wire:
        entry["MessageAttributes"] = wire
    if trace_header is not None:
        # It does not count as a part of the message's size.
        value = {"DataType": "String", "StringValue": _trace_header(row, trace_header)}
        entry["MessageSystemAttributes"] = {"AWSTraceHeader": value}
    kind = "id" if form.by_column else "body"
    if not form.queue:  # the option's has no name: the journal has it once
        digest = digest_of(kind, group, key)
    else:
        digest = digest_of(f"{kind} in {form.queue}", group, key)
        if form.refusal:
            raise RefusedRowError(row, form.refusal, digest)
    kept = (text, group, deduplication_id, attributes, trace_header) if form.keeps_refused else ()
    size = len(data) + sum(map(_size, wire, wire.values()))
    payload = None
    if form.payloads is not None:
        _require_no_pointer(row, wire, digest)
        if size > min(form.payloads.threshold_bytes, form.max_message_bytes):
            payload = _payload(row, data, entry, form, digest)
            wire = entry["MessageAttributes"]
            size = len(entry["MessageBody"].encode()) + sum(map(_size, wire, wire.values()))
    if size > form.max_message_bytes:
        most = form.max_message_bytes
        if payload is None:
            why = f"{too_large(size, most)}; with payloadLocation its body goes to S3"
        else:
            why = f"it has {size:,} bytes though its body is on S3, and the queue takes at most {most:,}"
            why = f"{why} (MaximumMessageSize)"
        raise RefusedRowError(row, why, digest)
    held_bytes = _held_bytes(entry, kept) + (0 if payload is None else sys.getsizeof(payload.data))
    if form.queue_url is None:
        return OutgoingRow(row, group, entry, size, digest, held_bytes, kept, payload=payload)
    group, kept = _in_queue(form.queue, group), form.kept(*kept) if kept else ()
    return OutgoingRow(row, group, entry, size, digest, held_bytes, kept, payload=payload, queue=form.queue)


def _size(name: str, value: Mapping[str, Any]) -> int:
    content = value.get("StringValue", "").encode() or value.get("BinaryValue", b"")
    return len(name.encode()) + len(value["DataType"].encode()) + len(content)


def _require_no_pointer(row: int, wire: Mapping[str, Any], digest: bytes) -> None:
    for name in SIZE_ATTRIBUTES:
        if name in wire:
            raise RefusedRowError(
                row, f"it has an attribute called {name!r}, by which readers know a message that points to S3", digest
            )


def _payload(row: int, data: bytes, entry: dict[str, Any], form: RowForm, digest: bytes) -> Payload:
    """Have the entry point to its body, and return that."""
    assert form.payloads is not None
    wire = entry.get("MessageAttributes", {})
    if len(wire) == MAX_ATTRIBUTES:
        raise RefusedRowError(
            row,
            f"it has {len(wire)} attributes and a body that goes to S3; {SIZE_ATTRIBUTE} is one more, and SQS takes at "
            f"most {MAX_ATTRIBUTES}",
            digest,
        )
    if len(data) > MAX_PAYLOAD_BYTES:
        raise RefusedRowError(
            row, f"its body has {len(data):,} bytes, and a body on S3 may have at most {MAX_PAYLOAD_BYTES:,}", digest
        )
    return form.payloads.offload(data, entry, by_column=form.by_column)


def too_large(size: int, most: int) -> str:
    """Return the reason for which a queue that takes `most` bytes refuses a row of this size."""
    return f"it has {size:,} bytes with its attributes, and the queue takes at most {most:,} (its MaximumMessageSize)"


def _trace_header(row: int, value: Any) -> str:
    """Return the X-Ray trace header; SQS itself judges its form."""
    _require_utf8(row, "awsTraceHeader", value)
    if not value:
        raise RefusedRowError(row, "its awsTraceHeader is empty; it may be null")
    return _text(row, "its awsTraceHeader", value)


def _require_utf8(row: int, column: str, *values: Any) -> None:
    if any(isinstance(value, bytes) for value in values):
        raise RefusedRowError(row, f"its {column} is not UTF-8")


def _body(row: int, body: Any) -> str:
    if isinstance(body, bytes):
        try:
            body = body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RefusedRowError(row, f"its body is not UTF-8 (byte {error.start})") from None
    if not body:
        raise RefusedRowError(row, "its body is null" if body is None else "its body is empty")
    return _text(row, "its body", body)


def _text(row: int, what: str, text: str) -> str:
    if text.isascii():  # most are, and then this is many times faster
        encoded = text.encode()
        if len(encoded.translate(None, _ASCII_NOT_XML)) == len(encoded):
            return text
    found = _NOT_XML.search(text)
    if found:
        raise RefusedRowError(
            row, f"{what} has a character that SQS does not take, {_name(found[0])} at {found.start()}"
        )
    return text


def _id(row: int, column: str, value: Any) -> str:
    if not isinstance(value, str):
        _require_utf8(row, column, value)
        raise RefusedRowError(row, f"its {column} is null")
    if not FIFO_ID.fullmatch(value):
        odd = re.search("[^!-~]", value)
        seen = f"{_name(odd[0])} at {odd.start()}" if odd else f"{len(value)} characters"
        raise RefusedRowError(row, f"its {column} has {seen}, but {FIFO_ID_RULE[:-1]}")
    return value


def _attributes(row: int, attributes: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names and values as SQS takes them. A value is a string, or a struct as the source has it."""
    for name, value in attributes:
        texts = (value.get("dataType"), value.get("stringValue")) if isinstance(value, Mapping) else (value,)
        _require_utf8(row, "messageAttributes", name, *texts)
        if not _ATTRIBUTE_NAME.fullmatch(name):
            raise RefusedRowError(
                row,
                f"it has an attribute called {name[:_LONGEST_NAME]!r}; a name is 1 to {_LONGEST_NAME} of A-Z, a-z, "
                "0-9, '_', '-' and '.', neither begins nor ends with '.' nor has two in a row, and does not begin with "
                "'AWS.' or 'Amazon.'",
            )
        what = f"its attribute {name!r}"
        if value is None:
            raise RefusedRowError(row, f"{what} is null")
        fields = {"dataType": "String", "stringValue": value} if isinstance(value, str) else value
        yield name, _attribute(row, what, fields)


def _attribute(row: int, what: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    data_type = fields.get("dataType") or ""
    string, binary = fields.get("stringValue"), fields.get("binaryValue")
    kind = _DATA_TYPE.fullmatch(data_type)
    if kind is None or len(data_type) > _LONGEST_NAME or _NOT_XML.search(data_type):
        raise RefusedRowError(
            row, f"{what} must have a dataType that is, or begins with, 'String', 'Number' or 'Binary'"
        )
    if kind[1] == "Binary":
        if not binary or string:
            raise RefusedRowError(row, f"{what} is Binary, so it must have a binaryValue, not empty, and nothing else")
        return {"DataType": data_type, "BinaryValue": binary}
    if not string or binary:
        raise RefusedRowError(row, f"{what} is a {kind[1]}, so it must have a stringValue, not empty, and nothing else")
    if kind[1] == "Number" and not _NUMBER.fullmatch(string):
        raise RefusedRowError(row, f"{what} is a Number, and its stringValue is none")
    return {"DataType": data_type, "StringValue": _text(row, what, string)}


def _name(character: str) -> str:
    return f"U+{ord(character):04X}"
