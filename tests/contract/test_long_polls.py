"""Long polls of the local queue. The clock stands still, so that nothing but what the test does can end a wait."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

from sqs_fifo_spark.local import FifoModel, LocalQueueServer
from sqs_fifo_spark.local.waiting import Waiter, WaitingRoom
from tests.contract.conftest import Queue, code_of
from tests.helpers import wait_until
from tests.manual_clock import ManualClock


def message(body: str) -> dict[str, str]:
    return {"MessageBody": body, "MessageGroupId": "g", "MessageDeduplicationId": body}


class Polls:
    """Long polls of a queue in the background, one thread each."""

    def __init__(self, server: LocalQueueServer, queue: Queue, pool: ThreadPoolExecutor) -> None:
        self.server = server
        self.queue = queue
        self._pool = pool

    def begin(self, **request: Any) -> Future[list[str]]:
        """Start one, and return when the server holds it."""
        before = self.server.waiting
        poll = self._pool.submit(self.queue.bodies, WaitTimeSeconds=20, **request)
        wait_until(lambda: self.server.waiting == before + 1, 10, "the long poll waits")
        return poll


@pytest.fixture
def no_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but requests wakes a long poll: no timer hides a wake-up that was forgotten."""
    monkeypatch.setattr("sqs_fifo_spark.local.waiting._TICK_S", 3_600)


@pytest.fixture
def polls(server: LocalQueueServer, strict: Queue) -> Iterator[Polls]:
    with ThreadPoolExecutor(8) as pool:
        yield Polls(server, strict, pool)
        server.stop()


@pytest.mark.usefixtures("no_tick")
@pytest.mark.parametrize("event", ["a send", "the last delete of the group", "a release"])
def test_long_poll_wakes_when_a_message_is_free(polls: Polls, strict: Queue, event: str) -> None:
    """Without waiting for a tick."""
    if event != "a send":
        strict.send("1")
        held = strict.receive()[0]
        if "delete" in event:
            strict.send("2")
    poll = polls.begin()
    if event == "a send":
        strict.send("1")
    elif event == "a release":
        strict.hide(held, 0)
    else:
        strict.delete(held)
    assert poll.result(10) == (["2"] if "delete" in event else ["1"])


@pytest.mark.usefixtures("no_tick")
def test_long_poll_wakes_when_a_message_arrives_by_redrive(polls: Polls, strict: Queue, clock: ManualClock) -> None:
    """A move into the queue ends the wait, though another queue's receive caused it."""
    source = strict.another()
    source.give_up_to(strict)
    source.send("1")
    source.receive(VisibilityTimeout=1)
    poll = polls.begin()
    clock.advance(1)
    assert source.bodies() == []
    assert poll.result(10) == ["1"]


def test_long_poll_wakes_when_a_task_moves_something(polls: Polls, strict: Queue, clock: ManualClock) -> None:
    """Moving is not asked for by the one who waits."""
    dead = strict.another()
    strict.give_up_to(dead)
    strict.send("1", "a")
    strict.send("2", "b")
    strict.receive(VisibilityTimeout=0)
    assert strict.bodies() == []
    strict.client.start_message_move_task(SourceArn=dead.arn, MaxNumberOfMessagesPerSecond=1)
    assert strict.bodies() == ["1"]
    poll = polls.begin()
    clock.advance(1)
    assert poll.result(10) == ["2"]


def test_long_polls_are_served_in_the_order_of_their_coming(polls: Polls, strict: Queue) -> None:
    """The next message goes to the receive that has waited longest."""
    waiting = [polls.begin() for _ in range(3)]
    for number, poll in enumerate(waiting):
        strict.send(str(number), f"g{number}")
        assert poll.result(10) == [str(number)]


@pytest.mark.usefixtures("no_tick")
def test_newcomer_takes_nothing_from_those_who_wait(polls: Polls, strict: Queue, clock: ManualClock) -> None:
    """A lapsed message goes to the long poll that waits, even if a later receive is the first to see it."""
    strict.send("1")
    strict.receive(VisibilityTimeout=5)
    poll = polls.begin()
    clock.advance(5)
    assert strict.bodies() == []
    assert poll.result(10) == ["1"]


