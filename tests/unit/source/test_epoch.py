"""An epoch on the driver: what it catches, closes, replays, and what nobody reads of it."""

from __future__ import annotations

import pytest
from greenlet import greenlet

from sqs_fifo_spark.errors import FencedError, JournalUnavailableError
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.segment import decode
from tests.helpers import raises_one_line
from tests.simulation.world import LAPSE_S, Checkpoint
from tests.unit.by_hand import MakeWorld, Query, World, in_both_modes, in_both_modes_with, with_options
from tests.unit.source.attempts import FIRST_LINK, SECOND_LINK, Attempts, begin, bodies, handles, links, told

pytestmark = pytest.mark.law("source-3")

OPTIONS = {"numPartitions": "1", "deleteAfter": "journal"}


@in_both_modes
def test_partition_without_segment_has_shown_no_row(world: World) -> None:
    """A task killed at any step before its put has yielded nothing, and another attempt starts afresh."""
    world.send("a1", "a2", "b1")
    world.crash("before put epochs/", Query(world).trigger)
    assert not world.store.under("epochs/")
    assert not world.sink
    world.restart(down_s=0)


@in_both_modes_with(numPartitions="8")
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


@in_both_modes
def test_what_the_probe_catches_is_durable_before_spark_logs_its_epoch(world: World) -> None:
    """The plan only names it: a task finds it in the journal, and a restart needs no other receive for it."""
    world.send("a1", "a2", "b1")
    query = Query(world)
    end = query.latest_offset(query.start_of(0))
    name = Journal.caught_name(end.epoch, end.plan)
    assert world.store.under("epochs/") == [name]
    head = decode(world.store.objects[name], name).head
    assert bodies(world, head) == [["a1", "a2", "b1"]]
    assert not head.origin.deletes, "no task has it yet"
    query.log(end)
    world.die()
    query = Query(world)
    (plan,) = query.plans(0)
    assert world.carried(plan) == {name: [receipt.message_id for receipt in head.receipts]}
    query.run(0)
    assert world.received() == 3
    query.drain_and_audit()


@in_both_modes
def test_what_was_caught_for_an_epoch_that_spark_never_logged_is_given_back(world: World) -> None:
    """No micro-batch has it: the next driver's are served what the queue gives, and nobody waits for a timeout."""
    query = world.served("x1")
    query.play_out()
    world.send("a1", "b1")
    end = query.latest_offset(world.offsets[-1])
    assert Journal.caught_name(end.epoch, end.plan) in world.store.objects
    world.die()
    began_at = world.clock.now()
    world.send("c1")
    query = Query(world).resume()
    while len(world.bodies()) < 4:
        assert query.trigger()
    assert world.clock.now() == began_at
    query.drain_and_audit()
    assert not world.store.under("epochs/")


# Closing against appending


@in_both_modes
def test_a_partition_that_nobody_read_is_closed_empty(world: World) -> None:
    """So no late attempt gives it rows; what was decided for it comes in the next micro-batch, received once."""
    query, plan = begin(world, "a1")
    query.into_sink({})
    end = query.latest_offset(query.start_of(1))
    (link,) = links(world)
    assert (link.chain.is_last, link.chain.served, link.receipts) == (True, 0, ())
    before = world.received()
    assert world.read(plan) == []
    assert world.received() == before
    query.log(end)
    query.startless.commit(query.offsets[0])
    query.run(1)
    assert [each for rows in world.sink[1].values() for each in told(rows)][:1] == ["z1"]
    query.drain_and_audit()
    assert world.received() == 2


def test_the_driver_closes_what_no_task_has_closed(world: World) -> None:
    """It says what the chain comes to, and names what may be in flight: the commit deletes that."""
    query, plan = begin(world, *(f"a{number}" for number in range(25)))
    world.crash(f"after put {SECOND_LINK}", lambda: world.read(plan))
    served = [row for head in bodies(world, *links(world)) for row in head]
    query.into_sink({})
    query.latest_offset(query.start_of(1))
    *_, tail, closing = links(world)
    assert (closing.receipts, closing.chain.is_last) == ((), True)
    assert closing.chain.served == len(served) == 21
    assert handles(closing.chain.unconfirmed) == handles(tail.in_flight())
    assert closing.origin.deletes
    assert told(world.read(plan)) == served
    world.sink[0] = {0: world.read(plan)}
    query.drain_and_audit()


