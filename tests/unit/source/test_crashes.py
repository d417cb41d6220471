"""All processes may die at any step, and any answer of the journal may be lost: each message once, in order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from sqs_fifo_spark.errors import JournalUnavailableError
from tests.helpers import in_all_tests
from tests.simulation.hub import Crash
from tests.simulation.runs import play
from tests.simulation.world import LAPSE_S
from tests.unit.by_hand import MODES, MakeWorld, Query, World, in_both_modes

pytestmark = pytest.mark.law("source-1", "source-3", "source-5")


def crash_everywhere(
    make_world: MakeWorld,
    elapsed_s: float,
    play: Callable[[World], None],
    resume: Callable[[World], None] = World.restart,
    **options: str,
) -> int:
    """Play a scenario again and again, killing everything at its first step, its second, and so on."""
    for at in itertools.count(1):
        world = make_world(**{"numPartitions": "2", "maxMessagesPerTrigger": "6", **options})
        world.crash_at("", at)
        try:
            play(world)
        except Crash as crash:
            world.die(down_s=elapsed_s)
            try:
                resume(world)
            except Exception as error:
                raise AssertionError(f"after a crash at step {at}, '{crash}': {error}") from error
        else:
            break
    return at


def send_some(world: World) -> None:
    world.send("a1", "a2", "b1", "a3", "c1", "b2", "d1", "d2")


after_a_while = pytest.mark.parametrize("elapsed_s", [in_all_tests(0), LAPSE_S])


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@after_a_while
@pytest.mark.parametrize("tells_start", [True, False], ids=["4.2", "4.0"])
def test_crash_at_every_single_step_loses_and_doubles_nothing(
    make_world: MakeWorld, tells_start: bool, elapsed_s: float, mode: str
) -> None:
    """Each call of store and queue, before and after its effect, is a point at which all processes may die.

    Spark 4.0 first asks for the plan of the last logged offset, also when its batch is not committed and runs again.
    """

    def play(world: World) -> None:
        send_some(world)
        Query(world, tells_start=tells_start).drain()

    def resume(world: World) -> None:
        world.restart(tells_start=tells_start)

    assert crash_everywhere(make_world, elapsed_s, play, resume, deleteAfter=mode) > 50


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@after_a_while
def test_crash_at_every_single_step_with_redelivery_under_way(
    make_world: MakeWorld, elapsed_s: float, mode: str
) -> None:
    """The same with messages that others received, and with copies of committed ones still to come."""

    def play(world: World) -> None:
        world.send("a1", "a2", "b1", "b2", "c1")
        world.receive_elsewhere(3)
        world.clock.advance(LAPSE_S)
        query = Query(world)
        query.trigger()
        query.trigger()
        world.clock.advance(LAPSE_S)
        world.send("a3", "c2")
        query.drain()

    assert crash_everywhere(make_world, elapsed_s, play, deleteAfter=mode) > 50


@pytest.mark.slow
@after_a_while
@pytest.mark.parametrize("modes", [MODES, MODES[::-1]], ids="-".join)
def test_a_restart_may_delete_at_another_time(make_world: MakeWorld, modes: tuple[str, str], elapsed_s: float) -> None:
    """After a crash at any step: what stands in the journal says how it was put."""

    def play(world: World) -> None:
        send_some(world)
        Query(world).drain()

    def resume(world: World) -> None:
        world.options = replace(world.options, delete_after=modes[1])
        Query(world).resume().drain()
        world.options = replace(world.options, delete_after="journal")  # a group may have been in two places
        world.audit()

    assert crash_everywhere(make_world, elapsed_s, play, resume, deleteAfter=modes[0]) > 50


@in_both_modes
@pytest.mark.parametrize("lie", ["deny", "raise"])
@pytest.mark.parametrize("name", ["epochs/", "ledger/", "drivers/", "journal.json"])
def test_lost_answers_of_the_journal_lose_and_double_nothing(world: World, lie: str, name: str) -> None:
    """A put that took effect and was not confirmed is recognised, or the query restarts and finds it."""
    world.send("a1", "a2", "b1")
    told: set[str] = set()

    def lies_about(put: str) -> str:
        if put.startswith(name) and put not in told and len(told) < 3:
            told.add(put)
            return lie
        return ""

    world.store.lies_about = lies_about
    for _ in range(6):
        try:
            Query(world).resume().drain()
        except JournalUnavailableError:
            assert lie == "raise"
            world.die()
        else:
            break
    assert told
    world.audit()


@pytest.mark.parametrize("seed", [91006130, 91001318, 92012164, 92000726, 970101252])
def test_schedules_that_once_broke_a_law_break_none(seed: int) -> None:
    """Two plans of an epoch; the end of AvailableNow, twice; a claim put again; very many messages at once."""
    assert not play(seed).laws.violations
