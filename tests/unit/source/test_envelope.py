"""A body that is an SNS notification is opened; any other stays as it is, to the last character."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from sqs_fifo_spark.payloads.pointer import SIZE_ATTRIBUTE, Pointer, body_of
from sqs_fifo_spark.source.envelope import open_envelope
from sqs_fifo_spark.source.message import Message, from_arrow, from_sqs, pointer_of, to_arrow
from tests.unit.aws.answering import sqs_message

TOPIC = "arn:aws:sns:eu-west-1:111122223333:bids.fifo"
SENT = datetime(2026, 11, 29, 10, 0, 0, 655_000, timezone.utc)
FIFO = {
    "Type": "Notification",
    "MessageId": "b6c1e1f7-fa2c-5e1c-9e6d-bdb2a1d6e2a1",
    "SequenceNumber": "10000000000000003000",
    "TopicArn": TOPIC,
    "Message": '{"amount": 100}',
    "Timestamp": "2026-11-29T10:00:00.655Z",
    "UnsubscribeURL": "https://sns.eu-west-1.amazonaws.com/?Action=Unsubscribe",
    "MessageAttributes": {
        "for": {"Type": "String", "Value": "EUR"},
        "weight": {"Type": "Number", "Value": "1.50"},
        "tags": {"Type": "String.Array", "Value": '["a", 1]'},
        "seal": {"Type": "Binary", "Value": base64.b64encode(b"\x00\xff").decode()},
    },
}
"""As a FIFO topic sends it: with a sequence number, and without a signature."""
STANDARD = {
    **{name: value for name, value in FIFO.items() if name not in ("SequenceNumber", "MessageAttributes")},
    "TopicArn": TOPIC.removesuffix(".fifo"),
    "Subject": "a bid",
    "SignatureVersion": "1",
    "Signature": "EXAMPLElDMXvB8r9R83tGoNn0ecwd5UjllzsvSvbItzfaMpN2nk5HVSw7XnOn",
    "SigningCertURL": "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0.pem",
}


def received(body: str, attributes: Any = None, *, opens_envelopes: bool = True) -> Message:
    answer = {**sqs_message(7, body), "MessageAttributes": attributes or {}}
    return from_sqs(answer, receive=1, received_at=1.0, opens_envelopes=opens_envelopes)


def row_of(message: Message) -> dict[str, Any]:
    (row,) = to_arrow([message]).to_pylist()
    return {**row, "messageAttributes": dict(row["messageAttributes"])}


def test_a_fifo_topic_s_notification_becomes_its_message() -> None:
    row = row_of(received(json.dumps(FIFO)))
    assert row["body"] == '{"amount": 100}'
    assert row["sns"] == {
        "topicArn": TOPIC,
        "messageId": "b6c1e1f7-fa2c-5e1c-9e6d-bdb2a1d6e2a1",
        "sequenceNumber": "10000000000000003000",
        "subject": None,
        "timestamp": SENT,
    }
    nothing = {"stringValue": None, "binaryValue": None}
    assert row["messageAttributes"] == {
        "for": {**nothing, "dataType": "String", "stringValue": "EUR"},
        "weight": {**nothing, "dataType": "Number", "stringValue": "1.50"},
        "tags": {**nothing, "dataType": "String.Array", "stringValue": '["a", 1]'},
        "seal": {**nothing, "dataType": "Binary", "binaryValue": b"\x00\xff"},
    }
    assert (row["messageId"], row["sequenceNumber"], row["messageGroupId"]) == ("7", "7", "g")


def test_a_standard_topic_s_notification_has_a_subject_and_no_number() -> None:
    row = row_of(received(json.dumps(STANDARD)))
    assert row["body"] == '{"amount": 100}'
    assert (row["sns"]["subject"], row["sns"]["sequenceNumber"]) == ("a bid", None)
    assert row["messageAttributes"] == {}


def test_the_message_s_own_attributes_stay_beside_those_in_the_envelope() -> None:
    """With one of the same name the envelope stays closed: one of the two would be lost."""
    own = {"traceparent": {"DataType": "String", "StringValue": "t"}}
    row = row_of(received(json.dumps(FIFO), own))
    assert row["messageAttributes"].keys() == {"for", "weight", "tags", "seal", "traceparent"}
    row = row_of(received(json.dumps(FIFO), {"for": {"DataType": "String", "StringValue": "USD"}}))
    assert (row["body"], row["sns"]) == (json.dumps(FIFO), None)
    assert row["messageAttributes"]["for"]["stringValue"] == "USD"


def test_only_who_asks_for_it_gets_an_envelope_opened() -> None:
    """It counts as what SQS has carried, opened or not, as do the limits."""
    body = json.dumps(FIFO)
    closed = received(body, opens_envelopes=False)
    row = row_of(closed)
    assert (row["body"], row["sns"]) == (body, None)
    assert received(body).size == closed.size == len(body)


def test_an_envelope_in_an_envelope_is_a_message_like_any_other() -> None:
    inner = json.dumps(STANDARD)
    row = row_of(received(json.dumps({**FIFO, "Message": inner})))
    assert row["body"] == inner
    assert row["sns"]["topicArn"] == TOPIC


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in FIFO.items() if key != name}


WRONG: dict[str, list[Any]] = {
    "Type": ["SubscriptionConfirmation"],
    "Message": [{"default": "bid"}, None, "half of a character: \ud83d"],
    "TopicArn": [7],
    "Subject": [7],
    "SequenceNumber": [7],
    "Extra": ["lost"],
    "Timestamp": [
        *(7, "yesterday", "2026-11-29T10:00:00.655", "2026-11-29T11:00:00.655+01:00", "20261129T100000Z"),
        *("2026-11-29T10:00:00.655000001Z", "2026-02-30T10:00:00Z", "0001-01-01T00:00:00+00:01"),
        *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999-00:01"),
    ],
    "MessageAttributes": [
        *("none", {"for": "EUR"}, {"for": {"Type": "String"}}),
        {"for": {"Type": "String", "Value": "EUR", "Extra": "lost"}},
        *({"seal": {"Type": "Binary", "Value": value}} for value in ("QR==", "not base64!")),
    ],
}
"""Values that a notification does not have, by name."""


@pytest.mark.parametrize(
    "body",
    [
        "",
        "bid",
        TOPIC,
        json.dumps(FIFO)[:-1],
        json.dumps([FIFO]),
        json.dumps({"Records": [{"Sns": FIFO}]}),
        '"TopicArn"',
        '{"TopicArn": ' + "[" * 100_000,
        *(json.dumps(without(name)) for name in ("Type", "MessageId", "TopicArn", "Message", "Timestamp")),
        json.dumps(FIFO)[:-1] + ', "Message": "another"}',
        *(json.dumps({**FIFO, name: value}) for name, values in WRONG.items() for value in values),
    ],
    ids=lambda body: body[:40],
)
def test_a_lookalike_stays_as_it_is(body: str) -> None:
    """Nothing of it is lost, and it fails nothing."""
    assert open_envelope(body) is None
    row = row_of(received(body))
    assert (row["body"], row["sns"], row["messageAttributes"]) == (body, None, {})


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-11-29T10:00:00.655Z", SENT),
        ("2026-11-29T10:00:00Z", SENT.replace(microsecond=0)),
        ("2026-11-29T10:00:00.000007Z", SENT.replace(microsecond=7)),
    ],
)
def test_the_time_is_utc(text: str, at: datetime) -> None:
    assert row_of(received(json.dumps({**FIFO, "Timestamp": text})))["sns"]["timestamp"] == at


def test_a_row_goes_into_a_segment_and_comes_back_the_same() -> None:
    """Beside others that have no envelope, in one that is read from the journal as in one that is new."""
    make: Callable[[str], Message] = received
    messages = [make(json.dumps(FIFO)), make("bid"), make(json.dumps(STANDARD))]
    rows = to_arrow(messages)
    again = from_arrow([each.receipt for each in messages], rows, [each.size for each in messages])
    assert again == messages
    assert to_arrow(again).equals(rows)
    assert to_arrow([again[0], messages[2]]).equals(rows.take([0, 2]))


def test_a_pointer_to_s3_in_an_envelope_is_one() -> None:
    """As AWS's extended client for SNS sends it: the mark is an attribute of the envelope."""
    pointer = Pointer("bodies", "key", 300_000)
    mark = {SIZE_ATTRIBUTE: {"Type": "Number", "Value": "300000"}}
    envelope = json.dumps({**FIFO, "Message": body_of(pointer), "MessageAttributes": mark})
    assert pointer_of(received(envelope)) == pointer
    assert pointer_of(received(envelope, opens_envelopes=False)) is None
