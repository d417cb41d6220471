"""CPU time and peak memory of the bench's process and all that it starts, as Linux counts them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

import psutil

from tests.bench.figures import ProcessCpu, tree_cpu_s
from tests.memory.watch import high_water_mark

MIB = 1 << 20
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make processes below this one whose parent ends this one's children, so that their CPU time is still found."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot become the subreaper")


def cpu_s(excluded: Collection[int]) -> float:
    """Return the CPU seconds that this process and all below it have taken so far; ended ones included.

    Trees of `excluded` do not count. A process that ends while the tree is looked at would be lost, so the look is
    repeated until the tree was the same before and after.
    """
    while True:
        before = _tree()
        try:
            found = [_cpu_of(pid, parent) for pid, parent in before.items()]
        except psutil.NoSuchProcess:
            continue
        if _tree().keys() == before.keys():
            return tree_cpu_s(found, os.getpid(), excluded)


def forget_peaks(excluded: Collection[int]) -> None:
    """Let each process's peak memory begin anew at what it holds now."""
    for pid in _counted(excluded):
        with suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def peaks_mib(excluded: Collection[int]) -> dict[str, list[float]]:
    """Return the peak resident memory of each living process since `forget_peaks`, by role, highest first.

    A process that has ended is not in it. Memory that forked processes share counts in each.
    """
    # Less is a process that has not begun.
    return _by_role(excluded, lambda pid: mark if (mark := high_water_mark(pid)) > MIB else 0)


def pss_mib(excluded: Collection[int]) -> dict[str, list[float]]:
    """Return the memory of each living process by role, highest first: what processes share counts in parts."""
    return _by_role(excluded, lambda pid: int(psutil.Process(pid).memory_full_info().pss))


def _by_role(excluded: Collection[int], memory_of: Callable[[int], int]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    tree = _tree()
    for pid in _counted(excluded):
        with suppress(psutil.Error):
            if held := memory_of(pid):
                found.setdefault(_role(pid, tree), []).append(held / MIB)
    return {role: sorted(each, reverse=True) for role, each in found.items()}


def java_pids() -> set[int]:
    """Return the JVMs below this process."""
    return {pid for pid in _tree() if _role(pid, {}) == "JVM"}


def _tree() -> dict[int, int]:
    """Return this process and all below it, zombies included, each with its parent."""
    own = psutil.Process()
    tree = {own.pid: own.ppid()}
    for process in own.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            tree[process.pid] = process.ppid()
    return tree


def _cpu_of(pid: int, parent: int) -> ProcessCpu:
    times = psutil.Process(pid).cpu_times()
    return ProcessCpu(pid, parent, times.user + times.system, times.children_user + times.children_system)


def _counted(excluded: Collection[int]) -> list[int]:
    tree = _tree()

    def is_excluded(pid: int) -> bool:
        while pid in tree:
            if pid in excluded:
                return True
            pid = tree[pid]
        return False

    return [pid for pid in tree if not is_excluded(pid)]


def _role(pid: int, tree: dict[int, int]) -> str:
    """Return what the process is for, by its command line."""
    if pid == os.getpid():
        return "driver"
    try:
        command = psutil.Process(pid).cmdline()
    except psutil.Error:
        return "ended"
    words = " ".join(command)
    if command and Path(command[0]).name == "java":
        return "JVM"
    if "pyspark.daemon" in words:
        parent = tree.get(pid)
        is_worker = parent is not None and parent != os.getpid() and _role(parent, {}) == "worker daemon"
        return "task worker" if is_worker else "worker daemon"
    if "python_streaming_source_runner" in words:
        return "stream reader"
    return "loop" if "tests.bench" in words or "sqs_consumer" in words else "other"
