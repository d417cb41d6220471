"""A segment's bytes: what goes in comes out, and whatever is damaged is told, never parsed."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sqs_fifo_spark.aws.calls import NO_CALLS, CallCounts
from sqs_fifo_spark.columns import ARROW_SCHEMA
from sqs_fifo_spark.errors import JournalCorruptError
from sqs_fifo_spark.source.message import Message, Receipt, from_arrow, to_arrow
from sqs_fifo_spark.source.segment import HEADER_LENGTH, Chain, Head, Origin, Segment, decode, decode_head, encode
from tests.helpers import raises_one_line
from tests.unit.source.stores import NAME, message, sections, signed, with_told

pytestmark = pytest.mark.law("source-3")

ORIGIN = Origin(journal="j", epoch=7, partitions=4, partition=3, writer="w", plan=0, after="")
LARGEST = (1 << 128) - 1
WHOLE = Chain(is_last=True)


def segment(
    *messages: Message,
    origin: Origin = ORIGIN,
    chain: Chain = WHOLE,
    deleted: frozenset[str] = frozenset(),
    calls: CallCounts = NO_CALLS,
) -> Segment:
    sizes = tuple(each.size for each in messages)
    head = Head(origin, tuple(each.receipt for each in messages), deleted, chain, calls, sizes)
    return Segment(head, to_arrow(messages))


def deferred(each: Message) -> Message:
    return each._replace(receipt=each.receipt._replace(deferred=True))


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
    "deferred": segment(message(1), deferred(message(2)), message(3)),
    "a link among others": segment(
        message(5),
        deferred(message(6)),
        origin=replace(ORIGIN, writer="x", plan=9, after="6/9", link=2, deletes=True),
        chain=Chain(
            served=4,
            size=15,
            oldest_ms=1_700_000_000_000,
            deferring=(0, 2),
            unconfirmed=(message(3).receipt, message(4, sequence=LARGEST).receipt),
        ),
        deleted=frozenset({"id-8", "id-9"}),
        calls=CallCounts(receives=12, failed=3),
    ),
    "of a query": Segment(replace(segment(message(1)).head, query="6e0"), segment(message(1)).rows),
    "an empty last link": segment(chain=Chain(True, 2, 6, 1, (), (message(1).receipt, message(2).receipt))),
}


@pytest.mark.parametrize("content", SEGMENTS.values(), ids=list(SEGMENTS))
def test_a_segment_comes_back_as_it_was_and_so_do_its_messages(content: Segment) -> None:
    """Origin, chain, receipts and rows, in order; a message carried over is written as it stood here."""
    found = decode(encode(content), NAME)
    assert found.head == content.head
    assert found.rows.equals(content.rows)
    assert found.rows.schema == ARROW_SCHEMA
    messages = from_arrow(found.head.receipts, found.rows, found.head.sizes)
    assert to_arrow(messages).equals(content.rows)
    assert [each.receipt for each in messages] == list(content.head.receipts)


def test_size_of_a_message_survives() -> None:
    """Body and attributes count as SQS counts them, before and after."""
    original = message(1, body="€", attributes=True)
    found = decode(encode(segment(original)), NAME)
    (again,) = from_arrow(found.head.receipts, found.rows, found.head.sizes)
    assert again.size == original.size == 3 + 14 + 9 + 2


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
    assert decode_head(reader(data, log), NAME) == content.head
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
    read = reader(encode(SEGMENTS["many"]))
    assert decode_head(lambda start, length: None if start else read(start, length), NAME) is None


def test_truncated_range_read_is_damage() -> None:
    """An object cut within its receipts is not taken for a shorter one."""
    data = encode(SEGMENTS["many"])
    for length in (0, 5, HEADER_LENGTH - 1, HEADER_LENGTH, HEADER_LENGTH + 100, (1 << 16) + 1):
        with pytest.raises(JournalCorruptError):
            decode_head(reader(data[:length]), NAME)


def test_receipts_are_read_though_the_rows_are_damaged() -> None:
    """The driver needs nothing of the bodies."""
    data = encode(SEGMENTS["one"])
    assert decode_head(reader(data[:-1] + bytes([data[-1] ^ 1])), NAME) == SEGMENTS["one"].head


# Damage


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00" * 200, b"SQSFIFO1", b"SQSFIFO2" + b"\x00" * 100, b"PAR1" * 50, b"<html>not found</html>" * 9],
    ids=["empty", "zeros", "magic alone", "another version", "parquet", "html"],
)
def test_foreign_bytes_are_told(data: bytes) -> None:
    """An object that is no segment is named, in one line, and nothing of it is quoted."""
    for read in (lambda: decode(data, NAME), lambda: decode_head(reader(data), NAME)):
        with raises_one_line(JournalCorruptError, match=NAME) as told:
            read()
        assert "html" not in str(told.value)


def test_bodies_and_handles_stay_out_of_reprs() -> None:
    """A segment or a receipt in a log line shows neither."""
    shown = repr(segment(message(1, body="secret body")))
    assert "secret body" not in shown
    assert "handle-1" not in shown


# The chain


def receipts(*numbers: int, lapsed: tuple[int, ...] = ()) -> tuple[Receipt, ...]:
    """Receipts of messages that were sent at `number` milliseconds; those in `lapsed` are deferred."""
    return tuple(message(number).receipt._replace(sent_at_ms=number, deferred=number in lapsed) for number in numbers)


def test_a_chain_counts_what_all_of_its_links_serve() -> None:
    """Also when it was sent, at the earliest; what a link defers does not count, and its link is named.

    Of groups, what one link has at most.
    """
    first = Chain().with_link(0, (), receipts(5, 4, 3, lapsed=(3,)), size=30, is_last=False)
    assert first == Chain(False, served=2, size=30, oldest_ms=4, deferring=(0,), groups=1)
    second = first.with_link(1, receipts(5, 4), receipts(6, 7), size=12, is_last=False)
    assert second == Chain(False, served=4, size=42, oldest_ms=4, deferring=(0,), unconfirmed=receipts(5, 4), groups=1)
    third = second.with_link(2, receipts(7), receipts(1, 2, lapsed=(1,)), size=0, is_last=True)
    assert third == Chain(True, served=5, size=42, oldest_ms=2, deferring=(0, 2), unconfirmed=receipts(7), groups=1)


def test_a_chain_tells_of_how_many_groups_a_link_has_most() -> None:
    """Deferred messages do not count."""
    several = tuple(each._replace(message_group_id=f"g{index // 2}") for index, each in enumerate(receipts(1, 2, 3, 4)))
    chain = Chain().with_link(0, (), (*several, *receipts(9, lapsed=(9,))), is_last=False)
    assert chain.groups == 2
    assert chain.with_link(1, (), several[:1], is_last=True).groups == 2


def test_an_empty_link_adds_nothing_to_its_chain() -> None:
    """As the one with which the driver closes it: what counted before counts on."""
    assert Chain().with_link(0, (), (), is_last=True) == Chain(is_last=True)
    whole = Chain(False, 3, 20, 7, (1,), receipts(1))
    assert whole.with_link(2, receipts(1, 2), (), is_last=True) == Chain(True, 3, 20, 7, (1,), receipts(1, 2))


def test_a_chain_that_only_defers_serves_nothing() -> None:
    """It has no oldest message, and its link is to be read."""
    chain = Chain().with_link(0, (), receipts(1, 2, lapsed=(1, 2)), is_last=True)
    assert (chain.served, chain.oldest_ms, chain.deferring) == (0, None, (0,))


def test_in_flight_is_what_the_tail_serves_and_what_it_names() -> None:
    """Not what it defers: that is held, and served by a later epoch."""
    tail = Head(ORIGIN, receipts(3, 4, lapsed=(3,)), chain=Chain(unconfirmed=receipts(1, 2)))
    assert tail.in_flight() == receipts(4, 1, 2)
    assert Head(ORIGIN, ()).in_flight() == ()


def test_unconfirmed_receipts_are_no_rows() -> None:
    """They stand beside the receipts, and a reader of the rows sees nothing of them."""
    link = SEGMENTS["a link among others"]
    found = decode(encode(link), NAME)
    assert found.served().column("messageId").to_pylist() == ["id-5"]
    assert [each.message_id for each in found.head.chain.unconfirmed] == ["id-3", "id-4"]


LINK = encode(SEGMENTS["a link among others"])


def told() -> dict[str, Any]:
    """Return what this link says in front of its rows."""
    found: dict[str, Any] = json.loads(sections(LINK)[0])
    return found


def require_told(changed: dict[str, Any], match: str = "its receipts do not parse") -> None:
    """The link is refused with these values in the place of its own."""
    data = with_told(LINK, **{key: json.dumps(value).encode() for key, value in changed.items()})
    with pytest.raises(JournalCorruptError, match=match):
        decode(data, NAME)


@pytest.mark.parametrize(
    ("section", "texts"),
    [
        ("sizes", ["null", "7", "[-1]", '["3"]', "[3, 3]", "[]"]),
        ("calls", ["{", "null", "7", '"text"', '{"x": 1}', '["a", 1]', "[1, -1]", "[1, 2, 3]", "[1.5]"]),
    ],
)
def test_sizes_and_calls_that_are_damaged_are_told(section: str, texts: list[str]) -> None:
    """A task's memory depends on sizes; who has damaged figures may have damaged more."""
    for text in texts:
        with pytest.raises(JournalCorruptError, match=NAME):
            decode(with_told(encode(SEGMENTS["one"]), **{section: text.encode()}), NAME)


