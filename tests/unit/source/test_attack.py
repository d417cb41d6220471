"""Adversarial review of the chains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress

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
    from dataclasses import replace
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
        other.trigger()
        other.trigger()
    world.on_step = lambda event: None
    world.die(down_s=LAPSE_S)
    world.options = replace(world.options, delete_after=first_mode)


def finish(world: World, **kw) -> None:
    world.on_step = lambda event: None
    query = Query(world, **kw).resume()
    for number in range(6):
        world.send(f"b{number}")
        query.trigger()
    query.drain()
    world.pass_time(LAPSE_S)
    query.drain()
    world.pass_time(LAPSE_S)
    query.drain()
    world.audit()


POINTS = ["after put ledger/", "-- batch 1 is planned", "-- batch 1 is read", "-- batch 1 is in the sink",
          "-- batch 2 is 1", "before put ledger/", "before drop epochs/", "before DeleteMessageBatch"]


@pytest.mark.parametrize("sink", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("point", POINTS)
def test_f1_crash_between_two_ledgers(world: World, point: str, mode: str, sink: bool) -> None:
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
def test_f2_return_on_spark_4_0(world: World, wrapped: bool, mode: str, sink: bool) -> None:
    away(world, mode, sink)
    for number in range(8):
        world.send(f"c{number}")
        Query(world, tells_start=False, is_wrapped=wrapped).resume().trigger()
        world.die(down_s=LAPSE_S)
    finish(world)


@pytest.mark.parametrize("mode", MODES)
def test_f3_settle_before(world: World, mode: str) -> None:
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
