"""Queries that take turns on one journal: what one of them has had is not served to it again, whoever took it over."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from greenlet import getcurrent, greenlet

from sqs_fifo_spark.clock import ManualClock
from sqs_fifo_spark.errors import DataLossError, EpochSettledError, FencedError, SqsFifoError
from sqs_fifo_spark.source.journal import Journal
from sqs_fifo_spark.source.ledger import Ledger
from sqs_fifo_spark.source.leftovers import Leftovers
from sqs_fifo_spark.source.offset import EpochPlan, Offset
from sqs_fifo_spark.source.plan import PartitionPlan
from sqs_fifo_spark.source.pool import CallingThread
from tests.simulation.hub import Crash
from tests.simulation.spark import Query, read
from tests.simulation.world import LAPSE_S, Checkpoint, MemoryStore
from tests.unit.by_hand import MODES, World, crash_at, do_at, in_both_modes


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
    "after put ledger/ again",
    "-- batch 1 is planned",
    "-- batch 1 is read",
    "-- batch 1 is in the sink",
    "-- batch 2 is 1",
    "before put ledger/ again",
    "before drop epochs/",
    "before DeleteMessageBatch",
]


@pytest.mark.parametrize("sink", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_after_the_return_changes_nothing(world: World, point: str, mode: str, sink: bool) -> None:
    """What was released is remembered by the ledger: that which it finds, and its own."""
    away(world, mode, sink)
    crash_at(world, point.removesuffix(" again"), 1 + point.endswith(" again"))
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
    crash_at(world, "before put ledger/", 2)
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
    crash_at(world, "before put ledger/", 2)
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
    crash_at(world, "after put ledger/", 2)  # the older query settles its epoch 1, with the other's carried; and dies
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


@pytest.mark.parametrize("until", ["-- batch 0 is read", "-- batch 0 is in the sink"])
def test_a_copy_of_what_a_later_link_serves_is_not_served(world: World, until: str) -> None:
    """The other query carries two links of this one's into one of its own. No link of this one's defers anything."""
    world.send("a1")

    def send_another() -> None:
        world.send("a2")
        crash_at(world, until)

    do_at(world, "after put epochs/00000000000000000001/0000-000000", send_another)
    with pytest.raises(Crash):
        Query(world).trigger()
    world.die(down_s=LAPSE_S)
    assert world.store.under("epochs/00000000000000000001/0000-000002")
    other_takes_over(world)
    finish(world)


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


def killed_at(world: World, query: Query, wanted: str) -> None:
    """Trigger until `wanted`, where all processes are killed; what they hold lapses."""
    crash_at(world, wanted)
    with pytest.raises(Crash):
        query.trigger()
    world.on_step = lambda event: None
    world.die(down_s=LAPSE_S)


def first_turns(world: World) -> Checkpoint:
    """The world's query serves its first batch; so does another, which is killed when its second batch is logged."""
    world.send("a1")
    Query(world).trigger()
    world.die(down_s=LAPSE_S)
    world.send("b1")
    checkpoint = Checkpoint()
    other = Query(world, checkpoint=checkpoint)
    other.trigger()
    killed_at(world, other, "-- batch 1 is ")
    return checkpoint


def require_none_lost(world: World, *checkpoints: Checkpoint) -> None:
    """All that was sent is in one of the sinks, at most once in each, once a new query has looked for more."""
    last = Checkpoint()
    query = Query(world, checkpoint=last)
    for number in range(3):
        world.send(f"z{number}")
        query.trigger()
    for each in (*checkpoints, last):
        counts = Counter(row.body for rows in each.rows() for row in rows)
        assert not {body: count for body, count in counts.items() if count > 1}
    found = {row.body for each in (*checkpoints, last) for rows in each.rows() for row in rows}
    assert not {row.body for row in world.sent} - found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("until", ["-- batch 1 is read", "-- batch 1 is in the sink"])
