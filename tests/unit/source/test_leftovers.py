"""Tasks and drivers that outlive their epoch, or their query: nothing of theirs is served twice, or lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from greenlet import getcurrent

from sqs_fifo_spark.errors import EpochSettledError, FencedError
from sqs_fifo_spark.source.plan import PartitionPlan
from tests.helpers import raises_one_line
from tests.simulation.world import LAPSE_S, Checkpoint, Row
from tests.unit.by_hand import (
    WRAPPED,
    HandHeartbeat,
    Query,
    World,
    in_both_modes,
    in_both_modes_with,
    unread,
    with_options,
)
from tests.unit.source.attempts import Attempts, begin, free, paused

pytestmark = pytest.mark.law("source-5")


@in_both_modes
def test_a_task_of_a_settled_epoch_fails_each_time_and_leaves_nothing(world: World) -> None:
    """A DataFrame used after its micro-batch, or retried: no rows, no receives, which a redrive policy would count."""
    query = world.served("a1")
    plan = query.plans(0)[0]
    assert query.trigger()
    world.send("b1", "b2")
    before = world.received()
    for each in (plan, replace(plan, deal=b"")) * 2:
        with raises_one_line(EpochSettledError):
            world.read(each)
    assert world.received() == before
    assert world.depth() == (2, 0)
    query.drain_and_audit()
    assert not world.store.under("epochs/")


@in_both_modes
def test_what_a_leftover_put_is_served_to_no_other_leftover(world: World) -> None:
    """Two late attempts: what one of them seals in the settled epoch's empty place is not the epoch's content."""
    query = world.served("a1")
    plan = replace(query.plans(0)[0], deal=b"")
    late: list[list[Row]] = []
    name = world.journal().segment_name(1, 0, 1)
    link = world.store.objects.pop(name)  # as it is for an attempt that began before there was one

    def read_late() -> None:
        with pytest.raises(EpochSettledError):
            late.append(world.read(plan))

    def settle() -> None:
        world.store.objects[name] = link
        assert query.trigger()
        assert name not in world.store.objects
        world.send("b1")
        world.do_at("after put epochs/00000000000000000001", read_late)

    world.do_at("before ReceiveMessage", settle)
    with pytest.raises(EpochSettledError):
        world.read(plan)
    assert late == []


@in_both_modes_with(numPartitions="1")
@pytest.mark.parametrize("settled", [1, 2, 3])
def test_a_leftover_releases_what_it_received_however_late_it_comes(world: World, settled: int) -> None:
    """Its link's name is free again once its epoch is dropped, so its put succeeds, and counts for nothing."""
    world.send("a1")
    query, (plan,) = world.planned()
    world.send("b1")
    attempts = Attempts(world)
    late = attempts.begin(plan, "before put epochs/")  # it has received b1
    query.run(0)  # another attempt serves the epoch
    for number in range(settled):
        world.send(f"c{number}")
        assert query.trigger()
    assert world.journal().ledger().epoch == settled
    assert free(world) == set()
    with pytest.raises(EpochSettledError):
        attempts.end(late)
    assert free(world) == {"b1"}
    query.drain_and_audit()


@with_options(numPartitions="1")
def test_a_link_that_was_put_in_time_is_not_released_by_its_task(world: World) -> None:
    """The driver has carried over what it defers by the time that the task looks at the ledger."""
    world.send("z1")
    query = Query(world).resume()
    query.trigger()
    world.send("a1")
    query.announce()
    (plan,) = query.plans(1)
    world.receive_elsewhere(10, 1)
    world.clock.advance(2)
    plans: list[PartitionPlan] = []

    def go_on() -> None:
        query.into_sink({0: world.read(plan)}, 1)
        query.announce()
        plans.extend(query.plans(2))

    world.do_at("after put epochs/00000000000000000002/0000", go_on)
    with pytest.raises(EpochSettledError):
        world.read(plan)
    assert any(world.carried(each) for each in plans)
    assert world.depth()[0] == 0
    assert not world.receive_elsewhere()


@with_options(numPartitions="1")
def test_a_driver_that_was_fenced_when_it_judged_deletes_nothing_later(world: World) -> None:
    """A leftover has put something where the newer driver had dropped the epoch's own."""
    world.send("a1")
    old, (plan,) = world.planned()
    late = paused(world, lambda: world.read(plan), "before ReceiveMessage")
    old.run(0)
    new = Query(world).resume()
    world.send("b1")
    new.trigger()  # it settles and drops the first epoch
    world.send("x1")
    here = getcurrent()

    def on_step(event: str) -> None:
        if getcurrent() is late and event.startswith("after put epochs/"):
            here.switch()

    world.on_step = on_step
    late.switch()
    world.on_step = lambda event: None
    with pytest.raises(FencedError):
        old.latest_offset(old.start_of(1))
    with pytest.raises(FencedError):
        old.startless.commit(world.offsets[0])
    world.restart(down_s=LAPSE_S)


