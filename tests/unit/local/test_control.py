"""The local queue under a test's hand: its clock set ahead, its messages seen, their history told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from sqs_fifo_spark.clock import ManualClock
from sqs_fifo_spark.local import LocalQueueServer, SqsError, inspection
from tests.helpers import wait_until
from tests.unit.local.caller import call, exchange

START = 1_700_000_000.0


class Queues:
    """A server with `q.fifo`, which gives up to `dead.fifo` after one receive, and whose own clock stands still."""

    def __init__(self, server: LocalQueueServer) -> None:
        self.server = server
        self.url = server.queue_url("q.fifo")

    def call(self, action: str, **request: Any) -> dict[str, Any]:
        return self.server.run(lambda model: model.call(action, {"QueueUrl": self.url, **request}))

    def send(self, body: str, group: str = "g") -> str:
        sent = self.call("SendMessage", MessageBody=body, MessageGroupId=group, MessageDeduplicationId=body)
        return str(sent["MessageId"])

    def receive(self, **request: Any) -> list[dict[str, Any]]:
        answer = self.call("ReceiveMessage", **{"MaxNumberOfMessages": 10, **request})
        found: list[dict[str, Any]] = answer.get("Messages", [])
        return found

    def http(self, path: str, given: object = None) -> tuple[int, Any]:
        return exchange(self.server.endpoint_url, path, given)

    def kinds(self, message_id: str) -> list[str]:
        return [event["event"] for event in self.server.history(message_id)]


@pytest.fixture
def queues() -> Iterator[Queues]:
    with LocalQueueServer(queues=["dead.fifo", "q.fifo"], clock=ManualClock(START)) as server:
        yield Queues(server)


# The clock


def test_long_poll_gets_what_the_clock_makes_visible(queues: Queues) -> None:
    """Setting the clock ahead wakes who waits: here over HTTP, from another thread."""
    queues.send("1")
    assert len(queues.receive(VisibilityTimeout=10)) == 1

    def poll() -> list[str]:
        answer = call(queues.server.endpoint_url, "ReceiveMessage", QueueUrl=queues.url, WaitTimeSeconds=20)[1]
        return [message["Body"] for message in answer.get("Messages", [])]

    with ThreadPoolExecutor(2) as pool:
        lucky = pool.submit(poll)
        wait_until(lambda: queues.server.waiting == 1, 10, "the poll waits")
        queues.server.advance(10)
        assert lucky.result(timeout=10) == ["1"]
        unlucky = pool.submit(poll)
        wait_until(lambda: queues.server.waiting == 1, 10, "the next poll waits")
        queues.server.advance(20)
        assert unlucky.result(timeout=10) == []


def test_clock_is_set_ahead_over_http(queues: Queues) -> None:
    """The answer is the queue's time."""
    assert queues.http("/_local/clock", {"advanceSeconds": 1.5}) == (200, {"now": START + 1.5})
    assert queues.http("/_local/clock", {"seconds": 2}) == (200, {"now": START + 3.5})
    assert queues.http("/_local/clock") == (200, {"now": START + 3.5})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"advanceSeconds": -1}, "cannot be advanced by -1"),
        ({"advanceSeconds": "31"}, "cannot be advanced by '31'"),
        ({"advanceSeconds": True}, "cannot be advanced by True"),
        ({"advanceSeconds": float("inf")}, "cannot be advanced by inf"),
        ({"advanceSeconds": float("nan")}, "cannot be advanced by nan"),
        ({"ahead": 31}, "the fields given are ['ahead']"),
        ({"advanceSeconds": 1, "seconds": 1}, "the fields given are ['advanceSeconds', 'seconds']"),
        ({}, "the fields given are []"),
        ([31], "must be a JSON map"),
    ],
)
def test_clock_refuses_what_is_no_time_ahead(queues: Queues, given: object, message: str) -> None:
    """One line says why, and the clock stays."""
    status, answer = queues.http("/_local/clock", given)
    assert status == 400
    assert message in answer["error"]
    assert queues.http("/_local/clock")[1] == {"now": START}
    with pytest.raises(ValueError, match="cannot be advanced by -1"):
        queues.server.advance(-1)


def test_what_is_no_json_is_shown(queues: Queues) -> None:
    """Its beginning, and the rule."""
    request = Request(f"{queues.server.endpoint_url}/_local/clock", data=b"advanceSeconds=31")
    with pytest.raises(HTTPError) as caught:
        urlopen(request, timeout=10)
    with caught.value as answer:
        error = "the request's body is 'advanceSeconds=31'; it must be JSON"
        assert (answer.code, json.loads(answer.read())) == (400, {"error": error})


# What stands in a queue


def test_messages_are_seen_with_their_state_and_not_received(queues: Queues) -> None:
    """Looking changes no count, takes no lock, and shows what a receive would not."""
    ids = [queues.send("1", "a"), queues.send("2", "a"), queues.send("3", "b")]
    queues.receive(VisibilityTimeout=30, MaxNumberOfMessages=1)
    for _ in range(2):
        status, found = queues.http("/_local/messages?queue=q.fifo")
        assert status == 200
        assert found == queues.server.messages("q.fifo")
    assert [one["messageId"] for one in found] == ids
    assert [one["state"] for one in found] == ["in flight", "waiting", "waiting"]
    assert [one["receiveCount"] for one in found] == [1, 0, 0]
    assert [one["visibleAt"] for one in found] == [START + 30, None, None]
    assert [one["messageGroupId"] for one in found] == ["a", "a", "b"]
    assert [(one["messageDeduplicationId"], one["body"]) for one in found] == [(body, body) for body in "123"]
    numbers = [int(one["sequenceNumber"]) for one in found]
    assert numbers == sorted(numbers)


