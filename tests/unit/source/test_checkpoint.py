"""A checkpoint and a journal that do not fit: the driver notices, or goes on exactly as it was."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from sqs_fifo_spark.errors import DataLossError
from sqs_fifo_spark.source.driver.checkpoint import (
    Decision,
    JournalState,
    Settle,
    UnsettledPlan,
    reconcile,
)
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.ledger import Ledger
from sqs_fifo_spark.source.offset import EpochPlan, Offset
from tests.helpers import raises_one_line
from tests.simulation.world import LAPSE_S, Checkpoint, MemoryStore
from tests.unit.by_hand import Query, World, however_started, in_both_modes_with, with_options

pytestmark = pytest.mark.law("source-3", "source-5")


def lose_journal(world: World) -> None:
    world.store.objects.clear()


def other_journal(world: World) -> None:
    lose_journal(world)
    Journal.create(world.store, "arn:aws:sqs:us-east-1:000000000000:q.fifo")


@pytest.mark.parametrize("spoil", [lose_journal, other_journal])
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("in_the_middle", [False, True])
def test_checkpoint_without_its_journal_is_data_loss(
    world: World, spoil: Callable[[World], None], batches: int, in_the_middle: bool
) -> None:
    """A restart whose journal is gone or another one fails with one line, also when its first batch is replayed.

    Before it receives anything.
    """
    world.send(*(f"a{index}" for index in range(30)))
    query = Query(world)
    for _ in range(batches):
        assert query.trigger()
    if in_the_middle:
        world.committed.remove(batches - 1)  # killed between the sink's commit and Spark's
    world.die()
    spoil(world)
    before = world.calls("ReceiveMessage")
    with raises_one_line(DataLossError, match=r"holds (no|another) journal.+failOnDataLoss"):
        Query(world).resume().trigger()
    assert world.calls("ReceiveMessage") == before
    assert world.deleted() == [f"a{index}" for index in range(10 * (batches - 1))]


@with_options(failOnDataLoss="false")
@pytest.mark.parametrize("spoil", [lose_journal, other_journal])
@pytest.mark.parametrize("in_the_middle", [False, True])
def test_without_fail_on_data_loss_the_query_goes_on(
    world: World, spoil: Callable[[World], None], in_the_middle: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """With failOnDataLoss=false the loss is said aloud, and what the queue still holds is served."""
    query = world.served(*(f"a{index}" for index in range(30)))
    assert query.trigger()
    if in_the_middle:
        world.committed.remove(1)
    world.die(down_s=LAPSE_S)
    spoil(world)
    with caplog.at_level(logging.WARNING):
        Query(world).resume().drain()
    assert "Going on, because failOnDataLoss is false" in caplog.text
    assert set(world.bodies()) == {f"a{index}" for index in range(30)}
    assert world.depth() == (0, 0)


@in_both_modes_with(numPartitions="1")
@however_started
def test_an_old_checkpoint_is_noticed_before_anything_is_logged(world: World, how: dict[str, Any]) -> None:
    """Restored from a backup, also where Spark asks for an epoch before it says where it is."""
    query = world.served("a1", "a2", tells_start=False)
    offsets, committed = list(world.offsets), set(world.committed)
    for index in range(3):
        world.send(f"b{index}")
        query.trigger()
    world.die(down_s=LAPSE_S)
    world.offsets[:], world.checkpoint.committed = offsets, committed
    world.send("c1")
    with pytest.raises(DataLossError, match="the checkpoint is old"):
        Query(world, **how).resume().trigger()
    assert world.offsets == offsets
    assert "c1" not in world.deleted()


@in_both_modes_with(numPartitions="1")
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_wrong_location_does_not_spoil_the_checkpoint(world: World, is_wrapped: bool) -> None:
    """With the right one again, the query goes on."""
    right = world.store
    world.send("a1", "a2")
    query = Query(world, tells_start=False)
    for index in range(3):
        world.send(f"b{index}")
        query.trigger()
    world.die(down_s=LAPSE_S)
    world.store = MemoryStore(world.step, world.clock)
    with pytest.raises(DataLossError, match="but the checkpoint refers to journal"):
        Query(world, tells_start=False, is_wrapped=is_wrapped).resume().trigger()
    world.die()
    world.store = right
    for _ in range(3):
        Query(world, tells_start=False, is_wrapped=is_wrapped).resume().trigger()
        world.die(down_s=LAPSE_S)
    assert sorted(world.bodies()) == ["a1", "a2", "b0", "b1", "b2"]


@pytest.mark.parametrize(("after_epoch", "found"), [(3, 3), (4, 4), (5, None)])
def test_what_an_epoch_follows_is_told_by_number_and_plan(after_epoch: int, found: int | None) -> None:
    """A lost epoch of the same plan, whose tasks put something late, is not it."""
    unsettled = {
        each: UnsettledPlan((each.name,), Offset("j", each.epoch, 1, each.plan))
        for each in (EpochPlan(3, 1), EpochPlan(4, 1), EpochPlan(4, 2))
    }
    given = Offset("j", 6, 1, 5, after=1, after_epoch=after_epoch, generation=1)

    def decided(settled: int) -> Decision:
        return reconcile(
            given, JournalState("j", "here", Ledger(settled, generation=1), EpochPlan(settled, 1), unsettled)
        )

    assert decided(2) == (found and Settle(Offset("j", found, 1, 1)))
    assert decided(4) is None


@in_both_modes_with(numPartitions="1")
def test_a_new_query_numbers_its_epochs_beyond_all_that_stands_in_the_journal(world: World) -> None:
    """Also beyond what it gives back."""
    world.send("a1", "a2")
    numbers: list[int] = []
    for is_wrapped in (False, True, True, False):
        checkpoint = Checkpoint()
        Query(world, checkpoint=checkpoint, tells_start=not is_wrapped, is_wrapped=is_wrapped).resume().trigger()
        numbers.append(checkpoint.offsets[-1].epoch)
        world.die(down_s=LAPSE_S)
    assert numbers == sorted(set(numbers))


@with_options(numPartitions="1", waitTimeSeconds="1")
def test_no_two_queries_have_epochs_of_the_same_number_though_one_was_idle_first(world: World) -> None:
    """Older queries' logs still have epochs that a new query has given back: they learn that others went on."""
    older = [Checkpoint() for _ in range(3)]
    for body, checkpoint in zip(("x1", "y1", "z1"), older, strict=True):
        world.ran(body, checkpoint=checkpoint)
    world.send("w1")
    query = Query(world, checkpoint=Checkpoint())
    with world.failing("ReceiveMessage"):
        assert not query.trigger()
    query.trigger()
    query.trigger()
    assert query.offsets[0].epoch > max(checkpoint.offsets[-1].epoch for checkpoint in older)
    world.die(down_s=LAPSE_S)
    with pytest.raises(DataLossError):
        Query(world, checkpoint=older[2]).resume().trigger()
