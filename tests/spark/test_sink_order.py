"""A group that stands in several partitions is in no order in the queue: the log says it, or the write fails."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from sqs_fifo_spark import in_group_order
from tests.spark.sink import COLUMNS, file_partitions, file_stream, rows, take_all, write_all
from tests.spark.support import Rig, run_app
from tests.spark.test_sink_errors import own_line

COUNT = 20
WAYS = {
    "dealt": "1 message group stands in several partitions, such as 'group-0' in partitions 0 and 1.",
    "orderBy": "1 message group stands in several partitions, such as 'group-0' in partitions 0, 1, 2 and 3.",
    "repartition": "1 message group stands in several partitions, such as 'group-0' in partitions 0, 1 and 2.",
    "messageGroupId": "all rows go to one message group by the option 'messageGroupId', 'all' in partitions 0,",
}


def test_a_batch_write_that_puts_a_group_in_no_order_says_so_or_fails(rig: Rig, tmp_path: Path) -> None:
    """By whatever way, and with `fail` each time that it is repeated; `in_group_order` is the remedy."""
    options = {"url": rig.url, "journalLocation": str(tmp_path / "journal")}
    log = run_app("sink_scattered.py", json.dumps(options), log=tmp_path / "log.txt")
    said = re.findall(r"^== (\S+) (\S+) (\S+)\n(.*?)(?=^==)", log, re.MULTILINE | re.DOTALL)
    assert len(said) == (len(WAYS) + 2) * 3, log[-3000:]
    for way, order, on_disorder, lines in said:
        found = lines.count("The rows of a partition are in order in the queue, those of several are not.")
        if way not in WAYS:
            assert (found, "raised" in lines) == (0, False), (way, order, lines)
        elif on_disorder == "log":
            assert found == 1, (way, order, lines)
            assert f"[{Path(rig.url).name} query {way}-{order} batch 1] the batch write: {WAYS[way]}" in lines
        else:
            assert "raised" in lines
            assert f"DisorderError: the batch write: {WAYS[way]}" in lines
    groups = Counter(each.message_group_id for each in take_all(rig.server, rig.url))
    assert groups == {"group-0": 5 * COUNT, "all": COUNT}


@pytest.mark.parametrize("order", ["strict", "batch"])
def test_a_micro_batch_fails_until_each_group_stands_in_one_partition(rig: Rig, tmp_path: Path, order: str) -> None:
    """All is sent the first time; nothing is sent again, also once the query has been corrected."""
    (tmp_path / "files").mkdir()
    for parity in (0, 1):
        dealt = rows(rig.spark, COUNT, groups=1, partitions=1).where(f"number % 2 = {parity}")
        dealt.toPandas().to_parquet(tmp_path / "files" / f"{parity}.parquet")
    options = {"order": order, "onDisorder": "fail", "journalLocation": rig.journal}
    with file_partitions(rig.spark, 2):
        frame = file_stream(rig.spark, tmp_path / "files")
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
    assert Counter(each.body for each in take_all(rig.server, rig.url)) == {f"row {n}": 1 for n in range(COUNT)}
