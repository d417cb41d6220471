"""Peak memory of a query's Python processes, as the kernel counts it: VmHWM, the most that was ever resident."""

from __future__ import annotations

import contextlib
import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import psutil

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
            for role, pid in _python_processes(psutil.Process()):
                self._peaks[role][pid] = max(_high_water_mark(pid), self._peaks[role].get(pid, 0))
            if SYSTEM_CLOCK.wait(self._stopped, _EVERY_S):
                return


def _python_processes(root: psutil.Process) -> Iterator[tuple[str, int]]:
    """Yield role and id of every process below `root` that runs our code for Spark."""
    daemons: set[int] = set()  # a parent comes before its children
    for process in root.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            command = process.cmdline()
            if "pyspark.daemon" in command:
                if process.ppid() in daemons:
                    yield WORKER, process.pid
                daemons.add(process.pid)
            elif any("python_streaming_source_runner" in part for part in command):
                yield READER, process.pid


def _high_water_mark(pid: int) -> int:
    """Return VmHWM, which psutil does not have, in bytes; 0 if the process has ended meanwhile."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return 0
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
