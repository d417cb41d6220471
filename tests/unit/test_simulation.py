"""The simulation itself: that it repeats what a seed says, that its laws can be broken, and a first helping of it."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.plan import PartitionPlan
from tests.helpers import in_all_tests
from tests.simulation.hub import DeadlockError, Hub, Process, StuckError, Threading
from tests.simulation.laws import Laws
from tests.simulation.planting import Mutation, Mutations, planted
from tests.simulation.runs import ALL_MUTATIONS, hunt, play
from tests.simulation.spark import Query
from tests.simulation.world import Checkpoint, Row, World
from tests.unit.by_hand import World as HandWorld

ROOT = Path(__file__).resolve().parents[2]


def simulation(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "first",
    [
        0,
        *(pytest.param(first, marks=pytest.mark.slow) for first in range(20, 240, 20)),
        *(in_all_tests(first) for first in range(240, 500, 20)),
    ],
)
def test_schedules_break_no_law(first: int) -> None:
    """Kills, stalls, lies, rivals, copies and strangers in any order: every law of source and sink holds."""
    for seed in range(first, first + 20):
        schedule = play(seed)
        violations = schedule.laws.violations
        assert not violations, "\n".join([f"seed {seed}", *schedule.world.told()[-200:], *violations])


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["16", "21", "4640027829"], ids=["source", "sink", "sink with full calls"])
def test_a_seed_gives_the_same_history_in_every_process(seed: str) -> None:
    """A failure on one machine can be replayed on another."""
    first, second = (simulation("--seed", seed, hash_seed=hash_seed) for hash_seed in ("1", "2"))
    assert first.returncode == 0, first.stdout[-500:] + first.stderr
    assert len(first.stdout.splitlines()) > 100
    assert first.stdout == second.stdout


def names_of_the_package() -> dict[tuple[str, str], object]:
    """Return what names of modules, and of their classes and loggers, stand for; of functions, their code."""
    owners: dict[int, object] = {}
    for module_name, module in sys.modules.items():
        if module_name.startswith(("sqs_fifo_spark", "tests.simulation")):
            owned = [each for each in vars(module).values() if isinstance(each, (type, logging.Logger))]
            owners.update((id(each), each) for each in (module, *owned))
    found: dict[tuple[str, str], object] = {}
    for owner in owners.values():
        where = repr(owner)
        for name, value in vars(owner).items():
            function = value.callback if isinstance(value, click.Command) else value
            function = getattr(function, "__wrapped__", function)
            found[where, name] = getattr(function, "__code__", value)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mutation", ALL_MUTATIONS, ids=lambda mutation: mutation.name)
def test_each_bug_can_be_planted(mutation: Mutation) -> None:
    """A bug changes a name that exists, and is gone afterwards. The schedules above play without it."""
    before = names_of_the_package()
    with planted(mutation):
        assert names_of_the_package() != before
    assert names_of_the_package() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("serve redelivered messages at once", "!! no loss"),
        ("two rows of a group in one call", "!! once"),
        ("drop the parts of a record before the whole is put", "!! once"),
        ("end with calls under way", "!! end"),
    ],
)
def test_a_planted_bug_is_caught_and_its_seed_replays_it(name: str, broken: str) -> None:
    """The seed that a hunt names shows the violation again, with the steps that led to it."""
    hunt = simulation("--mutation", name, "--schedules", "2000")
    assert hunt.returncode == 0, hunt.stdout + hunt.stderr
    seed = hunt.stdout.split("(seed ")[1].split(":")[0]
    again = simulation("--mutation", name, "--seed", seed)
    assert again.returncode == 1
    assert broken in again.stdout
    assert simulation("--seed", seed).returncode == 0


def test_a_planted_bug_that_no_longer_fits_is_told() -> None:
    """A bug does not outlive the name, or the text, that it changes."""
    bugs = Mutations()
    bugs.changed("a constant", "sink.sender.GONE", 1)
    bugs.planted("a method", "source.journal_objects.Journal.gone")(lambda *_: None)
    bugs.rewritten("a text", "source.journal_objects.Journal.seal", "not there", "")
    told = [
        "has no attribute 'GONE'",
        "has no attribute 'gone'",
        "'not there' is 0 times in 'source.journal_objects.Journal",
    ]
    for bug, error in zip(bugs, told, strict=True):
        with pytest.raises((AttributeError, ValueError), match=error), planted(bug):
            pass


def test_a_planted_bug_that_is_called_in_another_way_is_not_caught(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with a TypeError, which says nothing of the laws."""
    monkeypatch.setattr(logging, "disable", lambda level: None)
    bugs = Mutations()
    bugs.planted("a bug", "source.journal_objects.Journal.seal")(lambda seal: None)
    with planted(bugs[0]):
        assert hunt(Mutation("a bug", lambda: None), 4, 50) == 1
    assert "it no longer fits what it is planted into: a bug" in capsys.readouterr().out


