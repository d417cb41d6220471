"""A partition is the same rows however often it is read, and whoever reads it."""

from __future__ import annotations

import pytest

from tests.unit.by_hand import Query, World, in_both_modes

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
