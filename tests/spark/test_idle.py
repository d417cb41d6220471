"""An empty queue costs one long poll for each `waitTimeSeconds`, and one look at its counts a minute."""

from __future__ import annotations

from collections import Counter

import pytest

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.source.segment import decode
from tests.helpers import wait_until
from tests.spark.support import LONG_S, SPARK_VERSION, Rig, micro_batches, require_alive

pytestmark = pytest.mark.law("source-6")


WAIT_S, IDLE_S = 1, 5


def test_an_empty_queue_costs_one_receive_for_each_wait_and_no_micro_batch(rig: Rig) -> None:
    """But the first one of a new query, without rows, for Spark knows no offset yet.

    Once drained: at most `idle / wait + 1` receives, no other call more than once a minute, no micro-batch.
    """
    requests = rig.server.requests

    def planned() -> set[str]:
        return {path.name for path in (rig.home / "checkpoint" / "offsets").glob("[0-9]*")}

    with rig.to_parquet(rig.source(waitTimeSeconds=WAIT_S)) as query:
        wait_until(lambda: micro_batches(query), LONG_S, "the first micro-batch is over")
        polls = requests.counts()["ReceiveMessage"]
        wait_until(lambda: requests.counts()["ReceiveMessage"] >= polls + 3, LONG_S, "three polls are over")
        (only,) = micro_batches(query)
        assert (only["batchId"], only["numInputRows"]) == (0, 0)
        assert planned() == {"0"}
        assert not rig.rows()
        # Before 4.2 Spark does not say where it is, so the first epoch is not probed for: its task seals nothing.
        left = [decode(path.read_bytes(), path.name) for path in rig.journal_epochs()]
        assert len(left) == (1 if SPARK_VERSION < (4, 2) else 0)
        assert not any(segment.head.receipts or segment.head.deleted for segment in left)

        rig.send(100, groups=10)
        rig.drain(query)
        wait_until(lambda: rig.server.waiting, LONG_S, "the query polls")
        known = planned()
        began_at = SYSTEM_CLOCK.now()
        wait_until(lambda: SYSTEM_CLOCK.now() >= began_at + IDLE_S, IDLE_S + 5, f"{IDLE_S} s are over")
        # A request is recorded when it is over: the poll under way counts too.
        calls = Counter(each.action for each in requests.recent() if each.at >= began_at)
        receives = calls.pop("ReceiveMessage") + rig.server.waiting
        require_alive(query)
        assert planned() == known
    print(f"idle for {IDLE_S} s, waiting {WAIT_S} s: {receives} receives, other calls {dict(calls)}")
    assert receives <= IDLE_S // WAIT_S + 1
    assert all(count <= 1 for count in calls.values())
    assert not rig.journal_epochs()
