"""A receive over a slow link: its deadline moves while bytes come, and what has come whole is never thrown away."""

from __future__ import annotations

import json
import logging
import math
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from sqs_fifo_spark.aws import answer, lean
from sqs_fifo_spark.aws.client import READ_TIMEOUT_S
from sqs_fifo_spark.clock import SYSTEM_CLOCK, Clock
from sqs_fifo_spark.errors import TransientQueueError
from sqs_fifo_spark.source import queue as source_queue
from sqs_fifo_spark.source import receive
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.queue import CONCURRENT_CALLS, Queue
from sqs_fifo_spark.source.receive import ReceivedMessages
from tests.manual_clock import ManualClock
from tests.unit.aws.answering import Answer, answering, source_options, sqs_message

MESSAGE = 10_000
"""Bytes of a message, about."""
PIECE = 2_000
"""Bytes that come at a time."""


class Link:
    """Carries answers at `rate` bytes a second in all, on its own clock. Receives get as many as they ask for."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.rate = math.inf
        self.begins_in_s = 0.0
        self.asked: list[Mapping[str, Any]] = []
        self.stalls_after: Callable[[int], int | None] = lambda call: None
        """After how many bytes the answer to a call stops coming, if it does."""
        self.is_in_turn = False
        """True if an answer begins only when those before have come."""
        self._coming: list[_Socket] = []
        self._free_at = 0.0

    def ask(self, connection: _Socket, request: Mapping[str, Any]) -> None:
        self.asked.append(request)
        content = _answer(request)
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(content)
        connection.left = head + content[: self.stalls_after(len(self.asked))]
        connection.pieces, connection.asked_at = 0, self.clock.monotonic()
        self._coming = [*(each for each in self._coming if each.left), connection]

    def carry(self, until: float) -> bool:
        """Let the next piece come, of whichever answer it is. Return whether one does until then."""
        coming = [each for each in self._coming if each.left][: 1 if self.is_in_turn else None]
        if not coming:
            return False
        begins_at, _, number = min((self._begins_at(each), each.pieces, n) for n, each in enumerate(coming))
        taker = coming[number]
        piece, rest = taker.left[:PIECE], taker.left[PIECE:]
        comes_at = begins_at + len(piece) / self.rate
        if comes_at > until:
            return False
        self.clock.advance(max(0.0, comes_at - self.clock.monotonic()))
        self._free_at = comes_at
        taker.there, taker.left, taker.pieces = taker.there + piece, rest, taker.pieces + 1
        return True

    def _begins_at(self, connection: _Socket) -> float:
        if connection.pieces:
            return self._free_at
        since = max(connection.asked_at, self._free_at) if self.is_in_turn else connection.asked_at
        return max(self._free_at, since + self.begins_in_s)


class _Socket(socket.socket):
    """A connection over a link. It is no real one, and waits on the link's clock."""

    def __init__(self, link: Link) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_DGRAM)  # which the pool finds open
        self._link = link
        self._request = self.there = self.left = b""
        self.pieces, self.asked_at = 0, 0.0

    def sendall(self, data: Any, *_: Any) -> None:
        self._request += bytes(data)
        with suppress(ValueError):  # not all of it
            request = json.loads(self._request.rpartition(b"\r\n\r\n")[2])
            self._request = b""
            self._link.ask(self, request)

    def recv_into(self, buffer: Any, *_: Any) -> int:
        clock, limit_s = self._link.clock, self.gettimeout()
        until = math.inf if limit_s is None else clock.monotonic() + limit_s
        while not self.there:
            if not self._link.carry(until):
                clock.advance(until - clock.monotonic())
                raise TimeoutError
        piece, self.there = self.there[: len(buffer)], self.there[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self.left = b""
        super().close()


def _answer(request: Mapping[str, Any]) -> bytes:
    numbers = range(request.get("MaxNumberOfMessages", 0))
    messages = [sqs_message(number, f'{number} "]}} ü€ ' + "x" * MESSAGE) for number in numbers]
    return json.dumps({"Messages": messages}, ensure_ascii=False).encode()


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Link:
    made = Link()
    monkeypatch.setattr(receive, "_portions", {})
    monkeypatch.setattr("urllib3.connection.HTTPConnection._new_conn", lambda connection: _Socket(made))
    for module in (answer, lean):
        monkeypatch.setattr(module, "SYSTEM_CLOCK", made.clock)
    return made


def queue_at(url: str, clock: Clock, visibility_s: int = 30) -> Queue:
    given = {"region": "eu-west-1", "visibilityTimeoutSeconds": str(visibility_s)}
    return Queue(source_options(f"{url}/123456789012/q.fifo", **given), clock)


def queue_over(link: Link, visibility_s: int = 30) -> Queue:
    return queue_at("http://127.0.0.1:1", link.clock, visibility_s)


def require_whole(received: ReceivedMessages, count: int) -> None:
    assert [each.receipt.message_id for each in received] == [str(number) for number in range(count)]
    assert all(each.row[1].endswith("x" * MESSAGE) for each in received)


def require_all_come(queue: Queue, count: int) -> None:
    """As many receives as are under way at once, which are read one after another."""
    begun = [queue.begin_receive(count) for _ in range(CONCURRENT_CALLS)]
    assert all(each.wait() for each in begun)
    for each in begun:
        require_whole(each.result(), count)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["lean", "boto3"])
