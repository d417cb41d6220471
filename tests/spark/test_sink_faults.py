"""A queue that fails in every way that SQS can: each row comes once, in order, all the same."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from sqs_fifo_spark.local import Faults
from tests.spark.sink import (
    COLUMNS,
    assert_each_once_in_order,
    audit,
    expected,
    file_partitions,
    file_stream,
    group_of,
    take_all,
    write_all,
    write_files,
)
from tests.spark.support import Rig

pytestmark = [pytest.mark.long, pytest.mark.law("sink-1", "sink-2", "sink-3")]

FAULTS = Faults(seed=3, fail_entry=0.05, throttle=0.05, drop_answer=0.05, actions=frozenset({"SendMessageBatch"}))
NO_RETRIES = {"mode": "standard", "total_max_attempts": 1}
TRIES = 30


def outcomes(rig: Rig) -> Counter[str]:
    return Counter(each.outcome for each in rig.server.requests.recent("SendMessageBatch"))


def assert_faulty(rig: Rig) -> None:
    """Of the last calls, each twentieth was throttled and each twentieth lost its answer."""
    seen = outcomes(rig)
    assert min(seen["ThrottlingException"], seen["dropped"]) > 0.02 * seen.total(), seen


def test_a_streaming_write_through_faults_puts_each_of_10_000_rows_there_once_and_in_order(
    rig: Rig, tmp_path: Path
) -> None:
    """Each twentieth entry fails, and each twentieth call is throttled or loses its answer: 1,000 groups."""
    write_files(tmp_path / "files", 10_000, groups=1_000)
    rig.server.faults = FAULTS
    with file_partitions(rig.spark):
        frame = file_stream(rig.spark, tmp_path / "files")
        write_all(frame.select(COLUMNS), rig.url, tmp_path / "checkpoint")
    assert_faulty(rig)
    assert_each_once_in_order(take_all(rig.server, rig.url), expected(10_000, groups=1_000))


@pytest.mark.parametrize("faults", [FAULTS, Faults(seed=3)], ids=["faulty", "sound"])
def test_control_a_sender_that_only_repeats_failed_entries_loses_the_order(rig: Rig, faults: Faults) -> None:
    """The test above proves something: ten rows in a call, failed ones again, and groups are overtaken.

    Nothing is lost or doubled by it, and the same sender keeps the order where nothing fails.
    """
    count, groups = 3_000, 60
    rig.server.faults = faults
    in_partition = sorted(range(count), key=lambda number: number % groups)
    with closing(boto3.client("sqs", endpoint_url=rig.server.endpoint_url, config=Config(retries=NO_RETRIES))) as sqs:
        for start in range(0, count, 10):
            send_plainly(sqs, rig.url, in_partition[start : start + 10], groups)
    outcome = audit(take_all(rig.server, rig.url), expected(count, groups))
    assert (outcome.lost, outcome.unknown, outcome.repeats) == ([], [], {}), str(outcome)
    if faults is FAULTS:
        assert_faulty(rig)
        assert len(outcome.misplaced) > groups / 3, str(outcome)
    else:
        assert outcome.is_clean, str(outcome)


def send_plainly(sqs: Any, url: str, numbers: list[int], groups: int) -> None:
    """Send consecutive rows in one call, and what failed in the next, as many senders do."""
    entries = {
        str(number): {
            "Id": str(number),
            "MessageBody": f"row {number}",
            "MessageGroupId": group_of(number, groups),
            "MessageDeduplicationId": f"message-{number}",
        }
        for number in numbers
    }
    for _ in range(TRIES):
        try:
            answer = sqs.send_message_batch(QueueUrl=url, Entries=list(entries.values()))
        except (ClientError, BotoCoreError):
            continue
        entries = {failed["Id"]: entries[failed["Id"]] for failed in answer.get("Failed", ())}
        if not entries:
            return
    raise AssertionError(f"{len(entries)} entries failed {TRIES} times")