@pytest.mark.slow
def test_a_share_of_the_planted_bugs_is_hunted() -> None:
    """Shares of as many turns are all of them, each once; a run says which share it was."""
    share = f"0/{len(ALL_MUTATIONS)}"
    hunts = simulation("--mutations", "--share", share, "--schedules", "200", "--jobs", "1")
    assert hunts.returncode == 0, hunts.stdout + hunts.stderr
    first, caught, last = hunts.stdout.splitlines()
    assert first == f"share {share}: 1 of {len(ALL_MUTATIONS)} planted bugs"
    assert ALL_MUTATIONS[0].name in caught
    assert last == "1 of 1 planted bugs caught"


# The laws


PLAN = PartitionPlan("j", 1, 1, 0, 10, 10, 0, "", 0, False, 0, b"", False)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def laws(world: World) -> Laws:
    return Laws(world, is_calm=False)


def send(world: World, laws: Laws, *bodies: str) -> dict[str, Row]:
    rows = {body: world.put(body, body) for body in bodies}
    for row in rows.values():
        laws.sent(row)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batches", "broken"),
    [
        ([[["a1", "a2", "b1"]]], None),
        ([[["a1"], ["b1"]], [["a2"]]], None),
        ([[["a1", "a2"]]], "no loss: ['b1']"),
        ([[["a1", "a2", "b1"]], [["b1"]]], "exactly once: twice or more in sink 0: ['b1']"),
        ([[["a2", "b1"]], [["a1"]]], "order: a1 comes after a2 in sink 0, batch=1"),
        ([[["a1"], ["a2", "b1"]]], "order: a1 and a2 in two partitions, batch=0"),
    ],
)
def test_the_sinks_are_judged(world: World, laws: Laws, batches: list[list[list[str]]], broken: str | None) -> None:
    """Each of `batches` has the bodies of its partitions: a loss, a double, a wrong order or place is named."""
    rows = send(world, laws, "a1", "a2", "b1")
    checkpoint = Checkpoint()
    for number, partitions in enumerate(batches):
        checkpoint.offsets.append(Offset("j", number + 1, len(partitions)))
        checkpoint.epochs[number] = checkpoint.offsets[number].of
        checkpoint.sink[number] = {index: [rows[body] for body in bodies] for index, bodies in enumerate(partitions)}
    laws.checkpoints.append(checkpoint)
    laws.audit_sinks()
    assert laws.violations == ([broken] if broken else [])


def test_a_new_query_repeats_only_the_last_micro_batch_with_rows_of_the_old_one(world: World, laws: Laws) -> None:
    """The ledger knows what the old one had settled before."""
    rows = [*send(world, laws, "a1", "a2").values()]
    offsets = [Offset("j", 1, 1), Offset("j", 2, 1), Offset("j", 3, 0)]
    old = Checkpoint(
        offsets,
        sink={0: {0: rows[:1]}, 1: {0: rows[1:]}, 2: {}},
        epochs={batch: offset.of for batch, offset in enumerate(offsets)},
    )
    new = Offset("j", 9, 1)
    laws.checkpoints += [old, Checkpoint([new], sink={0: {0: rows[1:]}}, epochs={0: new.of})]
    laws.audit_sinks()
    assert not laws.violations
    laws.checkpoints[1].sink[0][0].insert(0, rows[0])
    laws.audit_sinks()
    assert laws.violations == ["exactly once: a new query repeats what the old one had settled: ['a1']"]


def test_two_reads_with_other_rows_break_the_law_of_one_content(laws: Laws) -> None:
    """The second read of a partition is compared with the first."""
    row = Row("id", "a", 1, "a1")
    laws.served(PLAN, [row])
    laws.served(PLAN, [row])
    assert not laws.violations
    laws.served(PLAN, [])
    assert laws.violations == ["one content: epoch 1, partition 0 was ['a1'], now []"]


@pytest.mark.parametrize("is_whole_first", [True, False])
def test_a_read_that_ends_early_gives_the_first_rows(laws: Laws, is_whole_first: bool) -> None:
    """Two of them are compared with each other, and with a whole one."""
    rows = [Row(f"id-{number}", "a", number, f"a{number}") for number in range(3)]
    if is_whole_first:
        laws.served(PLAN, rows)
    for count in (0, 2, 1, 3):
        laws.served_partly(PLAN, rows[:count])
    assert not laws.violations
    laws.served_partly(PLAN, rows[1:])
    assert laws.violations
    assert all(told.startswith("one content: epoch 1, partition 0 was partly [[") for told in laws.violations)