def test_two_queries_use_the_same_number(make_world: Callable[..., World], until: str, mode: str) -> None:
    """Both have an epoch 7: the older query's tasks have deleted its messages when the newer one goes on with its own.

    What the other one has under that number is carried, not dropped.
    """
    world = make_world(numPartitions="1", deleteAfter=mode, waitTimeSeconds="1")
    other = first_turns(world)
    world.send("c1", "c2")
    killed_at(world, Query(world).resume(), until)
    assert world.offsets[-1].epoch == other.offsets[-1].epoch
    query = Query(world, checkpoint=other).resume()
    query.drain()
    require_none_lost(world, world.checkpoint, other)


@pytest.mark.parametrize("mode", MODES)
def test_the_other_one_has_the_number_that_spark_has_committed(make_world: Callable[..., World], mode: str) -> None:
    """The same, where nothing runs again: what the other one has is released before the last epoch is judged."""
    world = make_world(numPartitions="1", deleteAfter=mode, waitTimeSeconds="1")
    other = first_turns(world)
    world.send("c1", "c2")
    killed_at(world, Query(world).resume(), "-- batch 1 is read")
    Query(world, checkpoint=other).resume()  # batch 1 runs, and Spark commits it; nothing settles it
    world.die(down_s=LAPSE_S)
    assert 1 in other.committed
    world.send("d1")
    Query(world, checkpoint=other).resume().drain()
    require_none_lost(world, world.checkpoint, other)


def test_a_ledger_says_what_its_driver_has_seen() -> None:
    """What older drivers' tasks had put before its claim; of what comes with or after that claim, it says nothing."""
    ledger = Ledger(5, claim=3, followed_by=Offset("j", 6, 1, 2), released=frozenset({"9/1"}))
    assert [ledger.has_seen(EpochPlan(*each)) for each in [(6, 2), (9, 1), (9, 3), (6, 4)]] == [True] * 4
    assert [ledger.has_seen(EpochPlan(*each)) for each in [(6, 1), (7, 2), (9, 2)]] == [False] * 3


def test_what_is_taken_back_may_be_released_again() -> None:
    """The ledger says that another query has released it. Its own one goes on with it, so ledgers say that no more."""
    journal = Journal(MemoryStore(lambda event: None, ManualClock()), "j")
    names = [Journal.caught_name(7, 2), Journal.caught_name(8, 2)]
    ledger = Ledger(1, claim=3, released=frozenset({"7/2", "8/2"}))
    found = Leftovers(journal, CallingThread(), {7: names[:1], 8: names[1:]}, ledger, release=lambda receipts: None)
    assert found.released_above(6) == {"7/2", "8/2"}
    found.take(Offset("j", 7, 1, 2), ledger)
    assert found.released_above(6) == {"8/2"}
    assert found.others() == []


@pytest.mark.parametrize("mode", MODES)
def test_what_a_fenced_task_seals_is_in_the_queue_still(make_world: Callable[..., World], mode: str) -> None:
    """It seals after the newer owner's list, so it deletes nothing; what that owner has served, nobody carries."""
    world = make_world(numPartitions="1", deleteAfter=mode)
    world.send("a1")
    Query(world).trigger()
    world.die(down_s=LAPSE_S)
    world.send("x1")
    fenced = Query(world, checkpoint=Checkpoint())
    fenced.log(fenced.latest_offset(fenced.start_of(0)))
    plan = fenced.plans(0)[0]
    query = Query(world)
    do_at(world, "before put epochs/", lambda: query.driver._claimed(world.offsets[-1]))
    with suppress(FencedError):
        read(world, plan)
    assert any(plan.epoch == epoch for epoch in world.journal().objects())
    world.clock.advance(LAPSE_S)
    query.resume()
    for _ in range(3):
        query.trigger()
    assert "x1" in world.bodies()
    world.die(down_s=LAPSE_S)
    world.send("c1")
    Query(world).resume().drain()
    world.audit()


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
    query.driver.commit(query.checkpoint.offsets[0])
    assert query.driver._claimed(None).ledger.carried
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


