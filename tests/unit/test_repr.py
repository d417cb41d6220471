"""What objects tell of themselves: their state, and nothing of a message's body, a handle or a credential."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from sqs_fifo_spark.source.driver import Driver
from tests.simulation.spark import Query
from tests.unit.by_hand import World
from tests.unit.sending import make, patched, rows


def told_by(name: str, driver: Driver) -> str:
    owned = driver._owned(None)
    return repr({"driver": driver, "epoch": driver._open, "lease": driver._lease, "journal": owned.journal}[name])


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        (
            "driver",
            "<Driver epoch=0 open=None next=None owned=<Ownership claim=1 generation=1 settled=0/0 unsettled=0 "
            "unconfirmed=0 carried=0> lease=<Lease held=0 .*>>",
            "<Driver epoch=1 open=<Epoch 1/1 .*> next=None owned=<Ownership claim=1 generation=1 settled=0/0 "
            "unsettled=0 unconfirmed=0 carried=0> lease=<Lease held=3 .*>>",
        ),
        ("epoch", "None", "<Epoch 1/1 planned partitions=1 caught=3 objects=0 is_blind=False is_replay=False>"),
        (
            "lease",
            "<Lease held=0 lost=0 heartbeat_s=10 visibility_timeout_s=30>",
            "<Lease held=3 lost=0 heartbeat_s=10 visibility_timeout_s=30>",
        ),
        ("journal", "<Journal [0-9a-f]{32} at 'memory' is_claimed=True>", None),
    ],
)
def test_the_source_tells_its_state(
    make_world: Callable[..., World], name: str, before: str, after: str | None
) -> None:
    """Before its first epoch, and when the tasks of one have read it."""
    world = make_world()
    query = Query(world)
    start = query.start_of(0)
    assert re.fullmatch(before, told_by(name, query.driver))
    world.send("secret1", "secret2", "else1")
    query.log(query.latest_offset(start))
    query.run(0)
    told = told_by(name, query.driver)
    assert re.fullmatch(after or before, told)
    handles = list(query.driver._lease._holds)
    assert len(handles) == 3
    assert not [hidden for hidden in ("secret", "else", *handles) if hidden in told]


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
