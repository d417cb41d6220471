"""The protocol under every crash: `Driver` and `serve` over the strict model, called in Spark's own order.

No JVM, no thread, no network: what happens at which step is written by hand here. `tests/simulation` leaves it to dice.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from greenlet import greenlet

from sqs_fifo_spark.errors import (
    DataLossError,
    EpochSettledError,
    FencedError,
    JournalUnavailableError,
    TransientQueueError,
)
from sqs_fifo_spark.source.journal import Journal
from sqs_fifo_spark.source.plan import PartitionPlan
from tests.simulation.hub import Crash
from tests.simulation.spark import Query, read
from tests.simulation.world import LAPSE_S, VISIBILITY_S, Row
from tests.unit.by_hand import MODES, HandHeartbeat, World, crash_at, do_at, in_both_modes

# What a read shows


@pytest.mark.law("source-1", "source-4", "source-5")
@in_both_modes
def test_messages_of_many_groups_arrive_once_and_in_order(world: World) -> None:
    """The plain course: everything once, in order, deleted, with an empty ledger and no segment left."""
    world.send(*(f"{'abcde'[index % 5]}{index}" for index in range(60)))
    Query(world).drain()
    world.audit()
    assert not world.store.under("epochs/")


@in_both_modes
def test_partition_without_segment_has_shown_no_row(world: World) -> None:
    """A task killed at any step before its put has yielded nothing, and another attempt starts afresh."""
    world.send("a1", "a2", "b1")
    query = Query(world)
    crash_at(world, "before put epochs/")
    with pytest.raises(Crash):
        query.trigger()
    assert not world.store.under("epochs/")
    assert not world.sink
    world.die()
    Query(world).resume().drain()
    world.audit()


@pytest.mark.law("source-3")
@in_both_modes
def test_several_reads_give_the_same_rows(world: World) -> None:
    """After a success each further read of the partition gives the same rows, also when more has arrived."""
    world.send("a1", "a2", "b1")
    query = Query(world)
    assert query.trigger()
    world.send("a3", "c1")
    for _ in range(3):
        again = {index: query.read(plan) for index, plan in enumerate(query.plans(0))}
        assert again == world.sink[0]
    query.drain()
    world.audit()


@pytest.mark.law("source-3")
@in_both_modes
def test_empty_partition_stays_empty_for_a_second_action(world: World) -> None:
    """A partition that received nothing shows nothing to a second read, though there is something by then."""
    world.send("a1", "a2", "a3", "a4", "a5", "a6")
    query = Query(world)
    assert query.trigger()
    plans = query.plans(0)
    empty = [plan for plan in plans if not world.sink[0][plan.partition]]
    assert empty
    world.send("z1")
    assert all(query.read(plan) == [] for plan in empty)
    query.drain()
    world.audit()


@pytest.mark.law("source-3")
@in_both_modes
def test_planning_twice_gives_the_same_plans(world: World) -> None:
    """A union of the frame with itself asks for the partitions twice, and gets the same ones."""
    world.send("a1")
    query = Query(world)
    assert query.trigger()
    assert query.plans(0) == query.plans(0)


@pytest.mark.law("source-3")
def test_two_attempts_of_one_partition_give_the_same_rows(make_world: Callable[..., World]) -> None:
    """The attempt that loses serves the winner's rows; what it caught is free at once, and served by a later epoch."""
    world = make_world(maxMessagesPerTrigger="2", numPartitions="1")
    world.send("x1", "a1", "b1", "c1", "d1")
    query = Query(world)
    query.log(query.driver.latest_offset(query.start_of(0), 1))
    (plan,) = query.plans(0)
    fresh = replace(plan, max_messages=2, deal=b"")
    winner: list[Row] = []
    # The second attempt runs as a whole just before the first one seals.
    do_at(world, "before put epochs/", lambda: winner.extend(read(world, fresh)))
    loser = read(world, fresh)
    assert loser == winner
    assert len(winner) == 2
    assert world.depth() == (2, 3), "only what the probe and the winner have is held"
    world.sink[0] = {0: loser}
    world.committed.add(0)
    # Neither attempt knew of what the probe had got, so it is still to be served, too.
    left = {"x1", "a1", "b1", "c1", "d1"} - {row.body for row in loser}
    assert query.trigger()
    assert {row.body for row in world.sink[1][0]} <= left
    query.drain()
    world.audit()


# Deleting


@pytest.mark.law("source-2")
def test_nothing_is_deleted_before_commit(world: World) -> None:
    """The messages of a batch stay in the queue until Spark commits it."""
    world.send("a1", "b1")
    query = Query(world)
    assert query.trigger()
    end = query.driver.latest_offset(world.offsets[0])
    assert world.deleted() == []
    query.log(end)
    query.startless.commit(world.offsets[0])
    assert sorted(world.deleted()) == ["a1", "b1"]


@pytest.mark.law("source-6")
@in_both_modes
def test_epoch_that_delivered_is_followed_by_another_without_new_messages(world: World) -> None:
    """The last batch of a burst is committed and deleted though nothing more is sent."""
    world.send("a1")
    query = Query(world)
    assert query.trigger()
    began_at = world.clock.now()
    assert query.trigger()
    assert world.clock.now() == began_at, "it waited for a long poll"
    assert world.depth() == (0, 0)


@pytest.mark.law("source-6")
def test_single_group_of_500_drains_without_waiting(world: World) -> None:
    """One group gives ten messages an epoch, epoch after epoch, with no pause that only time ends."""
    world.send(*(f"a{index}" for index in range(500)))
    query = Query(world)
    began_at = world.clock.now()
    while len(world.bodies()) < 500:
        assert query.trigger()
    assert world.clock.now() == began_at
    query.drain()
    world.audit()


@in_both_modes
def test_idle_queue_makes_no_micro_batch(world: World) -> None:
    """With nothing to do `latest_offset` blocks for one long poll and returns its start."""
    query = Query(world)
    began_at = world.clock.now()
    assert not query.trigger()
    assert not query.trigger()
    assert world.clock.now() - began_at == 2 * world.options.wait_time_s
    assert not world.sink


