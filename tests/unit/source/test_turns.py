"""Queries that take turns on one journal: what one of them has had is not served to it again, whoever took it over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.hub import Crash
from tests.simulation.spark import Query
from tests.simulation.world import LAPSE_S, Checkpoint
from tests.unit.by_hand import MODES, World, crash_at


@pytest.fixture
def world(make_world: Callable[..., World], request: pytest.FixtureRequest) -> World:
    return make_world(**{"numPartitions": "1", "deleteAfter": "journal", **getattr(request, "param", {})})


def away(world: World, first_mode: str = "journal", sink: bool = True) -> None:
    """This query's first batch is in its sink (committed or not); another query took its messages over and died."""
    world.options = replace(world.options, delete_after=first_mode)
    world.send("a1", "a2")
    if sink:
        Query(world).trigger()
    else:
        crash_at(world, "-- batch 0 is read")
        with pytest.raises(Crash):
            Query(world).trigger()
    world.die(down_s=LAPSE_S)
    world.options = replace(world.options, delete_after="journal")
    world.send("y1", "y2", "a3")
    other = Query(world, checkpoint=Checkpoint())
    crash_at(world, "-- batch 0 is in the sink")
    with pytest.raises(Crash):
        trigger_twice(other)
    world.on_step = lambda event: None
    world.die(down_s=LAPSE_S)
    world.options = replace(world.options, delete_after=first_mode)


def trigger_twice(query: Query) -> None:
    query.trigger()
    query.trigger()


def finish(world: World, **given: Any) -> None:
    world.on_step = lambda event: None
    query = Query(world, **given).resume()
    for number in range(6):
        world.send(f"b{number}")
        query.trigger()
    query.drain()
    world.pass_time(LAPSE_S)
    query.drain()
    world.pass_time(LAPSE_S)
    query.drain()
    world.audit()


POINTS = [
    "after put ledger/",
    "-- batch 1 is planned",
    "-- batch 1 is read",
    "-- batch 1 is in the sink",
    "-- batch 2 is 1",
    "before put ledger/",
    "before drop epochs/",
    "before DeleteMessageBatch",
]


