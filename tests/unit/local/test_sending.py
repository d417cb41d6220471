"""Sends to the strict queue: what `conformance` does not show of forms, duplicates, delays and a message's end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.local.model_queue import ModelQueue, a_message, failed, refused

TEXT = {"DataType": "String", "StringValue": "v"}
NO_DEDUPLICATION_ID = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
)


@pytest.fixture
def by_content(queue: ModelQueue) -> ModelQueue:
    return queue.another("content.fifo", ContentBasedDeduplication="true")


def entries(*bodies: str) -> list[dict[str, Any]]:
    return [{"Id": str(number), **a_message(body, "g", str(number))} for number, body in enumerate(bodies)]


# Refused


def attribute(value: str, data_type: str = "String", name: str = "a") -> dict[str, Any]:
    """Return the parameter of a message with this attribute."""
    return {"MessageAttributes": {name: {"DataType": data_type, "StringValue": value}}}


@pytest.mark.parametrize(
    ("request_", "code", "says"),
    [
        ({"MessageGroupId": None}, "MissingParameter", "The request must contain the parameter MessageGroupId."),
        ({"MessageDeduplicationId": None}, "InvalidParameterValue", NO_DEDUPLICATION_ID),
        ({"MessageBody": ""}, "MissingParameter", ""),
        (
            {"DelaySeconds": 2},
            "InvalidParameterValue",
            "Value 2 for parameter DelaySeconds is invalid. Reason: The request include parameter that is not "
            "valid for this queue type.",
        ),
        ({"MessageAttributes": {f"a{i}": TEXT for i in range(11)}}, "InvalidParameterValue", ""),
        # 1 to 128 of letters, digits and punctuation; an empty one is not absent.
        *(
            ({name: value}, "InvalidParameterValue", f"Value {value} for parameter {name} is invalid.")
            for name in ("MessageGroupId", "MessageDeduplicationId")
            for value in ("", "a b", "x" * 129, "é", "a\n")
        ),
        *(
            (request, "InvalidMessageContents", "")
            for character in ("\x00", "\x0b", "\x1f", "\ud800", "\ufffe", "\uffff")
            for request in ({"MessageBody": character}, attribute(character))
        ),
        *(
            (request, "InvalidParameterValue", "")
            for request in (
                *(attribute("v", "Text"), attribute("v", ""), attribute(""), attribute("1e-129", "Number.int")),
                *(attribute(number, "Number") for number in ("ten", "\u0663", "-1.1e126", "1e" + "9" * 30, "1" * 39)),
                *(attribute("v", name=name) for name in ("a b", ".a", "AWS.a")),
                {"MessageAttributes": {"a": {"DataType": "Binary"}}},
            )
        ),
    ],
)
def test_send_of_the_wrong_form_is_refused(queue: ModelQueue, request_: dict[str, Any], code: str, says: str) -> None:
    """A FIFO queue wants group, deduplication id and body, takes ten attributes, and no delay of one message."""
    error = refused(queue.send, **request_)
    assert (error.query_code, error.message[: len(says)]) == (code, says)


def test_empty_ids_are_invalid_where_none_are_needed_too(queue: ModelQueue, by_content: ModelQueue) -> None:
    """Neither the body's digest nor a standard queue's indifference stands in for an empty id."""
    plain = queue.another("plain")
    assert refused(by_content.send, MessageDeduplicationId="").query_code == "InvalidParameterValue"
    assert refused(plain.send, "", MessageDeduplicationId=None).query_code == "InvalidParameterValue"
    assert by_content.receive() + plain.receive() == []


@pytest.mark.parametrize("number", ["-1e126", "1E-128", "0e300", "0.0", "1" * 38, "1" + "0" * 126, "+.5"])
def test_a_number_within_the_bounds_arrives_as_it_was_sent(queue: ModelQueue, number: str) -> None:
    """38 digits, from 10**-128 to 10**126."""
    queue.send(**attribute(number, "Number"))
    (message,) = queue.receive(MessageAttributeNames=["All"])
    assert {"MessageAttributes": message["MessageAttributes"]} == attribute(number, "Number")


# Duplicates


def test_ids_stay_recognised_under_the_scope_at_which_they_were_sent(queue: ModelQueue) -> None:
    """After a change of DeduplicationScope, old ids hold where they held before, new ones in the new scope."""
    queue.send("g", MessageDeduplicationId="wide")
    queue.set(DeduplicationScope="messageGroup")
    queue.send("h", "duplicate", MessageDeduplicationId="wide")
    queue.send("g", "narrow", MessageDeduplicationId="narrow")
    queue.send("h", "other narrow", MessageDeduplicationId="narrow")
    queue.set(DeduplicationScope="queue")
    queue.send("h", "duplicate", MessageDeduplicationId="narrow")
    queue.send("i", "new", MessageDeduplicationId="narrow")
    queue.send("j", "duplicate", MessageDeduplicationId="narrow")
    assert queue.bodies() == ["1", "narrow", "other narrow", "new"]
    queue.clock.advance(300)
    assert queue.send("j", MessageDeduplicationId="narrow")["MessageId"] == queue.receive()[-1]["MessageId"]


# Batches


def test_batch_size_counts_all_entries_together(queue: ModelQueue) -> None:
    """Entries that are small enough alone are refused together past 1,048,576 bytes."""
    half = "x" * 524_288
    assert len(queue.call("SendMessageBatch", Entries=entries(half, half))["Successful"]) == 2
    error = refused(queue.call, "SendMessageBatch", Entries=entries(half, half + "x"))
    assert error.query_code == "AWS.SimpleQueueService.BatchRequestTooLong"
    assert error.message == "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes."


@pytest.mark.parametrize(
    ("wrong", "code"),
    [({"MessageBody": "\x00"}, "InvalidMessageContents"), ({"MessageGroupId": ""}, "InvalidParameterValue")],
)
def test_send_batch_can_accept_an_entry_after_a_failed_one(queue: ModelQueue, wrong: dict[str, str], code: str) -> None:
    """Entry 3 is stored though entry 2 failed: sent again, 2 stands behind 3."""
    given = entries("1", "2", "3")
    given[1] |= wrong
    response = queue.call("SendMessageBatch", Entries=given)
    assert [entry["Id"] for entry in response["Successful"]] == ["0", "2"]
    assert failed(response) == [("1", code, True)]
    assert queue.bodies() == ["1", "3"]


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("MessageGroupId", "The request must contain the parameter MessageGroupId."),
        ("MessageDeduplicationId", NO_DEDUPLICATION_ID),
    ],
)
def test_send_batch_fails_as_a_whole_when_an_entry_lacks_an_id(queue: ModelQueue, missing: str, says: str) -> None:
    """Recorded: an id that is needed and absent is an error of the call, and nothing was sent."""
    given = entries("1", "2", "3")
    del given[1][missing]
    error = refused(queue.call, "SendMessageBatch", Entries=given)
    assert (error.query_code, error.message) == ("InvalidParameterValue", says)
    assert queue.receive() == []


# Delays and retention


def test_delay_of_zero_leaves_the_delay_of_a_fifo_queue_in_force(queue: ModelQueue) -> None:
    """DelaySeconds=0 overrides the queue's delay on a standard queue, and says nothing on a FIFO one."""
    fifo, standard = (queue.another(name, DelaySeconds="5") for name in ("slow.fifo", "slow"))
    fifo.send(DelaySeconds=0)
    standard.send(DelaySeconds=0, MessageDeduplicationId=None)
    assert fifo.bodies() == []
    assert standard.bodies() == ["1"]


