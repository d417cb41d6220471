"""The laws by which the simulation judges the source, each on a story that keeps or breaks it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sqs_fifo_spark.source.queue import Queue
from tests.simulation.laws import AvailableNowRun, Laws, Offered
from tests.simulation.world import BEGAN_AT, World
from tests.unit import by_hand

pytestmark = pytest.mark.law("source-6")


@pytest.mark.parametrize("end", ["releases it", "may have put it", ""])
def test_a_task_that_fails_may_leave_nothing_hidden_that_nobody_has_put(world: by_hand.World, end: str) -> None:
    laws = Laws(world, is_calm=False)
    world.send("a1")
    _, (plan, *_) = world.planned()  # the driver has got a1
    world.send("b1")
    for row in world.sent:
        laws.sent(row)
    world.actor = lambda: "task 1/0 #1"
    laws.launched(world.actor(), plan)
    queue = Queue(world.options, world.clock, world.pool)
    received = queue.receive(10)
    if end == "releases it":
        queue.release(each.receipt for each in received)
    if end == "may have put it":
        laws.puts_link()
    laws.failed(world.actor())
    assert laws.violations == ([] if end else ["progress: task 1/0 #1 fails, and leaves hidden ['b1']"])


def run_of(polled: Offered, began: Offered, last: Offered | None = None, **given: Any) -> AvailableNowRun:
    """Return a run that waits for holds, and was over as soon as it had begun, unless `given` says something else."""
    times: dict[str, Any] = {"lapse_at": BEGAN_AT, "newer_at": BEGAN_AT, "is_newer": False, **given}
    return AvailableNowRun("query 1", began, last or began, polled, began.received, waits_for_holds=True, **times)


@pytest.mark.parametrize(
    ("held_s", "waits_s", "is_excused"), [(60, 30, True), (60, 29, False), (1, 30, False), (0, 30, False)]
)
def test_available_now_may_leave_what_somebody_else_locks(held_s: int, waits_s: int, is_excused: bool) -> None:
    """Also by a copy of what is served, which the queue still has; if it looked once all earlier holds had lapsed."""
    world = World()
    laws = Laws(world, is_calm=False)
    first, second = (world.put(body, body) for body in ("e1", "e2"))
    laws.sent(first)
    laws.sent(second)
    world.checkpoint.sink[0] = {0: [first]}
    laws.committed(world.checkpoint, 0)
    if held_s:
        assert len(world.receive_elsewhere(1, held_s)) == 1
    began = laws.begins()
    world.clock.advance(waits_s)
    run = run_of(laws.offers(), began, rows=0, counted=2, lapse_at=BEGAN_AT + 30, newer_at=math.inf)
    world.clock.advance(60)  # what it held then, it has let go of since
    laws.ended_well(run)
    broken = "available now: it ended well, and these had waited: ['e2']"
    assert laws.violations == ([] if is_excused else [broken])


@pytest.mark.parametrize("polls_again", [True, False])
def test_available_now_may_leave_what_a_poll_after_its_last_tasks_did_not_bring(polls_again: bool) -> None:
    """As many were served as had waited, and that poll brought more: one before the tasks shows nothing of it."""
    world = World()
    laws = Laws(world, is_calm=False)
    world.actor = lambda: "query 1"
    laws.sent(world.put("a1", "a1"))
    began = laws.begins()
    laws.sent(world.put("b1", "b1"))
    world.on_polled(True)
    last = laws.begins_tasks()
    if polls_again:
        world.on_poll()
        world.on_polled(True)
    run = run_of(laws.polled(last), began, last, rows=1, counted=1, is_newer=True)
    world.clock.advance(60)
    laws.ended_well(run)
    broken = "available now: it ended well, and these had waited: ['a1']"
    assert laws.violations == ([] if polls_again else [broken])
