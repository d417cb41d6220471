"""The end of a query with `trigger(availableNow=True)`, once it has served the messages that waited at its beginning.

SQS does not say which group it delivers first, so a micro-batch of newer messages alone proves nothing; nor does a
short poll that brings nothing, for it asks only some of SQS's servers. A long poll asks all of them: if it brings
nothing after such a micro-batch, there was nothing older to receive. Older messages may still be hidden at that moment:
somebody else holds them, or the queue's DelaySeconds delays them. An attempt that died hides its messages, too, for one
visibility timeout: so if more are in flight than the query knows of, it goes on for that time, once. While producers
keep the queue from ever being empty, the query ends once it has served as many messages as waited; SQS may not have
delivered some of the older ones by then.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.logs import PROGRESS
from sqs_fifo_spark.source.driver.epoch import Epoch
from sqs_fifo_spark.source.driver.verdict import Verdict
from sqs_fifo_spark.source.message import Message
from sqs_fifo_spark.source.queue import Queue

WAIT_S = 2
"""Length of the poll that looks for more: a long one, so that it asks all of SQS's servers."""
SAID_EVERY_S = 10.0
"""Between two lines about how far the run is. None is due while a micro-batch runs, when nothing more is known."""


class AvailableNow:
    """The messages that waited when the trigger began. Built on the driver, with two calls to the queue.

    Messages that somebody holds show again within one visibility timeout: those of a driver that crashed before, and
    those that an attempt received before it died. Nobody renews them.
    """

    def __init__(self, queue: Queue, clock: Clock, *, visibility_timeout_s: int) -> None:
        self._queue = queue
        self._clock = clock
        self._visibility_timeout_s = visibility_timeout_s
        self._until_ms = queue.time_ms() + 1_000  # SQS gives its time in whole seconds
        counts = queue.approximate_counts()
        self._waited = counts.waiting + counts.in_flight
        self._served = 0
        self._said_at = clock.monotonic()
        self._said_served = 0
        # By when every hold has lapsed that was there at the beginning, or when an old message was last served; and by
        # when every hold has lapsed that was there when any task last ran. Or when a commit left something old.
        self._old_lapse_at = clock.monotonic() + (visibility_timeout_s if counts.in_flight else 0)
        # Just after a crash SQS may count messages in flight as waiting.
        self._any_lapse_at = clock.monotonic() + (visibility_timeout_s if self._waited else 0)
        self._is_all_ours = False
        self._has_gone_on = False
        self._last: Epoch | None = None
        """The epoch that was asked for last."""

    def note_announced(self, in_flight: int, ours: int) -> None:
        """Note the numbers of messages in flight, and of ours among them, when an epoch is announced."""
        self._is_all_ours = in_flight <= ours
        self._say_progress()

    def note_unconfirmed(self, sent_at_ms: int | None) -> None:
        """Note that a commit has left a message that it could not delete: it hides later ones of its group.

        Or that a poll was cut off, whose other messages are hidden. Nobody renews them, so they, or the later ones,
        show again within one visibility timeout. Behind one that is newer than the trigger nothing older is hidden;
        `sent_at_ms` is None where that is not known.
        """
        if sent_at_ms is not None and sent_at_ms > self._until_ms:
            return
        self._old_lapse_at = self._any_lapse_at = self._clock.monotonic() + self._visibility_timeout_s

    def may_end_with(self, epoch: Epoch, verdict: Verdict) -> bool:
        """Return True if the closed `epoch` is the last one, should `ends_with` say so too.

        It may be asked again for the same epoch, if Spark goes on with another source: nothing has run since.
        """
        is_first, self._last = epoch is not self._last, epoch
        was_all_ours, self._is_all_ours = self._is_all_ours, False
        is_old = verdict.oldest_ms is not None and verdict.oldest_ms <= self._until_ms
        # By then an attempt that died while the tasks ran holds nothing any more.
        lapse_at = self._clock.monotonic() + self._visibility_timeout_s
        if is_first and epoch.plans is not None:  # else under the driver before
            # Of the messages served again, tasks may have deleted some before: those had not waited when the trigger
            # began.
            self._served += verdict.served_held if epoch.is_replay else verdict.count
            self._any_lapse_at = lapse_at
            if is_old:
                self._old_lapse_at = lapse_at
        if is_old or not verdict.count or verdict.copies or verdict.carried:
            return False
        is_late = epoch.opened_at >= self._old_lapse_at and self._served >= self._waited
        # Nobody else held anything when it was opened, and messages taken since are still held.
        took_s = self._clock.monotonic() - epoch.opened_at
        if not is_late and not (was_all_ours and took_s < self._visibility_timeout_s):
            return False
        if self._queue.approximate_counts().in_flight <= verdict.held:
            return True
        if not is_late or self._has_gone_on:
            return is_late
        # Other messages in flight may be older, and held by an attempt that died.
        self._has_gone_on = True
        self._old_lapse_at = lapse_at
        return False

    def ends_with(self, found: Iterable[Message]) -> bool:
        """Return True if the query ends after a micro-batch that may be the last, and a poll that brought `found`."""
        ages = [message.receipt.sent_at_ms <= self._until_ms for message in found]
        return not ages or (not any(ages) and self._served >= self._waited)

    def may_end_empty(self, asked_at: float) -> bool:
        """Return True if a query that holds nothing may end, after a poll that began at `asked_at` and found nothing.

        It may, if all holds of dead attempts had lapsed by then, or if the queue says that it is empty.
        """
        if asked_at >= self._any_lapse_at:
            return True
        counts = self._queue.approximate_counts()
        if not counts.waiting and not counts.in_flight:
            return True
        self._say_progress(at_most_s=self._any_lapse_at - self._clock.monotonic())
        return False

    def _say_progress(self, at_most_s: float | None = None) -> None:
        """Log how far the run is, if a line is due. `at_most_s`: it only waits, for others' holds to lapse."""
        now = self._clock.monotonic()
        counts = self._queue.counts
        if counts is None or now - self._said_at < SAID_EVERY_S:
            return
        rate = (self._served - self._said_served) / (now - self._said_at)
        self._said_at, self._said_served = now, self._served
        left_s = at_most_s if at_most_s is not None else counts.waiting / rate if rate else None
        PROGRESS.info(
            "%d messages done, about %d wait, %d in flight, %.1f messages/s, %s",
            self._served,
            counts.waiting,
            counts.in_flight,
            rate,
            "time left not known." if left_s is None else f"about {left_s:.0f} s left.",
        )
