"""A partition as a chain of links: what attempts append, what the driver closes, and what tasks delete."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from greenlet import greenlet

from sqs_fifo_spark.errors import EpochSettledError, FencedError
from sqs_fifo_spark.source.journal import Journal
from sqs_fifo_spark.source.partition import PartitionPlan
from sqs_fifo_spark.source.segment import Head, decode
from tests.simulation.hub import Crash
from tests.simulation.spark import Query, read
from tests.simulation.world import LAPSE_S, VISIBILITY_S, Checkpoint, Row
from tests.unit.by_hand import MODES, HandHeartbeat, World, crash_at, do_at, in_both_modes

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
    (plan,) = query.plans(0)
    world.send(*bodies)
    return query, replace(plan, max_messages=100)


def finish(query: Query, rows: list[Row]) -> None:
    """Let Spark commit the first micro-batch with these rows, and drain and audit what follows."""
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
            try:
                self.rows.append(read(self._world, plan))
            except Crash:
                pass

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
def test_the_order_of_links_is_that_of_numbers(
    world: World, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """However many there are."""
    monkeypatch.setattr("sqs_fifo_spark.source.receiving.LINK_MESSAGES", 1)
    query, plan = begin(world, *(f"a{number}" for number in range(count)))
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


@pytest.mark.parametrize("limit", [7, 36])
def test_an_attempt_that_goes_on_with_a_chain_keeps_its_limit(world: World, limit: int) -> None:
    """What the links before have served counts."""
    query, plan = begin(world, *(f"a{number}" for number in range(40)))
    plan = replace(plan, max_messages=limit)
    crash_at(world, "before DeleteMessageBatch")
    with pytest.raises(Crash):
        read(world, plan)
    rows = read(world, plan)
    assert len(rows) == limit
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


def test_what_follows_a_message_that_the_winner_deferred_is_deferred(world: World) -> None:
    """In whatever link of the chain, and whoever received it: else the micro-batch after would serve it too late."""
    query, plan = begin(world, "a1")
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
def test_any_number_of_attempts_at_once_make_one_chain(
    make_world: Callable[..., World], seed: int, mode: str
) -> None:
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
