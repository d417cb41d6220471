"""A partition as a chain of links: what attempts append, what the driver closes, and what tasks delete."""

from __future__ import annotations

import gc
import random
import string
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import pytest
from greenlet import greenlet

from sqs_fifo_spark.errors import EpochSettledError, FencedError, JournalUnavailableError, SqsFifoError
from sqs_fifo_spark.source.journal import Journal
from sqs_fifo_spark.source.message import Message, Receipt
from sqs_fifo_spark.source.partition import serve
from sqs_fifo_spark.source.plan import PartitionPlan
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.receiving import LINK_BYTES
from sqs_fifo_spark.source.segment import Head, decode
from tests.simulation.hub import Crash
from tests.simulation.spark import Query, read
from tests.simulation.world import LAPSE_S, VISIBILITY_S, Checkpoint, Row
from tests.unit.by_hand import MODES, HandHeartbeat, World, crash_at, do_at, in_both_modes

pytestmark = pytest.mark.law("source-2", "source-3", "source-4")

FIRST_LINK = "epochs/00000000000000000001/0000-000000"
SECOND_LINK = "epochs/00000000000000000001/0000-000001"


@pytest.fixture
def world(make_world: Callable[..., World], request: pytest.FixtureRequest) -> World:
    """A world with one partition, whose tasks delete unless the test says otherwise."""
    return make_world(**{"numPartitions": "1", "deleteAfter": "journal", **getattr(request, "param", {})})


def begin(world: World, *bodies: str) -> tuple[Query, PartitionPlan]:
    """Return a query and the plan of its first micro-batch, when `bodies` wait; its probe has caught "z1"."""
    world.send("z1")
    query = Query(world)
    query.log(query.driver.latest_offset(query.start_of(0), 1))
    plans = query.plans(0)
    plans[:] = (replace(plans[0], max_messages=100),)  # it did not expect more than one
    world.send(*bodies)
    return query, plans[0]


def finish(query: Query, rows: list[Row]) -> None:
    """Let Spark commit the first micro-batch with these rows, and drain and audit what follows."""
    assert isinstance(query.world, World)
    query.to_sink(0, {0: rows})
    query.checkpoint.committed.add(0)
    query.drain()
    query.world.audit()


def links(world: World, epoch: int = 1, partition: int = 0) -> list[Head]:
    """Return the heads of a chain, in order; it has no gap, and only its end may be the last."""
    prefix = f"epochs/{epoch:020d}/{partition:04d}-"
    heads = [decode(world.store.objects[name], name).head for name in world.store.under(prefix)]
    assert [head.origin.link for head in heads] == list(range(len(heads)))
    assert not any(head.chain.is_last for head in heads[:-1])
    return heads


def bodies(world: World, *heads: Head) -> list[list[str]]:
    """Return the bodies of the messages in each of these links."""
    body = {row.message_id: row.body for row in world.sent}
    return [[body[receipt.message_id] for receipt in head.receipts] for head in heads]


def handles(receipts: Iterable[Receipt]) -> list[str]:
    return [receipt.receipt_handle for receipt in receipts]


def told(rows: list[Row]) -> list[str]:
    return [row.body for row in rows]


class Attempts:
    """Attempts of tasks that take turns: each stands still before its steps, until it is let go on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._home = greenlet.getcurrent()
        self._at: dict[greenlet, str] = {}
        self.rows: list[list[Row]] = []
        """What those have read that came to their end."""
        world.on_step = self._on_step

    def begin(self, plan: PartitionPlan) -> greenlet:
        """Begin an attempt, which stands still at its first step."""

        def run() -> None:
            with suppress(Crash):
                self.rows.append(read(self._world, plan))

        attempt = greenlet(run)
        self._at[attempt] = ""
        attempt.switch()
        return attempt

    def go_on(self, attempt: greenlet, until: str = "") -> None:
        """Let it go on to the next step that begins with `until`, or to its end."""
        while True:
            attempt.switch()
            if attempt.dead or self._at[attempt].startswith(until):
                return

    def end(self, attempt: greenlet) -> None:
        while not attempt.dead:
            attempt.switch()

    def kill(self, attempt: greenlet) -> None:
        attempt.throw(Crash)

    def _on_step(self, event: str) -> None:
        current = greenlet.getcurrent()
        if current in self._at:
            self._at[current] = event
            self._home.switch()


# What the driver has caught


def lose_decided(world: World, plan: PartitionPlan) -> None:
    """Let somebody delete what the driver has caught for this partition."""
    (name,) = world.carried(plan)
    for receipt in decode(world.store.objects[name], name).head.receipts:
        world.model.call("DeleteMessage", {"QueueUrl": world.url, "ReceiptHandle": receipt.receipt_handle})


@pytest.mark.parametrize("first", ["its own partition", "the other one"])
def test_what_follows_decided_messages_that_sqs_has_lost_waits_for_their_link(
    make_world: Callable[..., World], first: str
) -> None:
    """Somebody deletes them while they are in the driver's hands; then SQS hands out what follows to any task."""
    world = make_world(numPartitions="2", deleteAfter="journal")
    world.send(*(f"c{number}" for number in range(10)), *(f"a{number}" for number in range(150)))
    query = Query(world)
    query.log(query.driver.latest_offset(query.start_of(0), 1_000))
    own, other = sorted(query.plans(0), key=lambda plan: len(world.carried(plan)), reverse=True)
    own = replace(own, max_messages=10)  # it receives nothing itself
    lose_decided(world, own)
    world.send("c10")
    turns = [own, other] if first == "its own partition" else [other, own]
    rows = {plan.partition: read(world, plan) for plan in turns}
    assert told(rows[own.partition]) == [f"c{number}" for number in range(10)]
    assert ("c10" in told(rows[other.partition])) == (first == "its own partition")
    assert "a99" in told(rows[other.partition])
    query.to_sink(0, rows)
    query.checkpoint.committed.add(0)
    query.drain()
    world.audit()


def test_what_expires_in_the_hands_of_one_task_is_not_overtaken_in_those_of_another(
    make_world: Callable[..., World],
) -> None:
    """What the driver has caught expires; then what follows it, as soon as another partition's task has received it."""
    world = make_world(numPartitions="2", deleteAfter="journal")
    expire_soon(world)
    for numbers in (range(10), range(10, 20), range(20, 21)):
        world.send(*(f"c{number}" for number in numbers))
        world.pass_time(1)
    world.pass_time(56.5)
    world.send(*(f"a{number}" for number in range(150)))
    query = Query(world)
    query.log(query.driver.latest_offset(query.start_of(0), 1_000))
    own, other = sorted(query.plans(0), key=lambda plan: len(world.carried(plan)), reverse=True)
    world.pass_time(1)  # c0 to c9 expire
    rows = {}
    do_at(world, "before put epochs/", lambda: world.pass_time(1))  # and c10 to c19, if it holds them
    rows[other.partition] = read(world, replace(other, max_messages=20))
    rows[own.partition] = read(world, own)
    assert told(rows[own.partition])[:10] == [f"c{number}" for number in range(10)]
    query.to_sink(0, rows)
    query.checkpoint.committed.add(0)
    query.drain()
    served = [int(row.body[1:]) for rows in world.rows() for row in rows if row.body.startswith("c")]
    assert served == [*range(10), 20]  # SQS has dropped the others, for nobody had sealed them
    assert world.depth() == (0, 0)


def test_an_empty_link_that_closes_a_chain_does_not_stand_for_what_was_decided(
    make_world: Callable[..., World],
) -> None:
    """The driver closes a chain that nobody has begun, and an attempt at another one is under way still."""
    world = make_world(numPartitions="2", deleteAfter="journal")
    # It is decided for the first partition, for the driver closes chains in their order.
    group = next(name for name in "cde" if zlib.crc32(name.encode()) % 2 == 0)
    world.send(*(f"{group}{number}" for number in range(10)), *(f"a{number}" for number in range(150)))
    query = Query(world)
    query.log(query.driver.latest_offset(query.start_of(0), 1_000))
    own, other = query.plans(0)
    lose_decided(world, own)
    world.send(f"{group}10")
    rows: dict[int, list[Row]] = {}
    do_at(world, f"after put {FIRST_LINK}", lambda: rows.update({1: read(world, other)}))
    query.driver.latest_offset(query.offsets[0], 1_000)
    assert "a99" in told(rows[1])
    assert f"{group}10" not in told(rows[1])
    query.to_sink(0, rows)
    query.checkpoint.committed.add(0)
    query.drain()
    world.audit()


