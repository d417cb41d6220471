"""A segment's bytes: what goes in comes out, and whatever is damaged is told, never parsed."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from sqs_fifo_spark.columns import ARROW_SCHEMA
from sqs_fifo_spark.errors import JournalCorruptError
from sqs_fifo_spark.source.message import Message, from_arrow, from_sqs, to_arrow
from sqs_fifo_spark.source.segment import _METADATA, HEADER_LENGTH, Head, Origin, Segment, decode, decode_head, encode

NAME = "epochs/00000000000000000007/0003-000000"
ORIGIN = Origin(journal="j", epoch=7, partitions=4, partition=3, writer="w")
LARGEST = (1 << 128) - 1


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


def segment(*messages: Message) -> Segment:
    return Segment(ORIGIN, tuple(each.receipt for each in messages), to_arrow(messages))


def reader(data: bytes, log: list[tuple[int, int]] | None = None) -> Callable[[int, int], bytes]:
    def read(start: int, length: int) -> bytes:
        if log is not None:
            log.append((start, length))
        return data[start : start + length]

    return read


SEGMENTS = {
    "empty": segment(),
    "one": segment(message(1)),
    "many": segment(*(message(number) for number in range(1, 2_500))),
    "128 bits": segment(message(1, sequence=LARGEST - 1), message(2, sequence=LARGEST)),
    "attributes": segment(message(1, attributes=True), message(2)),
    "unicode": segment(message(1, body="Gebot für 100 € \U0001f600\t\n"), message(2, body="\ufffd")),
    "deferred": segment(
        message(1), replace(message(2), receipt=replace(message(2).receipt, deferred=True)), message(3)
    ),
}


@pytest.mark.parametrize("content", SEGMENTS.values(), ids=list(SEGMENTS))
def test_segment_comes_back_as_it_was(content: Segment) -> None:
    """Origin, receipts and rows, in order."""
    found = decode(encode(content), NAME)
    assert found.origin == content.origin
    assert found.receipts == content.receipts
    assert found.rows.equals(content.rows)
    assert found.rows.schema == ARROW_SCHEMA


@pytest.mark.parametrize("content", SEGMENTS.values(), ids=list(SEGMENTS))
def test_messages_come_back_from_a_segment(content: Segment) -> None:
    """A message carried over to the next epoch is written there as it stood here."""
    found = decode(encode(content), NAME)
    messages = from_arrow(found.receipts, found.rows)
    assert to_arrow(messages).equals(content.rows)
    assert [each.receipt for each in messages] == list(content.receipts)


def test_size_of_a_message_survives() -> None:
    """Body and attributes count as SQS counts them, before and after."""
    original = message(1, body="€", attributes=True)
    found = decode(encode(segment(original)), NAME)
    assert from_arrow(found.receipts, found.rows)[0].size == original.size == 3 + 14 + 9 + 2


def test_same_content_gives_the_same_bytes() -> None:
    """Nothing of the moment is written."""
    assert encode(SEGMENTS["many"]) == encode(SEGMENTS["many"])


def test_deferred_messages_are_not_served() -> None:
    """They stand in the segment and are no row of this epoch."""
    served = SEGMENTS["deferred"].served()
    assert served.column("messageId").to_pylist() == ["id-1", "id-3"]
    assert SEGMENTS["empty"].served().num_rows == 0


# Receipts without bodies


@pytest.mark.parametrize("content", SEGMENTS.values(), ids=list(SEGMENTS))
def test_receipts_are_read_without_the_rows(content: Segment) -> None:
    """The driver reads the head of the object and, if that is not all of the receipts, the rest of them."""
    data = encode(content)
    log: list[tuple[int, int]] = []
    assert decode_head(reader(data, log), NAME) == Head(content.origin, content.receipts)
    (receipts,) = struct.unpack_from("<Q", data, 8)
    assert len(log) <= 2
    assert log[0][0] == 0
    if len(log) == 2:
        assert sum(log[1]) == HEADER_LENGTH + receipts


def test_receipts_of_large_bodies_are_read_without_them() -> None:
    """Of an object of megabytes only its first 64 KiB are asked for."""
    dice = random.Random(0)
    data = encode(segment(*(message(number, body=dice.randbytes(60_000).hex()) for number in range(9))))
    log: list[tuple[int, int]] = []
    found = decode_head(reader(data, log), NAME)
    assert found is not None
    assert len(found.receipts) == 9
    assert sum(length for _, length in log) <= 1 << 16 < len(data)


def test_object_that_is_gone_has_no_receipts() -> None:
    """None, not an error: the driver's listing may be older than a drop."""
    assert decode_head(lambda start, length: None, NAME) is None


