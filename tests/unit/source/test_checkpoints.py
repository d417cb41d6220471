"""A checkpoint and a journal that do not fit: what is noticed, and what goes on exactly as it was."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from contextlib import suppress

import pytest

from sqs_fifo_spark.errors import DataLossError, FencedError, SqsFifoError, TransientQueueError
from sqs_fifo_spark.source.checkpoint import Decision, Settle, Standing, Unsettled, reconcile
from sqs_fifo_spark.source.ledger import Ledger
from sqs_fifo_spark.source.offset import EpochPlan, Offset
from sqs_fifo_spark.source.queue import Counts
from tests.simulation.hub import Crash
from tests.simulation.spark import Query, read
from tests.simulation.world import LAPSE_S, Checkpoint, MemoryStore
from tests.unit.by_hand import MODES, HandHeartbeat, World, crash_at, do_at

pytestmark = pytest.mark.law("source-3", "source-5")


@pytest.fixture(params=MODES)
def make_world(make_world: Callable[..., World], request: pytest.FixtureRequest) -> Callable[..., World]:
    """All of it holds whenever messages are deleted, but for what is `where_the_commit_deletes`."""
    return functools.partial(make_world, deleteAfter=request.param)


where_the_commit_deletes = pytest.mark.parametrize("make_world", ["commit"], indirect=True)


def play_out(query: Query) -> None:
    """Trigger until there is nothing new."""
    while query.trigger():
        pass


def no_fault(action: str) -> str:
    return ""


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_an_old_checkpoint_is_noticed_before_anything_is_logged(
    make_world: Callable[..., World], is_wrapped: bool
) -> None:
    """Restored from a backup, also where Spark asks for an epoch before it says where it is."""
    world = make_world(numPartitions="1")
    world.send("a1", "a2")
    query = Query(world, tells_start=False)
    query.trigger()
    offsets, committed = list(world.offsets), set(world.committed)
    for index in range(3):
        world.send(f"b{index}")
        query.trigger()
    world.die(down_s=LAPSE_S)
    world.offsets[:], world.checkpoint.committed = offsets, committed
    world.send("c1")
    with pytest.raises(DataLossError, match="the checkpoint is old"):
        Query(world, tells_start=False, is_wrapped=is_wrapped).resume().trigger()
    assert world.offsets == offsets
    assert "c1" not in world.deleted()


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_wrong_location_does_not_spoil_the_checkpoint(make_world: Callable[..., World], is_wrapped: bool) -> None:
    """With the right one again, the query goes on."""
    world = make_world(numPartitions="1")
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


@pytest.mark.parametrize("has_lapsed", [False, True])
@pytest.mark.parametrize("is_in_sink", [False, True])
def test_an_epoch_that_sparks_log_has_lost_is_announced_again_as_it_was(
    make_world: Callable[..., World], is_in_sink: bool, has_lapsed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The last file of the offset log is gone: the sink may have its batch, and skips the batch id."""
    world = make_world(numPartitions="1")
    world.send("a1", "a2")
    query = Query(world)
    query.trigger()
    world.send("b1", "b2")
    query.trigger()
    world.die()
    lost = world.offsets.pop()
    world.committed.discard(1)
    if not is_in_sink:
        world.sink.pop(1)
    if has_lapsed:
        world.clock.advance(LAPSE_S)
    world.send("c1")
    with caplog.at_level(logging.WARNING):
        query = Query(world).resume().drain()
    assert f"the checkpoint does not know of epoch {lost.epoch}" in caplog.text
    assert world.offsets[1].epoch == lost.epoch
    world.clock.advance(LAPSE_S)
    query.drain()
    assert sorted(world.bodies()) == ["a1", "a2", "b1", "b2", "c1"]


def test_an_epoch_that_sparks_log_has_lost_is_noticed_before_another_is_logged(
    make_world: Callable[..., World],
) -> None:
    """Where Spark asks before it says where it is, one was announced by then; without that, all goes on."""
    world = make_world(numPartitions="1")
    world.send("a1", "a2")
    query = Query(world, tells_start=False)
    query.trigger()
    world.send("b1", "b2")
    query.trigger()
    world.die()
    world.offsets.pop()
    world.committed.discard(1)
    offsets = list(world.offsets)
    world.send("c1")
    with pytest.raises(DataLossError, match="the checkpoint does not know of epoch"):
        Query(world, tells_start=False, is_wrapped=True).resume().trigger()
    assert world.offsets == offsets
    world.die()
    for _ in range(3):
        Query(world, tells_start=False).resume().trigger()
        world.die(down_s=LAPSE_S)
    assert sorted(world.bodies()) == ["a1", "a2", "b1", "b2", "c1"]