def test_commit_twice_changes_nothing(world: World) -> None:
    """A commit that Spark repeats does no call that matters."""
    world.send("a1")
    query = Query(world)
    assert query.trigger()
    assert query.trigger()
    deleted, objects = world.deleted(), dict(world.store.objects)
    query.startless.commit(world.offsets[0])
    assert world.deleted() == deleted
    assert world.store.objects == objects


@pytest.mark.law("source-5")
@in_both_modes
@pytest.mark.parametrize("elapsed_s", [0, LAPSE_S])
def test_failing_deletes_go_to_the_ledger_and_are_settled_later(world: World, elapsed_s: float) -> None:
    """Deletes without an answer stand in the ledger; a later commit settles them, and nothing is served twice."""
    world.send("a1", "a2", "b1")
    query = Query(world)
    query.start_of(0)
    world.fault = lambda action: "refused" if action == "DeleteMessageBatch" else ""
    assert query.trigger()
    assert query.trigger()
    assert sorted(query.driver.report().items())[-2:] == [("unconfirmedDeletes", 3), ("waitingMessages", 0)]
    assert len(world.journal().ledger().unconfirmed) == 3
    world.fault = lambda action: ""
    world.pass_time(elapsed_s)
    world.send("a3")
    query.drain()
    world.audit()


@pytest.mark.law("source-5")
@in_both_modes
def test_expired_handles_at_commit_go_to_the_ledger_and_the_copies_are_deleted(world: World) -> None:
    """A copy of a committed message is deleted when it comes, never emitted; the ledger is empty in the end."""
    world.send("a1", "a2", "b1")
    query = Query(world)
    assert query.trigger()
    world.clock.advance(LAPSE_S)  # a pause in which no heartbeat ran
    world.send("a3")
    query.drain()
    world.audit()


@pytest.mark.law("source-5")
def test_copy_of_a_committed_message_met_by_the_probe_is_deleted(world: World) -> None:
    """The probe recognises a committed message by the ledger too."""
    world.send("a1")
    query = Query(world)
    assert query.trigger()
    world.clock.advance(LAPSE_S)
    held = world.receive_elsewhere(visibility_timeout_s=5)
    assert [message["Body"] for message in held] == ["a1"]
    assert query.trigger()
    assert len(world.journal().ledger().unconfirmed) == 1
    query.drain()
    assert world.bodies().count("a1") == 1
    world.audit()


@in_both_modes
def test_partial_failure_of_a_delete_is_repeated_for_the_failed_entries(world: World) -> None:
    """Entries that failed are deleted within the same commit."""
    world.send(*(f"a{index}" for index in range(5)))
    query = Query(world)
    assert query.trigger()
    answers = iter([frozenset({1, 3})])
    world.failing_entries = lambda action: next(answers, frozenset()) if "Delete" in action else frozenset()
    assert query.trigger()
    assert world.depth() == (0, 0)
    query.drain()
    world.audit()


# Redelivery


@pytest.mark.law("source-5")
@in_both_modes
def test_redelivery_within_the_open_epoch_is_not_emitted_twice(world: World) -> None:
    """A message whose hold lapsed in mid-epoch and that another partition received is served once, deleted once."""
    world.send(*(f"a{index}" for index in range(9)), "b1")
    query = Query(world)
    query.log(query.driver.latest_offset(query.start_of(0)))
    plans = query.plans(0)
    assert len(plans) >= 2
    rows = {plans[0].partition: query.read(plans[0])}
    world.clock.advance(LAPSE_S)
    for plan in plans[1:]:
        rows[plan.partition] = query.read(plan)
    world.sink[0] = rows
    world.committed.add(0)
    query.drain()
    world.audit()


