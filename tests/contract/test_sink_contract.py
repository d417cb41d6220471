"""A row's weight by our count, by the local queue's, and by moto's where it counts: exact to the byte.

moto 5 counts the characters of bodies, and neither bytes nor attributes. So it only has to take what we send.
"""

from __future__ import annotations

import base64
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from sqs_fifo_spark.aws.calls import MAX_CALL_BYTES
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.local import FifoModel, SqsError, payload, validation
from sqs_fifo_spark.options import SinkOptions, parse_sink_options
from sqs_fifo_spark.pace import Pace as CallPace
from sqs_fifo_spark.sink.lanes import Stride
from sqs_fifo_spark.sink.outcome import ConfirmedRow
from sqs_fifo_spark.sink.outgoing import COLUMNS, OutgoingRow, RefusedRowError, RowForm, outgoing
from sqs_fifo_spark.sink.record import Record
from sqs_fifo_spark.sink.sender import Sender
from sqs_fifo_spark.sink.sink_queue import SinkQueue
from sqs_fifo_spark.sink.write import draft, prepare
from tests.contract.conftest import Queue

CHARACTERS = ["x", "é", "\ud7ff", "\U0001f600", "\n"]
"""One to four bytes each in UTF-8, and one that JSON writes as two characters."""
NAMES = ["k", "a-b.c_d", "n" * 256, "0", "Z", "y1", "y2", "y3", "y4", "y5"]

Pair = tuple[str, dict[str, Any]]


class Watched(SinkQueue):
    """The sink's queue, over HTTP. `sizes` has how many entries each call held, and how many bytes of ours."""

    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options, SYSTEM_CLOCK)
        self.sizes: list[tuple[int, int]] = []

    def _call(self, operation: str, wait_time_s: int = 0, **arguments: Any) -> Mapping[str, Any]:
        if operation == "send_message_batch":
            self.sizes.append((len(arguments["Entries"]), sum(map(weight, arguments["Entries"]))))
        return super()._call(operation, wait_time_s, **arguments)


def weight(entry: Mapping[str, Any]) -> int:
    """The local queue's own count of an entry."""
    sent = wire(entry)
    return payload.message_bytes(sent["MessageBody"].encode(), sent.get("MessageAttributes", {}))


