"""What a query has received nobody else gets, however long the micro-batch takes."""

from __future__ import annotations

from typing import Any

import boto3
from pyspark.sql import DataFrame
from pyspark.sql.functions import col

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from tests.helpers import wait_until
from tests.spark.support import Gate, Rig, assert_each_once

VISIBILITY_S = 4
TIMEOUTS = 4


def test_a_micro_batch_of_four_visibility_timeouts_keeps_its_messages(rig: Rig) -> None:
    """A second consumer polls all the time and gets nothing; the renewals come ten to a call."""
    sent = rig.send(300, groups=30)
    delivered: list[str] = []
    stolen: list[Any] = []
    renewed: list[int] = []
    other = boto3.client("sqs", endpoint_url=rig.server.endpoint_url)

    def hold(frame: DataFrame, batch_id: int) -> None:
        delivered.extend(row.messageId for row in frame.select("messageId").collect())
        if batch_id:
            return
        assert rig.depth() == (0, 300)
        rig.server.requests.clear()
        began_at = SYSTEM_CLOCK.monotonic()
        while SYSTEM_CLOCK.monotonic() < began_at + TIMEOUTS * VISIBILITY_S:
            answer = other.receive_message(
                QueueUrl=rig.url, MaxNumberOfMessages=10, WaitTimeSeconds=1, VisibilityTimeout=60
            )
            stolen.extend(answer.get("Messages", ()))
        renewed.extend(each.entries for each in rig.server.requests.recent("ChangeMessageVisibilityBatch"))

    try:
        # Time enough that the first epoch takes all 300 messages.
        source = rig.source(visibilityTimeoutSeconds=VISIBILITY_S, maxFetchSeconds=2)
        with rig.to_function(source, hold) as query:
            rig.drain(query)
    finally:
        other.close()
    assert not stolen
    assert_each_once(delivered, sent)
    print(
        f"300 messages held for {TIMEOUTS * VISIBILITY_S} s, visibility {VISIBILITY_S} s: {len(renewed)} calls with "
        f"{sum(renewed)} entries, {sum(renewed) / len(renewed):.1f} each"
    )
    assert sum(renewed) >= (TIMEOUTS - 1) * 300
    assert sum(renewed) / len(renewed) >= 8


def test_a_task_that_outlasts_its_visibility_timeout_doubles_nothing(rig: Rig) -> None:
    """The driver holds what a task has sealed, though the task's own process does nothing but wait."""
    sent = rig.send(60, groups=12)
    gate = Gate(rig.home / "gate")
    frame = rig.source(visibilityTimeoutSeconds=3).withColumn("body", gate.column(col("body")))
    with rig.to_parquet(frame) as query:
        wait_until(lambda: gate.waiting, 60, "a task is in mid-batch")
        opens_at = SYSTEM_CLOCK.monotonic() + 8

        def is_time() -> bool:
            assert rig.depth()[0] == 0, "messages became visible"
            return SYSTEM_CLOCK.monotonic() >= opens_at

        wait_until(is_time, 20, "two visibility timeouts and more are over")
        gate.open()
        rig.drain(query)
    assert_each_once((row.message_id for row in rig.rows()), sent)
    assert {each.outcome for each in rig.server.requests.recent("DeleteMessageBatch")} == {"ok"}
