"""Signs that the owner of a journal still runs: its process, or an answer."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import FencedError, JournalCorruptError
from sqs_fifo_spark.journal.documents import to_json
from sqs_fifo_spark.source import owner as owners
from sqs_fifo_spark.source import repair
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.owner import Owner, is_alive, longest_wait_s, this_process
from tests.manual_clock import ManualClock
from tests.unit.by_hand import Query, World, with_options

ABOUT = this_process(looks_every_s=7.0, now=1.5)


def elsewhere(journal: Journal) -> Owner:
    """The journal's owner, as another machine sees it."""
    owner = journal.owner()
    assert owner is not None
    return replace(owner, machine="another")


def test_a_claim_tells_of_its_process(journal: Journal) -> None:
    assert journal.owner() is None
    assert repair.require_no_owner(journal, ManualClock()) == journal.first_claim - 1
    claim = journal.claim(ABOUT)
    owner = journal.owner()
    assert owner is not None
    assert (owner.claim, owner.looks_every_s, owner.claimed_at, owner.is_command) == (claim, 7.0, 1.5, False)
    assert owner.is_running_here()
    assert str(owner) == f"claim {claim}, process {owner.pid} on {owner.host}"


def test_the_owner_is_alive_as_long_as_its_process(journal: Journal) -> None:
    """One that was killed and not yet buried counts as dead, and so does a later process of the same number."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        about = {**ABOUT, "pid": process.pid, "began": owners._began(process.pid)}
        claim = journal.claim(about)
        owner = Owner.of_claim(claim, to_json(about), "")
        assert owner.is_running_here()
        with pytest.raises(FencedError, match=f"a query runs on the journal at .*process {process.pid} on "):
            repair.require_no_owner(journal, ManualClock())
        process.kill()
        while owner.is_running_here():  # until the kernel has ended it
            SYSTEM_CLOCK.sleep(0.01)
        assert owner.is_running_here() is False
        assert repair.require_no_owner(journal, ManualClock()) == claim
    assert owner.is_running_here() is False  # buried
    assert repair.require_no_owner(journal, ManualClock()) == claim
    assert replace(owner, pid=os.getpid(), began=owner.began + 1).is_running_here() is False


def test_a_process_that_the_system_does_not_show_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mounted with hidepid, /proc has no other users' processes: that says nothing of them."""
    monkeypatch.setattr(owners, "_began", lambda pid: None)
    assert Owner.of_claim(1, to_json(ABOUT), "").is_running_here() is None


class Beating(ManualClock):
    """The time of a world in which heartbeats beat."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def monotonic(self) -> float:
        return self._world.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._world.pass_time(seconds)


def beside_claims(world: World) -> list[str]:
    return [name for name in world.store.under("drivers/") if "-" in name]


def test_from_another_machine_only_an_answer_counts(world: World) -> None:
    """A driver answers with its heartbeat, idle or not; without an answer in time it does not run."""
    world.send("a1")
    Query(world).drain()
    owner = elsewhere(world.journal())
    assert owner.looks_every_s == world.options.heartbeat_s
    assert longest_wait_s(owner) == world.options.heartbeat_s + owners.ANSWER_MARGIN_S
    assert is_alive(owner, world.store, Beating(world))
    assert not beside_claims(world)
    world.die()
    before = world.clock.now()
    assert not is_alive(owner, world.store, Beating(world))
    assert world.clock.now() - before >= longest_wait_s(owner)
    assert not beside_claims(world)


def test_a_question_that_is_long_under_way_leaves_the_query_its_time(world: World) -> None:
    """Else a slow link to the journal would take it from a query that runs."""
    Query(world).drain()
    owner = elsewhere(world.journal())
    world.do_at("before put drivers/ask-", lambda: world.pass_time(2 * longest_wait_s(owner)))
    assert is_alive(owner, world.store, Beating(world))


def test_a_question_costs_the_query_one_put_and_never_stops_it(world: World) -> None:
    """Also if whoever asked has died, and if the answer cannot be written."""
    query = Query(world).drain()
    owner = world.journal().owner()
    assert owner is not None
    for refuses in (True, False):
        world.store.lies_about = lambda name, refuses=refuses: "refuse" if refuses else ""  # type: ignore[misc]
        world.store.objects[f"drivers/ask-{owner.claim:020d}-{'0' * 32}"] = b"{}"
        puts: list[str] = []
        world.on_step = puts.append
        world.pass_time(5 * world.options.heartbeat_s)
        assert len([step for step in puts if step.startswith("before put drivers/here-")]) == (5 if refuses else 1)
    world.on_step = lambda event: None
    world.send("a1")
    query.drain_and_audit()


@with_options(visibilityTimeoutSeconds="43200")
def test_a_driver_looks_often_though_it_renews_seldom(world: World) -> None:
    """With a visibility timeout of hours, an operator does not wait for hours."""
    Query(world).drain()
    owner = world.journal().owner()
    assert owner is not None
    assert world.options.heartbeat_s == 14_400
    assert owner.looks_every_s == owners.LONGEST_LOOK_S


def test_questions_to_another_driver_and_odd_names_get_no_answer(journal: Journal) -> None:
    claim = journal.claim(ABOUT)
    for name in (f"ask-{claim + 1:020d}-{'0' * 32}", f"ask-{claim:020d}-../../x", f"here-{claim:020d}-{'0' * 32}"):
        owners.answer_questions(journal.store, claim, [f"drivers/{name}"])
    assert len(journal.store.list("drivers")) == 1


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("host", [None, 7]),
        ("pid", [None, -1, "7", 7.0, 1 << 31]),
        ("machine", [None, 3]),
        ("began", [None, "7"]),
        ("looksEverySeconds", [None, "1", -1, 61, math.nan, math.inf, 10**400]),
        ("claimedAt", [None, "1", -1, 1e300, math.nan]),
        ("isCommand", [None, "yes", 1]),
    ],
)
def test_a_claim_that_is_damaged_is_told(journal: Journal, key: str, values: list[object]) -> None:
    """A value that cannot be, or none: nobody knows then whom to ask, so nothing is changed."""
    missing = {name: value for name, value in ABOUT.items() if name != key}
    for about in [missing, *({**ABOUT, key: each} for each in values)]:
        journal.claim(about)
        with pytest.raises(JournalCorruptError, match="is damaged or not of this format"):
            repair.require_no_owner(journal, ManualClock())


def test_the_next_claim_removes_questions(journal: Journal) -> None:
    """A question left by a killed command goes with the next driver."""
    claim = journal.claim(ABOUT)
    journal.store.put_if_absent(f"drivers/ask-{claim:020d}-{'0' * 32}", b"{}")
    assert len(journal.require_claim(claim)) == 2
    journal.claim(ABOUT)
    assert len(journal.store.list("drivers")) == 1


def test_a_claim_that_is_dropped_while_it_is_read_is_another_drivers(journal: Journal) -> None:
    """A query that starts meanwhile is not overlooked."""
    journal.claim(ABOUT)
    get, store = journal.store.get, journal.store

    def get_late(name: str) -> bytes | None:
        store.get = get  # type: ignore[method-assign]
        Journal(store, journal.id, journal.first_claim).claim(ABOUT)
        return get(name)

    store.get = get_late  # type: ignore[method-assign]
    owner = journal.owner()
    assert owner is not None
    assert owner.claim == journal.first_claim + 1
