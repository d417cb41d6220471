"""An empty queue costs one long poll for each `waitTimeSeconds`, and nothing else."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from tests.helpers import wait_until
from tests.spark.support import LONG_S, Rig, micro_batches, require_alive

SLOW = pytest.mark.skipif("SQSFIFO_SLOW_TESTS" not in os.environ, reason="takes a minute; set SQSFIFO_SLOW_TESTS=1")


@pytest.mark.parametrize(("idle_s", "wait_s"), [(15, 5), pytest.param(60, 20, marks=SLOW)])
def test_an_idle_query_makes_one_receive_for_each_wait_and_no_micro_batch(rig: Rig, idle_s: int, wait_s: int) -> None:
    """At most `idle / wait + 1` receives, no other call more than once a minute, no micro-batch, no task."""
    with rig.to_parquet(rig.source(waitTimeSeconds=wait_s)) as query:
        wait_until(lambda: rig.server.waiting, LONG_S, "the query polls")
        began_at = SYSTEM_CLOCK.now()
        # Every request of this query stands in the record when it is over.
        wait_until(lambda: SYSTEM_CLOCK.now() >= began_at + idle_s, idle_s + 5, f"{idle_s} s are over")
        calls = Counter(each.action for each in rig.server.requests.recent() if each.at >= began_at)
        receives = calls.pop("ReceiveMessage") + rig.server.waiting
        require_alive(query)
        assert not micro_batches(query)
    print(f"idle for {idle_s} s, waiting {wait_s} s: {receives} receives, other calls {dict(calls)}")
    assert receives <= idle_s // wait_s + 1
    assert all(count <= max(1, idle_s // 60) for count in calls.values())
    assert not list((rig.home / "checkpoint" / "offsets").glob("[0-9]*"))
    assert not rig.journal_epochs()


def test_a_query_that_has_drained_its_queue_is_as_idle_as_a_new_one(rig: Rig) -> None:
    """After the last commit there are long polls only."""
    rig.send(100, groups=10)
    with rig.to_parquet(rig.source(waitTimeSeconds=3)) as query:
        rig.drain(query)
        wait_until(lambda: rig.server.waiting, LONG_S, "the query polls")
        rig.server.requests.clear()
        epochs = len(micro_batches(query))
        wait_until(lambda: rig.server.requests.counts().get("ReceiveMessage", 0) >= 2, LONG_S, "two polls are over")
        assert rig.server.requests.counts().keys() == {"ReceiveMessage"}
        assert len(micro_batches(query)) == epochs
