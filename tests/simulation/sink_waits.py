"""The waits of each process, by which the sink's laws excuse that something is late."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import chain

from tests.simulation.hub import Hub, Process
from tests.simulation.sink_book import Book
from tests.simulation.sink_tasks import SinkAttempt

RECORDED_S = 175
"""Seconds after the look for which a sent row may be without confirmation, or record: then its task fails."""
MOMENTS_S = 3
"""Seconds by which it may fail later, at most."""
LONGEST_PAUSE_S = 10
"""Seconds that a task waits at most before it tries again."""
Spans = dict[Process | None, list[tuple[float, float]]]
"""From when until when, for each process; None is everybody."""


class Waits:
    """From when until when each process waited, and for what."""

    def __init__(self, hub: Hub, books: Mapping[str, Book], *, has_journal: bool) -> None:
        self._hub = hub
        self._books = books
        self._has_journal = has_journal
        self.pauses: Spans = {}
        """Times for which it stands still."""
        self.upstream: Spans = {}
        """Times for which a task waits for its rows."""
        self.calls: Spans = {}
        """Times for which a task waits for the queue, or for a put."""
        self.looks: Spans = {}
        """Times for which a task waits for the store otherwise, to list, read or drop: nothing of that is too late."""
        self.writes: Spans = {}
        """Times for which a thread writes to S3: rows wait for that, but no call under way, nor the task's end."""
        self.retries: Spans = {}
        """Times for which a task may wait before it tries again."""
        self.all = self.pauses, self.upstream, self.calls, self.looks, self.retries

    def add(self, spans: Spans, process: Process | None, seconds: float) -> None:
        spans.setdefault(process, []).append((self._hub.now(), self._hub.now() + seconds))

    @staticmethod
    def of(process: Process, *spans: Spans) -> Iterator[tuple[float, float]]:
        """Yield those of everybody, and of the process."""
        return chain.from_iterable(each.get(who, ()) for each in spans for who in (None, process))

    def covered_s(self, process: Process, since: float, until: float, *spans: Spans) -> float:
        """Return for how long any of the spans holds the process between two times, in seconds."""
        covered_s = 0.0
        for begin, end in sorted(self.of(process, *spans)):
            covered_s += max(0.0, min(end, until) - max(begin, since))
            since = max(since, end)
        return covered_s

    def stood_still_s(self, process: Process, since: float) -> float:
        """Return for how long the process has stood still since then, in seconds."""
        return self.covered_s(process, since, self._hub.now(), self.pauses)

    def is_held_up(self, attempt: SinkAttempt, *others: Spans) -> bool:
        """Return whether something of it may be too late just now.

        RECORDED_S after a look a call, a put, or one of `others` was under way, or its machine stood still, or it was
        about to try again to record what SQS had taken. And since then the task has only waited: for queue or store,
        for another try, for its rows, or for its machine.
        """
        now, process = self._hub.now(), attempt.process
        limits = [(limit, others) for limit in self._limits(attempt)]
        # Who keeps a refused row may have to look whose object it has found.
        limits += [(began_at + RECORDED_S, (self.looks,)) for began_at in attempt.keeps_began_at]
        return any(
            limit <= now
            and (
                self.covered_s(process, limit - MOMENTS_S, limit + MOMENTS_S, self.calls, self.pauses, *spans) > 0
                or self._records_again(attempt, limit)
            )
            and now - limit - self.covered_s(process, limit, now, *self.all) <= MOMENTS_S
            for limit, spans in limits
        )

    def _limits(self, attempt: SinkAttempt) -> Iterator[float]:
        """Yield the times at which something of it may have become too late."""
        if self._has_journal:
            yield from (looked_at + RECORDED_S for looked_at in attempt.looked_at)
            return
        # When it began to try a row shows only if it came to call: whatever it waited for may have ended at a limit.
        for _, end in self.of(attempt.process, self.calls, self.looks, self.writes, self.pauses):
            yield max(attempt.launched_at + RECORDED_S, min(end, self._hub.now()))

    def _records_again(self, attempt: SinkAttempt, when: float) -> bool:
        """Return whether the record lacked then what SQS had taken of the attempt, and something had just failed."""
        book = self._books[attempt.folder]
        lacks_any = self._has_journal and any(
            book.accepted_at.get((key, id(attempt)), math.inf) <= when < book.recorded_at.get(digest, math.inf)
            for key, digest in attempt.digests.items()
        )
        return lacks_any and self.covered_s(attempt.process, when - MOMENTS_S, when, self.retries) > 0

    def untried_s(self, process: Process, failed_at: float, until: float) -> float:
        """Return for how long, in seconds, a put that failed has not been tried again, beyond the pause that it may."""
        kept_s = self.covered_s(process, failed_at, until, self.pauses, self.calls, self.looks)
        return until - failed_at - kept_s - LONGEST_PAUSE_S
