"""A journal belongs to one query at a time: another one takes over what it has left, and then it is over for good."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from sqs_fifo_spark.errors import DataLossError, FencedError, JournalUnavailableError
from tests.simulation.spark import ConcurrentUpdateError
from tests.simulation.world import LAPSE_S, Checkpoint
from tests.unit.by_hand import STARTS, WRAPPED, Query, World, however_started, in_both_modes, in_both_modes_with, unread
from tests.unit.source.attempts import paused

pytestmark = pytest.mark.law("source-3", "source-5")

OPTIONS = {"numPartitions": "1", "deleteAfter": "journal"}


def taken_over(world: World, *, until: str = "-- batch 1 is read") -> Checkpoint:
    """The world's query has served a1 and a2, perhaps committed; another one takes over, serves y1, and dies."""
    world.ran("a1", "a2")
    other = Checkpoint()
    query = Query(world, checkpoint=other)
    world.send("y1")

    def go_on() -> None:
        for number in range(2, 5):
            query.trigger()
            world.send(f"y{number}")

    world.kill_or_end(until, go_on)
    return other


@in_both_modes
@pytest.mark.parametrize("is_committed", [True, False])
@however_started
@pytest.mark.parametrize("until", ["-- batch 0 is planned", "-- batch 0 is read", "-- batch 1 is read"])
def test_a_checkpoint_of_an_earlier_generation_is_refused_for_good(
    world: World, is_committed: bool, how: dict[str, Any], until: str
) -> None:
    """Before it receives anything; the query that has taken over goes on, and each message is in one of the sinks."""
    other = taken_over(world, until=until)
    if not is_committed:
        world.committed.clear()
    for _ in range(2):
        world.require_refused(**how)
    Query(world, checkpoint=other).resume().drain()
    served = counted(other)
    assert max(served.values()) == 1
    assert {row.body for row in world.sent} == {*served, *world.bodies()}
    assert world.depth() == (0, 0)


@in_both_modes
@pytest.mark.parametrize("until", ["before list drivers", "-- batch 0 is ", "before put ledger/"])
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_query_that_has_planned_nothing_takes_nothing_over(world: World, until: str, is_committed: bool) -> None:
    """Started by mistake, or twice at once: the older query goes on from its checkpoint, exactly once."""
    world.served("a1", "a2")
    if not is_committed:
        world.committed.clear()
    world.die(down_s=LAPSE_S)
    world.send("a3")
    world.kill(
        until, lambda: Query(world, checkpoint=Checkpoint()).trigger(), 2 if "ledger" in until else 1, down_s=LAPSE_S
    )
    world.restart()


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
    world.restart(down_s=LAPSE_S)


@in_both_modes_with(numPartitions="1")
@pytest.mark.parametrize("until", ["after put drivers/", "before put ledger/", "after put ledger/", "-- batch 0 is "])
def test_of_two_new_queries_that_know_where_they_begin_each_may_be_the_first_on_the_journal(
    world: World, until: str
) -> None:
    """Neither has claimed it with that, whoever has made it; the first one dies as it begins."""
    first, second = Query(world, checkpoint=Checkpoint()), Query(world)
    assert first.start_of(0) == second.start_of(0)
    assert not world.journal().claims()
    world.send("a1", "b1")
    world.crash(until, first.trigger)
    assert second.trigger()
    assert world.journal().ledger().generation == world.offsets[0].generation
    world.restart(down_s=LAPSE_S, allow_forgotten=True)


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
    world.kill(
        "-- batch 0 is read" if is_read else "-- batch 0 is planned",
        lambda: Query(world, checkpoint=Checkpoint()).trigger(),
        down_s=LAPSE_S,
    )
    world.send("a3")
    world.kill_or_end(point, Query(world).trigger, occurrence)
    Query(world).resume().drain()
    world.restart(down_s=LAPSE_S, allow_forgotten=True)


