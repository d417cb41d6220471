"""Nothing overtakes what comes before it in its group, though SQS lets go of it: it expires, or somebody deletes it."""

from __future__ import annotations

import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest

from sqs_fifo_spark.errors import SqsFifoError
from sqs_fifo_spark.source.plan import PartitionPlan
from sqs_fifo_spark.source.segment import decode
from tests.simulation.hub import Crash
from tests.simulation.world import LAPSE_S, VISIBILITY_S, Checkpoint, Row
from tests.unit.by_hand import Query, World, with_options
from tests.unit.source.attempts import FIRST_LINK, SECOND_LINK, Attempts, begin, expire_soon, links, told

pytestmark = pytest.mark.law("source-4")

OPTIONS = {"numPartitions": "2", "deleteAfter": "journal"}


def dealt(world: World) -> tuple[Query, PartitionPlan, PartitionPlan]:
    """Return a query, and of its two plans the one to which more is carried first."""
    query, plans = world.planned(1_000)
    own, other = sorted(plans, key=lambda plan: len(world.carried(plan)), reverse=True)
    return query, own, other


def lose_decided(world: World, plan: PartitionPlan) -> None:
    """Let somebody delete what the driver has caught for this partition."""
    (name,) = world.carried(plan)
    world.delete_elsewhere(*(each.receipt_handle for each in decode(world.store.objects[name], name).head.receipts))


def numbers(world: World, group: str) -> list[int]:
    """Return the numbers of this group's bodies in the sink."""
    return [int(body[1:]) for body in world.bodies() if body.startswith(group)]


@pytest.mark.parametrize("first", ["its own partition", "the other one"])
def test_what_follows_decided_messages_that_sqs_has_lost_waits_for_their_link(world: World, first: str) -> None:
    """Somebody deletes them while they are in the driver's hands; then SQS hands out what follows to any task."""
    world.send(*(f"c{number}" for number in range(10)), *(f"a{number}" for number in range(150)))
    query, own, other = dealt(world)
    own = replace(own, max_messages=10)  # it receives nothing itself
    lose_decided(world, own)
    world.send("c10")
    turns = [own, other] if first == "its own partition" else [other, own]
    rows = {plan.partition: world.read(plan) for plan in turns}
    assert told(rows[own.partition]) == [f"c{number}" for number in range(10)]
    assert ("c10" in told(rows[other.partition])) == (first == "its own partition")
    assert "a99" in told(rows[other.partition])
    query.into_sink(rows)
    query.drain_and_audit()


def test_what_expires_in_the_hands_of_one_task_is_not_overtaken_in_those_of_another(world: World) -> None:
    """Messages that the driver has caught expire; then those behind them, once another partition's task has them."""
    expire_soon(world)
    for count in (range(10), range(10, 20), range(20, 21)):
        world.send(*(f"c{number}" for number in count))
        world.pass_time(1)
    world.pass_time(56.5)
    world.send(*(f"a{number}" for number in range(150)))
    query, own, other = dealt(world)
    world.pass_time(1)  # c0 to c9 expire
    rows = {}
    world.do_at("before put epochs/", lambda: world.pass_time(1))  # and c10 to c19, if it holds them
    rows[other.partition] = world.read(replace(other, max_messages=20))
    rows[own.partition] = world.read(own)
    assert told(rows[own.partition])[:10] == [f"c{number}" for number in range(10)]
    query.into_sink(rows)
    query.drain()
    assert numbers(world, "c") == [*range(10), 20]  # SQS has dropped the others, for nobody had sealed them
    assert world.depth() == (0, 0)


def test_an_empty_link_that_closes_a_chain_does_not_stand_for_what_was_decided(world: World) -> None:
    """The driver closes a chain that nobody has begun, and an attempt at another one is under way still."""
    # It is decided for the first partition, for the driver closes chains in their order.
    group = group_of(0)
    world.send(*(f"{group}{number}" for number in range(10)), *(f"q{number}" for number in range(150)))
    query, (own, other) = world.planned(1_000)
    lose_decided(world, own)
    world.send(f"{group}10")
    rows: dict[int, list[Row]] = {}
    world.do_at(f"after put {FIRST_LINK}", lambda: rows.update({1: world.read(other)}))
    query.driver.latest_offset(query.offsets[0], 1_000)
    assert "q99" in told(rows[1])
    assert f"{group}10" not in told(rows[1])
    query.into_sink(rows)
    query.drain_and_audit()