@pytest.mark.parametrize(
    ("section", "key", "values"),
    [
        ("chain", "is_last", [None, 0, 1, "true", []]),
        ("chain", "served", [None, -1, 1.0, True, "1", 1e400]),
        ("chain", "size", [None, -1, 1.0, True, "1"]),
        ("chain", "groups", [None, -1, 1.0, True, "1"]),
        ("chain", "oldest_ms", [-1, 1.5, "1", False, []]),
        ("chain", "deferring", [None, 0, "01", [-1], [None], ["0"], [0.0], [True], {"0": 0, "a": 1}]),
        ("chain", "unconfirmed", [None, 0, {}, "", [None], ["a"], [[]]]),
        ("chain", "surplus", [1]),
        ("origin", "journal", [None, 7, ["j"]]),
        ("origin", "epoch", [None, 0, -7, 7.0, "7", True]),
        ("origin", "partitions", [None, 3, 0, "4"]),
        ("origin", "partition", [None, -1, 4, "3"]),
        ("origin", "writer", [None, 7]),
        ("origin", "plan", [None, -1, "0", False]),
        ("origin", "after", [None, 41]),
        ("origin", "link", [None, -1, "0", 0.0, False]),
        ("origin", "deletes", [None, 0, 1, "false"]),
        ("origin", "surplus", [1]),
    ],
)
def test_a_value_that_cannot_be_is_told(section: str, key: str, values: list[object]) -> None:
    """Of each part of origin and chain, under right checksums: it would fail much later, and far from its cause."""
    sound = told()[section]
    assert decode(with_told(LINK, **{section: json.dumps(sound).encode()}), NAME).head == decode(LINK, NAME).head
    for value in values:
        require_told({section: {**sound, key: value}})