@in_both_modes
def test_partitions_are_for_what_is_carried_too(world: World) -> None:
    """SQS does not count that among what waits, for it is in flight."""
    world.options = replace(world.options, num_partitions=8)
    world.send(*(f"{group}{number}" for number in range(1, 5) for group in "abcdef"))
    while world.receive_elsewhere(visibility_timeout_s=1):
        pass
    world.pass_time(2)
    query = Query(world)
    assert query.trigger()
    end = query.latest_offset(query.start_of(1))
    carried = [receipt.message_group_id for receipt in query.driver._open.verdict.carried_receipts()]  # type: ignore[union-attr]
    assert len(carried) > 8
    assert end.partitions >= min(-(-len(carried) // 4), len(set(carried)))


@pytest.mark.law("source-5")
@in_both_modes
def test_receive_count_from_foreign_consumers_is_emitted_once(world: World) -> None:
    """A message that somebody else received and let lapse is not ours, so it is served, once and in order."""
    world.send("a1", "a2", "b1")
    for _ in range(3):
        assert world.receive_elsewhere()
        world.clock.advance(LAPSE_S)
    world.send("a3", "b2")
    Query(world).drain()
    world.audit()


@pytest.mark.law("source-4")
@in_both_modes
def test_foreign_hold_on_the_tail_of_a_group_keeps_the_order(world: World) -> None:
    """Of [1,2,3] somebody keeps 3: 1 and 2 are served, and 3 with all that follows it later."""
    world.send("a1", "a2", "a3")
    third = world.receive_elsewhere()[2]
    change = {"QueueUrl": world.url, "ReceiptHandle": third["ReceiptHandle"], "VisibilityTimeout": 300}
    world.model.call("ChangeMessageVisibility", change)
    world.clock.advance(LAPSE_S)
    world.send("a4", "b1")
    Query(world).drain()
    world.audit()


@pytest.mark.law("source-7")
@in_both_modes
def test_heartbeat_keeps_messages_from_others_through_a_slow_batch(world: World) -> None:
    """While a batch takes four visibility timeouts nobody else gets its messages."""
    world.send("a1", "a2", "b1")
    query = Query(world)

    def be_slow() -> None:
        for _ in range(4 * VISIBILITY_S):
            world.pass_time(1)
            assert world.receive_elsewhere() == []

    do_at(world, "-- batch 0 is read", be_slow)
    assert query.trigger()
    query.drain()
    world.audit()


def test_heartbeat_keeps_what_the_winning_attempt_received_and_the_loser_keeps_nothing(
    make_world: Callable[..., World],
) -> None:
    """A speculative attempt's messages are free as soon as it has lost, and nobody renews them."""
    world = make_world(numPartitions="1")
    world.send("x1", "a1", "b1", "c1", "d1")
    query = Query(world)
    query.log(query.driver.latest_offset(query.start_of(0), 1))
    (plan,) = query.plans(0)
    mine = replace(plan, max_messages=3)
    rows: list[list[Row]] = []
    do_at(world, "before put epochs/", lambda: rows.append(read(world, mine)))
    rows.append(read(world, mine))
    assert rows[0] == rows[1]
    free = {"x1", "a1", "b1", "c1", "d1"} - {row.body for row in rows[0]}
    taken = {message["Body"] for message in world.receive_elsewhere(visibility_timeout_s=1)}
    assert taken == free
    world.pass_time(1)
    for _ in range(4 * VISIBILITY_S):
        world.pass_time(1)
        assert {message["Body"] for message in world.receive_elsewhere(visibility_timeout_s=1)} <= free
    world.pass_time(1)
    world.sink[0] = {0: rows[0]}
    world.committed.add(0)
    query.drain()
    world.audit()


# Crashes


@pytest.mark.parametrize("elapsed_s", [0, LAPSE_S])
@pytest.mark.parametrize(
    "point",
    [
        "-- batch 1 is 2/",  # the offset is logged, nothing else
        "-- batch 1 is planned",
        "after put epochs/00000000000000000002/0000",  # some are sealed
        "-- batch 1 is read",  # all are sealed
        "-- batch 1 is in the sink",
        "before DeleteMessageBatch",
        "after DeleteMessageBatch",
        f"before put ledger/{1:020d}-{2:020d}",
        f"after put ledger/{1:020d}-{2:020d}",
        "before drop epochs/00000000000000000002",
    ],
)
@pytest.mark.law("source-4", "source-5")
def test_replay_after_a_crash_gives_each_message_once_in_order(world: World, point: str, elapsed_s: float) -> None:
    """Whatever the point of the crash, and whether or not the holds lapse before the restart."""
    world.send(*(f"{'abc'[index % 3]}{index}" for index in range(40)))
    query = Query(world)
    assert query.trigger()
    crash_at(world, point)
    with pytest.raises(Crash):
        query.drain()
    world.die(down_s=elapsed_s)
    Query(world).resume().drain()
    world.audit()


def restart(world: World) -> None:
    Query(world).resume().drain()


def crash_everywhere(
    make_world: Callable[..., World],
    elapsed_s: float,
    play: Callable[[World], None],
    resume: Callable[[World], None],
    **options: str,
) -> int:
    """Play a scenario again and again, killing everything at its first step, its second, and so on."""
    at = 0
    while True:
        at += 1
        world = make_world(**{"numPartitions": "2", "maxMessagesPerTrigger": "6", **options})
        crash_at(world, "", at)
        try:
            play(world)
        except Crash as crash:
            world.die(down_s=elapsed_s)
            try:
                resume(world)
                world.audit()
            except Exception as error:
                raise AssertionError(f"after a crash at step {at}, '{crash}': {error}") from error
        else:
            return at


@pytest.mark.law("source-1", "source-5")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("elapsed_s", [0, LAPSE_S])
def test_crash_at_every_single_step_loses_and_doubles_nothing(
    make_world: Callable[..., World], elapsed_s: float, mode: str
) -> None:
    """Each call of store and queue, before and after its effect, is a point at which all processes may die."""

    def play(world: World) -> None:
        world.send("a1", "a2", "b1", "a3", "c1", "b2", "d1", "d2")
        Query(world).drain()

    steps = crash_everywhere(make_world, elapsed_s, play, restart, deleteAfter=mode)
    assert steps > 50


@pytest.mark.law("source-1", "source-4", "source-5")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("elapsed_s", [0, LAPSE_S])
def test_crash_at_every_single_step_with_redelivery_under_way(
    make_world: Callable[..., World], elapsed_s: float, mode: str
) -> None:
    """The same with messages that others received, and with copies of committed ones still to come."""

    def play(world: World) -> None:
        world.send("a1", "a2", "b1", "b2", "c1")
        world.receive_elsewhere(3)
        world.clock.advance(LAPSE_S)
        query = Query(world)
        query.trigger()
        query.trigger()
        world.clock.advance(LAPSE_S)
        world.send("a3", "c2")
        query.drain()

    crash_everywhere(make_world, elapsed_s, play, restart, deleteAfter=mode)


@pytest.mark.law("source-1")
@in_both_modes
@pytest.mark.parametrize("elapsed_s", [0, LAPSE_S])
def test_new_query_on_an_old_journal_begins_with_what_was_not_committed(world: World, elapsed_s: float) -> None:
    """With the checkpoint deleted the old query's messages come from the queue again, at once."""
    world.send(*(f"{'ab'[index % 2]}{index}" for index in range(12)))
    query = Query(world)
    assert query.trigger()
    world.die(down_s=elapsed_s)
    world.offsets.clear()
    world.committed.clear()
    world.sink.clear()
    began_at = world.clock.now()
    query = Query(world)
    assert query.trigger()
    assert world.bodies()
    assert world.clock.now() == began_at
    query.drain()
    world.audit()


@pytest.mark.law("source-5")
@in_both_modes
def test_crash_during_commit_then_a_replayed_batch_that_is_not_read_doubles_nothing(world: World) -> None:
    """A commit broken off is finished also when the next batch's function never looks at its rows."""
    world.send("a1", "a2", "b1")
    query = Query(world)
    query.start_of(0)
    world.fault = lambda action: "refused" if action == "DeleteMessageBatch" else ""
    assert query.trigger()
    world.fault = lambda action: ""
    crash_at(world, "before DeleteMessageBatch")
    with pytest.raises(Crash):
        query.trigger()
    world.die(down_s=LAPSE_S)
    query = Query(world, reads=lambda batch, count: None if batch == 1 else range(count)).resume()
    query.drain()
    world.audit()


# Leftovers and rivals


@in_both_modes
def test_zombie_task_of_a_settled_epoch_fails_and_leaves_nothing(world: World) -> None:
    """An attempt that outlived its epoch gets no rows, and gives back at once what it received."""
    world.send("a1")
    query = Query(world)
    assert query.trigger()
    plans = query.plans(0)
    assert query.trigger()
    world.send("b1", "b2")
    with pytest.raises(EpochSettledError) as told:
        read(world, plans[0])
    assert "\n" not in str(told.value)
    assert world.depth() == (2, 0)
    query.drain()
    world.audit()


@in_both_modes
def test_zombie_task_that_is_retried_fails_again(world: World) -> None:
    """Spark retries a failed task: the second attempt must not serve what the first one received and gave back."""
    world.send("a1")
    query = Query(world)
    assert query.trigger()
    plans = query.plans(0)
    assert query.trigger()
    world.send("b1", "b2")
    for _ in range(3):
        with pytest.raises(EpochSettledError):
            read(world, replace(plans[0], deal=b""))
    query.drain()
    world.audit()


@in_both_modes
def test_what_a_leftover_put_is_served_to_no_other_leftover(world: World) -> None:
    """Two late attempts: what one of them seals in the settled epoch's empty place is not the epoch's content."""
    world.send("a1")
    query = Query(world)
    assert query.trigger()
    plan = replace(query.plans(0)[0], deal=b"")
    late: list[list[Row]] = []
    name = world.journal().segment_name(1, 0, 1)
    link = world.store.objects.pop(name)  # as it is for an attempt that began before there was one

    def read_late() -> None:
        with pytest.raises(EpochSettledError):
            late.append(read(world, plan))

    def settle() -> None:
        world.store.objects[name] = link
        assert query.trigger()
        assert name not in world.store.objects
        world.send("b1")
        do_at(world, "after put epochs/00000000000000000001", read_late)

    do_at(world, "before ReceiveMessage", settle)
    with pytest.raises(EpochSettledError):
        read(world, plan)
    assert late == []


@pytest.mark.law("source-2")
def test_superseded_driver_deletes_nothing_that_a_leftover_sealed(world: World) -> None:
    """It stands still before it looks at the epoch; meanwhile the next driver settles it, and a leftover puts there."""
    world.send("a1")
    query = Query(world)
    query.log(query.latest_offset(query.start_of(0)))
    plan = replace(query.plans(0)[0], deal=b"")
    test = greenlet.getcurrent()

    def attempt() -> None:
        with pytest.raises(Crash):
            read(world, plan)

    def on_step(event: str) -> None:
        if greenlet.getcurrent() is leftover:
            if event.startswith(("before ReceiveMessage", "before put epochs")):
                test.switch()
            if event.startswith("after put epochs"):
                raise Crash
        elif overtaken and event.startswith("before list epochs"):
            overtaken.pop()()

    leftover = greenlet(attempt)
    overtaken: list[Callable[[], object]] = []
    world.on_step = on_step
    leftover.switch()  # it has seen no segment, and the epoch open
    query.run(0)
    world.send("b1")
    leftover.switch()  # it receives b1
    query.log(query.latest_offset(query.offsets[0]))
    world.die()
    older, newer = Query(world), Query(world)
    older.driver.initial_offset()

    def overtake() -> None:
        newer.resume()
        while not leftover.dead:
            leftover.switch()

    overtaken.append(overtake)
    with pytest.raises((FencedError, JournalUnavailableError)):  # it finds another owner, or what that has dropped
        older.resume()
    older.driver.stop()
    assert leftover.dead
    assert world.deleted() == ["a1"]
    world.pass_time(LAPSE_S)
    newer.drain()
    world.audit()


def test_what_a_leftover_catches_between_verdict_and_ledger_is_given_back(make_world: Callable[..., World]) -> None:
    """The chain is closed by then: the leftover sees it, and nobody waits for its visibility timeout."""
    world = make_world(numPartitions="1", maxMessagesPerTrigger="1")
    world.send("a1")
    query = Query(world)
    query.log(query.latest_offset(query.start_of(0)))
    (plan,) = query.plans(0)
    late: list[list[Row]] = []
    world.send("b1")

    # It has received b1, and its put comes when the epoch is judged and its messages are being deleted.
    test = greenlet.getcurrent()
    leftover = greenlet(lambda: late.append(read(world, replace(plan, deal=b""))))

    def on_step(event: str) -> None:
        if greenlet.getcurrent() is leftover:
            if event.startswith("before put epochs/"):
                test.switch()
        elif event.startswith("before DeleteMessageBatch") and not leftover.dead:
            leftover.switch()

    world.on_step = on_step
    leftover.switch()
    query.run(0)
    began_at = world.clock.now()
    while "b1" not in world.bodies():
        assert query.trigger()
    assert leftover.dead
    assert [[row.body for row in rows] for rows in late] == [["a1"]]
    assert world.clock.now() == began_at
    query.drain()
    world.audit()


@in_both_modes
def test_segment_put_by_a_zombie_is_gone_after_the_next_commit(world: World) -> None:
    """What a zombie put into a settled epoch does not stay in the journal."""
    world.send("a1")
    query = Query(world)
    assert query.trigger()
    plans = query.plans(0)
    assert query.trigger()
    world.send("b1")
    with pytest.raises(EpochSettledError):
        read(world, plans[0])
    query.drain()
    assert not world.store.under("epochs/")


@in_both_modes
def test_second_driver_fences_the_first(world: World) -> None:
    """The older of two queries on one journal stops, and says what happened."""
    world.send("a1")
    older = Query(world)
    assert older.trigger()
    newer = Query(world).resume()
    newer.driver.latest_offset(world.offsets[-1])
    for call in (
        lambda: older.driver.latest_offset(world.offsets[-1]),
        lambda: older.startless.commit(world.offsets[-1]),
        lambda: older.startless.plan(world.offsets[-1], replace(world.offsets[-1], epoch=2)),
    ):
        with pytest.raises(FencedError, match="another query or an operator took over the journal") as told:
            call()
        assert "\n" not in str(told.value)
    newer.drain()
    world.audit()


@in_both_modes
def test_driver_fenced_during_its_long_poll_gives_back_what_it_received(world: World) -> None:
    """A driver that finds itself fenced after its probe releases the messages at once."""
    older = Query(world)
    assert not older.trigger()

    def rival() -> None:
        Query(world).driver.initial_offset()
        world.send("a1")

    do_at(world, "before ReceiveMessage", rival)
    with pytest.raises(FencedError):
        older.trigger()
    assert world.depth() == (1, 0)


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
    """A restart whose journal is gone or another one fails with one line, also when its first batch is replayed."""
    world.send(*(f"a{index}" for index in range(30)))
    query = Query(world)
    for _ in range(batches):
        assert query.trigger()
    if in_the_middle:
        world.committed.remove(batches - 1)  # killed between the sink's commit and Spark's
    world.die()
    spoil(world)
    restarted = Query(world)
    with pytest.raises(DataLossError, match="failOnDataLoss") as told:
        restarted.resume().trigger()
    assert "\n" not in str(told.value)
    assert world.deleted() == [f"a{index}" for index in range(10 * (batches - 1))]


@pytest.mark.parametrize("spoil", [lose_journal, other_journal])
@pytest.mark.parametrize("in_the_middle", [False, True])
def test_without_fail_on_data_loss_the_query_goes_on(
    make_world: Callable[..., World],
    spoil: Callable[[World], None],
    in_the_middle: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With failOnDataLoss=false the loss is said aloud, and what the queue still holds is served."""
    world = make_world(failOnDataLoss="false")
    world.send(*(f"a{index}" for index in range(30)))
    query = Query(world)
    assert query.trigger()
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


def test_checkpoint_older_than_the_journal_is_data_loss(world: World) -> None:
    """A checkpoint restored from yesterday is told apart from a lost journal."""
    world.send(*(f"a{index}" for index in range(50)))
    query = Query(world)
    for _ in range(4):
        assert query.trigger()
    world.die()
    del world.offsets[1:]
    with pytest.raises(DataLossError, match="the checkpoint is old"):
        Query(world).resume().trigger()


# foreachBatch that does not look


@pytest.mark.law("source-1")
@in_both_modes
@pytest.mark.parametrize("tells_start", [True, False])
def test_batch_that_never_asks_for_its_plan_loses_nothing(world: World, tells_start: bool) -> None:
    """A function of foreachBatch that ignores every second batch costs that batch no message: none was received."""
    world.send(*(f"{'ab'[index % 2]}{index}" for index in range(30)))
    query = Query(world, tells_start=tells_start, reads=lambda batch, count: None if batch % 2 else range(count))
    query.drain()
    world.audit()


@in_both_modes
@pytest.mark.parametrize("tells_start", [True, False])
def test_batch_without_a_look_at_its_rows_and_then_a_quiet_time(world: World, tells_start: bool) -> None:
    """After a batch that nobody read offsets never go back, however long it stays quiet."""
    world.send("a1")
    # The second batch is there to commit the first, and its rows are not looked at.
    query = Query(world, tells_start=tells_start, reads=lambda batch, count: None if batch == 1 else range(count))
    assert query.trigger()
    assert query.trigger()
    assert not any(query.trigger() for _ in range(4))
    world.send("b1", "b2", "c1", "c2", "d1")
    query.drain()
    world.audit()
    epochs = [offset.epoch for offset in world.offsets]
    assert epochs == sorted(set(epochs))


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
        assert query.trigger()
    query.drain()
    world.audit()
    assert Counter(event.message_id for event in world.events if event.kind == "received") == Counter(
        row.message_id for row in world.sent
    )
    epochs = [offset.epoch for offset in world.offsets]
    assert epochs == sorted(set(epochs))


@pytest.mark.law("source-1")
@in_both_modes
def test_unread_partitions_lose_nothing(world: World) -> None:
    """An action that stops after the first partition leaves the others' messages for the next batches."""
    world.send(*(f"{'abcdefgh'[index % 8]}{index}" for index in range(60)))
    query = Query(world, reads=lambda batch, count: range(min(1, count)) if batch % 2 == 0 else range(count))
    query.drain()
    world.audit()


# Limits


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tells_start", [True, False])
@pytest.mark.parametrize("limit", [1, 2, 7, 10, 25])
def test_max_messages_per_trigger_is_exact(
    make_world: Callable[..., World], limit: int, tells_start: bool, mode: str
) -> None:
    """No batch has more messages than the limit, and a full queue fills it exactly; on every Spark."""
    world = make_world(maxMessagesPerTrigger=str(limit), numPartitions="3", deleteAfter=mode)
    world.send(*(f"{chr(97 + index % 26)}{index}" for index in range(78)))
    Query(world, tells_start=tells_start).drain()
    sizes = [sum(map(len, rows.values())) for _, rows in sorted(world.sink.items())]
    assert max(sizes) == limit
    world.audit()


@pytest.mark.law("source-4")
@pytest.mark.parametrize("group", ["a", "b"])
def test_what_follows_carried_messages_waits_for_them(make_world: Callable[..., World], group: str) -> None:
    """Also when somebody else deletes them and SQS delivers what follows: no other partition serves it before."""
    world = make_world(numPartitions="2")
    world.send("x1")
    query = Query(world)
    assert query.trigger()
    world.send(f"{group}1", f"{group}2")
    world.receive_elsewhere(10, 1)
    world.clock.advance(2)
    assert query.trigger()
    assert len(world.bodies()) == 1
    world.clock.advance(LAPSE_S)  # a pause without heartbeats
    for message in world.receive_elsewhere():
        world.model.call("DeleteMessage", {"QueueUrl": world.url, "ReceiptHandle": message["ReceiptHandle"]})
    world.send(f"{group}3", *(f"y{index}" for index in range(9)))
    assert query.trigger()
    assert world.offsets[-1].partitions == 2
    query.drain()
    world.audit()


def test_a_replay_of_a_half_sealed_epoch_keeps_the_limit(make_world: Callable[..., World]) -> None:
    """What the dead driver's tasks have sealed counts."""
    world = make_world(numPartitions="2", maxMessagesPerTrigger="3")
    world.send(*(f"{group}1" for group in "defabcghijkl"))  # the probe has caught the first three
    query = Query(world)
    crash_at(world, "after put epochs/")
    with pytest.raises(Crash):
        query.trigger()
    world.die()
    Query(world).resume().drain()
    assert max(sum(map(len, rows.values())) for rows in world.sink.values()) == 3
    world.audit()


def test_what_follows_expired_messages_of_a_half_sealed_epoch_waits(make_world: Callable[..., World]) -> None:
    """They are in a segment, and gone from the queue: the replay's other partitions do not serve their group."""
    world = make_world(numPartitions="2", maxMessagesPerTrigger="20")
    world.send(*(f"{group}1" for group in "abcdefghij"))
    query = Query(world)
    crash_at(world, "after put epochs/")
    with pytest.raises(Crash):
        query.trigger()
    world.die(down_s=LAPSE_S)
    for message in world.receive_elsewhere():
        world.model.call("DeleteMessage", {"QueueUrl": world.url, "ReceiptHandle": message["ReceiptHandle"]})
    world.send(*(f"{group}2" for group in "abcdefghij"))
    Query(world).resume().drain()
    last: dict[str, str] = {}
    for rows in world.sink.values():
        places = Counter(group for each in rows.values() for group in {row.group for row in each})
        assert set(places.values()) <= {1}
        for row in sorted((row for each in rows.values() for row in each), key=lambda row: row.sequence):
            assert last.get(row.group, "") < row.body
            last[row.group] = row.body


def test_messages_that_others_received_keep_the_limit(make_world: Callable[..., World]) -> None:
    """Messages carried over to the next epoch count against its limit too."""
    world = make_world(maxMessagesPerTrigger="6", numPartitions="2")
    world.send(*(f"{'abcd'[index % 4]}{index}" for index in range(40)))
    while world.receive_elsewhere():
        pass
    world.clock.advance(LAPSE_S)
    Query(world).drain()
    assert max(sum(map(len, rows.values())) for rows in world.sink.values()) <= 6
    world.audit()


@in_both_modes
def test_limit_given_by_spark_counts(world: World) -> None:
    """The limit of a call to `latest_offset` bounds its epoch."""
    world.send(*(f"{chr(97 + index)}1" for index in range(20)))
    query = Query(world)
    query.log(query.driver.latest_offset(query.start_of(0), 3))
    query.run(0)
    assert len(world.bodies()) == 3
    query.drain()
    world.audit()


def test_max_bytes_per_trigger_ends_receiving(make_world: Callable[..., World]) -> None:
    """Past the limit of bytes no further receive is made."""
    world = make_world(maxBytesPerTrigger="40", numPartitions="1")
    world.send(*(f"{chr(97 + index % 26)}{1000000000 + index}" for index in range(52)))  # 11 bytes each
    Query(world).drain()
    sizes = [sum(map(len, rows.values())) for rows in world.sink.values()]
    assert max(sizes) <= 10, "one receive of ten is past the limit"
    world.audit()


# AvailableNow


@in_both_modes
def test_available_now_ends_while_a_producer_goes_on(world: World) -> None:
    """It ends with the first epoch in which every message was sent after the trigger began, and deletes that too."""
    world.send(*(f"{'abc'[index % 3]}{index}" for index in range(35)))
    query = Query(world, available_now=True)
    before = {row.body for row in world.sent}
    triggers = 0
    while query.trigger():
        triggers += 1
        world.clock.advance(2)
        world.send(*(f"{'abc'[index % 3]}{1000 * triggers + index}" for index in range(5)))
        assert triggers < 50
    assert before <= set(world.bodies())
    assert sorted(world.deleted()) == sorted(world.bodies())
    # The next run delivers the rest and nothing twice.
    query = Query(world, available_now=True)
    while query.trigger():
        pass
    world.audit()


@in_both_modes
def test_available_now_on_an_empty_queue_ends_at_once(world: World) -> None:
    """One long poll finds nothing, and there is no batch."""
    query = Query(world, available_now=True)
    assert not query.trigger()
    assert not world.sink


# Holding between the calls, and outages


def stolen_while_beating(world: World, seconds: int) -> list[str]:
    """What a plain consumer that never stops asking gets, while all heartbeats beat."""
    bodies = []
    for _ in range(seconds):
        world.pass_time(1)
        bodies += [message["Body"] for message in world.receive_elsewhere()]
    return bodies


@pytest.mark.law("source-7")
@in_both_modes
def test_messages_are_held_between_the_end_of_a_batch_and_its_commit(world: World) -> None:
    """Another source's long poll, or a slow offset log, may stand in between for long."""
    world.send("a1", "a2", "b1")
    query = Query(world)
    assert query.trigger()
    query.driver.latest_offset(world.offsets[0])
    assert stolen_while_beating(world, 3 * VISIBILITY_S) == []
    query.drain()
    world.audit()


@pytest.mark.law("source-7")
def test_carried_messages_are_held_by_a_restarted_driver(make_world: Callable[..., World]) -> None:
    """Its tasks may start long after its plan."""
    world = make_world(numPartitions="1")
    world.send("x1")
    query = Query(world)
    assert query.trigger()
    world.send("a1", "a2", "b1", "b2")
    world.receive_elsewhere(10, 1)
    world.clock.advance(2)
    assert query.trigger()  # its tasks defer all of them
    query.log(query.driver.latest_offset(world.offsets[1]))
    query.startless.commit(world.offsets[1])
    assert world.journal().ledger().carried
    world.die()
    query = Query(world)
    query.plans(2)
    assert stolen_while_beating(world, 3 * VISIBILITY_S) == []
    query.run(2)
    query.drain()
    world.audit()


@pytest.mark.law("source-7")
@in_both_modes
def test_what_an_earlier_driver_sealed_is_held_at_once_by_the_next(world: World) -> None:
    """Nobody has renewed it since that driver died, so the first heartbeat is not waited for."""
    world.send("a1", "a2", "b1")
    query = Query(world)
    crash_at(world, "-- batch 0 is in the sink")
    with pytest.raises(Crash):
        query.trigger()
    world.die(down_s=VISIBILITY_S - 2)
    query = Query(world)
    query.plans(0)
    for heartbeat in HandHeartbeat.live:
        heartbeat.beat()
    assert stolen_while_beating(world, 3 * VISIBILITY_S) == []
    query.run(0)
    query.drain()
    world.audit()


def test_an_outage_of_the_queue_does_not_stop_an_idle_query(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The probe has received nothing, so nothing is at stake: it is said, and tried again."""
    query = Query(world)
    assert not query.trigger()
    world.fault = lambda action: "refused" if action == "ReceiveMessage" else ""
    assert not query.trigger()
    assert "gives no whole answer" in caplog.text
    world.fault = lambda action: ""
    world.send("a1")
    query.drain()
    world.audit()


@in_both_modes
def test_an_outage_of_the_count_does_not_stop_a_query(world: World) -> None:
    """The number of waiting messages only suggests how many partitions there are."""
    query = Query(world)
    assert not query.trigger()
    world.send(*(f"{'abc'[index % 3]}{index}" for index in range(40)))
    world.fault = lambda action: "refused" if action == "GetQueueAttributes" else ""
    while len(world.bodies()) < 40:
        assert query.trigger()
    world.fault = lambda action: ""
    query.drain()
    world.audit()


def test_available_now_does_not_end_well_while_the_queue_gives_no_answer(world: World) -> None:
    """It would look as if nothing were left."""
    world.send("a1")
    query = Query(world, available_now=True)
    query.start_of(0)
    world.fault = lambda action: "refused" if action == "ReceiveMessage" else ""
    with pytest.raises(TransientQueueError):
        query.trigger()


@in_both_modes
def test_available_now_waits_for_what_a_crashed_run_holds(world: World) -> None:
    """A task died between receive and seal, and the job is started again at once: it drains all the same."""
    world.send(*(f"{'abc'[index % 3]}{index}" for index in range(16)))
    query = Query(world, available_now=True)
    crash_at(world, "before put epochs/")
    with pytest.raises(Crash):
        query.trigger()
    world.die()
    query = Query(world, available_now=True).resume()
    while query.trigger():
        pass
    world.audit()


def test_available_now_waits_for_what_an_attempt_of_its_own_held_when_it_died(make_world: Callable[..., World]) -> None:
    """It serves all that waited at its beginning, also what nobody knows of any more."""
    world = make_world(numPartitions="1")
    world.send(*(f"{group}1" for group in "abcdefghijklm"))
    query = Query(world, available_now=True)
    query.log(query.latest_offset(query.start_of(0)))
    crash_at(world, "before put epochs/")
    with pytest.raises(Crash):
        query.read(query.plans(0)[0])
    del HandHeartbeat.live[1:]  # the driver's heartbeat alone survives
    query.run(0)
    while query.trigger():
        pass
    assert sorted(world.bodies()) == sorted(row.body for row in world.sent)


def test_a_store_that_stalls_after_the_probe_costs_no_lease(world: World) -> None:
    """What the probe received is renewed from its receive on."""
    world.send("a1")
    query = Query(world)
    start = query.start_of(0)
    do_at(
        world,
        "after ReceiveMessage",
        lambda: do_at(world, "before get drivers", lambda: world.pass_time(VISIBILITY_S - 5)),
    )
    query.latest_offset(start)
    world.pass_time(10)
    assert world.depth() == (0, 1)
    assert not [event for event in world.events if event.kind == "lapsed"]


@in_both_modes
def test_a_late_read_of_a_committed_epoch_receives_nothing(world: World) -> None:
    """A DataFrame that is used after its micro-batch costs no receives, which a redrive policy would count."""
    world.send("a1")
    query = Query(world)
    assert query.trigger()
    plans = query.plans(0)
    assert query.trigger()
    world.send("b1", "b2")
    received = sum(event.kind == "received" for event in world.events)
    for _ in range(4):
        with pytest.raises(EpochSettledError):
            query.read(plans[0])
    assert sum(event.kind == "received" for event in world.events) == received
    query.drain()
    world.audit()


@in_both_modes
def test_a_replay_renews_what_is_about_to_lapse_with_its_plan(world: World) -> None:
    """The thread of the heartbeat may sleep for a whole heartbeat, which is too late."""
    world.send("a1", "a2", "b1")
    query = Query(world)
    crash_at(world, "-- batch 0 is in the sink")
    with pytest.raises(Crash):
        query.trigger()
    world.die(down_s=VISIBILITY_S - 2)
    query = Query(world)
    query.plans(0)
    world.clock.advance(4)
    assert not world.receive_elsewhere()
    query.run(0)
    query.drain()
    world.audit()


def test_messages_carried_by_a_committed_batch_are_renewed_with_the_next_plan(make_world: Callable[..., World]) -> None:
    """Also when the restart begins with `latestOffset`, which reads the receipts of the earlier driver's tasks."""
    world = make_world(numPartitions="1")
    world.send("x1")
    query = Query(world)
    assert query.trigger()
    world.send("a1", "a2", "b1", "b2")
    world.receive_elsewhere(10, 1)
    world.clock.advance(2)
    assert query.trigger()
    world.die(down_s=VISIBILITY_S - 5)
    query = Query(world).resume()
    query.log(query.latest_offset(world.offsets[1]))
    query.startless.commit(world.offsets[1])
    query.plans(2)
    world.clock.advance(6)
    assert not world.receive_elsewhere()
    query.run(2)
    query.drain()
    world.audit()


@in_both_modes
@pytest.mark.parametrize("read_at_all", [False, True])
def test_available_now_with_a_function_that_never_reads_ends_and_says_so(
    world: World, read_at_all: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It gives the messages back at once, and does not wait for its own holds."""
    world.send("a1", "b1")
    unread = range(0) if read_at_all else None
    query = Query(world, available_now=True, reads=lambda batch, count: unread)
    began_at = world.clock.now()
    batches = 0
    while query.trigger():
        batches += 1
        assert batches < 10
    assert world.clock.now() - began_at < VISIBILITY_S
    assert "read nothing of what it got" in caplog.text
    assert world.depth() == (2, 0)
    query = Query(world, available_now=True)
    while query.trigger():
        pass
    world.audit()


@in_both_modes
def test_available_now_gives_back_what_is_carried_when_it_ends_unread(world: World) -> None:
    """It is served when the query runs again; until then nobody holds it."""
    world.send(*(f"{letter}{number}" for letter in "abcdef" for number in range(3)))
    query = Query(world, available_now=True, reads=lambda batch, count: range(1, count) if batch == 0 else range(0))
    while query.trigger():
        pass
    assert 0 < len(world.bodies()) < 18
    assert world.depth()[1] == 0
    query = Query(world, available_now=True)
    while query.trigger():
        pass
    assert len(world.bodies()) == 18
    world.audit()


@in_both_modes
def test_available_now_drains_what_a_crashed_run_held_while_a_producer_goes_on(world: World) -> None:
    """Steady traffic does not make it end before the dead task's holds are over."""
    old = [f"{'abc'[index % 3]}{index}" for index in range(16)]
    world.send(*old)
    query = Query(world, available_now=True)
    crash_at(world, "before put epochs/")
    with pytest.raises(Crash):
        query.trigger()
    world.die()
    query = Query(world, available_now=True)
    world.clock.advance(3)
    world.send("x1", "y1", "z1")
    query.resume()
    triggers = 0
    while query.trigger():
        triggers += 1
        world.pass_time(2)
        world.send(*(f"{'xyz'[index % 3]}{1000 * triggers + index}" for index in range(5)))
        assert triggers < 60
    assert set(old) <= set(world.bodies())


# Spark 4.0 and 4.1


@in_both_modes
def test_spark_4_0_order_of_calls_drains(world: World) -> None:
    """`latest_offset` without arguments walks through the same epochs."""
    world.send(*(f"{'abc'[index % 3]}{index}" for index in range(40)))
    Query(world, tells_start=False).drain()
    world.audit()


@in_both_modes
@pytest.mark.parametrize("elapsed_s", [0, LAPSE_S])
@pytest.mark.parametrize(
    "point",
    [
        "-- batch 0 is 1/",
        "-- batch 0 is read",
        "-- batch 0 is in the sink",
        "-- batch 1 is 2/",
        "-- batch 1 is read",
        "-- batch 1 is in the sink",
        "before put ledger/",
        "",
    ],
)
def test_spark_4_0_restart_is_exact(world: World, point: str, elapsed_s: float) -> None:
    """A restart asks `plan(x, x)` with the last logged offset first, then goes on, from whatever point.

    Spark 4.0 does so in `setLatestSeenOffset`, also when the batch of x is not committed and runs again.
    """
    world.send(*(f"{'abc'[index % 3]}{index}" for index in range(40)))
    query = Query(world, tells_start=False)
    if "batch 0" not in point:
        assert query.trigger()
    if point:
        crash_at(world, point)
        with pytest.raises(Crash):
            query.drain()
    world.die(down_s=elapsed_s)
    Query(world, tells_start=False).resume().drain()
    world.audit()


# Faults of the journal


@pytest.mark.law("source-1", "source-5")
@in_both_modes
@pytest.mark.parametrize("lie", ["deny", "raise"])
@pytest.mark.parametrize("name", ["epochs/", "ledger/", "drivers/", "journal.json"])
def test_lost_answers_of_the_journal_lose_and_double_nothing(world: World, lie: str, name: str) -> None:
    """A put that took effect and was not confirmed is recognised, or the query restarts and finds it."""
    world.send("a1", "a2", "b1")
    told: set[str] = set()

    def lies_about(put: str) -> str:
        if put.startswith(name) and put not in told and len(told) < 3:
            told.add(put)
            return lie
        return ""

    world.store.lies_about = lies_about
    for _ in range(6):
        try:
            Query(world).resume().drain()
        except JournalUnavailableError:
            assert lie == "raise"
            world.die()
        else:
            break
    assert told
    world.audit()


def test_a_link_that_was_put_in_time_is_not_released_by_its_task(make_world: Callable[..., World]) -> None:
    """The driver has carried over what it defers by the time that the task looks at the ledger."""
    world = make_world(numPartitions="1")
    world.send("z1")
    query = Query(world).resume()
    query.trigger()
    world.send("a1")
    query.log(query.latest_offset(query.start_of(1)))
    query.startless.commit(query.offsets[0])
    (plan,) = query.plans(1)
    world.receive_elsewhere(10, 1)
    world.clock.advance(2)
    plans: list[PartitionPlan] = []

    def go_on() -> None:
        query.to_sink(1, {0: read(world, plan)})
        world.committed.add(1)
        query.log(query.latest_offset(query.start_of(2)))
        query.startless.commit(query.offsets[1])
        plans.extend(query.plans(2))

    do_at(world, "after put epochs/00000000000000000002/0000", go_on)
    with pytest.raises(EpochSettledError):
        read(world, plan)
    assert any(world.carried(each) for each in plans)
    assert world.depth()[0] == 0
    assert not world.receive_elsewhere()
