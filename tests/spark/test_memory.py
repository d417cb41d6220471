"""Memory follows from the limits of a micro-batch, not from the backlog, nor from how long the query runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.helpers import wait_until
from tests.memory.limits import MIB, Load, reader_limit, worker_limit
from tests.memory.preload import preload
from tests.memory.watch import READER, WORKER, Watch
from tests.spark.support import LONG_S, Rig, micro_batches, require_alive

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

BACKLOG = 200_000
SIZE = 500
LOAD = Load(messages=1_000, bytes=2 * MIB, partitions=4, largest=SIZE)
WARM_UP, MICRO_BATCHES = 3_000, 20
GROWTH = 8 * MIB
"""Bytes that twenty micro-batches may add to the first three: under half a kilobyte for each message."""


@pytest.fixture
def watch() -> Iterator[Watch]:
    with Watch() as started:
        yield started


def _last_batch(query: StreamingQuery) -> int:
    """Return the number of the last micro-batch with rows; the list of them is cut at a hundred."""
    return max(int(each["batchId"]) for each in micro_batches(query) if each["numInputRows"])


def test_memory_depends_on_the_limits_and_not_on_the_backlog(rig: Rig, watch: Watch) -> None:
    """Twenty micro-batches of 200,000 messages with 100 MB of bodies: no Python process grows, or passes its limit."""
    source = rig.source(
        maxMessagesPerTrigger=LOAD.messages, maxBytesPerTrigger=LOAD.bytes, numPartitions=LOAD.partitions
    )
    with rig.to_parquet(source) as query:
        rig.send(10, groups=10)
        rig.drain(query, timeout_s=4 * LONG_S)
        idle_reader, idle_worker = watch.peak(READER), watch.peak(WORKER)
        assert idle_reader > 0
        assert idle_worker > 0
        rig.send(WARM_UP, groups=WARM_UP, body="x" * SIZE)
        rig.drain(query, timeout_s=4 * LONG_S)
        warm_reader, warm_worker = watch.peak(READER), watch.peak(WORKER)
        preload(rig.server, rig.url, BACKLOG, SIZE, groups=BACKLOG)
        first = _last_batch(query)

        def has_gone_on() -> bool:
            require_alive(query)
            return _last_batch(query) > first + MICRO_BATCHES

        wait_until(has_gone_on, 4 * LONG_S, f"{MICRO_BATCHES} micro-batches")
        visible, in_flight = rig.depth()
    assert visible > BACKLOG / 2, "the backlog is there until the end"
    assert in_flight <= 2 * LOAD.messages
    pairs = [
        (READER, watch.peak(READER), warm_reader, reader_limit(idle_reader, LOAD)),
        (WORKER, watch.peak(WORKER), warm_worker, worker_limit(idle_worker, LOAD)),
    ]
    for role, peak, warm, limit in pairs:
        print(f"{role}: warm {warm / MIB:.0f} MiB, peak {peak / MIB:.0f}, limit {limit / MIB:.0f}")
    assert [role for role, peak, _, limit in pairs if peak > limit] == []
    assert [role for role, peak, warm, _ in pairs if peak > warm + GROWTH] == []
