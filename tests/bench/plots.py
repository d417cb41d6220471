"""The plots. Without matplotlib, which is in the extra `bench`, there are none."""

from __future__ import annotations

import importlib
import importlib.util
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench.figures import percentile
from tests.bench.model import Comparison, Run

Parts = Sequence[tuple[Comparison, list[Run]]]
SHARES = (0.5, 0.95, 0.99)


def plot_throughput(parts: Parts, path: Path) -> None:
    """Draw messages per second: a bar to the median of each way, a dot for each round."""
    chosen = [(each, runs) for each, runs in parts if not each.rate and each.topic != "floor" and runs]
    heights = [len(each.entrants) for each, _ in chosen]
    if (axes := _axes(heights)) is None:
        return
    for axis, (comparison, runs) in zip(axes, chosen, strict=True):
        names = list(dict.fromkeys(run.entrant for run in runs))
        for row, name in enumerate(names):
            speeds = [run.per_second for run in runs if run.entrant == name]
            axis.barh(row, statistics.median(speeds), color=_colour(name))
            axis.plot(speeds, [row] * len(speeds), "k.", markersize=4)
        _label(axis, names, comparison, "messages/s")
    _save(axes, path)


def plot_latency(parts: Parts, path: Path) -> None:
    """Draw p50, p95 and p99 of each way, all rounds together."""
    chosen = [(each, runs) for each, runs in parts if each.rate and runs]
    if (axes := _axes([len(each.entrants) for each, _ in chosen])) is None:
        return
    for axis, (comparison, runs) in zip(axes, chosen, strict=True):
        names = list(dict.fromkeys(run.entrant for run in runs))
        for row, name in enumerate(names):
            latencies = [each * 1000 for run in runs if run.entrant == name for each in run.latencies_s]
            for share, mark in zip(SHARES, ("o", "s", "d"), strict=True):
                text = f"p{share * 100:.0f}" if row == 0 else None
                axis.plot(percentile(latencies, share), row, mark, color=_colour(name), label=text)
        axis.set_xscale("log")
        axis.legend(fontsize="x-small")
        _label(axis, names, comparison, "ms from send to sink")
    _save(axes, path)


def _axes(heights: Sequence[int]) -> list[Any] | None:
    if not heights or importlib.util.find_spec("matplotlib") is None:
        return None
    importlib.import_module("matplotlib").use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    size = (9, sum(heights) * 0.3 + len(heights) * 1.0)
    _, axes = pyplot.subplots(len(heights), squeeze=False, figsize=size, height_ratios=heights)
    return [row[0] for row in axes]


def _label(axis: Any, names: Sequence[str], comparison: Comparison, unit: str) -> None:
    axis.set_yticks(range(len(names)), names, fontsize="small")
    axis.invert_yaxis()
    axis.set_title(comparison.title, fontsize="small", loc="left")
    axis.set_xlabel(unit, fontsize="x-small")
    axis.tick_params(axis="x", labelsize="x-small")


def _colour(name: str) -> str:
    """Return a colour that the connector's ways share, and the others do not."""
    return "tab:blue" if name.startswith(("commit", "journal", "sink")) else "tab:gray"


def _save(axes: Sequence[Any], path: Path) -> None:
    figure = axes[0].figure
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    importlib.import_module("matplotlib.pyplot").close(figure)
