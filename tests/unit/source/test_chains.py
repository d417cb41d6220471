"""A partition as a chain of links: their order, and the limits of all of them together."""

from __future__ import annotations

import string
from dataclasses import replace

import pytest

from sqs_fifo_spark.errors import JournalUnavailableError
from tests.helpers import raises_one_line
from tests.simulation.world import LAPSE_S
from tests.unit.by_hand import Query, World, in_both_modes, with_options
from tests.unit.source.attempts import Attempts, begin, bodies, links, told

pytestmark = pytest.mark.law("source-2", "source-3", "source-4")

OPTIONS = {"numPartitions": "1", "deleteAfter": "journal"}


def test_a_chain_is_read_in_the_order_of_its_links(world: World) -> None:
    """A group of more messages than one answer holds is served in one micro-batch, link by link, in its order."""
    query, plan = begin(world, *(f"a{number}" for number in range(35)))
    rows = world.read(plan)
    assert told(rows) == ["z1", *(f"a{number}" for number in range(35))]
    chain = links(world)
    assert [len(head.receipts) for head in chain[:4]] == [11, 10, 10, 5]
    assert chain[-1].chain.is_last
    assert chain[-1].chain.served == len(rows)
    assert world.read(plan) == rows
    query.finish(rows)


@with_options(deleteAfter="commit")
def test_where_the_commit_deletes_a_chain_has_one_link(world: World) -> None:
    """Its group stays locked, so there is nothing to wait for, neither here nor in the epochs that follow."""
    began_at = world.clock.now()
    query, plan = begin(world, *(f"a{number}" for number in range(35)), "b1")
    rows = world.read(plan)
    (link,) = links(world)
    assert link.chain.is_last
    assert not link.origin.deletes
    assert bodies(world, link) == [["z1", *(f"a{number}" for number in range(10)), "b1"]]
    assert not world.deleted()
    query.into_sink({0: rows})
    while len(world.bodies()) < 37:
        assert query.trigger()
    assert world.clock.now() == began_at
    query.drain_and_audit()


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize(
    ("limits", "count"),
    [({"max_messages": n}, n) for n in (1, 2, 7, 11, 12, 30, 31, 36)]
    + [({"max_bytes": 2 + 60}, 21), ({"max_bytes": 2 + 150}, 31)],
)
def test_a_limit_is_that_of_the_whole_chain(world: World, limits: dict[str, int], count: int, dies: bool) -> None:
    """The decided messages count, those of each link, and those that a dead attempt has served."""
    query, plan = begin(world, *(f"a{1000 + number}" for number in range(60)))  # five bytes each
    plan = replace(plan, **limits)  # type: ignore[arg-type]
    if dies:
        world.crash("before DeleteMessageBatch", lambda: world.read(plan))
    rows = world.read(plan)
    assert len(rows) == count
    assert len(links(world)) > (count > 11)
    query.finish(rows)


def test_the_time_to_fetch_is_that_of_the_whole_chain(world: World) -> None:
    """A queue that always has something more does not keep a micro-batch from ending."""
    query, plan = begin(world, "a0")
    count = 0

    def goes_on(event: str) -> None:
        nonlocal count
        if event.startswith("after put epochs/"):
            count += 1
            world.clock.advance(1)
            world.send(f"a{count}")

    world.on_step = goes_on
    rows = world.read(plan)
    assert 1 < count <= world.options.max_fetch_s + 1
    world.on_step = lambda event: None
    query.finish(rows)


