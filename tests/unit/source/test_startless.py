"""Spark 4.0 and 4.1, which ask for the latest offset without saying where the query is."""

from __future__ import annotations

import pytest

from sqs_fifo_spark.errors import DataLossError
from tests.simulation.world import LAPSE_S, Checkpoint
from tests.unit.by_hand import WRAPPED, Query, World, in_both_modes, in_both_modes_with, unread, with_options

pytestmark = pytest.mark.law("source-3", "source-5")


@with_options(numPartitions="1")
def test_the_wrapper_around_available_now_never_takes_the_log_back(world: World) -> None:
    """Spark 4.0 and 4.1: the latest offset is asked for before an unfinished batch is run again."""
    world.send(*(f"a{number}" for number in range(1, 25)))
    query = Query(world, tells_start=False).resume()
    assert query.trigger()
    query.log(query.latest_offset(query.start_of(1)))  # and it dies before `commit`
    world.die()
    for _ in range(3):
        query = Query(world, **WRAPPED).resume()
        assert query.trigger()
        assert not query.trigger()
        world.die()
    epochs = [offset.epoch for offset in world.offsets]
    assert epochs == sorted(set(epochs))
    assert len(world.bodies()) == 24
    world.restart(tells_start=False)


@in_both_modes
def test_a_plan_that_is_refused_does_not_move_the_query(world: World) -> None:
    """A DataFrame of an older micro-batch that is used again; Spark before 4.2 does not say where it is."""
    query = Query(world, tells_start=False)
    for body in ("a1", "b1", "c1"):
        world.send(body)
        assert query.trigger()
    with pytest.raises(DataLossError):
        query.startless.plan(query.start_of(0), query.offsets[0])
    world.send("d1")
    query.drain()
    assert [offset.epoch for offset in query.offsets] == sorted({offset.epoch for offset in query.offsets})
    world.audit()


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
    query.goes_on_alone(blind)
    assert world.journal().ledger().followed_by is None
    world.restart(down_s=LAPSE_S, allow_forgotten=True)


@in_both_modes
def test_what_spark_only_reports_is_followed_by_nothing(world: World) -> None:
    """Spark's wrapper asks for it beside each batch, and logs the epoch again that it has fetched first."""
    world.send("a1")
    query = Query(world, **WRAPPED).resume()
    assert query.trigger()
    (blind,) = world.offsets
    assert query.startless.latest_offset() != blind
    query.goes_on_alone(blind)
    assert world.journal().ledger().followed_by is None
    world.die(down_s=LAPSE_S)
    world.ran("b1", **WRAPPED)
    world.restart(allow_forgotten=True)


@in_both_modes
@pytest.mark.parametrize("first_is_read", [True, False])
def test_an_unread_second_batch_of_a_new_query_keeps_its_id(world: World, first_is_read: bool) -> None:
    """The ledger says what follows the first one. Spark 4.0 asks for that as it does under its wrapper, and logs it."""
    query = Query(world, tells_start=False, reads=unread(1) if first_is_read else unread(0, 1))
    world.send("a1")
    assert query.trigger()
    assert query.trigger() or query.trigger()
    assert world.journal().ledger().followed_by == world.offsets[1]
    world.die(down_s=LAPSE_S)
    lost = world.lose_entry()
    world.send("b1")
    assert Query(world, tells_start=False).resume().trigger()
    assert world.offsets[1] == lost
    world.restart(down_s=LAPSE_S, tells_start=False)


@in_both_modes_with(numPartitions="1", waitTimeSeconds="1")
def test_an_unread_batch_keeps_its_id_though_another_source_went_on_after_an_unread_first_one(world: World) -> None:
    """Spark commits a new query's first epoch before it asks for the next, and the journal cannot be told later."""
    query = Query(world, tells_start=False, reads=unread(0, 2))
    assert query.trigger()
    (blind,) = world.offsets
    assert query.startless.latest_offset() == blind
    query.goes_on_alone(blind)
    world.send("a1")
    assert query.trigger()
    assert world.journal().ledger().followed_by == world.offsets[2]
    world.die(down_s=LAPSE_S)
    lost = world.lose_entry()
    world.send("b1")
    assert Query(world, tells_start=False).resume().trigger()
    assert world.offsets[2] == lost
    world.restart(down_s=LAPSE_S, tells_start=False)


@in_both_modes_with(numPartitions="1", waitTimeSeconds="1")
@pytest.mark.parametrize("idles", [0, 1, 2])
@pytest.mark.parametrize("older_goes_on", [False, True])
def test_a_new_query_takes_the_journal_over_though_nobody_reads_its_first_batch_and_another_source_goes_on(
    world: World, idles: int, older_goes_on: bool
) -> None:
    """Its generation begins, however long its first epoch waits for the next; and a restart is in no doubt."""
    older = Checkpoint()
    world.send("a1")
    world.kill("-- batch 1 is read", lambda: Query(world, checkpoint=older).play_out(), down_s=LAPSE_S)
    query = Query(world, tells_start=False, reads=unread(0))
    assert query.trigger()
    (blind,) = world.offsets
    world.receive_elsewhere()
    for _ in range(idles):
        assert not query.trigger()
    assert query.startless.latest_offset() == blind
    query.goes_on_alone(blind)
    world.die(down_s=LAPSE_S)
    if older_goes_on:
        world.require_refused(older)
    world.send("b1")
    Query(world, tells_start=False).resume().drain()
    assert "b1" in world.bodies()


@in_both_modes
def test_a_stateful_query_s_checkpoint_is_not_refused_for_what_spark_only_reports(world: World) -> None:
    """Nobody was given it, so nothing is in doubt because of it, though nobody looks at the second run's rows.

    Spark asks twice in the first run for what it only reports, before its batch without new rows, and after that.
    """
    world.send("a1")
    query = Query(world, **WRAPPED).resume()
    assert query.trigger()
    (blind,) = world.offsets
    world.send("b1")
    query.startless.latest_offset()
    query.goes_on_alone(blind)
    query.startless.latest_offset()
    world.die(down_s=LAPSE_S)
    world.ran(**WRAPPED, reads=lambda batch, count: None)
    world.ran(**WRAPPED)
    world.restart(allow_forgotten=True)


@in_both_modes_with(numPartitions="1")
@pytest.mark.parametrize("until", ["-- batch 0 is ", "-- batch 0 is planned", "-- batch 0 is read", "never"])
def test_no_two_epochs_have_a_number_that_are_announced_before_spark_says_where_it_is(world: World, until: str) -> None:
    """Not even the first two of a journal. Nobody may have read the first one."""
    world.send("a1", "b1")
    if until == "never":
        world.ran(**WRAPPED, reads=lambda batch, count: None)
    else:
        world.kill(until, lambda: Query(world, **WRAPPED).resume().trigger(), down_s=LAPSE_S)
    world.ran(**WRAPPED)
    world.restart(allow_forgotten=True)
