"""The plan of kills depends on the seed alone; what is named dies, and nothing else, or the kill does not count."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.crash.plan import ANY_TIME, KINDS, SINKS, TARGETS, Road, kills
from tests.crash.processes import ancestors, descendants, end, look
from tests.crash.traps import POINTS, Traps
from tests.helpers import wait_until
from tests.links.proxy import Trouble
from tests.spark.support import MODES

SHORT = 5

each_query = pytest.mark.parametrize(("sink", "mode"), list(itertools.product(SINKS, MODES)))
# A process with a child; both end with their standard input.
_PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import sys; sys.stdin.read()'])"


# The plan


@each_query
def test_the_same_seed_gives_the_same_kills(sink: str, mode: str) -> None:
    """And another one gives others."""
    assert list(kills(50, sink, mode, 1)) == list(kills(50, sink, mode, 1))
    assert list(kills(50, sink, mode, 1)) != list(kills(50, sink, mode, 2))


@each_query
@pytest.mark.parametrize("seed", range(20))
def test_five_kills_are_one_of_each_kind_and_at_the_laws_own_points(sink: str, mode: str, seed: int) -> None:
    """Whatever the seed."""
    planned = list(kills(SHORT, sink, mode, seed))
    assert len(planned) == SHORT
    assert {kill.kind for kill in planned} == set(KINDS)
    own = {"deleting", "sealed", "offset-logged"} if mode == "commit" else {"task-deleted"}
    assert {kill.point for kill in planned} == {"sink-committed", "received"} | own


@each_query
def test_fifty_kills_come_to_every_point_and_every_kind_at_any_time(sink: str, mode: str) -> None:
    """A process dies only at a point that its sink has, and where its death matters."""
    planned = list(kills(50, sink, mode, 1))
    assert len(planned) == 50
    foreign = {"writing"} if sink == "parquet" else set()
    foreign.add("task-deleted" if mode == "commit" else "deleting")
    assert {kill.point for kill in planned} == {*POINTS, ANY_TIME} - foreign
    assert min(Counter(kill.kind for kill in planned).values()) >= 10
    assert {kill.kind for kill in planned if kill.point == ANY_TIME} == set(KINDS)
    assert all(kill.kind in TARGETS[kill.point] for kill in planned if kill.point != ANY_TIME)
    assert any(kill.is_hasty for kill in planned)
    assert any(kill.dropped for kill in planned)
    assert any(not kill.dropped for kill in planned)


def test_a_link_changes_from_kill_to_kill_and_has_every_grief() -> None:
    """By the seed alone, and never to more than it carries."""
    road = Road.parse("2m,50ms")
    assert road == Road(2e6, 0.05)
    drawn = [road.before_kill(number, 1) for number in range(25)]
    assert drawn == [road.before_kill(number, 1) for number in range(25)] != [road.before_kill(1, 2)] * 25
    assert {share / 2e6 for share, _ in drawn} == {1.0, 0.5, 0.2}
    assert all(any(getattr(trouble, grief) for _, trouble in drawn) for grief in ("hang", "reset", "lose", "cut"))
    assert Trouble(delay_s=0.05) in [trouble for _, trouble in drawn]


# The kills


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdin=subprocess.PIPE) as process:
        yield process
        end(process)


def test_a_child_is_found_killed_once_and_gone(parent: subprocess.Popen[bytes]) -> None:
    """A second kill of the same process does not count."""
    (child,) = wait_until(lambda: descendants(parent.pid), 30, "the child runs")
    assert [each.pid for each in ancestors(child.pid)][:3] == [child.pid, parent.pid, os.getpid()]
    assert child.kill()
    assert not child.is_running
    assert not child.kill()
    assert parent.wait(30) == 0


def test_a_frozen_process_stands_still_until_it_is_thawed(parent: subprocess.Popen[bytes]) -> None:
    """It ends neither by itself nor before it goes on."""
    wait_until(lambda: descendants(parent.pid), 30, "the child runs")
    process = look(parent.pid)
    assert process is not None
    process.freeze()
    assert parent.stdin is not None
    parent.stdin.close()
    wait_until(lambda: not descendants(parent.pid), 30, "the child has ended, and nobody has noticed")
    assert process.is_running
    process.thaw()
    assert parent.wait(30) == 0


def test_an_armed_point_holds_the_first_that_comes_and_no_other(tmp_path: Path) -> None:
    """Until it is released; a point that is not armed holds nobody."""
    traps = Traps(tmp_path / "traps")
    trap = traps.arm("sealed")
    assert trap.held() is None
    with ThreadPoolExecutor(1) as pool:
        traps.reach("deleting")
        held = pool.submit(traps.reach, "sealed")
        assert wait_until(trap.held, 30, "it is held") == os.getpid()
        traps.reach("sealed")
        assert not held.done()
        trap.release()
        held.result(30)
    assert trap.held() is None
