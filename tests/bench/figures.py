"""The arithmetic of the benchmarks: quantiles, ratios of pairs, and the CPU time of a tree of processes. No I/O."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass


def percentile(values: Collection[float], share: float) -> float:
    """Return the smallest of `values` that at least `share` of them (0 to 1) do not exceed; NaN if there are none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


def paired(first: Sequence[float], own: Sequence[float]) -> list[float]:
    """Return `own` over `first`, pair by pair, both in the order of their rounds: over 1 is more. Over zero it is NaN.

    Raises ValueError when a round has only one of the two.
    """
    return [o / f if f else math.nan for f, o in zip(first, own, strict=True)]


@dataclass(frozen=True)
class ProcessCpu:
    """CPU seconds of one process, as the kernel has them: its own, and those of its children that it has reaped."""

    pid: int
    parent: int
    own_s: float
    reaped_s: float


def tree_cpu_s(processes: Collection[ProcessCpu], root: int, excluded: Collection[int]) -> float:
    """Return the CPU seconds of `root` and all below it, without the trees of `excluded`.

    A process that ended is not lost: while it is a zombie it still stands among `processes`, and once it is reaped,
    its parent's `reaped_s` has it, with all that it had reaped itself. So a sum over the living never falls, if
    orphans are handed to `root`, and if no excluded process ends between two sums.
    """
    children: dict[int, list[ProcessCpu]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    total = 0.0
    waiting = [process for process in processes if process.pid == root]
    while waiting:
        process = waiting.pop()
        if process.pid in excluded:
            continue
        total += process.own_s + process.reaped_s
        waiting += children.get(process.pid, [])
    return total
