"""Workers that `sqs_fifo_spark.daemon` forks: they have imported before what the tasks of source and sink need."""

from __future__ import annotations

import json
from pathlib import Path

from tests.spark.sink import held_in
from tests.spark.support import Rig, run_app

OURS = ("sqs_fifo_spark", "pyspark.worker", "botocore", "urllib3", "obstore", "tenacity")
"""Whose modules are imported before the fork, all of them that a task needs."""


def test_tasks_of_source_and_sink_import_nothing_of_ours_after_the_fork(rig: Rig, tmp_path: Path) -> None:
    """And the query that reads one queue and writes another delivers each message."""
    into = rig.create_queue("into.fifo")
    sent = rig.send(20, groups=4)
    run_app("preloaded.py", tmp_path, rig.url, into, log=tmp_path / "log.txt")
    assert len(held_in(rig.server, into)) == len(sent)
    assert rig.depth() == (0, 0)
    for task, module in (("source", "sqs_fifo_spark.source.task.partition"), ("sink", "sqs_fifo_spark.sink.write")):
        worker = json.loads((tmp_path / f"worker-{task}.json").read_text())
        assert worker["main"] == "sqs_fifo_spark.daemon"
        assert module in worker["before"]
        assert [name for name in worker["after"] if name.startswith(OURS)] == []
