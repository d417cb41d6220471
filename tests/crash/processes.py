"""Processes of this machine, from Linux's /proc: who descends from whom, and SIGKILL to one of them.

A process is named by its id and the time at which it started, so that an id that was given to another one meanwhile
is never taken for it.
"""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.helpers import wait_until

GONE_S = 30.0
"""How long a killed process may take to be gone."""


@dataclass(frozen=True)
class Process:
    """A process that ran when it was looked at."""

    pid: int
    parent: int
    started_at: int
    """In clock ticks since the machine was booted."""
    command: str

    @property
    def is_running(self) -> bool:
        """Whether it still runs; a zombie does not."""
        found = look(self.pid)
        return found is not None and found.started_at == self.started_at

    def send(self, signal_number: int) -> None:
        """Send a signal, if it still runs."""
        if self.is_running:
            os.kill(self.pid, signal_number)

    def kill(self) -> bool:
        """End it with SIGKILL and wait until it is gone. Return whether it ran until then."""
        if not self.is_running:
            return False
        os.kill(self.pid, signal.SIGKILL)
        wait_until(lambda: not self.is_running, GONE_S, f"process {self.pid} is gone")
        return True

    def freeze(self) -> None:
        """Stop it with SIGSTOP, and return when all its threads stand still."""
        self.send(signal.SIGSTOP)
        tasks = Path(f"/proc/{self.pid}/task")
        wait_until(
            lambda: not self.is_running or all(_state(each) in ("T", "t", "Z", "") for each in tasks.glob("*/stat")),
            GONE_S,
            f"process {self.pid} stands still",
        )

    def thaw(self) -> None:
        """Let it go on after `freeze`."""
        self.send(signal.SIGCONT)


def look(pid: int) -> Process | None:
    """Return the process `pid`, or None if there is none or it is a zombie."""
    folder = Path(f"/proc/{pid}")
    try:
        fields = _fields(folder / "stat")
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[0] in ("Z", "X"):
        return None
    return Process(pid, int(fields[1]), int(fields[19]), command)


def descendants(*pids: int) -> list[Process]:
    """Return all processes that descend from `pids`, parents before their children."""
    children: dict[int, list[Process]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (process := look(int(entry))) is not None:
            children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    pending = list(pids)
    while pending:
        for child in children.get(pending.pop(0), ()):
            found.append(child)
            pending.append(child.pid)
    return found


def ancestors(pid: int) -> list[Process]:
    """Return the process and those from which it descends, nearest first."""
    found = []
    process = look(pid)
    while process is not None:
        found.append(process)
        process = look(process.parent)
    return found


def end(process: subprocess.Popen[bytes], signal_number: int = signal.SIGTERM) -> None:
    """End a process that we started, at last with SIGKILL, and reap it."""
    if process.poll() is None:
        process.send_signal(signal_number)
        try:
            process.wait(GONE_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def _fields(stat: Path) -> list[str]:
    """Return the fields after the command's name, which stands in brackets and may hold anything."""
    return stat.read_text(errors="replace").rpartition(")")[2].split()


def _state(stat: Path) -> str:
    try:
        return _fields(stat)[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
