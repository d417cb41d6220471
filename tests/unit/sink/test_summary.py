"""Summaries of tasks, and what the driver makes of them: how much they hold, and how surely it finds what is shared."""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Iterable, Mapping

import pytest

from sqs_fifo_spark.errors import DisorderError
from sqs_fifo_spark.options import SinkOptions, parse_sink_options
from sqs_fifo_spark.sink import summary
from sqs_fifo_spark.sink.summary import (
    BUDGET,
    HASH_BYTES,
    MOST,
    NAMES,
    NAMES_BUDGET,
    Overlap,
    Summary,
    Tally,
    compare,
    finding,
    share,
)

pytestmark = pytest.mark.law("sink-2", "sink-5")

RUN = "0123456789abcdef"
URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/bids.fifo"


def told(
    groups: Mapping[int, Iterable[str]], ids: Mapping[int, Iterable[str]] | None = None, run: str = RUN
) -> list[tuple[int, Summary]]:
    """Return what tasks tell of these groups and message ids, by partition."""
    found = []
    for partition in groups:
        tally = Tally(partition, run)
        for group in groups[partition]:
            tally.add_groups({group})
        tally.add_message_ids((ids or {}).get(partition, ()))
        found.append((partition, pickle.loads(pickle.dumps(tally.summary()))))
    return found


def numbered(first: int, count: int) -> list[str]:
    return [f"group-{number}" for number in range(first, first + count)]


def options(**given: str) -> SinkOptions:
    return parse_sink_options({"queueUrl": URL, "journalLocation": "/j", **given})


@pytest.mark.parametrize(
    ("groups", "shared", "example"),
    [
        ({}, 0, ""),
        ({0: ["a", "b", "a"]}, 0, ""),
        ({0: ["a", "b"], 1: [], 2: ["c"]}, 0, ""),
        ({0: ["a", "b"], 1: ["c"], 2: ["d", "b", "d"]}, 1, "'b' in partitions 0 and 2"),
        ({at: ["a"] for at in range(4, 9)}, 1, "'a' in partitions 4, 5, 6, 7 and 8"),
        ({at: ["a"] for at in range(1_006)}, 1, "'a' in partitions 0, 1, 2, 3 and 1,002 others"),
        ({0: numbered(0, 5_000), 1: numbered(4_000, 5_000)}, 1_000, "in partitions 0 and 1"),
    ],
)
def test_a_group_in_several_partitions_is_found(groups: dict[int, list[str]], shared: int, example: str) -> None:
    """Each once, in however many it stands, with the name of one where a task has told it; and never another one."""
    overlap = compare(told(groups))
    assert (overlap.groups, overlap.are_compared, overlap.equal) == (shared, True, 0)
    assert overlap.example.endswith(example)
    assert bool(overlap.example) is bool(shared)


def test_message_ids_that_several_tasks_were_told_are_counted() -> None:
    """As many rows as there are tasks for a message, but one: that one's row is the message."""
    ids = {0: ["x", "y", "z"], 1: ["y", "u"], 2: ["y", "z", "y"]}
    assert compare(told({0: "a", 1: "b", 2: "c"}, ids)).equal == 3


@pytest.mark.slow
def test_what_all_tasks_tell_fits_into_a_third_of_what_spark_takes() -> None:
    """`spark.driver.maxResultSize` is 1 GiB: a write that failed by it would fail when all is sent."""
    named = 128 + 32
    most = [2 * HASH_BYTES * share(BUDGET, MOST, at) + named * share(NAMES_BUDGET, NAMES, at) for at in range(100_000)]
    assert sum(most) < (1 << 30) / 3
    for partition in (0, 700):
        count = share(BUDGET, MOST, partition) + 1
        groups = [f"{number:0128}" for number in range(count)]
        (only,) = told({partition: groups}, {partition: groups})
        assert not only[1].groups.is_complete
        assert len(pickle.dumps(only[1])) <= most[partition] + 1_000


def test_evenly_spread_groups_are_all_compared_up_to_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where there are more, it says so: nobody takes silence for an answer."""
    monkeypatch.setattr(summary, "BUDGET", 1_000)
    for each, are_compared in ((50, True), (51, False)):
        overlap = compare(told({at: numbered(at * each, each) for at in range(20)}))
        assert (overlap.groups, overlap.are_compared) == (0, are_compared)


def test_one_partition_has_nothing_in_common_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many groups it has: `coalesce(1)` is what the page advises."""
    monkeypatch.setattr(summary, "MOST", 50)
    overlap = compare(told({0: numbered(0, 200), 1: []}))
    assert (overlap.groups, overlap.are_compared) == (0, True)