@pytest.mark.parametrize(("name", "most"), [("LINK_MESSAGES", 20), ("LINK_BYTES", 100)])
def test_a_link_is_not_larger_than_a_task_can_hold(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    """Where others follow; what is more than that by the last answer is at most ten messages."""
    monkeypatch.setattr(f"sqs_fifo_spark.source.task.demand.{name}", most)
    query, plan = begin(world, *(f"g{'abcdefghij'[number % 10]}x{1000 + number}" for number in range(90)))
    rows = world.read(plan)
    size = 1 if name == "LINK_MESSAGES" else len(rows[-1].body)
    assert all(size * (len(head.receipts) - 11) < most for head in links(world))
    assert len(links(world)) >= 5
    assert len(rows) == 91
    query.finish(rows)


def test_what_another_attempt_puts_counts_towards_the_limit(world: World) -> None:
    """The loser of a link receives no more than is left; only messages caught by then may be too many."""
    query, plan = begin(world, "a1", "a2", "a3")
    plan = replace(plan, max_messages=20)
    attempts = Attempts(world)
    loser = attempts.begin(plan, "before put epochs/")
    world.send(*(f"b{number}" for number in range(40)))
    winner = attempts.begin(plan, "before DeleteMessageBatch")
    attempts.kill(winner)
    attempts.end(loser)
    assert len(attempts.rows[0]) <= 20 + 3
    assert world.read(plan) == attempts.rows[0]
    query.finish(attempts.rows[0])


def test_a_hot_group_costs_hardly_more_receives_than_it_has_answers(world: World) -> None:
    """While a link is received its group is locked, and is not asked for again each time."""
    query, plan = begin(world, *(f"a{number}" for number in range(400)))
    rows = world.read(replace(plan, max_messages=500))
    assert len(rows) == 401
    asked = world.calls("ReceiveMessage")
    assert asked < 1.2 * len(links(world)) + 3
    query.finish(rows)


@pytest.mark.parametrize("is_received_before", [False, True])
def test_a_group_that_was_deferred_once_goes_on_at_full_speed(world: World, is_received_before: bool) -> None:
    """300 messages of one group take a few micro-batches, also if somebody else has received the first ones before."""
    world.send("y1", *(f"a{n}" for n in range(1, 301)))
    query = Query(world)
    query.log(query.driver.latest_offset(query.start_of(0), 1))
    if is_received_before:
        world.receive_elsewhere(10, 0)
        world.receive_elsewhere(10, 0)
    query.run(0)
    query.drain_and_audit()
    counts = [sum(map(len, world.sink[b].values())) for b in sorted(world.sink)]
    assert len(counts) < 12, counts


@with_options(numPartitions="8")
def test_a_few_hot_groups_are_not_given_many_partitions(world: World) -> None:
    """However many messages wait: each partition's share is the larger, and no task finds nothing."""
    world.send(*(f"{'ab'[number % 2]}{number}" for number in range(400)))
    query = Query(world)
    query.play_out()
    assert max(offset.partitions for offset in world.offsets[1:]) <= 4
    world.audit()


@with_options(numPartitions="8")
def test_a_first_epoch_gets_as_many_partitions_as_its_messages_are_worth(world: World) -> None:
    """Nobody knows yet of how many groups they are: an AvailableNow query may have no other epoch."""
    world.send(*(f"{string.ascii_letters[number % 50]}{number}" for number in range(40)))
    Query(world).drain()
    assert world.offsets[0].partitions == 8
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
    carried = [receipt.message_group_id for receipt in query.driver._epochs.open.verdict.carried_receipts()]  # type: ignore[union-attr]
    assert len(carried) > 8
    assert end.partitions >= min(-(-len(carried) // 4), len(set(carried)))


@pytest.mark.parametrize("link", [0, 1])
@pytest.mark.parametrize("is_restart", [True, False])
def test_a_chain_that_lacks_a_link_is_not_mended(world: World, link: int, is_restart: bool) -> None:
    """Somebody has removed it. A task would receive, and serve other messages in its place; the rest stays as it is."""
    world.send(*(f"a{number}" for number in range(35)))
    world.crash("-- batch 0 is in the sink", Query(world).drain)
    query = Query(world)
    if is_restart:
        world.die(down_s=LAPSE_S)
    else:
        query.resume()
    prefix = f"epochs/00000000000000000001/0000-{link:06d}"
    (gone,) = world.store.under(prefix)
    world.store.objects.pop(gone)
    world.send("b1")
    left = world.store.under("epochs/")
    with raises_one_line(JournalUnavailableError, match=f"'{gone}' vanished"):
        query.resume() if is_restart else query.trigger()
    assert world.store.under("epochs/") == left
    assert [each["Body"] for each in world.receive_elsewhere()] == ["b1"]