@pytest.mark.usefixtures("no_tick")
def test_long_polls_with_one_attempt_id_get_the_same_messages(polls: Polls, strict: Queue) -> None:
    """A client that asked again while its first poll still waits gets one answer twice, ahead of others."""
    first = polls.begin(ReceiveRequestAttemptId="try")
    other = polls.begin()
    again = polls.begin(ReceiveRequestAttemptId="try")
    strict.send("1", "a")
    assert first.result(10) == again.result(10) == ["1"]
    strict.send("2", "b")
    assert other.result(10) == ["2"]
    assert strict.receive(ReceiveRequestAttemptId="try")[0]["Attributes"]["ApproximateReceiveCount"] == "1"


@pytest.mark.usefixtures("no_tick")
def test_long_poll_whose_attempt_became_void_fails_alone(polls: Polls, server: LocalQueueServer, strict: Queue) -> None:
    """Of two long polls, the one whose attempt id was used up meanwhile is void, and the other goes on."""
    void = polls.begin(ReceiveRequestAttemptId="try")
    other = polls.begin()

    def use_up(model: FifoModel) -> None:
        queue = {"QueueUrl": strict.url}
        model.call("SendMessage", {**queue, **message("1")})
        taken = model.call("ReceiveMessage", {**queue, "ReceiveRequestAttemptId": "try"})["Messages"][0]
        model.call("DeleteMessage", {**queue, "ReceiptHandle": taken["ReceiptHandle"]})
        model.call("SendMessage", {**queue, **message("2")})

    server.run(use_up)
    assert other.result(10) == ["2"]
    assert code_of(lambda: void.result(10)) == "InvalidParameterValue"


def test_long_poll_of_a_deleted_queue_is_an_error(polls: Polls, strict: Queue) -> None:
    """A receive that waits for a queue that goes away gets an error."""
    poll = polls.begin()
    strict.client.delete_queue(QueueUrl=strict.url)
    assert code_of(lambda: poll.result(10)) == "AWS.SimpleQueueService.NonExistentQueue"


def test_client_that_left_swallows_no_message(server: LocalQueueServer, strict: Queue) -> None:
    """A long poll whose connection closed receives nothing afterwards, and counts as gone."""
    with contextlib.closing(http.client.HTTPConnection(urlsplit(server.endpoint_url).netloc, timeout=10)) as connection:
        request = {"QueueUrl": strict.url, "WaitTimeSeconds": 20}
        connection.request("POST", "/", json.dumps(request), {"X-Amz-Target": "AmazonSQS.ReceiveMessage"})
        wait_until(lambda: server.waiting == 1, 10, "the long poll waits")
    wait_until(lambda: server.waiting == 0, 10, "the server notices that the client left")
    strict.send("1")
    assert strict.receive()[0]["Attributes"]["ApproximateReceiveCount"] == "1"
    assert server.requests.recent("ReceiveMessage")[0].outcome == "gone"


def test_waiter_whose_connection_is_closing_is_passed_over() -> None:
    """Even before its handler has noticed, a client that left is not served."""
    clock = ManualClock()
    model = FifoModel(clock)
    url = model.call("CreateQueue", {"QueueName": "a.fifo", "Attributes": {"FifoQueue": "true"}})["QueueUrl"]

    async def scene() -> dict[str, Any]:
        room = WaitingRoom(model, clock)

        def waiter(is_gone: bool) -> Waiter:
            receive = partial(model.call, "ReceiveMessage", {"QueueUrl": url})
            return Waiter(url, receive, lambda: is_gone, clock.now() + 20)

        left, stayed = (asyncio.create_task(room.wait(waiter(is_gone))) for is_gone in (True, False))
        while room.count < 2:
            await asyncio.wait([left, stayed], timeout=0.001)
        model.call("SendMessage", {"QueueUrl": url, **message("b")})
        room.serve()
        answer = await stayed
        left.cancel()
        await asyncio.wait([left])
        assert room.count == 0
        return answer

    assert len(asyncio.run(scene())["Messages"]) == 1
