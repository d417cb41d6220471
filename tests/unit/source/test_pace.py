"""Where others need the queue, too, the calls of a query go no faster than it was told."""

from __future__ import annotations

import math
import threading
from string import ascii_letters

import pytest

from sqs_fifo_spark.pace import Pace
from sqs_fifo_spark.source.lease import Lease
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.settlement import delete_committed
from tests.manual_clock import ManualClock
from tests.unit.by_hand import MODES, MakeWorld, Query, World, with_options

PER_SECOND = 4


def paced(world: World) -> list[float]:
    """Return when receives and deletes were made."""
    return [at for at, _, event in world.trace if event in ("before ReceiveMessage", "before DeleteMessageBatch")]


def most_in_a_second(times: list[float]) -> int:
    return max(sum(first <= at < first + 1 - 1e-6 for at in times) for first in times)


@pytest.mark.parametrize("mode", MODES)
def test_no_second_has_more_receives_and_deletes_than_it_may(make_world: MakeWorld, mode: str) -> None:
    """And each row comes once, in order."""
    world = make_world(maxCallsPerSecond=str(PER_SECOND), numPartitions="1", deleteAfter=mode)
    world.send(*(f"{name}{number}" for name in "abcdefgh" for number in range(40)))
    query = Query(world)
    query.start_of(0)  # its check of what it may do is not in the pace
    world.trace.clear()
    query.drain_and_audit()
    times = paced(world)
    assert len(times) > 64
    assert most_in_a_second(times) <= 2 * PER_SECOND  # driver and task each have it for themselves here
    assert times[-1] - times[0] >= len(times) / (2 * PER_SECOND)


def test_tasks_share_what_the_query_has(make_world: MakeWorld) -> None:
    """However many of them run at once."""
    world = make_world(maxCallsPerSecond=str(PER_SECOND))
    world.send(*(f"{name}1" for name in "abcdefgh"))
    queue = Queue(world.options, world.clock, sharer=3, sharers=8)
    world.trace.clear()
    for _ in range(4):
        queue.receive(1)
    assert [round(at, 3) for at in paced(world)] == [0.75, 2.75, 4.75, 6.75]


def test_a_turn_that_comes_too_late_is_not_taken() -> None:
    """It is left to whoever can still use it."""
    clock = ManualClock()
    pace = Pace(clock, 2)
    begun = clock.monotonic()
    assert pace.wait()
    assert not pace.wait(latest=begun + 0.4)
    assert clock.monotonic() == begun
    assert pace.wait(latest=begun + 0.5)
    assert clock.monotonic() == begun + 0.5
    clock.advance(60)
    assert pace.wait(latest=begun + 60.5)
    assert clock.monotonic() == begun + 60.5


@with_options(maxCallsPerSecond="1", visibilityTimeoutSeconds="30", maxMessagesPerTrigger="1000")
def test_a_slow_pace_ends_and_loses_no_hold(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is deleted, in a time far beyond that in which a commit tries to delete; what waits for that is renewed."""
    world.send(*(f"{first}{second}1" for first in ascii_letters for second in ascii_letters[:20]))
    queue = Queue(world.options, world.clock)
    lease = Lease(queue, world.clock, visibility_timeout_s=30, heartbeat_s=10)
    receipts = []
    for _ in range(104):
        received = queue.receive(10)
        lease.hold([message.receipt for message in received], since=world.clock.monotonic())
        receipts += [message.receipt for message in received]
        lease.renew()
    sleep = world.clock.sleep

    def beat(seconds: float) -> None:
        sleep(seconds)
        lease.renew()

    monkeypatch.setattr(world.clock, "sleep", beat)
    begun = world.clock.monotonic()
    left, _ = delete_committed(receipts, {}, queue=queue, lease=lease, clock=world.clock, budget_s=60)
    assert not left
    assert world.clock.monotonic() - begun >= 103
    assert world.depth() == (0, 0)
    assert not [event for event in world.events if event.kind == "lapsed"]


def test_a_call_with_a_deadline_goes_before_those_that_wait_behind() -> None:
    """So a thousand idle queues' polls, which wait for their turns, keep no delete from its own."""

    class Clock(ManualClock):
        def sleep(self, seconds: float) -> None:
            if others:
                others.pop()()
            super().sleep(seconds)

    clock = Clock()
    began_at, pace, answers = clock.now(), Pace(clock, 1), list[bool]()
    others = [lambda: answers.append(pace.wait(latest=clock.now() + 1.5)), *[pace.wait_behind] * 4]
    pace.wait()
    pace.wait_behind()
    assert answers == [True]
    assert clock.now() - began_at >= 6


def test_those_that_wait_behind_go_in_the_order_in_which_they_came() -> None:
    class Clock(ManualClock):
        def sleep(self, seconds: float) -> None:
            asked.append(seconds)
            if len(asked) < 4:
                pace.wait_behind()
            super().sleep(seconds)

    asked: list[float] = []
    clock = Clock()
    pace = Pace(clock, 1)
    pace.wait()
    pace.wait_behind()
    assert asked[:4] == [1, 2, 3, 4]


def test_a_poll_of_the_driver_waits_behind(world: World) -> None:
    calls: list[str] = []

    class Spied(Pace):
        def wait_behind(self) -> None:
            calls.append("behind")

        def wait(self, latest: float = math.inf, stopped: threading.Event | None = None) -> bool:
            calls.append("in line")
            return True

    queue = Queue(world.options, world.clock, world.pool, pace=Spied(world.clock, PER_SECOND))
    queue.receive(1)
    assert calls == ["behind"]
