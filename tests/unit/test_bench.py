"""The arithmetic of the benchmarks."""

from __future__ import annotations

import pytest

from tests.bench.figures import ProcessCpu, paired, percentile, tree_cpu_s
from tests.bench.report import table
from tests.memory import record


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.5, 50.0), (0.95, 95.0), (0.99, 99.0), (0.995, 100.0), (1.0, 100.0)]
)
def test_percentile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    """The smallest that so many do not exceed, in whatever order they come."""
    assert percentile([float(value) for value in range(100, 0, -1)], share) == expected


def test_ratios_are_taken_round_by_round() -> None:
    """A machine that is slow for one round slows both."""
    assert paired([100.0, 10.0, 40.0], [200.0, 20.0, 20.0]) == [2.0, 2.0, 0.5]


BEFORE = [
    ProcessCpu(1, 0, 5.0, 0.0),
    ProcessCpu(10, 1, 2.0, 1.0),
    ProcessCpu(11, 10, 4.0, 0.5),
    ProcessCpu(20, 1, 100.0, 0.0),
    ProcessCpu(21, 20, 100.0, 0.0),
    ProcessCpu(99, 0, 1000.0, 0.0),
]


REST = [process for process in BEFORE if process.pid not in (1, 10, 11)]


@pytest.mark.parametrize(
    "processes",
    [
        BEFORE,
        [ProcessCpu(1, 0, 5.0, 2.0 + 1.0 + 4.0 + 0.5), *REST],
        [ProcessCpu(1, 0, 5.0, 3.0), ProcessCpu(11, 1, 4.0, 0.5), *REST],
    ],
    ids=["all live", "one ended with its child", "one ended, and its child is adopted"],
)
def test_cpu_of_a_tree_counts_the_ended_and_leaves_out_the_excluded(processes: list[ProcessCpu]) -> None:
    """With all that is below an excluded one. A parent has what a child took from the moment that it is reaped."""
    assert tree_cpu_s(processes, root=1, excluded={20}) == 12.5


def test_table_is_markdown() -> None:
    """A head, a rule, and a line for each way."""
    assert table(["way", "ratio"], [["boto3", "1.00"]]) == "| way | ratio |\n| --- | --- |\n| boto3 | 1.00 |"


def test_the_record_that_memory_is_measured_on_has_each_row_once() -> None:
    """The bench gives the sink the columns that it has today."""
    found = list(record.digests(["a", "b"], range(3)))
    assert len({*found}) == len(found) == 6
