"""A segment's bytes: the durable record of what one partition of one epoch received. Written once.

    header     magic, lengths and CRC-32 of both sections, CRC-32 of the header itself
    receipts   Arrow IPC: one row for each message; which journal, epoch, partition and writer, as metadata
    messages   Arrow IPC, compressed: the rows with the source's columns, in the same order

Receipts stand in front, so that the driver reads them without the bodies. Everything read is checked against its
CRC before Arrow parses it: damage is JournalCorruptError.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

import pyarrow as pa
import pyarrow.ipc

from sqs_fifo_spark.errors import JournalCorruptError
from sqs_fifo_spark.message import ARROW_SCHEMA, Receipt

_MAGIC = b"SQSFIFO1"
_HEADER = struct.Struct("<8sQIQI")
_CRC = struct.Struct("<I")
HEADER_LENGTH = _HEADER.size + _CRC.size
_RECEIPT_SCHEMA = pa.schema(
    [
        ("message_id", pa.string()),
        ("receipt_handle", pa.string()),
        ("message_group_id", pa.string()),
        # Up to 128 bits: a number that no Arrow integer holds.
        ("sequence_number", pa.string()),
        ("receive_count", pa.int64()),
        ("sent_at_ms", pa.int64()),
        ("received_at", pa.float64()),
        ("receive", pa.int64()),
        ("deferred", pa.bool_()),
    ]
)
_METADATA = ("journal", "epoch", "partitions", "partition", "writer")


@dataclass(frozen=True)
class Origin:
    """Who wrote a segment, and as what: partition `partition` of `partitions`.

    `writer` is unique to one attempt of one task.
    """

    journal: str
    epoch: int
    partitions: int
    partition: int
    writer: str


@dataclass(frozen=True)
class Segment:
    """The content of a segment: `rows` has one row for each receipt, in the same order."""

    origin: Origin
    receipts: tuple[Receipt, ...]
    rows: pa.RecordBatch = field(repr=False)

    def served(self) -> pa.RecordBatch:
        """Return the rows that belong to this epoch, in order: all but the deferred ones."""
        if not any(receipt.deferred for receipt in self.receipts):
            return self.rows
        return self.rows.filter(pa.array([not receipt.deferred for receipt in self.receipts], pa.bool_()))


def encode(segment: Segment) -> bytes:
    """Return the segment's bytes."""
    columns = {
        column.name: [getattr(receipt, column.name) for receipt in segment.receipts] for column in _RECEIPT_SCHEMA
    }
    columns["sequence_number"] = [str(number) for number in columns["sequence_number"]]
    metadata = {name: str(getattr(segment.origin, name)) for name in _METADATA}
    receipts = pa.RecordBatch.from_pydict(columns, schema=_RECEIPT_SCHEMA.with_metadata(metadata))
    first, second = _to_ipc(receipts, None), _to_ipc(segment.rows, "zstd")
    header = _HEADER.pack(_MAGIC, first.size, zlib.crc32(first), second.size, zlib.crc32(second))
    return b"".join((header, _CRC.pack(zlib.crc32(header)), first, second))


def decode(data: bytes, name: str) -> Segment:
    """Return the segment whose bytes are `data`. Raises JournalCorruptError, naming the object `name`."""
    receipts_end, receipts_crc, end, rows_crc = _lengths(data, name)
    sections = memoryview(data)  # slices of it are no copies
    origin, receipts = _receipts(sections[HEADER_LENGTH:receipts_end], receipts_crc, name)
    rows = _from_ipc(sections[receipts_end:end], rows_crc, name)
    if rows.schema != ARROW_SCHEMA or rows.num_rows != len(receipts):
        raise _corrupt(name, "its rows do not fit its receipts")
    return Segment(origin, receipts, rows)


def decode_receipts(read: Callable[[int, int], bytes | None], name: str) -> tuple[Origin, tuple[Receipt, ...]] | None:
    """Return origin and receipts of a segment without its bodies, or None if there is no such object.

    `read(start, length)` returns that range of the object's bytes.
    """
    guess = 1 << 16  # holds the receipts of about 200 messages, so that most segments take one read
    head = read(0, guess)
    if head is None:
        return None
    receipts_end, crc, _, _ = _lengths(head, name)
    if receipts_end > len(head) == guess:
        head += read(guess, receipts_end - guess) or b""
    return _receipts(head[HEADER_LENGTH:receipts_end], crc, name)


def _lengths(data: bytes, name: str) -> tuple[int, int, int, int]:
    if len(data) < HEADER_LENGTH or data[: len(_MAGIC)] != _MAGIC:
        raise _corrupt(name, "it is not a segment of this format")
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    if crc != zlib.crc32(data[: _HEADER.size]):
        raise _corrupt(name, "its header is damaged")
    _, receipts, receipts_crc, rows, rows_crc = _HEADER.unpack_from(data)
    return HEADER_LENGTH + receipts, receipts_crc, HEADER_LENGTH + receipts + rows, rows_crc


def _receipts(data: bytes | memoryview, crc: int, name: str) -> tuple[Origin, tuple[Receipt, ...]]:
    batch = _from_ipc(data, crc, name)
    metadata = {key.decode(): value.decode() for key, value in (batch.schema.metadata or {}).items()}
    if batch.schema.remove_metadata() != _RECEIPT_SCHEMA or not set(_METADATA) <= metadata.keys():
        raise _corrupt(name, "its receipts have another schema")
    columns: list[Sequence[object]] = [column.to_pylist() for column in batch.columns]
    names = [column.name for column in fields(Receipt)]
    try:
        origin = Origin(
            metadata["journal"],
            int(metadata["epoch"]),
            int(metadata["partitions"]),
            int(metadata["partition"]),
            metadata["writer"],
        )
        receipts = []
        for values in zip(*columns, strict=True):
            row = dict(zip(names, values, strict=True))
            row["sequence_number"] = int(str(row["sequence_number"]))
            receipts.append(Receipt(**row))
    except ValueError:
        raise _corrupt(name, "its receipts do not parse") from None
    return origin, tuple(receipts)


def _to_ipc(batch: pa.RecordBatch, compression: str | None) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _from_ipc(data: bytes | memoryview, crc: int, name: str) -> pa.RecordBatch:
    if zlib.crc32(data) != crc:
        raise _corrupt(name, "a checksum does not match")
    try:
        with pa.ipc.open_stream(data) as reader:
            return reader.read_next_batch()
    except (pa.ArrowException, StopIteration):
        raise _corrupt(name, "Arrow cannot read it") from None


def _corrupt(name: str, reason: str) -> JournalCorruptError:
    return JournalCorruptError(
        f"'{name}' in the journal cannot be used: {reason}. Its messages are still in the queue. Restore the object; "
        "if it is removed instead, they come again when their leases have lapsed, perhaps a second time for the sink."
    )
