"""The content of rows, and no loss of rows that nobody looked at."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timezone

import boto3
import pytest
from pyspark.sql import DataFrame, Row
from pyspark.sql.types import StringType

from tests.helpers import wait_until
from tests.spark.support import LONG_S, Rig, assert_each_once, require_alive

pytestmark = pytest.mark.law("source-1")


def test_a_user_schema_may_name_a_subset_of_the_columns(rig: Rig) -> None:
    """In any case, as Spark resolves names; the columns come in the order and the spelling of the user's schema."""
    rig.send(20, groups=2, body="hello")
    names = ("BODY", "messageGroupId")
    frame = rig.spark.readStream.format("sqsfifo").schema(" STRING, ".join(names) + " STRING")
    source = frame.options(**rig.options()).load()
    assert [(field.name, field.dataType) for field in source.schema] == [(name, StringType()) for name in names]
    assert sorted(map(tuple, rig.drained(source))) == sorted(
        (f"hello {number}", f"group-{number % 2}") for number in range(20)
    )


def test_message_attributes_and_system_attributes_arrive_with_their_types(rig: Rig) -> None:
    """A string, a number and bytes; ids, times and counts as the queue tells them."""
    attributes = {
        "colour": {"DataType": "String", "StringValue": "grün"},
        "amount": {"DataType": "Number.int", "StringValue": "42"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff\x10"},
    }
    before = datetime.now(timezone.utc).replace(microsecond=0, tzinfo=None)
    with closing(boto3.client("sqs", endpoint_url=rig.server.endpoint_url)) as sqs:
        answer = sqs.send_message(
            QueueUrl=rig.url,
            MessageBody="snow ☃ and\ttab",
            MessageGroupId="g",
            MessageDeduplicationId="d",
            MessageAttributes=attributes,
            MessageSystemAttributes={
                "AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}
            },
        )
    (row,) = rig.drained(rig.source())
    assert row.messageId == answer["MessageId"]
    assert row.sequenceNumber == answer["SequenceNumber"]
    assert (row.body, row.messageGroupId, row.messageDeduplicationId) == ("snow ☃ and\ttab", "g", "d")
    assert row.receiveCount == 1
    assert row.senderId
    assert row.awsTraceHeader == "Root=1-5759e988-bd862e3fe1be46a994272793"
    assert row.deadLetterQueueSourceArn is None
    assert {name: tuple(value) for name, value in row.messageAttributes.items()} == {
        "colour": ("String", "grün", None),
        "amount": ("Number.int", "42", None),
        "raw": ("Binary", None, bytearray(b"\x00\xff\x10")),
    }
    # Spark gives timestamps in this machine's local time.
    sent_at, received_at = (
        at.astimezone(timezone.utc).replace(tzinfo=None) for at in (row.sentTimestamp, row.firstReceiveTimestamp)
    )
    assert before <= sent_at <= received_at <= datetime.now(timezone.utc).replace(tzinfo=None)


def test_what_a_micro_batch_does_not_read_comes_with_a_later_one(rig: Rig) -> None:
    """Its function looks at no row, three times; or `limit(1)` reads the first partition alone. The query goes on."""
    sent = rig.send(400, groups=400)
    unread: list[int] = []
    first: list[str] = []
    later: list[str] = []

    def look(frame: DataFrame, batch_id: int) -> None:
        if len(unread) < 3:
            unread.append(batch_id)
        elif first:
            later.extend(row.messageId for row in frame.collect())
        else:
            (row,) = frame.limit(1).collect()
            # All that the limit's partition gave to Spark.
            ids = rig.spark.sparkContext.runJob(frame.rdd, lambda rows: [each.messageId for each in rows], [0])
            assert frame.rdd.getNumPartitions() > 1
            assert row.messageId in ids
            first.extend(ids)

    with rig.to_function(rig.source(), look) as query:
        rig.drain(query)
        require_alive(query)
    assert unread == [0, 1, 2]
    assert 0 < len(first) < 400
    assert_each_once(first + later, sent)


def test_messages_sent_while_the_query_is_idle_come_at_once(rig: Rig) -> None:
    """The long poll ends with the message, not with its time."""
    rows: list[Row] = []
    with rig.to_function(rig.source(waitTimeSeconds=20), lambda batch, _: rows.extend(batch.collect())):
        for number in range(1, 4):
            wait_until(lambda: rig.server.waiting, LONG_S, "the query polls")
            rig.send(1)
            wait_until(lambda number=number: len(rows) == number, 10, "the message has come")  # type: ignore[misc]
    assert_each_once((row.messageId for row in rows), rig.sent)
