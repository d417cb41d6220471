"""A function of foreachBatch that does not look at its rows, or not at all of them, loses nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from sqs_fifo_spark.errors import DataLossError, EpochSettledError, FencedError, OptionError
from tests.helpers import raises_one_line
from tests.simulation.world import LAPSE_S, Checkpoint
from tests.unit.by_hand import WRAPPED, Query, World, in_both_modes, unread, with_options
from tests.unit.source.attempts import sealed

pytestmark = pytest.mark.law("source-1")


@in_both_modes
@pytest.mark.parametrize("tells_start", [True, False])
@pytest.mark.parametrize("read_at_all", [False, True])
def test_what_nobody_reads_is_kept_for_the_next_batch_without_another_receive(
    world: World, tells_start: bool, read_at_all: bool
) -> None:
    """A function of foreachBatch that returns early costs no receives, which a redrive policy would count."""
    world.send("a1", "b1")
    paused = (range(0) if read_at_all else None, 12)
    query = Query(
        world, tells_start=tells_start, reads=lambda batch, count: paused[0] if batch < paused[1] else range(count)
    )
    for _ in range(paused[1]):
        # Only when Spark 4.0 asks again is it known that a new query has had its first batch.
        assert query.trigger() or (not tells_start and len(query.offsets) == 1 and query.trigger())
    query.drain_and_audit()
    assert Counter(event.message_id for event in world.events if event.kind == "received") == Counter(
        row.message_id for row in world.sent
    )
    epochs = [offset.epoch for offset in world.offsets]
    assert epochs == sorted(set(epochs))


@in_both_modes
def test_unread_partitions_lose_nothing(world: World) -> None:
    """An action that stops after the first partition leaves the others' messages for the next batches."""
    world.send(*(f"{'abcdefgh'[index % 8]}{index}" for index in range(60)))
    query = Query(world, reads=lambda batch, count: range(min(1, count)) if batch % 2 == 0 else range(count))
    query.drain_and_audit()


@in_both_modes
def test_crash_during_commit_then_a_replayed_batch_that_is_not_read_doubles_nothing(world: World) -> None:
    """A commit broken off is finished also when the next batch's function never looks at its rows."""
    world.send("a1", "a2", "b1")
    query = Query(world)
    query.start_of(0)
    with world.failing("DeleteMessageBatch"):
        assert query.trigger()
    world.kill("before DeleteMessageBatch", query.trigger, down_s=LAPSE_S)
    query = Query(world, reads=unread(1)).resume()
    query.drain_and_audit()


@with_options(numPartitions="1")
def test_an_epoch_that_was_read_and_never_committed_is_not_passed_over(world: World) -> None:
    """Nor if nobody looks at the rows of the next one, so that its plan is never asked for."""
    query = world.served("a1", "a2", reads=unread(2))
    world.send("a3", "a4")
    query.trigger()
    query.log(query.latest_offset(query.start_of(2)))
    query.run(2)
    world.send("b1")
    with pytest.raises(OptionError, match="Spark plans epoch 3 and has not committed epoch 2"):
        query.trigger()
    world.restart(down_s=31)


@with_options(numPartitions="1")
def test_what_spark_committed_unread_is_never_taken_for_a_leftovers_segment(world: World) -> None:
    """A crash before the commit; the log's plan has no object, another query's leftover has: nothing is deleted."""
    world.send("a1")
    _old, (plan,) = world.planned(checkpoint=Checkpoint())
    world.die(down_s=LAPSE_S)
    query = Query(world, reads=lambda batch, count: None)

    def a_new_query() -> None:
        world.send("y1")
        assert query.resume().trigger()

    world.do_at("before put epochs/", a_new_query)
    world.send("z1", "z2")
    with pytest.raises((EpochSettledError, FencedError)):
        world.read(plan)
    assert {"z1", "z2"} <= set(sealed(world))
    query.log(query.latest_offset(query.start_of(1)))  # and it dies before `commit`
    world.die(down_s=LAPSE_S)
    query = Query(world, reads=lambda batch, count: None if batch < 2 else range(count)).resume()
    query.drain_and_audit()


@with_options(numPartitions="1")
def test_where_nobody_can_tell_what_was_committed_one_line_says_so(world: World) -> None:
    """An epoch announced in the dark, whose rows were never read, after a crash: neither a loss nor a doubling."""
    query = world.served("a1", "a2", tells_start=False)
    world.die()
    query = Query(world, **WRAPPED).resume()
    query.log(query.latest_offset(query.start_of(1)))  # and it dies before `commit`
    world.die()
    query = Query(world, tells_start=False, reads=lambda batch, count: None).resume()
    with raises_one_line(DataLossError, match="nobody can tell whether Spark has committed epoch 1"):
        query.trigger()
    assert world.deleted() == []
