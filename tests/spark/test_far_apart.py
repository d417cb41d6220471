"""Runs that lie further apart than the visibility timeout, through Spark."""

from __future__ import annotations

import re

import pytest

from tests.helpers import wait_until
from tests.spark.support import LONG_S, SPARK_VERSION, Rig

pytestmark = pytest.mark.law("source-6")


def run_once(rig: Rig, **trigger: bool) -> int:
    """Run the query once, and return how many rows it has added."""
    before = len(rig.rows())
    with rig.to_parquet(rig.source(), **trigger) as query:
        wait_until(lambda: not query.isActive, LONG_S, "the run ends")
        assert query.exception() is None, str(query.exception())
    return len(rig.rows()) - before


@pytest.mark.long
def test_each_run_with_trigger_once_serves_something_new(rig: Rig) -> None:
    """Ten minutes apart, so that each run finds the last one's messages back in the queue: it deletes them."""
    rig.send(40, groups=2)
    added = []
    for _ in range(3):
        added.append(run_once(rig, once=True))
        rig.server.advance(600)
    assert added == [20, 20, 0]
    rig.require_each_once_in_order()
    assert rig.depth() == (0, 0)


@pytest.mark.skipif(SPARK_VERSION >= (4, 2), reason="from 4.2 on Spark needs no wrapper around the source")
def test_available_now_with_sparks_wrapper_goes_on_after_a_crash_before_the_commit(rig: Rig) -> None:
    """Spark asks for the latest offset before it runs the unfinished micro-batch again: its log never goes back."""
    setting = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
    rig.send(60, groups=2)
    assert run_once(rig, availableNow=True) == 20
    # What a driver leaves that dies when the next offset is logged, and the source is not told of the commit.
    log = rig.home / "checkpoint" / "offsets"
    (log / "1").write_text((log / "0").read_text().replace('"epoch": 1', '"epoch": 2'))
    rig.server.advance(600)
    rig.spark.conf.set(setting, "true")
    try:
        for _ in range(4):
            run_once(rig, availableNow=True)
            rig.server.advance(600)
    finally:
        rig.spark.conf.unset(setting)
    written = [file.read_text() for file in sorted(log.glob("[0-9]*"), key=lambda file: int(file.name))]
    epochs = [int(epoch) for text in written for epoch in re.findall(r'"epoch": (\d+)', text)]
    assert len(epochs) == len(written)
    assert epochs == sorted(set(epochs))
    rig.require_each_once_in_order()