def test_change_of_the_delay_holds_for_messages_that_are_there(queue: ModelQueue) -> None:
    """On FIFO what was never received shows the new delay after it was sent; what was received is left alone."""
    queue.send("received", "received")
    queue.hide(queue.receive()[0], 0)
    queue.send("waits", "waits")
    queue.clock.advance(4)
    queue.set(DelaySeconds="10")
    assert queue.attributes()["ApproximateNumberOfMessagesDelayed"] == "1"
    assert queue.bodies(VisibilityTimeout=600) == ["received"]
    queue.clock.advance(6)
    assert queue.bodies(VisibilityTimeout=600) == ["waits"]
    queue.send("late", "late")
    queue.set(DelaySeconds="1")
    queue.clock.advance(1)
    assert queue.bodies(VisibilityTimeout=600) == ["late"]
    queue.set(DelaySeconds="900")
    queue.send("last", "last")
    queue.set(DelaySeconds="0")
    assert queue.bodies() == ["last"]


def test_change_of_a_standard_queues_delay_holds_for_new_messages_alone(queue: ModelQueue) -> None:
    """Only FIFO queues apply a new delay to what they hold."""
    plain = queue.another("plain")
    plain.send(MessageDeduplicationId=None)
    plain.set(DelaySeconds="10")
    plain.send(MessageDeduplicationId=None)
    assert plain.bodies() == ["1"]


def test_messages_expire_after_the_retention_period_in_flight_or_not(queue: ModelQueue) -> None:
    """Retention counts from the send; it takes in-flight messages too, and frees their group."""
    queue.set(MessageRetentionPeriod="60")
    queue.send_many("g", "1", "2")
    message = queue.receive(1, VisibilityTimeout=600)[0]
    queue.clock.advance(30)
    queue.send_many("g", "3")
    queue.clock.advance(30)
    assert queue.bodies() == ["3"]
    queue.delete(message)