@pytest.mark.parametrize("looks", ["at what follows it", "at another group first"])
def test_what_a_first_link_defers_is_not_overtaken_in_another_partition(world: World, looks: str) -> None:
    """It expires in spite of that task's hold, and another partition's task receives what follows it.

    That task has perhaps looked at the link before, for another group of which something was decided.
    """
    expire_soon(world)
    world.send("d0", *(f"c{number}" for number in range(1, 10)))
    for body in ("c10", "c11"):
        world.pass_time(1)
        world.send(body)
    world.pass_time(57.5)
    world.send(*(f"a{number}" for number in range(150)))
    query, own, other = dealt(world)
    world.pass_time(1)  # all that is decided expires
    while (given_back := world.receive_elsewhere(1)[0])["Body"] != "c10":
        pass  # others are kept
    change = {"QueueUrl": world.url, "ReceiptHandle": given_back["ReceiptHandle"], "VisibilityTimeout": 0}
    world.model.call("ChangeMessageVisibility", change)
    rows = {own.partition: world.read(replace(own, max_messages=11))}
    if looks == "at what follows it":
        world.pass_time(1)  # c10 expires
    else:
        world.send("d1")
        world.do_at("before put epochs/", lambda: world.pass_time(1))
    rows[other.partition] = world.read(other)
    query.into_sink(rows)
    query.drain()
    assert numbers(world, "c") == list(range(1, 12))
    assert world.depth() == (0, 0)


def redrive_at_once(world: World) -> None:
    """Let a message that lapses go to a dead-letter queue."""
    dead = world.create_queue("dead.fifo").rpartition("/")[2]
    policy = f'{{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:{dead}","maxReceiveCount":"1"}}'
    world.model.call("SetQueueAttributes", {"QueueUrl": world.url, "Attributes": {"RedrivePolicy": policy}})


@with_options(numPartitions="1")
@pytest.mark.parametrize("expires", [True, False], ids=["it expires", "it is redriven while a process stands still"])
def test_what_another_attempts_link_has_overtaken_is_not_put_behind_it(world: World, expires: bool) -> None:
    """Two attempts of one task: SQS lets go of what the first has received, and the second puts what follows it."""
    if expires:
        expire_soon(world)
    _, plan = begin(world, "a1", "b1")
    world.pass_time(58)
    if not expires:
        redrive_at_once(world)
    attempts = Attempts(world)
    first = attempts.begin(plan, "before put epochs/")
    world.send("a2")
    if expires:
        world.pass_time(3)  # well within the visibility timeout
    else:
        world.clock.advance(VISIBILITY_S + 1)
    second = attempts.begin(plan, "before DeleteMessageBatch")  # it has put a2
    attempts.end(first, second)
    rows = world.read(plan)
    assert attempts.rows == [rows, rows]
    assert not any(receipt.deferred for head in links(world) for receipt in head.receipts)
    assert [body for body in told(rows) if body.startswith("a")] == ["a2"]
    assert told(rows).count("b1") == 1  # which nothing has overtaken


@with_options(numPartitions="1")
def test_the_newest_handle_of_what_an_earlier_link_serves_is_kept(world: World) -> None:
    """Though another attempt's link has what follows it: the chain has it, so nothing has overtaken it."""
    _, plan = begin(world, "a1")
    attempts = Attempts(world)
    late = attempts.begin(plan, "before get epochs/00000000000000000001/caught")  # it has seen no link
    dead = attempts.begin(plan, f"after put {FIRST_LINK}")  # z1 and a1
    attempts.kill(dead)
    world.clock.advance(LAPSE_S)
    world.send("a2")
    other = attempts.begin(plan, f"before put {SECOND_LINK}")  # a2; z1 and a1 came again, too
    world.clock.advance(LAPSE_S)
    attempts.go_on(late, "before put epochs/")  # all three again: its handles are those that work
    attempts.go_on(other, f"after put {SECOND_LINK}")
    attempts.go_on(late, "before DeleteMessageBatch")  # it has put the third link
    body = {row.message_id: row.body for row in world.sent}
    counts = [(body[r.message_id], r.receive_count) for h in links(world) for r in (*h.receipts, *h.chain.unconfirmed)]
    assert not [event for event in world.events if event.kind == "visibility_changed"]
    assert max(count for each, count in counts if each == "a1") == 3
    assert max(count for each, count in counts if each == "a2") == 2
    attempts.kill(late)  # it stands within a call, and what that has set up for its thread is to end


