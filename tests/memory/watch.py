"""Peak memory of a query's Python processes, as the kernel counts it: VmHWM, the most that was ever resident."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from pathlib import Path

from sqs_fifo_spark.clock import SYSTEM_CLOCK

_EVERY_S = 0.1
READER, WORKER = "reader", "worker"
"""The process beside Spark's driver that runs the stream reader, and an executor's Python worker."""


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
            for role, pid in _python_processes(os.getpid()):
                self._peaks[role][pid] = max(_high_water_mark(pid), self._peaks[role].get(pid, 0))
            if SYSTEM_CLOCK.wait(self._stopped, _EVERY_S):
                return


def _python_processes(root: int) -> list[tuple[str, int]]:
    """Return role and id of every process below `root` that runs our code for Spark."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            children[_parent(int(entry))].append(int(entry))
    found = []
    waiting = [(pid, False) for pid in children[root]]
    while waiting:
        pid, is_forked_by_daemon = waiting.pop()
        command = _read(pid, "cmdline").split("\0")
        is_daemon = "pyspark.daemon" in command
        if is_daemon and is_forked_by_daemon:
            found.append((WORKER, pid))
        elif any("python_streaming_source_runner" in part for part in command):
            found.append((READER, pid))
        waiting += [(child, is_daemon) for child in children[pid]]
    return found


def _parent(pid: int) -> int:
    # "pid (name) state ppid ...", where the name may hold anything.
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return int(fields[1]) if fields else 0


def _high_water_mark(pid: int) -> int:
    for line in _read(pid, "status").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _read(pid: int, name: str) -> str:
    """Return a file of the process, or nothing if it has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""
