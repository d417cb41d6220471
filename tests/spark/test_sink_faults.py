"""A queue that fails in every way that SQS can: each row comes once, in order, all the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sqs_fifo_spark.local import Faults
from tests.spark.sink import (
    COLUMNS,
    assert_each_once_in_order,
    expected,
    file_partitions,
    file_stream,
    held_in,
    write_all,
    write_files,
)
from tests.spark.support import Rig

pytestmark = [pytest.mark.long, pytest.mark.law("sink-1", "sink-2", "sink-3")]

FAULTS = Faults(seed=3, fail_entry=0.05, throttle=0.05, drop_answer=0.05, actions=frozenset({"SendMessageBatch"}))


def test_a_streaming_write_through_faults_puts_each_of_10_000_rows_there_once_and_in_order(
    rig: Rig, tmp_path: Path
) -> None:
    """Each twentieth entry fails, and each twentieth call is throttled or loses its answer: 1,000 groups."""
    write_files(tmp_path / "files", 10_000, groups=1_000)
    rig.server.faults = FAULTS
    with file_partitions(rig.spark):
        frame = file_stream(rig.spark, tmp_path / "files")
        write_all(frame.select(COLUMNS), rig.url, tmp_path / "checkpoint")
    seen = Counter(each.outcome for each in rig.server.requests.recent("SendMessageBatch"))
    assert min(seen["ThrottlingException"], seen["dropped"]) > 0.02 * seen.total(), seen
    assert_each_once_in_order(held_in(rig.server, rig.url), expected(10_000, groups=1_000))
