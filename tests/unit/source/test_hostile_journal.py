"""Foreign content of the journal or the checkpoint is refused: it is never believed, and breaks nothing.

A plain fuzz with fixed seeds. That Arrow does not bring the process down is shown by the test's own survival.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from sqs_fifo_spark.columns import ARROW_SCHEMA
from sqs_fifo_spark.errors import JournalCorruptError, JournalMismatchError, SqsFifoError
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.journal.identity import FORMAT
from sqs_fifo_spark.options import parse_source_options
from sqs_fifo_spark.payloads.pointer import from_url
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.ledger import Ledger, UnconfirmedMessage
from sqs_fifo_spark.source.message import to_arrow
from sqs_fifo_spark.source.offset import MOST_PARTITIONS, EpochPlan, Offset
from sqs_fifo_spark.source.plan import Deal, PartitionPlan, Share
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.segment import Chain, Head, Origin, Segment, decode, decode_head, encode
from sqs_fifo_spark.source.task.partition import serve
from tests.helpers import raises_one_line
from tests.manual_clock import ManualClock
from tests.unit.source.stores import NAME, message, sections, signed, with_told

ARN = "arn:aws:sqs:us-east-1:000000000000:q.fifo"
LEDGER = "ledger/00000000000000000000-00000000000000000007.json"
MESSAGES = [message(number, body=f"body {number} " * 3, attributes=True) for number in range(1, 4)]
ROWS = to_arrow(MESSAGES)


def bytes_of(journal: str = "j", rows: pa.RecordBatch = ROWS) -> bytes:
    origin = Origin(journal=journal, epoch=7, partitions=4, partition=3, writer="w", plan=0, after="")
    chain = Chain(True, 4, 99, 1_700_000_000_000, (0,), (message(0).receipt,), payloads=("s3://bucket/key",))
    receipts, sizes = tuple(each.receipt for each in MESSAGES), tuple(each.size for each in MESSAGES)
    return encode(Segment(Head(origin, receipts, chain=chain, sizes=sizes), rows))


WHOLE = bytes_of()


def ipc(batches: list[pa.RecordBatch], schema: pa.Schema | None = None, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, schema or batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return cast(bytes, sink.getvalue().to_pybytes())


def is_told(data: bytes) -> bool:
    """Return whether the segment is refused, whole or its receipts alone; if not, it is sound."""
    told = is_head_told(data)
    try:
        found = decode(data, NAME)
        found.rows.validate(full=True)
        assert found.rows.num_rows == len(found.head.receipts)
        assert found.head.chain.served >= 0
        assert all(isinstance(each.receipt_handle, str) for each in found.head.in_flight())
        assert all(isinstance(body, str) for body in found.rows.column("body").to_pylist())
    except JournalCorruptError:
        return True
    assert not told, "its receipts are refused, but not the whole"
    return False


def is_head_told(data: bytes) -> bool:
    """Return whether its receipts alone are refused, in one line."""
    try:
        decode_head(lambda start, length: data[start : start + length], NAME)
    except JournalCorruptError as error:
        return NAME in str(error) and "\n" not in str(error)
    return False


def test_a_segment_cut_anywhere_is_refused() -> None:
    """At every byte, the empty object among them."""
    assert all(is_told(WHOLE[:length]) for length in range(len(WHOLE)))
    assert not is_told(WHOLE)


@pytest.mark.parametrize("change", [0x01, 0x80, 0xFF])
def test_a_segment_with_any_byte_changed_is_refused(change: int) -> None:
    """In header, receipts or rows; and Arrow does not bring the process down."""
    for place in range(len(WHOLE)):
        data = bytearray(WHOLE)
        data[place] ^= change
        assert is_told(bytes(data)), place


@pytest.mark.parametrize("section", [0, 1])
@pytest.mark.parametrize("compression", ["zstd", None])
def test_damage_under_right_checksums_is_refused_or_harmless(section: int, compression: str | None) -> None:
    """Somebody else's bytes: lengths and offsets that point anywhere, and text that is none."""
    dice = random.Random(section)
    original = [sections(WHOLE)[0], ipc([ROWS], compression=compression)]
    told = 0
    for _ in range(600):
        data = bytearray(original[section])
        for _ in range(dice.choice([1, 1, 3, 20])):
            place = dice.randrange(len(data))
            word = dice.choice([b"\x00", b"\xff", b"\x7f", bytes([dice.randrange(256)]), dice.randbytes(8)])
            data[place : place + len(word)] = word
        changed = [*original]
        changed[section] = bytes(data)
        told += is_told(signed(changed[0], changed[1]))
    assert told > 50


