"""The simulated world, with every step and every second of it in the hands of a test.

Heartbeats are beaten when time passes, and what shall happen at a step is done on the spot, inside of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from sqs_fifo_spark.clock import ManualClock
from sqs_fifo_spark.source.lease import Lease
from sqs_fifo_spark.source.offset import Offset
from tests.simulation import world as simulated
from tests.simulation.hub import Crash
from tests.simulation.world import Row

MODES = ("commit", "journal")
"""The values of `deleteAfter`."""
in_both_modes = pytest.mark.parametrize("world", [{"deleteAfter": mode} for mode in MODES], indirect=True, ids=MODES)
"""For a law that holds whenever messages are deleted."""


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
            for heartbeat in list(HandHeartbeat.live):
                heartbeat.beat()

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
