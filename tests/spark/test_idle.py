"""An empty queue costs one long poll for each `waitTimeSeconds`, and one look at its counts a minute."""

from __future__ import annotations

from collections import Counter

import pytest

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.source.segment import decode
from tests.helpers import wait_until
from tests.spark.support import LONG_S, SPARK_VERSION, Rig, micro_batches, require_alive

pytestmark = pytest.mark.law("source-6")


@pytest.mark.parametrize(("idle_s", "wait_s"), [(15, 5), pytest.param(60, 20, marks=pytest.mark.long)])
def test_an_idle_query_makes_one_receive_for_each_wait_and_no_micro_batch(rig: Rig, idle_s: int, wait_s: int) -> None:
    """Once drained: at most `idle / wait + 1` receives, no other call more than once a minute, no micro-batch."""
    rig.send(100, groups=10)
    with rig.to_parquet(rig.source(waitTimeSeconds=wait_s)) as query:
        rig.drain(query)
        wait_until(lambda: rig.server.waiting, LONG_S, "the query polls")
        offsets = rig.home / "checkpoint" / "offsets"
        planned = set(offsets.glob("[0-9]*"))
        began_at = SYSTEM_CLOCK.now()
        wait_until(lambda: SYSTEM_CLOCK.now() >= began_at + idle_s, idle_s + 5, f"{idle_s} s are over")
        # A request is recorded when it is over: the poll under way counts too.
        calls = Counter(each.action for each in rig.server.requests.recent() if each.at >= began_at)
        receives = calls.pop("ReceiveMessage") + rig.server.waiting
        require_alive(query)
        assert set(offsets.glob("[0-9]*")) == planned
    print(f"idle for {idle_s} s, waiting {wait_s} s: {receives} receives, other calls {dict(calls)}")
    assert receives <= idle_s // wait_s + 1
    assert all(count <= max(1, idle_s // 60) for count in calls.values())
    assert not rig.journal_epochs()


def test_a_new_query_on_an_empty_queue_has_one_micro_batch_without_rows(rig: Rig) -> None:
    """Spark runs the first micro-batch of every query, for it knows no offset yet; after that there is none."""
    with rig.to_parquet(rig.source()) as query:
        wait_until(lambda: micro_batches(query), LONG_S, "the first micro-batch is over")
        polls = rig.server.requests.counts()["ReceiveMessage"]
        wait_until(lambda: rig.server.requests.counts()["ReceiveMessage"] >= polls + 3, LONG_S, "three polls are over")
        (only,) = micro_batches(query)
    assert (only["batchId"], only["numInputRows"]) == (0, 0)
    assert [path.name for path in (rig.home / "checkpoint" / "offsets").glob("[0-9]*")] == ["0"]
    assert not rig.rows()
    # Before 4.2 Spark does not say where it is, so the first epoch is not probed for: its task seals nothing.
    left = [decode(path.read_bytes(), path.name) for path in rig.journal_epochs()]
    assert len(left) == (1 if SPARK_VERSION < (4, 2) else 0)
    assert not any(segment.head.receipts or segment.head.deleted for segment in left)