def test_a_new_query_numbers_its_epochs_beyond_all_that_stands_in_the_journal(make_world: Callable[..., World]) -> None:
    """Also beyond what it gives back."""
    world = make_world(numPartitions="1")
    world.send("a1", "a2")
    numbers: list[int] = []
    for is_wrapped in (False, True, True, False):
        checkpoint = Checkpoint()
        Query(world, checkpoint=checkpoint, tells_start=not is_wrapped, is_wrapped=is_wrapped).resume().trigger()
        numbers.append(checkpoint.offsets[-1].epoch)
        world.die(down_s=LAPSE_S)
    assert numbers == sorted(set(numbers))


def test_a_driver_that_another_has_followed_renews_nothing(make_world: Callable[..., World]) -> None:
    """It may live on, and never be called: what its probe got is free after one visibility timeout."""
    world = make_world(numPartitions="1")
    world.send("a1", "a2")
    first = Query(world)
    first.log(first.latest_offset(first.start_of(0)))
    first.plans(0)
    second = Query(world).resume()
    world.send("a3")
    for _ in range(4):
        second.trigger()
        world.pass_time(LAPSE_S)
    assert world.bodies() == ["a1", "a2", "a3"]
    (heartbeat, _) = HandHeartbeat.live
    with pytest.raises(FencedError):
        heartbeat.check()


def test_available_now_ends_though_nothing_is_read_of_what_is_carried(make_world: Callable[..., World]) -> None:
    """As where nothing is read of what a probe got: what is carried stays for the next run."""
    world = make_world(numPartitions="2", waitTimeSeconds="1")
    world.send(*(f"{group}{index}" for index in range(1, 4) for group in "abcde"))
    world.receive_elsewhere(10, 5)
    world.receive_elsewhere(10, 5)
    world.clock.advance(6)  # so that they are deferred
    query = Query(world, available_now=True, reads=lambda batch, count: range(count) if batch == 0 else None)
    triggers = 0
    while query.trigger():
        triggers += 1
        assert triggers < 20
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    assert sorted(world.bodies()) == sorted(row.body for row in world.sent)


def test_available_now_does_not_take_a_short_poll_for_the_end(make_world: Callable[..., World]) -> None:
    """It may bring nothing though there is something: a long poll tells."""
    world = make_world(numPartitions="1", maxMessagesPerTrigger="100")
    world.send("o1", "p1", "q1")
    query = Query(world, available_now=True)
    world.clock.advance(2)
    world.send(*(f"n{index}" for index in range(12)))
    world.receive_elsewhere(3, 1)  # the older ones, so that they stand behind the newer
    world.clock.advance(1)
    shares = iter([1.0, 0.0])
    world.receive_share = lambda: next(shares, 1.0)
    query.resume()
    while query.trigger():
        pass
    assert {"o1", "p1", "q1"} <= set(world.bodies())


def test_available_nows_last_poll_hands_on_nothing_that_the_last_epoch_has_served(
    make_world: Callable[..., World],
) -> None:
    """All stood still for a visibility timeout, so SQS delivers it again, and it is not committed yet."""
    world = make_world(numPartitions="1", maxMessagesPerTrigger="100")
    world.send("x1", "x2", "x3", "x4")
    others = world.receive_elsewhere(4)
    world.send("o1")
    query = Query(world, available_now=True).resume()
    for each in others:
        world.model.call("DeleteMessage", {"QueueUrl": world.url, "ReceiptHandle": each["ReceiptHandle"]})
    assert query.trigger()
    world.clock.advance(3)
    world.send("e3", "e4", "f1")
    assert query.trigger()
    assert world.bodies() == ["o1", "e3", "e4", "f1"]
    do_at(world, "before ReceiveMessage", lambda: world.clock.advance(LAPSE_S))
    while query.trigger():
        pass
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    assert world.bodies()[:4] == ["o1", "e3", "e4", "f1"]
    assert len(set(world.bodies())) == len(world.bodies())
    assert world.depth() == (0, 0)


