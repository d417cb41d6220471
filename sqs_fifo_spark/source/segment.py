"""A segment's bytes: a link of the chain that is one partition of one epoch, durable. Put once, never changed.

    header     magic, lengths and CRC-32 of both sections, CRC-32 of the header itself
    receipts   JSON: all that `Head` has
    messages   Arrow IPC, compressed if they are long: the rows, one for each receipt, with the source's columns; if no
               row has a value of those that options add, without these

Receipts stand in front, so that the driver reads them without the bodies. Each section is checked against its CRC
before it is parsed, and validated before it is used: damage, and foreign bytes, are JournalCorruptError.
"""

from __future__ import annotations

import itertools
import json
import math
import struct
import zlib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from sqs_fifo_spark.aws.calls import NO_CALLS, CallCounts
from sqs_fifo_spark.columns import ARROW_SCHEMA
from sqs_fifo_spark.errors import JournalCorruptError
from sqs_fifo_spark.journal.documents import texts
from sqs_fifo_spark.payloads.pointer import from_url
from sqs_fifo_spark.source.message import Receipt, rows_at

_MAGIC = b"SQSFIFO1"
_HEADER = struct.Struct("<8sQIQI")
_CRC = struct.Struct("<I")
HEADER_LENGTH = _HEADER.size + _CRC.size
_KINDS = [(str, str, str, int, int, int, received_at, int, bool, str) for received_at in (float, int)]
"""The types of a receipt's values."""
_ALWAYS, _OPTIONAL = pa.schema(list(ARROW_SCHEMA)[:12]), list(ARROW_SCHEMA)[12:]
"""The columns of each message, and those that options add."""
_IS_BODILESS = "payloadError"
"""The column that has a value where a row's body has none."""
_FIRST_IMPOSSIBLE_NUMBER = 10**40
"""SQS's sequence numbers have up to 128 bits."""
_COMPRESSED_FROM = 1 << 16
"""Bytes of rows from which on they are compressed: those of a short link would take longer than all the rest of it."""
_LONGEST_SECTION = 1 << 40
"""Bytes; a header with more is damaged. No store holds an object of that size."""


@dataclass(frozen=True)
class Origin:
    """The writer of a segment, and its place: link `link` of partition `partition` of `partitions`, of the plan `plan`.

    `writer` is unique to one attempt of one task, or to the driver that closed the chain. `after` is the `Offset.name`
    of the offset that the epoch follows in Spark's log, whatever its number; `Offset.after` is only the name of the
    plan of the epoch before.
    """

    journal: str
    epoch: int
    partitions: int
    partition: int
    writer: str
    plan: int
    after: str
    link: int = 0
    deletes: bool = False
    """True if the tasks of the plan delete their sealed messages, so that the journal alone may have them."""


@dataclass(frozen=True)
class Chain:
    """The sums of a chain up to one of its links."""

    is_last: bool = False
    """No link follows."""
    served: int = 0
    """Number of messages that it serves, this link's included."""
    size: int = 0
    """Bytes of all messages in it, as SQS counts them, but for those that were moved aside."""
    oldest_ms: int | None = None
    """Time at which the oldest of those that it serves was sent."""
    deferring: tuple[int, ...] = ()
    """The links that hold deferred messages, this one's number included."""
    unconfirmed: tuple[Receipt, ...] = ()
    """Served messages of the links before this one that SQS has not confirmed to have deleted."""
    groups: int = 0
    """Number of message groups of which one of its links serves messages, at most."""
    payloads: tuple[str, ...] = ()
    """URLs of payloads that are to be deleted still, as SQS has confirmed to have deleted their messages."""

    def with_link(
        self,
        number: int,
        before: Sequence[Receipt],
        receipts: Sequence[Receipt],
        *,
        size: int = 0,
        is_last: bool,
        payloads: Sequence[str] | None = None,
    ) -> Chain:
        """Return the sums of this chain with a further link of `receipts`; `before` becomes `unconfirmed`.

        Without other `payloads` those of this link are left to the next.
        """
        served = [receipt for receipt in receipts if not receipt.deferred]
        times = [receipt.sent_at_ms for receipt in served]
        return Chain(
            is_last=is_last,
            served=self.served + len(served),
            size=self.size + size,
            oldest_ms=min(times, default=None) if self.oldest_ms is None else min([self.oldest_ms, *times]),
            deferring=(*self.deferring, number) if len(served) < len(receipts) else self.deferring,
            unconfirmed=tuple(before),
            groups=max(self.groups, len({receipt.message_group_id for receipt in served})),
            payloads=self.payloads if payloads is None else tuple(payloads),
        )


