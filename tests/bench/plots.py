"""The plots. Without matplotlib, which is in the extra `bench`, there are none."""

from __future__ import annotations

import importlib
import importlib.util
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.bench.figures import percentile
from tests.bench.model import Comparison, Run

Parts = Sequence[tuple[Comparison, list[Run]]]
SHARES = (0.5, 0.95, 0.99)


def plot_throughput(parts: Parts, path: Path) -> None:
    """Draw messages per second: a bar to the median of each way, a dot for each round."""

    def draw(axis: Any, row: int, name: str, runs: Sequence[Run]) -> None:
        speeds = [run.per_second for run in runs]
        axis.barh(row, statistics.median(speeds), color=_colour(name))
        axis.plot(speeds, [row] * len(speeds), "k.", markersize=4)

    _plot([(each, runs) for each, runs in parts if not each.rate and each.topic != "floor"], "messages/s", draw, path)


def plot_latency(parts: Parts, path: Path) -> None:
    """Draw p50, p95 and p99 of each way, all rounds together."""

    def draw(axis: Any, row: int, name: str, runs: Sequence[Run]) -> None:
        latencies = [each * 1000 for run in runs for each in run.latencies_s]
        for share, mark in zip(SHARES, ("o", "s", "d"), strict=True):
            text = f"p{share * 100:.0f}" if row == 0 else None
            axis.plot(percentile(latencies, share), row, mark, color=_colour(name), label=text)
        axis.set_xscale("log")
        axis.legend(fontsize="x-small")

    _plot([(each, runs) for each, runs in parts if each.rate], "ms from send to sink", draw, path)


def _plot(parts: Parts, unit: str, draw: Callable[[Any, int, str, Sequence[Run]], None], path: Path) -> None:
    """Draw a row for each way of each comparison, one comparison below the other."""
    parts = [(comparison, runs) for comparison, runs in parts if runs]
    if not parts or importlib.util.find_spec("matplotlib") is None:
        return
    importlib.import_module("matplotlib").use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    heights = [len(comparison.entrants) for comparison, _ in parts]
    size = (9, sum(heights) * 0.3 + len(heights) * 1.0)
    figure, axes = pyplot.subplots(len(heights), squeeze=False, figsize=size, height_ratios=heights)
    for (axis,), (comparison, runs) in zip(axes, parts, strict=True):
        names = list(dict.fromkeys(run.entrant for run in runs))
        for row, name in enumerate(names):
            draw(axis, row, name, [run for run in runs if run.entrant == name])
        axis.set_yticks(range(len(names)), names, fontsize="small")
        axis.invert_yaxis()
        axis.set_title(comparison.title, fontsize="small", loc="left")
        axis.set_xlabel(unit, fontsize="x-small")
        axis.tick_params(axis="x", labelsize="x-small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _colour(name: str) -> str:
    """Return a colour that the connector's ways share, and the others do not."""
    return "tab:blue" if name.startswith(("commit", "journal", "sink")) else "tab:gray"
