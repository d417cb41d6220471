"""When an AvailableNow query ends while producers go on, and what an attempt that died still hides."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import Any

import pytest

from sqs_fifo_spark.errors import FencedError, TransientQueueError
from tests.simulation.world import LAPSE_S, VISIBILITY_S, Checkpoint
from tests.unit.by_hand import HandHeartbeat, MakeWorld, Query, World, in_both_modes, in_both_modes_with, with_options
from tests.unit.source.test_figures import count_calls

pytestmark = pytest.mark.law("source-6")


def lose_an_attempt(world: World, query: Query, batch: int) -> None:
    """Let an attempt of the batch's first task die with what it has received."""
    world.crash("before put epochs/", lambda: query.read(query.plans(batch)[0]))
    del HandHeartbeat.live[1:]


@pytest.mark.parametrize("seed", [2, 19])
def test_it_waits_for_what_an_attempt_of_its_own_held_when_it_died(make_world: MakeWorld, seed: int) -> None:
    """SQS hands out newer messages first, as many as had waited; the old one is in nobody's hands for a while."""
    world = make_world(seed, any_order=True, numPartitions="1")
    world.send("e1")
    query = Query(world, available_now=True)
    world.clock.advance(3)
    world.send(*(f"{group}1" for group in "nopqrstuvw"))
    query.log(query.latest_offset(query.start_of(0)))
    carried = {message_id for plan in query.plans(0) for ids in world.carried(plan).values() for message_id in ids}
    assert world.sent[0].message_id not in carried
    lose_an_attempt(world, query, 0)
    query.run(0)
    assert "e1" not in world.bodies()
    began_at = world.clock.now()
    query.play_out()
    assert "e1" in world.bodies()
    assert world.clock.now() - began_at < 2 * VISIBILITY_S
    world.audit()


@with_options(numPartitions="1")
def test_it_waits_as_long_after_a_micro_batch_of_old_messages(world: World) -> None:
    """An attempt of it died with the rest of them; all that comes then is newer."""
    world.send(*(f"{group}1" for group in "abcdefghijkl"))
    query = Query(world, available_now=True)
    query.log(query.latest_offset(query.start_of(0)))
    lose_an_attempt(world, query, 0)
    query.run(0)
    assert set(world.bodies()) < {row.body for row in world.sent}
    world.clock.advance(3)
    world.send(*(f"{group}1" for group in "nopqrs"))
    query.play_out()
    assert set(world.bodies()) == {row.body for row in world.sent}
    world.audit()


@in_both_modes
@pytest.mark.parametrize("goes_on", [False, True])
def test_it_waits_for_what_a_crashed_run_holds(world: World, goes_on: bool) -> None:
    """A task died between receive and seal, and the job is started again at once, perhaps while a producer goes on."""
    old = [f"{'abc'[index % 3]}{index}" for index in range(16)]
    world.send(*old)
    world.kill("before put epochs/", Query(world, available_now=True).trigger)
    query = Query(world, available_now=True)
    world.clock.advance(3 * goes_on)
    if goes_on:
        world.send("x1", "y1", "z1")
    query.resume()
    triggers = 0
    while query.trigger():
        triggers += 1
        if goes_on:
            world.pass_time(2)
            world.send(*(f"{'xyz'[index % 3]}{1000 * triggers + index}" for index in range(5)))
        assert triggers < 60
    assert set(old) <= set(world.bodies())
    if not goes_on:
        world.audit()


def test_something_else_in_flight_delays_the_end_once(world: World) -> None:
    """A message that another consumer holds on to is left for the next run."""
    world.send("e1")
    query = Query(world, available_now=True)
    query.resume()
    world.receive_elsewhere(1, 100 * VISIBILITY_S)
    world.clock.advance(3)
    began_at, batches = world.clock.now(), 0
    while world.clock.now() < began_at + 10 * VISIBILITY_S:
        world.send(f"n{batches}")
        if not query.trigger():
            break
        batches += 1
        world.clock.advance(5)
    assert VISIBILITY_S <= world.clock.now() - began_at < 2 * VISIBILITY_S
    assert "e1" not in world.bodies()


