"""Several attempts at one partition make one chain, and all of them read the same."""

from __future__ import annotations

import gc
import random
from collections import Counter
from contextlib import closing
from dataclasses import replace

import pytest

from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.message import Message
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.task.demand import LINK_BYTES
from sqs_fifo_spark.source.task.partition import serve
from tests.simulation.hub import Crash
from tests.simulation.world import LAPSE_S, VISIBILITY_S, Row
from tests.unit.by_hand import MODES, HandHeartbeat, MakeWorld, World, in_both_modes
from tests.unit.source.attempts import (
    FIRST_LINK,
    SECOND_LINK,
    Attempts,
    begin,
    bodies,
    durable_when_deleted,
    handles,
    links,
    told,
)

pytestmark = pytest.mark.law("source-3")

OPTIONS = {"numPartitions": "1", "deleteAfter": "journal"}


@pytest.mark.parametrize("elapsed_s", [0, LAPSE_S])
def test_an_attempt_killed_at_any_step_changes_nothing_of_what_is_read(make_world: MakeWorld, elapsed_s: float) -> None:
    """Its links stay, the next attempt goes on, and all that come later read the same."""
    at = 0
    while True:
        at += 1
        world = make_world(numPartitions="1", deleteAfter="journal")
        query, plan = begin(world, *(f"{'aab'[number % 3]}{number}" for number in range(30)))
        world.crash_at("", at)
        try:
            world.read(plan)
        except Crash:
            del HandHeartbeat.live[1:]  # the driver's alone survives
            world.clock.advance(elapsed_s)
        else:
            break
        rows = world.read(plan)
        assert world.read(plan) == rows
        query.finish(rows)
    assert at > 25


def test_who_finds_a_link_taken_puts_what_it_caught_into_the_next(world: World) -> None:
    """It serves the winner's link first, and both read the whole chain."""
    query, plan = begin(world, "a1", "a2")
    attempts = Attempts(world)
    loser = attempts.begin(plan, "before put epochs/")  # it has received a1 and a2
    world.send("b1", "b2")
    winner = attempts.begin(plan, "before DeleteMessageBatch")
    attempts.end(loser, winner)
    first, second, *rest = links(world)
    assert bodies(world, first, second) == [["z1", "b1", "b2"], ["a1", "a2"]]
    assert first.origin.writer != second.origin.writer
    assert not any(each.receipts for each in rest)
    assert told(attempts.agreed()) == ["z1", "b1", "b2", "a1", "a2"]
    query.finish(attempts.rows[0])


def test_who_has_lost_several_links_names_what_the_last_of_them_leaves(world: World) -> None:
    """Earlier links' messages are deleted by then, or that link names them."""
    query, plan = begin(world, "a1", "a2")
    attempts = Attempts(world)
    loser = attempts.begin(plan, "before put epochs/")
    world.send(*(f"b{number}" for number in range(15)))
    winner = attempts.begin(plan, f"after put {SECOND_LINK}")
    attempts.go_on(loser, "before DeleteMessageBatch")  # it is about to delete what it has put
    first, second, third = links(world)
    assert first.origin.writer == second.origin.writer != third.origin.writer
    assert len(first.receipts) == 11
    assert handles(third.chain.unconfirmed) == handles(second.receipts)
    attempts.end(loser, winner)
    assert attempts.rows[0] == attempts.rows[1]
    query.finish(attempts.rows[0])


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
    rows = world.read(plan)
    assert told(rows)[: len(seen)] == seen
    assert len(rows) == 46
    query.finish(rows)


def test_what_a_losing_attempt_caught_is_held_until_it_is_deleted(world: World) -> None:
    """By its own heartbeat, and by the driver's when it has died after its put."""
    _, plan = begin(world, "a1", "a2")
    attempts = Attempts(world)
    loser = attempts.begin(plan, "before put epochs/")
    world.send("b1")
    winner = attempts.begin(plan, "before DeleteMessageBatch")
    attempts.go_on(loser, f"after put {SECOND_LINK}")
    world.require_held(2 * VISIBILITY_S)
    for attempt in (winner, loser):
        attempts.kill(attempt)
    del HandHeartbeat.live[1:]
    world.require_held(4 * VISIBILITY_S)


@in_both_modes
def test_what_is_caught_after_the_last_link_is_released_at_once(world: World) -> None:
    """Nothing is appended any more; the attempt serves what is there."""
    query, plan = begin(world, "a1", "b1")
    attempts = Attempts(world)
    loser = attempts.begin(plan, "before put epochs/")
    winner = attempts.begin(plan)
    attempts.end(winner)
    count = len(links(world))
    assert links(world)[-1].chain.is_last
    attempts.end(loser)
    assert len(links(world)) == count
    assert told(attempts.agreed()) == ["z1"]
    assert world.depth()[0] == 2
    assert {each["Body"] for each in world.receive_elsewhere(visibility_timeout_s=1)} == {"a1", "b1"}
    world.clock.advance(2)
    query.finish(attempts.rows[0])


