"""Large bodies on S3, as AWS's own extended client sends them, in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
import pytest
from pyspark.sql import Row

from tests.helpers import extended_session, moto_server, wait_until
from tests.spark.support import LONG_S, Rig, in_both_modes, recipe

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = {"region_name": "eu-west-1", "aws_access_key_id": "any", "aws_secret_access_key": "any"}
LARGE = 300_000
"""More bytes than AWS's client leaves in SQS."""


class Bucket:
    """A bucket of moto's S3, and AWS's client that puts large bodies there."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.s3 = boto3.client("s3", endpoint_url=endpoint, **KEYS)
        self.s3.create_bucket(Bucket="bodies", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})

    def held(self) -> list[str]:
        return [each["Key"] for each in self.s3.list_objects_v2(Bucket="bodies").get("Contents", ())]

    def client(self, rig: Rig, *, is_legacy: bool) -> Any:
        sqs = extended_session(**KEYS).client("sqs", endpoint_url=rig.server.endpoint_url)
        sqs.s3_client, sqs.large_payload_support, sqs.use_legacy_attribute = self.s3, "bodies", is_legacy
        return sqs


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto_server() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(endpoint: str) -> Iterator[Bucket]:
    made = Bucket(endpoint)
    yield made
    for key in made.held():
        made.s3.delete_object(Bucket="bodies", Key=key)
    made.s3.delete_bucket(Bucket="bodies")


@in_both_modes
@pytest.mark.parametrize("is_legacy", [False, True], ids=["today", "legacy"])
def test_what_awss_client_sends_comes_whole_and_in_order(rig: Rig, bucket: Bucket, is_legacy: bool) -> None:
    """Large and small bodies, sent singly and in batches; and the payloads go once their messages have."""
    sqs = bucket.client(rig, is_legacy=is_legacy)
    bodies = [f"{number} " + "ü" * (LARGE // 2 if number % 3 == 0 else 10) for number in range(24)]
    note = {"note": {"DataType": "String", "StringValue": "kept"}}
    for number, body in enumerate(bodies[:4]):
        ids = {"MessageGroupId": f"lot-{number % 2}", "MessageDeduplicationId": str(number)}
        sqs.send_message(QueueUrl=rig.url, MessageBody=body, MessageAttributes=dict(note), **ids)
    for start in range(4, len(bodies), 10):
        entries = [
            {
                "Id": str(number),
                "MessageBody": bodies[number],
                "MessageAttributes": dict(note),
                "MessageGroupId": f"lot-{number % 2}",
                "MessageDeduplicationId": str(number),
            }
            for number in range(start, min(start + 10, len(bodies)))
        ]
        assert not sqs.send_message_batch(QueueUrl=rig.url, Entries=entries).get("Failed")
    assert len(bucket.held()) == 8
    attributes = "MAP<STRING, STRUCT<dataType: STRING, stringValue: STRING, binaryValue: BINARY>>"
    schema = "sequenceNumber STRING, body STRING, payloadBucket STRING, payloadKey STRING, messageAttributes "
    options = rig.options(payloads="s3", journalEndpointUrl=bucket.endpoint, deletePayloads="true")
    frame = rig.spark.readStream.format("sqsfifo").schema(schema + attributes).options(**options).load()
    rows: list[Row] = []
    with rig.to_function(frame, lambda batch, _: rows.extend(batch.collect())) as query:
        rig.drain(query)
        wait_until(lambda: not bucket.held(), LONG_S, "the payloads are deleted")
    rows.sort(key=lambda row: int(row.sequenceNumber))
    assert [row.body for row in rows] == bodies
    for number, row in enumerate(rows):
        assert {name: value.stringValue for name, value in row.messageAttributes.items()} == {"note": "kept"}
        assert (row.payloadBucket, bool(row.payloadKey)) == (("bodies", True) if number % 3 == 0 else (None, False))


def test_the_pages_recipe_has_large_bodies_go_over_s3_and_come_back(rig: Rig, bucket: Bucket) -> None:
    """As it stands there: the sink writes them, and the source reads them."""
    bucket.s3.delete_bucket(Bucket="bodies")  # the recipe makes it
    names: dict[str, Any] = {"spark": rig.spark, "queue_url": rig.url, "s3_url": bucket.endpoint, "home": rig.home}
    exec(recipe("bodies.md", "### Both on this machine"), names)
    assert len(bucket.held()) == 1
    lengths = names["messages"].selectExpr("messageDeduplicationId", "length(body)")
    assert sorted(map(tuple, rig.drained(lengths))) == [("1", 5), ("2", 2_000_000)]
