"""Rows that SQS throttles for longer than a row may be tried: they wait, and nothing fails or is doubled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from sqs_fifo_spark.errors import TransientQueueError
from sqs_fifo_spark.sink.lanes import Stride
from sqs_fifo_spark.sink.sink_queue import SinkQueue
from sqs_fifo_spark.sink.window import SEND_BUDGET_S
from sqs_fifo_spark.sink.write import Place, send_partition
from tests.unit.sending import LOST, THROTTLED, Noted, Sqs, batch, finish, make, raising, refusal, rows, threads
from tests.unit.sink.test_write import planned

pytestmark = pytest.mark.law("sink-1", "sink-3")

LONG_S = 10 * SEND_BUDGET_S


class Looked(Noted):
    """A record that says when it was looked at last, by this clock."""

    def __init__(self, sqs: Sqs) -> None:
        super().__init__()
        self._clock = sqs.clock
        self.looks = 0

    def refresh(self, digests: Iterable[bytes]) -> float:
        self.looks += 1
        self.on_look()
        return self._clock.monotonic()


@pytest.fixture
def record(sqs: Sqs) -> Looked:
    return Looked(sqs)


def throttle(sqs: Sqs, way: str, is_hit: Callable[[str], bool] = lambda body: True) -> None:
    """Throttle such rows for a long time: the whole call, or their entries alone, or the call once it was refused."""
    until = sqs.clock.monotonic() + LONG_S

    def before(bodies: list[str]) -> None:
        if way == "refused, then throttled" and len(bodies) > 1:
            raise refusal("InvalidParameterValue")
        if any(map(is_hit, bodies)) and sqs.clock.monotonic() < until:
            raise THROTTLED

    if way == "entries":
        sqs.failing = lambda body: ("RequestThrottled", False) if sqs.clock.monotonic() < until else None
    else:
        sqs.before = before


@pytest.mark.parametrize("way", ["calls", "entries", "refused, then throttled"])
def test_a_task_never_fails_for_throttling_alone(
    sqs: Sqs, record: Looked, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It looks at the record again, for the time to try anew, and says so now and then; each row is sent once."""
    caplog.set_level(logging.WARNING)
    began = sqs.clock.monotonic()
    throttle(sqs, way)
    finish(make(sqs, record), "a1", "b1", "a2")
    assert LONG_S <= sqs.clock.monotonic() - began < LONG_S + SEND_BUDGET_S
    assert sqs.bodies("a") == ["a1", "a2"]
    assert sqs.bodies("b") == ["b1"]
    assert (sqs.duplicates, threads()) == (0, [])
    assert record.looks > LONG_S / SEND_BUDGET_S
    told = [each for each in caplog.messages if each.startswith("SQS throttles this task")]
    assert LONG_S / SEND_BUDGET_S / 2 <= len(told) <= LONG_S / SEND_BUDGET_S + 1


def test_what_another_attempt_has_sent_meanwhile_is_not_sent(sqs: Sqs, record: Looked) -> None:
    """SQS has forgotten it by now: that is what the look is for. What follows in the group is sent."""
    throttle(sqs, "calls")
    (a1,) = rows("a1")
    record.on_look = lambda: record.digests.update({a1.digest} if record.looks > 4 else ())
    sender = make(sqs, record)
    finish(sender, "a1", "a2")
    assert sqs.bodies() == ["a2"]
    assert (sender.counts.known, sender.counts.sent) == (1, 1)


def test_what_another_attempt_has_sent_meanwhile_may_stand_behind_what_this_one_sent(sqs: Sqs, record: Looked) -> None:
    """Of the same call: the row is known then, and has no number to tell."""
    sqs.may_batch = True
    (a1,) = rows("a1")
    sqs.failing = lambda body: ("RequestThrottled", False) if body == "a1" else None
    record.on_look = lambda: record.digests.update({a1.digest} if record.looks > 4 else ())
    counts = finish(make(sqs, record, Stride(10, 10)), "a1", "a2", "a3").counts
    assert sqs.bodies() == ["a2", "a3"]
    assert (counts.known, counts.sent, counts.overtaking) == (1, 2, 2)


@pytest.mark.parametrize("way", ["lost", "failed"])
def test_what_may_be_sent_has_one_time_to_be_tried(sqs: Sqs, record: Looked, way: str) -> None:
    """One try without an answer, or one that SQS has failed itself, and the task fails in time, as before."""
    began = sqs.clock.monotonic()
    throttle(sqs, "calls", lambda body: len(sqs.calls) > 1)
    sqs.after = raising(LOST, lambda bodies, answer: way == "lost")
    sqs.failing = lambda body: ("InternalError", False) if way == "failed" else None
    sender = make(sqs, record)
    with pytest.raises(TransientQueueError):
        finish(sender, "a1")
    assert sqs.clock.monotonic() - began <= SEND_BUDGET_S
    assert (record.looks, threads()) == (1, [])


def at_a_pace(sqs: Sqs, *batches: pa.RecordBatch, calls_per_s: int = 1, sharer: int = 0, sharers: int) -> float:
    """Run one of so many tasks that share the pace; return how many seconds it took."""
    options: dict[str, Any] = {"maxCallsPerSecond": str(calls_per_s)}
    began = sqs.clock.monotonic()
    queue = SinkQueue(sqs.options(**options), sqs.clock, sharer=sharer, sharers=sharers)
    place, plan = Place(sharer, "q", 1), planned(sqs, **options)
    send_partition(plan, batches, place, queue=queue, open_journal=lambda: None, clock=sqs.clock)
    return sqs.clock.monotonic() - began


@pytest.mark.parametrize("first", [0, 3])
def test_tasks_that_follow_each_other_share_the_pace(sqs: Sqs, first: int) -> None:
    """One that makes few calls ends when the time of these is over, so that the next one begins no call too early."""
    given = [batch("a0", "b0")], [batch("a1", "b1")], [batch("c1"), batch("c2"), batch("c3")]
    took_s = sum(
        at_a_pace(sqs, *batches, calls_per_s=2, sharer=first + 8 * at, sharers=8) for at, batches in enumerate(given)
    )
    assert took_s >= len(sqs.calls) * 8 / 2


def test_what_is_tried_again_needs_no_rest(sqs: Sqs) -> None:
    """Rows that were throttled for long are as many calls of the pace as before."""
    throttle(sqs, "calls")
    assert at_a_pace(sqs, batch("a1", "b1"), sharers=40) < LONG_S + SEND_BUDGET_S


def test_a_task_without_a_call_does_not_rest(sqs: Sqs) -> None:
    assert at_a_pace(sqs, batch(), sharers=8) == 0