# What SQS lets go of between its receive and its link


def expire_soon(world: World) -> None:
    """Let what is sent from now on expire after a minute."""
    retention = {"Attributes": {"MessageRetentionPeriod": "60"}}
    world.model.call("SetQueueAttributes", {"QueueUrl": world.url, **retention})


def redrive_at_once(world: World) -> None:
    """Let a message that lapses go to a dead-letter queue."""
    dead = world.create_queue("dead.fifo").rpartition("/")[2]
    policy = f'{{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:{dead}","maxReceiveCount":"1"}}'
    world.model.call("SetQueueAttributes", {"QueueUrl": world.url, "Attributes": {"RedrivePolicy": policy}})


@pytest.mark.parametrize("looks", ["at what follows it", "at another group first"])
def test_what_a_first_link_defers_is_not_overtaken_in_another_partition(
    make_world: Callable[..., World], looks: str
) -> None:
    """It expires in spite of that task's hold, and another partition's task receives what follows it.

    That task has perhaps looked at the link before, for another group of which something was decided.
    """
    world = make_world(numPartitions="2", deleteAfter="journal")
    expire_soon(world)
    world.send("d0", *(f"c{number}" for number in range(1, 10)))
    for body in ("c10", "c11"):
        world.pass_time(1)
        world.send(body)
    world.pass_time(57.5)
    world.send(*(f"a{number}" for number in range(150)))
    query = Query(world)
    query.log(query.driver.latest_offset(query.start_of(0), 1_000))
    own, other = sorted(query.plans(0), key=lambda plan: len(world.carried(plan)), reverse=True)
    world.pass_time(1)  # all that is decided expires
    handle = receive_elsewhere(world, "c10")
    given_back = {"QueueUrl": world.url, "ReceiptHandle": handle, "VisibilityTimeout": 0}
    world.model.call("ChangeMessageVisibility", given_back)
    rows = {own.partition: read(world, replace(own, max_messages=11))}
    if looks == "at what follows it":
        world.pass_time(1)  # c10 expires
    else:
        world.send("d1")
        do_at(world, "before put epochs/", lambda: world.pass_time(1))
    rows[other.partition] = read(world, other)
    query.to_sink(0, rows)
    query.checkpoint.committed.add(0)
    query.drain()
    served = [int(row.body[1:]) for rows in world.rows() for row in rows if row.body.startswith("c")]
    assert served == list(range(1, 12))
    assert world.depth() == (0, 0)


def receive_elsewhere(world: World, body: str) -> str:
    """Let somebody receive messages, one at a time, up to this one, and keep them. Return its receipt handle."""
    while True:
        (message,) = world.model.call("ReceiveMessage", {"QueueUrl": world.url, "MaxNumberOfMessages": 1})["Messages"]
        if message["Body"] == body:
            return str(message["ReceiptHandle"])


@pytest.mark.parametrize("why", ["it expires", "it is redriven while a process stands still"])
def test_what_another_attempts_link_has_overtaken_is_not_put_behind_it(world: World, why: str) -> None:
    """Two attempts of one task: SQS lets go of what the first has received, and the second puts what follows it."""
    if why == "it expires":
        expire_soon(world)
    _, plan = begin(world, "a1", "b1")
    world.pass_time(58)
    if why != "it expires":
        redrive_at_once(world)
    attempts = Attempts(world)
    first = attempts.begin(plan)
    attempts.go_on(first, "before put epochs/")
    world.send("a2")
    if why == "it expires":
        world.pass_time(3)  # well within the visibility timeout
    else:
        world.clock.advance(VISIBILITY_S + 1)
    second = attempts.begin(plan)
    attempts.go_on(second, "before DeleteMessageBatch")  # it has put a2
    attempts.end(first)
    attempts.end(second)
    world.on_step = lambda event: None
    rows = read(world, plan)
    assert attempts.rows == [rows, rows]
    assert not any(receipt.deferred for head in links(world) for receipt in head.receipts)
    assert [body for body in told(rows) if body.startswith("a")] == ["a2"]
    assert told(rows).count("b1") == 1  # which nothing has overtaken


def test_the_newest_handle_of_what_an_earlier_link_serves_is_kept(world: World) -> None:
    """Though another attempt's link has what follows it: the chain has it, so nothing has overtaken it."""
    _, plan = begin(world, "a1")
    attempts = Attempts(world)
    late = attempts.begin(plan)
    attempts.go_on(late, "before get epochs/00000000000000000001/caught")  # it has seen no link
    dead = attempts.begin(plan)
    attempts.go_on(dead, f"after put {FIRST_LINK}")  # z1 and a1
    attempts.kill(dead)
    world.clock.advance(LAPSE_S)
    world.send("a2")
    other = attempts.begin(plan)
    attempts.go_on(other, f"before put {SECOND_LINK}")  # a2; z1 and a1 came again, too
    world.clock.advance(LAPSE_S)
    attempts.go_on(late, "before put epochs/")  # all three again: its handles are those that work
    attempts.go_on(other, f"after put {SECOND_LINK}")
    attempts.go_on(late, "before DeleteMessageBatch")  # it has put the third link
    body = {row.message_id: row.body for row in world.sent}
    told_of = [each for head in links(world) for each in (*head.receipts, *head.chain.unconfirmed)]
    assert not [event for event in world.events if event.kind == "visibility_changed"]
    assert max(each.receive_count for each in told_of if body[each.message_id] == "a1") == 3
    assert max(each.receive_count for each in told_of if body[each.message_id] == "a2") == 2
    attempts.kill(late)  # it stands within a call, and what that has set up for its thread is to end


def test_what_another_attempts_link_has_overtaken_is_not_served_with_the_next_epoch(
    make_world: Callable[..., World],
) -> None:
    """As above, but that attempt defers what follows, and another partition has served what is between them."""
    world = make_world(numPartitions="2", deleteAfter="journal")
    expire_soon(world)
    world.send(*(f"z{number}" for number in range(10)))
    query = Query(world)
    query.log(query.driver.latest_offset(query.start_of(0), 1_000))
    own, other = sorted(query.plans(0), key=lambda plan: len(world.carried(plan)), reverse=True)
    own, other = (replace(plan, max_messages=100) for plan in (own, other))
    world.send("a1")
    world.pass_time(58)
    attempts = Attempts(world)
    first = attempts.begin(own)
    attempts.go_on(first, "before put epochs/")
    world.send("a2")
    world.pass_time(3)  # a1 expires
    attempts.end(attempts.begin(other))  # it serves a2, and deletes it
    world.send("a3")
    assert [each["Body"] for each in world.receive_elsewhere(10, 1)] == ["a3"]
    world.pass_time(2)  # another consumer has given a3 back
    second = attempts.begin(own)
    attempts.go_on(second, "before DeleteMessageBatch")  # it has put a3, deferred
    attempts.end(first)
    attempts.end(second)
    world.on_step = lambda event: None
    query.to_sink(0, {plan.partition: read(world, plan) for plan in (own, other)})
    query.checkpoint.committed.add(0)
    query.drain()
    assert [body for body in world.bodies() if body.startswith("a")] == ["a2", "a3"]
    assert world.depth() == (0, 0)


# The order of links


def test_a_chain_is_read_in_the_order_of_its_links(world: World) -> None:
    """A group of more messages than one answer holds is served in one micro-batch, link by link, in its order."""
    query, plan = begin(world, *(f"a{number}" for number in range(35)))
    rows = read(world, plan)
    assert told(rows) == ["z1", *(f"a{number}" for number in range(35))]
    chain = links(world)
    assert [len(head.receipts) for head in chain[:4]] == [11, 10, 10, 5]
    assert chain[-1].chain.is_last
    assert chain[-1].chain.served == len(rows)
    assert read(world, plan) == rows
    finish(query, rows)