def test_what_another_attempts_link_has_overtaken_is_not_served_with_the_next_epoch(world: World) -> None:
    """As above, but that attempt defers what follows, and another partition has served what is between them."""
    expire_soon(world)
    world.send(*(f"z{number}" for number in range(10)))
    query, *plans = dealt(world)
    own, other = (replace(plan, max_messages=100) for plan in plans)
    world.send("a1")
    world.pass_time(58)
    attempts = Attempts(world)
    first = attempts.begin(own, "before put epochs/")
    world.send("a2")
    world.pass_time(3)  # a1 expires
    attempts.end(attempts.begin(other))  # it serves a2, and deletes it
    world.send("a3")
    assert [each["Body"] for each in world.receive_elsewhere(10, 1)] == ["a3"]
    world.pass_time(2)  # another consumer has given a3 back
    second = attempts.begin(own, "before DeleteMessageBatch")  # it has put a3, deferred
    attempts.end(first, second)
    query.into_sink({plan.partition: world.read(plan) for plan in (own, other)})
    query.drain()
    assert numbers(world, "a") == [2, 3]
    assert world.depth() == (0, 0)


# What is carried over to the next epoch, or to another query


def group_of(partition: int) -> str:
    """Return the name of a group whose carried messages go to this one of two partitions."""
    return next(group for group in "abcdef" if zlib.crc32(group.encode()) % 2 == partition)


in_each_partition = pytest.mark.parametrize("partition", [0, 1])


@with_options(deleteAfter="commit")
@in_each_partition
def test_what_follows_carried_messages_waits_for_them(world: World, partition: int) -> None:
    """Also when somebody else deletes them and SQS delivers what follows: no other partition serves it before."""
    group = group_of(partition)
    query = world.served("x1")
    world.send(f"{group}1", f"{group}2")
    world.receive_elsewhere(10, 1)
    world.clock.advance(2)
    assert query.trigger()
    assert len(world.bodies()) == 1
    world.clock.advance(LAPSE_S)  # a pause without heartbeats
    world.delete_elsewhere()
    world.send(f"{group}3", *(f"y{index}" for index in range(9)))
    assert query.trigger()
    assert world.offsets[-1].partitions == 2
    query.drain_and_audit()


@with_options(deleteAfter="commit", maxMessagesPerTrigger="20")
def test_what_follows_expired_messages_of_a_half_sealed_epoch_waits(world: World) -> None:
    """They are in a segment, and gone from the queue: the replay's other partitions do not serve their group."""
    world.send(*(f"{group}1" for group in "abcdefghij"))
    world.kill("after put epochs/", Query(world).trigger, down_s=LAPSE_S)
    world.delete_elsewhere()
    world.send(*(f"{group}2" for group in "abcdefghij"))
    Query(world).resume().drain()
    last: dict[str, str] = {}
    for rows in world.sink.values():
        places = Counter(group for each in rows.values() for group in {row.group for row in each})
        assert set(places.values()) <= {1}
        for row in sorted((row for each in rows.values() for row in each), key=lambda row: row.sequence):
            assert last.get(row.group, "") < row.body
            last[row.group] = row.body


def without_first(world: World, partition: int) -> Query:
    """Return a query of whose first micro-batch only the other partition is read, with its plan.

    A throttled renewal does not tell that a message is gone.
    """
    query = Query(world, reads=lambda batch, count: range(1 - partition, 2 - partition) if not batch else range(count))
    query.log(query.latest_offset(query.start_of(0)))
    world.fault = lambda action: "throttled" if action.startswith("ChangeMessage") else ""
    assert world.carried(query.plans(0)[partition])
    world.fault = lambda action: ""
    return query


@with_options(waitTimeSeconds="1")
@pytest.mark.parametrize("has_crashed", [False, True])
@in_each_partition
def test_what_follows_a_carried_message_waits_for_it(world: World, partition: int, has_crashed: bool) -> None:
    """The older query's tasks have deleted it, so no lock holds the group.

    Of the first batch only the other partition is read; then all processes die, or an action like `limit` is content.
    """
    group = group_of(partition)
    world.send(*(f"{group}{n}" for n in range(1, 6)))
    world.kill("-- batch 0 is read", Query(world, checkpoint=Checkpoint()).trigger, down_s=LAPSE_S)
    assert world.deleted()
    world.send(*(f"{group}{n}" for n in range(6, 12)))
    query = without_first(world, partition)
    if has_crashed:
        world.read(query.plans(0)[1 - partition])
        world.restart(down_s=0)
    else:
        query.run(0)
        query.drain_and_audit()


