"""Workers of pytest-xdist: the files that each of them plays.

Each worker that plays a file of Spark's starts a JVM, which takes ten seconds or more of a core until it is warm, and
these tests wait much of their time, while all others compute. So two thirds of the workers play Spark's files and the
rest the others, side by side; who has none of its own left helps with what there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

SPARK = ("tests/spark/", "tests/conformance/spark/")
_LONG = 10
"""So many `slow` tests take as long as a `long` one."""


def next_file(files: Iterable[str], of_spark: bool) -> str:
    """Return the first of the files that are left and of this kind, or the first of all."""
    left = list(files)
    return next((file for file in left if file.startswith(SPARK) is of_spark), left[0])


def costly_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Order files by their `slow` and `long` tests, the most first: else one worker plays them last, and all wait."""
    cost = Counter[str]()
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        cost[item.nodeid.split("::")[0]] += _LONG if "long" in marks else "slow" in marks
    return sorted(items, key=lambda item: -cost[item.nodeid.split("::")[0]])


def of_share(items: list[pytest.Item], share: str) -> list[pytest.Item]:
    """Return all but the `long` tests of other shares: `0/2` has those of each second file."""
    number, shares = map(int, share.split("/"))
    long = [item for item in items if item.get_closest_marker("long")]
    others = {path for place, path in enumerate(sorted({item.path for item in long})) if place % shares != number}
    return [item for item in items if item not in long or item.path not in others]


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """Whole files go to a worker, so that what is costly to set up for a file is set up once."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        players = max(1, len(self.nodes) * 2 // 3)
        file = next_file(self.workqueue, node in self.nodes[:players])
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)
