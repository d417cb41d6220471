"""A query's messages come to nobody else, however long the micro-batch takes."""

from __future__ import annotations

import pytest
from pyspark.sql.functions import col

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from tests.helpers import wait_until
from tests.spark.support import Gate, Rig, assert_each_once

pytestmark = pytest.mark.law("source-7")

VISIBILITY_S = 3
TIMEOUTS = 2


def test_a_task_that_outlasts_its_visibility_timeout_keeps_its_messages(rig: Rig) -> None:
    """A second consumer polls all the time and gets nothing; the renewals come ten to a call.

    The driver holds what a task has sealed, though the task's own process does nothing but wait.
    """
    sent = rig.send(60, groups=12)
    gate = Gate(rig.home / "gate")
    frame = rig.source(visibilityTimeoutSeconds=VISIBILITY_S).withColumn("body", gate.column(col("body")))
    with rig.to_parquet(frame) as query:
        wait_until(lambda: gate.waiting, 60, "a task is in mid-batch")
        assert rig.depth() == (0, 60)
        opens_at = SYSTEM_CLOCK.monotonic() + TIMEOUTS * VISIBILITY_S + 1

        def is_time() -> bool:
            answer = rig.call("ReceiveMessage", QueueUrl=rig.url, MaxNumberOfMessages=10, VisibilityTimeout=60)
            assert not answer.get("Messages"), "messages became visible"
            return SYSTEM_CLOCK.monotonic() >= opens_at

        wait_until(is_time, 20, "two visibility timeouts and more are over")
        renewed = [each.entries for each in rig.server.requests.recent("ChangeMessageVisibilityBatch")]
        gate.open()
        rig.drain(query)
    assert_each_once((row.message_id for row in rig.rows()), sent)
    assert {each.outcome for each in rig.server.requests.recent("DeleteMessageBatch")} == {"ok"}
    print(f"60 messages held for {TIMEOUTS * VISIBILITY_S + 1} s: {len(renewed)} calls with {sum(renewed)} entries")
    assert sum(renewed) >= TIMEOUTS * 60
    assert sum(renewed) / len(renewed) >= 8
