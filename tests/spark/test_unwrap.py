"""Messages that an SNS FIFO topic delivers, with its envelope and raw, as Spark has them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from tests.spark.support import Rig, in_both_modes

if TYPE_CHECKING:
    from collections.abc import Sequence

ATTRIBUTES = {
    "for": {"DataType": "String", "StringValue": "EUR"},
    "seal": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
}


def delivered(bodies: Sequence[str], *, is_raw: bool) -> tuple[str, list[dict[str, Any]]]:
    """Return the ARN of moto's topic, and what it delivers to moto's queue of these messages."""
    with mock_aws():
        keys = {"region_name": "eu-west-1", "aws_access_key_id": "any", "aws_secret_access_key": "any"}
        sns, sqs = boto3.client("sns", **keys), boto3.client("sqs", **keys)
        topic = sns.create_topic(Name="bids.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]
        url = sqs.create_queue(QueueName="bids.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        raw = {"RawMessageDelivery": "true"} if is_raw else {}
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes=raw)
        # moto cannot deliver a binary attribute raw; those that it can are other than AWS's.
        attributes = {} if is_raw else ATTRIBUTES
        for number, body in enumerate(bodies):
            group = {"MessageGroupId": "lot", "MessageDeduplicationId": str(number)}
            sns.publish(TopicArn=topic, Message=body, Subject="a bid", MessageAttributes=attributes, **group)
        messages: list[dict[str, Any]] = []
        while len(messages) < len(bodies):
            answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
            messages += answer["Messages"]
            for message in answer["Messages"]:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return topic, messages


AS_JSON = {**ATTRIBUTES, "seal": {"DataType": "Binary", "BinaryValue": base64.b64encode(b"\x00\xff").decode()}}
"""The same, as they go over HTTP."""


def send(rig: Rig, number: int, body: str, attributes: dict[str, Any]) -> None:
    given = {"QueueUrl": rig.url, "MessageBody": body, "MessageGroupId": "lot", "MessageDeduplicationId": str(number)}
    rig.call("SendMessage", **given, MessageAttributes=attributes)


@in_both_modes
@pytest.mark.parametrize("is_raw", [False, True], ids=["envelope", "raw"])
def test_a_message_is_the_same_however_the_topic_delivers_it(rig: Rig, is_raw: bool) -> None:
    """Body and attributes; only `sns` shows that there was an envelope. What is no notification is left alone."""
    bodies = ["1", '{"amount": 2}']
    topic, messages = delivered(bodies, is_raw=is_raw)
    for number, message in enumerate(messages):
        send(rig, number, message["Body"], AS_JSON if is_raw else message.get("MessageAttributes", {}))
    send(rig, 9, "sent by hand", {})
    *rows, by_hand = sorted(rig.drained(rig.source(unwrap="sns")), key=lambda row: int(row.sequenceNumber))
    assert [row["body"] for row in rows] == bodies
    for row in rows:
        assert row["messageAttributes"]["for"]["stringValue"] == "EUR"
        assert bytes(row["messageAttributes"]["seal"]["binaryValue"]) == b"\x00\xff"
        if is_raw:
            assert row["sns"] is None
        else:
            assert (row["sns"]["topicArn"], row["sns"]["subject"]) == (topic, "a bid")
            assert row["sns"]["messageId"]
            assert row["sns"]["timestamp"] is not None
    assert (by_hand["body"], by_hand["sns"]) == ("sent by hand", None)


def test_a_schema_may_name_the_column(rig: Rig) -> None:
    """With its type, and in any place."""
    _, (message,) = delivered(["1"], is_raw=False)
    send(rig, 0, message["Body"], {})
    names = ("topicArn", "messageId", "sequenceNumber", "subject")
    sns = StructType([*(StructField(name, StringType()) for name in names), StructField("timestamp", TimestampType())])
    schema = StructType([StructField("SNS", sns), StructField("body", StringType())])
    frame = rig.spark.readStream.format("sqsfifo").schema(schema).options(**rig.options(unwrap="sns")).load()
    assert list(map(tuple, rig.drained(frame.selectExpr("SNS.subject", "body")))) == [("a bid", "1")]
