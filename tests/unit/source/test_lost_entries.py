"""A log that loses its last entry while tasks of the lost epoch, or other runs of the query, go on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from sqs_fifo_spark.errors import DataLossError, FencedError, SqsFifoError
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.startless import StartlessDriver
from tests.simulation.hub import Crash
from tests.simulation.spark import ConcurrentUpdateError, Query, read
from tests.simulation.world import LAPSE_S
from tests.unit.by_hand import MODES, HandHeartbeat, World, crash_at, do_at, in_both_modes

pytestmark = pytest.mark.law("source-3", "source-5")

MakeWorld = Callable[..., World]


@pytest.mark.parametrize("how", ["another mode", "wrapped", "plain"])
@pytest.mark.parametrize("first_mode", MODES)
@pytest.mark.parametrize("last_mode", MODES)
def test_an_epoch_that_is_lost_twice_stays_as_it_was_announced_again(
    make_world: MakeWorld, how: str, first_mode: str, last_mode: str
) -> None:
    """Whatever its number, for it may skip some. The sink has its batch without rows, so none may come."""
    world = make_world(numPartitions="1", deleteAfter=first_mode)
    world.send("a1")
    Query(world).trigger()
    world.die(down_s=LAPSE_S)
    world.send("b1")
    given = world.options
    if how == "another mode":
        world.options = replace(given, delete_after="journal")
    query = Query(world, tells_start=how != "wrapped", is_wrapped=how == "wrapped").resume()
    query.log(query.latest_offset(query.start_of(1)))
    query.startless.commit(world.offsets[0])
    (plan,) = query.plans(1)

    def lose_both() -> None:
        HandHeartbeat.live.clear()
        world.offsets.pop()
        world.options = replace(given, delete_after=last_mode)
        crash_at(world, "-- batch 1 is in the sink")
        with pytest.raises(Crash):
            Query(world).resume().trigger()
        world.on_step = lambda event: None
        HandHeartbeat.live.clear()
        world.offsets.pop()
        assert not any(world.sink[1].values())

    do_at(world, f"before put epochs/{plan.epoch:020d}/0000", lose_both)
    with suppress(SqsFifoError):
        read(world, plan)
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    world.audit(allow_forgotten=True)


@in_both_modes
def test_the_lost_epoch_is_announced_again_under_its_name(world: World) -> None:
    """With as many partitions."""
    groups = "abcdefghij"
    world.send(*(f"{group}1" for group in groups))
    query = Query(world)
    query.trigger()
    world.send(*(f"{group}2" for group in groups))
    query.log(query.latest_offset(query.start_of(1)))
    query.startless.commit(world.offsets[0])
    lost = world.offsets[1]
    query.run(1)
    world.die(down_s=LAPSE_S)
    world.offsets.pop()
    world.committed.discard(1)
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
    world.send("a1")
    Query(world).trigger()
    world.die(down_s=LAPSE_S)
    world.send("b1")
    query = Query(world).resume()
    query.log(query.latest_offset(query.start_of(1)))
    query.startless.commit(world.offsets[0])
    plan = query.plans(1)[0]

    def lose() -> None:
        HandHeartbeat.live.clear()
        world.offsets.pop()
        crash_at(world, "-- batch 1 is in the sink")
        with pytest.raises(Crash):
            Query(world, reads=lambda batch, count: None if batch == 1 else range(count)).resume().trigger()
        world.on_step = lambda event: None
        HandHeartbeat.live.clear()
        if is_lost_again:
            world.offsets.pop()

    do_at(world, f"before put epochs/{plan.epoch:020d}/0000", lose)
    with suppress(SqsFifoError):
        read(world, plan)
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    world.audit(allow_forgotten=True)


@pytest.mark.parametrize("mode", MODES)
def test_what_an_overlapping_run_announced_in_vain_is_not_taken_for_what_the_log_has_lost(
    make_world: MakeWorld, mode: str
) -> None:
    """Spark has refused to log it, and has logged the other run's epoch."""
    world = make_world(numPartitions="1", deleteAfter=mode)
    world.send("a1")
    Query(world).trigger()
    world.die(down_s=LAPSE_S)
    world.send("b1")
    logged, late = Query(world).resume(), Query(world)
    logged.log(logged.latest_offset(logged.start_of(1)))
    logged.startless.commit(world.offsets[0])
    (plan,) = logged.plans(1)

    def announce() -> None:
        end = late.latest_offset(late.start_of(1))
        with pytest.raises(ConcurrentUpdateError):
            late.log(end)

    do_at(world, f"before put epochs/{plan.epoch:020d}/0000", announce)
    with pytest.raises(FencedError):
        read(world, plan)
    world.die(down_s=LAPSE_S)
    crash_at(world, "-- batch 1 is in the sink")
    with pytest.raises(Crash):
        Query(world).resume().trigger()
    world.on_step = lambda event: None
    world.die(down_s=LAPSE_S)
    world.offsets.pop()
    Query(world).resume().drain()
    world.audit(allow_forgotten=True)


UNREAD = "its rows were never read, so nobody can tell whether Spark has committed epoch"


