"""What a query has received nobody else gets, however long the micro-batch takes."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import col

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.local import Faults
from tests.helpers import wait_until
from tests.spark.support import LONG_S, Gate, Rig, assert_each_once, in_both_modes_if_long

pytestmark = pytest.mark.law("source-7")

VISIBILITY_S = 4
TIMEOUTS = 4


@in_both_modes_if_long
def test_a_micro_batch_of_four_visibility_timeouts_keeps_its_messages(rig: Rig) -> None:
    """A second consumer polls all the time and gets nothing; the renewals come ten to a call.

    Where tasks delete, nothing is left to renew, but what a heartbeat finds as a task is deleting it: that, once.
    """
    sent = rig.send(300, groups=30)
    delivered: list[str] = []
    stolen: list[Any] = []
    renewed: list[int] = []
    renewed_after: list[float] = []
    other = boto3.client("sqs", endpoint_url=rig.server.endpoint_url)

    def hold(frame: DataFrame, batch_id: int) -> None:
        delivered.extend(row.messageId for row in frame.select("messageId").collect())
        if batch_id:
            return
        assert rig.depth() == (0, 300 if rig.delete_after == "commit" else 0)
        rig.server.requests.clear()
        began_at, began = SYSTEM_CLOCK.monotonic(), SYSTEM_CLOCK.now()
        while SYSTEM_CLOCK.monotonic() < began_at + TIMEOUTS * VISIBILITY_S:
            answer = other.receive_message(
                QueueUrl=rig.url, MaxNumberOfMessages=10, WaitTimeSeconds=1, VisibilityTimeout=60
            )
            stolen.extend(answer.get("Messages", ()))
        for each in rig.server.requests.recent("ChangeMessageVisibilityBatch"):
            renewed.append(each.entries)
            renewed_after.append(each.at - began)

    try:
        # Time enough that the first epoch takes all 300 messages.
        source = rig.source(visibilityTimeoutSeconds=VISIBILITY_S, maxFetchSeconds=2)
        with rig.to_function(source, hold) as query:
            rig.drain(query)
    finally:
        other.close()
    assert not stolen
    assert_each_once(delivered, sent)
    if rig.delete_after == "journal":
        assert all(each < VISIBILITY_S / 2 for each in renewed_after), "a heartbeat is a third of the timeout"
        return
    print(
        f"300 messages held for {TIMEOUTS * VISIBILITY_S} s, visibility {VISIBILITY_S} s: {len(renewed)} calls with "
        f"{sum(renewed)} entries, {sum(renewed) / len(renewed):.1f} each"
    )
    assert sum(renewed) >= (TIMEOUTS - 1) * 300
    assert sum(renewed) / len(renewed) >= 8


@in_both_modes_if_long
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


@pytest.mark.parametrize("rig", ["journal"], indirect=True)
def test_what_tasks_cannot_delete_stays_hidden_until_the_commit_does(rig: Rig) -> None:
    """SQS fails every delete while tasks receive: their messages stand in the journal, and the driver holds them."""
    sent = rig.send(60, groups=12)
    rig.server.faults = Faults(fail_entry=1.0, actions=frozenset({"DeleteMessageBatch"}))
    delivered: list[str] = []

    def hold(frame: DataFrame, batch_id: int) -> None:
        delivered.extend(row.messageId for row in frame.select("messageId").collect())
        if batch_id:
            return
        assert rig.depth() == (0, 60)
        rig.server.requests.clear()

        def is_renewed_twice() -> bool:
            assert rig.depth() == (0, 60), "messages became visible"
            return sum(each.entries for each in rig.server.requests.recent("ChangeMessageVisibilityBatch")) >= 120

        wait_until(is_renewed_twice, LONG_S, "all are renewed twice")
        rig.server.faults = Faults()

    with rig.to_function(rig.source(visibilityTimeoutSeconds=3), hold) as query:
        rig.drain(query)
    assert_each_once(delivered, sent)