def wire(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry as it stands on the wire, where bytes are base64."""
    attributes = {
        name: {
            key: base64.b64encode(given).decode() if isinstance(given, bytes) else given for key, given in value.items()
        }
        for name, value in entry.get("MessageAttributes", {}).items()
    }
    return {**entry, "MessageAttributes": attributes} if attributes else dict(entry)


def text(size: int, dice: random.Random) -> str:
    """A text of `size` bytes with characters of every length."""
    some = dice.choices(CHARACTERS, k=min(size // 4, 40))
    rest = size - len("".join(some).encode())
    return "".join(some) + "x" * rest


def pairs(count: int, dice: random.Random) -> list[Pair]:
    """So many attributes of every kind."""
    made: list[Pair] = []
    for name in dice.sample(NAMES, count):
        kind = dice.choice(["String", "Number", "Binary"])
        data_type = kind + dice.choice(["", ".int", ".é", ".\U0001f600"])
        value = text(dice.randint(1, 30), dice) if kind == "String" else str(dice.randint(-9999, 9999))
        binary = dice.randbytes(dice.randint(1, 30)) if kind == "Binary" else None
        made.append((name, {"dataType": data_type, "stringValue": None if binary else value, "binaryValue": binary}))
    return made


def row(
    size: int, dice: random.Random, *, number: int = 1, attributes: int = 3, limit: int = MAX_CALL_BYTES
) -> OutgoingRow:
    """A row of `size` bytes by the local queue's count, of a group of its own. Raises RefusedRowError if we do."""
    given = pairs(attributes, dice)
    empty = outgoing(_columns("x", number, given), RowForm(None, True, MAX_CALL_BYTES), first_row=number)[0]
    body = text(size - weight(empty.entry) + 1, dice)
    return outgoing(_columns(body, number, given), RowForm(None, True, limit), first_row=number)[0]


def _columns(body: str, number: int, given: list[Pair]) -> list[list[Any]]:
    values = {
        "body": body,
        "messageGroupId": f"g{number}",
        "messageDeduplicationId": f"d{number}",
        "messageAttributes": given,
        "awsTraceHeader": f"Root=1-{number}",
    }
    return [[values[name]] for name in COLUMNS]


def options_of(queue: Queue) -> SinkOptions:
    return parse_sink_options({"queueUrl": queue.url, "region": "us-east-1"})


def send(queue: Queue, rows: Sequence[OutgoingRow]) -> list[tuple[int, int]]:
    """Send as a task does, and return entries and bytes of each call."""
    watched = Watched(options_of(queue))
    sender = Sender(watched, Record(SYSTEM_CLOCK), SYSTEM_CLOCK, Stride())
    sender.add(rows)
    sender.finish()
    return watched.sizes


def arrived(queue: Queue) -> dict[str, tuple[str, dict[str, Any]]]:
    """Receive all there is: bodies and attributes by deduplication id."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    while messages := queue.receive(MessageAttributeNames=["All"]):
        for each in messages:
            found[each["Attributes"]["MessageDeduplicationId"]] = (each["Body"], each.get("MessageAttributes", {}))
            queue.delete(each)
    return found


def expected(rows: Sequence[OutgoingRow]) -> dict[str, tuple[str, dict[str, Any]]]:
    return {
        row.entry["MessageDeduplicationId"]: (row.entry["MessageBody"], row.entry.get("MessageAttributes", {}))
        for row in rows
    }


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 10])
def test_a_call_of_exactly_the_limit_passes_and_one_byte_more_is_split(queue: Queue, count: int) -> None:
    """With strings, numbers and bytes in attributes; each row arrives as it was given."""
    dice = random.Random(count)
    for more, calls in ((0, 1), (1, 2)):
        each = MAX_CALL_BYTES // count
        sizes = [each] * (count - 1) + [MAX_CALL_BYTES - each * (count - 1) + more]
        rows = [row(size, dice, number=number + 100 * more) for number, size in enumerate(sizes)]
        made = send(queue, rows)
        assert len(made) == calls
        assert sum(entries for entries, _ in made) == count
        assert sum(size for _, size in made) == MAX_CALL_BYTES + more
        assert arrived(queue) == expected(rows)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1_024, 262_144])
def test_a_queues_smaller_limit_is_ours(queue: Queue, limit: int) -> None:
    """A row of exactly `MaximumMessageSize` passes, one byte more is refused by us; a call may hold ten such rows."""
    small = queue.another(MaximumMessageSize=str(limit))
    options = options_of(small)
    given = draft(options, by_column=True, clock=SYSTEM_CLOCK)
    plan = prepare(given, queue=Watched(options), store=None, may_create=True)
    assert plan.form.max_message_bytes == limit
    dice = random.Random(limit)
    rows = [row(limit, dice, number=number, limit=limit) for number in range(10)]
    made = send(small, rows)
    assert all(size <= MAX_CALL_BYTES for _, size in made)
    assert len(made) == -(-10 * limit // MAX_CALL_BYTES)
    assert arrived(small) == expected(rows)
    with pytest.raises(RefusedRowError, match=f"takes at most {limit:,} "):
        row(limit + 1, dice, limit=limit)


def test_a_limit_that_was_lowered_meanwhile_names_the_row(queue: Queue) -> None:
    """The local queue refuses the entry, moto the whole call: the row is found either way, and is not in the queue."""
    small = queue.another(MaximumMessageSize="1024")
    rows = [row(1_000, random.Random(n), number=n, attributes=0) for n in range(5)]
    plain = outgoing(_columns("x" * 1_025, 5, []), RowForm(None, True, MAX_CALL_BYTES), first_row=5)
    watched, confirmed = Watched(options_of(small)), list[OutgoingRow]()
    deadline = SYSTEM_CLOCK.monotonic() + 60
    with pytest.raises(RefusedRowError) as told:
        watched.send(
            [*rows, *plain],
            lambda told, _: confirmed.extend(each.row for each in told),
            stopped=threading.Event(),
            deadline=deadline,
        )
    assert told.value.row == 5
    assert "1024" in told.value.reason.replace(",", "")
    assert confirmed == rows
    assert arrived(small) == expected(rows)


# The local queue, asked about many


@pytest.mark.parametrize("seed", range(10))
def test_we_refuse_exactly_the_rows_that_the_queue_refuses(seed: int) -> None:
    """Rows of every make, at the limit and a byte on either side of it; and our count is the queue's."""
    dice = random.Random(seed)
    model = FifoModel()
    for number in range(30):
        limit = dice.randint(6_000, 8_000)
        given = {"QueueName": f"q{number}.fifo", "Attributes": {"FifoQueue": "true", "MaximumMessageSize": str(limit)}}
        url = model.call("CreateQueue", given)["QueueUrl"]
        size = limit + dice.choice([-1, 0, 1])
        attributes, state = dice.randint(0, 10), dice.getstate()
        made = row(size, dice, attributes=attributes)
        assert made.size == weight(made.entry) == size
        dice.setstate(state)
        if size <= limit:
            model.call("SendMessage", {"QueueUrl": url, **wire(made.entry)})
            assert row(size, dice, attributes=attributes, limit=limit) == made
        else:
            with pytest.raises(SqsError, match="Message must be shorter"):
                model.call("SendMessage", {"QueueUrl": url, **wire(made.entry)})
            with pytest.raises(RefusedRowError, match="bytes with its attributes"):
                row(size, dice, attributes=attributes, limit=limit)


class Asked(SinkQueue):
    """Takes calls that the local queue would take, and no others."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.pace = CallPace(SYSTEM_CLOCK, None)

    def send(
        self, rows: Sequence[OutgoingRow], confirm: Callable[[list[ConfirmedRow], list[OutgoingRow]], None], **_: Any
    ) -> list[OutgoingRow]:
        validation.batch_size([wire(row.entry) for row in rows])
        self.calls.append(len(rows))
        confirm([ConfirmedRow(row, None, None, False) for row in rows], [])
        return []


@pytest.mark.parametrize("seed", range(60))
def test_calls_are_split_exactly_where_the_queue_refuses_them(seed: int) -> None:
    """Up to ten rows of every make that have the limit, or a byte less or more: one call, or two."""
    dice = random.Random(seed)
    total = MAX_CALL_BYTES + dice.choice([-1, 0, 1])
    cuts = sorted(dice.sample(range(6_000, total - 6_000, 6_000), dice.randint(1, 9)))
    sizes = [end - start for start, end in zip([0, *cuts], [*cuts, total], strict=True)]
    rows = [row(size, dice, number=n, attributes=dice.randint(0, 10)) for n, size in enumerate(sizes)]
    queue = Asked()
    sender = Sender(queue, Record(SYSTEM_CLOCK), SYSTEM_CLOCK, Stride())
    sender.add(rows)
    sender.finish()
    assert sum(queue.calls) == len(rows)
    assert len(queue.calls) == (1 if total <= MAX_CALL_BYTES else 2)
