"""Our hold on messages ends: by a delete once they are committed, or by a release."""

from __future__ import annotations

import pytest

from sqs_fifo_spark.errors import SqsFifoError
from tests.simulation.world import LAPSE_S
from tests.unit.by_hand import Query, World, in_both_modes, in_both_modes_with, with_options
from tests.unit.source.attempts import begin, free

pytestmark = pytest.mark.law("source-2")


def test_nothing_is_deleted_before_commit(world: World) -> None:
    """The messages of a batch stay in the queue until Spark commits it; a commit that Spark repeats changes nothing."""
    query = world.served("a1", "b1")
    end = query.driver.latest_offset(world.offsets[0])
    assert world.deleted() == []
    query.log(end)
    query.startless.commit(world.offsets[0])
    assert sorted(world.deleted()) == ["a1", "b1"]
    objects = dict(world.store.objects)
    query.startless.commit(world.offsets[0])
    assert sorted(world.deleted()) == ["a1", "b1"]
    assert world.store.objects == objects


@in_both_modes
@pytest.mark.parametrize("elapsed_s", [0, LAPSE_S])
def test_failing_deletes_go_to_the_ledger_and_are_settled_later(world: World, elapsed_s: float) -> None:
    """Deletes without an answer stand in the ledger; a later commit settles them, and nothing is served twice."""
    world.send("a1", "a2", "b1")
    query = Query(world)
    query.start_of(0)
    with world.failing("DeleteMessageBatch"):
        assert query.trigger()
        assert query.trigger()
        assert sorted(query.driver.report().items())[-2:] == [("unconfirmedDeletes", 3), ("waitingMessages", 0)]
        assert len(world.journal().ledger().unconfirmed) == 3
    world.pass_time(elapsed_s)
    world.send("a3")
    query.drain_and_audit()


@with_options(numPartitions="1")
@pytest.mark.parametrize("fault", ["", "refused", "throttled", "lost"])
def test_what_was_received_before_is_served_at_once_after_an_epoch_of_copies(world: World, fault: str) -> None:
    """The driver looks once before that epoch's commit; a queue that does not answer then stops no query."""

    def no_delete(action: str) -> str:
        return "refused" if action == "DeleteMessageBatch" else ""

    query = world.served("a1")
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
    query.into_sink({0: []}, 1)
    world.fault = lambda action: fault if action == "ReceiveMessage" else ""
    query.trigger()
    world.fault = lambda action: ""
    world.pass_time(300)
    query.drain_and_audit(allow_forgotten=True)


# What is received and sealed by nobody


@in_both_modes_with(numPartitions="1")
def test_what_was_received_behind_a_copy_that_lapsed_is_released(world: World) -> None:
    """The group may be somebody else's by now, so nothing of it is sealed; but nobody waits for a timeout either."""
    world.send("a1")
    query = Query(world)
    query.log(query.latest_offset(query.start_of(0)))
    world.fault = lambda action: "refused" if "Delete" in action else ""
    query.run(0)
    world.send("a2", "b1")
    query.announce()
    world.fault = lambda action: ""
    assert len(world.journal().ledger().unconfirmed) == 1
    (plan,) = query.plans(1)
    world.clock.advance(LAPSE_S)
    # The task stands still before it deletes a1, and then receives all of it again.
    world.do_at("before DeleteMessageBatch", lambda: world.clock.advance(LAPSE_S))
    began = len(world.trace)
    rows = world.read(plan)
    receives = [event for _, _, event in world.trace[began:] if event.startswith("before ReceiveMessage")]
    assert len(receives) < 10, "it releases what it then receives again"
    assert "a1" in world.deleted()
    query.into_sink({0: rows}, 1)
    query.drain_and_audit()


@in_both_modes_with(numPartitions="1")
@pytest.mark.parametrize("what", ["the ledger cannot be read", "the next receive is refused"])
def test_a_task_that_fails_while_it_receives_releases_what_it_has(world: World, what: str) -> None:
    """Nothing of it can be sealed yet."""
    _, plan = begin(world, "a1", "a2")
    world.receive_elsewhere(10, 1)
    world.clock.advance(2)  # the task has to look whether they are copies

    def fail() -> None:
        if "ledger" in what:
            world.store.fails = lambda call: True
        else:
            world.fault = lambda action: "denied" if action == "ReceiveMessage" else ""

    world.do_at("after ReceiveMessage", fail)
    with pytest.raises(SqsFifoError):
        world.read(plan)
    assert free(world) == {"a1", "a2"}