@pytest.mark.parametrize("count", [35, 1_005])
def test_the_order_of_links_is_that_of_numbers(world: World, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """However many there are."""
    monkeypatch.setattr("sqs_fifo_spark.source.receiving.LINK_MESSAGES", 1)
    _query, plan = begin(world, *(f"a{number}" for number in range(count)))
    rows = read(world, replace(plan, max_messages=count + 1))
    assert told(rows) == ["z1", *(f"a{number}" for number in range(count))]
    assert read(world, plan) == rows
    assert len(links(world)) > count // 10


@pytest.mark.parametrize("world", [{"deleteAfter": "commit"}], indirect=True)
def test_where_the_commit_deletes_a_chain_has_one_link(world: World) -> None:
    """Its group stays locked, so there is nothing to wait for."""
    query, plan = begin(world, *(f"a{number}" for number in range(35)), "b1")
    rows = read(world, plan)
    (link,) = links(world)
    assert link.chain.is_last
    assert not link.origin.deletes
    assert bodies(world, link) == [["z1", *(f"a{number}" for number in range(10)), "b1"]]
    assert not world.deleted()
    finish(query, rows)


@in_both_modes
def test_a_closed_chain_is_read_without_a_receive(world: World) -> None:
    """Whatever has arrived since; and nothing is put, deleted or released."""
    query, plan = begin(world, "a1", "b1")
    rows = read(world, plan)
    world.send("a2", "c1")
    before = dict(world.store.objects)
    events = len(world.events)
    assert read(world, plan) == rows
    assert world.store.objects == before
    assert len(world.events) == events
    finish(query, rows)


@pytest.mark.parametrize("limit", [1, 2, 11, 12, 30, 36])
def test_the_limit_of_messages_is_that_of_the_whole_chain(world: World, limit: int) -> None:
    """What is decided counts, and what each of the links has."""
    query, plan = begin(world, *(f"a{number}" for number in range(40)))
    rows = read(world, replace(plan, max_messages=limit))
    assert len(rows) == limit
    finish(query, rows)


def test_the_limit_of_bytes_is_that_of_the_whole_chain(world: World) -> None:
    """Past it no further receive is made, in whatever link."""
    query, plan = begin(world, *(f"a{1000 + number}" for number in range(60)))  # five bytes each
    rows = read(world, replace(plan, max_bytes=2 + 60))
    assert len(rows) == 1 + 20
    assert len(links(world)) > 1
    finish(query, rows)


def test_the_time_to_fetch_is_that_of_the_whole_chain(world: World) -> None:
    """A queue that always has something more does not keep a micro-batch from ending."""
    query, plan = begin(world, "a0")
    count = 0

    def goes_on(event: str) -> None:
        nonlocal count
        if event.startswith("after put epochs/"):
            count += 1
            world.clock.advance(1)
            world.send(f"a{count}")

    world.on_step = goes_on
    rows = read(world, plan)
    assert 1 < count <= world.options.max_fetch_s + 1
    world.on_step = lambda event: None
    finish(query, rows)


@pytest.mark.parametrize("limits", [{"max_messages": 7}, {"max_messages": 31}, {"max_bytes": 2 + 5 * 30}])
def test_an_attempt_that_goes_on_with_a_chain_keeps_its_limits(world: World, limits: dict[str, int]) -> None:
    """What the links before have served counts, in messages and in bytes."""
    query, plan = begin(world, *(f"a{1000 + number}" for number in range(50)))  # five bytes each
    plan = replace(plan, **limits)  # type: ignore[arg-type]
    crash_at(world, "before DeleteMessageBatch")
    with pytest.raises(Crash):
        read(world, plan)
    rows = read(world, plan)
    assert len(rows) == limits.get("max_messages", 31)
    finish(query, rows)


@pytest.mark.parametrize(("name", "most"), [("LINK_MESSAGES", 20), ("LINK_BYTES", 100)])
def test_a_link_is_not_larger_than_a_task_can_hold(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    """Where others follow; what is more than that by the last answer is at most ten messages."""
    monkeypatch.setattr(f"sqs_fifo_spark.source.receiving.{name}", most)
    query, plan = begin(world, *(f"g{'abcdefghij'[number % 10]}x{1000 + number}" for number in range(90)))
    rows = read(world, plan)
    size = 1 if name == "LINK_MESSAGES" else len(rows[-1].body)
    assert all(size * (len(head.receipts) - 11) < most for head in links(world))
    assert len(links(world)) >= 5
    assert len(rows) == 91
    finish(query, rows)


# Several attempts


def test_an_attempt_goes_on_where_a_dead_one_ended(world: World) -> None:
    """What that has put is served first; nothing of it is received, put or served again."""
    query, plan = begin(world, *(f"a{number}" for number in range(25)))
    crash_at(world, f"after put {SECOND_LINK}")
    with pytest.raises(Crash):
        read(world, plan)
    dead = links(world)
    assert not dead[-1].chain.is_last
    rows = read(world, plan)
    assert told(rows) == ["z1", *(f"a{number}" for number in range(25))]
    assert links(world)[:2] == dead
    assert links(world)[2].origin.writer != dead[-1].origin.writer
    finish(query, rows)


@pytest.mark.parametrize("elapsed_s", [0, LAPSE_S])
def test_an_attempt_killed_at_any_step_changes_nothing_of_what_is_read(
    make_world: Callable[..., World], elapsed_s: float
) -> None:
    """Its links stay, the next attempt goes on, and all that come later read the same."""
    at = 0
    while True:
        at += 1
        world = make_world(numPartitions="1", deleteAfter="journal")
        query, plan = begin(world, *(f"{'aab'[number % 3]}{number}" for number in range(30)))
        crash_at(world, "", at)
        try:
            read(world, plan)
        except Crash:
            del HandHeartbeat.live[1:]  # the driver's alone survives
            world.clock.advance(elapsed_s)
        else:
            break
        rows = read(world, plan)
        assert read(world, plan) == rows
        finish(query, rows)
    assert at > 25


def test_who_finds_a_link_taken_puts_what_it_caught_into_the_next(world: World) -> None:
    """It serves the winner's link first, and both read the whole chain."""
    query, plan = begin(world, "a1", "a2")
    attempts = Attempts(world)
    loser = attempts.begin(plan)
    attempts.go_on(loser, "before put epochs/")  # it has received a1 and a2
    world.send("b1", "b2")
    winner = attempts.begin(plan)
    attempts.go_on(winner, "before DeleteMessageBatch")
    attempts.end(loser)
    attempts.end(winner)
    first, second, *rest = links(world)
    assert bodies(world, first, second) == [["z1", "b1", "b2"], ["a1", "a2"]]
    assert first.origin.writer != second.origin.writer
    assert not any(each.receipts for each in rest)
    assert attempts.rows[0] == attempts.rows[1]
    assert told(attempts.rows[0]) == ["z1", "b1", "b2", "a1", "a2"]
    finish(query, attempts.rows[0])


def test_who_has_lost_several_links_names_what_the_last_of_them_leaves(world: World) -> None:
    """What the others have put before is deleted by then, or that link says so."""
    query, plan = begin(world, "a1", "a2")
    attempts = Attempts(world)
    loser = attempts.begin(plan)
    attempts.go_on(loser, "before put epochs/")
    world.send(*(f"b{number}" for number in range(15)))
    winner = attempts.begin(plan)
    attempts.go_on(winner, f"after put {SECOND_LINK}")
    attempts.go_on(loser, "before DeleteMessageBatch")  # it is about to delete what it has put
    first, second, third = links(world)
    assert first.origin.writer == second.origin.writer != third.origin.writer
    assert len(first.receipts) == 11
    assert handles(third.chain.unconfirmed) == handles(second.receipts)
    for attempt in (loser, winner):
        attempts.end(attempt)
    assert attempts.rows[0] == attempts.rows[1]
    finish(query, attempts.rows[0])


@pytest.mark.parametrize("links_read", [1, 2, 3])
def test_a_read_that_stops_early_leaves_a_chain_that_the_next_one_goes_on_with(world: World, links_read: int) -> None:
    """As Spark's `first` or `isEmpty` do: what it saw is where every other read begins."""
    query, plan = begin(world, *(f"a{number}" for number in range(45)))
    queue, journal = Queue(world.options, world.clock), Journal(world.store, plan.journal)
    reading = serve(plan, queue, journal, world.options, world.clock)
    seen = [body for _ in range(links_read) for body in next(reading).column("body").to_pylist()]
    reading.close()
    assert len(HandHeartbeat.live) == 1, "the driver's"
    assert len(links(world)) == links_read
    rows = read(world, plan)
    assert told(rows)[: len(seen)] == seen
    assert len(rows) == 46
    finish(query, rows)


def test_what_a_losing_attempt_caught_is_held_until_it_is_deleted(world: World) -> None:
    """By its own heartbeat, and by the driver's when it has died after its put."""
    _, plan = begin(world, "a1", "a2")
    attempts = Attempts(world)
    loser = attempts.begin(plan)
    attempts.go_on(loser, "before put epochs/")
    world.send("b1")
    winner = attempts.begin(plan)
    attempts.go_on(winner, "before DeleteMessageBatch")
    attempts.go_on(loser, f"after put {SECOND_LINK}")
    for _ in range(2 * VISIBILITY_S):
        world.pass_time(1)
        assert not world.receive_elsewhere()
    for attempt in (winner, loser):
        attempts.kill(attempt)
    del HandHeartbeat.live[1:]
    for _ in range(4 * VISIBILITY_S):
        world.pass_time(1)
        assert not world.receive_elsewhere()


@in_both_modes
def test_what_is_caught_after_the_last_link_is_released_at_once(world: World) -> None:
    """Nothing is appended any more; the attempt serves what is there."""
    query, plan = begin(world, "a1", "b1")
    attempts = Attempts(world)
    loser = attempts.begin(plan)
    attempts.go_on(loser, "before put epochs/")
    winner = attempts.begin(plan)
    attempts.end(winner)
    count = len(links(world))
    assert links(world)[-1].chain.is_last
    attempts.end(loser)
    assert len(links(world)) == count
    assert attempts.rows[0] == attempts.rows[1]
    assert told(attempts.rows[0]) == ["z1"]
    assert world.depth()[0] == 2
    assert {each["Body"] for each in world.receive_elsewhere(visibility_timeout_s=1)} == {"a1", "b1"}
    world.clock.advance(2)
    finish(query, attempts.rows[0])


@in_both_modes
def test_what_is_sealed_is_not_kept_as_messages_too(world: World) -> None:
    """Spark may take hours over the rows."""
    query, plan = begin(world, "a1")
    rows: list[Row] = []
    queue, journal = Queue(world.options, world.clock), Journal(world.store, plan.journal)
    others = {id(each): each for each in gc.get_objects() if isinstance(each, Message)}
    with closing(serve(plan, queue, journal, world.options, world.clock)) as reading:
        assert next(reading).column("body").to_pylist()[0] == "z1"
        gc.collect()
        assert [each for each in gc.get_objects() if isinstance(each, Message) and id(each) not in others] == []
    rows = read(world, plan)
    assert told(rows) == ["z1", "a1"]
    finish(query, rows)


@in_both_modes
@pytest.mark.parametrize("link_bytes", [1, LINK_BYTES])
def test_it_is_released_before_spark_gets_the_rows(
    world: World, monkeypatch: pytest.MonkeyPatch, link_bytes: int
) -> None:
    """However many they are: Spark may take hours over them, and the attempt's heartbeat would hold it as long."""
    monkeypatch.setattr("sqs_fifo_spark.source.attempt.LINK_BYTES", link_bytes)
    query, plan = begin(world, "a1", "b1")
    rows: list[Row] = []
    do_at(world, "before put epochs/", lambda: rows.extend(read(world, plan)))
    queue, journal = Queue(world.options, world.clock), Journal(world.store, plan.journal)
    with closing(serve(plan, queue, journal, world.options, world.clock)) as reading:
        assert next(reading).column("body").to_pylist() == told(rows) == ["z1"]
        assert world.depth()[0] == 2
    finish(query, rows)


@in_both_modes
def test_what_the_chain_has_and_was_caught_again_after_the_last_link_is_released_too(world: World) -> None:
    """It is served with a handle that works no more, and hides what follows it in its group."""
    query, plan = begin(world)
    world.clock.advance(LAPSE_S)  # nobody holds z1 any more
    world.send("z2")
    attempts = Attempts(world)
    loser = attempts.begin(plan)
    attempts.go_on(loser, "before put epochs/")
    winner = attempts.begin(plan)
    attempts.end(winner)
    assert links(world)[-1].chain.is_last
    attempts.end(loser)
    assert attempts.rows[0] == attempts.rows[1]
    assert told(attempts.rows[0]) == ["z1"]
    assert world.depth() == (2, 0)
    finish(query, attempts.rows[0])


def test_what_follows_a_message_that_the_winner_deferred_is_deferred(world: World) -> None:
    """In whatever link of the chain, and whoever received it: else the micro-batch after would serve it too late."""
    _query, plan = begin(world, "a1")
    world.receive_elsewhere(10, 1)
    world.clock.advance(2)
    attempts = Attempts(world)
    winner = attempts.begin(plan)
    attempts.go_on(winner, "before put epochs/")  # it defers a1, which somebody received before
    world.clock.advance(LAPSE_S)
    for message in world.receive_elsewhere():  # somebody else deletes a1, which lapsed
        world.model.call("DeleteMessage", {"QueueUrl": world.url, "ReceiptHandle": message["ReceiptHandle"]})
    world.send("a2")
    loser = attempts.begin(plan)
    attempts.go_on(loser, "before put epochs/")
    attempts.go_on(winner, f"after put {FIRST_LINK}")
    attempts.end(loser)
    attempts.end(winner)
    first, second, *_ = links(world)
    assert [receipt.deferred for receipt in (*first.receipts, *second.receipts)] == [False, True, True]
    assert bodies(world, first, second) == [["z1", "a1"], ["a2"]]
    assert attempts.rows[0] == attempts.rows[1]
    assert told(attempts.rows[0]) == ["z1"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(25))
def test_any_number_of_attempts_at_once_make_one_chain(make_world: Callable[..., World], seed: int, mode: str) -> None:
    """They begin, go on, stand still and die as the dice say, while messages come and holds lapse."""
    dice = random.Random(seed)
    world = make_world(seed, numPartitions="1", deleteAfter=mode)
    query, plan = begin(world, *(f"{dice.choice('abc')}{number}" for number in range(20)))
    durable_when_deleted(world)
    attempts = Attempts(world)
    running = [attempts.begin(plan)]
    for step in range(400):
        if dice.random() < 0.03 and len(running) < 4:
            running.append(attempts.begin(plan))
        if dice.random() < 0.03:
            world.send(f"{dice.choice('abc')}{100 + step}")
        if dice.random() < 0.01:
            world.clock.advance(dice.choice((1, LAPSE_S)))
        if running:
            chosen = dice.choice(running)
            if dice.random() < 0.01:
                attempts.kill(chosen)
            else:
                chosen.switch()
        running = [each for each in running if not each.dead]
    for each in running:
        attempts.end(each)
    world.on_step = lambda event: None
    rows = read(world, plan)
    assert all(each == rows for each in attempts.rows)
    assert not [body for body, count in Counter(told(rows)).items() if count > 1]
    for group in "abc":
        mine = [row.sequence for row in rows if row.group == group]
        assert mine == sorted(mine)
    finish(query, rows)


def durable_when_deleted(world: World) -> None:
    """Say when something is deleted that no link serves, and that is not committed."""

    def look(event: object) -> None:
        kind, message_id = event.kind, event.message_id  # type: ignore[attr-defined]
        if kind != "deleted" or not world.is_ours:
            return
        served = {
            receipt.message_id
            for name in world.store.under("epochs/")
            for receipt in decode(world.store.objects[name], name).head.receipts
            if not receipt.deferred
        }
        committed = {row.message_id for batch in world.committed for rows in world.sink[batch].values() for row in rows}
        assert message_id in served | committed

    world.model.on_event(look)


def test_what_another_attempt_puts_counts_towards_the_limit(world: World) -> None:
    """Who has lost a link receives no more than is left; only what it had caught by then may be too much."""
    query, plan = begin(world, "a1", "a2", "a3")
    plan = replace(plan, max_messages=20)
    attempts = Attempts(world)
    loser = attempts.begin(plan)
    attempts.go_on(loser, "before put epochs/")
    world.send(*(f"b{number}" for number in range(40)))
    winner = attempts.begin(plan)
    attempts.go_on(winner, "before DeleteMessageBatch")
    attempts.kill(winner)
    attempts.end(loser)
    assert len(attempts.rows[0]) <= 20 + 3
    assert read(world, plan) == attempts.rows[0]
    finish(query, attempts.rows[0])


# What the driver catches


@in_both_modes
def test_what_the_probe_catches_is_durable_before_spark_logs_its_epoch(world: World) -> None:
    """The plan only names it: a task finds it in the journal, and a restart needs no other receive for it."""
    world.send("a1", "a2", "b1")
    query = Query(world)
    end = query.latest_offset(query.start_of(0))
    name = Journal.caught_name(end.epoch, end.plan)
    assert world.store.under("epochs/") == [name]
    head = decode(world.store.objects[name], name).head
    assert bodies(world, head) == [["a1", "a2", "b1"]]
    assert not head.origin.deletes, "no task has it yet"
    query.log(end)
    world.die()
    query = Query(world)
    (plan,) = query.plans(0)
    assert world.carried(plan) == {name: [receipt.message_id for receipt in head.receipts]}
    query.run(0)
    assert [event.kind for event in world.events].count("received") == 3
    query.drain()
    world.audit()


@in_both_modes
def test_what_was_caught_for_an_epoch_that_spark_never_logged_is_given_back(world: World) -> None:
    """No micro-batch has it: the next driver's are served what the queue gives, and nobody waits for a timeout."""
    world.send("x1")
    query = Query(world)
    assert query.trigger()
    while query.trigger():
        pass
    world.send("a1", "b1")
    end = query.latest_offset(world.offsets[-1])
    assert Journal.caught_name(end.epoch, end.plan) in world.store.objects
    world.die()
    began_at = world.clock.now()
    world.send("c1")
    query = Query(world).resume()
    while len(world.bodies()) < 4:
        assert query.trigger()
    assert world.clock.now() == began_at
    query.drain()
    world.audit()
    assert not world.store.under("epochs/")


# Closing against appending


@in_both_modes
def test_a_partition_that_nobody_read_is_closed_empty(world: World) -> None:
    """So no late attempt gives it rows; what was decided for it comes in the next micro-batch, received once."""
    query, plan = begin(world, "a1")
    query.to_sink(0, {})
    query.checkpoint.committed.add(0)
    end = query.latest_offset(query.start_of(1))
    (link,) = links(world)
    assert (link.chain.is_last, link.chain.served, link.receipts) == (True, 0, ())
    received = sum(event.kind == "received" for event in world.events)
    assert read(world, plan) == []
    assert sum(event.kind == "received" for event in world.events) == received
    query.log(end)
    query.startless.commit(query.offsets[0])
    query.run(1)
    assert [each for rows in world.sink[1].values() for each in told(rows)][:1] == ["z1"]
    query.drain()
    world.audit()
    assert [event.kind for event in world.events].count("received") == 2


def test_the_driver_closes_what_no_task_has_closed(world: World) -> None:
    """It says what the chain comes to, and names what may be in flight: the commit deletes that."""
    query, plan = begin(world, *(f"a{number}" for number in range(25)))
    crash_at(world, f"after put {SECOND_LINK}")
    with pytest.raises(Crash):
        read(world, plan)
    served = [row for head in bodies(world, *links(world)) for row in head]
    query.to_sink(0, {})
    query.checkpoint.committed.add(0)
    query.latest_offset(query.start_of(1))
    *_, tail, closing = links(world)
    assert (closing.receipts, closing.chain.is_last) == ((), True)
    assert closing.chain.served == len(served) == 21
    assert handles(closing.chain.unconfirmed) == handles(tail.in_flight())
    assert closing.origin.deletes
    assert told(read(world, plan)) == served
    world.sink[0] = {0: read(world, plan)}
    query.drain()
    world.audit()


@in_both_modes
def test_an_attempt_that_is_overtaken_by_the_close_appends_nothing(world: World) -> None:
    """It releases what it caught, and reads what all others read."""
    query, plan = begin(world, "a1")
    attempts = Attempts(world)
    late = attempts.begin(plan)
    attempts.go_on(late, "before put epochs/")
    query.to_sink(0, {})
    query.checkpoint.committed.add(0)
    end = query.latest_offset(query.start_of(1))
    attempts.end(late)
    (link,) = links(world)
    assert link.chain.is_last
    assert not link.receipts
    assert attempts.rows == [[]]
    assert world.depth() == (1, 1)
    query.log(end)
    query.startless.commit(query.offsets[0])
    query.run(1)
    query.drain()
    world.audit()


@in_both_modes
def test_the_close_finds_a_link_taken_and_follows_it(world: World) -> None:
    """A leftover was faster: its link is content, for the driver as for every read."""
    query, plan = begin(world, "a1")
    attempts = Attempts(world)
    late = attempts.begin(plan)
    attempts.go_on(late, "before put epochs/")
    query.to_sink(0, {})
    query.checkpoint.committed.add(0)

    def faster(event: str) -> None:
        if greenlet.getcurrent() is late:
            attempts._on_step(event)
        elif event.startswith(f"before put {FIRST_LINK}") and not late.dead:
            attempts.go_on(late, "after put")

    world.on_step = faster
    end = query.latest_offset(query.start_of(1))
    attempts.kill(late)
    chain = links(world)
    assert bodies(world, *chain)[0] == ["z1", "a1"]
    assert chain[-1].chain.is_last
    assert chain[-1].chain.served == 2
    world.sink[0] = {0: read(world, plan)}
    query.log(end)
    query.startless.commit(query.offsets[0])
    query.run(1)
    query.drain()
    world.audit()


@in_both_modes
def test_a_replay_reads_and_receives_nothing(world: World) -> None:
    """Its sink may have the rows by then, and without what no task had read: that stays for the next micro-batch."""
    query, _ = begin(world, "a1", "b1")
    crash_at(world, "-- batch 0 is in the sink")
    with pytest.raises(Crash):
        query.run(0)
    rows = world.sink.pop(0)
    world.send("c1", "d1")
    world.die()
    query = Query(world)
    received = sum(event.kind == "received" for event in world.events)
    query.run(0)
    assert sum(event.kind == "received" for event in world.events) == received
    assert world.sink[0] == rows
    query.drain()
    world.audit()


@in_both_modes
def test_a_replay_closes_the_partitions_that_nobody_has_sealed(make_world: Callable[..., World], world: World) -> None:
    """Empty, before it plans: a second attempt of the dead driver's tasks finds them closed."""
    world = make_world(numPartitions="3", deleteAfter=world.options.delete_after)
    world.send(*(f"{group}1" for group in "abcdefghij"))
    query = Query(world, reads=lambda batch, count: range(1) if batch == 0 else range(count))
    query.log(query.latest_offset(query.start_of(0)))
    old = query.plans(0)
    others = len(old) - 1
    assert others
    crash_at(world, "-- batch 0 is in the sink")
    with pytest.raises(Crash):
        query.run(0)
    rows = world.sink.pop(0)
    world.die()
    query = Query(world)
    plans = query.plans(0)
    assert all(links(world, partition=index)[-1].chain.is_last for index in range(len(old)))
    served = [any(link.receipts for link in links(world, partition=index)) for index in range(len(old))]
    assert served == [bool(rows[0])] + [False] * others
    world.send("z1")
    for plan in plans[1:]:
        assert read(world, plan) == []
    for plan in old[1:]:
        with pytest.raises(FencedError):
            read(world, plan)
    query.run(0)
    assert world.sink[0][0] == rows[0]
    query.drain()
    world.audit()


def test_a_replay_of_a_chain_without_its_last_link_serves_all_that_it_has(world: World) -> None:
    """The task died in the middle, with its driver; what it had deleted is only in the journal."""
    query, _ = begin(world, *(f"a{number}" for number in range(25)))
    crash_at(world, "after DeleteMessageBatch", 2)
    with pytest.raises(Crash):
        query.run(0)
    served = [body for each in bodies(world, *links(world)) for body in each]
    assert sorted(world.deleted()) == sorted(served)
    world.die(down_s=LAPSE_S)
    query = Query(world)
    query.run(0)
    assert told(world.sink[0][0]) == served
    query.drain()
    world.audit()


# Deleting what is sealed


def test_a_task_deletes_only_what_is_sealed(world: World) -> None:
    """Law 1 where the journal alone has it: no delete before its link, whatever the order of the calls."""
    query, plan = begin(world, *(f"{'ab'[number % 2]}{number}" for number in range(40)))
    durable_when_deleted(world)
    rows = read(world, plan)
    assert len(world.deleted()) == len(rows) == 41
    finish(query, rows)


@pytest.mark.parametrize("link", [FIRST_LINK, SECOND_LINK])
def test_a_task_whose_driver_owns_the_journal_no_more_deletes_nothing(world: World, link: str) -> None:
    """The newer driver knows of what was put before its claim; of this link it may know nothing."""
    _, plan = begin(world, *(f"a{number}" for number in range(25)))
    deleted: list[str] = []

    def rival() -> None:
        deleted.extend(world.deleted())
        Query(world).driver.initial_offset()

    do_at(world, f"after put {link}", rival)
    with pytest.raises(FencedError) as said:
        read(world, plan)
    assert "\n" not in str(said.value)
    assert world.deleted() == deleted
    assert len(deleted) == (0 if link is FIRST_LINK else 11)
    with pytest.raises(FencedError):
        read(world, plan)  # Spark tries again
    assert world.deleted() == deleted


def test_a_fenced_task_s_messages_come_to_the_newer_driver(world: World) -> None:
    """It replays what the older one's tasks have put, and closes that, before anything is lost or doubled."""
    query, plan = begin(world, *(f"a{number}" for number in range(25)))
    newer: list[Query] = []

    def rival() -> None:
        HandHeartbeat.live.remove(query.driver._heartbeat)  # type: ignore[arg-type]
        newer.append(Query(world))
        newer[0].plans(0)

    do_at(world, f"after put {SECOND_LINK}", rival)
    with pytest.raises(FencedError):
        read(world, plan)
    newer[0].resume().drain()
    world.audit()


def test_where_the_commit_deletes_no_task_asks_who_owns_the_journal(make_world: Callable[..., World]) -> None:
    """It has nothing to delete, and a list costs on an object store."""
    world = make_world(numPartitions="1")
    query, plan = begin(world, "a1")
    before = len(world.trace)
    read(world, plan)
    asked = [event for _, _, event in world.trace[before:] if "drivers" in event]
    query.plans(0)
    assert not asked


def test_a_link_names_what_of_those_before_it_is_not_confirmed(world: World) -> None:
    """As its deletes had no answer in time; they are tried again with the next link's."""
    world.options = replace(world.options, max_fetch_s=60)
    query, plan = begin(world, *(f"{'ab'[number % 2]}{number}" for number in range(30)))
    passes_at, is_first = world.clock.now() + world.options.heartbeat_s, True

    def failing(action: str) -> frozenset[int]:
        nonlocal is_first
        if "Delete" not in action or world.clock.now() >= passes_at:
            return frozenset()
        was_first, is_first = is_first, False
        return frozenset({0, 1}) if was_first or len(world.deleted()) > 10 else frozenset()

    world.failing_entries = failing
    rows = read(world, plan)
    heads = links(world)
    named = [heads[0].in_flight(), *(head.chain.unconfirmed for head in heads[1:])]
    assert 0 < len(named[1]) < len(named[0])
    assert set(named[1]) < set(named[0])
    assert not named[-1], "the second try"
    assert len(heads) > 2
    assert len(world.deleted()) == len(rows)
    finish(query, rows)


@pytest.mark.parametrize("limits", [{"max_messages": 15}, {"max_bytes": 70}, {}])
def test_each_message_is_deleted_once_and_the_end_of_the_chain_is_empty(world: World, limits: dict[str, int]) -> None:
    """Whatever ends the chain: what the last link served, a task could delete, and tell nobody."""
    query, plan = begin(world, *(f"a{1000 + number}" for number in range(25)))
    calls, call = Counter[str](), world._call_model

    def counted(action: str, request: dict[str, Any]) -> dict[str, Any]:
        if action == "DeleteMessageBatch":
            calls.update(entry["ReceiptHandle"] for entry in request["Entries"])
        return call(action, request)

    world._call_model = counted  # type: ignore[method-assign]
    rows = read(world, replace(plan, **limits))  # type: ignore[arg-type]
    *others, end = links(world)
    assert end.chain.is_last
    assert not end.in_flight()
    assert all(head.receipts for head in others)
    assert len(world.deleted()) == len(rows)
    finish(query, rows)
    assert set(calls.values()) == {1}


def test_a_chain_that_ends_at_its_limit_leaves_what_follows_in_its_groups_to_the_next(
    make_world: Callable[..., World],
) -> None:
    """Tasks that run one after the other share one group, up to the limit of all of them."""
    world = make_world(deleteAfter="journal", numPartitions="2", maxMessagesPerTrigger="40")
    query, plan = begin(world)
    world.send(*(f"a{number}" for number in range(100)))
    plans = [replace(plan, partitions=2, partition=index, max_messages=20, deal=b"") for index in range(2)]
    counts = [len(read(world, each)) for each in plans]
    assert counts == [20, 20]
    assert world.depth() == (60, 1), "only what the probe has caught is held"
    del query


@in_both_modes
def test_a_later_message_of_its_group_shows_that_a_refused_one_is_gone(world: World) -> None:
    """Somebody else has taken it away; the ledger forgets it once what follows it was received, in whatever link."""
    query, plan = begin(world, "a1")
    taken: list[dict[str, Any]] = []

    def take() -> None:
        world.clock.advance(LAPSE_S)
        taken.extend(world.receive_elsewhere(10, 10 * VISIBILITY_S))

    do_at(world, f"after put {FIRST_LINK}", take)
    rows = read(world, plan)
    query.to_sink(0, {0: rows})
    query.checkpoint.committed.add(0)
    while query.trigger():
        pass
    assert taken
    for each in taken:
        world.model.call("DeleteMessage", {"QueueUrl": world.url, "ReceiptHandle": each["ReceiptHandle"]})
    left = world.journal().ledger().unconfirmed.values()
    assert "a" in {entry.message_group_id for entry in left if entry.receipt is None}
    world.send(*(f"{group}{number}" for number in range(2, 30) for group in "az"))
    query.drain()
    world.audit()


def test_what_somebody_else_has_got_hold_of_is_named_by_each_later_link(world: World) -> None:
    """SQS refuses its handle, and what follows it in its group stays locked; nothing else waits for that."""
    query, plan = begin(world, "c1", "c2", *(f"a{number}" for number in range(25)))

    def stolen() -> None:
        (first,) = links(world)
        (c1,) = (each for each in first.receipts if each.message_id == message_id)
        request = {"QueueUrl": world.url, "ReceiptHandle": c1.receipt_handle, "VisibilityTimeout": 0}
        world.model.call("ChangeMessageVisibility", request)
        assert [each["Body"] for each in world.receive_elsewhere(1)] == ["c1"]

    (message_id,) = (row.message_id for row in world.sent if row.body == "c1")
    do_at(world, f"after put {FIRST_LINK}", stolen)
    rows = read(world, plan)
    _, *later = links(world)
    assert len(later) >= 2
    assert [[each.message_id for each in head.chain.unconfirmed] for head in later] == [[message_id]] * len(later)
    assert sorted(world.deleted()) == sorted(set(told(rows)) - {"c1"})
    finish(query, rows)


@pytest.mark.parametrize("elapsed_s", [0, LAPSE_S])
def test_what_no_task_could_delete_the_commit_deletes(world: World, elapsed_s: float) -> None:
    """Each later link names it, so the last one knows of all; with its handle, or with a newer one."""
    query, plan = begin(world, *(f"{'ab'[number % 2]}{number}" for number in range(15)))
    world.fault = lambda action: "refused" if "Delete" in action else ""
    rows = read(world, plan)
    world.fault = lambda action: ""
    assert not world.deleted()
    world.clock.advance(elapsed_s)
    finish(query, rows)
    assert len(world.deleted()) == len(rows) + sum(map(len, list(world.rows())[1:]))


def test_who_takes_a_chain_over_deletes_its_tail_first(world: World) -> None:
    """The dead attempt may have sealed it and not deleted it: nothing of its groups comes before that."""
    query, plan = begin(world, *(f"a{number}" for number in range(25)))
    crash_at(world, "before DeleteMessageBatch")
    with pytest.raises(Crash):
        read(world, plan)
    assert not world.deleted()
    steps: list[str] = []
    world.on_step = steps.append
    rows = read(world, plan)
    calls = [step for step in steps if step.startswith(("before DeleteMessageBatch", "before ReceiveMessage"))]
    assert calls[0] == "before DeleteMessageBatch"
    assert told(rows) == ["z1", *(f"a{number}" for number in range(25))]
    assert not links(world)[1].chain.unconfirmed
    finish(query, rows)


def test_what_an_attempt_deletes_twice_is_no_fault(world: World) -> None:
    """It died after its delete, and the next one does not know."""
    query, plan = begin(world, *(f"a{number}" for number in range(25)))
    crash_at(world, "after DeleteMessageBatch")
    with pytest.raises(Crash):
        read(world, plan)
    rows = read(world, plan)
    assert Counter(world.deleted()) == Counter(told(rows))
    assert not any(head.chain.unconfirmed for head in links(world))
    finish(query, rows)


def test_a_sealed_message_that_comes_again_is_deleted_with_its_newer_handle(world: World) -> None:
    """Its hold was lost between put and delete: the attempt that gets it again serves it once, and deletes it."""
    query, plan = begin(world, "a1", "a2", "b1")
    do_at(world, f"after put {FIRST_LINK}", lambda: world.clock.advance(LAPSE_S))
    world.options = replace(world.options, max_fetch_s=3 * LAPSE_S)
    rows = read(world, plan)
    assert sorted(told(rows)) == ["a1", "a2", "b1", "z1"]
    assert sorted(world.deleted()) == ["a1", "a2", "b1", "z1"]
    assert not any(receipt.deferred for head in links(world) for receipt in head.receipts)
    named = {receipt.message_id: receipt.receive_count for receipt in links(world)[1].chain.unconfirmed}
    assert set(named.values()) == {2}
    assert not links(world)[-1].in_flight() or links(world)[-1].receipts
    finish(query, rows)


def test_a_decided_message_that_comes_again_before_it_is_sealed_keeps_its_newer_handle(world: World) -> None:
    """Our hold on what the probe caught was lost: the task has it twice, and seals it once."""
    query, plan = begin(world)
    world.clock.advance(LAPSE_S)
    rows = read(world, plan)
    assert told(rows) == ["z1"]
    (receipt, *_) = links(world)[0].receipts
    assert (receipt.receive_count, receipt.deferred) == (2, False)
    assert world.deleted() == ["z1"]
    finish(query, rows)


def test_what_the_probe_caught_frees_its_group_in_the_same_micro_batch(world: World) -> None:
    """It is sealed and deleted like what a task received itself."""
    query, plan = begin(world, "z2", "z3", "a1")
    rows = read(world, plan)
    assert told(rows) == ["z1", "a1", "z2", "z3"]
    finish(query, rows)


def test_a_single_group_of_500_takes_a_few_micro_batches(world: World) -> None:
    """Not fifty: ten messages a link, and as many links as there are. The last one waits for what may follow it."""
    world.send(*(f"a{number}" for number in range(500)))
    query = Query(world)
    began_at = world.clock.now()
    while len(world.bodies()) < 500:
        assert query.trigger()
    assert world.clock.now() - began_at <= 1
    assert len(world.sink) < 10
    query.drain()
    world.audit()


def test_a_hot_group_costs_hardly_more_receives_than_it_has_answers(world: World) -> None:
    """While a link is received its group is locked, and is not asked for again each time."""
    query, plan = begin(world, *(f"a{number}" for number in range(400)))
    rows = read(world, replace(plan, max_messages=500))
    assert len(rows) == 401
    asked = sum(event == "before ReceiveMessage" for _, _, event in world.trace)
    assert asked < 1.2 * len(links(world)) + 3
    finish(query, rows)


def test_when_a_query_is_over_the_driver_holds_what_the_last_link_left(world: World) -> None:
    """It could not be deleted, and the task's heartbeat has ended."""
    _, plan = begin(world, "a1", "b1")
    world.fault = lambda action: "refused" if "Delete" in action else ""
    read(world, plan)
    for heartbeat in HandHeartbeat.live:
        heartbeat.beat()
    for _ in range(3 * VISIBILITY_S):
        world.pass_time(1)
        assert not world.receive_elsewhere()


def test_a_driver_renews_nothing_that_a_task_has_deleted_and_calls_it_no_loss(world: World) -> None:
    """It finds the link before the delete, and learns of that at its next renewal."""
    query, plan = begin(world, "a1", "b1")
    do_at(world, f"after put {FIRST_LINK}", lambda: world.pass_time(1))
    rows = read(world, plan)
    world.pass_time(3 * VISIBILITY_S)
    assert query.driver.report()["lostLeases"] == 0
    renewed = sum("before ChangeMessageVisibilityBatch" in event for _, _, event in world.trace)
    world.pass_time(3 * VISIBILITY_S)
    assert sum("before ChangeMessageVisibilityBatch" in event for _, _, event in world.trace) == renewed
    finish(query, rows)


def test_a_first_epoch_gets_as_many_partitions_as_its_messages_are_worth(make_world: Callable[..., World]) -> None:
    """Nobody knows yet of how many groups they are: an AvailableNow query may have no other epoch."""
    world = make_world(numPartitions="8", deleteAfter="journal")
    world.send(*(f"{string.ascii_letters[number % 50]}{number}" for number in range(40)))
    Query(world).drain()
    assert world.offsets[0].partitions == 8
    world.audit()


def test_a_few_hot_groups_are_not_given_many_partitions(make_world: Callable[..., World]) -> None:
    """However many messages wait: each partition's share is the larger, and no task finds nothing."""
    world = make_world(numPartitions="8", deleteAfter="journal")
    world.send(*(f"{'ab'[number % 2]}{number}" for number in range(400)))
    query = Query(world)
    while query.trigger():
        pass
    assert max(offset.partitions for offset in world.offsets[1:]) <= 4
    world.audit()


def test_what_is_carried_and_gone_from_the_journal_stops_the_query(world: World) -> None:
    """It may be all that there was of it: one line names it, and nothing goes on without it."""
    query, plan = begin(world, *(f"a{number}" for number in range(25)))
    read(world, plan)
    world.die()
    world.checkpoint = Checkpoint()
    query = Query(world)
    query.log(query.latest_offset(query.start_of(0)))
    name = world.store.under(FIRST_LINK)[0]
    world.store.objects.pop(name)
    with pytest.raises(JournalUnavailableError, match=name) as said:
        query.plans(0)
    assert "\n" not in str(said.value)


# The option may change from run to run


@pytest.mark.parametrize("elapsed_s", [0, LAPSE_S])
@pytest.mark.parametrize("modes", [MODES, MODES[::-1]], ids="-".join)
def test_a_restart_may_delete_at_another_time(
    make_world: Callable[..., World], modes: tuple[str, str], elapsed_s: float
) -> None:
    """After a crash at any step: what stands in the journal says how it was put."""
    at = 0
    while True:
        at += 1
        world = make_world(numPartitions="2", maxMessagesPerTrigger="6", deleteAfter=modes[0])
        crash_at(world, "", at)
        try:
            world.send("a1", "a2", "b1", "a3", "c1", "b2", "d1", "d2")
            Query(world).drain()
        except Crash as crash:
            world.die(down_s=elapsed_s)
            world.options = replace(world.options, delete_after=modes[1])
            try:
                Query(world).resume().drain()
                world.options = replace(world.options, delete_after="journal")  # a group may have been in two places
                world.audit()
            except Exception as error:
                raise AssertionError(f"after a crash at step {at}, '{crash}': {error}") from error
        else:
            break
    assert at > 50


def test_what_the_probe_caught_and_a_task_deleted_is_no_lost_lease(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver has held it since its receive, and finds it in a link later."""
    query, plan = begin(world)
    rows = read(world, plan)
    assert world.deleted() == ["z1"]
    world.pass_time(3 * VISIBILITY_S)
    assert "lost the lease" not in caplog.text
    assert query.driver.report()["lostLeases"] == 0
    finish(query, rows)


# A new query on an old journal


@pytest.mark.parametrize("elapsed_s", [0, LAPSE_S])
@pytest.mark.parametrize(
    "point",
    [
        f"after put {FIRST_LINK}",
        "after DeleteMessageBatch",
        f"after put {SECOND_LINK}",
        "-- batch 0 is read",
    ],
)
def test_a_new_query_carries_what_the_tasks_of_an_old_one_may_have_deleted(
    world: World, point: str, elapsed_s: float
) -> None:
    """The checkpoint is gone, and only the journal has it: it is served once, in order, and then settled."""
    query, _ = begin(world, *(f"{'aab'[number % 3]}{number}" for number in range(30)))
    crash_at(world, point)
    with pytest.raises(Crash):
        query.run(0)
    assert len(links(world)) > (point != f"after put {FIRST_LINK}" and point != "after DeleteMessageBatch")
    world.die(down_s=elapsed_s)
    world.checkpoint = Checkpoint()
    query = Query(world)
    while query.trigger() or world.depth() != (0, 0):
        pass
    query.drain()
    world.audit()
    assert told(next(world.rows()))[:1] == ["z1"]


def test_what_an_old_querys_tasks_deferred_is_released_to_the_queue(world: World) -> None:
    """Nobody has deleted that: it comes from there, at once."""
    query, plan = begin(world, "a1")
    world.receive_elsewhere(10, 1)
    world.clock.advance(2)
    assert told(read(world, plan)) == ["z1"]
    world.die()
    world.checkpoint = Checkpoint()
    query = Query(world)
    query.latest_offset(query.start_of(0))
    assert world.depth() == (1, 0)
    query.drain()
    world.audit()


def test_what_is_carried_for_a_new_query_outlives_its_drivers(world: World) -> None:
    """Until its first commit no ledger says so; each driver finds it again in the journal."""
    _query, plan = begin(world, *(f"a{number}" for number in range(25)))
    read(world, plan)
    world.die()
    world.checkpoint = Checkpoint()
    points = ["-- batch 0 is planned", "-- batch 0 is in the sink"]
    ledgers = ["before put ledger/", "after put ledger/"]  # first the one that it has found, then its own
    for point, occurrence in [*((each, 1) for each in (*points, *ledgers)), *((each, 2) for each in ledgers)]:
        crash_at(world, point, occurrence)
        with pytest.raises(Crash):
            Query(world).resume().drain()
        world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    world.audit()


def test_a_leftover_of_a_new_querys_predecessor_deletes_nothing_that_is_not_carried(world: World) -> None:
    """What it puts after the new driver's claim is no content, so it must not delete that."""
    _, plan = begin(world, "a1", "b1")
    attempts = Attempts(world)
    leftover = attempts.begin(plan)
    attempts.go_on(leftover, "before put epochs/")
    HandHeartbeat.live.clear()
    world.checkpoint = Checkpoint()
    query = Query(world)
    end = query.latest_offset(query.start_of(0))
    with pytest.raises((FencedError, EpochSettledError)):
        attempts.end(leftover)
    world.on_step = lambda event: None
    assert not world.deleted()
    if end != query.start_of(0):
        query.log(end)
        query.run(0)
    world.pass_time(LAPSE_S)
    query.drain()
    world.audit()


def begin_late(world: World) -> tuple[Query, Attempts, greenlet]:
    """Return a query, and an attempt of its first task that has received b1 and not put it; b1 came after the plan."""
    world.send("a1")
    query = Query(world)
    query.log(query.latest_offset(query.start_of(0)))
    (plan,) = query.plans(0)
    world.send("b1")
    attempts = Attempts(world)
    late = attempts.begin(plan)
    attempts.go_on(late, "before put epochs/")
    return query, attempts, late


@in_both_modes
@pytest.mark.parametrize("settled", [1, 2, 3])
def test_a_leftover_releases_what_it_received_however_late_it_comes(world: World, settled: int) -> None:
    """Its link's name is free again once its epoch is dropped, so its put succeeds, and counts for nothing."""
    query, attempts, late = begin_late(world)
    query.run(0)  # another attempt serves the epoch
    for number in range(settled):
        world.send(f"c{number}")
        assert query.trigger()
    assert world.journal().ledger().epoch == settled
    assert free(world) == set()
    with pytest.raises(EpochSettledError):
        attempts.end(late)
    assert free(world) == {"b1"}
    world.on_step = lambda event: None
    query.drain()
    world.audit()


@pytest.mark.parametrize("mode", MODES)
def test_a_driver_that_closes_what_another_has_settled_is_told_that_it_is_fenced(
    make_world: Callable[..., World], mode: str
) -> None:
    """Not that its own micro-batch's rows cannot be read any more: nobody reads any."""
    world = make_world(deleteAfter=mode)
    world.send("a1")
    query = Query(world, reads=lambda batch, count: None)
    assert query.trigger()
    world.send("b1")

    def go_on_elsewhere() -> None:
        Query(world).resume().drain()

    do_at(world, "before put epochs/", go_on_elsewhere)
    with pytest.raises(FencedError, match="another query or an operator took over the journal"):
        query.trigger()
    world.audit()


@pytest.mark.parametrize("link", [0, 1])
@pytest.mark.parametrize("is_restart", [True, False])
def test_a_chain_that_lacks_a_link_is_not_mended(world: World, link: int, is_restart: bool) -> None:
    """Somebody has removed it. A task would receive, and serve other messages in its place; the rest stays as it is."""
    world.send(*(f"a{number}" for number in range(35)))
    crash_at(world, "-- batch 0 is in the sink")
    with pytest.raises(Crash):
        Query(world).drain()
    query = Query(world)
    if is_restart:
        world.die(down_s=LAPSE_S)
    else:
        query.resume()
    prefix = f"epochs/00000000000000000001/0000-{link:06d}"
    (gone,) = world.store.under(prefix)
    world.store.objects.pop(gone)
    world.send("b1")
    left = world.store.under("epochs/")
    with pytest.raises(JournalUnavailableError, match=f"'{gone}' vanished") as told:
        query.resume() if is_restart else query.trigger()
    assert "\n" not in str(told.value)
    assert world.store.under("epochs/") == left
    assert [each["Body"] for each in world.receive_elsewhere()] == ["b1"]


# What is received and sealed by nobody


def free(world: World) -> set[str]:
    """Return the bodies of what a receive would bring, were there no groups."""
    bodies = {row.message_id: row.body for row in world.sent}
    return {bodies[each] for each in world.free()}


@in_both_modes
def test_what_was_received_behind_a_copy_that_lapsed_is_released(world: World) -> None:
    """The group may be somebody else's by now, so nothing of it is sealed; but nobody waits for a timeout either."""
    world.send("a1")
    query = Query(world)
    query.log(query.latest_offset(query.start_of(0)))
    world.fault = lambda action: "refused" if "Delete" in action else ""
    query.run(0)
    world.send("a2", "b1")
    query.log(query.latest_offset(query.start_of(1)))
    query.startless.commit(query.offsets[0])
    world.fault = lambda action: ""
    assert len(world.journal().ledger().unconfirmed) == 1
    (plan,) = query.plans(1)
    world.clock.advance(LAPSE_S)
    # The task stands still before it deletes a1, and then receives all of it again.
    do_at(world, "before DeleteMessageBatch", lambda: world.clock.advance(LAPSE_S))
    began = len(world.trace)
    rows = read(world, plan)
    receives = [event for _, _, event in world.trace[began:] if event.startswith("before ReceiveMessage")]
    assert len(receives) < 10, "it releases what it then receives again"
    assert "a1" in world.deleted()
    query.to_sink(1, {0: rows})
    query.checkpoint.committed.add(1)
    query.drain()
    world.audit()


@in_both_modes
@pytest.mark.parametrize("what", ["the ledger cannot be read", "the next receive is refused"])
def test_a_task_that_fails_while_it_receives_releases_what_it_has(world: World, what: str) -> None:
    """Nothing of it can be sealed yet."""
    _, plan = begin(world, "a1", "a2")
    world.receive_elsewhere(10, 1)
    world.clock.advance(2)  # the task has to look whether they are copies

    def fail() -> None:
        if "ledger" in what:
            world.store.fails = lambda call: True
        else:
            world.fault = lambda action: "denied" if action == "ReceiveMessage" else ""

    do_at(world, "after ReceiveMessage", fail)
    with pytest.raises(SqsFifoError):
        read(world, plan)
    assert free(world) == {"a1", "a2"}


def test_a_delete_whose_answer_was_lost_is_no_lost_lease(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """What the task renews then is gone, because the task has deleted it."""
    _, plan = begin(world, *(f"a{number}" for number in range(25)))
    world.fault = lambda action: "lost" if action == "DeleteMessageBatch" else ""

    def renew() -> None:
        world.fault = lambda action: ""
        world.pass_time(1)

    do_at(world, f"after put {SECOND_LINK}", renew)
    read(world, plan)
    assert world.deleted()
    assert "lost the lease" not in caplog.text
