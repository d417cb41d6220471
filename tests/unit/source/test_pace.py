"""Where others need the queue, too, the calls of a query go no faster than it was told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sqs_fifo_spark.clock import ManualClock
from sqs_fifo_spark.source.pace import Pace
from sqs_fifo_spark.source.queue import Queue
from tests.simulation.spark import Query
from tests.unit.by_hand import MODES, World

PER_SECOND = 4


def paced(world: World) -> list[float]:
    """Return when receives and deletes were made."""
    return [at for at, _, event in world.trace if event in ("before ReceiveMessage", "before DeleteMessageBatch")]


def most_in_a_second(times: list[float]) -> int:
    return max(sum(first <= at < first + 1 - 1e-6 for at in times) for first in times)


@pytest.mark.parametrize("mode", MODES)
def test_no_second_has_more_receives_and_deletes_than_it_may(make_world: Callable[..., World], mode: str) -> None:
    """And each row comes once, in order."""
    world = make_world(
        maxCallsPerSecond=str(PER_SECOND),
        numPartitions="1",
        deleteAfter=mode,
    )
    world.send(*(f"{name}{number}" for name in "abcdefgh" for number in range(40)))
    query = Query(world)
    query.start_of(0)  # its check of what it may do is not in the pace
    world.trace.clear()
    query.drain()
    world.audit()
    times = paced(world)
    assert len(times) > 64
    assert most_in_a_second(times) <= 2 * PER_SECOND  # driver and task each have it for themselves here
    assert times[-1] - times[0] >= len(times) / (2 * PER_SECOND)


def test_tasks_share_what_the_query_has(make_world: Callable[..., World]) -> None:
    """However many of them run at once."""
    world = make_world(maxCallsPerSecond=str(PER_SECOND))
    world.send(*(f"{name}1" for name in "abcdefgh"))
    queue = Queue(world.options, world.clock, sharers=8)
    world.trace.clear()
    for number in range(4):
        queue.receive(1, receive=number)
    times = paced(world)
    assert [round(at - times[0], 3) for at in times] == [0.0, 2.0, 4.0, 6.0]


def test_what_cannot_wait_is_counted() -> None:
    """A renewal delays the calls that can."""
    clock = ManualClock()
    pace = Pace(clock, 2)
    pace.wait()
    assert pace.count() == 0.5
    assert pace.count() == 1.0
    begun = clock.monotonic()
    pace.wait()
    assert clock.monotonic() - begun == 1.5
    clock.advance(60)
    assert pace.count() == 0.0


def test_without_a_limit_nothing_waits() -> None:
    clock = ManualClock()
    pace = Pace(clock, None)
    for _ in range(3):
        pace.wait()
        assert pace.count() == 0.0
    assert pace.needed_s(1_000) == 0.0