@pytest.mark.slow
@pytest.mark.parametrize(("shared", "missed"), [(1, 0.75), (16, 0.75**16)])
def test_of_too_many_groups_those_in_common_are_missed_as_rarely_as_is_said(
    monkeypatch: pytest.MonkeyPatch, shared: int, missed: float
) -> None:
    """With the share f of groups that is told, (1 - f)**g of the runs miss all of g; what is found is true."""
    monkeypatch.setattr(summary, "MOST", 50)
    runs = 400
    empty = 0
    for run in range(runs):
        overlap = compare(told({0: numbered(0, 200), 1: numbered(200 - shared, 200)}, run=f"{run}"))
        assert overlap.groups <= shared
        assert not overlap.are_compared
        empty += not overlap.groups
    assert empty / runs == pytest.approx(missed, abs=0.06)


def test_groups_are_taken_for_each_other_as_rarely_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two in 2**bits, here with hashes of 16 bits; and in another run it is not those again."""
    hashes = Tally._hashes
    monkeypatch.setattr(Tally, "_hashes", lambda *given: array("Q", (each >> 48 for each in hashes(*given))))
    groups = {0: numbered(0, 500), 1: numbered(500, 500)}
    false = [compare(told(groups, run=f"{run}")) for run in range(100)]
    assert sum(each.groups for each in false) / len(false) == pytest.approx(500 * 500 / 2**16, rel=0.1)
    assert len({each.example for each in false}) > 10


def test_a_task_holds_no_more_than_it_may_tell_twice_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes: its groups again and again, or new ones for ever."""
    monkeypatch.setattr(summary, "MOST", 100)
    tally = Tally(0, RUN)
    for number in range(5_000):
        tally.add_groups({f"group-{number % 90 if number < 2_500 else number}"})
        assert len(tally._groups._kept) < 200
        assert len(tally._names) <= NAMES
    assert compare([(0, tally.summary()), *told({1: ["group-3"]})[1:]]).groups == 0


SHARED = Overlap(3, "'a' in partitions 0 and 1", are_compared=True, equal=0)
FAILS = "All its rows are sent, and each repeat fails while that is so, unless onDisorder is set to log."


@pytest.mark.parametrize(
    ("overlap", "given", "line"),
    [
        (Overlap(0, "", are_compared=True, equal=5), {}, ""),
        (
            SHARED,
            {},
            "batch 7: 3 message groups stand in several partitions, such as 'a' in partitions 0 and 1. The rows of a "
            "partition are in order in the queue, those of several are not. Put each group in one partition, in order: "
            '.repartition("messageGroupId").sortWithinPartitions(...) before the write, or in_group_order.',
        ),
        (
            Overlap(1, "one in partitions 3 and 8", are_compared=False, equal=0),
            {},
            "batch 7: at least 1 message group stands in several partitions, such as one in partitions 3 and 8. The",
        ),
        (
            SHARED,
            {"messageGroupId": "a"},
            "batch 7: all rows go to one message group by the option 'messageGroupId', 'a' in partitions 0 and 1. The "
            "rows of a partition are in order in the queue, those of several are not. Put all rows in one partition, "
            "in order: .coalesce(1).sortWithinPartitions(...) before the write.",
        ),
        (
            Overlap(0, "", are_compared=False, equal=0),
            {},
            "batch 7: it has more message groups than are compared, so some may stand in several partitions. Up to "
            "2,097,152 are compared, evenly spread over the partitions, and 131,072 of each. Write fewer at a time.",
        ),
    ],
)
def test_the_log_says_what_is_in_no_order_and_with_fail_the_write_fails(
    overlap: Overlap, given: dict[str, str], line: str
) -> None:
    """With the number, one of them, the reason and the remedy; and nothing if there is nothing."""
    said = finding(overlap, "batch 7", options(**given))
    assert said.startswith(line)
    assert bool(said) is bool(line)
    assert "\n" not in said
    for order in ("strict", "batch"):
        fails = options(onDisorder="fail", order=order, **given)
        if not line:
            assert finding(overlap, "batch 7", fails) == ""
            continue
        with pytest.raises(DisorderError) as error:
            finding(overlap, "batch 7", fails)
        assert str(error.value) == f"{said} {FAILS}"
