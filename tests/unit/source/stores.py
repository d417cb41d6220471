"""A journal on a store whose puts may take effect and say something else, and what stands in its segments."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from sqs_fifo_spark.errors import JournalUnavailableError
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.message import Message, Receipt, from_sqs, to_arrow
from sqs_fifo_spark.source.segment import HEADER_LENGTH, Chain, Head, Origin, Segment

ARN = "arn:aws:sqs:eu-west-1:123456789012:bids.fifo"
NAME = "epochs/00000000000000000007/0003-000000-00000000000000000000"
HEADER = struct.Struct("<8sQIQI")


class FaultyStore:
    """A store whose puts may take effect and say something else, and which can be disturbed before a put."""

    def __init__(self, root: Path) -> None:
        self._store = FileStore(root)
        self.location = self._store.location
        self.answer: Callable[[str, bool], bool] = lambda name, done: done
        self.before_put: Callable[[str], None] = lambda name: None
        self.get = self._store.get
        self.get_range = self._store.get_range
        self.list = self._store.list

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self.before_put(name)
        return self.answer(name, self._store.put_if_absent(name, data))

    def delete(self, names: Iterable[str]) -> None:
        self._store.delete(names)


def say_no(name: str, done: bool) -> bool:
    return False


def raise_after(name: str, done: bool) -> bool:
    raise JournalUnavailableError(f"no answer about '{name}'")


def receipt(number: int) -> Receipt:
    return Receipt(f"id-{number}", f"handle-{number}", "a", (1 << 100) + number, 1, 1_700_000_000_000, 1.5, 0)


def segment(
    journal: Journal,
    *numbers: int,
    writer: str = "w",
    epoch: int = 1,
    partition: int = 0,
    plan: int = 0,
    link: int = 0,
    is_last: bool = True,
) -> Segment:
    receipts = [receipt(number) for number in numbers]
    rows = to_arrow(
        [
            Message(each, (each.message_id, f"body {each.message_id}", "a", *[None] * 8, [], *[None] * 4), 9)
            for each in receipts
        ]
    )
    origin = Origin(journal.id, epoch, 2, partition, writer, plan, "", link)
    return Segment(Head(origin, tuple(receipts), chain=Chain(is_last), sizes=(9,) * len(receipts)), rows)


def message(number: int, *, body: str = "bid", sequence: int | None = None, attributes: bool = False) -> Message:
    """A message as a receive would give it."""
    answer = {
        "MessageId": f"id-{number}",
        "ReceiptHandle": f"handle-{number}",
        "Body": body,
        "Attributes": {
            "MessageGroupId": "a",
            "MessageDeduplicationId": str(number),
            "SequenceNumber": str(number if sequence is None else sequence),
            "SentTimestamp": "1700000000123",
            "ApproximateFirstReceiveTimestamp": "1700000001456",
            "ApproximateReceiveCount": "2",
            "SenderId": "sender",
        },
    }
    if attributes:
        answer["MessageAttributes"] = {
            "price": {"DataType": "Number", "StringValue": "100"},
            "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
        }
    return from_sqs(answer, receive=number // 10, received_at=1_700_000_002.25)


def sections(data: bytes) -> tuple[bytes, bytes]:
    """Return what a segment says of itself, and its rows."""
    _, first, _, second, _ = HEADER.unpack_from(data)
    return data[HEADER_LENGTH : HEADER_LENGTH + first], data[HEADER_LENGTH + first : HEADER_LENGTH + first + second]


def signed(receipts: bytes, rows: bytes, lengths: tuple[int, int] | None = None) -> bytes:
    """Return a segment of these sections whose checksums are right."""
    first, second = lengths or (len(receipts), len(rows))
    header = HEADER.pack(b"SQSFIFO1", first, zlib.crc32(receipts), second, zlib.crc32(rows))
    return header + struct.pack("<I", zlib.crc32(header)) + receipts + rows


def with_told(data: bytes, **changed: bytes | None) -> bytes:
    """Return a segment that has this JSON for some of what it says of itself, under right checksums; or not at all."""
    first, rows = sections(data)
    parts = {key: json.dumps(value).encode() for key, value in json.loads(first).items()}
    parts.update({key: text for key, text in changed.items() if text is not None})
    for key in [key for key, text in changed.items() if text is None]:
        del parts[key]
    return signed(b"{%s}" % b",".join(b'"%s":%s' % (key.encode(), text) for key, text in parts.items()), rows)


def opened(journal: Journal) -> int:
    """Do with a journal what a driver does first, and return its claim."""
    claim = journal.claim({})
    journal.put_ledger(journal.ledger())
    return claim
