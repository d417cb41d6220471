"""Results as Markdown tables, as JSON with each run, and as two plots."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from tests.bench.figures import paired, percentile
from tests.bench.model import Comparison, Run
from tests.bench.plots import plot_latency, plot_throughput

_READ = ("ReceiveMessage", "DeleteMessageBatch")
_PACKAGES = ("pyspark", "boto3", "pyarrow", "obstore")


class Report:
    """Grows by one comparison after the other; each time all files are written anew, so that none is lost."""

    def __init__(self, command: str, out: Path) -> None:
        self._command = command
        self._out = out
        self._parts: list[tuple[Comparison, list[Run]]] = []

    def add(self, comparison: Comparison, runs: list[Run]) -> None:
        self._parts.append((comparison, runs))
        content = {
            "command": self._command,
            "machine": machine(),
            "comparisons": [
                {**dataclasses.asdict(each), "runs": [dataclasses.asdict(run) for run in runs]}
                for each, runs in self._parts
            ],
        }
        (self._out / "bench.json").write_text(json.dumps(content, indent=1))
        (self._out / "bench.md").write_text(self.markdown())
        plot_throughput(self._parts, self._out / "throughput.png")
        plot_latency(self._parts, self._out / "latency.png")

    def markdown(self) -> str:
        return "\n".join([f"`{self._command}`", "", machine(), "", *(section(*part) for part in self._parts)])


def machine() -> str:
    """Return what the figures depend on, as one line."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    versions = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return f"{os.cpu_count()} cores of {model}, Python {platform.python_version()}, {versions}"


def section(comparison: Comparison, runs: Sequence[Run]) -> str:
    """Return a comparison's heading and tables."""
    tables = [_latencies if comparison.rate else _floor if comparison.topic == "floor" else _speeds, _peaks]
    by_entrant: dict[str, list[Run]] = {}
    for run in runs:
        by_entrant.setdefault(run.entrant, []).append(run)
    if not by_entrant:
        return f"### {comparison.title}\n\nNone of its ways is there.\n"
    return "\n".join([f"### {comparison.title}", "", *(f"{table(by_entrant)}\n" for table in tables)])


def _speeds(by_entrant: dict[str, list[Run]]) -> str:
    first = [run.per_second for run in next(iter(by_entrant.values()))]
    rows = []
    for name, runs in by_entrant.items():
        ratios = paired(first, [run.per_second for run in runs])
        requests, others = _requests(runs)
        rows.append(
            [
                name,
                f"{median(runs, lambda run: run.per_second):,.0f}",
                f"{statistics.median(ratios):.2f}",
                " ".join(f"{each:.2f}" for each in ratios),
                f"{median(runs, lambda run: run.cpu_per_thousand_s):.3f}",
                requests,
                others,
                "" if runs[0].first_s is None else f"{median(runs, lambda run: run.first_s or 0):.1f}",
                f"{median(runs, lambda run: run.micro_batches):.0f}" if runs[0].micro_batches else "",
            ]
        )
    heads = ["way", "messages/s", "ratio", "of each round", "CPU s/1,000"]
    heads += ["receives + deletes or sends / 1,000", "other requests / 1,000", "first rows, s", "micro-batches"]
    return table(heads, rows)


def _latencies(by_entrant: dict[str, list[Run]]) -> str:
    rows = []
    for name, runs in by_entrant.items():
        latencies = [each for run in runs for each in run.latencies_s]
        requests, others = _requests(runs)
        quantiles = [f"{percentile(latencies, share) * 1000:,.0f}" for share in (0.5, 0.95, 0.99)]
        p50 = " ".join(f"{percentile(run.latencies_s, 0.5) * 1000:,.0f}" for run in runs)
        triggers = [each for run in runs for each in run.triggers_s]
        cells = ["", ""]
        if triggers:
            trigger = statistics.median(triggers)
            ratios = [f"{percentile(latencies, share) / trigger:.2f}" for share in (0.5, 0.99)]
            cells = [f"{trigger * 1000:,.0f}", " ".join(ratios)]
        cpu = f"{median(runs, lambda run: run.cpu_s / run.seconds):.2f}"
        rows.append([name, f"{len(latencies):,}", *quantiles, p50, *cells, cpu, requests, others])
    heads = ["way", "messages", "p50, ms", "p95, ms", "p99, ms", "p50 of each round"]
    heads += ["median micro-batch, ms", "p50 and p99 to that", "cores in use"]
    return table([*heads, "receives + deletes / 1,000", "other requests / 1,000"], rows)


def _floor(by_entrant: dict[str, list[Run]]) -> str:
    rows = [
        [
            name,
            f"{median(runs, lambda run: run.seconds / run.messages) * 1000:.0f}",
            f"{median(runs, lambda run: run.cpu_s / run.messages) * 1000:.0f}",
        ]
        for name, runs in by_entrant.items()
    ]
    return table(["way", "ms for each micro-batch", "CPU ms for each micro-batch"], rows)


def _peaks(by_entrant: dict[str, list[Run]]) -> str:
    roles = sorted({role for runs in by_entrant.values() for run in runs for role in run.peaks_mib})
    rows = []
    for name, runs in by_entrant.items():
        cells = [_peak([run.peaks_mib.get(role, []) for run in runs]) for role in roles]
        rows.append([name, *cells, f"{max(sum(map(sum, run.peaks_mib.values())) for run in runs):,.0f}"])
    return table(["peak memory, MiB", *roles, "all together"], rows)


def _peak(each: list[list[float]]) -> str:
    """Return the highest peak of a process, and how many there were."""
    highest = max((max(run) for run in each if run), default=0.0)
    count = max(map(len, each))
    return (f"{highest:,.0f}" + (f" (of {count})" if count > 1 else "")) if count else ""


def _requests(runs: Sequence[Run]) -> tuple[str, str]:
    """Return how many requests a thousand messages took: of the two main actions, and of all others by name."""
    share = {
        action: statistics.median(run.requests.get(action, 0) / run.messages * 1000 for run in runs)
        for action in sorted({action for run in runs for action in run.requests})
    }
    main = [f"{share.pop(action):.0f}" for action in _READ if action in share]
    main += [f"{share.pop('SendMessageBatch'):.0f}"] if "SendMessageBatch" in share else []
    return " + ".join(main), ", ".join(f"{action} {count:.1f}" for action, count in share.items() if count)


def median(runs: Sequence[Run], figure: Callable[[Run], float]) -> float:
    return statistics.median(figure(run) for run in runs)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