@pytest.mark.parametrize("length", [-1, 1 << 33, 1 << 62])
@pytest.mark.parametrize("compression", ["zstd", None])
def test_a_length_inside_arrow_is_not_believed(length: int, compression: str | None) -> None:
    """In the place of every aligned word in turn: refused, before memory is used for it."""
    rows = ipc([ROWS], compression=compression)
    before = peak_memory()
    for place in range(0, len(rows) - 8, 8):
        is_told(signed(sections(WHOLE)[0], rows[:place] + struct.pack("<q", length) + rows[place + 8 :]))
    assert peak_memory() - before < 256 << 20


@pytest.mark.parametrize("lengths", [(1 << 41, 8), (8, 1 << 41), (1 << 63, 8), ((1 << 64) - 1,) * 2, (1 << 39, 8)])
def test_a_length_in_the_header_is_not_believed(lengths: tuple[int, int], tmp_path: Path) -> None:
    """Nor is memory used for it, when the driver reads the receipts alone."""
    store = FileStore(tmp_path)
    data = signed(*sections(WHOLE), lengths)
    assert is_told(data)
    store.put_if_absent(NAME, data)
    with pytest.raises(JournalCorruptError):
        Journal(store, "j").receipts(NAME)


def test_other_peoples_arrow_is_refused() -> None:
    """Another schema, rows of other messages, no batch, a file, a missing value, no Arrow at all."""
    receipts, rows = sections(WHOLE)
    other = pa.RecordBatch.from_pydict({"x": [1, 2, 3]})
    nothing = pa.RecordBatch.from_pylist([{}] * 3, schema=ARROW_SCHEMA)
    no_body = pa.RecordBatch.from_pylist([{**row, "body": None} for row in ROWS.to_pylist()], schema=ARROW_SCHEMA)
    more = to_arrow([*MESSAGES, message(4)])
    for foreign in (other, nothing, no_body, more, ROWS.take([1, 0, 2]), ROWS.slice(1), ROWS.slice(0, 0)):
        assert is_told(signed(receipts, ipc([foreign])))
    for bare in (ipc([], ARROW_SCHEMA), b"", b"x", b"ARROW1\x00\x00" + rows, json.dumps({"body": "x"}).encode()):
        assert is_told(signed(receipts, bare))
        assert is_told(signed(bare, rows))
    assert is_told(signed(receipts, receipts))
    assert is_told(signed(rows, rows))


@pytest.mark.parametrize("section", ["origin", "chain", "deleted", "receipts"])
def test_what_a_segment_says_of_itself_is_believed_only_whole(section: str) -> None:
    """Each part of it: missing, no JSON, nested without end, each value missing or of another kind."""
    sound = json.loads(sections(WHOLE)[0])[section] or ["id-1"]

    def with_section(data: bytes | None) -> bytes:
        return with_told(WHOLE, **{section: data})

    assert not is_told(with_section(json.dumps(sound).encode()))
    harmless = [b"[]"] if section == "deleted" else []
    for data in [None, *NO_JSON, b"[1]", b'{"x": 1}', b'["a", 1]']:
        assert data in harmless or (is_told(with_section(data)) and is_head_told(with_section(data))), data
    assert sum(is_told(with_section(json.dumps(each).encode())) for each in changed_json(sound, ODD)) > 10