def test_a_checkpoint_that_stands_at_another_querys_number_is_refused(make_world: Callable[..., World]) -> None:
    """Both have served an epoch 7, and the other one has settled its own: of this one's, it has carried the rest."""
    world = make_world(numPartitions="1", deleteAfter="journal", waitTimeSeconds="1")
    other = first_turns(world)
    world.send("c1", "c2")
    query = Query(world).resume()
    query.trigger()
    world.die(down_s=LAPSE_S)
    back = Query(world, checkpoint=other).resume()
    world.send("d1")
    back.trigger()
    world.die(down_s=LAPSE_S)
    assert world.journal().ledger().settled == other.offsets[1].of
    assert world.offsets[-1].epoch == other.offsets[1].epoch
    with pytest.raises(DataLossError, match="another query has consumed the queue since"):
        Query(world).resume().trigger()
    require_none_lost(world, world.checkpoint, other)


@pytest.mark.parametrize("first_mode", MODES)
def test_what_another_query_has_unlocked_is_not_sealed_in_front_of_it(world: World, first_mode: str) -> None:
    """A task whose query is fenced receives it, but looks at the journal before it puts it anywhere."""
    theirs, mine = world.options, replace(world.options, delete_after=first_mode)
    Query(world, checkpoint=Checkpoint()).start_of(0)  # the first one: from now on, tasks may delete
    world.options = mine
    world.send("c1")
    query = Query(world)
    query.log(query.latest_offset(query.start_of(0)))
    (plan,) = query.plans(0)

    def another_one() -> None:
        world.options = theirs
        world.send("b1")
        crash_at(world, "-- batch 0 is read")
        with pytest.raises(Crash):
            Query(world, checkpoint=Checkpoint()).trigger()
        assert "b1" in world.deleted()
        world.send("b2")
        world.options = mine

    do_at(world, "before ReceiveMessage", another_one)
    with pytest.raises(FencedError):
        query.read(plan)
    (released,) = world.receive_elsewhere(visibility_timeout_s=1)
    assert released["Body"] == "b2"
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    assert [body for body in world.bodies() if body.startswith("b")] == ["b1", "b2"]


def test_tasks_do_not_delete_while_those_of_another_query_may_not_look(world: World) -> None:
    """On a journal where all has been deleted after the commit, they begin with an epoch that is above all others.

    The other query is behind then: what its tasks have sealed meanwhile is never served.
    """
    theirs, mine = world.options, replace(world.options, delete_after="commit")
    world.options = mine
    world.send("c1")
    query = Query(world)
    query.log(query.latest_offset(query.start_of(0)))
    (plan,) = query.plans(0)
    other = Checkpoint()

    def another_one() -> None:
        world.options = theirs
        world.send("b1")
        crash_at(world, "-- batch 0 is read")
        with pytest.raises(Crash):
            Query(world, checkpoint=other).trigger()
        assert not world.deleted()
        world.send("b2")
        world.options = mine

    do_at(world, "before ReceiveMessage", another_one)
    with pytest.raises(FencedError):
        query.read(plan)
    world.die(down_s=LAPSE_S)
    world.options = theirs
    newer = Query(world, checkpoint=other).resume()
    before_commit: list[bool] = []

    def one_more(batch: int) -> None:
        world.send(f"d{batch}")
        do_at(world, f"-- batch {batch} is read", lambda: before_commit.append(f"d{batch}" in world.deleted()))
        assert newer.trigger()

    for batch in range(1, 5):
        one_more(batch)
    assert before_commit == [False, False, True, True]
    world.die(down_s=LAPSE_S)
    world.options = mine
    with pytest.raises(DataLossError):
        Query(world).resume().drain()
    Query(world, checkpoint=other).resume().drain()
    assert [row.body for rows in other.rows() for row in rows if row.body[0] == "b"] == ["b1", "b2"]


