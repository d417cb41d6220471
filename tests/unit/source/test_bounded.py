"""The driver's memory depends on the micro-batch under way, not on those before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from tests.simulation.world import LAPSE_S
from tests.unit.by_hand import Query, World, in_both_modes_with

in_small_epochs = in_both_modes_with(numPartitions="2", maxMessagesPerTrigger="12")


def held_by(root: object) -> dict[str, int]:
    """Return the number of items of each container that is reachable from `root` through our own objects."""
    sizes: dict[str, int] = {}
    seen = set()
    waiting: deque[tuple[str, Any]] = deque([("", root)])
    while waiting:
        path, value = waiting.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, (dict, list, tuple, set, frozenset, deque)):
            sizes[path] = max(len(value), sizes.get(path, 0))
            items = value.values() if isinstance(value, dict) else value
            waiting.extend((f"{path}[]", item) for item in items)
        elif type(value).__module__.startswith("sqs_fifo_spark."):
            waiting.extend((f"{path}.{name}", part) for name, part in vars(value).items() if name != "_clock")
    return sizes


def some_unread(world: World) -> Query:
    """A query that does not read the first partition of every third batch."""
    return Query(world, reads=lambda batch, count: range(batch % 3 == 1 and count > 1, count))


def rounds(world: World, query: Query, count: int) -> Iterator[None]:
    """Let new groups come, some received before, some lost while they are carried, until all is in the sink."""
    for _ in range(count):
        first = len(world.sent)
        world.send(*(f"group{first}x{letter}{number}" for letter in "abcdefgh" for number in range(3)))
        world.receive_elsewhere(7)
        world.clock.advance(LAPSE_S)
        query.trigger()
        world.clock.advance(LAPSE_S)  # what the next batch takes over and does not read comes to it again
        query.trigger()
        world.clock.advance(LAPSE_S)  # nobody beats: all holds are over
        world.beat()
        query.drain()
        yield


@in_small_epochs
@pytest.mark.slow
def test_nothing_in_the_driver_grows_with_time(world: World) -> None:
    """After forty rounds of new groups, lost leases and copies it holds what it held after four."""
    query = some_unread(world)
    sizes = [held_by(query.driver) for _ in rounds(world, query, 40)]
    assert query.driver.report()["lostLeases"] > 50 or world.options.delete_after == "journal"
    world.audit()
    early: dict[str, int] = {}
    for each in sizes[:4]:
        early = {path: max(size, early.get(path, 0)) for path, size in {**early, **each}.items()}
    grown = {path: (early.get(path, 0), size) for path, size in sizes[-1].items() if size > early.get(path, 0) + 2}
    assert not grown


@in_small_epochs
def test_a_drained_driver_holds_nothing(world: World) -> None:
    """No lease, no loss, no ledger: an idle query is as it was at its start."""
    query = some_unread(world)
    for _ in rounds(world, query, 3):
        lease = query.driver._lease
        assert (lease._holds, lease._lost, dict(lease._lost_groups)) == ({}, {}, {})
        assert not query.driver._owned(None).ledger.unconfirmed
        assert not query.driver._owned(None).ledger.carried