@in_both_modes_with(failOnDataLoss="false")
@however_started
@pytest.mark.parametrize("is_committed", [True, False])
def test_who_goes_on_without_what_is_lost_begins_a_generation(
    world: World, how: dict[str, Any], is_committed: bool
) -> None:
    """With failOnDataLoss=false an older query takes the journal back, and the other one is refused from then on."""
    other = taken_over(world)
    if not is_committed:
        world.committed.clear()
    world.ran("z1", **how)
    Query(world).resume().drain()
    found = {row.body for each in (world.checkpoint, other) for rows in each.rows() for row in rows}
    assert found == {row.body for row in world.sent}
    world.options = replace(world.options, fail_on_data_loss=True)
    world.require_refused(other)


def counted(*checkpoints: Checkpoint) -> Counter[str]:
    """Count each body in these sinks."""
    return Counter(row.body for each in checkpoints for rows in each.rows() for row in rows)


@in_both_modes_with(failOnDataLoss="false")
@however_started
@pytest.mark.parametrize("fails_again", [False, True])
@pytest.mark.parametrize("until", ["is planned", "is read", "is in the sink"])
def test_a_crash_in_the_first_batch_after_giving_up_repeats_that_batch(
    world: World, how: dict[str, Any], fails_again: bool, until: str
) -> None:
    """Nothing is given up once more, whatever the option is by then: the query itself rules."""
    world.ran("a1", "a2")
    other = Checkpoint()
    query = Query(world, checkpoint=other)
    for body in ("y1", "y2"):
        world.send(body)
        query.trigger()
    world.die(down_s=LAPSE_S)
    world.send("z1")
    world.kill(f"-- batch 1 {until}", lambda: Query(world, **how).resume().trigger(), down_s=LAPSE_S)
    world.options = replace(world.options, fail_on_data_loss=fails_again)
    world.ran("z2", **how)
    Query(world).resume().drain()
    assert max(counted(world.checkpoint).values()) == 1
    assert {*counted(world.checkpoint, other)} == {row.body for row in world.sent}


# With 4.0's wrapper a first epoch may have been announced with nothing given up, so a query that fails is refused.
STARTS_AND_OPTIONS = [(how, fails) for how in STARTS for fails in (False, True) if not (how == WRAPPED and fails)]


@in_both_modes_with(failOnDataLoss="false")
@pytest.mark.parametrize(("how", "fails_again"), STARTS_AND_OPTIONS)
@pytest.mark.parametrize("until", ["is planned", "is read", "is in the sink"])
def test_a_crash_in_the_first_batch_after_a_lost_journal_repeats_that_batch(
    world: World, how: dict[str, Any], fails_again: bool, until: str
) -> None:
    """Nor here is anything given up once more, though each run ends after one micro-batch: its messages would be lost.

    A run that finds that batch given up commits it without rows, and the next one deletes what it had.
    """
    world.send("a1")
    Query(world).resume().drain()
    world.die(down_s=LAPSE_S)
    world.store.objects.clear()
    world.send("z1")
    batch = len(world.offsets)
    world.kill(f"-- batch {batch} {until}", lambda: Query(world, **how).resume().trigger(), down_s=LAPSE_S)
    world.options = replace(world.options, fail_on_data_loss=fails_again)
    world.send("z2")
    for _ in range(3):
        Query(world, **how).resume().trigger()
        world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    counts = counted(world.checkpoint)
    assert [counts[body] for body in ("a1", "z1", "z2")] == [1, 1, 1]


@in_both_modes_with(failOnDataLoss="false")
@pytest.mark.parametrize("is_committed", [True, False])
def test_who_gives_up_the_log_of_a_younger_journal_begins_a_generation(world: World, is_committed: bool) -> None:
    """Its claims have higher numbers, which count for nothing in the older journal that has been put back."""
    world.ran("a1")
    last = world.offsets[0]
    world.checkpoint.offsets[0] = replace(last, journal="younger", plan=last.plan + 50, generation=last.plan + 50)
    if not is_committed:
        world.committed.clear()
    world.ran("z1")
    assert world.offsets[1].generation == world.journal().ledger().generation <= last.plan + 2
    Query(world).resume().drain()
    assert "z1" in world.deleted()


