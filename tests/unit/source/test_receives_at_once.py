"""A task has several receives under way: as many as bring something, and within all of its limits."""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from sqs_fifo_spark.errors import AccessDeniedError
from sqs_fifo_spark.retry import PendingCall
from sqs_fifo_spark.source.plan import PartitionPlan
from sqs_fifo_spark.source.pool import Answer, CallingThread, Pool
from sqs_fifo_spark.source.queue import CONCURRENT_CALLS, LONGEST_BEGIN_S, RELEASE_BUDGET_S, Queue
from sqs_fifo_spark.source.receive import ReceivedMessages
from tests.unit.by_hand import Late, MakeWorld, Query, World, in_both_modes
from tests.unit.sending import THROTTLED
from tests.unit.source.test_far_apart import once

pytestmark = pytest.mark.law("source-6", "source-7")

S = TypeVar("S")
T = TypeVar("T")
ROUNDS = 11
"""Receives one after the other that bring 44 answers: 1, 1, 2, 4, then 8 at once; and up to two that bring none."""


class Receives:
    """Counts the receives that are under way at once, and in how many rounds they are made."""

    def __init__(self) -> None:
        self.waiting = 0
        self.most = 0
        self.rounds = 0
        begin = Queue.begin_receive

        def counted(queue: Queue, *given: Any, **named: Any) -> PendingCall[ReceivedMessages]:
            begun = begin(queue, *given, **named)
            self.rounds += not self.waiting
            self.waiting += 1
            self.most = max(self.most, self.waiting)
            wait, waiting = begun.wait, [1]

            def wait_once() -> bool:
                self.waiting -= sum(waiting)
                waiting.clear()
                return wait()

            begun.wait = wait_once  # type: ignore[method-assign]
            return begun

        self.begin_receive = counted


class Short(CallingThread):
    """Has no thread for the fourth call."""

    left = 3

    def submit(self, call: Callable[[], T], /) -> Answer[T]:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("can't start new thread")
        return super().submit(call)


OPTIONS = {"numPartitions": "1", "maxMessagesPerTrigger": "1000"}


@pytest.fixture
def begun(world: World, monkeypatch: pytest.MonkeyPatch) -> Receives:
    def make(name: str, threads: int) -> Pool:
        return Late() if name == "begun" else CallingThread()

    world.pool = make
    receives = Receives()
    monkeypatch.setattr(Queue, "begin_receive", receives.begin_receive)
    return receives


def begin(world: World, messages: int, *, size: int = 3) -> tuple[Query, PartitionPlan]:
    """Return a query and the plan of its first micro-batch, when so many messages wait, each in a group of its own."""
    groups = ("".join(letters) for letters in itertools.product(string.ascii_letters, repeat=2))
    world.send(*(f"{group}{1:0{size - 2}}" for group in itertools.islice(groups, messages)))
    query = Query(world)
    query.log(query.latest_offset(query.start_of(0)))
    return query, replace(query.plans(0)[0], expected=messages)


@in_both_modes
def test_as_many_receives_are_made_at_once_as_have_brought_something(world: World, begun: Receives) -> None:
    """Each row once, and hardly a receive more than one after the other makes."""
    query, plan = begin(world, 450)
    before, begun.rounds = world.calls("ReceiveMessage"), 0
    rows = world.read(plan)
    assert len(rows) == len({row.body for row in rows}) == 450
    assert begun.most == CONCURRENT_CALLS
    assert begun.rounds <= ROUNDS
    assert world.calls("ReceiveMessage") - before <= 44 + CONCURRENT_CALLS
    query.finish(rows)


@in_both_modes
@pytest.mark.parametrize(("left_s", "is_told"), [(4.0, True), (0.5, False)])
def test_receives_that_fail_are_told_of_unless_their_time_is_over(
    world: World, begun: Receives, caplog: pytest.LogCaptureFixture, left_s: float, is_told: bool
) -> None:
    """SQS throttles a queue that gives less than a partition may take: then each ends like this, with what has come."""
    query, plan = begin(world, 450)
    answered = 0

    def fault(action: str) -> str:
        nonlocal answered
        if action == "ReceiveMessage":
            answered += 1
            if answered == 4:
                world.clock.advance(world.options.max_fetch_s - left_s)
            if answered > 5:  # one of four at once has brought something
                raise THROTTLED
        return ""

    world.fault = fault
    rows = world.read(plan)
    assert len(rows) == 60
    assert ("a partition stops receiving early" in caplog.text) == is_told
    world.fault = lambda action: ""
    query.finish(rows)


@in_both_modes
@pytest.mark.parametrize("limit", [11, 25, 77, 203])
def test_receives_at_once_keep_the_limit_of_messages(world: World, begun: Receives, limit: int) -> None:
    """All together."""
    _, plan = begin(world, 450)
    assert len(world.read(replace(plan, max_messages=limit))) == limit


@in_both_modes
def test_receives_at_once_keep_the_limit_of_bytes(world: World, begun: Receives) -> None:
    """As far as answers are not larger than those before: one more answer, as without others beside it."""
    _, plan = begin(world, 450, size=100)
    rows = world.read(replace(plan, max_bytes=100 * 100))
    assert 100 <= len(rows) <= 110
    assert begun.most > 1


