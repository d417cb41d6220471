"""`python -m tests.bench.builds FOLDER ...`: one comparison by this version and by that of FOLDER, in pairs of rounds.

All other arguments are those of `tests.bench`; each version brings its own benchmark and its own local queue, and takes
one round in turn, the first one alternately. So a speed is compared as the ratio to the first way of the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import compress
from pathlib import Path

from tests.bench.figures import paired, percentile
from tests.bench.model import Run
from tests.bench.report import machine, median, table

ROOT = Path(__file__).resolve().parents[2]
Rounds = dict[str, list[Run]]
"""The runs of each way, in the order of the pairs."""


def main() -> int:
    """Run the pairs, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.builds", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="a checkout of the other version")
    parser.add_argument("--pairs", type=int, default=5)
    given, arguments = parser.parse_known_args()
    builds = {"this": ROOT, "other": given.folder.resolve()}
    rounds: dict[str, Rounds] = {build: {} for build in builds}
    with tempfile.TemporaryDirectory(prefix="sqs-fifo-builds-") as out:
        for number in range(given.pairs):
            for build in sorted(builds, reverse=number % 2 == 0):
                for run in _round(builds[build], arguments, Path(out)):
                    rounds[build].setdefault(run.entrant, []).append(run)
    print(f"`python -m tests.bench.builds {' '.join(sys.argv[1:])}`\n\n{machine()}\n\n{_section(rounds)}")
    return 0


def _round(folder: Path, arguments: Sequence[str], out: Path) -> list[Run]:
    command = [sys.executable, "-m", "tests.bench", *arguments, "--rounds", "1", "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
    found = json.loads((out / "bench.json").read_text())
    return [Run(**run) for comparison in found["comparisons"] for run in comparison["runs"]]


def _section(rounds: dict[str, Rounds]) -> str:
    """Return a line for each way of each version; the last cells are this version's, over the other's, in a pair."""
    rows = []
    for way, own in rounds["this"].items():
        for build, found in rounds.items():
            runs = found[way]
            cells = [way, build, *_figures(runs, next(iter(found.values())))]
            rows.append(cells + (_beside(own, rounds["other"][way]) if build == "this" else ["", ""]))
    heads = ["way", "version", "messages/s", "to the first way", "CPU s/1,000", "first rows, s", "p50, p99, ms"]
    heads += ["p99 to a micro-batch", "speed, this to other", "CPU, this to other"]
    filled = [any(column) for column in zip(*rows, strict=True)]
    return table(list(compress(heads, filled)), [list(compress(row, filled)) for row in rows])


def _figures(runs: Sequence[Run], first: Sequence[Run]) -> list[str]:
    latencies = [each for run in runs for each in run.latencies_s]
    triggers = [each for run in runs for each in run.triggers_s]
    quantiles = [percentile(latencies, share) for share in (0.5, 0.99)]
    return [
        f"{median(runs, lambda run: run.per_second):,.0f}",
        f"{statistics.median(paired(_speeds(first), _speeds(runs))):.2f}",
        f"{median(runs, lambda run: run.cpu_per_thousand_s):.3f}",
        "" if runs[0].first_s is None else f"{median(runs, lambda run: run.first_s or 0):.1f}",
        ", ".join(f"{each * 1000:,.0f}" for each in quantiles) if latencies else "",
        f"{quantiles[1] / statistics.median(triggers):.2f}" if triggers else "",
    ]


def _beside(own: Sequence[Run], other: Sequence[Run]) -> list[str]:
    speed = paired(_speeds(other), _speeds(own))
    cpu = paired(*([run.cpu_per_thousand_s for run in runs] for runs in (other, own)))
    return [f"{statistics.median(each):.2f} ({' '.join(f'{ratio:.2f}' for ratio in each)})" for each in (speed, cpu)]


def _speeds(runs: Sequence[Run]) -> list[float]:
    return [run.per_second for run in runs]


if __name__ == "__main__":
    sys.exit(main())
