"""Processes of this machine: who descends from whom, and SIGKILL to one of them.

psutil names a process by its id and the time at which it started, so that an id that was given to another one meanwhile
is never taken for it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.helpers import wait_until

START_S = 720.0
"""Seconds that a daemon may take to be ready, on a busy machine."""
GONE_S = 30.0
"""Seconds that a killed process may take to be gone."""


@dataclass(frozen=True)
class Process:
    """A process that ran when it was looked at."""

    pid: int
    parent: int
    command: str
    _process: psutil.Process

    @property
    def is_running(self) -> bool:
        """True if it still runs; a zombie does not."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return self._process.is_running() and self._process.status() != psutil.STATUS_ZOMBIE
        return False

    def kill(self) -> bool:
        """End it with SIGKILL and wait until it is gone. Return whether it ran until then."""
        if not self.is_running:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            self._process.kill()
        wait_until(lambda: not self.is_running, GONE_S, f"process {self.pid} is gone")
        return True

    def freeze(self) -> None:
        """Stop it with SIGSTOP, and return when all its threads stand still."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._process.suspend()
        threads = Path(f"/proc/{self.pid}/task")
        wait_until(
            lambda: not self.is_running or all(_state(each) in ("T", "t", "Z", "") for each in threads.glob("*/stat")),
            GONE_S,
            f"process {self.pid} stands still",
        )

    def thaw(self) -> None:
        """Let it go on after `freeze`."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._process.resume()


def look(pid: int) -> Process | None:
    """Return the process `pid`, or None if there is none or it is a zombie."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return next(_running([psutil.Process(pid)]), None)
    return None


def descendants(*pids: int) -> list[Process]:
    """Return all processes that descend from `pids`."""
    found: list[psutil.Process] = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += psutil.Process(pid).children(recursive=True)
    return list(_running(found))


def ancestors(pid: int) -> list[Process]:
    """Return the process and those from which it descends, nearest first."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return list(_running([process, *process.parents()]))
    return []


def _running(processes: Iterable[psutil.Process]) -> Iterator[Process]:
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if each.status() != psutil.STATUS_ZOMBIE:
                yield Process(each.pid, each.ppid(), " ".join(each.cmdline()), each)


def begin(command: list[str], log: Path, **given: Any) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, without input, whose output goes to the file; return it."""
    with log.open("wb") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, **given
        )


def end(process: subprocess.Popen[bytes], signal_number: int = signal.SIGTERM) -> None:
    """End a process that we started, at last with SIGKILL, and reap it."""
    if process.poll() is None:
        process.send_signal(signal_number)
        try:
            process.wait(GONE_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a group of its own, with all that is left of the group."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Daemon:
    """A process that runs in a `with` block, in the folder of its log, and ends with all that it has started."""

    def __init__(self, command: list[str], log: Path, variables: dict[str, str]) -> None:
        self._command = command
        self._log = log
        self._variables = variables

    def __enter__(self) -> Daemon:
        self.process = begin(self._command, self._log, env=self._variables, cwd=self._log.parent)
        return self

    def __exit__(self, *_: object) -> None:
        end_group(self.process)

    def find(self, pattern: str) -> str:
        """Wait until the log has `pattern`, and return its group."""

        def found() -> str:
            printed = self._log.read_text(errors="replace")
            assert self.process.poll() is None, printed[-4000:]
            match = re.search(pattern, printed)
            return match[1] if match else ""

        return wait_until(found, START_S, f"{self._log.stem} says {pattern}")


def _state(stat: Path) -> str:
    """Return the state of one thread. Its name stands in brackets before that, and may hold anything."""
    try:
        return stat.read_text(errors="replace").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
