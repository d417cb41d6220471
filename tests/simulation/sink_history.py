"""The history of a schedule of the sink that its laws judge: rows, waits and attempts."""

from __future__ import annotations

from collections import defaultdict

from tests.simulation.hub import Hub, Process
from tests.simulation.sink_book import Book, place_of
from tests.simulation.sink_payloads import Payloads
from tests.simulation.sink_tasks import SinkAttempt
from tests.simulation.sink_waits import MOMENTS_S, RECORDED_S, Spans, Waits
from tests.simulation.sink_world import SinkWorld


class SinkHistory:
    """What has happened so far, and breaches of the laws in `violations`."""

    def __init__(
        self, world: SinkWorld, hub: Hub, *, has_journal: bool, is_calm: bool, payloads: Payloads | None = None
    ) -> None:
        self._payloads = payloads or Payloads(0, is_calm=True)
        self.violations: list[str] = []
        self.is_calm = is_calm
        self.max_call_bytes = 1 << 20
        self.kept_batches = 100
        self.merge_at = 64
        self.is_cut = False
        """True if merged objects are cut wherever a shard ends."""
        self._world = world
        self._hub = hub
        self._has_journal = has_journal
        self._books: defaultdict[str, Book] = defaultdict(Book)
        self._attempts: dict[Process, SinkAttempt] = {}
        self.waits = Waits(hub, self._books, has_journal=has_journal)
        self._now = 0
        """The number of the history's last event."""
        self._newest = -1
        """The newest micro-batch whose write was committed."""
        self._putting: dict[str, list[bytes]] = {}
        """Digests in the last put of a thread, by the thread's name."""
        self._are_putting: set[str] = set()
        """The threads of which a put is under way."""

    def violate(self, law: str) -> None:
        self.violations.append(law)
        self._world.note(f"!! {law}")

    def _current(self) -> SinkAttempt | None:
        return self._attempts.get(self._hub.current_process) if self._hub.current_name else None

    def _knows_of_disorder(self, attempt: SinkAttempt, looked_at: int) -> bool:
        """Return True if a look at that number finds that its partition is out of order, or any one in another run."""
        own = place_of(attempt)
        return any(
            since < looked_at and (place == own or not place.startswith(attempt.draft.run))
            for place, since in self._books[attempt.folder].out_of_order.items()
        )

    def _audit_hold_up(self, attempt: SinkAttempt, *excuses: Spans) -> None:
        """A task does not go on long with a row that it has sent, and of which nobody else can know."""
        now, book = self._hub.now(), self._books[attempt.folder]
        spans = {key: (since, now) for key, since in attempt.in_doubt_since.items()}
        for key, digest in attempt.digests.items():
            if self._has_journal and (key, id(attempt)) in book.accepted_at:
                spans[key] = book.accepted_at[key, id(attempt)], book.recorded_at.get(digest, now)
        for key, (since, until) in spans.items():
            excused_s = self.waits.covered_s(attempt.process, since, until, *excuses)
            if until - since > RECORDED_S + MOMENTS_S + excused_s:
                self.violate(f"once: {attempt.process.name} goes on for {until - since:.0f} s after it tried {key}")

    def _left_out(self, attempt: SinkAttempt) -> int:
        """Return the number of rows behind a sent equal one in their partition: with a journal, they are not sent."""
        return len(attempt.rows) - len(attempt.kept) - len(attempt.sent_keys()) if self._has_journal else 0