@in_both_modes_with(failOnDataLoss="false")
def test_the_first_batch_after_giving_up_is_announced_again_if_the_log_loses_it(world: World) -> None:
    """Its batch id gets no other rows: the sink has it."""
    world.ran("a1", "a2")
    world.ran("y1", checkpoint=Checkpoint())
    world.send("z1")
    world.kill("-- batch 1 is in the sink", lambda: Query(world).resume().trigger(), down_s=LAPSE_S)
    lost = world.offsets.pop()
    world.send("z2")
    Query(world).resume().drain()
    assert world.offsets[1].of == lost.of
    assert counted(world.checkpoint)["z2"] == 1


@in_both_modes
@pytest.mark.parametrize("first", STARTS[::2], ids=["4.2", "4.0 wrapped"])
@pytest.mark.parametrize("second", STARTS[::2], ids=["4.2", "4.0 wrapped"])
@however_started
def test_a_query_is_not_told_that_it_is_another_one(
    world: World, first: dict[str, Any], second: dict[str, Any], how: dict[str, Any]
) -> None:
    """An overtaken run's epoch stands in the place of a lost one: to remove its entry leads out."""
    world.ran("a1")
    world.send("b1", "b2")
    overtaken = Query(world, **first).resume()
    late = overtaken.latest_offset(overtaken.start_of(1))
    world.kill("-- batch 1 is in the sink", lambda: Query(world, **second).resume().trigger(), down_s=LAPSE_S)
    world.offsets.pop()
    overtaken.log(late)
    world.die(down_s=LAPSE_S)
    with pytest.raises(DataLossError, match="Remove the entry of epoch"):
        Query(world, **how).resume().trigger()
    world.die(down_s=LAPSE_S)
    world.offsets.remove(late)
    world.ran(tells_start=False)
    world.restart(allow_forgotten=True)


@in_both_modes
@however_started
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
        query.claim()
    world.die(down_s=LAPSE_S)
    world.kill("-- batch 0 is ", lambda: Query(world, **WRAPPED).resume().trigger(), down_s=LAPSE_S)
    world.kill_or_end(until, lambda: Query(world).resume(), 2 if "ledger" in until else 1)
    world.ran("b1", **how, reads=unread(0))
    Query(world).resume().drain()
    found = counted(world.checkpoint)
    assert {"a1", "b1"} <= {*found}
    assert max(found.values()) == 1


@in_both_modes
@pytest.mark.parametrize("how", STARTS)
@pytest.mark.parametrize("dies_at", [(), ("read",), ("in the sink", "read"), ("read", "read")])
def test_a_new_query_whose_first_batch_nobody_reads_goes_on_whenever_it_dies(
    world: World, how: dict[str, Any], dies_at: tuple[str, ...]
) -> None:
    """Also if another one has left links, right after Spark's commit: the journal says that its log begins there."""
    other = Checkpoint()
    world.send("x1", "a1")
    world.kill("-- batch 0 is read", lambda: Query(world, checkpoint=other).trigger(), down_s=LAPSE_S)
    world.send("b1")
    plain: dict[str, Any] = {"tells_start": False, "reads": lambda batch, count: None if batch == 0 else range(count)}
    for point in dies_at:
        world.kill(f"-- batch 0 is {point}", lambda: Query(world, **plain).resume().trigger(), down_s=LAPSE_S)
    if dies_at:
        Query(world, **plain).resume()
    else:
        Query(world, **plain).trigger()
    assert world.committed == {0}
    world.die(down_s=LAPSE_S)
    world.ran("a2", **how)
    for start in STARTS:
        world.require_refused(other, **start)
    Query(world).resume().drain()
    found = counted(world.checkpoint)
    assert {"b1", "a2"} <= {*found}
    assert max(found.values()) == 1
    assert {*found, *counted(other)} == {row.body for row in world.sent}