def test_a_query_that_begins_to_delete_leaves_older_queries_numbers_behind(make_world: Callable[..., World]) -> None:
    """One of them stands at a number that it has skipped to, and the journal has no object of that yet."""
    world = make_world(numPartitions="1", deleteAfter="commit", waitTimeSeconds="1")
    mine = world.options
    world.send("c1")
    Query(world).trigger()
    world.die(down_s=LAPSE_S)
    other = Checkpoint()
    older = Query(world, checkpoint=other, tells_start=False, is_wrapped=True).resume()
    older.log(older.latest_offset(older.start_of(0)))
    (plan,) = older.plans(0)
    assert not plan.looks

    def begin_to_delete() -> None:
        world.options = replace(mine, delete_after="journal")
        query = Query(world).resume()
        for number in range(4):
            world.send(f"d{number}")
            query.trigger()
        world.send("b1")
        crash_at(world, f"-- batch {len(world.offsets)} is read")
        with pytest.raises(Crash):
            query.trigger()
        assert "b1" in world.deleted()
        world.send("b2")

    do_at(world, "before ReceiveMessage", begin_to_delete)
    with pytest.raises(EpochSettledError):
        read(world, plan)
    world.die(down_s=LAPSE_S)
    with pytest.raises(DataLossError, match="asks for epoch 6 again"):
        Query(world, checkpoint=other).resume().drain()
    Query(world).resume().drain()
    require_none_lost(world, world.checkpoint, other)
    assert [body for body in world.bodies() if body[0] == "b"] == ["b1", "b2"]


def paused(world: World, call: Callable[[], object], before: str) -> greenlet:
    """Do `call` up to the step that begins with `before`; `switch` goes on with it, to its end."""
    here = getcurrent()

    def on_step(event: str) -> None:
        if getcurrent() is it and event.startswith(before):
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
    settling = paused(world, lambda: first.driver.commit(world.offsets[0]), "before put ledger/")
    second, third = Query(world), Query(world)
    opening = paused(world, second.resume, "before list ledger")
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


@in_both_modes
def test_a_driver_that_stood_still_before_its_put_does_not_go_on_with_what_it_has_caught(world: World) -> None:
    """Another one has committed and deleted that meanwhile, and has not seen the object: nobody would know a copy."""
    mode = world.options.delete_after
    Query(world, checkpoint=Checkpoint()).start_of(0)  # from now on tasks may delete, where that is the mode
    world.options = replace(world.options, delete_after="commit")
    world.send("a1")
    Query(world).trigger()
    world.die(down_s=LAPSE_S)
    assert world.bodies() == ["a1"]
    world.options = replace(world.options, delete_after=mode)
    other = Checkpoint()
    query = Query(world, checkpoint=other)
    late = paused(world, lambda: query.log(query.latest_offset(query.start_of(0))), "before put epochs/")
    world.die(down_s=LAPSE_S)
    world.send("b1")
    Query(world).resume().trigger()
    assert "a1" in world.deleted()
    world.die(down_s=LAPSE_S)
    with pytest.raises(FencedError):
        late.switch()
    assert not other.offsets
    back = Query(world, checkpoint=other).resume()
    world.send("c1")
    back.trigger()
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    require_none_lost(world, world.checkpoint, other)
    assert world.bodies().count("a1") == 1


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