@pytest.mark.slow
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
    rows = world.read(plan)
    assert told(rows) == ["z1", "a1"]
    query.finish(rows)


@in_both_modes
@pytest.mark.parametrize("link_bytes", [1, LINK_BYTES])
def test_it_is_released_before_spark_gets_the_rows(
    world: World, monkeypatch: pytest.MonkeyPatch, link_bytes: int
) -> None:
    """However many they are: Spark may take hours over them, and the attempt's heartbeat would hold it as long."""
    monkeypatch.setattr("sqs_fifo_spark.source.task.attempt.LINK_BYTES", link_bytes)
    query, plan = begin(world, "a1", "b1")
    rows: list[Row] = []
    world.do_at("before put epochs/", lambda: rows.extend(world.read(plan)))
    queue, journal = Queue(world.options, world.clock), Journal(world.store, plan.journal)
    with closing(serve(plan, queue, journal, world.options, world.clock)) as reading:
        assert next(reading).column("body").to_pylist() == told(rows) == ["z1"]
        assert world.depth()[0] == 2
    query.finish(rows)


@in_both_modes
def test_what_the_chain_has_and_was_caught_again_after_the_last_link_is_released_too(world: World) -> None:
    """It is served with a handle that works no more, and hides what follows it in its group."""
    query, plan = begin(world)
    world.clock.advance(LAPSE_S)  # nobody holds z1 any more
    world.send("z2")
    attempts = Attempts(world)
    loser = attempts.begin(plan, "before put epochs/")
    winner = attempts.begin(plan)
    attempts.end(winner)
    assert links(world)[-1].chain.is_last
    attempts.end(loser)
    assert told(attempts.agreed()) == ["z1"]
    assert world.depth() == (2, 0)
    query.finish(attempts.rows[0])


def test_what_follows_a_message_that_the_winner_deferred_is_deferred(world: World) -> None:
    """In whatever link of the chain, and whoever received it: else the micro-batch after would serve it too late."""
    _query, plan = begin(world, "a1")
    world.receive_elsewhere(10, 1)
    world.clock.advance(2)
    attempts = Attempts(world)
    winner = attempts.begin(plan, "before put epochs/")  # it defers a1, which somebody received before
    world.clock.advance(LAPSE_S)
    world.delete_elsewhere()
    world.send("a2")
    loser = attempts.begin(plan, "before put epochs/")
    attempts.go_on(winner, f"after put {FIRST_LINK}")
    attempts.end(loser, winner)
    first, second, *_ = links(world)
    assert [receipt.deferred for receipt in (*first.receipts, *second.receipts)] == [False, True, True]
    assert bodies(world, first, second) == [["z1", "a1"], ["a2"]]
    assert told(attempts.agreed()) == ["z1"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(25))
def test_any_number_of_attempts_at_once_make_one_chain(make_world: MakeWorld, seed: int, mode: str) -> None:
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
    rows = world.read(plan)
    assert all(each == rows for each in attempts.rows)
    assert not [body for body, count in Counter(told(rows)).items() if count > 1]
    for group in "abc":
        mine = [row.sequence for row in rows if row.group == group]
        assert mine == sorted(mine)
    query.finish(rows)


def test_a_sealed_message_that_comes_again_is_deleted_with_its_newer_handle(world: World) -> None:
    """Its hold was lost between put and delete: the attempt that gets it again serves it once, and deletes it."""
    query, plan = begin(world, "a1", "a2", "b1")
    world.do_at(f"after put {FIRST_LINK}", lambda: world.clock.advance(LAPSE_S))
    world.options = replace(world.options, max_fetch_s=3 * LAPSE_S)
    rows = world.read(plan)
    assert sorted(told(rows)) == ["a1", "a2", "b1", "z1"]
    assert sorted(world.deleted()) == ["a1", "a2", "b1", "z1"]
    assert not any(receipt.deferred for head in links(world) for receipt in head.receipts)
    named = {receipt.message_id: receipt.receive_count for receipt in links(world)[1].chain.unconfirmed}
    assert set(named.values()) == {2}
    assert not links(world)[-1].in_flight() or links(world)[-1].receipts
    query.finish(rows)


def test_a_decided_message_that_comes_again_before_it_is_sealed_keeps_its_newer_handle(world: World) -> None:
    """Our hold on what the probe caught was lost: the task has it twice, and seals it once."""
    query, plan = begin(world)
    world.clock.advance(LAPSE_S)
    rows = world.read(plan)
    assert told(rows) == ["z1"]
    (receipt, *_) = links(world)[0].receipts
    assert (receipt.receive_count, receipt.deferred) == (2, False)
    assert world.deleted() == ["z1"]
    query.finish(rows)
