"""Refused rows that are kept in another queue: which schedules keep them there, and the laws of that.

Of the schedules that keep refused rows one half keeps them in the queue `bad.fifo`, by dice of its own, so that all
others play as if there were no such queue. Calls to it meet the faults of all calls. As the pages require, the source
gives other rows only with a journal, once no task of an earlier run lives any more, and, where a refused row holds its
group, once the journal knows what was sent: see `SinkSchedule._between`.

A place is one of equal rows of one partition of a micro-batch: it has one line in the queue, unless SQS has forgotten
the line, and the journal does not know it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from sqs_fifo_spark.aws import client as aws
from sqs_fifo_spark.errors import JournalUnavailableError, TransientQueueError
from sqs_fifo_spark.sink.sink_queue import UnsentError
from tests.manual_clock import ManualClock
from tests.simulation import sink_laws as base
from tests.simulation.hub import Hub
from tests.simulation.sink_ends import SHORTEST_TRY_S
from tests.simulation.sink_tasks import SinkAttempt
from tests.simulation.sink_world import Entry, SinkWorld

QUEUE_SHARE = 0.5
"""Of the schedules that keep refused rows: in another queue."""
BAD = "bad.fifo"
URL = f"http://127.0.0.1:9324/000000000000/{BAD}"


class KeeperWorld(SinkWorld):
    """A world with one more queue, for refused rows."""

    def __init__(self, seed: int, clock: ManualClock, attributes: dict[str, str], given: dict[str, str]) -> None:
        super().__init__(seed, clock, attributes, given)
        self.create_queue(BAD)
        self.laws: KeeperLaws

    def call_sqs(self, action: str, request: dict[str, Any]) -> dict[str, Any]:
        if action != "SendMessageBatch" or request["QueueUrl"] != URL:
            return super().call_sqs(action, request)
        self.laws.sends_line("sends a refused row")
        self.connect()
        aws.require_in_time()
        self.laws.sends_line("lets a refused row leave it")
        try:
            return super(SinkWorld, self).call_sqs(action, request)
        except ClientError as error:
            if error.response["Error"]["Code"] == "AccessDenied":
                self.laws.doom()
            raise

    def _call_model(self, action: str, request: dict[str, Any]) -> dict[str, Any]:
        if action != "SendMessageBatch" or request["QueueUrl"] != URL:
            return super()._call_model(action, request)
        answer = super(SinkWorld, self)._call_model(action, request)
        entries = {entry["Id"]: entry for entry in request["Entries"]}
        for each in answer.get("Successful", []):
            is_new = each["MessageId"] not in self._message_ids
            self._message_ids.add(each["MessageId"])
            self.laws.accepted_line(entries[each["Id"]], is_new)
        return self._as_told(answer.get("Successful", []), answer.get("Failed", []))


class _Place(NamedTuple):
    folder: str
    partition: int
    row: str
    copy: int

    @property
    def name(self) -> str:
        """The same without its partition, in the way of an object's name."""
        return f"{self.folder.removeprefix('sent/')}/{self.row.replace('/', '|')}-{self.copy}"


class _Line:
    """The messages in the queue that are of one place."""

    def __init__(self) -> None:
        self.messages: list[float] = []
        """Times at which the queue took it for a new message."""
        self.owners: list[tuple[SinkAttempt, float]] = []
        """Attempts of which it took the line, and when."""
        self.told: int | None = None
        """Number of the history at which an attempt first knew that it is kept, and recorded, if there is a journal."""


