"""A group that stands in several partitions is in no order in the queue: the log says it, or the write fails."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql.functions import lit

from sqs_fifo_spark import in_group_order
from tests.spark.sink import COLUMNS, file_partitions, file_stream, held_in, write_all, write_files
from tests.spark.support import Rig, own_line, run_app

pytestmark = pytest.mark.law("sink-2")

COUNT = 20
WAYS = {
    "dealt": "1 message group stands in several partitions, such as 'group-0' in partitions 0 and 1.",
    "messageGroupId": "all rows go to one message group by the option 'messageGroupId', 'all' in partitions 0,",
}


def test_a_batch_write_that_puts_a_group_in_no_order_says_so_or_fails(rig: Rig, tmp_path: Path) -> None:
    """In one line, whether its rows stand in several partitions or an option makes them one; `in_group_order` helps."""
    options = {"url": rig.url, "journalLocation": str(tmp_path / "journal")}
    log = run_app("sink_scattered.py", json.dumps(options), log=tmp_path / "log.txt")
    said = re.findall(r"^== (\S+) (\S+) (\S+)\n(.*?)(?=^==)", log, re.MULTILINE | re.DOTALL)
    assert len(said) == (len(WAYS) + 1) * 2, log[-3000:]
    for way, order, on_disorder, lines in said:
        is_refused = f"DisorderError: the batch write: {WAYS.get(way)}" in lines
        assert is_refused is ("raised" in lines) is (way in WAYS and on_disorder == "fail"), (way, order, lines)
        logged = re.findall(rf"query {way}-{order} batch 1\] the batch write: (.* in the queue, .*)", log)
        assert len(logged) == (way in WAYS), logged
        assert all(each.startswith(WAYS[way]) for each in logged)
    groups = Counter(each.message_group_id for each in held_in(rig.server, rig.url))
    assert groups == {"group-0": 2 * COUNT, "all": COUNT}


def test_a_micro_batch_fails_until_each_group_stands_in_one_partition(rig: Rig, tmp_path: Path) -> None:
    """All is sent the first time; nothing is sent again, also once the query has been corrected."""
    write_files(tmp_path / "files", COUNT, groups=2, files=2)
    options = {"onDisorder": "fail", "journalLocation": rig.journal}
    with file_partitions(rig.spark, 2):
        frame = file_stream(rig.spark, tmp_path / "files").withColumn("messageGroupId", lit("group-0"))
        calls = []
        for _ in range(2):
            with pytest.raises(Exception, match="DisorderError") as failed:
                write_all(frame.select(COLUMNS), rig.url, tmp_path / "checkpoint", **options)
            assert own_line(str(failed.value)).startswith(f"DisorderError: micro-batch 0: {WAYS['dealt']}")
            calls.append(rig.server.requests.counts()["SendMessageBatch"])
        ordered = in_group_order(frame, order_by="number").select(COLUMNS)
        write_all(ordered, rig.url, tmp_path / "checkpoint", **options)
        calls.append(rig.server.requests.counts()["SendMessageBatch"])
    assert len(set(calls)) == 1
    assert Counter(each.body for each in held_in(rig.server, rig.url)) == {f"row {n}": 1 for n in range(COUNT)}