@pytest.mark.parametrize("sink", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_after_the_return_changes_nothing(world: World, point: str, mode: str, sink: bool) -> None:
    """What was released is remembered by the ledger."""
    away(world, mode, sink)
    crash_at(world, point)
    with suppress(Crash):
        query = Query(world).resume()
        for number in range(3):
            world.send(f"c{number}")
            query.trigger()
    world.die(down_s=LAPSE_S)
    finish(world)


@pytest.mark.parametrize("sink", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_return_before_spark_says_where_it_is(world: World, wrapped: bool, mode: str, sink: bool) -> None:
    away(world, mode, sink)
    for number in range(8):
        world.send(f"c{number}")
        Query(world, tells_start=False, is_wrapped=wrapped).resume().trigger()
        world.die(down_s=LAPSE_S)
    finish(world)


@pytest.mark.parametrize("mode", MODES)
def test_a_return_to_a_batch_that_nobody_reads(world: World, mode: str) -> None:
    """plan is never asked for the batch after, whose commit of the batch before it crashed."""
    away(world, mode)
    crash_at(world, "before put ledger/")
    with pytest.raises(Crash):
        Query(world).resume().trigger()
    assert len(world.offsets) == 2
    world.die(down_s=LAPSE_S)
    query = Query(world, reads=lambda batch, count: None if batch == 1 else range(count)).resume()
    for number in range(3):
        world.send(f"c{number}")
        query.trigger()
    world.sink.pop(1)
    finish(world)


def other_takes_over(
    world: World, *, until: str = "-- batch 0 is in the sink", checkpoint: Checkpoint | None = None
) -> Checkpoint:
    """Another query serves what this one has left, and dies."""
    checkpoint = checkpoint or Checkpoint()
    world.send("y1", "y2")
    crash_at(world, until)
    other = Query(world, checkpoint=checkpoint)
    with pytest.raises(Crash):
        trigger_twice(other)
    world.on_step = lambda event: None
    world.die(down_s=LAPSE_S)
    return checkpoint


def test_a_return_with_a_replay_before_spark_says_where_it_is(world: World) -> None:
    """A replay under the wrapper: the blind epoch is logged next, and commit() settles before plan() releases."""
    away(world, "journal", sink=False)
    query = Query(world, tells_start=False, is_wrapped=True).resume()
    world.send("c1")
    query.trigger()
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    world.audit()


def test_a_return_after_a_commit_before_spark_says_where_it_is(world: World) -> None:
    """The same, without a replay."""
    away(world, "journal", sink=True)
    query = Query(world, tells_start=False, is_wrapped=True).resume()
    world.send("c1")
    query.trigger()
    assert Counter(world.bodies()).most_common(1)[0][1] == 1, world.bodies()


def test_the_other_query_lies_above_what_is_replayed(world: World) -> None:
    """The crash came between Spark's log of batch 1 and the ledger of batch 0. No second crash."""
    world.send("a1", "a2")
    crash_at(world, "before put ledger/")
    with pytest.raises(Crash):
        Query(world).drain()
    assert len(world.offsets) == 2
    world.die(down_s=LAPSE_S)
    other_takes_over(world)
    Query(world).resume().drain()
    world.audit()


@pytest.mark.parametrize("mode", MODES)
def test_a_chain_that_another_querys_ledger_carries_is_its_own_querys_content(world: World, mode: str) -> None:
    """Its first batch runs again after the older query has settled an epoch of a lower number."""
    world.send("x1")
    Query(world).trigger()
    world.die(down_s=LAPSE_S)
    world.send("a1", "a2")
    other = other_takes_over(world, until="-- batch 0 is in the sink")
    world.options = replace(world.options, delete_after=mode)
    crash_at(world, "after put ledger/")  # the older query settles its epoch 1, with the other's carried; and dies
    with pytest.raises(Crash):
        Query(world).resume().drain()
    world.on_step = lambda event: None
    world.die(down_s=LAPSE_S)
    query = Query(world, checkpoint=other).resume()
    world.send("c1")
    query.trigger()
    query.trigger()
    query.trigger()
    counts = Counter(row.body for rows in other.rows() for row in rows)
    assert not {body: count for body, count in counts.items() if count > 1}, counts


@pytest.mark.parametrize("is_received_before", [False, True])
def test_a_group_that_was_deferred_once_goes_on_at_full_speed(world: World, is_received_before: bool) -> None:
    """300 messages of one group take a few micro-batches, also if somebody else has received the first ones before."""
    world.send("y1", *(f"a{n}" for n in range(1, 301)))
    query = Query(world)
    query.log(query.driver.latest_offset(query.start_of(0), 1))
    if is_received_before:
        world.receive_elsewhere(10, 0)
        world.receive_elsewhere(10, 0)
    query.run(0)
    query.drain()
    world.audit()
    counts = [sum(map(len, world.sink[b].values())) for b in sorted(world.sink)]
    assert len(counts) < 12, counts


@pytest.mark.parametrize("mode", MODES)
def test_who_closes_a_chain_after_a_restart_says_what_it_follows(make_world: Callable[..., World], mode: str) -> None:
    """A partition was never read; a restart closes it, with no `after`; then the log loses the batch."""
    world = make_world(numPartitions="2", deleteAfter=mode, waitTimeSeconds="1")
    world.send(*(f"{g}1" for g in "bcdefghijk"))
    query = Query(world)
    query.trigger()
    world.send(*(f"{g}2" for g in "bcdefghijk"))
    query = Query(world, reads=lambda batch, count: range(1) if batch else range(count))
    world.die(down_s=LAPSE_S)
    query.resume().trigger()
    assert world.offsets[-1].partitions == 2
    epoch = world.offsets[-1].epoch
    world.die(down_s=LAPSE_S)
    crash_at(world, f"after put epochs/{epoch:020d}/0001-000000")  # restart: it closes, and dies
    with pytest.raises(Crash):
        Query(world).resume().trigger()
    world.on_step = lambda event: None
    world.die(down_s=LAPSE_S)
    assert len(world.offsets) == 2
    world.offsets.pop()
    world.committed.discard(1)
    Query(world).resume().drain()
    world.pass_time(LAPSE_S)
    Query(world).resume().drain()
    counts = Counter(world.bodies())
    doubled = {body: count for body, count in counts.items() if count > 1}
    assert not doubled
    assert set(counts) == {row.body for row in world.sent}