@in_both_modes_with(maxMessagesPerTrigger="3", numPartitions="1")
def test_what_it_holds_itself_does_not_delay_the_end(world: World) -> None:
    """Producers go on, and nobody else has anything in flight. Each micro-batch ends at its limit."""
    world.send("e1")
    query = Query(world, available_now=True).resume()
    world.clock.advance(3)
    began_at = world.clock.now()
    while world.clock.now() < began_at + 10 * VISIBILITY_S:
        world.send(*(f"n{len(world.sent) + number}" for number in range(3)))
        if not query.trigger():
            break
        world.clock.advance(5)
    assert "e1" in world.bodies()
    assert world.clock.now() - began_at < VISIBILITY_S


def test_counts_that_lag_behind_a_crash_end_no_run(world: World) -> None:
    """SQS's counts are approximate: what the driver before held is counted as waiting."""
    world.send(*(f"{group}1" for group in "abc"))
    dead = Query(world)
    dead.latest_offset(dead.start_of(0))
    world.die()
    call, began_at = world._call_model, world.clock.now()

    def lag(action: str, request: dict[str, Any]) -> dict[str, Any]:
        answer = call(action, request)
        told = answer.get("Attributes", {})
        if "ApproximateNumberOfMessages" in told and world.clock.now() < began_at + VISIBILITY_S:
            told |= {"ApproximateNumberOfMessages": "3", "ApproximateNumberOfMessagesNotVisible": "0"}
        return answer

    world._call_model = lag  # type: ignore[method-assign]
    query = Query(world, available_now=True)
    query.resume()
    query.play_out()
    assert sorted(world.bodies()) == ["a1", "b1", "c1"]
    world.audit()


def test_a_query_that_another_one_overtakes_in_its_last_poll_does_not_end_well(world: World) -> None:
    """That one has what had waited."""
    query = Query(world, available_now=True).resume()
    query.start_of(0)
    other = Query(world, checkpoint=Checkpoint())

    def take_over() -> None:
        world.send("a1")
        other.log(other.latest_offset(other.start_of(0)))

    world.do_at("before ReceiveMessage", take_over)
    with pytest.raises(FencedError):
        query.trigger()


@pytest.mark.parametrize("seed", [0, 1, 3])
@pytest.mark.parametrize("is_noted", [True, False])
def test_what_tasks_had_deleted_before_it_began_is_not_served_of_what_waited(
    make_world: MakeWorld, seed: int, is_noted: bool
) -> None:
    """A batch that runs again had not waited, so it cannot make up for what had, while there is always more."""
    world = make_world(seed, any_order=True, deleteAfter="journal", numPartitions="1", maxMessagesPerTrigger="50")
    world.send(*(f"p{number}" for number in range(1, 51)))
    world.kill("-- batch 0 is in the sink", Query(world).trigger)
    assert world.depth() == (0, 0)
    if is_noted:
        world.checkpoint.committed.add(0)
    world.options = replace(world.options, max_messages_per_trigger=10)
    world.send(*(f"o{number}" for number in range(1, 31)))
    query = Query(world, available_now=True)
    world.clock.advance(3)
    query.resume()
    for _ in range(30):
        world.send(*(f"n{len(world.sent) + number}" for number in range(15)))
        if not query.trigger():
            break
    served = [body for body in world.bodies() if body[0] in "on"]
    assert len(served) >= 30


@in_both_modes
def test_available_now_ends_while_a_producer_goes_on(world: World) -> None:
    """It ends with the first epoch in which every message was sent after the trigger began, and deletes that too."""
    world.send(*(f"{'abc'[index % 3]}{index}" for index in range(35)))
    query = Query(world, available_now=True)
    before = {row.body for row in world.sent}
    triggers = 0
    while query.trigger():
        triggers += 1
        world.clock.advance(2)
        world.send(*(f"{'abc'[index % 3]}{1000 * triggers + index}" for index in range(5)))
        assert triggers < 50
    assert before <= set(world.bodies())
    assert sorted(world.deleted()) == sorted(world.bodies())
    # The next run delivers the rest and nothing twice.
    query = Query(world, available_now=True)
    query.play_out()
    world.audit()


@in_both_modes
def test_available_now_on_an_empty_queue_ends_at_once(world: World) -> None:
    """One long poll finds nothing, and there is no batch."""
    query = Query(world, available_now=True)
    assert not query.trigger()
    assert not world.sink


def test_available_now_does_not_end_well_while_the_queue_gives_no_answer(world: World) -> None:
    """It would look as if nothing were left."""
    world.send("a1")
    query = Query(world, available_now=True)
    query.start_of(0)
    world.fault = lambda action: "refused" if action == "ReceiveMessage" else ""
    with pytest.raises(TransientQueueError):
        query.trigger()


