"""Objects show their state, and nothing of a message's body, a handle or a credential."""

from __future__ import annotations

import re

import pytest

from tests.simulation.spark import Query
from tests.unit.by_hand import World
from tests.unit.sending import make, patched, rows

OWNED = "owned=<Ownership claim=1 generation=1 settled=0/0 unsettled=0 unconfirmed=0 carried=0>"


def test_the_source_tells_its_state(world: World) -> None:
    """Before its first epoch, and when the tasks of one have read it."""
    query = Query(world)
    start = query.start_of(0)
    journal = query.driver._owned(None).journal
    lease = "lost=0 heartbeat_s=10 visibility_timeout_s=30"
    assert repr(query.driver) == f"<Driver epoch=0 open=None next=None {OWNED} lease=<Lease held=0 {lease}>>"
    world.send("secret1", "secret2", "else1")
    query.log(query.latest_offset(start))
    query.run(0)
    epoch = "<Epoch 1/1 planned partitions=1 caught=3 objects=0 is_blind=False is_replay=False>"
    assert repr(query.driver) == f"<Driver epoch=1 open={epoch} next=None {OWNED} lease=<Lease held=3 {lease}>>"
    assert re.fullmatch("<Journal [0-9a-f]{32} at 'memory' is_claimed=True>", repr(journal))


def test_a_closed_epoch_tells_its_objects(world: World) -> None:
    """The driver judges it by them."""
    world.send("a1")
    query = Query(world)
    assert query.trigger()
    assert query.latest_offset(query.start_of(1)).epoch == 2
    assert re.search("open=<Epoch 1/1 closed .* objects=1 .*> next=<Epoch 2/1 announced ", repr(query.driver))


def test_the_sender_tells_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a partition, and after it."""
    sender = make(patched(monkeypatch))
    nothing = "known=0 equal=0 waiting=0 bytes=0 groups=0"
    assert repr(sender) == f"<Sender sent=0 {nothing} is_stopped=False failure=None>"
    sender.add(rows("secret1", "secret2", "else1"))
    sender.finish()
    assert repr(sender) == f"<Sender sent=3 {nothing} is_stopped=True failure=None>"
