"""A partition is the same rows however often it is read, and whoever reads it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.world import VISIBILITY_S, Row
from tests.unit.by_hand import Query, World, in_both_modes, with_options

pytestmark = pytest.mark.law("source-4")


@in_both_modes
def test_messages_of_many_groups_arrive_once_and_in_order(world: World) -> None:
    """The plain course: everything once, in order, deleted, with an empty ledger and no segment left."""
    world.send(*(f"{'abcde'[index % 5]}{index}" for index in range(60)))
    Query(world).drain_and_audit()
    assert not world.store.under("epochs/")


@in_both_modes
def test_partition_without_segment_has_shown_no_row(world: World) -> None:
    """A task killed at any step before its put has yielded nothing, and another attempt starts afresh."""
    world.send("a1", "a2", "b1")
    query = Query(world)
    world.crash("before put epochs/", query.trigger)
    assert not world.store.under("epochs/")
    assert not world.sink
    world.restart(down_s=0)


@in_both_modes
def test_several_reads_give_the_same_rows(world: World) -> None:
    """Also of a partition that has received nothing, when there is something by then; and the plans are the same."""
    query = world.served("a1", "a2", "a3", "a4", "a5", "a6")
    plans = query.plans(0)
    assert query.plans(0) == plans
    assert not all(world.sink[0][plan.partition] for plan in plans)
    world.send("a7", "c1", "z1")
    for _ in range(3):
        assert query.read_all(plans) == world.sink[0]
    query.drain_and_audit()


@with_options(numPartitions="1")
def test_heartbeat_keeps_what_the_winning_attempt_received_and_the_loser_keeps_nothing(world: World) -> None:
    """A speculative attempt's messages are free as soon as it has lost, and nobody renews them."""
    world.send("x1", "a1", "b1", "c1", "d1")
    query, (plan,) = world.planned(1)
    mine = replace(plan, max_messages=3)
    rows: list[list[Row]] = []
    world.do_at("before put epochs/", lambda: rows.append(world.read(mine)))
    rows.append(world.read(mine))
    assert rows[0] == rows[1]
    free = {"x1", "a1", "b1", "c1", "d1"} - {row.body for row in rows[0]}
    taken = {message["Body"] for message in world.receive_elsewhere(visibility_timeout_s=1)}
    assert taken == free
    world.pass_time(1)
    for _ in range(4 * VISIBILITY_S):
        world.pass_time(1)
        assert {message["Body"] for message in world.receive_elsewhere(visibility_timeout_s=1)} <= free
    world.pass_time(1)
    world.sink[0] = {0: rows[0]}
    world.committed.add(0)
    query.drain_and_audit()
