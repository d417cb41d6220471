"""Spark's log goes on, or has lost its last entry while tasks of that epoch, or other runs, go on."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from sqs_fifo_spark.errors import DataLossError, FencedError, OptionError, SqsFifoError
from sqs_fifo_spark.source.offset import Offset
from tests.helpers import raises_one_line
from tests.simulation.spark import ConcurrentUpdateError
from tests.simulation.world import LAPSE_S
from tests.unit.by_hand import MODES, WRAPPED, HandHeartbeat, Query, World, in_both_modes, in_both_modes_with, unread

pytestmark = pytest.mark.law("source-3", "source-5")


def test_an_offset_log_that_goes_back_is_told_in_one_line(world: World) -> None:
    """Whatever wrote it: nothing is served twice, and the line says what to do."""
    query = world.served("a1")
    journal = world.offsets[0].journal
    with raises_one_line(DataLossError, match="goes back, from epoch 5 to epoch 2"):
        query.startless.plan(Offset(journal, 5, 1, 1, generation=1), Offset(journal, 2, 1, 1, generation=1))


def test_reading_on_without_a_commit_is_refused(world: World) -> None:
    """Asynchronous progress tracking commits late and skips epochs; their messages would be deleted too early."""
    query = world.served("a1")
    world.send("b1")
    end = query.latest_offset(world.offsets[0])
    query.log(end)
    with raises_one_line(OptionError, match="'asyncProgressTrackingEnabled'"):
        query.startless.plan(world.offsets[0], end)
    assert world.deleted() == []


@in_both_modes_with(numPartitions="1", waitTimeSeconds="1")
@pytest.mark.parametrize("tells_start", [True, False])
def test_a_run_of_one_micro_batch_serves_what_waits_though_another_source_went_on_alone(
    world: World, tells_start: bool
) -> None:
    """Trigger.Once with two sources: ours was idle, so Spark committed our last epoch, and has lost none."""
    for batch, bodies in enumerate((["a1"], [], [], ["a2"], [], [], ["a3"])):
        world.send(*bodies)
        before = len(world.bodies())
        query = Query(world, tells_start=tells_start).resume()
        start = query.start_of(batch)
        end = query.latest_offset(start)
        query.log(end)
        if batch:
            query.startless.commit(query.offsets[batch - 1])
        if end == start:
            query.into_sink({}, batch)
        else:
            query.run(batch)
        assert world.bodies()[before:] == bodies
        world.die(down_s=LAPSE_S)


# Entries that are lost


def another_goes_on_alone(query: Query) -> None:
    """Let the next batch have rows of another source only."""
    batch = len(query.offsets)
    start = query.start_of(batch)
    assert query.latest_offset(start) == start
    query.goes_on_alone(start)


@in_both_modes_with(numPartitions="1", waitTimeSeconds="1")
@pytest.mark.parametrize("tells_start", [True, False])
@pytest.mark.parametrize("available_now", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
def test_an_unread_batch_keeps_its_id_though_another_source_went_on_alone_before(
    world: World, tells_start: bool, available_now: bool, restarts: bool
) -> None:
    """The ledger says what follows the epoch that Spark has committed three times. The log loses that batch then."""
    world.send("a1", "a2")
    query = Query(world, tells_start=tells_start, available_now=available_now)
    query.play_out()
    another_goes_on_alone(query)
    if restarts:
        world.die(down_s=LAPSE_S)
        query = Query(world, tells_start=tells_start).resume()
    else:
        another_goes_on_alone(query)
    if available_now and not restarts:
        return  # it has ended
    unread = len(query.offsets)
    query._reads = lambda batch, count: None if batch == unread else range(count)
    world.send("b1")
    assert query.trigger()
    world.die(down_s=LAPSE_S)
    lost = world.lose_entry()
    world.send("c1")
    assert Query(world, tells_start=tells_start).resume().trigger()
    assert world.offsets[unread] == lost
    world.restart(down_s=LAPSE_S)


def run_on(world: World) -> None:
    """Let a few further runs, of one micro-batch each, serve what there is."""
    for _ in range(3):
        world.ran(tells_start=False)


@in_both_modes_with(numPartitions="1")
@pytest.mark.parametrize("has_lapsed", [False, True])
@pytest.mark.parametrize("is_in_sink", [False, True])
def test_an_epoch_that_sparks_log_has_lost_is_announced_again_as_it_was(
    world: World, is_in_sink: bool, has_lapsed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The last file of the offset log is gone: the sink may have its batch, and skips the batch id."""
    query = world.served("a1", "a2")
    world.send("b1", "b2")
    query.trigger()
    world.die(down_s=LAPSE_S * has_lapsed)
    lost = world.lose_entry()
    if not is_in_sink:
        world.sink.pop(1)
    world.send("c1")
    with caplog.at_level(logging.WARNING):
        query = Query(world).resume().drain()
    assert f"the checkpoint does not know of epoch {lost.epoch}" in caplog.text
    assert world.offsets[1].epoch == lost.epoch
    world.clock.advance(LAPSE_S)
    query.drain()
    assert sorted(world.bodies()) == ["a1", "a2", "b1", "b2", "c1"]


