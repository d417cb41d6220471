"""The simulated world, with every step and every second of it in the hands of a test.

Heartbeats are beaten when time passes, and what shall happen at a step is done on the spot, inside of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from sqs_fifo_spark.clock import ManualClock
from sqs_fifo_spark.source.lease import Lease
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.plan import PartitionPlan
from sqs_fifo_spark.source.pool import Answer, CallingThread
from tests.simulation import world as simulated
from tests.simulation.hub import Crash
from tests.simulation.spark import Query
from tests.simulation.world import LAPSE_S, Row

T = TypeVar("T")
MakeWorld = Callable[..., "World"]
MODES = ("commit", "journal")
"""The values of `deleteAfter`."""


def with_options(**options: str) -> pytest.MarkDecorator:
    """Give the test a world with these options."""
    return pytest.mark.parametrize("world", [options], indirect=True, ids=["-".join(options.values())])


def in_both_modes_with(**options: str) -> pytest.MarkDecorator:
    """For a law that holds whenever messages are deleted, in a world with these options."""
    worlds = [{"deleteAfter": mode, **options} for mode in MODES]
    return pytest.mark.parametrize("world", worlds, indirect=True, ids=MODES)


in_both_modes = in_both_modes_with()

STARTS: list[dict[str, Any]] = [{}, {"tells_start": False}, {"tells_start": False, "is_wrapped": True}]
"""How Spark 4.2 starts a query, how 4.0 does, and how that does with its wrapper for AvailableNow."""
WRAPPED = STARTS[2]
however_started = pytest.mark.parametrize("how", STARTS, ids=["4.2", "4.0", "4.0 wrapped"])


class HandHeartbeat:
    """`Heartbeat` without its thread: `World.pass_time` beats all that are started."""

    live: list[HandHeartbeat]

    def __init__(
        self, lease: Lease, clock: ManualClock, *, every_s: float, discover: Callable[[], None] | None = None
    ) -> None:
        self._lease = lease
        self._discover = discover
        self._failure: Exception | None = None

    def start(self) -> None:
        if self not in self.live:
            self.live.append(self)

    def stop(self) -> None:
        if self in self.live:
            self.live.remove(self)

    def check(self) -> None:
        if self._failure is not None:
            self._failure = None
            self._beat()

    def beat(self) -> None:
        try:
            self._beat()
        except Exception as error:
            self._failure = error

    def _beat(self) -> None:
        if self._discover is not None:
            self._discover()
        self._lease.renew()


def beat() -> None:
    """Let every live heartbeat beat."""
    for heartbeat in list(HandHeartbeat.live):
        heartbeat.beat()


class World(simulated.World):
    """A queue, a journal, a checkpoint and a sink: what is left when processes die."""

    def __init__(self, seed: int = 0, **options: str) -> None:
        super().__init__(seed, **options)  # type: ignore[arg-type]
        self.poll = self.pass_time

    @property
    def offsets(self) -> list[Offset]:
        return self.checkpoint.offsets

    @property
    def committed(self) -> set[int]:
        return self.checkpoint.committed

    @property
    def sink(self) -> dict[int, dict[int, list[Row]]]:
        return self.checkpoint.sink

    def pass_time(self, seconds: float) -> None:
        """Let time pass with every live heartbeat beating."""
        while seconds > 0:
            share = min(seconds, self.options.heartbeat_s)
            self.clock.advance(share)
            seconds -= share
            beat()

    def die(self, *, down_s: float = 0.0) -> None:
        """All of our processes are gone, and their heartbeats with them, for so many seconds."""
        HandHeartbeat.live.clear()
        self.step("-- killed")
        self.clock.advance(down_s)

    def deleted(self) -> list[str]:
        """Bodies of deleted messages, in the order of their deletion."""
        bodies = {row.message_id: row.body for row in self.sent}
        return [bodies[event.message_id] for event in self.events if event.kind == "deleted"]

    def bodies(self) -> list[str]:
        """Bodies in the sink by batch, partition and position."""
        return [row.body for rows in self.rows() for row in rows]

    def rows(self) -> Iterator[list[Row]]:
        return self.checkpoint.rows()

    def audit(self, *, allow_forgotten: bool = False) -> None:
        """Each message once, each group in order and in one partition of a batch, and nothing left behind.

        Where tasks delete, a group may stand in several partitions of a batch, in order in each.

        `allow_forgotten` explains entries of the ledger: a driver that dies after its probe deleted a copy of a
        committed message leaves the id behind, which a later commit removes, or its age.
        """
        counts = Counter(row.message_id for rows in self.rows() for row in rows)
        wrong = {row.body: counts[row.message_id] for row in self.sent if counts[row.message_id] != 1}
        assert not wrong, f"not exactly once in the sink: {wrong}"
        before: dict[str, int] = {}
        for batch in sorted(self.sink):
            places = Counter(group for rows in self.sink[batch].values() for group in {row.group for row in rows})
            in_one = all(count == 1 for count in places.values()) or self.options.delete_after == "journal"
            assert in_one, f"a group in two partitions of batch {batch}"
            after = dict(before)
            for rows in self.sink[batch].values():
                last = dict(before)
                for row in rows:
                    assert row.sequence > last.get(row.group, 0), f"{row.body} out of order in batch {batch}"
                    last[row.group] = row.sequence
                    after[row.group] = max(after.get(row.group, 0), row.sequence)
            before = after
        assert self.depth() == (0, 0), "messages are left in the queue"
        ledger = self.journal().ledger()
        assert not ledger.carried
        assert allow_forgotten or not ledger.unconfirmed


def crash_at(world: World, wanted: str, occurrence: int = 1) -> None:
    """Kill whoever takes the step that begins with `wanted` for the `occurrence`th time from now."""
    left = occurrence

    def on_step(event: str) -> None:
        nonlocal left
        if event.startswith(wanted):
            left -= 1
            if left == 0:
                world.on_step = lambda event: None
                raise Crash(event)

    world.on_step = on_step


def do_at(world: World, wanted: str, action: Callable[[], object]) -> None:
    """Do something once, at the step that begins with `wanted`."""

    def on_step(event: str) -> None:
        if event.startswith(wanted):
            world.on_step = lambda event: None
            action()

    world.on_step = on_step


def calls(world: World, action: str) -> int:
    """Return how often our processes have called this action."""
    return sum(event == f"before {action}" for _, _, event in world.trace)


def received(world: World) -> int:
    """Return how many messages all receives have brought."""
    return sum(event.kind == "received" for event in world.events)


def delete_elsewhere(world: World, *handles: str) -> None:
    """Let somebody delete the messages that these handles hold, or all that a receive brings."""
    for handle in handles or [each["ReceiptHandle"] for each in world.receive_elsewhere()]:
        world.model.call("DeleteMessage", {"QueueUrl": world.url, "ReceiptHandle": handle})


def require_held(world: World, seconds: int) -> None:
    """A plain consumer that never stops asking gets nothing, while all heartbeats beat."""
    for _ in range(seconds):
        world.pass_time(1)
        assert not world.receive_elsewhere()


class Late(CallingThread):
    """Makes a call when somebody waits for it."""

    def submit(self, call: Callable[[], T], /) -> Answer[T]:
        return _LateAnswer(call)


class _LateAnswer(Answer[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call

    def result(self) -> T:
        return self._call()


# What Spark does, and what ends it


def served(world: World, *bodies: str, **how: Any) -> Query:
    """Send these, and return a query that has had its first micro-batch."""
    world.send(*bodies)
    query = Query(world, **how)
    assert query.trigger()
    return query


def ran(world: World, *bodies: str, **how: Any) -> None:
    """Send these, and run the query for one micro-batch; then all are dead until every hold has lapsed."""
    world.send(*bodies)
    assert Query(world, **how).resume().trigger()
    world.die(down_s=LAPSE_S)


@contextmanager
def failing(world: World, action: str, fault: str = "refused") -> Iterator[None]:
    """Let calls of this action fail meanwhile."""
    world.fault = lambda called: fault if called == action else ""
    yield
    world.fault = lambda called: ""


def planned(world: World, limit: int | None = None, **how: Any) -> tuple[Query, list[PartitionPlan]]:
    """Return a query and the plans of its first micro-batch, of at most `limit` messages; nothing is read yet."""
    query = Query(world, **how).resume()
    start = query.start_of(0)
    query.log(query.latest_offset(start) if limit is None else query.driver.latest_offset(start, limit))
    return query, query.plans(0)


def claim(query: Query) -> None:
    """Let the driver of a new query claim the journal, as it does when Spark has said where the query is."""
    query.driver._owned(query.start_of(0))


def announce(query: Query) -> None:
    """Let Spark log the next micro-batch, and commit the one before."""
    query.log(query.latest_offset(query.start_of(len(query.offsets))))
    query.startless.commit(query.offsets[-2])


def announced(query: Query) -> bool:
    """Do as `announce` does, from the first micro-batch on; return False when there is nothing new."""
    batch = len(query.offsets)
    start = query.start_of(batch)
    end = query.latest_offset(start)
    if end == start:
        return False
    query.log(end)
    if batch:
        query.startless.commit(query.offsets[batch - 1])
    return True


def into_sink(query: Query, rows: dict[int, list[Row]], batch: int = 0) -> None:
    """Let the sink take a micro-batch's rows by partition, and Spark note that it has."""
    query.to_sink(batch, rows)
    query.checkpoint.committed.add(batch)


