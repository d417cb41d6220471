"""Large bodies that a sink puts on S3 are read by AWS's own client, which knows nothing of this package."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from pyspark.sql import functions as F

from sqs_fifo_spark import in_group_order
from tests.helpers import extended_session, moto_bucket
from tests.spark.sink import write
from tests.spark.support import Rig

pytestmark = pytest.mark.law("sink-1", "sink-2")

COUNT, GROUPS = 60, 5
LENGTHS = (1, 300_000, 90_000, 1_100_000)
"""Repetitions in the bodies, in turn: small, over the threshold, below it, and more than any queue takes."""
THRESHOLD = 262_144


def body(number: int) -> str:
    return f"{number}: " + "é" * (LENGTHS[number % len(LENGTHS)] // 2 or 1)


@pytest.fixture
def bucket() -> Iterator[str]:
    with moto_bucket("big") as url:
        yield url


def receive_all(rig: Rig, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Take all messages as a consumer with AWS's client does, and drop their payloads."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_url)
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", rig.server.endpoint_url)
    sqs = extended_session(region_name="us-east-1").client("sqs")
    sqs.large_payload_support, sqs.delete_payload_from_s3 = "big", True
    found: list[dict[str, Any]] = []
    names = {"MessageAttributeNames": ["All"], "AttributeNames": ["All"]}
    while messages := sqs.receive_message(QueueUrl=rig.url, MaxNumberOfMessages=10, **names).get("Messages"):
        for message in messages:
            sqs.delete_message(QueueUrl=rig.url, ReceiptHandle=message["ReceiptHandle"])
            found.append(message)
    sqs.s3_client.close()
    sqs.close()
    return found


def objects(url: str) -> dict[str, int]:
    s3 = boto3.client("s3", endpoint_url=url)
    try:
        return {each["Key"]: each["Size"] for each in s3.list_objects_v2(Bucket="big").get("Contents", [])}
    finally:
        s3.close()


def test_bodies_of_any_size_are_read_by_the_client_of_aws(
    rig: Rig, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once, each group in order, attributes beside it; only large ones are objects, and the client drops them."""
    lengths = F.array(*map(F.lit, LENGTHS))[(F.col("number") % len(LENGTHS)).cast("int")]
    repeated = F.when(lengths > 1, (lengths / 2).cast("int")).otherwise(1)
    frame = rig.spark.range(0, COUNT, 1, 4).withColumnRenamed("id", "number")
    frame = frame.select(
        "number",
        F.concat(F.col("number").cast("string"), F.lit(": "), F.repeat(F.lit("é"), repeated)).alias("body"),
        F.concat(F.lit("group-"), (F.col("number") % GROUPS).cast("string")).alias("messageGroupId"),
        F.concat(F.lit("message-"), F.col("number").cast("string")).alias("messageDeduplicationId"),
        F.create_map(F.lit("number"), F.col("number").cast("string")).alias("messageAttributes"),
    )
    ordered = in_group_order(frame, order_by="number", num_partitions=2).drop("number")
    given = {
        "payloadLocation": "s3a://big/orders/",
        "payloadThresholdBytes": THRESHOLD,
        "journalEndpointUrl": bucket,
        "journalLocation": rig.journal,
        "txnAppId": "orders",
        "txnVersion": 1,
    }
    for _ in range(2):  # the second time all is known
        write(ordered, rig.url, **given)
    large = {number for number in range(COUNT) if len(body(number).encode()) > THRESHOLD}
    assert len(large) == COUNT // 2
    sizes = objects(bucket)
    assert all(key.startswith("orders/") and key.count("/") == 1 for key in sizes)
    assert sorted(sizes.values()) == sorted(len(body(number).encode()) for number in large)
    found: defaultdict[str, list[int]] = defaultdict(list)
    for message in receive_all(rig, bucket, monkeypatch):
        number = int(message["MessageAttributes"]["number"]["StringValue"])
        assert message["Body"] == body(number)
        assert list(message["MessageAttributes"]) == ["number"]
        found[message["Attributes"]["MessageGroupId"]].append(number)
    assert found == {f"group-{first}": list(range(first, COUNT, GROUPS)) for first in range(GROUPS)}
    assert objects(bucket) == {}
