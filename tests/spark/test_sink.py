"""Rows written to `sqsfifo` stand in the queue: each once, in its group, in order, with all that it had."""

from __future__ import annotations

from hashlib import sha256
from operator import attrgetter
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from sqs_fifo_spark import in_group_order
from sqs_fifo_spark.sink.digests import spark_hash
from tests.spark.sink import (
    COLUMNS,
    Held,
    assert_each_once_in_order,
    expected,
    file_stream,
    held_in,
    rows,
    write,
    write_all,
    write_files,
)
from tests.spark.support import Rig, micro_batches

pytestmark = pytest.mark.law("sink-1", "sink-2")

COUNT, GROUPS = 5_000, 500


def test_a_batch_write_of_5_000_rows_puts_each_there_once_and_in_order(rig: Rig) -> None:
    """500 groups, each scattered over all partitions until `in_group_order` brings it together in one of 8.

    In whatever case the columns' names are.
    """
    given = rows(rig.spark, COUNT, GROUPS).toDF("number", *map(str.lower, COLUMNS))
    frame = in_group_order(given, order_by="number", num_partitions=8).drop("number")
    assert frame.rdd.getNumPartitions() == 8
    write(frame, rig.url)
    assert_each_once_in_order(held_in(rig.server, rig.url), expected(COUNT, GROUPS))


def test_tasks_share_a_limit_on_calls(rig: Rig) -> None:
    """All of them together make no more: Spark tells each how many run at once."""
    limit, slots = 20, rig.spark.sparkContext.defaultParallelism
    assert slots > 1
    frame = in_group_order(rows(rig.spark, 1_000, 200), order_by="number", num_partitions=slots).select(COLUMNS)
    write(frame, rig.url, maxCallsPerSecond=limit)
    at = [record.at for record in rig.server.requests.recent("SendMessageBatch")]
    assert len(at) <= limit * (at[-1] - at[0] + 1)
    assert_each_once_in_order(held_in(rig.server, rig.url), expected(1_000, 200))


def test_rows_scattered_over_partitions_are_brought_in_order_in_a_stream(rig: Rig, tmp_path: Path) -> None:
    """`in_group_order` serves a streaming frame too, which Spark itself does not sort.

    The columns' names are in another case than the sink's.
    """
    write_files(tmp_path / "files", 2_000, groups=50, waves=2)
    scattered = file_stream(rig.spark, tmp_path / "files").repartition(5, "number")
    frame = in_group_order(scattered, order_by="number", num_partitions=3)
    query = write_all(frame.select(*map(str.upper, COLUMNS)), rig.url, tmp_path / "checkpoint")
    assert len(micro_batches(query)) == 2
    assert_each_once_in_order(held_in(rig.server, rig.url), expected(2_000, groups=50))


def test_each_row_goes_to_the_queue_that_it_names(rig: Rig, tmp_path: Path) -> None:
    """By ARN, by URL, or none for the option's; each queue has its rows once and in order, in a batch and a stream."""
    write_files(tmp_path / "files", 300, groups=10, waves=1)
    for frame in (rows(rig.spark, 300, 10), file_stream(rig.spark, tmp_path / "files")):
        kind = "stream" if frame.isStreaming else "batch"
        own, other = (rig.create_queue(f"{name}-{kind}.fifo") for name in ("own", "other"))
        arn = rig.call("GetQueueAttributes", QueueUrl=other, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        third = F.col("number") % 3
        given = in_group_order(frame, order_by="number", num_partitions=3)
        given = given.withColumn("QUEUEURL", F.when(third == 1, F.lit(arn)).when(third == 2, F.lit(other)))
        if frame.isStreaming:
            write_all(given.drop("number"), own, tmp_path / "checkpoint", journalLocation=tmp_path / "journal")
        else:
            write(given.drop("number"), own)
        for url, thirds in ((own, (0,)), (other, (1, 2))):
            bodies = {f"row {number}" for number in range(300) if number % 3 in thirds}
            wanted = {group: [body for body in each if body in bodies] for group, each in expected(300, 10).items()}
            assert_each_once_in_order(held_in(rig.server, url), wanted)


def test_the_record_sorts_groups_as_sparks_shuffle_deals_them(rig: Rig) -> None:
    """So that a task which runs again reads no more of the record than its share; by any letters a group may have."""
    groups = [f"{'!~aZ9'[number % 5] * (number % 7)}{number}" for number in range(1_000)]
    frame = rig.spark.createDataFrame([(group,) for group in groups], "messageGroupId STRING")
    dealt = frame.repartition(8, "messageGroupId").select("messageGroupId", F.spark_partition_id()).collect()
    assert dict(dealt) == {group: spark_hash(group) % 8 for group in groups}


def test_a_source_is_written_into_a_sink_unchanged(rig: Rig) -> None:
    """All columns of the source are accepted: what has a place in a message arrives, and the rest is ignored."""
    attributes = {
        "colour": {"DataType": "String", "StringValue": "grün"},
        "amount": {"DataType": "Number.int", "StringValue": "42"},
        "raw": {"DataType": "Binary.png", "BinaryValue": "AP8Q"},
    }
    copied = rig.create_queue("copied.fifo")
    want = []
    for number in range(60):
        message = Held(f"group-{number % 7}", f"id-{number}", f"snow ☃ {number}", attributes if number % 2 else {})
        want.append(message)
        rig.call(
            "SendMessage",
            QueueUrl=rig.url,
            MessageBody=message.body,
            MessageGroupId=message.message_group_id,
            MessageDeduplicationId=message.deduplication_id,
            MessageAttributes=message.attributes,
        )
    rig.drain_into_queue(rig.source(), copied)
    group_of = attrgetter("message_group_id")
    assert sorted(held_in(rig.server, copied), key=group_of) == sorted(want, key=group_of)


def test_plain_maps_and_binary_bodies_are_taken(rig: Rig) -> None:
    """A MAP<STRING, STRING> makes String attributes, NULL makes none, and bytes that are UTF-8 make a body."""
    frame = rig.spark.sql(
        "SELECT cast(body AS BINARY) AS body, 'g' AS messageGroupId, md5(body) AS messageDeduplicationId, "
        "messageAttributes FROM VALUES ('grün', map('colour', 'blue', 'shape', 'round')), ('☃', NULL), ('x', map()) "
        "AS t(body, messageAttributes)"
    )
    write(frame.coalesce(1), rig.url)
    assert {each.body: each.attributes for each in held_in(rig.server, rig.url)} == {
        "grün": {
            "colour": {"DataType": "String", "StringValue": "blue"},
            "shape": {"DataType": "String", "StringValue": "round"},
        },
        "☃": {},
        "x": {},
    }


def test_deduplication_by_content_sends_equal_bodies_once(rig: Rig) -> None:
    """The queue's own ids are used, also where there is a column; of equal bodies the first stands in the queue."""
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = rig.call("CreateQueue", QueueName="content.fifo", Attributes=attributes)["QueueUrl"]
    frame = rows(rig.spark, 120, groups=6, partitions=1)
    frame = frame.selectExpr("concat('row ', number % 60) AS body", "messageGroupId", "messageDeduplicationId")
    write(frame, url, deduplication="content")
    held = held_in(rig.server, url)
    assert_each_once_in_order(held, expected(60, groups=6))
    assert {each.deduplication_id for each in held} == {sha256(each.body.encode()).hexdigest() for each in held}