@in_both_modes
def test_the_close_finds_a_link_taken_and_follows_it(world: World) -> None:
    """A leftover was faster: its link is content, for the driver as for every read."""
    query, plan = begin(world, "a1")
    attempts = Attempts(world)
    late = attempts.begin(plan, "before put epochs/")
    query.into_sink({})

    def faster(event: str) -> None:
        if greenlet.getcurrent() is late:
            attempts.on_step(event)
        elif event.startswith(f"before put {FIRST_LINK}") and not late.dead:
            attempts.go_on(late, "after put")

    world.on_step = faster
    end = query.latest_offset(query.start_of(1))
    attempts.kill(late)
    chain = links(world)
    assert bodies(world, *chain)[0] == ["z1", "a1"]
    assert chain[-1].chain.is_last
    assert chain[-1].chain.served == 2
    world.sink[0] = {0: world.read(plan)}
    query.log(end)
    query.startless.commit(query.offsets[0])
    query.run(1)
    query.drain_and_audit()


# Replays


@in_both_modes
def test_a_replay_reads_and_receives_nothing(world: World) -> None:
    """Its sink may have the rows by then, and without what no task had read: that stays for the next micro-batch."""
    query, _ = begin(world, "a1", "b1")
    world.crash("-- batch 0 is in the sink", lambda: query.run(0))
    rows = world.sink.pop(0)
    world.send("c1", "d1")
    world.die()
    query = Query(world)
    before = world.received()
    query.run(0)
    assert world.received() == before
    assert world.sink[0] == rows
    query.drain_and_audit()


@in_both_modes
def test_a_replay_closes_the_partitions_that_nobody_has_sealed(make_world: MakeWorld, world: World) -> None:
    """Empty, before it plans: a second attempt of the dead driver's tasks finds them closed."""
    world = make_world(numPartitions="3", deleteAfter=world.options.delete_after)
    world.send(*(f"{group}1" for group in "abcdefghij"))
    query, old = world.planned(reads=lambda batch, count: range(1) if batch == 0 else range(count))
    others = len(old) - 1
    assert others
    world.crash("-- batch 0 is in the sink", lambda: query.run(0))
    rows = world.sink.pop(0)
    world.die()
    query = Query(world)
    plans = query.plans(0)
    assert all(links(world, partition=index)[-1].chain.is_last for index in range(len(old)))
    served = [any(link.receipts for link in links(world, partition=index)) for index in range(len(old))]
    assert served == [bool(rows[0])] + [False] * others
    world.send("z1")
    for plan in plans[1:]:
        assert world.read(plan) == []
    for plan in old[1:]:
        with pytest.raises(FencedError):
            world.read(plan)
    query.run(0)
    assert world.sink[0][0] == rows[0]
    query.drain_and_audit()


@with_options(maxMessagesPerTrigger="3", numPartitions="2", deleteAfter="commit")
def test_a_replay_of_a_half_sealed_epoch_keeps_the_limit(world: World) -> None:
    """Segments of the dead driver's tasks count."""
    world.send(*(f"{group}1" for group in "defabcghijkl"))  # the probe has caught the first three
    query = Query(world)
    world.kill("after put epochs/", query.trigger)
    Query(world).resume().drain()
    assert max(sum(map(len, rows.values())) for rows in world.sink.values()) == 3
    world.audit()


@in_both_modes_with(numPartitions="2", waitTimeSeconds="1")
def test_who_closes_a_chain_after_a_restart_says_what_it_follows(world: World) -> None:
    """A partition was never read; a restart closes it, with no `after`; then the log loses the batch."""
    query = world.served(*(f"{g}1" for g in "bcdefghijk"))
    world.send(*(f"{g}2" for g in "bcdefghijk"))
    query = Query(world, reads=lambda batch, count: range(1) if batch else range(count))
    world.die(down_s=LAPSE_S)
    query.resume().trigger()
    assert world.offsets[-1].partitions == 2
    epoch = world.offsets[-1].epoch
    world.die(down_s=LAPSE_S)
    world.kill(f"after put epochs/{epoch:020d}/0001-000000", lambda: Query(world).resume().trigger(), down_s=LAPSE_S)
    assert len(world.offsets) == 2
    world.lose_entry()
    Query(world).resume().drain()
    world.pass_time(LAPSE_S)
    Query(world).resume().drain()
    assert sorted(world.bodies()) == sorted(row.body for row in world.sent)


def test_what_is_carried_and_gone_from_the_journal_stops_the_query(world: World) -> None:
    """It may be all that there was of it: one line names it, and nothing goes on without it."""
    query, plan = begin(world, *(f"a{number}" for number in range(25)))
    world.read(plan)
    world.die()
    world.checkpoint = Checkpoint()
    query = Query(world)
    query.log(query.latest_offset(query.start_of(0)))
    name = world.store.under(FIRST_LINK)[0]
    world.store.objects.pop(name)
    with raises_one_line(JournalUnavailableError, match=name):
        query.plans(0)