@dataclass(frozen=True)
class Head:
    """A segment without its bodies."""

    origin: Origin
    receipts: tuple[Receipt, ...]
    deleted: frozenset[str] = frozenset()
    """Ids of messages that the ledger lists as unconfirmed, and whose copies the chain's tasks have surely deleted."""
    chain: Chain = Chain()
    calls: CallCounts = NO_CALLS
    """Calls that the attempts that put the chain's links up to this one had made by then."""
    sizes: tuple[int, ...] = ()
    """Bytes of each of these messages, as SQS counts them."""
    query: str | None = None
    """The id of the query whose task has put it, if Spark gave it."""

    def in_flight(self) -> tuple[Receipt, ...]:
        """Return the served messages of the chain that may still be in flight, if this is the last link that it has."""
        return (*(receipt for receipt in self.receipts if not receipt.deferred), *self.chain.unconfirmed)


@dataclass(frozen=True)
class Segment:
    """A whole segment: its `Head`, and `rows`, one for each receipt, in the same order."""

    head: Head
    rows: pa.RecordBatch = field(repr=False)

    def served(self, skipped: Container[str] = frozenset()) -> pa.RecordBatch:
        """Return the rows that belong to this epoch, in order: all but the deferred ones and the ids `skipped`."""
        receipts = self.head.receipts
        serves = [not receipt.deferred and receipt.message_id not in skipped for receipt in receipts]
        return self.rows if all(serves) else rows_at(self.rows, itertools.compress(itertools.count(), serves))


def encode(segment: Segment) -> bytes:
    head = segment.head
    document = {
        "origin": vars(head.origin),
        "chain": vars(head.chain),
        "deleted": sorted(head.deleted),
        "receipts": head.receipts,
        "calls": head.calls,
        "sizes": head.sizes,
        "query": head.query,
    }
    first = json.dumps(document, separators=(",", ":")).encode()
    second = _to_ipc(_without_empty_columns(segment.rows), "zstd" if segment.rows.nbytes >= _COMPRESSED_FROM else None)
    header = _HEADER.pack(_MAGIC, len(first), zlib.crc32(first), second.size, zlib.crc32(second))
    return b"".join((header, _CRC.pack(zlib.crc32(header)), first, second))


def decode(data: bytes, name: str) -> Segment:
    """Return the segment whose bytes are `data`. Raises JournalCorruptError, naming the object `name`."""
    receipts_end, receipts_crc, end, rows_crc = _lengths(data, name)
    sections = memoryview(data)  # slices of it are no copies
    head = _head(sections[HEADER_LENGTH:receipts_end], receipts_crc, name)
    rows = _from_ipc(sections[receipts_end:end], rows_crc, name)
    if rows.num_rows != len(head.receipts):
        raise _corrupt(name, "its rows do not fit its receipts")
    rows = _with_all_columns(rows, name)
    if rows.column("messageId").to_pylist() != [receipt.message_id for receipt in head.receipts]:
        raise _corrupt(name, "its rows are not those of its receipts")
    bodies = rows.column("body")
    if bodies.null_count and not bodies.is_null().equals(rows.column(_IS_BODILESS).is_valid()):
        raise _corrupt(name, "a row has no body")
    return Segment(head, rows)


def _without_empty_columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return `rows` without the optional columns of which no row has a value, such as those of options not used."""
    count = len(_ALWAYS)
    while count < rows.num_columns and rows.column(count).null_count == rows.num_rows:
        count += 1
    if count == rows.num_columns:
        return pa.RecordBatch.from_arrays(rows.columns[: len(_ALWAYS)], schema=_ALWAYS)
    return rows


def _with_all_columns(rows: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """Return `rows` with all of the source's columns; of those they lack, no row has a value."""
    if rows.schema == ARROW_SCHEMA:
        return rows
    if rows.schema != _ALWAYS:
        raise _corrupt(name, "its rows do not have the source's columns")
    nothing = [pa.nulls(rows.num_rows, each.type) for each in _OPTIONAL]
    return pa.RecordBatch.from_arrays([*rows.columns, *nothing], schema=ARROW_SCHEMA)


def decode_head(read: Callable[[int, int], bytes | None], name: str) -> Head | None:
    """Return the head of the segment of which `read(start, length)` returns bytes; None if there is none."""
    guess = 1 << 16  # holds the receipts of about 200 messages, so that a small segment takes one read
    head = read(0, guess)
    if head is None:
        return None
    receipts_end, crc, _, _ = _lengths(head, name)
    if receipts_end > len(head) == guess:
        rest = read(guess, receipts_end - guess)
        if rest is None:
            return None  # dropped since
        head += rest
    return _head(head[HEADER_LENGTH:receipts_end], crc, name)