def test_truncated_range_read_is_damage() -> None:
    """An object cut within its receipts is not taken for a shorter one."""
    data = encode(SEGMENTS["many"])
    for length in (0, 5, HEADER_LENGTH - 1, HEADER_LENGTH, HEADER_LENGTH + 100, (1 << 16) + 1):
        with pytest.raises(JournalCorruptError):
            decode_head(reader(data[:length]), NAME)


def test_receipts_are_read_though_the_rows_are_damaged() -> None:
    """What the driver needs does not depend on the bodies."""
    data = encode(SEGMENTS["one"])
    assert decode_head(reader(data[:-1] + bytes([data[-1] ^ 1])), NAME) == Head(ORIGIN, SEGMENTS["one"].receipts)


# Damage


def test_every_single_byte_of_damage_is_told() -> None:
    """A changed byte anywhere, in header, receipts or rows, is JournalCorruptError, never a crash of Arrow's."""
    data = encode(segment(message(1, attributes=True)))
    for position in range(len(data)):
        for change in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[position] ^= change
            with pytest.raises(JournalCorruptError):
                decode(bytes(damaged), NAME)


def test_every_truncation_is_told() -> None:
    """Bytes missing at the end are damage, wherever the object was cut."""
    data = encode(SEGMENTS["one"])
    for length in range(len(data)):
        with pytest.raises(JournalCorruptError):
            decode(data[:length], NAME)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00" * 200, b"SQSFIFO1", b"SQSFIFO2" + b"\x00" * 100, b"PAR1" * 50, b"<html>not found</html>" * 9],
    ids=["empty", "zeros", "magic alone", "another version", "parquet", "html"],
)
def test_foreign_bytes_are_told(data: bytes) -> None:
    """An object that is no segment is named, in one line, and nothing of it is quoted."""
    for read in (lambda: decode(data, NAME), lambda: decode_head(reader(data), NAME)):
        with pytest.raises(JournalCorruptError, match=NAME) as told:
            read()
        assert "\n" not in str(told.value)
        assert "html" not in str(told.value)


def forge(first: bytes, second: bytes) -> bytes:
    """A segment with sections of one's own and right checksums."""
    header = struct.pack("<8sQIQI", b"SQSFIFO1", len(first), zlib.crc32(first), len(second), zlib.crc32(second))
    return header + struct.pack("<I", zlib.crc32(header)) + first + second


def sections(data: bytes) -> tuple[bytes, bytes]:
    (length,) = struct.unpack_from("<Q", data, 8)
    return data[HEADER_LENGTH : HEADER_LENGTH + length], data[HEADER_LENGTH + length :]


def test_sections_that_do_not_fit_are_told_in_spite_of_right_checksums() -> None:
    """Other schemas, other counts and no Arrow at all."""
    first, second = sections(encode(SEGMENTS["one"]))
    more = sections(encode(SEGMENTS["deferred"]))[1]
    pairs = [
        (first, first),
        (second, second),
        (first, more),
        (b"", second),
        (first, b""),
        (first, b"x"),
        (b"x", second),
    ]
    for forged in (forge(*pair) for pair in pairs):
        with pytest.raises(JournalCorruptError):
            decode(forged, NAME)


def test_bodies_and_handles_stay_out_of_reprs() -> None:
    """A segment or a receipt in a log line shows neither."""
    shown = repr(segment(message(1, body="secret body")))
    assert "secret body" not in shown
    assert "handle-1" not in shown


def test_a_segment_that_does_not_say_what_its_epoch_follows_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before it was written there: what stands unsettled in a journal survives an upgrade."""
    whole = segment(message(1))
    with monkeypatch.context() as before:
        before.setattr("sqs_fifo_spark.source.segment._METADATA", _METADATA[:-1])
        data = encode(replace(whole, origin=replace(ORIGIN, after="41/3")))
    assert decode(data, NAME).origin == ORIGIN
