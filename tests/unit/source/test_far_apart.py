"""Micro-batches that lie further apart than the visibility timeout, and what the ledger keeps of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sqs_fifo_spark.errors import JournalUnavailableError
from sqs_fifo_spark.source.message import Message, from_sqs
from tests.simulation.world import LAPSE_S
from tests.unit.by_hand import Query, World, with_options

pytestmark = pytest.mark.law("source-6")

FAR_APART_S = 600


def once(world: World, *, tells_start: bool = True) -> list[str]:
    """Run the query with Trigger.Once, and return what that run put into the sink."""
    before = set(world.bodies())
    Query(world, tells_start=tells_start).resume().trigger()
    world.die(down_s=FAR_APART_S)
    return [body for body in world.bodies() if body not in before]


def send_groups(world: World, *, groups: int, each: int) -> None:
    names = [f"g{chr(97 + index)}x" for index in range(groups)]
    world.send(*(f"{name}{number}" for number in range(each) for name in names))


@with_options(numPartitions="2")
@pytest.mark.parametrize("tells_start", [True, False], ids=["4.2", "4.0"])
def test_every_run_far_from_the_last_serves_something_new(world: World, tells_start: bool) -> None:
    """All handles have expired by the commit; whoever gets a copy deletes it, and its group goes on at once."""
    send_groups(world, groups=10, each=30)
    assert [len(once(world, tells_start=tells_start)) for _ in range(4)] == [100, 100, 100, 0]
    assert world.depth() == (0, 0)
    world.send("z1")
    once(world, tells_start=tells_start)
    world.restart(tells_start=tells_start)


@with_options(numPartitions="1", maxFetchSeconds="2")
def test_time_to_fetch_counts_from_the_first_message_to_be_served(world: World) -> None:
    """However long the copies take: else a run would only delete, and the next one too."""
    send_groups(world, groups=10, each=20)
    assert len(once(world)) == 100

    def slow(event: str) -> None:
        if event == "before DeleteMessageBatch":
            world.clock.advance(1)

    world.on_step = slow
    assert once(world)


@with_options(numPartitions="1")
def test_a_copy_that_lapses_before_it_is_deleted_proves_nothing(world: World) -> None:
    """The task keeps nothing of that group, and the ledger keeps what it knows."""
    world.send("a1", "a2")
    assert len(once(world)) == 2
    world.send("a3")
    world.do_at("before DeleteMessageBatch", lambda: None)  # that of the start, with its impossible handle
    lapses: Iterator[int] = iter([0, 0, 1])

    def lapse(event: str) -> None:
        if event == "before DeleteMessageBatch" and next(lapses, 0):
            world.clock.advance(LAPSE_S)

    world.on_step = lapse
    assert once(world) == []
    world.on_step = lambda event: None
    Query(world).resume().drain()
    assert world.bodies() == ["a1", "a2", "a3"]
    world.audit()


@with_options(numPartitions="1")
def test_ids_of_messages_that_are_gone_leave_the_ledger(world: World) -> None:
    """Deleted with nobody told, and refused as expired later: what follows in its group proves it."""
    for number in range(5):
        world.send(f"a{number}", f"b{number}")
        query = Query(world).resume()
        query.trigger()
        # The deletes take effect, and the driver dies before the ledger is written.
        end = query.driver.latest_offset(world.offsets[-1])
        query.log(end)

        def dies(name: str) -> str:
            return "refuse" if name.startswith("ledger/") else ""

        world.store.lies_about = dies
        with pytest.raises(JournalUnavailableError):
            query.startless.commit(world.offsets[-2])
        world.store.lies_about = lambda name: ""
        world.die(down_s=FAR_APART_S)
        Query(world).resume()
        world.die()
        assert len(world.journal().ledger().unconfirmed) <= 4
    world.restart()


@with_options(numPartitions="1", maxMessagesPerTrigger="10")
def test_copies_are_known_however_long_ago_they_were_sent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a dead-letter queue a message lives on from when it came there, and may say when it was first sent."""

    def older(answer: dict[str, Any], **given: Any) -> Message:
        attributes = {**answer["Attributes"]}
        attributes["SentTimestamp"] = str(int(attributes["SentTimestamp"]) - 16 * 86_400_000)
        return from_sqs({**answer, "Attributes": attributes}, **given)

    monkeypatch.setattr("sqs_fifo_spark.source.receive.from_sqs", older)
    world.send(*(f"{group}{number}" for number in range(3) for group in "abcdefghijkl"))
    for _ in range(14):
        once(world)
    assert sorted(world.bodies()) == sorted(row.body for row in world.sent)
