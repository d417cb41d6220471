"""A journal belongs to one query at a time: another one takes over what it has left, and then it is over for good."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from greenlet import getcurrent, greenlet

from sqs_fifo_spark.errors import DataLossError, EpochSettledError, FencedError, SqsFifoError
from sqs_fifo_spark.source.plan import PartitionPlan
from tests.simulation.hub import Crash
from tests.simulation.spark import ConcurrentUpdateError, Query, read
from tests.simulation.world import LAPSE_S, Checkpoint
from tests.unit.by_hand import MODES, World, crash_at, do_at, in_both_modes

pytestmark = pytest.mark.law("source-3", "source-5")


@pytest.fixture
def world(make_world: Callable[..., World], request: pytest.FixtureRequest) -> World:
    return make_world(**{"numPartitions": "1", "deleteAfter": "journal", **getattr(request, "param", {})})


def taken_over(world: World, *, until: str = "-- batch 1 is read") -> Checkpoint:
    """The world's query has served a1 and a2, perhaps committed; another one takes over, serves y1, and dies."""
    world.send("a1", "a2")
    Query(world).trigger()
    world.die(down_s=LAPSE_S)
    other = Checkpoint()
    query = Query(world, checkpoint=other)
    world.send("y1")
    crash_at(world, until)
    with suppress(Crash):
        for number in range(2, 5):
            query.trigger()
            world.send(f"y{number}")
    world.on_step = lambda event: None
    world.die(down_s=LAPSE_S)
    return other


STARTS: list[dict[str, Any]] = [{}, {"tells_start": False}, {"tells_start": False, "is_wrapped": True}]
"""How Spark starts a query."""


@in_both_modes
@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("how", STARTS, ids=["4.2", "4.0", "4.0 wrapped"])
@pytest.mark.parametrize("until", ["-- batch 0 is planned", "-- batch 0 is read", "-- batch 1 is read"])
def test_a_checkpoint_of_an_earlier_generation_is_refused_for_good(
    world: World, is_committed: bool, how: dict[str, Any], until: str
) -> None:
    """Before it receives anything; the query that has taken over goes on, and each message is in one of the sinks."""
    other = taken_over(world, until=until)
    if not is_committed:
        world.committed.clear()
    for _ in range(2):
        before = len(world.trace)
        with pytest.raises(DataLossError, match="belongs to another query, which began on it later") as told:
            Query(world, **how).resume().trigger()
        assert "\n" not in str(told.value)
        assert not [event for _, _, event in world.trace[before:] if "ReceiveMessage" in event]
        world.die(down_s=LAPSE_S)
    query = Query(world, checkpoint=other).resume()
    query.drain()
    served = Counter(row.body for rows in other.rows() for row in rows)
    assert max(served.values()) == 1
    assert {row.body for row in world.sent} == {*served, *world.bodies()}
    assert world.depth() == (0, 0)


@in_both_modes
def test_a_checkpoint_of_an_earlier_generation_does_not_stop_the_query_that_rules(world: World) -> None:
    """It is refused before it claims the journal."""
    other = taken_over(world)
    query = Query(world, checkpoint=other).resume()
    with pytest.raises(DataLossError):
        Query(world).resume().trigger()
    world.send("z1")
    query.drain()
    assert "z1" in [row.body for rows in other.rows() for row in rows]


@in_both_modes
@pytest.mark.parametrize("until", ["before list drivers", "-- batch 0 is ", "before put ledger/"])
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_query_that_has_planned_nothing_takes_nothing_over(world: World, until: str, is_committed: bool) -> None:
    """Started by mistake, or twice at once: the older query goes on from its checkpoint, exactly once."""
    world.send("a1", "a2")
    Query(world).trigger()
    if not is_committed:
        world.committed.clear()
    world.die(down_s=LAPSE_S)
    world.send("a3")
    crash_at(world, until, 2 if "ledger" in until else 1)
    with pytest.raises(Crash):
        Query(world, checkpoint=Checkpoint()).trigger()
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    world.audit()


@in_both_modes
def test_of_two_first_runs_the_one_that_spark_has_logged_goes_on(world: World) -> None:
    """The other one has announced an epoch in vain: it has taken nothing over."""
    world.send("a1", "b1")
    first = Query(world)
    announced = first.latest_offset(first.start_of(0))
    second = Query(world)
    world.clock.advance(LAPSE_S)
    late = second.latest_offset(second.start_of(0))
    first.log(announced)
    with pytest.raises(ConcurrentUpdateError):
        second.log(late)
    with pytest.raises(FencedError):
        first.run(0)
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    world.audit()


