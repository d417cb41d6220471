"""Queues of the strict model by themselves: what `conformance` does not show of them; and any request."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import pytest

from sqs_fifo_spark.local import Event, SqsError
from sqs_fifo_spark.local.model import ACTIONS
from tests.unit.local.model_queue import ModelQueue, a_message, refused

# A received message


@pytest.mark.parametrize(
    ("wanted", "names", "md5"),
    [
        *(
            ([every], {"General", "Hello", "Help.Me"}, "4c360f3fdafd970e05fae2f149d997f5")
            for every in ("All", ".*", "*")
        ),
        (["Hello", "General"], {"General", "Hello"}, "fca026605781cb4126a1e9044df24232"),
        (["Hello", "Missing"], {"Hello"}, "a311262e065454b75da111d535b8dacd"),
        (["Hel.*"], {"Hello", "Help.Me"}, "83fee93c1bcd8b9a5a923ffacdc636c7"),
        *((nothing, set(), None) for nothing in (["Missing", "Help"], ["AWS."], ["..foo"], [])),
    ],
)
def test_message_attributes_are_returned_as_asked(
    queue: ModelQueue, wanted: list[str], names: set[str], md5: str | None
) -> None:
    """Names, prefixes, All, .* and * select; the MD5, recorded from AWS, is that of what is returned."""
    values = {"General": "Kenobi", "Hello": "There", "Help.Me": "Me"}
    queue.send(MessageAttributes={k: {"DataType": "String", "StringValue": v} for k, v in values.items()})
    message = queue.receive(MessageAttributeNames=wanted)[0]
    assert set(message.get("MessageAttributes", {})) == names
    assert message.get("MD5OfMessageAttributes") == md5


def test_md5s_are_computed_as_aws_does(queue: ModelQueue) -> None:
    """Recorded digests of a body and of a binary attribute; system attributes have their own."""
    value = "dHJhY2VwYXJlbnQeMDAtNzc0MDYyZDZjMzcwODFhNWEwYjliNWI4OGUzMDYyN2MtMmQyNDgyMjExZjY0ODlkYS0wMQ=="
    sent = queue.send(
        body="test",
        MessageAttributes={"attr1": {"DataType": "Binary", "BinaryValue": value}},
        MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}},
    )
    assert sent["MD5OfMessageBody"] == "098f6bcd4621d373cade4e832627b4f6"
    assert sent["MD5OfMessageAttributes"] == "8cbe4db156db8a94db8b801b7addb984"
    assert re.fullmatch("[0-9a-f]{32}", sent["MD5OfMessageSystemAttributes"])


# Queues


@pytest.mark.parametrize("written", ["true", "True", "TRUE"])
def test_booleans_are_taken_in_any_case_and_shown_in_lower_case(queue: ModelQueue, written: str) -> None:
    """A queue that was created with True is found again with true."""
    names = ("FifoQueue", "ContentBasedDeduplication", "SqsManagedSseEnabled")
    made = queue.another("a.fifo", **dict.fromkeys(names, written))
    assert {made.attributes()[name] for name in names} == {"true"}
    assert queue.another("a.fifo", **dict.fromkeys(names, "true")).url == made.url
    made.send(MessageDeduplicationId=None)
    made.set(ContentBasedDeduplication="False", SqsManagedSseEnabled="FALSE")
    assert {made.attributes()[name] for name in names[1:]} == {"false"}
    assert refused(made.send, MessageDeduplicationId=None).query_code == "InvalidParameterValue"
    for name in names:
        assert refused(made.set, **{name: "yes"}).query_code == "InvalidAttributeValue"


@pytest.mark.parametrize("written", ["false", "False"])
def test_type_of_a_queue_cannot_be_modified(queue: ModelQueue, written: str) -> None:
    """Taking FifoQueue away is InvalidAttributeValue; a standard queue does not know the attribute."""
    for error in (refused(queue.set, FifoQueue=written), refused(queue.another, queue.name, FifoQueue=written)):
        assert str(error) == (
            "InvalidAttributeValue: Invalid value for the parameter FifoQueue. "
            "Reason: Modifying queue type is not supported."
        )
    queue.set(FifoQueue="true")
    plain = queue.another("plain")
    for value in (written, "true"):
        assert str(refused(plain.set, FifoQueue=value)) == "InvalidAttributeName: Unknown Attribute FifoQueue."


def test_creating_a_queue_otherwise_once_more_has_awss_two_names(queue: ModelQueue) -> None:
    """`conformance` takes either of them."""
    error = refused(queue.another, queue.name, VisibilityTimeout="31")
    assert (error.shape, error.query_code) == ("QueueNameExists", "QueueAlreadyExists")


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("plain", {"FifoQueue": "true"}),
        ("a.fifo", {}),
        ("a b.fifo", {"FifoQueue": "true"}),
        ("a", {"FifoQueue": "false"}),
        ("a", {"ContentBasedDeduplication": "true"}),
    ],
)
def test_create_queue_refuses_bad_names_or_attributes(queue: ModelQueue, name: str, attributes: dict[str, str]) -> None:
    """FIFO names end in .fifo with FifoQueue=true, and a standard queue has no attributes of FIFO ones."""
    error = refused(queue.model.call, "CreateQueue", {"QueueName": name, "Attributes": attributes})
    assert error.query_code in ("InvalidParameterValue", "InvalidAttributeName")


def test_queue_attributes_show_counts_times_and_settings(queue: ModelQueue) -> None:
    """Counts of visible and in-flight messages are exact here, times in whole seconds."""
    queue.send_many("g", "1", "2", "3")
    queue.receive(1)
    expected = {
        "ApproximateNumberOfMessages": "2",
        "ApproximateNumberOfMessagesNotVisible": "1",
        "QueueArn": "arn:aws:sqs:us-east-1:000000000000:orders.fifo",
        "CreatedTimestamp": "1700000000",
        "FifoQueue": "true",
        "VisibilityTimeout": "30",
    }
    assert expected.items() <= queue.attributes().items()
    assert queue.call("GetQueueAttributes", AttributeNames=["FifoQueue"]) == {"Attributes": {"FifoQueue": "true"}}
    assert refused(queue.call, "GetQueueAttributes", AttributeNames=["Colour"]).query_code == "InvalidAttributeName"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VisibilityTimeout", "9" * 5_000),
        ("DelaySeconds", "1" * 5_000),
        ("RedrivePolicy", "[" * 200_000),
        ("RedrivePolicy", '{"deadLetterTargetArn": "arn:aws:sqs:r:0:q", "maxReceiveCount": "' + "9" * 5_000 + '"}'),
        ("RedrivePolicy", '{"deadLetterTargetArn": "arn:aws:sqs:r:0:q", "maxReceiveCount": ' + "9" * 5_000 + "}"),
    ],
)
def test_an_attribute_beyond_all_measure_is_refused(queue: ModelQueue, name: str, value: str) -> None:
    """As any wrong one, by the rules, and not by what Python cannot read."""
    assert refused(queue.set, **{name: value}).status == 400


def test_purge_empties_the_queue_and_waits_a_minute_before_the_next(queue: ModelQueue) -> None:
    """It takes messages in flight too. Recorded: what was sent before may be sent again at once, and counts anew."""
    queue.send("g", "old", MessageDeduplicationId="d")
    queue.send_many("g", "1", "2")
    queue.receive(1)
    queue.clock.advance(200)
    queue.call("PurgeQueue")
    assert queue.attributes()["ApproximateNumberOfMessagesNotVisible"] == "0"
    assert refused(queue.call, "PurgeQueue").shape == "PurgeQueueInProgress"
    queue.send("g", "new", MessageDeduplicationId="d")
    queue.clock.advance(200)
    queue.send("g", "duplicate", MessageDeduplicationId="d")
    assert queue.bodies() == ["new"]
    queue.call("PurgeQueue")
    queue.clock.advance(60)
    queue.call("PurgeQueue")


def test_list_queues_pages_by_name(queue: ModelQueue) -> None:
    """Queues are listed by prefix, and in pages when asked for."""
    ab, aa = (queue.another(f"{name}.fifo").url for name in ("ab", "aa"))
    assert queue.call("ListQueues", QueueNamePrefix="a")["QueueUrls"] == [aa, ab]
    page = queue.call("ListQueues", MaxResults=2)
    rest = queue.call("ListQueues", MaxResults=2, NextToken=page["NextToken"])
    assert page["QueueUrls"] + rest["QueueUrls"] == [aa, ab, queue.url]


def test_standard_queue_has_no_lock_no_sequence_and_deletes_with_old_handles(queue: ModelQueue) -> None:
    """A standard queue exists for clients to recognise: nothing of FIFO holds on it."""
    plain = queue.another("plain")
    sent = [plain.send(MessageDeduplicationId=None, MessageBody="same") for _ in range(2)]
    assert all("SequenceNumber" not in response for response in sent)
    assert "FifoQueue" not in plain.attributes()
    error = refused(plain.call, "GetQueueAttributes", AttributeNames=["FifoQueue"])
    assert str(error) == "InvalidAttributeName: Unknown Attribute FifoQueue."
    first = plain.receive(1, VisibilityTimeout=1)[0]
    assert len(plain.receive(1)) == 1
    queue.clock.advance(1)
    plain.delete(first)
    assert refused(plain.send, MessageDeduplicationId="d").query_code == "InvalidParameterValue"


# Tags


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"": "v"}, "between 1 and 128"),
        ({"k" * 129: "v"}, "between 1 and 128"),
        ({"k": "v" * 257}, "between 0 and 256"),
        ({"k": "a;b"}, "can only include"),
        ({"aws:k": "v"}, "reserved prefix aws:"),
        ({str(number): "v" for number in range(50)}, "Too many tags added for queue t.fifo."),
    ],
)
def test_tags_out_of_bounds_are_refused_and_change_nothing(queue: ModelQueue, given: dict[str, str], says: str) -> None:
    """Also at the creation, where no queue comes of it; else it has the tags that it was created with."""
    request: dict[str, Any] = {"QueueName": "t.fifo", "Attributes": {"FifoQueue": "true"}}
    at_once = refused(queue.call, "CreateQueue", **request, tags={**given, "one": "more"})
    assert refused(queue.call, "GetQueueUrl", QueueName="t.fifo").shape == "QueueDoesNotExist"
    url = queue.call("CreateQueue", **request, tags={"team": "bids"})["QueueUrl"]
    later = refused(queue.call, "TagQueue", QueueUrl=url, Tags=given)
    assert queue.call("ListQueueTags", QueueUrl=url) == {"Tags": {"team": "bids"}}
    for error in (at_once, later):
        assert error.query_code == "InvalidParameterValue"
        assert says in error.message


@pytest.mark.parametrize(("action", "parameter"), [("TagQueue", "Tags"), ("UntagQueue", "TagKeys")])
def test_tagging_with_nothing_is_missing_parameter(queue: ModelQueue, action: str, parameter: str) -> None:
    """Neither action does nothing."""
    error = refused(queue.call, action)
    assert (error.query_code, parameter in error.message) == ("MissingParameter", True)


# Any request


@pytest.mark.parametrize(
    ("ids", "code"),
    [
        (["a", "a"], "BatchEntryIdsNotDistinct"),
        ([str(number) for number in range(11)], "TooManyEntriesInBatchRequest"),
        (["a:b"], "InvalidBatchEntryId"),
    ],
)
def test_batch_of_a_wrong_form_has_the_code_of_the_older_protocol(queue: ModelQueue, ids: list[str], code: str) -> None:
    """`conformance` compares codes without their prefix."""
    error = refused(queue.call, "DeleteMessageBatch", Entries=[{"Id": each, **a_message()} for each in ids])
    assert error.query_code == f"AWS.SimpleQueueService.{code}"


def test_actions_are_those_that_are_listed(queue: ModelQueue) -> None:
    """Faults can name no action that the model does not have; another one is UnsupportedOperation, by its name."""
    for action in ACTIONS.keys() - {"ListQueues"}:
        assert refused(queue.model.call, action, {}).shape != "UnsupportedOperation"
    error = refused(queue.model.call, "AddPermission", {})
    assert error.shape == "UnsupportedOperation"
    assert "AddPermission" in error.message


_JUNK: tuple[Any, ...] = (
    None, True, -1, 0, 10**30, 1.5, "", "a", "\ud800", "orders.fifo", [], ["All"], [1], [{}], [{"Id": "a"}],
    {}, {"FifoQueue": "true"}, {"a": {}}, {"a": {"DataType": "String", "StringValue": "\ud800"}},
    {"a": {"DataType": "Binary", "BinaryValue": "é"}}, {"RedrivePolicy": "[]"}, {"RedrivePolicy": "{}"},
)  # fmt: skip
_FIELDS = (
    "QueueUrl", "QueueName", "Entries", "Attributes", "AttributeNames", "MessageBody", "MessageGroupId",
    "MessageDeduplicationId", "MessageAttributes", "MessageSystemAttributes", "DelaySeconds", "ReceiptHandle",
    "VisibilityTimeout", "MaxNumberOfMessages", "WaitTimeSeconds", "ReceiveRequestAttemptId", "NextToken",
    "MessageSystemAttributeNames", "MessageAttributeNames", "MaxResults", "QueueNamePrefix", "tags", "Tags",
    "TagKeys", "SourceArn", "DestinationArn", "TaskHandle", "MaxNumberOfMessagesPerSecond",
)  # fmt: skip


def test_any_request_is_answered_or_refused_in_aws_terms(queue: ModelQueue) -> None:
    """Whatever stands in a request, there is no error but SqsError."""
    dice = random.Random(11)
    good = {"QueueUrl": queue.url, **a_message()}
    outcomes = Counter[str]()
    for _ in range(10_000):
        entry = {field: dice.choice(_JUNK) for field in dice.sample(_FIELDS, 4)}
        request = {**good, **{field: dice.choice(_JUNK) for field in dice.sample(_FIELDS, 2)}}
        if dice.random() < 0.3:
            request["Entries"] = [{"Id": "a", **good, **entry}, {"Id": "b", **entry}]
        try:
            queue.model.call(dice.choice(sorted(ACTIONS.keys() - {"DeleteQueue"})), request)
            outcomes["ok"] += 1
        except SqsError as error:
            outcomes[error.shape] += 1
    assert outcomes["ok"] > 500
    assert len(outcomes) >= 9


# Events


def test_no_repr_shows_a_body(queue: ModelQueue) -> None:
    """Bodies are somebody's data: events and errors never hold them."""
    told: list[Event] = []
    queue.model.on_event(told.append)
    queue.send(body="secret-body")
    queue.receive()
    error = refused(queue.send, body="secret-body\x00")
    assert "secret-body" not in f"{told!r}{error!r}{error}"