def taken_over_while_deleting(world: World, plan: PartitionPlan, *bodies: str) -> list[PartitionPlan]:
    """A task of `plan` is about to delete, a new query plans while `bodies` come, and the delete takes effect.

    Return the new query's plans.
    """
    plans: list[PartitionPlan] = []

    def take_over() -> None:
        world.send(*bodies)
        plans.extend(world.planned()[1])
        world.crash_at("after DeleteMessageBatch")

    world.do_at("before DeleteMessageBatch", take_over)
    with suppress(SqsFifoError, Crash):
        world.read(plan)
    return plans


def deferring(world: World, group: str) -> Query:
    """A query that has committed its first batch, and is to serve what that has deferred: the group's first message."""
    query = Query(world, checkpoint=Checkpoint())
    world.send("z1")
    query.log(query.latest_offset(query.start_of(0)))
    world.send(f"{group}1")
    world.receive_elsewhere(10, 0)
    query.run(0)
    query.announce()
    assert query.driver._owned(None).ledger.carried
    return query


@with_options(waitTimeSeconds="1")
@in_each_partition
def test_what_follows_a_message_that_was_carried_twice_waits_for_it(world: World, partition: int) -> None:
    """The ledger carries it from where it was deferred; since then the older query's tasks have served and deleted it.

    Of the newer one's first batch only the other partition is read.
    """
    group = group_of(partition)
    old = deferring(world, group)
    world.crash("-- batch 1 is read", lambda: old.run(1))
    assert f"{group}1" in world.deleted()
    world.die(down_s=LAPSE_S)
    world.send(*(f"{group}{n}" for n in range(2, 6)), "v1")
    query = without_first(world, partition)
    query.run(0)
    query.drain()
    assert numbers(world, group) == list(range(1, 6))


@with_options(waitTimeSeconds="1")
@in_each_partition
def test_what_follows_a_message_that_was_carried_twice_waits_while_it_is_deleted(world: World, partition: int) -> None:
    """The older query's task deletes it after the newer one has planned."""
    group = group_of(partition)
    old = deferring(world, group)
    plan = next(plan for plan in old.plans(1) if world.carried(plan))
    plans = taken_over_while_deleting(world, plan, *(f"{group}{n}" for n in range(2, 6)), "v1", "u1", "w1")
    assert world.carried(plans[partition])
    world.read(plans[1 - partition])
    world.die(down_s=LAPSE_S)
    Query(world).resume().drain()
    assert numbers(world, group) == list(range(1, 6))


@with_options(waitTimeSeconds="1")
@in_each_partition
def test_what_an_older_task_deletes_late_is_served_first(world: World, partition: int) -> None:
    """It has looked at the claims before the newer query's, and deletes after that has planned."""
    group = group_of(partition)
    world.send("z1", "y1", "x1", "w1", "v1")
    _, old = world.planned(2, checkpoint=Checkpoint())
    world.send(*(f"{group}{n}" for n in range(1, 6)))
    plans = taken_over_while_deleting(world, replace(old[0], max_messages=100), *(f"{group}{n}" for n in range(6, 12)))
    partition = world.deal(plans[0]).groups[group]
    assert world.carried(plans[partition])
    world.read(plans[1 - partition])
    world.restart(down_s=LAPSE_S)


@with_options(deleteAfter="commit", maxMessagesPerTrigger="7")
def test_a_group_of_which_a_task_got_what_is_carried_to_another_comes_in_order(world: World) -> None:
    """Our hold on its head was lost, so its tail comes in order, from the queue."""
    world.send("px1", "qx1", "rx1", "sx1")
    world.receive_elsewhere(10, 20)
    world.send("tx1")
    world.receive_elsewhere(10, LAPSE_S)
    world.send("a1", "a2", "a3")
    world.do_at("after ReceiveMessage", lambda: world.send(*(f"ux{number}" for number in range(1, 7))))
    query, plans = world.planned()
    (other,) = (plan for plan in plans if not world.carried(plan))
    held = world.receive_elsewhere(10, 43_000)
    world.clock.advance(LAPSE_S + 1)

    def attempt(further: int) -> None:
        if further:
            world.do_at("before put epochs/", lambda: attempt(further - 1))
        world.read(other)

    attempt(3)
    query.into_sink({})
    for batch in (1, 2, 3):
        query.announce()
        query.run(batch)
        if batch == 1:
            world.clock.advance(LAPSE_S)
            world.receive_elsewhere(10, 100)
    for message in held:
        release = {"QueueUrl": world.url, "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0}
        world.model.call("ChangeMessageVisibility", release)
    world.clock.advance(101)
    query.drain_and_audit()