@in_both_modes
@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize(
    "point",
    ["before put ledger/", "after put ledger/", "before list drivers", "before drop epochs/", "before put epochs/"],
)
@pytest.mark.parametrize("occurrence", [1, 2, 3])
def test_a_crash_while_a_generation_begins_loses_and_doubles_nothing(
    world: World, point: str, occurrence: int, is_read: bool
) -> None:
    """The next new query, which has no checkpoint either, begins one of its own."""
    world.send("a1", "a2", "b1")
    crash_at(world, "-- batch 0 is read" if is_read else "-- batch 0 is planned")
    with pytest.raises(Crash):
        Query(world, checkpoint=Checkpoint()).trigger()
    world.on_step = lambda event: None
    world.die(down_s=LAPSE_S)
    world.send("a3")
    crash_at(world, point, occurrence)
    with suppress(Crash):
        Query(world).trigger()
    world.on_step = lambda event: None
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    world.audit(allow_forgotten=True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", STARTS, ids=["4.2", "4.0", "4.0 wrapped"])
@pytest.mark.parametrize("is_committed", [True, False])
def test_who_goes_on_without_what_is_lost_begins_a_generation(
    make_world: Callable[..., World], mode: str, how: dict[str, Any], is_committed: bool
) -> None:
    """With failOnDataLoss=false an older query takes the journal back, and the other one is refused from then on."""
    world = make_world(numPartitions="1", deleteAfter=mode, failOnDataLoss="false")
    other = taken_over(world)
    if not is_committed:
        world.committed.clear()
    world.send("z1")
    query = Query(world, **how).resume()
    query.trigger()
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    found = {row.body for each in (world.checkpoint, other) for rows in each.rows() for row in rows}
    assert found == {row.body for row in world.sent}
    world.options = replace(world.options, fail_on_data_loss=True)
    with pytest.raises(DataLossError, match="belongs to another query"):
        Query(world, checkpoint=other).resume().trigger()


def killed_at(world: World, query: Query, wanted: str, occurrence: int = 1) -> None:
    """Trigger until `wanted`, where all processes are killed; what they hold lapses."""
    crash_at(world, wanted, occurrence)
    with pytest.raises(Crash):
        query.trigger()
    world.on_step = lambda event: None
    world.die(down_s=LAPSE_S)


def counted(*checkpoints: Checkpoint) -> Counter[str]:
    """How often each body stands in these sinks."""
    return Counter(row.body for each in checkpoints for rows in each.rows() for row in rows)


WRAPPED = STARTS[2]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", STARTS, ids=["4.2", "4.0", "4.0 wrapped"])
@pytest.mark.parametrize("fails_again", [False, True])
@pytest.mark.parametrize("until", ["is planned", "is read", "is in the sink"])
def test_a_crash_in_the_first_batch_after_giving_up_repeats_that_batch(
    make_world: Callable[..., World], mode: str, how: dict[str, Any], fails_again: bool, until: str
) -> None:
    """Nothing is given up once more, whatever the option is by then: the query itself rules."""
    world = make_world(numPartitions="1", deleteAfter=mode, failOnDataLoss="false")
    world.send("a1", "a2")
    Query(world).trigger()
    world.die(down_s=LAPSE_S)
    other = Checkpoint()
    query = Query(world, checkpoint=other)
    for body in ("y1", "y2"):
        world.send(body)
        query.trigger()
    world.die(down_s=LAPSE_S)
    world.send("z1")
    killed_at(world, Query(world, **how).resume(), f"-- batch 1 {until}")
    world.options = replace(world.options, fail_on_data_loss=fails_again)
    world.send("z2")
    Query(world, **how).resume().trigger()
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    assert max(counted(world.checkpoint).values()) == 1
    assert {*counted(world.checkpoint, other)} == {row.body for row in world.sent}


@pytest.mark.parametrize("mode", MODES)
def test_the_first_batch_after_giving_up_is_announced_again_if_the_log_loses_it(
    make_world: Callable[..., World], mode: str
) -> None:
    """Its batch id gets no other rows: the sink has it."""
    world = make_world(numPartitions="1", deleteAfter=mode, failOnDataLoss="false")
    world.send("a1", "a2")
    Query(world).trigger()
    world.die(down_s=LAPSE_S)
    world.send("y1")
    Query(world, checkpoint=Checkpoint()).trigger()
    world.die(down_s=LAPSE_S)
    world.send("z1")
    killed_at(world, Query(world).resume(), "-- batch 1 is in the sink")
    lost = world.offsets.pop()
    world.send("z2")
    Query(world).resume().drain()
    assert world.offsets[1].of == lost.of
    assert counted(world.checkpoint)["z2"] == 1


@in_both_modes
@pytest.mark.parametrize("until", ["-- batch 0 is ", "-- batch 0 is planned", "-- batch 0 is read", "never"])
def test_no_two_epochs_have_a_number_that_are_announced_before_spark_says_where_it_is(world: World, until: str) -> None:
    """Not even the first two of a journal. Nobody may have read the first one."""
    world.send("a1", "b1")
    if until == "never":
        Query(world, **WRAPPED, reads=lambda batch, count: None).resume().trigger()
        world.die(down_s=LAPSE_S)
    else:
        killed_at(world, Query(world, **WRAPPED).resume(), until)
    Query(world, **WRAPPED).resume().trigger()
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    world.audit(allow_forgotten=True)


@in_both_modes
@pytest.mark.parametrize("first", STARTS[::2], ids=["4.2", "4.0 wrapped"])
@pytest.mark.parametrize("second", STARTS[::2], ids=["4.2", "4.0 wrapped"])
@pytest.mark.parametrize("how", STARTS, ids=["4.2", "4.0", "4.0 wrapped"])
def test_a_query_is_not_told_that_it_is_another_one(
    world: World, first: dict[str, Any], second: dict[str, Any], how: dict[str, Any]
) -> None:
    """An overtaken run's epoch stands in the place of a lost one: to remove its entry leads out."""
    world.send("a1")
    Query(world).trigger()
    world.die(down_s=LAPSE_S)
    world.send("b1", "b2")
    overtaken = Query(world, **first).resume()
    late = overtaken.latest_offset(overtaken.start_of(1))
    killed_at(world, Query(world, **second).resume(), "-- batch 1 is in the sink")
    world.offsets.pop()
    overtaken.log(late)
    world.die(down_s=LAPSE_S)
    with pytest.raises(DataLossError, match="Remove the entry of epoch"):
        Query(world, **how).resume().trigger()
    world.die(down_s=LAPSE_S)
    world.offsets.remove(late)
    Query(world, tells_start=False).resume().trigger()
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    world.audit(allow_forgotten=True)


@in_both_modes
@pytest.mark.parametrize("how", STARTS, ids=["4.2", "4.0", "4.0 wrapped"])
@pytest.mark.parametrize("until", ["after put ledger/", "before put epochs/", "-- batch 0 is planned"])
@pytest.mark.parametrize("has_left", [False, True])
def test_a_generation_that_a_restart_began_raises_no_doubt(
    world: World, how: dict[str, Any], until: str, has_left: bool
) -> None:
    """Nobody reads the batch after that, whose epoch was announced before Spark said where the query was."""
    world.send("a1")
    query = Query(world, checkpoint=Checkpoint())
    if has_left:
        query.trigger()
    else:
        query.start_of(0)
    world.die(down_s=LAPSE_S)
    killed_at(world, Query(world, **WRAPPED).resume(), "-- batch 0 is ")
    crash_at(world, until, 2 if "ledger" in until else 1)
    with suppress(Crash):
        Query(world).resume()
    world.on_step = lambda event: None
    world.die(down_s=LAPSE_S)
    world.send("b1")
    Query(world, **how, reads=lambda batch, count: None if batch == 0 else range(count)).resume().trigger()
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    found = counted(world.checkpoint)
    assert {"a1", "b1"} <= {*found}
    assert max(found.values()) == 1


@pytest.mark.parametrize("world", [{"deleteAfter": "commit"}], indirect=True)
@pytest.mark.parametrize("fault", ["", "refused", "throttled", "lost"])
def test_what_was_received_before_is_served_at_once_after_an_epoch_of_copies(world: World, fault: str) -> None:
    """The driver looks once before that epoch's commit; a queue that does not answer then stops no query."""

    def no_delete(action: str) -> str:
        return "refused" if action == "DeleteMessageBatch" else ""

    world.send("a1")
    query = Query(world)
    query.trigger()
    world.send("c1")
    world.fault = no_delete
    query.log(query.latest_offset(query.start_of(1)))
    world.receive_elsewhere(10, 300)
    query.startless.commit(query.offsets[0])
    world.fault = lambda action: ""
    plans = query.plans(1)
    world.clock.advance(LAPSE_S)
    world.fault = no_delete
    assert query.read_all(plans) == {0: []}
    query.to_sink(1, {0: []})
    query.checkpoint.committed.add(1)
    world.fault = lambda action: fault if action == "ReceiveMessage" else ""
    query.trigger()
    world.fault = lambda action: ""
    world.pass_time(300)
    query.drain()
    world.audit(allow_forgotten=True)


@in_both_modes
def test_what_an_overtaken_driver_announces_belongs_to_no_query(world: World) -> None:
    """It stood still while another query began; Spark has logged what it announced, and is refused from then on."""
    world.send("a1")
    query = Query(world)
    query.trigger()
    late = paused(world, lambda: query.log(query.latest_offset(query.start_of(1))), "before GetQueueAttributes")
    other = Query(world, checkpoint=Checkpoint())
    world.send("b1")
    other.trigger()
    late.switch()
    assert len(world.offsets) == 2
    with pytest.raises(FencedError):
        query.startless.commit(world.offsets[0])
    world.die(down_s=LAPSE_S)
    with pytest.raises(DataLossError, match="belongs to another query"):
        Query(world).resume().trigger()


@in_both_modes
@pytest.mark.parametrize("is_late", [True, False])
def test_a_generation_that_was_announced_first_and_begins_last_carries_nothing_twice(
    world: World, is_late: bool
) -> None:
    """An older query went on in between, in an epoch with a higher number. It seals late, or before it is over."""
    how: dict[str, Any] = {"tells_start": False, "is_wrapped": True}
    other = Checkpoint()
    world.send("y1")
    Query(world, checkpoint=other, **how).resume().trigger()
    world.die(down_s=LAPSE_S)
    new = Query(world)
    new.log(new.latest_offset(new.start_of(0)))
    world.die(down_s=LAPSE_S)
    world.send("z1", "z2")
    old = Query(world, checkpoint=other, **how).resume()
    old.log(old.latest_offset(old.start_of(1)))
    (plan,) = old.plans(1)
    assert plan.epoch > world.offsets[0].epoch
    late = paused(world, lambda: read(world, plan), "before put epochs/") if is_late else None
    if not is_late:
        old.to_sink(1, {0: read(world, plan)})
        other.committed.add(1)
    world.die(down_s=LAPSE_S)
    world.send("a1")
    Query(world).resume().trigger()
    for start in ({}, how):
        world.die(down_s=LAPSE_S)
        with pytest.raises(DataLossError, match="belongs to another query"):
            Query(world, checkpoint=other, **start).resume().trigger()
    world.die(down_s=LAPSE_S)
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
        world.send(body)
        Query(world).resume().trigger()
        world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    counts = Counter(row.body for rows in world.rows() for row in rows)
    assert {**counts, "last1": 1} == dict.fromkeys(["z1", "z2", "a1", "a2", "a3", "a4", "a5", "last1"], 1)


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


CARRIES = {"numPartitions": "2", "deleteAfter": "journal", "waitTimeSeconds": "1"}


def group_of(partition: int) -> str:
    """Return the name of a group whose carried messages go to this one of two partitions."""
    return next(group for group in "abcdef" if zlib.crc32(group.encode()) % 2 == partition)


@pytest.mark.parametrize("has_crashed", [False, True])
@pytest.mark.parametrize("partition", [0, 1])
def test_what_follows_a_carried_message_waits_for_it(
    make_world: Callable[..., World], partition: int, has_crashed: bool
) -> None:
    """The older query's tasks have deleted it, so no lock holds the group; a throttled renewal does not tell.

    Of the first batch only the other partition is read; then all processes die, or an action like `limit` is content.
    """
    world = make_world(**CARRIES)
    group = group_of(partition)
    world.send(*(f"{group}{n}" for n in range(1, 6)))
    killed_at(world, Query(world, checkpoint=Checkpoint()), "-- batch 0 is read")
    assert world.deleted()
    world.send(*(f"{group}{n}" for n in range(6, 12)))
    query = Query(world, reads=lambda batch, count: range(1 - partition, 2 - partition) if not batch else range(count))
    query.log(query.latest_offset(query.start_of(0)))
    world.fault = lambda action: "throttled" if action.startswith("ChangeMessage") else ""
    assert world.carried(query.plans(0)[partition])
    world.fault = lambda action: ""
    if has_crashed:
        read(world, query.plans(0)[1 - partition])
        world.die()
        query = Query(world).resume()
    else:
        query.run(0)
    query.drain()
    world.audit()


def taken_over_while_deleting(world: World, plan: PartitionPlan, *bodies: str) -> list[PartitionPlan]:
    """A task of `plan` is about to delete, a new query plans while `bodies` come, and the delete takes effect.

    Return the new query's plans.
    """
    plans: list[PartitionPlan] = []

    def take_over() -> None:
        world.send(*bodies)
        query = Query(world)
        query.log(query.latest_offset(query.start_of(0)))
        plans.extend(query.plans(0))
        crash_at(world, "after DeleteMessageBatch")

    do_at(world, "before DeleteMessageBatch", take_over)
    with suppress(SqsFifoError, Crash):
        read(world, plan)
    return plans


def deferring(world: World, group: str) -> Query:
    """A query that has committed its first batch, and is to serve what that has deferred: the group's first message."""
    query = Query(world, checkpoint=Checkpoint())
    world.send("z1")
    query.log(query.latest_offset(query.start_of(0)))
    world.send(f"{group}1")
    world.receive_elsewhere(10, 0)
    query.run(0)
    query.log(query.latest_offset(query.start_of(1)))
    query.startless.commit(query.checkpoint.offsets[0])
    assert query.driver._owned(None).ledger.carried
    return query


@pytest.mark.parametrize("partition", [0, 1])
def test_what_follows_a_message_that_was_carried_twice_waits_for_it(
    make_world: Callable[..., World], partition: int
) -> None:
    """The ledger carries it from where it was deferred; since then the older query's tasks have served and deleted it.

    Of the newer one's first batch only the other partition is read.
    """
    world = make_world(**CARRIES)
    group = group_of(partition)
    old = deferring(world, group)
    crash_at(world, "-- batch 1 is read")
    with pytest.raises(Crash):
        old.run(1)
    world.on_step = lambda event: None
    assert f"{group}1" in world.deleted()
    world.die(down_s=LAPSE_S)
    world.send(*(f"{group}{n}" for n in range(2, 6)), "v1")
    query = Query(world, reads=lambda batch, count: range(1 - partition, 2 - partition) if not batch else range(count))
    query.log(query.latest_offset(query.start_of(0)))
    world.fault = lambda action: "throttled" if action.startswith("ChangeMessage") else ""
    assert world.carried(query.plans(0)[partition])
    world.fault = lambda action: ""
    query.run(0)
    query.drain()
    assert [body for body in world.bodies() if body[0] == group] == [f"{group}{n}" for n in range(1, 6)]


@pytest.mark.parametrize("partition", [0, 1])
def test_what_follows_a_message_that_was_carried_twice_waits_while_it_is_deleted(
    make_world: Callable[..., World], partition: int
) -> None:
    """The older query's task deletes it after the newer one has planned."""
    world = make_world(**CARRIES)
    group = group_of(partition)
    old = deferring(world, group)
    plan = next(plan for plan in old.plans(1) if world.carried(plan))
    plans = taken_over_while_deleting(world, plan, *(f"{group}{n}" for n in range(2, 6)), "v1", "u1", "w1")
    assert world.carried(plans[partition])
    read(world, plans[1 - partition])
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    assert [body for body in world.bodies() if body[0] == group] == [f"{group}{n}" for n in range(1, 6)]


@pytest.mark.parametrize("partition", [0, 1])
def test_what_an_older_task_deletes_late_is_served_first(make_world: Callable[..., World], partition: int) -> None:
    """It has looked at the claims before the newer query's, and deletes after that has planned."""
    world = make_world(**CARRIES)
    group = group_of(partition)
    world.send("z1", "y1", "x1", "w1", "v1")
    old = Query(world, checkpoint=Checkpoint())
    old.log(old.driver.latest_offset(old.start_of(0), 2))
    world.send(*(f"{group}{n}" for n in range(1, 6)))
    plan = replace(old.plans(0)[0], max_messages=100)
    plans = taken_over_while_deleting(world, plan, *(f"{group}{n}" for n in range(6, 12)))
    partition = world.deal(plans[0]).groups[group]
    assert world.carried(plans[partition])
    read(world, plans[1 - partition])
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    world.audit()


def paused(world: World, call: Callable[[], object], before: str, occurrence: int = 1) -> greenlet:
    """Do `call` up to the step that begins with `before`; `switch` goes on with it, to its end."""
    here, left = getcurrent(), occurrence

    def on_step(event: str) -> None:
        nonlocal left
        if getcurrent() is it and event.startswith(before):
            left -= 1
            if not left:
                here.switch()

    it = greenlet(call)
    world.on_step = on_step
    it.switch()
    world.on_step = lambda event: None
    assert not it.dead
    return it


def test_of_two_who_open_a_journal_the_older_one_drops_nothing_that_the_newer_one_needs(world: World) -> None:
    """The newer one has found an older ledger, from before the one that the older one has found and put once more."""
    world.send("a1")
    first = Query(world)
    assert first.trigger()
    end = first.latest_offset(first.start_of(1))
    first.log(end)
    settling = paused(world, lambda: first.startless.commit(world.offsets[0]), "before put ledger/")
    second, third = Query(world), Query(world)
    opening = paused(world, second.resume, "before list ledger", 2)
    latest = paused(world, third.resume, "before put ledger/")
    for fenced in (settling, opening):
        with pytest.raises(FencedError):
            fenced.switch()
    latest.switch()
    third.drain()
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    world.audit()


def test_a_fenced_driver_lets_go_of_what_it_has_caught_before_its_plan(world: World) -> None:
    """Else its group stays locked for as long as the driver stands there."""
    world.send("a1")
    query = Query(world)
    query.log(query.latest_offset(query.start_of(0)))
    assert world.depth() == (0, 1)
    Query(world, checkpoint=Checkpoint()).driver.initial_offset()
    world.pass_time(LAPSE_S)
    assert world.depth() == (1, 0)


@pytest.mark.parametrize("tells_start", [True, False])
def test_a_driver_that_is_fenced_after_its_put_lets_go_and_announces_nothing(world: World, tells_start: bool) -> None:
    """However often it is asked."""
    query = Query(world, tells_start=tells_start)
    start = query.start_of(0)
    world.send("a1")
    do_at(world, "after put epochs/", lambda: Query(world, checkpoint=Checkpoint()).start_of(0))
    for _ in range(2):
        with pytest.raises(FencedError):
            query.latest_offset(start)
        assert world.depth() == (1, 0)


# When the claim is asked


def claim_elsewhere(world: World) -> None:
    """Let another query, with a checkpoint of its own, claim the journal."""
    Query(world, checkpoint=Checkpoint()).driver.initial_offset()


@pytest.mark.parametrize("world", [{"deleteAfter": "commit"}], indirect=True)
def test_a_driver_that_was_fenced_when_it_judged_deletes_nothing_later(world: World) -> None:
    """A leftover has put something where the newer driver had dropped the epoch's own."""
    world.send("a1")
    old = Query(world)
    old.log(old.latest_offset(old.start_of(0)))
    (plan,) = old.plans(0)
    late = paused(world, lambda: read(world, plan), "before ReceiveMessage")
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
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    world.audit()


@in_both_modes
def test_a_driver_is_fenced_however_often_it_is_asked(world: World) -> None:
    """Its verdict on the last epoch does not stand for its claim."""
    world.send("a1")
    query = Query(world)
    query.trigger()
    claim_elsewhere(world)
    for _ in range(2):
        with pytest.raises(FencedError, match="this query's is"):
            query.latest_offset(query.start_of(1))


@in_both_modes
def test_an_idle_driver_that_is_fenced_does_not_probe(world: World) -> None:
    """What it received would come to the other query with one receive more."""
    query = Query(world)
    world.send("a1")
    query.trigger()
    query.trigger()
    start = query.start_of(len(query.offsets))
    assert query.latest_offset(start) == start
    claim_elsewhere(world)
    world.send("b1")
    before = len(world.trace)
    with pytest.raises(FencedError):
        query.latest_offset(start)
    assert not [event for _, _, event in world.trace[before:] if "ReceiveMessage" in event]


@in_both_modes
def test_a_fenced_driver_that_closes_a_chain_speaks_of_the_query(world: World) -> None:
    """Not of a task, though the link's put tells it first."""
    world.send("a1")
    query = Query(world, reads=lambda batch, count: range(0))
    query.trigger()
    claim_elsewhere(world)
    with pytest.raises(FencedError, match="this query's is"):
        query.latest_offset(query.start_of(1))