@in_both_modes_with(numPartitions="1")
def test_an_epoch_that_was_announced_blindly_and_lost_is_announced_again_too(world: World) -> None:
    """Its number lies far behind the one before it. Under the wrapper, where it is too late for that, it is noticed."""
    for bodies in (("a1", "a2"), ("b1", "b2")):
        world.ran(*bodies, **WRAPPED)
    lost = world.lose_entry()
    assert lost.is_blind
    assert lost.epoch > world.offsets[-1].epoch + 1
    world.send("c1")
    with pytest.raises(DataLossError, match=f"the checkpoint does not know of epoch {lost.epoch}"):
        Query(world, **WRAPPED).resume().trigger()
    world.die()
    Query(world, tells_start=False).resume().drain()
    assert sorted(world.bodies()) == ["a1", "a2", "b1", "b2", "c1"]


@in_both_modes_with(numPartitions="1", waitTimeSeconds="1")
@pytest.mark.parametrize("available_now", [True, False])
def test_a_batch_id_that_the_sink_may_have_gets_no_other_rows(world: World, available_now: bool) -> None:
    """The last micro-batch only committed, so the journal has nothing of it, and Spark's log has lost it."""
    world.send("a1", "a2")
    Query(world, available_now=available_now).play_out()
    world.die()
    assert world.offsets.pop().partitions == 0
    batch = len(world.offsets)
    assert batch in world.sink
    world.committed.discard(batch)
    world.clock.advance(LAPSE_S)
    world.send("b1")
    Query(world).resume().drain()
    assert world.sink[batch] == {}
    assert sorted(world.bodies()) == ["a1", "a2", "b1"]


@in_both_modes_with(numPartitions="1", waitTimeSeconds="1")
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_lost_entry_without_rows_is_noticed_under_the_wrapper(world: World, is_wrapped: bool) -> None:
    """Another epoch was announced by then, and the sink may have its batch id; without the wrapper all goes on."""
    world.send("a1", "a2")
    Query(world).play_out()
    world.die(down_s=LAPSE_S)
    assert world.lose_entry().partitions == 0
    world.send("b1")
    if is_wrapped:
        with pytest.raises(DataLossError, match="the checkpoint does not know of epoch 2,"):
            Query(world, **WRAPPED).resume()
        world.die()
    run_on(world)
    assert sorted(world.bodies()) == ["a1", "a2", "b1"]


@pytest.mark.parametrize("how", ["another mode", "wrapped", "plain"])
@in_both_modes_with(numPartitions="1")
@pytest.mark.parametrize("last_mode", MODES)
def test_an_epoch_that_is_lost_twice_stays_as_it_was_announced_again(world: World, how: str, last_mode: str) -> None:
    """Whatever its number, for it may skip some. The sink has its batch without rows, so none may come."""
    world.ran("a1")
    world.send("b1")
    given = world.options
    if how == "another mode":
        world.options = replace(given, delete_after="journal")
    query = Query(world, tells_start=how != "wrapped", is_wrapped=how == "wrapped").resume()
    query.announce()
    (plan,) = query.plans(1)

    def lose_both() -> None:
        HandHeartbeat.live.clear()
        world.offsets.pop()
        world.options = replace(given, delete_after=last_mode)
        world.crash("-- batch 1 is in the sink", lambda: Query(world).resume().trigger())
        HandHeartbeat.live.clear()
        world.offsets.pop()
        assert not any(world.sink[1].values())

    world.do_at(f"before put epochs/{plan.epoch:020d}/0000", lose_both)
    with suppress(SqsFifoError):
        world.read(plan)
    world.restart(down_s=LAPSE_S, allow_forgotten=True)


@in_both_modes
def test_the_lost_epoch_is_announced_again_under_its_name(world: World) -> None:
    """With as many partitions."""
    groups = "abcdefghij"
    query = world.served(*(f"{group}1" for group in groups))
    world.send(*(f"{group}2" for group in groups))
    query.announce()
    lost = world.offsets[1]
    query.run(1)
    world.die(down_s=LAPSE_S)
    world.lose_entry()
    again = Query(world).resume()
    assert again.trigger()
    assert world.offsets[1] == lost
    again.drain()
    assert len(set(world.bodies()) - {"last1"}) == 20
    assert lost.partitions > 1
    world.audit()


