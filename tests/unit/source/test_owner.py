"""Whether the driver that owns a journal still runs: from its process, or from an answer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sqs_fifo_spark.clock import SYSTEM_CLOCK, ManualClock
from sqs_fifo_spark.errors import FencedError
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.source import owner as owners
from sqs_fifo_spark.source import repair
from sqs_fifo_spark.source.journal import Journal
from sqs_fifo_spark.source.owner import Owner, is_alive, silence_s, this_process
from tests.simulation.spark import Query
from tests.unit.by_hand import World


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(FileStore(tmp_path / "journal"), "arn:aws:sqs:eu-west-1:1:orders.fifo")


def elsewhere(journal: Journal) -> Owner:
    """The journal's owner, as another machine sees it."""
    owner = journal.owner()
    assert owner is not None
    return replace(owner, machine="another")


def test_a_claim_tells_of_its_process(journal: Journal) -> None:
    assert journal.owner() is None
    claim = journal.claim({**this_process(), "looksEverySeconds": 7, "claimedAt": 1.5})
    owner = journal.owner()
    assert owner is not None
    assert (owner.claim, owner.looks_every_s, owner.claimed_at) == (claim, 7.0, 1.5)
    assert owner.is_here()
    assert owner.is_running()
    assert str(owner) == f"claim {claim}, process {owner.pid} on {owner.host}"


def test_the_owner_is_alive_as_long_as_its_process(journal: Journal) -> None:
    """One that was killed and not yet buried counts as dead, and so does a later process of the same number."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        about = {**this_process(), "pid": process.pid, "began": owners._began(process.pid)}
        claim = journal.claim(about)
        owner = Owner.told(claim, about)
        assert owner.is_running()
        with pytest.raises(FencedError, match=f"a query runs on the journal at .*process {process.pid} on "):
            repair.require_no_owner(journal, ManualClock())
        process.kill()
        while owner.is_running():  # until the kernel has ended it
            SYSTEM_CLOCK.sleep(0.01)
        assert not is_alive(owner, journal.store, ManualClock())
        repair.require_no_owner(journal, ManualClock())
    assert not replace(owner, pid=this_process()["pid"], began=owner.began + 1).is_running()


def test_from_another_machine_only_an_answer_counts(make_world: Callable[..., World]) -> None:
    """A driver answers with each look at its claim, idle or not; without an answer in time it does not run."""
    world = make_world()
    world.send("a1")
    query = Query(world).drain()
    owner = elsewhere(world.journal())
    assert owner.looks_every_s == max(world.options.heartbeat_s, world.options.wait_time_s)
    assert silence_s(owner) == owner.looks_every_s + owners.ANSWER_MARGIN_S

    class Beating(ManualClock):
        """Time in which the query's heartbeats beat."""

        def sleep(self, seconds: float) -> None:
            world.pass_time(seconds)

        monotonic = world.clock.monotonic

        def advance(self, seconds: float) -> None:
            world.pass_time(seconds)

    assert is_alive(owner, world.store, Beating())
    assert not [name for name in world.store.under("drivers/") if "ask" in name or "here" in name]
    assert query.driver is not None
    world.die()
    before = world.clock.now()
    assert not is_alive(owner, world.store, Beating())
    assert world.clock.now() - before >= silence_s(owner)
    assert not [name for name in world.store.under("drivers/") if "ask" in name or "here" in name]


def test_questions_to_another_driver_and_odd_names_get_no_answer(journal: Journal) -> None:
    claim = journal.claim()
    for name in (f"ask-{claim + 1:020d}-{'0' * 32}", f"ask-{claim:020d}-../../x", f"here-{claim:020d}-{'0' * 32}"):
        owners.answer_questions(journal.store, claim, [f"drivers/{name}"])
    assert len(journal.store.list("drivers")) == 1


def test_a_claim_that_tells_nothing_is_asked(journal: Journal) -> None:
    """Older versions' claims, and whatever else stands there, tell of no process."""
    journal.claim({"pid": "7", "machine": 3, "looksEverySeconds": None, "began": True})
    owner = journal.owner()
    assert owner is not None
    assert (owner.pid, owner.is_here(), str(owner)) == (0, False, f"claim {owner.claim}")
    assert silence_s(owner) == 75.0


def test_the_next_claim_removes_questions(journal: Journal) -> None:
    """What an operator has left there whose command was killed goes with the next driver."""
    claim = journal.claim()
    journal.store.put_if_absent(f"drivers/ask-{claim:020d}-{'0' * 32}", b"{}")
    journal.require_claim(claim)
    assert len(journal.store.list("drivers")) == 3
    journal.claim()
    assert len(journal.store.list("drivers")) == 1