def test_a_run_reads_though_the_count_of_messages_lags_behind(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Trigger.Once no other epoch follows."""
    world = make_world(numPartitions="1")
    world.send("a1")
    Query(world).trigger()
    world.die()
    world.send("b1")
    monkeypatch.setattr("sqs_fifo_spark.source.queue.Queue.approximate_counts", lambda queue: Counts())
    Query(world).resume().trigger()
    assert world.bodies() == ["a1", "b1"]


def test_an_offset_says_which_plan_it_follows() -> None:
    """And of which generation it is."""
    given = Offset("j", 7, 2, 3, after=2, after_epoch=5, generation=2)
    assert Offset.from_json(given.to_json()) == given


@pytest.mark.parametrize(("after_epoch", "found"), [(3, 3), (4, 4), (5, None)])
def test_what_an_epoch_follows_is_told_by_number_and_plan(after_epoch: int, found: int | None) -> None:
    """A lost epoch of the same plan, whose tasks put something late, is not it."""
    unsettled = {
        each: Unsettled((each.name,), Offset("j", each.epoch, 1, each.plan))
        for each in (EpochPlan(3, 1), EpochPlan(4, 1), EpochPlan(4, 2))
    }
    given = Offset("j", 6, 1, 5, after=1, after_epoch=after_epoch, generation=1)

    def decided(settled: int) -> Decision:
        return reconcile(given, Standing("j", "here", Ledger(settled, generation=1), EpochPlan(settled, 1), unsettled))

    assert decided(2) == (found and Settle(Offset("j", found, 1, 1)))
    assert decided(4) is None


def test_an_epoch_that_was_announced_blindly_and_lost_is_announced_again_too(make_world: Callable[..., World]) -> None:
    """Its number lies far behind the one before it. Under the wrapper, where it is too late for that, it is noticed."""
    world = make_world(numPartitions="1")
    for bodies in (("a1", "a2"), ("b1", "b2")):
        world.send(*bodies)
        Query(world, tells_start=False, is_wrapped=True).resume().trigger()
        world.die(down_s=LAPSE_S)
    lost = world.offsets.pop()
    world.committed.discard(1)
    assert lost.is_blind
    assert lost.epoch > world.offsets[-1].epoch + 1
    world.send("c1")
    with pytest.raises(DataLossError, match=f"the checkpoint does not know of epoch {lost.epoch}"):
        Query(world, tells_start=False, is_wrapped=True).resume().trigger()
    world.die()
    Query(world, tells_start=False).resume().drain()
    assert sorted(world.bodies()) == ["a1", "a2", "b1", "b2", "c1"]


@pytest.mark.parametrize("available_now", [True, False])
def test_a_batch_id_that_the_sink_may_have_gets_no_other_rows(
    make_world: Callable[..., World], available_now: bool
) -> None:
    """The last micro-batch only committed, so the journal has nothing of it, and Spark's log has lost it."""
    world = make_world(numPartitions="1", waitTimeSeconds="1")
    world.send("a1", "a2")
    play_out(Query(world, available_now=available_now))
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


@where_the_commit_deletes
def test_no_two_queries_have_epochs_of_the_same_number_though_one_was_idle_first(
    make_world: Callable[..., World],
) -> None:
    """What a new query has given back, older queries' logs still have: they learn that others went on since."""
    world = make_world(numPartitions="1", waitTimeSeconds="1")
    older = [Checkpoint() for _ in range(3)]
    for body, checkpoint in zip(("x1", "y1", "z1"), older, strict=True):
        world.send(body)
        Query(world, checkpoint=checkpoint).trigger()
        world.die(down_s=LAPSE_S)
    world.send("w1")
    query = Query(world, checkpoint=Checkpoint())
    world.fault = lambda action: "refused" if action == "ReceiveMessage" else ""
    assert not query.trigger()
    world.fault = lambda action: ""
    query.trigger()
    query.trigger()
    assert query.offsets[0].epoch > max(checkpoint.offsets[-1].epoch for checkpoint in older)
    world.die(down_s=LAPSE_S)
    with pytest.raises(DataLossError):
        Query(world, checkpoint=older[2]).resume().trigger()


def test_available_now_does_not_end_while_copies_that_it_holds_lock_what_is_old(
    make_world: Callable[..., World],
) -> None:
    """Their deletes failed in the task, so they are the commit's, and their group is free only then."""
    world = make_world(numPartitions="2", waitTimeSeconds="1", maxMessagesPerTrigger="100")
    world.send(*(f"a{index}" for index in range(1, 13)))
    Query(world).trigger()
    world.die(down_s=LAPSE_S)
    query = Query(world, available_now=True).resume()
    world.clock.advance(2)
    world.send("n1")
    for batch in range(1, 20):
        end = query.latest_offset(query.start_of(batch))
        if end == query.start_of(batch):
            break
        query.log(end)
        query.startless.commit(query.offsets[-2])
        world.fault = (lambda action: "refused" if action == "DeleteMessageBatch" else "") if batch == 1 else no_fault
        query.run(batch)
        world.fault = no_fault
    assert sorted(world.bodies()) == sorted(row.body for row in world.sent)


def test_available_now_does_not_end_with_copies_that_its_probe_could_not_delete(
    make_world: Callable[..., World],
) -> None:
    """They hide what follows them, and polls bring nothing: that is no end, but an error."""
    world = make_world(numPartitions="1", waitTimeSeconds="1", visibilityTimeoutSeconds="120")
    world.send("a1")
    Query(world).trigger()
    world.die(down_s=121)
    world.receive_share = lambda: 0.0  # the next run's task is given nothing
    Query(world).resume().trigger()  # commits a1 with a handle that has expired
    world.receive_share = lambda: 1.0
    world.die(down_s=121)
    world.send("a2")
    query = Query(world, available_now=True).resume()
    calls: list[str] = []

    def fault(action: str) -> str:
        calls.append(action)
        return "refused" if action == "DeleteMessageBatch" and "ReceiveMessage" in calls else ""

    world.fault = fault
    with pytest.raises(TransientQueueError, match="could not be deleted"):
        play_out(query)
    world.fault = lambda action: ""
    world.die(down_s=121)
    play_out(Query(world, available_now=True).resume())
    assert world.bodies() == ["a1", "a2"]


@pytest.mark.parametrize("tells_start", [True, False])
def test_a_run_of_one_micro_batch_serves_what_waits_though_another_source_went_on_alone(
    make_world: Callable[..., World], tells_start: bool
) -> None:
    """Trigger.Once with two sources: ours was idle, so Spark committed our last epoch, and has lost none."""
    world = make_world(numPartitions="1", waitTimeSeconds="1")
    for bodies in (["a1"], [], [], ["a2"], [], [], ["a3"]):
        world.send(*bodies)
        before, batch = len(world.bodies()), len(world.offsets)
        query = Query(world, tells_start=tells_start)
        if batch:
            query.resume()
        start = query.start_of(batch)
        end = query.latest_offset(start)
        query.log(end)
        if batch:
            query.startless.commit(query.offsets[batch - 1])
        if end == start:
            query.to_sink(batch, {})
            world.committed.add(batch)
        else:
            query.run(batch)
        assert world.bodies()[before:] == bodies
        world.die(down_s=LAPSE_S)


def test_available_now_waits_for_holds_once_however_often_another_source_has_it_asked(
    make_world: Callable[..., World],
) -> None:
    """What somebody else holds for long is waited for until it must have lapsed if nobody renewed it, and no longer."""
    world = make_world(numPartitions="2", waitTimeSeconds="1", visibilityTimeoutSeconds="600")
    world.send("a1", "b1")
    assert world.receive_elsewhere(1, 5_000)
    query = Query(world, available_now=True)
    while query.trigger():
        pass
    for _ in range(3):
        began_at = world.clock.now()
        start = query.start_of(len(query.offsets))
        assert query.latest_offset(start) == start
        query.startless.commit(start)
        assert world.clock.now() - began_at < 60


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_lost_entry_without_rows_is_noticed_under_the_wrapper(
    make_world: Callable[..., World], is_wrapped: bool
) -> None:
    """Another epoch was announced by then, and the sink may have its batch id; without the wrapper all goes on."""
    world = make_world(numPartitions="1", waitTimeSeconds="1")
    world.send("a1", "a2")
    play_out(Query(world))
    world.die(down_s=LAPSE_S)
    assert world.offsets.pop().partitions == 0
    world.committed.discard(len(world.offsets))
    world.send("b1")
    if is_wrapped:
        with pytest.raises(DataLossError, match="the checkpoint does not know of epoch 2,"):
            Query(world, tells_start=False, is_wrapped=True).resume()
        world.die()
    for _ in range(3):
        Query(world, tells_start=False).resume().trigger()
        world.die(down_s=LAPSE_S)
    assert sorted(world.bodies()) == ["a1", "a2", "b1"]


def test_a_log_that_loses_its_last_batch_twice_gives_that_batch_no_rows(make_world: Callable[..., World]) -> None:
    """The sink has it without rows. A task of the batch that was lost first seals what it has only then."""
    world = make_world(numPartitions="1")
    world.send("a1")
    query = Query(world)
    query.trigger()
    world.send("b1")
    query.log(query.latest_offset(query.start_of(1)))
    query.startless.commit(world.offsets[0])
    (plan,) = query.plans(1)
    world.die(down_s=LAPSE_S)
    world.offsets.pop()
    crash_at(world, "-- batch 1 is in the sink")
    with pytest.raises(Crash):
        Query(world).resume().trigger()
    world.die()
    world.offsets.pop()
    assert [rows for rows in world.sink[1].values() if rows] == []
    with suppress(SqsFifoError):
        read(world, plan)
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    world.audit()


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