@pytest.mark.parametrize(("writer", "place"), [("w", len(MESSAGES)), ("another attempt", 1)])
def test_a_source_without_the_messages_that_it_should_have_is_refused(tmp_path: Path, writer: str, place: int) -> None:
    """Messages the driver saw are gone: the task says so, and receives nothing."""
    options = parse_source_options({"queueUrl": "http://localhost:1/0/q.fifo", "journalLocation": "/j"})
    store = FileStore(tmp_path)
    journal = Journal.create(store, ARN)
    store.put_if_absent(NAME, bytes_of(journal.id))
    deal = Deal((Share(0, NAME, writer, (0, place)),))
    plan = PartitionPlan(journal.id, 8, 1, 0, 10, 1 << 20, 0, "", 0, False, 0, deal.encode(), False)
    clock = ManualClock()
    with pytest.raises(JournalCorruptError, match="is not what the driver saw there"):
        list(serve(plan, Queue(options, clock), journal, options, clock))


IDENTITY = {"format": FORMAT, "journal": "j", "queueArn": ARN, "firstClaim": 7}
RECEIPT = MESSAGES[0].receipt._asdict()
SOUND = {
    "writer": "w",
    "unconfirmed": {"id-1": {"until": 1.0, "group": "g", "sequence": 1, "receipt": RECEIPT, "payload": "s3://b/k"}},
    "carried": {NAME: ["id-1"]},
    "plan": 3,
    "claim": 3,
    "generation": 2,
    "begunBy": 2,
    "begunAfter": [6, 1],
    "followed": Offset("j", 8, 2, 3, after=3, after_epoch=7, generation=2).to_json(),
    "payloads": ["s3://b/k/1"],
}
NO_JSON = [b"", b"{", b"\xff\xfe", b"[]", b'"text"', b"null", b"7", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 10_000]


class OneObject:
    """A store whose only object is called `name`."""

    location = "memory"

    def __init__(self, name: str, data: bytes) -> None:
        self._objects = {name: data}

    def get(self, name: str) -> bytes | None:
        return self._objects.get(name)

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        data = self.get(name)
        return None if data is None else data[start : start + length]

    def list(self, prefix: str) -> list[str]:
        return [name for name in self._objects if name.startswith(f"{prefix}/")]

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._objects.setdefault(name, data) is data

    def delete(self, names: Any) -> None:
        for name in names:
            self._objects.pop(name, None)


def changed_json(sound: Any, values: list[Any]) -> Iterator[Any]:
    """Yield `sound` with each of its parts in turn missing, or replaced by each of `values`."""
    yield from values
    if isinstance(sound, dict):
        for key, part in sound.items():
            yield {name: each for name, each in sound.items() if name != key}
            for changed in changed_json(part, values):
                yield {**sound, key: changed}
    elif isinstance(sound, list):
        for changed in changed_json(sound[0], values):
            yield [changed]


ODD: list[Any] = [None, True, -1, 10**400, 1.5, float("nan"), "", "text", [], [1], [None], {}, {"x": 1}, [[]], {"": {}}]


def test_a_ledger_is_believed_only_whole() -> None:
    """Cut at every byte, no JSON, nested without end, and each part in turn missing or of another kind."""
    text = json.dumps(SOUND).encode()
    assert Journal(OneObject(LEDGER, text), "j").ledger().carried == {NAME: ("id-1",)}
    odd = [
        b"{}",
        b'{"unconfirmed": [], "carried": {}}',
        b'{"unconfirmed": {"id": {}}, "carried": {}}',
        b'{"unconfirmed": {"id": {"until": 1, "group": "g", "sequence": 1, "receipt": {"x": 1}}}, "carried": {}}',
        b'{"unconfirmed": {"id": null}, "carried": {}}',
        b'{"unconfirmed": {}, "carried": null}',
        b'{"unconfirmed": {}, "carried": {"name": null}}',
    ]
    for data in [*NO_JSON, *odd, *(text[:length] for length in range(len(text)))]:
        with raises_one_line(JournalCorruptError, match="ledger/0"):
            Journal(OneObject(LEDGER, data), "j").ledger()
    told = 0
    for changed in changed_json(SOUND, ODD):
        try:
            found = Journal(OneObject(LEDGER, json.dumps(changed).encode()), "j").ledger()
        except JournalCorruptError:
            told += 1
        else:
            assert_sound(found)
    assert told > 100