@in_both_modes
@pytest.mark.parametrize("is_removed", [False, True])
def test_an_overtaken_run_notes_nothing_of_its_first_batch(world: World, is_removed: bool) -> None:
    """Another run has opened the journal meanwhile, or another query has made it anew."""
    other = Checkpoint()
    world.ran("x1", checkpoint=other)
    world.send("a1")
    overtaken = Query(world, tells_start=False)
    overtaken.log(overtaken.latest_offset(None))
    if is_removed:
        world.store.objects.clear()
        world.offsets.clear()
    query = Query(world, tells_start=False).resume() if not is_removed else Query(world)
    with pytest.raises((FencedError, JournalUnavailableError)):
        overtaken.start_of(0)
    assert len(world.offsets) == (0 if is_removed else 1)
    world.send("a2")
    query.trigger()
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    assert max(counted(world.checkpoint).values()) == 1
    assert {*counted(world.checkpoint, other)} == {row.body for row in world.sent}


@in_both_modes
@pytest.mark.parametrize("how", STARTS)
def test_a_log_that_begins_with_another_sources_batch_alone_has_its_first_epoch_later(
    world: World, how: dict[str, Any]
) -> None:
    """The log has an offset without a plan; nobody looks at the batch after that, and the run dies."""
    world.send("x1", "a1")
    world.kill("-- batch 0 is read", lambda: Query(world, checkpoint=Checkpoint()).trigger(), down_s=LAPSE_S)
    query = Query(world)
    query.log(query.start_of(0))
    query.into_sink({}, 0)
    world.die(down_s=LAPSE_S)
    world.ran("b1", **how, reads=unread(1))
    Query(world, tells_start=False).resume().drain()
    assert counted(world.checkpoint).keys() >= {"b1"}
    assert max(counted(world.checkpoint).values()) == 1


@in_both_modes_with(numPartitions="1")
@pytest.mark.parametrize("how", STARTS)
@pytest.mark.parametrize("older", STARTS)
@pytest.mark.parametrize("is_unread", [True, False])
def test_an_older_query_that_goes_on_until_the_first_commit_is_refused_then(
    world: World, how: dict[str, Any], older: dict[str, Any], is_unread: bool
) -> None:
    """Started again between a newer one's first announcement and that batch: Spark 4.0 tells neither where it is."""
    other = Checkpoint()
    world.send("y1")
    query = Query(world, checkpoint=other, **WRAPPED).resume()
    query.trigger()
    query.goes_on_alone(other.offsets[0])
    world.die(down_s=LAPSE_S)
    new = Query(world, **STARTS[1])
    new.log(new.latest_offset(None))
    world.die(down_s=LAPSE_S)
    world.send("z1", "z2")
    query = Query(world, checkpoint=other, **older).resume()
    query.log(query.latest_offset(query.start_of(2)))
    query.run(2)
    world.die(down_s=LAPSE_S)
    world.send("a1")
    reads = (lambda batch, count: None if not batch else range(count)) if is_unread else (lambda _, count: range(count))
    query = Query(world, **STARTS[1], reads=reads).resume()
    assert query.trigger() or query.trigger()
    world.die(down_s=LAPSE_S)
    for start in STARTS:
        world.require_refused(other, **start)
    for body in ("a2", "a3"):
        world.ran(body, **how)
    Query(world).resume().drain()
    assert max(counted(world.checkpoint).values()) == 1
    assert {*counted(world.checkpoint, other)} == {row.body for row in world.sent}


@in_both_modes
def test_what_an_overtaken_driver_announces_belongs_to_no_query(world: World) -> None:
    """It stood still while another query began; Spark has logged what it announced, and is refused from then on."""
    query = world.served("a1")
    late = paused(world, lambda: query.log(query.latest_offset(query.start_of(1))), "before GetQueueAttributes")
    other = Query(world, checkpoint=Checkpoint())
    world.send("b1")
    other.trigger()
    late.switch()
    assert len(world.offsets) == 2
    with pytest.raises(FencedError):
        query.startless.commit(world.offsets[0])
    world.die(down_s=LAPSE_S)
    world.require_refused()