@in_both_modes
def test_what_a_task_that_stood_still_has_deferred_is_not_carried(world: World) -> None:
    """Another query has committed and deleted that meanwhile, and has not seen the link: nobody would know a copy."""
    mode = world.options.delete_after
    Query(world, checkpoint=Checkpoint()).start_of(0)  # from now on tasks may delete, where that is the mode
    world.options = replace(world.options, delete_after="commit")
    world.send("a1")
    Query(world).trigger()
    world.die(down_s=LAPSE_S)
    assert world.bodies() == ["a1"]
    world.options = replace(world.options, delete_after=mode)
    other = Checkpoint()
    query = Query(world, checkpoint=other, tells_start=False, is_wrapped=True).resume()
    late = paused(world, query.trigger, "before put epochs/")
    world.die(down_s=LAPSE_S)
    world.send("b1")
    Query(world).resume().trigger()
    assert "a1" in world.deleted()
    world.die(down_s=LAPSE_S)
    Query(world, tells_start=False, is_wrapped=True).resume().trigger()  # its number is above the other one's
    world.die(down_s=LAPSE_S)
    with pytest.raises(FencedError):
        late.switch()
    world.die(down_s=LAPSE_S)
    back = Query(world, checkpoint=other).resume()
    world.send("c1")
    back.trigger()
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    require_none_lost(world, world.checkpoint, other)
    assert world.bodies().count("a1") == 1


@in_both_modes
def test_what_a_query_has_not_served_before_another_took_over_is_not_carried_to_that(world: World) -> None:
    """That one has committed it, and SQS has it no longer: nobody would know it for a copy."""
    mode = world.options.delete_after
    world.options = replace(world.options, delete_after="commit")
    world.send("a1")
    killed_at(world, Query(world), "-- batch 0 is in the sink")
    other = Checkpoint()
    query = Query(world, checkpoint=other)
    query.log(query.latest_offset(query.start_of(0)))
    assert query.driver._next is not None
    assert query.driver._next.caught
    world.die(down_s=LAPSE_S)
    world.options = replace(world.options, delete_after=mode)
    for each in world.receive_elsewhere():
        world.model.call("DeleteMessage", {"QueueUrl": world.url, "ReceiptHandle": each["ReceiptHandle"]})
    # The older query commits a1; then it is killed in a batch whose number is above the other one's.
    world.send("b1")
    query = Query(world).resume()
    query.log(query.latest_offset(query.start_of(1)))
    query.driver.commit(world.offsets[0])
    assert not world.journal().ledger().unconfirmed
    query.run(1)
    world.die(down_s=LAPSE_S)
    back = Query(world, checkpoint=other).resume()
    world.send("c1")
    back.trigger()
    assert world.journal().ledger().settled == other.offsets[0].of
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    require_none_lost(world, world.checkpoint, other)
    assert world.bodies().count("a1") == 1


@in_both_modes
@pytest.mark.parametrize("is_read", [True, False])
def test_what_a_driver_announces_after_it_was_overtaken_does_not_go_on_from_a_released_epoch(
    world: World, is_read: bool
) -> None:
    """Spark has logged it, and perhaps committed it unread. Another query has dropped the epoch before, unsettled."""
    world.send("a1")
    Query(world).trigger()
    world.die()
    other = Checkpoint()
    world.send("b1")
    Query(world, checkpoint=other).trigger()
    world.die()
    query = Query(world, tells_start=False).resume()
    late = paused(world, lambda: query.log(query.latest_offset(query.start_of(1))), "before GetQueueAttributes")
    back = Query(world, checkpoint=other).resume()
    world.send("b2")
    back.trigger()
    late.switch()
    assert world.offsets[0].epoch < world.journal().ledger().epoch < world.offsets[1].epoch
    with pytest.raises(FencedError):
        query.driver.commit(world.offsets[0])
    world.die(down_s=LAPSE_S)
    again = Query(world, reads=lambda batch, count: range(count) if is_read else None)
    with pytest.raises(DataLossError, match="another query has consumed the queue since"):
        again.resume().trigger()
    world.die(down_s=LAPSE_S)
    Query(world, checkpoint=other).resume().drain()
    require_none_lost(world, world.checkpoint, other)
    assert world.bodies() == ["a1"]


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
        old.driver.commit(world.offsets[0])
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