@in_both_modes
@pytest.mark.parametrize("read_at_all", [False, True])
def test_available_now_with_a_function_that_never_reads_ends_and_says_so(
    world: World, read_at_all: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It gives the messages back at once, and does not wait for its own holds."""
    world.send("a1", "b1")
    unread = range(0) if read_at_all else None
    query = Query(world, available_now=True, reads=lambda batch, count: unread)
    began_at = world.clock.now()
    batches = 0
    while query.trigger():
        batches += 1
        assert batches < 10
    assert world.clock.now() - began_at < VISIBILITY_S
    assert "read none of the messages that it got" in caplog.text
    assert world.depth() == (2, 0)
    query = Query(world, available_now=True)
    query.play_out()
    world.audit()


@in_both_modes
def test_available_now_gives_back_what_is_carried_when_it_ends_unread(world: World) -> None:
    """It is served when the query runs again; until then nobody holds it."""
    world.send(*(f"{letter}{number}" for letter in "abcdef" for number in range(3)))
    query = Query(world, available_now=True, reads=lambda batch, count: range(1, count) if batch == 0 else range(0))
    query.play_out()
    assert 0 < len(world.bodies()) < 18
    assert world.depth()[1] == 0
    query = Query(world, available_now=True)
    query.play_out()
    assert len(world.bodies()) == 18
    world.audit()


@in_both_modes_with(numPartitions="2", waitTimeSeconds="1")
def test_available_now_ends_though_nothing_is_read_of_what_is_carried(world: World) -> None:
    """As where nothing is read of what a probe got: what is carried stays for the next run."""
    world.send(*(f"{group}{index}" for index in range(1, 4) for group in "abcde"))
    world.receive_elsewhere(10, 5)
    world.receive_elsewhere(10, 5)
    world.clock.advance(6)  # so that they are deferred
    query = Query(world, available_now=True, reads=lambda batch, count: range(count) if batch == 0 else None)
    triggers = 0
    while query.trigger():
        triggers += 1
        assert triggers < 20
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    assert sorted(world.bodies()) == sorted(row.body for row in world.sent)


@in_both_modes_with(numPartitions="2", waitTimeSeconds="1", visibilityTimeoutSeconds="600")
def test_available_now_waits_for_holds_once_however_often_another_source_has_it_asked(world: World) -> None:
    """The query waits for a foreign hold until it must have lapsed if nobody renewed it, and no longer."""
    world.send("a1", "b1")
    assert world.receive_elsewhere(1, 5_000)
    query = Query(world, available_now=True)
    query.play_out()
    for _ in range(3):
        began_at = world.clock.now()
        start = query.start_of(len(query.offsets))
        assert query.latest_offset(start) == start
        query.startless.commit(start)
        assert world.clock.now() - began_at < 60


@in_both_modes_with(maxMessagesPerTrigger="8", visibilityTimeoutSeconds="60")
def test_a_run_says_how_it_begins_and_every_ten_seconds_how_far_it_is(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a call of its own: the queue is asked for its counts at the start, and for each micro-batch."""
    caplog.set_level(logging.INFO, "sqs_fifo_spark.progress")
    world.send(*(f"{group}{number}" for group in "abcdefgh" for number in range(10)))
    calls = count_calls(world)
    query = Query(world, available_now=True).resume()
    batches = 1
    while query.trigger():
        world.pass_time(4)
        batches += 1
    world.audit()
    first, *others = [each.getMessage() for each in caplog.records if each.name == "sqs_fifo_spark.progress"]
    mode = world.options.delete_after
    assert re.fullmatch(rf"reading q\.fifo: about 80 messages wait, deleteAfter={mode}, journal at '.+'\.", first)
    assert 4 * batches // 12 - 1 <= len(others) <= 4 * batches // 10
    form = r"(\d+) messages done, about (\d+) wait, \d+ in flight, (\d+\.\d) messages/s, about (\d+) s left\."
    said = [tuple(map(float, found.groups())) for each in others if (found := re.fullmatch(form, each))]
    assert len(said) == len(others) > 2
    assert [done for done, *_ in said] == sorted(done for done, *_ in said)
    assert all(abs(waiting / rate - left_s) < 0.1 * left_s + 1 for _, waiting, rate, left_s in said)
    assert calls["GetQueueAttributes"] <= batches + 4