@in_both_modes
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_what_an_overtaken_run_logs_in_the_place_of_a_lost_entry_is_refused(
    world: World, is_wrapped: bool, is_read: bool
) -> None:
    """The sink has that batch, with rows of the lost epoch: they would come again, under the next id."""
    world.send("a1")
    Query(world).trigger()
    world.die(down_s=LAPSE_S)
    world.send("b1", "b2")
    overtaken = Query(world).resume()
    late = overtaken.latest_offset(overtaken.start_of(1))
    crash_at(world, "-- batch 1 is in the sink")
    with pytest.raises(Crash):
        Query(world).resume().trigger()
    world.on_step = lambda event: None
    world.die(down_s=LAPSE_S)
    lost = world.offsets.pop()
    overtaken.log(late)
    with pytest.raises(FencedError):
        overtaken.startless.commit(world.offsets[0])
    world.die(down_s=LAPSE_S)
    for _ in range(2):
        with pytest.raises(DataLossError, match=f"has lost epoch {lost.epoch}, .* another one in its place"):
            Query(
                world,
                tells_start=not is_wrapped,
                is_wrapped=is_wrapped,
                reads=lambda batch, count: range(count) if is_read else None,
            ).resume().drain()
        world.die(down_s=LAPSE_S)
    assert world.offsets.pop() == late
    world.committed.discard(1)
    Query(world).resume().drain()
    world.audit(allow_forgotten=True)


@in_both_modes
@pytest.mark.parametrize("is_read", [False, True])
def test_a_blind_epoch_is_not_followed_by_itself(world: World, is_read: bool) -> None:
    """Nobody looks at its rows, and the next batch is another source's alone."""
    world.send("a1")
    query = Query(
        world, tells_start=False, is_wrapped=True, reads=lambda batch, count: range(count) if is_read else None
    )
    query.resume().trigger()
    (blind,) = world.offsets
    query.log(blind)
    query.startless.commit(blind)
    query.to_sink(1, {})
    world.committed.add(1)
    assert world.journal().ledger().followed_by is None
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    world.audit(allow_forgotten=True)


@in_both_modes
def test_what_spark_only_reports_is_followed_by_nothing(world: World) -> None:
    """Spark's wrapper asks for it beside each batch, and logs the epoch again that it has fetched first."""
    world.send("a1")
    query = Query(world, tells_start=False, is_wrapped=True).resume()
    query.trigger()
    (blind,) = world.offsets
    assert query.startless.latest_offset() != blind
    query.log(blind)
    query.startless.commit(blind)
    query.to_sink(1, {})
    world.committed.add(1)
    assert world.journal().ledger().followed_by is None
    world.die(down_s=LAPSE_S)
    world.send("b1")
    Query(world, tells_start=False, is_wrapped=True).resume().trigger()
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    world.audit(allow_forgotten=True)


def run_stateful(world: World) -> None:
    """Run a stateful query under the wrapper three times, the second time without a look at its rows.

    Spark asks twice in the first run for what it only reports, before its batch without new rows, and after that.
    """
    world.send("a1")
    query = Query(world, tells_start=False, is_wrapped=True).resume()
    query.trigger()
    (blind,) = world.offsets
    world.send("b1")
    query.startless.latest_offset()
    query.log(blind)
    query.startless.commit(blind)
    query.to_sink(1, {})
    world.committed.add(1)
    query.startless.latest_offset()
    world.die(down_s=LAPSE_S)
    unread = Query(world, tells_start=False, is_wrapped=True, reads=lambda batch, count: None).resume()
    assert unread.trigger()
    world.die(down_s=LAPSE_S)
    Query(world, tells_start=False, is_wrapped=True).resume().trigger()
    world.die(down_s=LAPSE_S)


@in_both_modes
def test_a_stateful_query_s_checkpoint_is_not_refused_for_what_spark_only_reports(world: World) -> None:
    """Nobody was given it, so nothing is in doubt because of it."""
    run_stateful(world)
    Query(world).resume().drain()
    world.audit(allow_forgotten=True)


def test_a_report_that_opens_what_was_reported_is_caught(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the second question is taken for a batch that ran without a look at its rows, and its chains closed."""

    def open_it(startless: StartlessDriver) -> Offset:
        driver = startless._driver
        told = driver.announced or driver.position
        if told is None:
            startless._is_wrapped = True
            return driver.announce_blindly()
        return told if told.is_blind and driver.announced else driver.latest_offset(told)

    monkeypatch.setattr(StartlessDriver, "latest_offset", open_it)
    with pytest.raises(DataLossError, match=UNREAD):
        run_stateful(world)


@in_both_modes
@pytest.mark.parametrize("is_committed", [False, True])
def test_the_remedy_leads_out_where_nobody_looked_at_the_rows_of_a_blind_entry(
    world: World, is_committed: bool
) -> None:
    """An overtaken run has logged it in the place of a lost one: the sink has the lost one's batch, once. [law 5]"""
    world.send("a1")
    Query(world).trigger()
    world.die(down_s=LAPSE_S)
    world.send("b1", "b2")
    overtaken = Query(world, tells_start=False, is_wrapped=True).resume()
    late = overtaken.latest_offset(overtaken.start_of(1))
    crash_at(world, "-- batch 1 is in the sink")
    with pytest.raises(Crash):
        Query(world).resume().trigger()
    world.on_step = lambda event: None
    world.die(down_s=LAPSE_S)
    lost = world.offsets.pop()
    overtaken.log(late)
    if is_committed:
        world.committed.add(1)
    world.die(down_s=LAPSE_S)
    with pytest.raises(DataLossError, match=UNREAD) as told:
        Query(
            world, tells_start=False, is_wrapped=True, reads=lambda batch, count: None if batch == 1 else range(count)
        ).resume().trigger()
    assert f"Remove the entry of epoch {late.epoch} and those behind it, if any, below 'offsets'" in str(told.value)
    assert "triggerAvailableNowWrapper.enabled' set to false" in str(told.value)
    world.die(down_s=LAPSE_S)
    del world.offsets[world.offsets.index(late) :]
    world.committed.discard(1)
    Query(world, tells_start=False).resume().trigger()
    assert world.offsets[1] == lost
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    world.audit(allow_forgotten=True)