def assert_sound(ledger: Ledger) -> None:
    """All that the rest of the package relies on."""
    for message_id, entry in ledger.unconfirmed.items():
        assert isinstance(message_id, str)
        assert max(0.0, 1.0 - entry.until) >= 0
        if entry.receipt is not None:
            assert isinstance(entry.receipt.receipt_handle, str)
            assert max(entry.receipt.sequence_number, entry.receipt.receive_count, entry.receipt.received_at)
            assert entry.receipt.received_at - 1.0 < float("inf")
    for url in (*ledger.payloads, *(entry.payload for entry in ledger.unconfirmed.values() if entry.payload)):
        assert from_url(url).url == url
    if ledger.followed_by is not None:
        assert 0 <= ledger.followed_by.partitions <= MOST_PARTITIONS
        assert min(ledger.followed_by.of) >= 0
    for name, ids in ledger.carried.items():
        assert name.startswith("epochs/")
        assert all(isinstance(each, str) for each in ids)


@pytest.mark.parametrize(
    "name",
    [
        *("../../etc/passwd", "/etc/passwd", "journal.json", "", "epochs/7/0003-000000"),
        *(
            f"epochs/00000000000000000007/{name}"
            for name in ("../../journal.json", "..", "", "0003-000000", "spare-0123456789abcdef", "caught-../x")
        ),
        *(f"epochs/00000000000000000007/caught-00000000000000000000{end}" for end in ("\x00", "\n")),
    ],
)
def test_a_ledger_that_points_elsewhere_is_refused(name: str) -> None:
    """A name that no object of ours has is not even looked at."""
    data = json.dumps({**SOUND, "carried": {name: ["id-1"]}}).encode()
    with pytest.raises(JournalCorruptError, match=LEDGER):
        Journal(OneObject(LEDGER, data), "j").ledger()


def test_every_ledger_that_we_write_is_believed() -> None:
    """The check takes all that we write, 128-bit numbers too."""
    store = OneObject("x", b"")
    receipt = MESSAGES[0].receipt._replace(sequence_number=1 << 127)
    ledger = Ledger(
        7,
        {"id-1": UnconfirmedMessage(1.5, "g", 1 << 127, receipt), "id-2": UnconfirmedMessage(2, "g", 2, None)},
        {NAME: ("id-3",), "epochs/00000000000000000006/caught-00000000000000000007": ("id-4", "id-5")},
        2,
        3,
        1,
        2,
        EpochPlan(6, 1),
        Offset("j", 8, 2, 3, is_blind=True),
    )
    Journal(store, "j").put_ledger(ledger)
    assert Journal(store, "j").ledger() == ledger


def test_an_identity_is_believed_only_whole() -> None:
    """Damaged, of another kind, or an id that is none: the journal is not opened, nor taken for an absent one."""
    text = json.dumps(IDENTITY).encode()
    found = Journal.find(OneObject("journal.json", text), ARN)
    assert found is not None
    assert found.id == "j"
    forged = [{**IDENTITY, "journal": value} for value in ("../../x", "a\nb", "", "x" * 1_000, None, 7, ["j"])]
    forged += [{**IDENTITY, "firstClaim": value} for value in (0, -1, 1.5, "7", None, [7], 10**30)]
    forged += [{name: value for name, value in IDENTITY.items() if name != missing} for missing in IDENTITY]
    equal = [{**IDENTITY, "format": True}, {**IDENTITY, "firstClaim": True}]  # to 1, for Python
    harmless = [{**IDENTITY, "journal": "text"}, *equal]
    forged += [each for each in changed_json(IDENTITY, ODD) if each not in harmless]
    damaged = [*NO_JSON, *(text[:length] for length in range(len(text)))]
    damaged.append(json.dumps({name: value for name, value in IDENTITY.items() if name != "journal"}).encode())
    for data in damaged:
        with raises_one_line(JournalCorruptError, match=r"journal\.json"):
            Journal.find(OneObject("journal.json", data), ARN)
    for data in [*damaged, *(json.dumps(each).encode() for each in forged)]:
        with pytest.raises((JournalCorruptError, JournalMismatchError)):
            Journal.find(OneObject("journal.json", data), ARN)
        with pytest.raises(SqsFifoError):
            Journal.join(OneObject("journal.json", data), "another")


def peak_memory() -> int:
    """Return the most memory that this process ever used, in bytes."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