@in_both_modes
@pytest.mark.parametrize("is_lost_again", [False, True])
def test_a_lost_epoch_is_closed_before_it_is_logged_again(world: World, is_lost_again: bool) -> None:
    """Its batch gets into the sink without a look at its rows; a task of the first announcement is late."""
    world.ran("a1")
    world.send("b1")
    query = Query(world).resume()
    query.announce()
    plan = query.plans(1)[0]

    def lose() -> None:
        HandHeartbeat.live.clear()
        world.offsets.pop()
        world.crash("-- batch 1 is in the sink", lambda: Query(world, reads=unread(1)).resume().trigger())
        HandHeartbeat.live.clear()
        if is_lost_again:
            world.offsets.pop()

    world.do_at(f"before put epochs/{plan.epoch:020d}/0000", lose)
    with suppress(SqsFifoError):
        world.read(plan)
    world.restart(down_s=LAPSE_S, allow_forgotten=True)


@in_both_modes_with(numPartitions="1")
def test_what_an_overlapping_run_announced_in_vain_is_not_taken_for_what_the_log_has_lost(world: World) -> None:
    """Spark has refused to log it, and has logged the other run's epoch."""
    world.ran("a1")
    world.send("b1")
    logged, late = Query(world).resume(), Query(world)
    logged.announce()
    (plan,) = logged.plans(1)

    def announce_late() -> None:
        end = late.latest_offset(late.start_of(1))
        with pytest.raises(ConcurrentUpdateError):
            late.log(end)

    world.do_at(f"before put epochs/{plan.epoch:020d}/0000", announce_late)
    with pytest.raises(FencedError):
        world.read(plan)
    world.die(down_s=LAPSE_S)
    world.kill("-- batch 1 is in the sink", lambda: Query(world).resume().trigger(), down_s=LAPSE_S)
    world.offsets.pop()
    world.restart(allow_forgotten=True)


def log_in_place_of_a_lost_entry(world: World, **how: Any) -> tuple[Query, Offset, Offset]:
    """Let an overtaken run, started so, log its epoch where the log has lost one that the sink has.

    Return that run, its entry, and the lost one.
    """
    world.ran("a1")
    world.send("b1", "b2")
    overtaken = Query(world, **how).resume()
    late = overtaken.latest_offset(overtaken.start_of(1))
    world.kill("-- batch 1 is in the sink", lambda: Query(world).resume().trigger(), down_s=LAPSE_S)
    lost = world.offsets.pop()
    overtaken.log(late)
    return overtaken, late, lost


@in_both_modes
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_what_an_overtaken_run_logs_in_the_place_of_a_lost_entry_is_refused(
    world: World, is_wrapped: bool, is_read: bool
) -> None:
    """The sink has that batch, with rows of the lost epoch: they would come again, under the next id."""
    overtaken, late, lost = log_in_place_of_a_lost_entry(world)
    with pytest.raises(FencedError):
        overtaken.startless.commit(world.offsets[0])
    world.die(down_s=LAPSE_S)
    how: dict[str, Any] = {"tells_start": not is_wrapped, "is_wrapped": is_wrapped}
    for _ in range(2):
        with pytest.raises(DataLossError, match=f"has lost epoch {lost.epoch}, .* another one in its place"):
            Query(world, **how, reads=lambda batch, count: range(count) if is_read else None).resume().drain()
        world.die(down_s=LAPSE_S)
    assert world.lose_entry() == late
    world.restart(allow_forgotten=True)


UNREAD = "its rows were never read, so nobody can tell whether Spark has committed epoch"


@in_both_modes
@pytest.mark.parametrize("is_committed", [False, True])
def test_the_remedy_leads_out_where_nobody_looked_at_the_rows_of_a_blind_entry(
    world: World, is_committed: bool
) -> None:
    """An overtaken run has logged it in the place of a lost one: the sink has the lost one's batch, once. [law 5]"""
    _, late, lost = log_in_place_of_a_lost_entry(world, **WRAPPED)
    if is_committed:
        world.committed.add(1)
    world.die(down_s=LAPSE_S)
    with pytest.raises(DataLossError, match=UNREAD) as told:
        Query(world, **WRAPPED, reads=unread(1)).resume().trigger()
    assert f"Remove the entry of epoch {late.epoch} and those behind it, if any, below 'offsets'" in str(told.value)
    assert "triggerAvailableNowWrapper.enabled' set to false" in str(told.value)
    world.die(down_s=LAPSE_S)
    del world.offsets[world.offsets.index(late) :]
    world.committed.discard(1)
    Query(world, tells_start=False).resume().trigger()
    assert world.offsets[1] == lost
    world.restart(down_s=LAPSE_S, allow_forgotten=True)