@in_both_modes
def test_no_receive_is_made_for_what_is_not_expected(world: World, begun: Receives) -> None:
    """Each would be in vain."""
    _, plan = begin(world, 100)
    before = world.calls("ReceiveMessage")
    world.read(replace(plan, expected=100))
    assert world.calls("ReceiveMessage") - before <= 12


@in_both_modes
def test_what_others_bring_is_released_if_a_receive_is_refused(world: World, begun: Receives) -> None:
    """Nobody is going to seal it: else it would be hidden for a visibility timeout."""
    _, plan = begin(world, 450)
    made = 0

    def refused(action: str) -> str:
        nonlocal made
        made += action == "ReceiveMessage"
        return "denied" if action == "ReceiveMessage" and made == 6 else ""

    world.fault = refused
    with pytest.raises(AccessDeniedError):
        world.read(plan)
    assert made > 6  # others were under way
    world.fault = lambda action: ""
    sealed = len(world.deleted())
    assert world.depth() == (450 - 10 - sealed, 10)  # the driver holds what it has caught


@in_both_modes
def test_what_an_answer_brings_is_held_while_others_are_waited_for(world: World, begun: Receives) -> None:
    """For longer than a visibility timeout: no other consumer gets any of it."""
    query, plan = begin(world, 450)
    seen: list[str] = []

    def wait() -> None:
        world.pass_time(3 * world.options.visibility_timeout_s)
        seen.extend(event.message_id for event in world.events if event.kind == "lapsed")

    made = 0
    step = world.on_step

    def on_step(event: str) -> None:
        nonlocal made
        step(event)
        made += event == "before ReceiveMessage"
        if made == 7 and event == "before ReceiveMessage":
            wait()

    world.on_step = on_step
    rows = world.read(plan)
    assert made > 7
    assert not seen
    query.finish(rows)


@in_both_modes
def test_answers_are_read_before_more_is_begun_where_that_takes_long(
    world: World, begun: Receives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New connections may be slow: what is there would be held late. And no row is missed for it."""
    query, plan = begin(world, 450)
    begin_receive = Queue.begin_receive

    def slowly(queue: Queue, *given: Any, **named: Any) -> PendingCall[ReceivedMessages]:
        call = begin_receive(queue, *given, **named)
        world.clock.advance(0.6 * LONGEST_BEGIN_S)
        return call

    monkeypatch.setattr(Queue, "begin_receive", slowly)
    rows = world.read(replace(plan, max_messages=60))
    assert len(rows) == 60
    assert begun.most == 2
    query.finish(rows)


@in_both_modes
def test_an_empty_answer_beside_copies_does_not_end_the_chain(world: World, begun: Receives) -> None:
    """It was asked for before they were deleted, and what follows them was locked then."""
    query, plan = begin(world, 100)
    world.fault = lambda action: "throttled" if "Delete" in action else ""
    rows = world.read(plan)
    follower = f"{max(rows, key=lambda row: row.sequence).group}2"
    world.send(follower)
    query.to_sink(0, {0: rows})
    query.announce()
    world.fault = lambda action: ""
    world.clock.advance(world.options.visibility_timeout_s + 1)  # without a heartbeat: all comes again
    (plan,) = query.plans(1)
    assert follower in [row.body for row in world.read(replace(plan, expected=200, max_messages=200))]


@pytest.mark.parametrize("groups", [3, 5, 6, 7, 9, 12])
def test_each_of_two_runs_far_apart_serves_what_is_new(make_world: MakeWorld, groups: int) -> None:
    """Though the second one meets all of the first one's messages again, which lock the new ones."""
    world = make_world(numPartitions="1")
    names = string.ascii_letters[:groups]
    world.send(*(f"{name}{number}" for name in names for number in range(10)))
    assert len(once(world)) == 10 * groups
    world.send(*(f"{names[-1]}{number}" for number in range(10, 20)))
    assert len(once(world)) == 10


@in_both_modes
def test_what_others_bring_is_released_if_there_is_no_thread_for_a_receive(world: World) -> None:
    """Where the number of processes is limited."""
    pool = Short()
    world.pool = lambda name, threads: pool if name == "begun" else CallingThread()
    _, plan = begin(world, 450)
    with pytest.raises(RuntimeError):
        world.read(plan)
    assert world.depth() == (440, 10)  # the driver holds what it has caught


@in_both_modes
def test_more_than_its_share_a_partition_asks_for_one_at_a_time(world: World, begun: Receives) -> None:
    """Others take what is left, so that many at once would be in vain."""
    _, plan = begin(world, 450)
    rows = world.read(replace(plan, partitions=8, expected=450))
    assert len(rows) == 450
    assert begun.most < 450 / 8 / 10


def test_a_release_is_asked_for_however_late_its_thread_comes_to_it(world: World) -> None:
    """Its process stands still just then."""

    class Slow(CallingThread):
        def map(self, call: Callable[[S], T], items: Iterable[S], /) -> Iterable[T]:
            world.clock.advance(RELEASE_BUDGET_S + 1)
            return super().map(call, items)

    world.send("a1")
    queue = Queue(world.options, world.clock, lambda name, threads: Slow())
    queue.release([message.receipt for message in queue.receive(10)])
    assert world.depth() == (1, 0)
