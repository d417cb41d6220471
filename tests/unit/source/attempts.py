"""Attempts at a partition that take turns, and the chain that they make."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from greenlet import getcurrent, greenlet

from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.plan import PartitionPlan
from sqs_fifo_spark.source.segment import Head, decode
from tests.simulation.hub import Crash
from tests.simulation.world import Row
from tests.unit.by_hand import Query, World

FIRST_LINK = "epochs/00000000000000000001/0000-000000"
SECOND_LINK = "epochs/00000000000000000001/0000-000001"


def begin(world: World, *bodies: str) -> tuple[Query, PartitionPlan]:
    """Return a query and the plan of its first micro-batch, when `bodies` wait; its probe has caught "z1"."""
    world.send("z1")
    query, plans = world.planned(1)
    plans[:] = (replace(plans[0], max_messages=100),)  # it did not expect more than one
    world.send(*bodies)
    return query, plans[0]


def links(world: World, epoch: int = 1, partition: int = 0) -> list[Head]:
    """Return the heads of a chain, in order; it has no gap, and only its end may be the last."""
    prefix = f"epochs/{epoch:020d}/{partition:04d}-"
    heads = [decode(world.store.objects[name], name).head for name in world.store.under(prefix)]
    assert [head.origin.link for head in heads] == list(range(len(heads)))
    assert not any(head.chain.is_last for head in heads[:-1])
    return heads


def bodies(world: World, *heads: Head) -> list[list[str]]:
    """Return the bodies of the messages in each of these links."""
    body = {row.message_id: row.body for row in world.sent}
    return [[body[receipt.message_id] for receipt in head.receipts] for head in heads]


def sealed(world: World) -> list[str]:
    """Return the bodies in all segments that tasks have put."""
    names = [name for name in world.store.under("epochs/") if Journal.is_link(name)]
    segments = [decode(world.store.objects[name], name) for name in names]
    return [body for segment in segments for body in segment.rows.column("body").to_pylist()]


def handles(receipts: Iterable[Receipt]) -> list[str]:
    return [receipt.receipt_handle for receipt in receipts]


def told(rows: list[Row]) -> list[str]:
    return [row.body for row in rows]


class Attempts:
    """Attempts of tasks that take turns: each stands still before its steps, until it is let go on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._home = getcurrent()
        self._at: dict[greenlet, str] = {}
        self.rows: list[list[Row]] = []
        """Rows of each attempt that came to its end."""
        world.on_step = self.on_step

    def begin(self, plan: PartitionPlan, until: str = "") -> greenlet:
        """Begin an attempt, which goes on to its first step that begins with `until`."""

        def run() -> None:
            with suppress(Crash):
                self.rows.append(self._world.read(plan))

        attempt = greenlet(run)
        self._at[attempt] = ""
        self.go_on(attempt, until)
        return attempt

    def go_on(self, attempt: greenlet, until: str = "") -> None:
        """Let it go on to the next step that begins with `until`, or to its end."""
        while True:
            attempt.switch()
            if attempt.dead or self._at[attempt].startswith(until):
                return

    def end(self, *attempts: greenlet) -> None:
        for attempt in attempts:
            while not attempt.dead:
                attempt.switch()

    def kill(self, attempt: greenlet) -> None:
        attempt.throw(Crash)

    def agreed(self) -> list[Row]:
        """Return what several attempts have read, which is the same."""
        assert len(self.rows) > 1
        assert all(each == self.rows[0] for each in self.rows)
        return self.rows[0]

    def on_step(self, event: str) -> None:
        current = getcurrent()
        if current in self._at:
            self._at[current] = event
            self._home.switch()


def paused(world: World, call: Callable[[], object], before: str, occurrence: int = 1) -> greenlet:
    """Do `call` up to the step that begins with `before`; `switch` goes on with it, to its end."""
    here, left = getcurrent(), occurrence

    def on_step(event: str) -> None:
        nonlocal left
        if getcurrent() is it and event.startswith(before):
            left -= 1
            if not left:
                here.switch()

    it = greenlet(call)
    world.on_step = on_step
    it.switch()
    world.on_step = lambda event: None
    assert not it.dead
    return it


def expire_soon(world: World) -> None:
    """Let what is sent from now on expire after a minute."""
    world.model.call("SetQueueAttributes", {"QueueUrl": world.url, "Attributes": {"MessageRetentionPeriod": "60"}})


def free(world: World) -> set[str]:
    """Return the bodies of what a receive would bring, were there no groups."""
    bodies = {row.message_id: row.body for row in world.sent}
    return {bodies[each] for each in world.free()}


def durable_when_deleted(world: World) -> None:
    """Say when something is deleted that no link serves, and that is not committed."""

    def look(event: object) -> None:
        kind, message_id = event.kind, event.message_id  # type: ignore[attr-defined]
        if kind != "deleted" or not world.is_ours:
            return
        served = {
            receipt.message_id
            for name in world.store.under("epochs/")
            for receipt in decode(world.store.objects[name], name).head.receipts
            if not receipt.deferred
        }
        committed = {row.message_id for batch in world.committed for rows in world.sink[batch].values() for row in rows}
        assert message_id in served | committed

    world.model.on_event(look)