def lose_entry(world: World) -> Offset:
    """Let Spark's log lose its last entry, and return that."""
    lost = world.offsets.pop()
    world.committed.discard(len(world.offsets))
    return lost


def play_out(query: Query) -> None:
    """Trigger until there is nothing new."""
    while query.trigger():
        pass


def drain_and_audit(query: Query, *, allow_forgotten: bool = False) -> None:
    query.drain()
    assert isinstance(query.world, World)
    query.world.audit(allow_forgotten=allow_forgotten)


def finish(query: Query, rows: list[Row]) -> None:
    """Let the first micro-batch, of one partition, have these rows; drain and audit what follows."""
    into_sink(query, {0: rows})
    drain_and_audit(query)


def restart(world: World, *, down_s: float | None = None, allow_forgotten: bool = False, **how: Any) -> None:
    """Start the query again from its checkpoint, drain and audit; before, perhaps, all are dead for so many seconds."""
    if down_s is not None:
        world.die(down_s=down_s)
    drain_and_audit(Query(world, **how).resume(), allow_forgotten=allow_forgotten)


def crash(world: World, at: str, run: Callable[[], object], occurrence: int = 1) -> None:
    """Let a process do `run` up to the step that begins with `at`, where it dies."""
    crash_at(world, at, occurrence)
    with pytest.raises(Crash):
        run()


def kill(world: World, at: str, run: Callable[[], object], occurrence: int = 1, *, down_s: float = 0.0) -> None:
    """Let a process do `run` up to the step that begins with `at`, where all of our processes die for so long."""
    crash(world, at, run, occurrence)
    world.die(down_s=down_s)
