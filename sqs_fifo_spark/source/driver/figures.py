"""The figures of a query in Spark's progress report: the work of its tasks, added up as their epochs end."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from sqs_fifo_spark.aws.calls import NO_CALLS, CallCounts
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.source.driver.epoch import Epoch
from sqs_fifo_spark.source.driver.verdict import Verdict
from sqs_fifo_spark.source.queue import Counts

_log = logging.getLogger(__name__)

_MOST_REPORTED = 20
"""Queues whose figures a report of several has, besides their sums: those with the most messages."""
_SUMS = (
    "waitingMessages",
    "inFlightMessages",
    "delayedMessages",
    "receives",
    "retries",
    "unconfirmedDeletes",
    "lostLeases",
)


class Figures:
    """The figures of one run of a query so far. Lives on the driver, and makes no call."""

    def __init__(self, queue_name: str, clock: Clock) -> None:
        self._queue = queue_name
        self._clock = clock
        self._calls = NO_CALLS
        """The calls of tasks whose epoch is over."""
        self._oldest_age_s: float | None = None
        """None before an epoch is over, and after one that had no message."""
        self._last: Epoch | None = None

    def note_over(self, epoch: Epoch, verdict: Verdict) -> None:
        """Add the figures of the tasks of `epoch`, which is over; noted again, it counts once."""
        if epoch is self._last or epoch.plans is None:  # an earlier run has planned and read it
            return
        self._last = epoch
        if not epoch.is_replay:  # else the calls were an earlier run's
            self._calls = self._calls.plus(verdict.calls)
        oldest_ms = verdict.oldest_ms
        age_s = None if oldest_ms is None else round(max(0.0, self._clock.now() - oldest_ms / 1_000), 1)
        self._oldest_age_s = age_s
        _log.info(
            "epoch %d is over: partitions=%d messages=%d groups=%d copies=%d carried=%d oldestMessageAgeSeconds=%s "
            "receives=%d retries=%d",
            epoch.offset.epoch,
            epoch.offset.partitions,
            verdict.count,
            verdict.groups,
            len(verdict.copies),
            len(verdict.carried_receipts()),
            "null" if age_s is None else age_s,
            *verdict.calls,
        )

    def report(self, *, epoch: int, counts: Counts, calls: CallCounts, unconfirmed: int, lost: int) -> dict[str, Any]:
        """Return the figures by name; `calls` are those of the driver itself."""
        calls = self._calls.plus(calls)
        is_empty = self._last is not None and not any(counts)
        return {
            "queue": self._queue,
            "epoch": epoch,
            "waitingMessages": counts.waiting,
            "inFlightMessages": counts.in_flight,
            "delayedMessages": counts.delayed,
            "oldestMessageAgeSeconds": 0.0 if self._oldest_age_s is None and is_empty else self._oldest_age_s,
            "receives": calls.receives,
            "retries": calls.failed,
            "unconfirmedDeletes": unconfirmed,
            "lostLeases": lost,
        }


def sum_up(reports: Mapping[str, Mapping[str, Any]], queue_name: str, *, refused: int) -> dict[str, Any]:
    """Return the figures of several queues, from a report of each, by key; so many are `refused`. Pure."""
    ages = [age for each in reports.values() if (age := each["oldestMessageAgeSeconds"]) is not None]
    most = sorted(reports, key=lambda key: (-reports[key]["waitingMessages"], key))[:_MOST_REPORTED]
    return {
        "queue": queue_name,
        "epoch": max((each["epoch"] for each in reports.values()), default=0),
        **{name: sum(each[name] for each in reports.values()) for name in _SUMS},
        "oldestMessageAgeSeconds": max(ages, default=None),
        "queuesRefused": refused,
        "queues": {key: {name: reports[key][name] for name in reports[key] if name != "queue"} for key in most},
    }