def test_messages_of_all_queues_are_seen_at_once(queues: Queues) -> None:
    """Each tells its queue; one queue is named by its name or its URL."""
    queues.send("1")
    queues.call(
        "SendMessage",
        QueueUrl=queues.server.queue_url("dead.fifo"),
        MessageBody="2",
        MessageGroupId="g",
        MessageDeduplicationId="2",
    )
    queues.send("3")
    status, found = queues.http("/_local/messages")
    assert status == 200
    assert [(one["queue"], one["body"]) for one in found] == [("dead.fifo", "2"), ("q.fifo", "1"), ("q.fifo", "3")]
    assert found == queues.server.messages()
    for query in ("queue=q.fifo", f"queue={queues.url}", "queueUrl=q.fifo", f"queueUrl={queues.url}"):
        assert queues.http(f"/_local/messages?{query}") == (200, found[1:])


@pytest.mark.parametrize("query", ["name=q.fifo", "queue=q.fifo&queue=dead.fifo", "queue=q.fifo&queueUrl=q.fifo"])
def test_messages_are_not_asked_for_in_another_way(queues: Queues, query: str) -> None:
    """A misspelt parameter does not show all queues."""
    status, answer = queues.http(f"/_local/messages?{query}")
    assert (status, "queue=NAME or queueUrl=URL" in answer["error"]) == (400, True)


def test_queue_that_is_not_there_is_named_in_one_line(queues: Queues) -> None:
    """Neither an empty list nor a defect of the server."""
    assert queues.http("/_local/messages?queue=no.fifo") == (400, {"error": "The specified queue does not exist."})
    with pytest.raises(SqsError, match="does not exist"):
        queues.server.messages("no.fifo")


# What became of a message


def test_history_tells_a_message_from_sending_to_after_its_end(queues: Queues) -> None:
    """Each step with its time, also over HTTP, and when the message is gone."""
    message_id = queues.send("1")
    queues.send("1")
    queues.server.advance(5)
    queues.receive(VisibilityTimeout=10)
    queues.server.advance(10)
    for _ in range(2):
        [message] = queues.receive(VisibilityTimeout=10, ReceiveRequestAttemptId="try")
    handle = message["ReceiptHandle"]
    queues.call("ChangeMessageVisibility", ReceiptHandle=handle, VisibilityTimeout=60)
    queues.server.advance(1)
    queues.call("DeleteMessage", ReceiptHandle=handle)
    status, told = queues.http(f"/_local/messages/{message_id}")
    assert status == 200
    assert [(event["event"], event["at"] - START, event["receiveCount"]) for event in told] == [
        ("sent", 0, 0),
        ("duplicate", 0, 0),
        ("received", 5, 1),
        ("lapsed", 15, 1),
        ("received", 15, 2),
        ("replayed", 15, 2),
        ("visibility_changed", 15, 2),
        ("deleted", 16, 2),
    ]
    assert [event["visibleAt"] for event in told if event["event"] == "visibility_changed"] == [START + 75]
    assert told == queues.server.history(message_id)
    assert not any("body" in event for event in told)


def test_history_goes_on_in_the_dead_letter_queue(queues: Queues) -> None:
    """A message keeps its id there, and expires there."""
    policy = {"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead.fifo", "maxReceiveCount": 1}
    queues.call("SetQueueAttributes", Attributes={"RedrivePolicy": json.dumps(policy)})
    message_id = queues.send("1")
    queues.receive(VisibilityTimeout=0)
    assert queues.receive() == []
    queues.server.advance(345_600)
    told = queues.server.history(message_id)
    assert [(event["event"], event["queue"]) for event in told] == [
        ("sent", "q.fifo"),
        ("received", "q.fifo"),
        ("lapsed", "q.fifo"),
        ("moved_to_dlq", "q.fifo"),
        ("expired", "dead.fifo"),
    ]


def test_history_notices_what_time_did_to_a_queue_that_nobody_asked(queues: Queues) -> None:
    """Asking is enough: the lapse need not be met by a receive first."""
    message_id = queues.send("1")
    queues.receive(VisibilityTimeout=10)
    queues.server.advance(10)
    assert queues.kinds(message_id) == ["sent", "received", "lapsed"]


def test_message_that_nobody_knows_has_no_history(queues: Queues) -> None:
    """Not found, with the id in the line."""
    status, answer = queues.http("/_local/messages/nobody")
    assert (status, answer["error"]) == (404, "nothing is known of a message 'nobody'")
    assert queues.server.history("nobody") == []


def test_history_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest events are forgotten first."""
    monkeypatch.setattr(inspection, "HISTORY", 3)
    with LocalQueueServer(queues=["q.fifo"]) as server:
        queues = Queues(server)
        first, second = queues.send("1", "a"), queues.send("2", "b")
        queues.receive()
        assert (queues.kinds(first), queues.kinds(second)) == (["received"], ["sent", "received"])


def test_path_that_is_none_tells_which_there_are(queues: Queues) -> None:
    """Whatever the method."""
    for status, answer in (queues.http("/_local/nothing"), queues.http("/_local/nothing", {})):
        assert status == 404
        assert "/_local/messages?queue=NAME" in answer["error"]
        assert "GET or POST /_local/clock" in answer["error"]