def test_receives_over_real_connections_come_whole(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In several pieces each, with the machine's own time and sockets."""
    monkeypatch.setenv(lean.TRANSPORT_VARIABLE, transport)
    with answering() as server:
        server.answer = Answer(_answer)
        require_all_come(queue_at(server.url, SYSTEM_CLOCK, 600), 10)
        assert len(server.asked) == CONCURRENT_CALLS


@pytest.mark.parametrize("transport", ["lean", "boto3"])
def test_the_deadline_moves_while_bytes_come(link: Link, transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take twice as long as an answer may take to begin: the first call gets them, whole."""
    monkeypatch.setenv(lean.TRANSPORT_VARIABLE, transport)
    link.rate = 5 * MESSAGE / (2 * READ_TIMEOUT_S)
    require_whole(queue_over(link).receive(5, budget_s=0.0), 5)
    assert len(link.asked) == 1


@pytest.mark.parametrize("is_in_turn", [False, True])
def test_receives_that_share_a_link_and_are_read_one_after_another_all_come(link: Link, is_in_turn: bool) -> None:
    """The last one's first bytes come, or wait to be read, for longer than an answer may take to begin."""
    link.is_in_turn, link.begins_in_s = is_in_turn, READ_TIMEOUT_S / 4
    link.rate = CONCURRENT_CALLS * 2 * MESSAGE / (3 * READ_TIMEOUT_S)
    require_all_come(queue_over(link, visibility_s=300), 2)
    assert len(link.asked) == CONCURRENT_CALLS


def test_a_renewal_waits_for_no_longer_than_it_may(link: Link) -> None:
    """A queue that takes the call and does not answer costs a thread that long, and not the client's time-out."""
    link.begins_in_s = math.inf
    queue, began = queue_over(link), link.clock.monotonic()
    receipt = Receipt("m", "h", "g", 1, 1, 0, began, 0)
    assert queue.extend([receipt], 30, budget_s=0.0, answer_s=2.0) == [Outcome.FAILED]
    assert link.clock.monotonic() == pytest.approx(began + 2.0)


def test_an_answer_that_stalls_is_asked_for_again_under_its_attempt_id(link: Link) -> None:
    """SQS gives the same messages again, and hides them anew: none is received twice."""
    link.stalls_after = lambda call: 5 * MESSAGE if call == 1 else None
    began = link.clock.monotonic()
    received = queue_over(link).receive(10)
    require_whole(received, 10)
    first, second = link.asked
    assert first == second
    assert received.since >= began + READ_TIMEOUT_S  # since the second


def test_what_has_come_whole_in_time_is_got(link: Link, caplog: pytest.LogCaptureFixture) -> None:
    """The rest lapses, and comes with its second receive; the next receive asks for no more than comes in time."""
    link.rate = 10 * MESSAGE / 2  # in 0.8 s 3 of 10 come
    with caplog.at_level(logging.WARNING):
        received = queue_over(link, visibility_s=1).receive(10)
    require_whole(received, 3)
    assert received.is_cut
    assert "the link is slow. Fewer are asked for" in caplog.text
    link.rate = math.inf
    assert not queue_over(link, visibility_s=1).receive(10).is_cut
    first, second = link.asked
    assert second["MaxNumberOfMessages"] <= len(received) < first["MaxNumberOfMessages"]
    assert first["ReceiveRequestAttemptId"] != second["ReceiveRequestAttemptId"]


def test_an_answer_without_a_whole_message_is_asked_for_otherwise(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    """For one message, under another attempt id; and the error names the link, not the endpoint."""
    monkeypatch.setattr(source_queue, "RECEIVE_TRIES", 1)
    link.rate = MESSAGE / 2
    queue = queue_over(link, visibility_s=1)
    call = queue.begin_receive(10, budget_s=0.0)
    with pytest.raises(TransientQueueError, match=r"no message .+ came whole within 0.8 s, .+: the link is too slow"):
        call.result()
    link.rate = math.inf
    require_whole(queue.receive(10), 1)
    assert link.asked[0]["ReceiveRequestAttemptId"] != link.asked[1]["ReceiveRequestAttemptId"]


def test_the_time_of_a_long_poll_is_no_time_of_its_answer(link: Link) -> None:
    """Its messages are hidden since its first byte came, at most."""
    link.rate, link.begins_in_s = 10 * MESSAGE / 20, 19.0
    began = link.clock.monotonic()
    received = queue_over(link).receive(10, wait_time_s=20)
    require_whole(received, 10)
    assert began + 19 <= received.since <= began + 20
    assert link.clock.monotonic() >= received.since + 19


@pytest.mark.parametrize("content", [b'{"Other":[{}', b'[{"a":1},'])
def test_what_has_no_message_is_no_answer(content: bytes) -> None:
    assert answer._whole_messages(content) is None


def test_each_prefix_of_an_answer_has_its_whole_messages() -> None:
    """Wherever it is cut: within an escape, a character, or between two messages."""
    messages = [{"Body": f'{number} ü€𐍈 \\" ]}}, {{'} for number in range(3)]
    content = json.dumps({"Messages": messages}, ensure_ascii=False).encode()
    counts = []
    for end in range(len(content)):
        whole = answer._whole_messages(content[:end])
        found = [] if whole is None else json.loads(whole)["Messages"]
        assert found == messages[: len(found)]
        assert (whole is None) is (not found)
        counts.append(len(found))
    assert counts == sorted(counts)
    assert {*counts} == {0, 1, 2, 3}
