"""The local queue under a test's hand: its clock set ahead, its messages seen, their history told."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from sqs_fifo_spark.local import LocalQueueServer, SqsError, inspection
from tests.helpers import wait_until
from tests.unit.local.caller import Caller

START = 1_700_000_000.0


# The clock


def test_long_poll_gets_what_the_clock_makes_visible(caller: Caller) -> None:
    """Setting the clock ahead wakes who waits, here in another thread."""
    caller.send("1")
    assert len(caller.receive(VisibilityTimeout=10)) == 1
    with ThreadPoolExecutor(1) as pool:
        for ahead_s, bodies in ((10, ["1"]), (20, [])):
            poll = pool.submit(caller.bodies, WaitTimeSeconds=20)
            wait_until(lambda: caller.server.waiting == 1, 10, "the poll waits")
            caller.server.advance(ahead_s)
            assert poll.result(timeout=10) == bodies


def test_clock_is_set_ahead_over_http(caller: Caller) -> None:
    """The answer is the queue's time."""
    assert caller.local("clock", {"advanceSeconds": 1.5}) == (200, {"now": START + 1.5})
    assert caller.local("clock", {"seconds": 2}) == (200, {"now": START + 3.5})
    assert caller.local("clock") == (200, {"now": START + 3.5})


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
def test_clock_refuses_what_is_no_time_ahead(caller: Caller, given: object, message: str) -> None:
    """One line says why, and the clock stays."""
    status, answer = caller.local("clock", given)
    assert status == 400
    assert message in answer["error"]
    assert caller.local("clock")[1] == {"now": START}
    with pytest.raises(ValueError, match="cannot be advanced by -1"):
        caller.server.advance(-1)


def test_what_is_no_json_is_shown(caller: Caller) -> None:
    """Its beginning, and the rule."""
    request = Request(f"{caller.server.endpoint_url}/_local/clock", data=b"advanceSeconds=31")
    with pytest.raises(HTTPError) as caught:
        urlopen(request, timeout=10)
    with caught.value as answer:
        error = "the request's body is 'advanceSeconds=31'; it must be JSON"
        assert (answer.code, json.loads(answer.read())) == (400, {"error": error})


# What stands in a queue


def test_messages_are_seen_with_their_state_and_not_received(caller: Caller) -> None:
    """Looking changes no count, takes no lock, and shows what a receive would not."""
    ids = [caller.send("1", "a"), caller.send("2", "a"), caller.send("3", "b")]
    caller.receive(VisibilityTimeout=30, MaxNumberOfMessages=1)
    for _ in range(2):
        status, found = caller.local("messages?queue=q.fifo")
        assert (status, found) == (200, caller.server.messages("q.fifo"))
    assert [one["messageId"] for one in found] == ids
    assert [one["state"] for one in found] == ["in flight", "waiting", "waiting"]
    assert [one["receiveCount"] for one in found] == [1, 0, 0]
    assert [one["visibleAt"] for one in found] == [START + 30, None, None]
    assert [one["messageGroupId"] for one in found] == ["a", "a", "b"]
    assert [(one["messageDeduplicationId"], one["body"]) for one in found] == [(body, body) for body in "123"]
    numbers = [int(one["sequenceNumber"]) for one in found]
    assert numbers == sorted(numbers)


def test_messages_of_all_queues_are_seen_at_once(caller: Caller) -> None:
    """Each tells its queue; one queue is named by its name or its URL."""
    caller.send("1")
    caller.send("2", QueueUrl=caller.server.queue_url("other.fifo"))
    caller.send("3")
    status, found = caller.local("messages")
    assert (status, found) == (200, caller.server.messages())
    assert [(one["queue"], one["body"]) for one in found] == [("q.fifo", "1"), ("q.fifo", "3"), ("other.fifo", "2")]
    for query in ("queue=q.fifo", f"queue={caller.url}", "queueUrl=q.fifo", f"queueUrl={caller.url}"):
        assert caller.local(f"messages?{query}") == (200, found[:2])


@pytest.mark.parametrize("query", ["name=q.fifo", "queue=q.fifo&queue=other.fifo", "queue=q.fifo&queueUrl=q.fifo"])
def test_messages_are_not_asked_for_in_another_way(caller: Caller, query: str) -> None:
    """A misspelt parameter does not show all queues."""
    status, answer = caller.local(f"messages?{query}")
    assert (status, "queue=NAME or queueUrl=URL" in answer["error"]) == (400, True)


def test_queue_that_is_not_there_is_named_in_one_line(caller: Caller) -> None:
    """Neither an empty list nor a defect of the server."""
    assert caller.local("messages?queue=no.fifo") == (400, {"error": "The specified queue does not exist."})
    with pytest.raises(SqsError, match="does not exist"):
        caller.server.messages("no.fifo")


# What became of a message


def test_history_tells_a_message_from_sending_to_after_its_end(caller: Caller) -> None:
    """Each step with its time, also over HTTP, and when the message is gone."""
    message_id = caller.send("1")
    caller.send("1")
    caller.server.advance(5)
    caller.receive(VisibilityTimeout=10)
    caller.server.advance(10)
    for _ in range(2):
        [message] = caller.receive(VisibilityTimeout=10, ReceiveRequestAttemptId="try")
    handle = message["ReceiptHandle"]
    caller.call("ChangeMessageVisibility", ReceiptHandle=handle, VisibilityTimeout=60)
    caller.server.advance(1)
    caller.call("DeleteMessage", ReceiptHandle=handle)
    status, told = caller.local(f"messages/{message_id}")
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
    assert told == caller.server.history(message_id)
    assert not any("body" in event for event in told)


def test_history_goes_on_in_the_dead_letter_queue(caller: Caller) -> None:
    """A message keeps its id there, and expires there."""
    policy = {"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:other.fifo", "maxReceiveCount": 1}
    caller.call("SetQueueAttributes", Attributes={"RedrivePolicy": json.dumps(policy)})
    message_id = caller.send("1")
    caller.receive(VisibilityTimeout=0)
    assert caller.receive() == []
    caller.server.advance(345_600)
    told = caller.server.history(message_id)
    assert [(event["event"], event["queue"]) for event in told] == [
        ("sent", "q.fifo"),
        ("received", "q.fifo"),
        ("lapsed", "q.fifo"),
        ("moved_to_dlq", "q.fifo"),
        ("expired", "other.fifo"),
    ]


def test_message_that_nobody_knows_has_no_history(caller: Caller) -> None:
    """Not found, with the id in the line."""
    assert caller.local("messages/nobody") == (404, {"error": "nothing is known of a message 'nobody'"})
    assert caller.server.history("nobody") == []


def test_history_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest events are forgotten first."""
    monkeypatch.setattr(inspection, "HISTORY", 3)
    with LocalQueueServer(queues=["q.fifo"]) as server:
        caller = Caller(server)
        first, second = caller.send("1", "a"), caller.send("2", "b")
        caller.receive()
        assert (caller.kinds(first), caller.kinds(second)) == (["received"], ["sent", "received"])


def test_path_that_is_none_tells_which_there_are(caller: Caller) -> None:
    """Whatever the method."""
    for status, answer in (caller.local("nothing"), caller.local("nothing", {})):
        assert status == 404
        assert "/_local/messages?queue=NAME" in answer["error"]
        assert "GET or POST /_local/clock" in answer["error"]
