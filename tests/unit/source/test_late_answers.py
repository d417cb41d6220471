"""A late answer's messages are hidden since SQS was asked, not since they came; and more may be hidden still."""

from __future__ import annotations

import string
from unittest import mock

import pytest

from sqs_fifo_spark.source.lease import Lease
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.receive import WORTH, ReceivedMessages
from tests.simulation.spark import Query, read
from tests.unit.by_hand import World

pytestmark = pytest.mark.law("source-7")

SIDES = ("work", "receiving")
"""The driver's receive, and a task's."""


OPTIONS = {"numPartitions": "1"}


def require_renewed_at_once(world: World, side: str) -> None:
    """Before anything that may take long: only the rest of its hold is left, and a heartbeat may be asleep."""
    steps: list[str] = []

    def on_step(event: str) -> None:
        if event.startswith("after ReceiveMessage ["):
            world.clock.advance(WORTH * world.options.visibility_timeout_s)
            steps.append("late")
        elif steps:
            steps.append(event)

    world.send(*(f"{group}1" for group in string.ascii_lowercase))
    query = Query(world)
    start = query.start_of(0)
    if side == "work":
        world.on_step = on_step
        query.latest_offset(start)
    else:
        query.log(query.latest_offset(start))
        (plan,) = query.plans(0)
        world.on_step = on_step
        read(world, plan)
    assert steps[:2] == ["late", "before ChangeMessageVisibilityBatch"]


@pytest.mark.parametrize("side", SIDES)
def test_what_came_late_is_renewed_at_once(world: World, side: str) -> None:
    require_renewed_at_once(world, side)


@pytest.mark.parametrize("side", SIDES)
def test_a_hold_that_counts_from_when_its_message_came_is_caught(world: World, side: str) -> None:
    def hold_received(lease: Lease, received: ReceivedMessages) -> None:
        lease.hold([message.receipt for message in received], since=lease._clock.monotonic())

    with mock.patch.object(Lease, "hold_received", hold_received), pytest.raises(AssertionError):
        require_renewed_at_once(world, side)


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_poll_that_is_cut_is_no_end_of_a_run(world: World, is_cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQS may hide, with the rest of it, messages that are older than the trigger."""
    query = Query(world, available_now=True)
    world.clock.advance(3.0)
    world.send("a1")
    assert query.trigger()
    world.send("b1")
    receive = Queue.receive

    def cut(queue: Queue, *given: int, **named: int) -> ReceivedMessages:
        received = receive(queue, *given, **named)
        received.is_cut = is_cut
        return received

    monkeypatch.setattr(Queue, "receive", cut)
    assert query.trigger()
    assert bool(query.offsets[-1].partitions) is is_cut  # an epoch of none is the last
