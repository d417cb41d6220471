"""The harness counts a kill only if a process died of it, and kills nothing but what it named."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.crash.processes import ancestors, descendants, end, look
from tests.crash.traps import Traps
from tests.helpers import wait_until

# A process with a child; both end with their standard input.
_PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import sys; sys.stdin.read()'])"


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