class KeeperLaws(base.SinkLaws):
    """The laws of the sink where refused rows are kept in another queue."""

    def __init__(self, world: KeeperWorld, hub: Hub, **given: Any) -> None:
        super().__init__(world, hub, **given)
        self._lines: defaultdict[_Place, _Line] = defaultdict(_Line)
        self._left_at: dict[str, float] = {}
        """Time at which the last call of each thread with a refused row left its process, or began."""
        world.laws = self

    def keeping(self, keep: Callable[..., bool]) -> Callable[..., bool]:
        """Return the keeper's method, audited."""

        def audited(*given: Any) -> bool:
            attempt, began_at = self._require_current(), self._hub.now()
            try:
                is_kept = keep(*given)
            except TransientQueueError as error:
                is_early = self._hub.now() - began_at < SHORTEST_TRY_S
                if (
                    is_early
                    and not isinstance(error, UnsentError)
                    and not self.waits.stood_still_s(attempt.process, 0.0)
                ):
                    self.violate(f"progress: {attempt.process.name} tries a refused row no longer: {error}")
                raise
            if is_kept:
                self._told_kept(attempt, json.loads(given[3]))
            return is_kept

        return audited

    def sends_line(self, what: str) -> None:
        """A call with a refused row begins, or leaves its process."""
        attempt = self._require_current()
        attempt.idle_lists.clear()
        self._audit_end(attempt, what)
        now = self._left_at[self._hub.current_name] = self._hub.now()
        if self._has_journal and (not attempt.lists or now - attempt.lists[-1][1] > base.TRIED_S + base.CONNECT_S):
            self.violate(f"once: {attempt.process.name} {what} too late after its last look at the journal")

    def accepted_line(self, entry: Entry, is_new: bool) -> None:
        self._now += 1
        attempt, now = self._require_current(), self._hub.now()
        line = json.loads(entry["MessageBody"])
        place = self._place(attempt, line)
        if entry["MessageGroupId"] != line["row"]["messageGroupId"]:
            self.violate(f"content: refused {place} is sent in the group {entry['MessageGroupId']}")
        if is_new:
            if self._lines[place].messages:
                self._audit_copy_of_line(attempt, place, now)
            self._lines[place].messages.append(now)
        self._lines[place].owners.append((attempt, now))
        self._books[attempt.folder].add_kept(place.name, line)
        self._has_kept(attempt, f"{place.name}-{place.partition}", line, place.copy)

    def knows_all_sent(self, folder: str) -> bool:
        """Return whether the journal knows all that was sent of a micro-batch."""
        book = self._books[folder]
        return all(owner.digests.get(key) in book.recorded for key, owners in book.accepted.items() for owner in owners)

    def _require_current(self) -> SinkAttempt:
        attempt = self._current()
        assert attempt is not None
        return attempt

    def _listed(self, prefix: str) -> None:
        """The record has the marks of refused rows: the first look at it finds those of earlier attempts."""
        super()._listed(prefix)
        attempt = self._current()
        if attempt is not None and prefix == attempt.folder and attempt.kept_looked_at < 0:
            attempt.kept_looked_at = attempt.lists[0][0]

    def _audit_passing(
        self, attempt: SinkAttempt, error: TransientQueueError | JournalUnavailableError, text: str
    ) -> None:
        if not (isinstance(error, TransientQueueError) and BAD in text):  # that is judged where it was raised
            super()._audit_passing(attempt, error, text)

    def _told_kept(self, attempt: SinkAttempt, line: Mapping[str, Any]) -> None:
        place = self._place(attempt, line)
        if not self._lines[place].messages:
            self.violate(f"no loss: {attempt.process.name} says that {place} is kept, and it is not in {BAD}")
        self._lines[place].told = self._lines[place].told or self._now
        self._has_kept(attempt, f"{place.name}-{place.partition}", line, place.copy)

    @staticmethod
    def _place(attempt: SinkAttempt, line: Mapping[str, Any]) -> _Place:
        return _Place(attempt.folder, attempt.place.partition, json.dumps(line["row"], sort_keys=True), line["copy"])

    def _audit_copy_of_line(self, attempt: SinkAttempt, place: _Place, now: float) -> None:
        """A second message of a place is excused if SQS has forgotten the first one, and the journal never knew it."""
        line = self._lines[place]
        self._world.note(f"{place} is doubled")
        if now < line.messages[-1] + base.REMEMBERED_S:
            self.violate(f"once: refused {place} is doubled within 5 minutes")
        if not self._has_journal or now - self._left_at[self._hub.current_name] > base.LONGEST_CALL_S:
            return  # it stood still in mid-call, and nothing stops what is on the wire
        if line.told is not None and line.told < attempt.known_look(self._hub.current_name):
            self.violate(f"once: refused {place} is doubled, and the journal knew it")
        if not any(
            (not owner.process.is_alive and owner.sent is None)
            or owner.error is not None
            or self.waits.stood_still_s(owner.process, taken_at) >= base.LONG_PAUSE_S
            for owner, taken_at in line.owners
        ):
            self.violate(f"once: refused {place} is doubled, and nobody who had sent it died, failed or stood still")