# Of another query


@with_options(numPartitions="3", waitTimeSeconds="1")
def test_two_plans_of_an_epoch_are_never_both_served(world: World) -> None:
    """A leftover of the old query's plan seals what it holds, when the new query's plan has it elsewhere."""
    world.send("d1")
    old = Query(world)
    first = old.latest_offset(old.start_of(0))
    old.log(first)
    (plan, *_) = old.plans(0)
    new = Checkpoint()

    def a_new_query() -> None:
        world.die()
        world.clock.advance(LAPSE_S)  # what the leftover holds
        world.send(*(f"{group}1" for group in "abcefgh"))
        query = Query(world, checkpoint=new).resume()
        end = query.latest_offset(query.start_of(0))
        query.log(end)
        plans = query.plans(0)
        assert (plans[0].epoch, end.partitions) != (plan.epoch, first.partitions)
        rows.update(query.read_all(plans[1:]))
        pending.append((query, plans[0]))

    rows: dict[int, list[Row]] = {}
    pending: list[tuple[Query, object]] = []
    world.do_at("before put epochs/", a_new_query)
    with pytest.raises(EpochSettledError):
        world.read(plan)
    query, head = pending[0]
    rows.update(query.read_all([head]))  # type: ignore[list-item]
    query.into_sink(rows)
    query.drain()
    served = [row.body for batch in new.rows() for row in batch]
    assert sorted(served) == sorted({"d1", *(f"{group}1" for group in "abcefgh")})


@with_options(numPartitions="1", deleteAfter="journal")
def test_a_leftover_of_a_new_querys_predecessor_deletes_nothing_that_is_not_carried(world: World) -> None:
    """A put after the new driver's claim is no content: its messages must not be deleted."""
    _, plan = begin(world, "a1", "b1")
    attempts = Attempts(world)
    leftover = attempts.begin(plan, "before put epochs/")
    HandHeartbeat.live.clear()
    world.checkpoint = Checkpoint()
    query = Query(world)
    end = query.latest_offset(query.start_of(0))
    with pytest.raises((FencedError, EpochSettledError)):
        attempts.end(leftover)
    assert not world.deleted()
    if end != query.start_of(0):
        query.log(end)
        query.run(0)
    world.pass_time(LAPSE_S)
    query.drain_and_audit()


@in_both_modes_with(numPartitions="1")
@pytest.mark.parametrize("is_unread", [True, False])
@pytest.mark.parametrize("is_late", [True, False])
def test_a_generation_that_was_announced_first_and_begins_last_carries_nothing_twice(
    world: World, is_late: bool, is_unread: bool
) -> None:
    """An older query went on in between, in an epoch with a higher number. It seals late, or before it is over.

    The newer one's first batch is planned then, or nobody looks at its rows.
    """
    other = Checkpoint()
    world.ran("y1", checkpoint=other, **WRAPPED)
    new = Query(world)
    new.log(new.latest_offset(new.start_of(0)))
    world.die(down_s=LAPSE_S)
    world.send("z1", "z2")
    old = Query(world, checkpoint=other, **WRAPPED).resume()
    old.log(old.latest_offset(old.start_of(1)))
    (plan,) = old.plans(1)
    assert plan.epoch > world.offsets[0].epoch
    late = paused(world, lambda: world.read(plan), "before put epochs/") if is_late else None
    if not is_late:
        old.to_sink(1, {0: world.read(plan)})
        other.committed.add(1)
    world.die(down_s=LAPSE_S)
    world.ran("a1", reads=unread(0) if is_unread else unread())
    for start in ({}, WRAPPED):
        world.require_refused(other, **start)
    query = Query(world).resume()
    for body in ("a2", "a3"):
        world.send(body)
        query.trigger()
    assert {"z1", "z2"} <= {*world.deleted()}
    if late is not None:
        with pytest.raises((EpochSettledError, FencedError)):
            late.switch()
    world.die(down_s=LAPSE_S)
    for body in ("a4", "a5"):
        world.ran(body)
    Query(world).resume().drain()
    counts = Counter(row.body for rows in world.rows() for row in rows)
    assert {**counts, "last1": 1} == dict.fromkeys(["z1", "z2", "a1", "a2", "a3", "a4", "a5", "last1"], 1)