def test_a_read_that_fails_gives_no_more_than_a_whole_one(laws: Laws) -> None:
    """Nobody else has seen any row beyond that."""
    laws.served(PLAN, [])
    laws.served_partly(PLAN, [Row("id", "a", 1, "a1")])
    assert laws.violations == ["one content: epoch 1, partition 0 has more than all its rows"]


def test_the_batch_of_a_lost_epoch_is_given_to_no_other(make_world: Callable[..., HandWorld]) -> None:
    """Once Spark has committed the epoch before it: until then nothing of it can be in the sink."""
    for committed in (False, True):
        world = make_world()
        world.send("a1")
        query = Query(world)
        query.trigger()
        laws = Laws(world, is_calm=False)
        laws.committed(world.checkpoint, 0)
        world.send("b1")
        query.log(query.latest_offset(query.start_of(1)))
        if committed:
            query.startless.commit(world.offsets[0])
        lost = world.offsets.pop()
        laws.loses(world.checkpoint, lost, 5)
        for end, batch in ((lost, 5), (Offset(lost.journal, 9, 1, 9), 6), (Offset(lost.journal, 9, 1, 9), 5)):
            world.checkpoint.offsets.append(end)
            laws.logs(world.checkpoint, {1: batch}.__getitem__)
            world.offsets.pop()
            laws.loses(world.checkpoint, lost, 5)
        told = ["one content: the batch of the lost epoch 2/1 is given to epoch 9/9"]
        assert laws.violations == (told if committed else [])


# The hub


@pytest.fixture
def hub() -> Hub:
    return Hub(random.Random(1))


def test_processes_take_turns_and_time_passes_when_all_sleep(hub: Hub) -> None:
    """Two sleepers wake in the order of their times, whoever slept first."""
    told: list[tuple[str, float]] = []
    began_at = hub.now()

    def sleeper(seconds: float) -> None:
        hub.sleep(seconds)
        told.append((hub.current_name, hub.now() - began_at))

    hub.spawn(Process("long"), lambda: sleeper(20))
    hub.spawn(Process("short"), lambda: sleeper(3))
    hub.run(lambda: not hub.alive())
    assert told == [("short", 3), ("long", 20)]


def test_a_killed_process_does_nothing_more(hub: Hub) -> None:
    """Nor do its other threads, and what it would do on its way out has no effect."""
    process = Process("victim")
    effects: list[str] = []
    threading = Threading(hub)

    def beat() -> None:
        while True:
            hub.sleep(1)
            effects.append("beat")

    def main() -> None:
        threading.Thread(target=beat, name="its-heart", daemon=True).start()
        try:
            hub.sleep(100)
        finally:
            hub.step()
            effects.append("last words")

    hub.spawn(process, main)
    hub.run(lambda: len(effects) == 3)
    hub.kill(process)
    assert effects == ["beat"] * 3
    assert not hub.alive()


def test_a_condition_wakes_all_who_wait_and_one_at_a_time_has_its_lock(hub: Hub) -> None:
    """A waiter goes on when it has the lock."""
    condition = Threading(hub).Condition()
    woken: list[float] = []
    began_at = hub.now()

    def waiter() -> None:
        with condition:
            condition.wait()
            hub.sleep(1)
            woken.append(hub.now() - began_at)

    def notifier() -> None:
        hub.sleep(10)
        with condition:
            condition.notify_all()

    for name, run in (("first", waiter), ("second", waiter), ("notifier", notifier)):
        hub.spawn(Process(name), run)
    hub.run(lambda: not hub.alive())
    assert woken == [11, 12]


def test_who_waits_for_nothing_is_told(hub: Hub) -> None:
    """A deadlock ends the schedule instead of hanging it."""

    def wait() -> None:
        hub.wait_until(lambda: False)

    hub.spawn(Process("patient"), wait)
    with pytest.raises(DeadlockError, match="patient"):
        hub.run(lambda: False)


def test_who_goes_on_for_ever_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither steps without end nor sleeps without a step hang a schedule."""
    monkeypatch.setattr("tests.simulation.hub.MOST_STEPS", 100)

    def go_on(hub: Hub, pause: Callable[[], None]) -> None:
        def run() -> None:
            while True:
                pause()

        hub.spawn(Process("restless"), run)
        with pytest.raises(StuckError, match="did not end in 100 steps: restless"):
            hub.run(lambda: False)
        hub.end()

    stepping, sleeping = Hub(random.Random(1)), Hub(random.Random(1))
    go_on(stepping, stepping.step)
    go_on(sleeping, lambda: sleeping.sleep(1))
