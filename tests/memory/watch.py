"""Memory of a query's Python processes, as the kernel counts it.

`Watch` has each one's VmHWM, the most that was ever resident. `shares` adds up PSS, in which a page that several
processes have counts once.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from sqs_fifo_spark.clock import SYSTEM_CLOCK

_EVERY_S = 0.1
READER, WORKER, DAEMON = "reader", "worker", "daemon"
"""The process beside Spark's driver that runs the stream reader; an executor's Python worker; who forks workers."""
_DAEMONS = {"pyspark.daemon", "sqs_fifo_spark.daemon"}
_OF_TASKS = "pyspark.worker"
"""Argument of the daemon that forks the workers of tasks; others fork those that Spark's planner asks."""


class Watch:
    """Samples all Python processes that Spark starts below this process, in a `with` block."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-watch", daemon=True)
        self._peaks: defaultdict[str, dict[int, int]] = defaultdict(dict)  # one writer: the thread

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._thread.join()

    def peak(self, role: str) -> int:
        """Return the highest peak of all processes of `role` seen so far, in bytes; 0 if there was none."""
        return max(list(self._peaks[role].values()), default=0)

    def _run(self) -> None:
        while True:
            for role, pid in _python_processes(psutil.Process()):
                if role == DAEMON:
                    continue
                self._peaks[role][pid] = max(high_water_mark(pid), self._peaks[role].get(pid, 0))
            if SYSTEM_CLOCK.wait(self._stopped, _EVERY_S):
                return


def _python_processes(root: psutil.Process, *, only_tasks: bool = False) -> Iterator[tuple[str, int]]:
    """Yield role and id of every process below `root` that runs our code for Spark.

    Of workers, with `only_tasks` those of tasks alone, else those that plan, too.
    """
    daemons: set[int] = set()  # a parent comes before its children
    for process in root.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            command = process.cmdline()
            if not _DAEMONS.isdisjoint(command):
                is_forked, is_of_tasks = process.ppid() in daemons, _OF_TASKS in command
                if is_of_tasks or (is_forked and not only_tasks):
                    yield WORKER if is_forked else DAEMON, process.pid
                daemons.add(process.pid)
            elif any("python_streaming_source_runner" in part for part in command):
                yield READER, process.pid


@dataclass(frozen=True)
class Shares:
    """Of all processes with a role: their number, PSS in bytes, and CPU seconds so far."""

    count: int = 0
    pss: int = 0
    cpu_s: float = 0.0

    def __add__(self, other: Shares) -> Shares:
        return Shares(self.count + other.count, self.pss + other.pss, self.cpu_s + other.cpu_s)


def shares(root: psutil.Process) -> Mapping[str, Shares]:
    """Return the shares of the reader, and of daemon and workers of tasks, below `root`."""
    found: defaultdict[str, Shares] = defaultdict(Shares)
    for role, pid in _python_processes(root, only_tasks=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            times = psutil.Process(pid).cpu_times()
            found[role] += Shares(1, _pss(pid), times.user + times.system)
    return found


def pss_of_python(root: psutil.Process) -> int:
    """Return the PSS in bytes of `root` and of all processes below it but JVMs: all Python of an application."""
    total = 0
    for process in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            total += 0 if process.name() == "java" else _pss(process.pid)
    return total


def _pss(pid: int) -> int:
    return int(psutil.Process(pid).memory_full_info().pss)


def high_water_mark(pid: int) -> int:
    """Return VmHWM, which psutil does not have, in bytes; 0 if the process has ended meanwhile."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return 0
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
