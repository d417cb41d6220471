"""A receive over a slow link: its deadline moves while bytes come, and what has come whole is never thrown away."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any
from unittest import mock

import pytest

from sqs_fifo_spark.aws import answer, lean
from sqs_fifo_spark.aws import client as aws
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import TransientQueueError
from sqs_fifo_spark.options import parse_source_options
from sqs_fifo_spark.source import queue as source_queue
from sqs_fifo_spark.source import receive
from sqs_fifo_spark.source.queue import CONCURRENT_CALLS, Queue
from sqs_fifo_spark.source.receive import Receive, Received

IDLE_S = 0.25
"""What stands for READ_TIMEOUT_S here."""
MESSAGE = 10_000
"""Bytes of a message, about."""


class Link:
    """A server whose answers share `rate` bytes a second. Each receive gets as many messages as it asks for."""

    def __init__(self) -> None:
        self.rate = 1e9
        self.begins_in_s = 0.0
        self.port = 0
        self.asked: list[Mapping[str, Any]] = []
        self.stalls_after: Callable[[int], int | None] = lambda call: None
        """After how many bytes the answer to a call stops coming, if it does."""
        self.is_in_turn = False
        """Whether an answer begins only when those before have come."""
        self.is_over = threading.Event()
        self._turn = threading.Lock()
        self._pipe = threading.Lock()

    def answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError), connection.makefile("rb") as file:
            while line := file.readline():
                length = 0
                while line.strip():
                    name, _, value = line.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                    line = file.readline()
                request = json.loads(file.read(length))
                self.asked.append(request)
                with self._turn if self.is_in_turn else nullcontext():
                    self._send(connection, _answer(request), self.stalls_after(len(self.asked)))

    def _send(self, connection: socket.socket, content: bytes, stalls_after: int | None) -> None:
        SYSTEM_CLOCK.sleep(self.begins_in_s)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(content))
        step = max(1, min(2_000, int(self.rate * IDLE_S / 10)))
        for start in range(0, len(content[:stalls_after]), step):
            with self._pipe:
                SYSTEM_CLOCK.sleep(step / self.rate)
            connection.sendall(content[start : start + step])
        if stalls_after is not None:
            self.is_over.wait(60)


def _answer(request: Mapping[str, Any]) -> bytes:
    def message(number: int) -> Mapping[str, Any]:
        attributes = {"MessageGroupId": "g", "SequenceNumber": str(number), "ApproximateReceiveCount": "1"}
        attributes |= {"MessageDeduplicationId": str(number), "SentTimestamp": "1", "SenderId": "a"}
        attributes |= {"ApproximateFirstReceiveTimestamp": "1"}
        body = f'{number} "]}} ü€ ' + "x" * MESSAGE
        return {"MessageId": str(number), "ReceiptHandle": f"h{number}", "Body": body, "Attributes": attributes}

    messages = [message(number) for number in range(request["MaxNumberOfMessages"])]
    return json.dumps({"Messages": messages}, ensure_ascii=False).encode()


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Iterator[Link]:
    monkeypatch.setattr(aws, "READ_TIMEOUT_S", IDLE_S)
    monkeypatch.setattr(receive, "_portions", {})
    aws.forget_clients()
    made = Link()
    with served(made) as made.port:
        yield made
    aws.forget_clients()


@contextmanager
def served(link: Link) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=link.answer, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            link.is_over.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def queue_over(link: Link, visibility_s: int = 30) -> Queue:
    url = f"http://127.0.0.1:{link.port}/123456789012/q.fifo"
    given = {"queueUrl": url, "journalLocation": "/journal", "region": "eu-west-1"}
    return Queue(parse_source_options({**given, "visibilityTimeoutSeconds": str(visibility_s)}), SYSTEM_CLOCK)


def require_whole(received: Received, count: int) -> None:
    assert [each.receipt.message_id for each in received] == [str(number) for number in range(count)]
    assert all(each.row[1].endswith("x" * MESSAGE) for each in received)


def require_got_at_first(link: Link) -> None:
    """A slow answer is got by the first call for it, whole."""
    link.rate = 5 * MESSAGE / (2 * IDLE_S)
    require_whole(queue_over(link).receive(5, budget_s=0.0), 5)
    assert len(link.asked) == 1


@pytest.mark.parametrize("transport", ["lean", "boto3"])
def test_the_deadline_of_a_receive_moves_while_bytes_come(
    link: Link, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take twice as long as an answer may take to begin."""
    monkeypatch.setenv(lean.TRANSPORT_VARIABLE, transport)
    require_got_at_first(link)


def test_a_deadline_for_the_whole_answer_is_caught(link: Link) -> None:
    """The planted bug: what every other call has, be it sent or repeated."""
    with mock.patch.object(lean, "arrival_of_call", return_value=None), pytest.raises(TransientQueueError):
        require_got_at_first(link)
    assert len(link.asked) == source_queue.RECEIVE_TRIES


