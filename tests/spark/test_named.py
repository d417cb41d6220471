"""Queues that are given by ARN and by name, and options that are given as keywords."""

from __future__ import annotations

from sqs_fifo_spark import read_fifo, write_fifo
from tests.spark.sink import held_in
from tests.spark.support import Rig, running


def test_a_stream_goes_on_however_its_queues_are_given(rig: Rig) -> None:
    """By ARN, by URL, by name: the journal and the checkpoint are the same."""
    accepted_url = rig.create_queue("accepted.fifo")
    arn = rig.call("GetQueueAttributes", QueueUrl=rig.url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    endpoint = {"endpointUrl": rig.server.endpoint_url}
    for queue, target in ((arn, "accepted.fifo"), (rig.url, accepted_url), ("test.fifo", "accepted.fifo")):
        rig.send(10, groups=2)
        messages = rig.source(queueUrl=queue, **endpoint)
        rig.drain_into_queue(messages.withColumn("messageDeduplicationId", messages.messageId), target, **endpoint)
    held = held_in(rig.server, accepted_url)
    assert sorted(each.body for each in held) == sorted(f"body {number}" for number in range(len(rig.sent)))
    assert rig.server.requests.counts()["GetQueueUrl"] >= 3


def test_keywords_do_what_options_do(rig: Rig) -> None:
    """Whatever their types; the writer is the user's to start."""
    accepted_url = rig.create_queue("accepted.fifo")
    rig.send(10, groups=2)
    rows = read_fifo(
        rig.spark,
        queue_url=rig.url,
        journal_location=str(rig.journal),
        wait_time_seconds=1,
        max_fetch_seconds=1.5,
        max_bytes_per_trigger="1m",
        fail_on_data_loss=False,
    )
    rows = rows.withColumn("messageDeduplicationId", rows.messageId)
    writer = write_fifo(rows, queue_url=accepted_url, order="batch", max_calls_per_second=50)
    with running(writer.option("checkpointLocation", str(rig.home / "checkpoint")).start()) as query:
        rig.drain(query)
    held = held_in(rig.server, accepted_url)
    assert sorted(each.body for each in held) == sorted(f"body {number}" for number in range(10))
