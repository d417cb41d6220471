"""The sender's laws: each row once, a group's rows in order whatever fails, several groups and calls at once."""

from __future__ import annotations

import sys
import threading
import tracemalloc
from collections.abc import Iterable

import pytest

from sqs_fifo_spark.sink.crew import THREADS
from sqs_fifo_spark.sink.lanes import Lane
from sqs_fifo_spark.sink.outgoing import ROW_BYTES, OutgoingRow, outgoing
from sqs_fifo_spark.sink.sink_queue import SinkQueue
from tests.helpers import wait_until
from tests.unit.sending import (
    FORM,
    KEEPS,
    LONG_S,
    Noted,
    Sqs,
    dealt,
    digests_of,
    group_of,
    in_trouble,
    make,
    rows,
    rows_of,
    send,
    threads,
)

pytestmark = pytest.mark.law("sink-1", "sink-2", "sink-5")


def assert_in_order(sqs: Sqs, bodies: Iterable[str]) -> None:
    """Each of `bodies` stands in the queue once, and its group in their order."""
    expected: dict[str, list[str]] = {}
    for body in bodies:
        expected.setdefault(group_of(body), []).append(body)
    assert {group: sqs.bodies(group) for group in expected} == expected
    assert len(sqs.bodies()) == sum(map(len, expected.values()))


# Order, each once


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("groups", [1, 7, 25])
def test_each_row_once_and_each_group_in_order_whatever_fails(sqs: Sqs, seed: int, groups: int) -> None:
    """Through throttled calls, failed entries and lost answers; the queue itself watches each call."""
    is_hit = in_trouble(sqs, seed)
    sqs.failing = lambda body: ("InternalError", False) if is_hit() else None
    bodies = dealt(groups, 150 // groups)
    record = Noted()
    sender = send(sqs, rows(*bodies), record)
    assert_in_order(sqs, bodies)
    assert sqs.duplicates > 0
    assert sender.counts.sent == len(bodies)
    assert record.digests == digests_of(*bodies)
    assert record.closed == 1
    assert threads() == []


def test_the_queue_of_these_tests_catches_two_rows_of_a_group_at_once(sqs: Sqs) -> None:
    """So that no test here passes for nothing."""
    with pytest.raises(AssertionError, match=r"two rows under way: \['a'\]"):
        SinkQueue(sqs.options(), sqs.clock).send(
            rows("a1", "a2"), lambda sent, pending: None, stopped=threading.Event(), deadline=sqs.clock.monotonic()
        )


# Several at once


def test_eight_calls_are_made_at_once_and_no_more(sqs: Sqs) -> None:
    """Each waits here until there are eight."""
    together = threading.Barrier(THREADS)
    sqs.before = lambda bodies: together.wait(LONG_S)
    send(sqs, rows(*dealt(3 * THREADS * 10, 1)))
    assert sqs.most_calls == THREADS == 8


@pytest.mark.parametrize("hangs", [True, False])
def test_other_groups_flow_while_a_row_is_held_up(sqs: Sqs, hangs: bool) -> None:
    """Only the ten groups of a call that hangs wait for it; where its entry fails again and again, its group alone."""
    bodies = dealt(30, 10)
    slow, held = bodies[0], {group_of(body) for body in bodies[: 10 if hangs else 1]}
    others = sum(group_of(body) not in held for body in bodies)

    def wait(called: list[str]) -> None:
        if slow in called and (hangs or sqs.tries(slow) > 1):
            wait_until(lambda: len(sqs.bodies()) == others, LONG_S, "all others are sent")

    sqs.before = wait
    sqs.failing = lambda body: ("InternalError", False) if body == slow and not hangs and sqs.tries(slow) < 3 else None
    send(sqs, rows(*bodies))
    assert sqs.tries(slow) == (1 if hangs else 3)
    assert {group_of(body) for body in sqs.bodies()[others:]} == held
    assert_in_order(sqs, bodies)


# Memory


def test_add_waits_while_much_is_waiting_to_be_sent(sqs: Sqs, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a partition of any size takes no more than the limit and what one `add` brings; small rows count, too."""
    monkeypatch.setattr("sqs_fifo_spark.sink.sender.MAX_BUFFERED_BYTES", 40 * (ROW_BYTES + sys.getsizeof("g1")))
    bodies = [f"g{number % 10}" for number in range(10, 500)]  # two bytes each
    added, is_done = 0, threading.Event()
    sender = make(sqs)

    def hold(called: list[str]) -> None:
        wait_until(lambda: added - sender.counts.sent > 40 or is_done.is_set(), LONG_S, "more is added than fits")

    sqs.before = hold
    try:
        for at in range(0, len(bodies), 7):
            given = rows_of((f"g{at + n}", body) for n, body in enumerate(bodies[at : at + 7]))
            added += len(given)
            sender.add(given)
            assert added - sender.counts.sent <= 40
    finally:
        is_done.set()
        sender.stop()
    assert sender.counts.sent > 300


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 500])
@pytest.mark.parametrize("body", ["x", "x" * 500, "x" * 1_000 + "\u4e2d", "x" * 1_000 + "\U0001f600"])
@pytest.mark.parametrize(("attributes", "keeps"), [(0, False), (1, True), (10, False), (10, True)])
def test_a_row_takes_no_more_memory_than_is_counted(groups: int, body: str, attributes: int, keeps: bool) -> None:
    """Whatever it has, with ids of any length; and not less than a quarter of it."""

    def rows_at(start: int, count: int) -> list[OutgoingRow]:
        numbers = range(start, start + count)
        bodies = [f"{number:04}{body}" for number in numbers]
        names = [f"{number % groups:0128}" for number in numbers]
        ids = [f"{number:0128}" for number in numbers]
        told = [[(f"name{each}", f"value {number} {each}") for each in range(attributes)] for number in numbers]
        headers = [f"Root={number}" if attributes else None for number in numbers]
        return outgoing([bodies, names, ids, told, headers], KEEPS if keeps else FORM, first_row=start)

    rows_at(0, 10)  # what is imported and kept once does not count
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        waiting: dict[str, Lane] = {}
        for row in rows_at(1_000, 500):
            waiting.setdefault(row.group, Lane()).waiting.append(row)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    counted = sum(row.held_bytes for group in waiting.values() for row in group.waiting)
    assert counted / 4 <= after - before <= counted


# Known rows


def test_a_row_that_becomes_known_while_it_is_looked_up_ends_all_the_same(sqs: Sqs) -> None:
    """Another thread reads the record meanwhile: the row is sent or known, never neither, for its group would hang."""

    class Changing(Noted):
        def is_sent(self, digest: bytes) -> bool:
            was_known = digest in self.digests
            self.digests.add(digest)
            return was_known

    sender = make(sqs, Changing())
    sender.add(rows("a1", "b1"))
    wait_until(lambda: not sender.progress.lanes, LONG_S, "each row is sent or known")
    sender.stop()