@pytest.mark.parametrize("section", ["", "origin", "chain"])
def test_a_value_that_is_missing_is_told(section: str) -> None:
    for key in told()[section] if section else told():
        sound = told()
        del (sound[section] if section else sound)[key]
        with pytest.raises(JournalCorruptError, match="its receipts do not parse"):
            decode(signed(json.dumps(sound).encode(), sections(LINK)[1]), NAME)


@pytest.mark.parametrize(
    ("place", "values"),
    [
        *((place, [None, 7, ["a"]]) for place in range(3)),
        *((place, [None, "1", 1.0, True]) for place in (3, 4, 5, 7)),
        (3, [-1, 10**40]),
        (6, [None, "1", True, math.nan, math.inf, 10**400]),
        (8, [None, 0, "false"]),
    ],
)
@pytest.mark.parametrize("part", ["receipts", "unconfirmed"])
def test_a_value_that_no_receipt_has_is_told(part: str, place: int, values: list[object]) -> None:
    """Of each of its fields: such a receipt would be compared, or sent to SQS."""
    for value in values:
        changed = told()
        (changed if part == "receipts" else changed["chain"])[part][1][place] = value
        require_told(changed)


@pytest.mark.parametrize("change", [[], [1]])
def test_a_receipt_of_another_length_is_told(change: list[int]) -> None:
    rows = told()["receipts"]
    rows[1] = [*rows[1], *change] if change else rows[1][:-1]
    require_told({"receipts": rows})


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_count_of_receipts_that_the_rows_belie_is_told(count: int) -> None:
    """Two messages have rows; one more or less would be served, or deleted, as what it is not."""
    receipts = (told()["receipts"] * 2)[:count]
    require_told({"receipts": receipts, "sizes": [9] * count}, "its rows do not fit its receipts")