def _lengths(data: bytes, name: str) -> tuple[int, int, int, int]:
    if len(data) < HEADER_LENGTH or data[: len(_MAGIC)] != _MAGIC:
        raise _corrupt(name, "it is not a segment of this format")
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    if crc != zlib.crc32(data[: _HEADER.size]):
        raise _corrupt(name, "its header is damaged")
    _, receipts, receipts_crc, rows, rows_crc = _HEADER.unpack_from(data)
    if max(receipts, rows) > _LONGEST_SECTION:
        raise _corrupt(name, "its header states an impossible length")
    return HEADER_LENGTH + receipts, receipts_crc, HEADER_LENGTH + receipts + rows, rows_crc


def _head(data: bytes | memoryview, crc: int, name: str) -> Head:
    _require_whole(data, crc, name)
    try:
        document = json.loads(bytes(data))
        deleted = texts(document["deleted"])
        receipts = _receipts(document["receipts"])
        receives, failed = map(_whole, document["calls"])
        calls, sizes, query = CallCounts(receives, failed), tuple(map(_whole, document["sizes"])), document["query"]
        if len(sizes) != len(receipts) or (query is not None and not isinstance(query, str)):
            raise ValueError(query)
        return Head(
            _origin(document["origin"]), receipts, frozenset(deleted), _chain(document["chain"]), calls, sizes, query
        )
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        raise _corrupt(name, "its receipts do not parse") from None


def _origin(document: Mapping[str, Any]) -> Origin:
    """Return the origin from its `vars`. Raises TypeError or ValueError for anything else."""
    origin = Origin(**document)
    for each in fields(Origin):
        if type(getattr(origin, each.name)) is not {"str": str, "int": int, "bool": bool}[str(each.type)]:
            raise ValueError(each.name)
    numbers = origin.epoch - 1, origin.partition, origin.partitions - origin.partition - 1, origin.plan, origin.link
    if document.keys() != vars(origin).keys() or min(numbers) < 0:
        raise ValueError(document)
    return origin


def _chain(document: Mapping[str, Any]) -> Chain:
    deferring, unconfirmed = tuple(map(_whole, document["deferring"])), _receipts(document["unconfirmed"])
    payloads = tuple(from_url(each).url for each in texts(document["payloads"]))
    chain = Chain(**{**document, "deferring": deferring, "unconfirmed": unconfirmed, "payloads": payloads})
    if document.keys() != vars(chain).keys() or type(chain.is_last) is not bool:
        raise ValueError(document)
    for number in (chain.served, chain.size, chain.groups, 0 if chain.oldest_ms is None else chain.oldest_ms):
        _whole(number)
    return chain


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def _receipts(lists: Any) -> tuple[Receipt, ...]:
    """Return the receipts that JSON has made lists of. Raises TypeError or ValueError for anything else."""
    if type(lists) is not list:
        raise ValueError(lists)
    receipts = []
    for values in lists:
        if tuple(map(type, values)) not in _KINDS:
            raise ValueError(values)
        receipt = Receipt._make(values)
        if not 0 <= receipt.sequence_number < _FIRST_IMPOSSIBLE_NUMBER or not math.isfinite(receipt.received_at):
            raise ValueError(values)
        if receipt.payload:
            from_url(receipt.payload)
        receipts.append(receipt)
    return tuple(receipts)


def _to_ipc(batch: pa.RecordBatch, compression: str | None) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    # Threads would only help with many large columns; a worker has one core of its executor anyway.
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _from_ipc(data: bytes | memoryview, crc: int, name: str) -> pa.RecordBatch:
    _require_whole(data, crc, name)
    try:
        with pa.ipc.open_stream(data, options=pa.ipc.IpcReadOptions(use_threads=False)) as reader:
            batch = reader.read_next_batch()
        # Arrow trusts offsets and lengths inside a batch, and would read wherever they point.
        batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, MemoryError, StopIteration) as error:
        raise _corrupt(name, f"Arrow cannot read it ({type(error).__name__})") from None
    return batch


def _require_whole(data: bytes | memoryview, crc: int, name: str) -> None:
    if zlib.crc32(data) != crc:
        raise _corrupt(name, "a checksum does not match")


def _corrupt(name: str, reason: str) -> JournalCorruptError:
    return JournalCorruptError(
        f"'{name}' in the journal cannot be used: {reason}. Restore the object. With deleteAfter=commit its messages "
        "are still in the queue: if it is removed instead, they come again once their holds have lapsed, perhaps a "
        "second time for the sink. With deleteAfter=journal it may be their only copy."
    )