@pytest.mark.parametrize("is_in_turn", [False, True])
def test_receives_that_share_a_link_and_are_read_one_after_another_all_come(
    link: Link, is_in_turn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one's first bytes come, or wait to be read, for longer than an answer may take to begin."""
    monkeypatch.setattr(lean, "_LEAST_S", 0.01)
    link.is_in_turn, link.begins_in_s = is_in_turn, IDLE_S / 4
    link.rate = CONCURRENT_CALLS * 2 * MESSAGE / (3 * IDLE_S)
    queue = queue_over(link)
    begun = [queue.begin_receive(2) for _ in range(CONCURRENT_CALLS)]
    assert all(each.wait() for each in begun)
    for each in begun:
        require_whole(each.result(), 2)


def test_an_answer_that_stalls_is_asked_for_again_under_its_attempt_id(link: Link) -> None:
    """SQS gives the same messages again, and hides them anew: none is received twice."""
    link.stalls_after = lambda call: 5 * MESSAGE if call == 1 else None
    received = queue_over(link).receive(10)
    require_whole(received, 10)
    first, second = link.asked
    assert first == second
    assert SYSTEM_CLOCK.monotonic() - received.since < IDLE_S  # since the second


def require_part(link: Link) -> None:
    """What is whole in time is got; and the next receive asks for no more than what comes in time."""
    link.rate = 10 * MESSAGE / 2  # in 0.8 s 4 of 10 come
    queue = queue_over(link, visibility_s=1)
    received = queue.receive(10)
    require_whole(received, len(received))
    assert received.is_cut
    assert 2 <= len(received) <= 4
    link.rate = 1e9
    assert not queue_over(link, visibility_s=1).receive(10).is_cut
    first, second = link.asked
    assert second["MaxNumberOfMessages"] <= len(received) < first["MaxNumberOfMessages"]
    assert first["ReceiveRequestAttemptId"] != second["ReceiveRequestAttemptId"]


def test_what_has_come_whole_by_the_time_that_it_is_worth_anything_is_got(
    link: Link, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest lapses, and comes with its second receive: over no link is a message received for ever."""
    with caplog.at_level(logging.WARNING):
        require_part(link)
    assert "the link is slow. Fewer are asked for" in caplog.text


@pytest.mark.parametrize(
    "planted",
    [
        mock.patch.object(answer, "_whole_messages", return_value=None),
        mock.patch.object(Receive, "_note_portion"),
    ],
    ids=["all is thrown away", "as many are asked for again"],
)
def test_a_receive_that_gives_up_what_has_come_is_caught(link: Link, planted: Any) -> None:
    with (
        planted,
        mock.patch.object(source_queue, "RECEIVE_TRIES", 1),
        pytest.raises((AssertionError, TransientQueueError)),
    ):
        require_part(link)


def test_an_answer_without_a_whole_message_in_time_is_asked_for_in_another_way(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For one message, under another attempt id; and the error names the link, not the endpoint."""
    monkeypatch.setattr(source_queue, "RECEIVE_TRIES", 1)
    link.rate = MESSAGE / 2
    queue = queue_over(link, visibility_s=1)
    call = queue.begin_receive(10, budget_s=0.0)
    with pytest.raises(TransientQueueError, match=r"no message .+ came whole within 0.8 s: the link is too slow"):
        call.result()
    link.rate = 1e9
    require_whole(queue.receive(10), 1)
    assert link.asked[0]["ReceiveRequestAttemptId"] != link.asked[1]["ReceiveRequestAttemptId"]


def test_the_time_of_a_long_poll_is_no_time_of_its_answer(link: Link) -> None:
    """Its messages are hidden since its first byte came, at most."""
    link.rate = 10 * MESSAGE / (2 * IDLE_S)
    link.begins_in_s = 2 * IDLE_S
    asked_at = SYSTEM_CLOCK.monotonic()
    received = queue_over(link, visibility_s=1).receive(10, wait_time_s=2)
    require_whole(received, 10)
    assert received.since - asked_at >= IDLE_S
    assert SYSTEM_CLOCK.monotonic() - received.since >= IDLE_S


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"Messages":[',
        b'{"Messages":[{"Body":"x',
        b'{"Other":[{}',
        b'[{"a":1},',
        b'{"Messages":[{"a":"\xc3',
    ],
)
def test_what_has_no_whole_message_is_no_answer(content: bytes) -> None:
    assert answer._whole_messages(content) is None


def test_each_prefix_of_an_answer_has_its_whole_messages() -> None:
    """Wherever it is cut: within an escape, a character, or between two messages."""
    messages = [{"Body": f'{number} ü€𐍈 \\" ]}}, {{'} for number in range(3)]
    content = json.dumps({"Messages": messages}, ensure_ascii=False).encode()
    counts = []
    for end in range(len(content)):
        whole = answer._whole_messages(content[:end])
        found = json.loads(whole)["Messages"] if whole else []
        assert found == messages[: len(found)]
        counts.append(len(found))
    assert counts == sorted(counts)
    assert {*counts} == {0, 1, 2, 3}
