"""The sink's laws, audited from the histories of queue and journal: as things happen, and when all is over."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from sqs_fifo_spark.errors import (
    BatchForgottenError,
    DisorderError,
    JournalUnavailableError,
    PayloadError,
    RowError,
    SqsFifoError,
    TransientQueueError,
)
from sqs_fifo_spark.sink.digests import split
from sqs_fifo_spark.sink.marks import parse_name
from sqs_fifo_spark.sink.recorder import DISORDER
from sqs_fifo_spark.sink.summary import Overlap
from tests.simulation.hub import Hub, Process
from tests.simulation.sink_payloads import Payloads
from tests.simulation.sink_queues import group_alone, group_of_line, shown
from tests.simulation.sink_rows import Key
from tests.simulation.sink_tasks import SinkAttempt
from tests.simulation.sink_world import Entry, Panic, SinkWorld

REMEMBERED_S = 300
"""Seconds for which SQS knows a sent row."""
TRIED_S = 100
"""For how long a row may be tried, from the look at the journal, or without a journal from its first try."""
CONNECT_S = 5
"""Seconds after the last moment of a try in which its bytes may leave."""
RECORDED_S = 175
"""Seconds after the look for which a sent row may be without confirmation, or record: then its task fails."""
MOMENTS_S = 3
"""Seconds by which it may fail later, at most."""
LONG_PAUSE_S = 60
"""For how long somebody stands still who is excused for what is doubled."""
LONGEST_PAUSE_S = 10
"""Seconds that a task waits at most before it tries again."""
LONGEST_CALL_S = 15
"""Seconds of a call before the client gives it up: its effect comes earlier, or the process stood still."""
MAX_ENTRIES = 10
REMEMBERED_WRITE_S = 7 * 86_400
"""Seconds for which a batch write is remembered, from its beginning."""
MOST_LISTS = 20
"""Lists of sent rows that a thread may make until it has rows to send, or fails."""
SHORTEST_TRY_S = 15
"""For how long a row is tried at least: 30 s, if the look was as old as it may be, less what is too short for another
pause, of 5 s of its own and one that all share, of 7.5 s."""
_Spans = dict[Process | None, list[tuple[float, float]]]
"""From when until when, for each process; None is everybody."""
_ROWS_SENT = re.compile(r"([\d,]+) rows of (?:the partition|partition \d+) were sent")
_REFUSED_ROW = re.compile(r"row ([\d,]+) of partition")
_NO_CALL_FAILED = (
    "what was sent took longer than",
    "which makes the journal at",
    "does not find the driver's journal",
    "which makes the badRecordsPath at",
    "does not find the driver's badRecordsPath",
    "the store says that it exists",
)
"""Texts of errors about the journal that need no call of it to fail."""
_TOO_LATE = ("the record of what was sent took so long", "is held up")
"""Texts of errors about something that took longer than RECORDED_S."""


class _Book:
    """The sent rows of one micro-batch, or one batch write: those of the queue, and those of the journal."""

    def __init__(self) -> None:
        self.accepted: dict[Key, list[SinkAttempt]] = {}
        self.messages: dict[Key, float] = {}
        """Time at which the queue last took it for a new message."""
        self.doubled_at: dict[Key, float] = {}
        """Time at which it was doubled by a call that was made in time."""
        self.numbers: dict[Key, int] = {}
        """Number of the history at which it was first taken."""
        self.accepted_at: dict[tuple[Key, int], float] = {}
        """Time at which an attempt's row was first taken, by the attempt's number."""
        self.recorded: dict[bytes, int] = {}
        """Number of the history at which it was first durable."""
        self.recorded_in: defaultdict[bytes, dict[str, int]] = defaultdict(dict)
        """The same in each partition of each run."""
        self.recorded_at: dict[bytes, float] = {}
        self.versions: set[int] = set()
        self.kept: dict[Key, int] = {}
        """Number of the history at which a refused row was first kept elsewhere."""
        self.kept_alone: dict[Key, int] = {}
        """The same for the first one of equal rows of a task: if it gives only one of them later, that is this one."""
        self.kept_names: dict[str, tuple[Key, str]] = {}
        """The content of each object: a row, and its body."""
        self.out_of_order: dict[str, int] = {}
        """Partitions of runs that are recorded to be out of order, and the number of the history of that."""
        self.partitions: dict[tuple[str, str | Key], int] = {}
        """The first one in which a group, or a row, has stood in a run."""
        self.scattered: set[str] = set()
        """The groups that have stood in several partitions of a run: then only each of these is in order."""
        self.bodies: dict[Key, str] = {}
        self.twins: set[Key] = set()
        """The rows that have, or that have had several bodies: they are several, which are equal."""

    def add_kept(self, name: str, line: Mapping[str, Any]) -> None:
        """An object for a refused row is there."""
        self.kept_names[name] = _kept_key(line)

    def place(self, attempt: SinkAttempt) -> None:
        run, partition = attempt.draft.run, attempt.place.partition
        groups = {row.group for row in attempt.rows}
        self.scattered |= {each for each in groups if self.partitions.setdefault((run, each), partition) != partition}
        for row in attempt.rows:
            is_there = self.partitions.setdefault((run, row.key), partition) == partition
            if not is_there or self.bodies.setdefault(row.key, row.body) != row.body:
                self.twins.add(row.key)

    def known(self, attempt: SinkAttempt, digest: bytes) -> int | None:
        """Return since when an attempt may know that a row is recorded: it does not read other partitions of its run.

        A row that stands there as well is another one, which is equal.
        """
        own, run = _place(attempt), attempt.draft.run
        recorded = self.recorded_in.get(digest, {})
        return min((recorded[each] for each in recorded if each == own or not each.startswith(run)), default=None)


class SinkLaws:
    """The laws of the sink, and breaches of them in `violations`. It hears of each effect from the start."""

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
        self._books: defaultdict[str, _Book] = defaultdict(_Book)
        self._attempts: dict[Process, SinkAttempt] = {}
        self._pauses: _Spans = {}
        self._upstream: _Spans = {}
        """Times for which a task waits for its rows."""
        self._calls: _Spans = {}
        """Times for which a task waits for the queue, or for a put."""
        self._looks: _Spans = {}
        """Times for which a task waits for the store otherwise, to list, read or drop: nothing of that is too late."""
        self._writes: _Spans = {}
        """Times for which a thread writes to S3: rows wait for that, but no call under way, nor the task's end."""
        self._retries: _Spans = {}
        """Times for which a task may wait before it tries again."""
        self._all_spans = self._pauses, self._upstream, self._calls, self._looks, self._retries
        self._groups: dict[tuple[str, int], str] = {}
        """The group of each message, by the queue, if rows name theirs, and the sequence number."""
        self._now = 0
        """The number of the history's last event."""
        self._newest = -1
        """The newest micro-batch whose write was committed."""
        self._putting: dict[str, list[bytes]] = {}
        """Digests in the last put of a thread, by the thread's name."""
        self._are_putting: set[str] = set()
        """The threads of which a put is under way."""
        self.merging: set[str] = set()
        """Threads that merge their recorded digests."""
        self._tidies: dict[str, bool] = {}
        """True if the last put of a thread, by its name, says only what its task had made durable before."""
        world.on_call = self._called
        world.on_bytes = self._sent
        world.on_accepted = self._accepted
        world.on_answer = self._answered
        world.on_refusal = self._refused
        world.store.on_put_begins = self._put_begins
        world.store.on_put_ends = self._put_ends
        world.store.on_put = self._put
        world.store.on_list_asked = self._list_asked
        world.store.on_list = self._listed
        world.kept.on_put_begins = self._keep_begins
        world.kept.on_put = self._kept
        world.kept.on_list = self._kept_listed

    def violate(self, law: str) -> None:
        self.violations.append(law)
        self._world.note(f"!! {law}")

    def launched(self, attempt: SinkAttempt) -> None:
        attempt.launched_at = self._hub.now()
        self._attempts[attempt.process] = attempt
        self._books[attempt.folder].versions.add(attempt.version)

    def dealt(self, attempts: Sequence[SinkAttempt]) -> None:
        """Spark has dealt rows to the tasks of a run, of which perhaps not all come to be launched."""
        for attempt in attempts:
            self._books[attempt.folder].place(attempt)

    def paused(self, process: Process | None, seconds: float) -> None:
        """The process, or everybody, stands still."""
        self._add(self._pauses, process, seconds)

    def takes(self, seconds: float, *, is_look: bool = False) -> None:
        """Note that the running task's call of queue or store takes so long."""
        self._keep(self._looks if is_look else self._calls, seconds)

    def writes(self, seconds: float) -> None:
        """Note that a thread of the running task writes to S3 for so long."""
        self._keep(self._writes, seconds)

    def pauses(self) -> None:
        """Note that the running task's call of queue or store fails, so that it waits before it tries that again."""
        self._keep(self._retries, LONGEST_PAUSE_S)

    def upstream(self, seconds: float) -> None:
        """The task that runs asks for its next rows, and waits for them so long."""
        attempt = self._current()
        assert attempt is not None
        self._audit_end(attempt, "asks for its next rows")
        self._audit_hold_up(attempt, self._pauses)
        self._keep(self._upstream, seconds)

    @contextmanager
    def looking_at_queue(self) -> Iterator[None]:
        """The task that runs asks a queue for its settings before it takes the next row: it waits as for its rows."""
        attempt = self._current()
        assert attempt is not None
        self._audit_end(attempt, "looks at a queue")
        self._audit_hold_up(attempt, self._pauses)
        spans = self._upstream.setdefault(attempt.process, [])
        at, began_at = len(spans), self._hub.now()
        spans.append((began_at, math.inf))
        try:
            yield
        finally:
            spans[at] = began_at, self._hub.now()

    def _keep(self, spans: _Spans, seconds: float) -> None:
        attempt = self._current()
        if attempt is not None:
            self._add(spans, attempt.process, seconds)

    def _add(self, spans: _Spans, process: Process | None, seconds: float) -> None:
        spans.setdefault(process, []).append((self._hub.now(), self._hub.now() + seconds))

    @staticmethod
    def _of(process: Process, *spans: _Spans) -> Iterator[tuple[float, float]]:
        """Yield those of everybody, and of the process."""
        return chain.from_iterable(each.get(who, ()) for each in spans for who in (None, process))

    def _covered(self, process: Process, since: float, until: float, *spans: _Spans) -> float:
        """Return for how long any of the spans holds the process between two times, in seconds."""
        covered_s = 0.0
        for begin, end in sorted(self._of(process, *spans)):
            covered_s += max(0.0, min(end, until) - max(begin, since))
            since = max(since, end)
        return covered_s

    def stood_still(self, process: Process, since: float) -> float:
        """Return for how long the process has stood still since then, in seconds."""
        return self._covered(process, since, self._hub.now(), self._pauses)

    def _current(self) -> SinkAttempt | None:
        return self._attempts.get(self._hub.current_process) if self._hub.current_name else None

    # As it happens

    def _called(self, entries: Sequence[Entry]) -> None:
        attempt, now = self._current(), self._hub.now()
        assert attempt is not None
        size = sum(map(_bytes, entries))
        entries = self._payloads.resolved(entries, is_sent=True)
        keys = [_key(entry) for entry in entries]
        self._world.note(f"sends {' '.join(told for _, told in keys)}")
        groups = [group for group, _ in keys]
        attempt.calling[self._hub.current_name] = keys
        attempt.calls += 1
        attempt.entries += len(entries)
        attempt.idle_lists.clear()
        attempt.calls_began_at[self._hub.current_name] = now
        attempt.is_shaken |= attempt.unanswered.get(self._hub.current_name, False)
        attempt.unanswered[self._hub.current_name] = len(set(groups)) < len(groups)
        if len(set(groups)) < len(groups) and attempt.options.order == "strict":
            self.violate(f"order: two rows of a group in one call: {keys}")
        for place, key in enumerate(keys):
            before = [each for each in keys[:place] if each[0] == key[0] and each != key]
            if not any(set(before) <= earlier for earlier in _places(attempt, key)):
                self.violate(f"order: {key} stands behind {before} in a call")
            attempt.ahead[key].update(before)
            if self._has_journal and (key in attempt.confirmed or key in keys[:place]):
                self.violate(f"once: {key} is sent, and so was an equal row of the same attempt")
        if attempt.options.on_disorder == "fail" and self._knows_of_disorder(
            attempt, attempt.known_look(self._hub.current_name) if attempt.looks else -1
        ):
            self.violate(f"end: {attempt.process.name} sends {keys}, and knows that its partition is out of order")
        if not 1 <= len(entries) <= MAX_ENTRIES or size > self.max_call_bytes:
            self.violate(f"limits: a call of {len(entries)} entries and {size} bytes")
        self._audit_end(attempt, f"sends {keys}")
        rows = {(row.key, row.body, row.attribute) for row in attempt.rows if row.flaw != "empty"}
        for key, entry in zip(keys, entries, strict=True):
            attribute = entry.get("MessageAttributes", {}).get("number", {}).get("StringValue")
            if (key, entry["MessageBody"], attribute) not in rows:
                self.violate(f"content: {key} is not what the row says")
        attempt.fresh[self._hub.current_name] = [key for key in keys if key not in attempt.in_doubt_since]
        for key in keys:
            attempt.in_doubt_since.setdefault(key, now)
            self._audit_time(attempt, key, now)

    def _knows_of_disorder(self, attempt: SinkAttempt, looked_at: int) -> bool:
        """Return True if a look at that number finds that its partition is out of order, or any one in another run."""
        own = _place(attempt)
        return any(
            since < looked_at and (place == own or not place.startswith(attempt.draft.run))
            for place, since in self._books[attempt.folder].out_of_order.items()
        )

    def _audit_end(self, attempt: SinkAttempt, what: str) -> None:
        """Nothing is sent any more by a task that is over, or that has met what fails it."""
        if attempt.is_over:
            self.violate(f"end: {attempt.process.name} is over, and {what}")
        doomed_at = attempt.doomed_at
        if doomed_at is not None and self._hub.now() > doomed_at + self.stood_still(attempt.process, doomed_at):
            self.violate(f"end: {attempt.process.name} has failed, and {what}")

    def _audit_time(self, attempt: SinkAttempt, key: Key, now: float) -> None:
        """Require each try in time, of a row that the journal does not know."""
        first = attempt.tried_at.setdefault(key, now)
        if not self._has_journal:
            if (tried_s := now - attempt.in_doubt_since[key]) > TRIED_S:
                self.violate(f"once: {key} is tried for {tried_s:.0f} s")
            return
        if not attempt.looks:
            self.violate(f"once: {key} is sent without a look at the journal")
            return
        looked_at = attempt.looks[-1][1]
        if now - looked_at > TRIED_S:
            self.violate(f"once: {key} is tried {now - looked_at:.0f} s after the last look at the journal")
        recorded = self._books[attempt.folder].known(attempt, attempt.digests[key])
        if recorded is None:
            return
        if first == now and recorded < attempt.known_look(self._hub.current_name):
            self.violate(f"once: {key} is sent, and the journal had it")

    def _sent(self, entries: Sequence[Entry]) -> None:
        """A call leaves its process: in time, however long it took to connect."""
        attempt = self._current()
        assert attempt is not None
        since = attempt.lists[-1][1] if attempt.lists else min(attempt.in_doubt_since[_key(entry)] for entry in entries)
        late_s = self._hub.now() - since - TRIED_S - CONNECT_S
        if late_s > 0:
            self.violate(f"once: a call of {attempt.process.name} leaves it {late_s:.0f} s too late")
        self._audit_end(attempt, "a call leaves it")
        attempt.calls_began_at[self._hub.current_name] = self._hub.now()

    def _accepted(self, entry: Entry, number: int, is_new: bool) -> None:
        self._now += 1
        attempt = self._current()
        assert attempt is not None
        key, book = _key(entry), self._books[attempt.folder]
        earlier, flawed = _earlier(attempt, key)
        missing = [each for each in earlier if each not in book.accepted and each not in book.kept]
        overtaken = attempt.ahead[key].intersection(missing)
        if len(missing) > len(overtaken):
            self.violate(f"order: {key} is sent, and {missing} before it are not")
        # What SQS refuses is no message, and is not overtaken.
        overtaken &= {row.key for row in itertools.takewhile(lambda row: row.key != key, attempt.rows) if not row.flaw}
        is_told = key in attempt.confirmed  # then this is an equal row behind it
        if overtaken and is_new and not is_told:
            self._world.note(f"{key} overtakes {overtaken}")
            attempt.overtook[key] = overtaken
        elif is_new and not is_told:
            attempt.overtook.pop(key, None)  # of two messages, its answer tells where the second stands
        queue, is_named, _ = key[0].partition("\n")
        message = (queue if is_named else "", number)
        if is_new:
            self._groups[message] = key[0]
        # An equal row may be of another group: then the number says nothing of its own one.
        if not is_told and self._groups.get(message, key[0]) == key[0]:
            attempt.numbers[key] = number
        unrecorded = [
            each for each in earlier if attempt.digests.get(each) not in book.recorded and each not in book.kept
        ]
        if self._has_journal and len(unrecorded) >= attempt.options.max_unrecorded_rows:
            self.violate(f"once: {key} is sent, and {unrecorded} before it are not recorded")
        left_at = attempt.calls_began_at[self._hub.current_name]  # nothing stops what is on the wire
        for each in earlier if key[0] not in book.scattered else ():
            since = book.accepted_at.get((each, id(attempt)), self._hub.now())
            doubled_at = book.doubled_at.get(each, 0.0)
            is_late = doubled_at <= left_at or self._hub.now() - left_at <= LONGEST_CALL_S
            if since < doubled_at and is_late and book.accepted[each][0] is attempt:
                self.violate(f"once: {key} is sent, and {each} before it was doubled meanwhile")
        goes_on = attempt.keeps and attempt.options.bad_records_group == "continue"
        sent_as = attempt.digests.get(flawed) if flawed else None  # a row with its id may be known
        is_known = sent_as is not None and book.known(attempt, sent_as) is not None
        if flawed and flawed not in attempt.ahead[key] and not (goes_on or is_known):
            self.violate(f"order: {key} is sent, though a row before it, of its group, is refused")
        is_kept = book.kept_alone.get(key, self._now) < self._now
        if is_kept and self._is_one_place(attempt, key, book, attempt.kept_looked_at):
            self.violate(f"one place: {key} is sent, and was refused and kept before")
        if is_new and key in book.messages and key not in attempt.confirmed:
            self._audit_copy(attempt, key, book)
        if is_new:
            book.messages[key] = self._hub.now()
        attempt.repeats += not is_new
        book.accepted.setdefault(key, []).append(attempt)
        book.numbers.setdefault(key, self._now)
        book.accepted_at.setdefault((key, id(attempt)), self._hub.now())

    def _is_one_place(self, attempt: SinkAttempt, key: Key, book: _Book, looked_at: int) -> bool:
        """Return True if an attempt must know of a row that it is in the other place already, or could find out.

        Where the source gave other rows in between, or the rows before it stood in another partition, a late task of
        the run before may still refuse, or send, a row that this one does not: only its own looks count then. Of equal
        rows one may be in each place.
        """
        if key in book.twins or sum(row.key == key for row in attempt.rows) > 1:
            return False
        before = book.kept_alone[key] if key in book.kept_alone else book.recorded.get(attempt.digests[key], self._now)
        is_always_same = len(book.versions) == 1 and key[0] not in book.scattered
        return is_always_same or before < looked_at

    def _keep_begins(self, data: bytes) -> None:
        attempt = self._current()
        if attempt is not None:
            attempt.keeps_began_at.append(self._hub.now())

    def _kept(self, name: str, data: bytes) -> None:
        """A refused row is durable, or a task has found it so: its own, if it made it, or was the first of its run."""
        self._now += 1
        attempt = self._current()
        if attempt is None:
            return
        own = attempt.place.partition
        if name.startswith("_found/"):
            found = f"{name.removeprefix('_found/').rpartition('-')[0]}.json"
            partition, copy = map(int, data.split(b"-"))
            if partition == own:
                self._has_kept(attempt, found, json.loads(self._world.kept.objects[found]), copy)
        elif name.endswith(".json"):
            line = json.loads(data)
            self._books[attempt.folder].add_kept(name, line)
            if (line["run"], line["partition"]) == (attempt.draft.run, own):
                self._has_kept(attempt, name, line, line["copy"])

    def _has_kept(self, attempt: SinkAttempt, name: str, line: Mapping[str, Any], copy: int) -> None:
        """The attempt has kept a row of its own, this one of equal ones, in an object of this name."""
        folder, book = f"sent/{name.rpartition('/')[0]}", self._books[attempt.folder]
        key, body = _kept_key(line)
        attempt.tried_at.pop(key, None)
        matching = [each for each in attempt.rows if (each.key, each.body) == (key, body)]
        if folder != attempt.folder or not matching:
            self.violate(f"content: {name} says {line}, which is no row of {attempt.process.name}")
        attempt.kept[name] = key
        if list(attempt.kept.values()).count(key) > sum(row.key == key for row in attempt.rows):
            self.violate(f"one place: {key} is kept twice")
        thread = self._hub.current_name
        looked_at = attempt.known_look(thread) if attempt.looks else -1
        equal = sum(row.key == key for row in attempt.rows)
        if not 1 <= copy <= equal and matching:
            self.violate(f"content: {name} is the row {key} of number {copy}, of {equal} equal ones")
        is_first = copy == 1 or equal == 1
        is_sent = is_first and key in book.accepted and key not in book.kept_alone
        if is_sent and self._is_one_place(attempt, key, book, looked_at):
            self.violate(f"one place: {key} is refused and kept, and was sent before")
        book.kept.setdefault(key, self._now)
        if is_first:
            book.kept_alone.setdefault(key, self._now)

    def _kept_listed(self, prefix: str) -> None:
        self._now += 1
        attempt = self._current()
        if attempt is not None and f"sent/{prefix}" == attempt.folder:
            attempt.kept_looked_at = self._now

    def _audit_copy(self, attempt: SinkAttempt, key: Key, book: _Book) -> None:
        """A second message is excused if it stands right behind the first, whose sender died, could not record it, or
        stood still.
        """
        thread = self._hub.current_name
        self._world.note(f"{key} is doubled")
        if self._hub.now() < book.messages[key] + REMEMBERED_S:
            self.violate(f"once: {key} is doubled within 5 minutes")
        if self._hub.now() - attempt.calls_began_at[thread] > LONGEST_CALL_S:
            return  # it stood still in mid-call, and nothing stops what is on the wire
        owners = [each for each in book.accepted[key] if each is not attempt]
        if any(each.draft is attempt.draft and each.place.partition != attempt.place.partition for each in owners):
            return  # they are equal rows of two partitions, of which neither knows the other
        self._audit_delay(attempt, key, book.messages[key] + REMEMBERED_S)
        if not self._has_journal:
            return
        book.doubled_at.setdefault(key, self._hub.now())
        latest_s = TRIED_S + CONNECT_S + LONGEST_CALL_S
        looked_at = max(attempt.known_look_at(thread), self._hub.now() - latest_s)
        if not any(
            (not each.process.is_alive and each.sent is None)
            or self._could_not_tell(each, key, looked_at)
            or self.stood_still(each.process, book.accepted_at[key, id(each)]) >= LONG_PAUSE_S
            for each in owners
        ):
            self.violate(
                f"once: {key} is doubled, and nobody who had sent it died, stood still, or could not record it"
            )
        if key[0] in book.scattered:
            return  # of what stands between the two, another partition may have sent some
        group = list(dict.fromkeys(row.key for row in attempt.rows if row.group == key[0]))
        later = group[group.index(key) + 1 :] if len(book.versions) == 1 else []
        known = attempt.known_look(thread)
        between = [each for each in later if book.numbers[key] < book.numbers.get(each, known) < known]
        # An answer may leave out a row that SQS has taken, and tell of those behind it in the call. Or SQS has failed
        # it in a later attempt's call, and taken those: of which that attempt tells.
        apart = [
            each
            for each in between
            if not any(key in owner.ahead[each] for owner in (*book.accepted[key], *book.accepted[each]))
        ]
        recorded = [each for each in apart if book.recorded.get(attempt.digests.get(each, b""), known) < known]
        if len(between) >= attempt.options.max_unrecorded_rows or recorded:
            self.violate(f"once: {key} is doubled, and {between} stand between the two, {recorded} of them recorded")

    def _could_not_tell(self, attempt: SinkAttempt, key: Key, looked_at: float) -> bool:
        """Return whether an attempt need not have recorded a row that SQS took, before another one looked.

        It has failed, or it waits for its next rows, or has just got them: only then can it fail. And nobody told it
        that the row is sent; or something of it was held up; or each put of the row failed, which it tries again and
        again until it ends.
        """
        now, process = self._hub.now(), attempt.process
        awaits_rows = self._covered(process, now - MOMENTS_S, now + MOMENTS_S, self._upstream) > 0
        if attempt.error is None and not awaits_rows:
            return False
        if key not in attempt.confirmed:
            return True
        failed_at = attempt.could_not_record.get(attempt.digests[key])
        if failed_at is None:
            return attempt.was_held_up or (awaits_rows and self._is_held_up(attempt))
        until = min(looked_at, attempt.ended_at)
        return self._untried(process, max((at for at in failed_at if at <= until), default=until), until) <= MOMENTS_S

    def _untried(self, process: Process, failed_at: float, until: float) -> float:
        """Return for how long, in seconds, a put that failed has not been tried again, beyond the pause that it may."""
        kept_s = self._covered(process, failed_at, until, self._pauses, self._calls, self._looks)
        return until - failed_at - kept_s - LONGEST_PAUSE_S

    def _audit_delay(self, attempt: SinkAttempt, key: Key, forgotten_at: float) -> None:
        """Require that a task that begins in time comes in time, unless something keeps it."""
        began_at = attempt.launched_at
        kept_s = self._covered(attempt.process, began_at, forgotten_at, *self._all_spans, self._writes)
        if began_at + kept_s + MOMENTS_S < forgotten_at:
            self.violate(
                f"once: {key} is doubled by {attempt.process.name}, which began {forgotten_at - began_at:.0f} s before "
                f"it was forgotten, and was kept for {kept_s:.0f} s"
            )

    def _answered(self, entries: Sequence[Entry], answer: Mapping[str, Any]) -> None:
        attempt = self._current()
        assert attempt is not None
        sent = {each["Id"] for each in answer["Successful"]}
        sent_keys = {_key(entry) for entry in entries if entry["Id"] in sent}
        has_two = attempt.unanswered.pop(self._hub.current_name)
        attempt.is_shaken |= has_two and len(sent) < len(entries)
        attempt.answered += len(sent)
        before = dict(attempt.tried_at)
        for each in answer["Successful"]:
            attempt.equal += each["MessageId"] in attempt.told_ids
            attempt.told_ids.add(each["MessageId"])
        for entry in entries:
            if entry["Id"] in sent:
                attempt.tried_at.pop(_key(entry), None)
                attempt.confirmed.add(_key(entry))
        for entry in entries:
            if entry["Id"] not in sent and _key(entry) in before:  # one of several equal rows
                attempt.tried_at.setdefault(_key(entry), before[_key(entry)])
        for key in sent_keys:
            attempt.in_doubt_since.pop(key, None)
        throttled = {each["Id"] for each in answer["Failed"] if "Throttl" in each["Code"]}
        self._without_effect({_key(entry) for entry in entries if entry["Id"] in throttled} - sent_keys)
        attempt.last_events[self._hub.current_name] = self._now
        if refused := {each["Id"] for each in answer["Failed"] if each["SenderFault"]}:
            self._refused_rows([_key(entry) for entry in entries if entry["Id"] in refused])

    def _refused_rows(self, keys: Sequence[Key]) -> None:
        """SQS refuses rows for good, which ends the task, or has them kept."""
        attempt = self._current()
        assert attempt is not None
        attempt.refused_at = self._hub.now()
        if not attempt.keeps:
            self.doom()
        for key in keys:
            attempt.tried_at.pop(key, None)
            attempt.in_doubt_since.pop(key, None)

    def _refused(self, code: str) -> None:
        attempt = self._current()
        assert attempt is not None
        if code == "AccessDenied":
            self.doom()
        elif "Throttl" in code:
            self._without_effect()
        elif code == "InvalidMessageContents":
            attempt.refused_at = self._hub.now()
            self._without_effect()
            if attempt.keeps and len(keys := attempt.calling[self._hub.current_name]) == 1:
                self._refused_rows(keys)

    def _without_effect(self, keys: Collection[Key] | None = None) -> None:
        """SQS has throttled, or refused, the try of all rows of the call that just ended, or of these."""
        attempt = self._current()
        assert attempt is not None
        for key in attempt.fresh[self._hub.current_name]:
            if keys is None or key in keys:
                attempt.in_doubt_since.pop(key, None)

    def stepped(self) -> None:
        """Whoever runs calls queue or journal, or is answered."""
        attempt = self._current()
        if attempt is not None:
            attempt.asked += 1

    def audit_step(self, event: str) -> None:
        """Require that whoever wrote to S3 when its task ended does nothing but end its write."""
        attempt, thread = self._current(), self._hub.current_name
        if attempt is not None and thread in attempt.writers_left and not self._payloads.is_writing():
            self.violate(f"end: {attempt.process.name} is over, and {thread} is {event}")

    def is_in_task(self) -> bool:
        return self._current() is not None

    def panicked(self, call: str) -> None:
        """The native code of the task that runs panics, which ends the task, unless the call only tidies up."""
        attempt = self._current()
        assert attempt is not None
        is_tidying = call == "drop" or (call == "put" and self.is_tidying())
        if call == "drop" or is_tidying:
            return
        attempt.panicked = True
        if call == "put":
            self.could_not_put()
        self.doom()

    def could_not_put(self) -> None:
        """The put of the task that runs fails, and may be the record of what it has sent."""
        attempt = self._current()
        if attempt is not None:
            for digest in self._putting[self._hub.current_name]:
                attempt.could_not_record[digest].append(self._hub.now())

    def could_not_tidy(self, name: str) -> None:
        """The put of the task that runs fails, and only tidies up."""
        attempt = self._current()
        assert attempt is not None
        attempt.tidying += [f"cannot write '{name}'", f"no answer about '{name}'"]

    def could_not_write(self) -> None:
        """The task that runs cannot write a body to S3."""
        attempt = self._current()
        assert attempt is not None
        attempt.could_not_write = True
        self.doom()

    def doom(self) -> None:
        """The task that runs has met what fails it at once."""
        attempt = self._current()
        if attempt is not None and attempt.doomed_at is None:
            attempt.doomed_at = self._hub.now()

    def _put_begins(self, data: bytes) -> None:
        """Judge it before its first try: if only the answer of that is lost, the next would seem to say nothing new."""
        attempt = self._current()
        digests = _digests(data)
        is_known = attempt is not None and len(data) > 0 and attempt.recorded.issuperset(digests)
        if attempt is not None and not attempt.could_not_record.keys().isdisjoint(digests):
            is_known = False  # what seems to have failed is tried again
        if attempt is not None and attempt.options.max_unrecorded_rows > 1:
            is_known = (
                self._hub.current_name in self.merging
            )  # else it may be the record, and another thread has put it
        if attempt is not None and attempt.ended_at < math.inf and digests:
            put = (self._hub.current_name, frozenset(digests))
            attempt.late_puts[put] += 1
            if attempt.late_puts[put] > 2:  # rows of a call that was under way, and once more
                self.violate(f"end: {put[0]} records rows again and again, though its task is over")
        self._tidies[self._hub.current_name] = is_known
        self._putting[self._hub.current_name] = digests
        self._are_putting.add(self._hub.current_name)

    def _put_ends(self) -> None:
        self._are_putting.discard(self._hub.current_name)

    def _put(self, name: str, data: bytes) -> None:
        self._now += 1
        attempt = self._current()
        if attempt is not None:
            attempt.last_events[self._hub.current_name] = self._now
        if name.startswith("sent/"):
            book = self._books[name.rpartition("/")[0]]
            if DISORDER in _digests(data):
                book.out_of_order.setdefault(parse_name(name).place, self._now)
            for digest in _digests(data):
                book.recorded.setdefault(digest, self._now)
                book.recorded_in[digest].setdefault(parse_name(name).place, self._now)
                book.recorded_at.setdefault(digest, self._hub.now())
            if attempt is not None:
                attempt.recorded.update(_digests(data))

    def is_tidying(self) -> bool:
        """Return whether the put under way, of the thread that runs, only tidies up."""
        return self._tidies[self._hub.current_name]

    def _list_asked(self, prefix: str) -> None:
        attempt = self._current()
        if attempt is not None and prefix == attempt.folder:
            attempt.looked_at.append(self._hub.now())

    def _listed(self, prefix: str) -> None:
        self._now += 1
        attempt, thread = self._current(), self._hub.current_name
        if attempt is not None and prefix == attempt.folder:
            attempt.lists.append((self._now, self._hub.now()))
            attempt.looks.append(attempt.lists[-2:][0])
            attempt.last_events[thread] = self._now
            attempt.idle_lists[thread] += 1
            if attempt.idle_lists[thread] > MOST_LISTS * (1 + len(attempt.rows)):
                self.violate(f"progress: {thread} only looks at what was sent")

    # At the end of a task, and of a micro-batch

    def _has_just_written(self, thread: str) -> bool:
        """Return whether the last step of a thread was a write to S3, for which its task does not wait."""
        return "the body of" in next((event for _, who, event in reversed(self._world.trace) if who == thread), "")

    def ended(self, attempt: SinkAttempt, threads: Sequence[str]) -> None:
        """A task has returned or raised."""
        name, book = attempt.process.name, self._books[attempt.folder]
        writers = [each for each in threads if each in self._payloads.away or self._has_just_written(each)]
        threads = [each for each in threads if each not in writers]
        attempt.ended_at = self._hub.now()
        attempt.was_held_up = attempt.error is not None and self._is_held_up(attempt)
        self._audit_disorder(attempt, book)
        # Another call may have failed before, so that nothing is waited for after its limit, a look neither.
        may_abandon = attempt.error is not None and self._is_held_up(attempt, self._looks)
        if not may_abandon:
            attempt.writers_left = frozenset(writers)
        if threads and not may_abandon:
            self.violate(f"end: {name} is over, and {threads} are not")
        # Who has failed may have waited for its rows first; who ends well has noticed that nothing was too late.
        self._audit_hold_up(attempt, self._pauses, self._upstream if attempt.error is not None else {})
        if attempt.error is not None:
            self._world.note(f"{name} failed: {type(attempt.error).__name__}: {attempt.error}")
            if self._has_journal and not threads:
                self._audit_record(attempt, book)
            self._audit_error(attempt, attempt.error)
            return
        assert attempt.sent is not None
        rows, refused = len(attempt.rows), len(attempt.kept)
        left_out = self._left_out(attempt)
        known = rows - left_out - attempt.answered - refused
        if (attempt.sent.rows, attempt.sent.counts.known, attempt.sent.counts.refused) != (rows, known, refused):
            self.violate(
                f"end: {name} tells of {attempt.sent}, and it is {rows} rows, {known} of them known, {refused} kept"
            )
        least, most = attempt.equal + left_out, attempt.repeats + left_out
        if attempt.sent.counts.equal < least:
            self.violate(f"end: {name} tells of {attempt.sent}, and {least} rows were no messages of their own")
        if attempt.sent.counts.equal > most:
            self.violate(f"end: {name} tells of {attempt.sent}, and only {most} rows were equal to others")
        overtook = self._overtook(attempt, book)
        if attempt.sent.counts.overtaking < len(overtook):
            self.violate(f"order: {name} tells of {attempt.sent}, and {overtook} have overtaken others")
        if attempt.sent.counts.overtaking and not self._may_be_out_of_order(attempt):
            self.violate(f"order: {name} tells of {attempt.sent}, and nothing can be out of order")
        if attempt.sent.counts.follows_disorder and not book.out_of_order:
            self.violate(f"order: {name} tells of {attempt.sent}, and nobody has recorded that")
        first_look = attempt.lists[0][0] if attempt.lists else -1
        if attempt.options.on_disorder == "fail" and self._knows_of_disorder(attempt, first_look):
            self.violate(f"order: {name} ends well, and its first look found rows out of order")
        if overtook and attempt.options.on_disorder == "fail":
            self.violate(f"order: {name} ends well, and {overtook} have overtaken others")
        lost = [row.key for row in attempt.rows if row.key not in book.accepted and row.key not in book.kept]
        if lost:
            self.violate(f"no loss: {name} ends well, and {lost} are neither sent nor kept")
        self._audit_refused(attempt, book)
        if self._has_journal:
            left = [
                row.key
                for row in attempt.rows
                if row.key not in book.kept and attempt.digests[row.key] not in book.recorded
            ]
            if left:
                self.violate(f"once: {name} ends well, and {left} are not recorded")
        if self.is_calm:
            self._audit_cost(attempt, book)

    def left_behind(self, attempt: SinkAttempt, threads: Sequence[str]) -> None:
        """Threads of a task that was over long ago go on: also those that its end did not wait for end some time."""
        self.violate(f"end: {attempt.process.name} was over long ago, and {threads} never end")

    def _audit_refused(self, attempt: SinkAttempt, book: _Book) -> None:
        """Require that just the flawed and held rows are kept, and counted, if the rows are always the same."""
        assert attempt.sent is not None
        if len(book.versions) > 1:
            return

        def counted(keys: Iterable[Key]) -> Counter[Key]:
            # What stands before a row of a scattered group is not the same in each run.
            return Counter(key for key in keys if key[0] not in book.scattered and key not in book.twins)

        refused = counted(row.key for row in attempt.refused_rows() if attempt.keeps)
        own = {row.key for row in attempt.rows}
        kept = counted(key for key, _ in book.kept_names.values() if key in own)
        if not kept == refused == counted(attempt.kept.values()):
            self.violate(
                f"one place: {attempt.process.name} tells of {attempt.sent}; {refused} are refused, {kept} are kept"
            )

    def _may_be_out_of_order(self, attempt: SinkAttempt) -> bool:
        """Return True if an attempt has reason to say so: an answer, or an attempt before it, left something open."""
        is_batch = attempt.options.order == "batch"
        return is_batch and (attempt.is_shaken or any(attempt.unanswered.values()) or attempt.place.attempt > 0)

    @staticmethod
    def _overtook(attempt: SinkAttempt, book: _Book) -> list[Key]:
        """Return what has overtaken another message, rather than a row that is equal to an older one.

        SQS's numbers say it, of whichever batch that one is: other attempts may make a new one of the row later, when
        SQS has forgotten it. An attempt that was given no number counts as overtaken what its batch has sent.
        """
        numbers = attempt.numbers
        sent = {each: numbers.get(each, math.inf) for each in {*numbers, *book.messages}}
        return [
            key
            for key, overtaken in attempt.overtook.items()
            if any(sent[each] > numbers[key] for each in overtaken.intersection(sent))
        ]

    def _audit_disorder(self, attempt: SinkAttempt, book: _Book) -> None:
        """Disorder of which an attempt was told for certain is recorded when it is over, or was tried to be.

        It fails for its own disorder, which it records, or for that which its last look has found in the record.
        """
        if not self._has_journal:
            return
        told = [
            key for key in self._overtook(attempt, book) if attempt.confirmed.issuperset({key, *attempt.ahead[key]})
        ]
        if attempt.error is not None and len(self._hub.threads_of(attempt.process)) == 1:
            # What it gives up, and knows to be overtaken.
            told += [
                key
                for key, overtaken in attempt.overtook.items()
                if key in attempt.confirmed and not overtaken <= attempt.confirmed
            ]
        fails_itself = (
            isinstance(attempt.error, DisorderError)
            and attempt.is_shaken
            and attempt.answered > 0
            and not self._knows_of_disorder(attempt, attempt.lists[-1][0])
        )
        own = _place(attempt)
        # A put that is under way still is one that was tried: it may be held up for longer than the attempt waits.
        putting = self._are_putting.intersection(each.name for each in self._hub.threads_of(attempt.process))
        is_under_way = any(DISORDER in self._putting[name] for name in putting)
        could_not = DISORDER in attempt.could_not_record or is_under_way
        if (told or fails_itself) and own not in book.out_of_order and not could_not:
            self.violate(f"order: {attempt.process.name} knows of {told}, and has not recorded that it is out of order")

    def _audit_record(self, attempt: SinkAttempt, book: _Book) -> None:
        """Require that sent rows that a task knows are recorded when it fails, or were tried to the end."""
        name, ended_at = attempt.process.name, attempt.ended_at
        left = [key for key in attempt.confirmed if attempt.digests[key] not in book.recorded]
        untried = [key for key in left if attempt.digests[key] not in attempt.could_not_record]
        if untried:
            self.violate(f"once: {name} fails, and {untried} are sent and not recorded")
        for key in left:
            failed_at = max(attempt.could_not_record.get(attempt.digests[key], [ended_at]))
            if self._untried(attempt.process, failed_at, ended_at) > MOMENTS_S - LONGEST_PAUSE_S:
                self.violate(f"once: {name} fails, and has not tried to the end to record {key}")

    def _is_held_up(self, attempt: SinkAttempt, *others: _Spans) -> bool:
        """Return whether something of it may be too late just now.

        RECORDED_S after a look a call, a put, or one of `others` was under way, or its machine stood still, or it was
        about to try again to record what SQS had taken. And since then the task has only waited: for queue or store,
        for another try, for its rows, or for its machine.
        """
        now, process = self._hub.now(), attempt.process
        limits = [(limit, others) for limit in self._limits(attempt)]
        # Who keeps a refused row may have to look whose object it has found.
        limits += [(began_at + RECORDED_S, (self._looks,)) for began_at in attempt.keeps_began_at]
        return any(
            limit <= now
            and (
                self._covered(process, limit - MOMENTS_S, limit + MOMENTS_S, self._calls, self._pauses, *spans) > 0
                or self._records_again(attempt, limit)
            )
            and now - limit - self._covered(process, limit, now, *self._all_spans) <= MOMENTS_S
            for limit, spans in limits
        )

    def _limits(self, attempt: SinkAttempt) -> Iterator[float]:
        """Yield the times at which something of it may have become too late."""
        if self._has_journal:
            yield from (looked_at + RECORDED_S for looked_at in attempt.looked_at)
            return
        # When it began to try a row shows only if it came to call: whatever it waited for may have ended at a limit.
        for _, end in self._of(attempt.process, self._calls, self._looks, self._writes, self._pauses):
            yield max(attempt.launched_at + RECORDED_S, min(end, self._hub.now()))

    def _records_again(self, attempt: SinkAttempt, when: float) -> bool:
        """Return whether the record lacked then what SQS had taken of the attempt, and something had just failed."""
        book = self._books[attempt.folder]
        lacks_any = self._has_journal and any(
            book.accepted_at.get((key, id(attempt)), math.inf) <= when < book.recorded_at.get(digest, math.inf)
            for key, digest in attempt.digests.items()
        )
        return lacks_any and self._covered(attempt.process, when - MOMENTS_S, when, self._retries) > 0

    def _audit_hold_up(self, attempt: SinkAttempt, *excuses: _Spans) -> None:
        """A task does not go on long with a row that it has sent, and of which nobody else can know."""
        now, book = self._hub.now(), self._books[attempt.folder]
        spans = {key: (since, now) for key, since in attempt.in_doubt_since.items()}
        for key, digest in attempt.digests.items():
            if self._has_journal and (key, id(attempt)) in book.accepted_at:
                spans[key] = book.accepted_at[key, id(attempt)], book.recorded_at.get(digest, now)
        for key, (since, until) in spans.items():
            excused_s = self._covered(attempt.process, since, until, *excuses)
            if until - since > RECORDED_S + MOMENTS_S + excused_s:
                self.violate(f"once: {attempt.process.name} goes on for {until - since:.0f} s after it tried {key}")

    def _audit_error(self, attempt: SinkAttempt, error: BaseException) -> None:
        name, text = attempt.process.name, str(error)
        if isinstance(error, Panic) and attempt.panicked:
            return
        if not isinstance(error, SqsFifoError):
            self.violate(f"spoken errors: {name} ended with {type(error).__name__}: {error}")
            return
        told = _ROWS_SENT.search(text)
        if (int(told[1].replace(",", "")) if told else 0) != attempt.answered:
            self.violate(f"spoken errors: {attempt.answered} rows were sent, and {name} says: {text}")
        if isinstance(error, RowError):
            flawed = [number for number, row in enumerate(attempt.rows, start=1) if row.flaw]
            refused = _REFUSED_ROW.match(text)
            most = attempt.options.bad_records_max
            counted = len(attempt.refused_rows(self._books[attempt.folder].kept))
            is_too_many = attempt.keeps and "badRecordsMax" in text and counted > most
            if (
                refused is None
                or not (is_too_many or int(refused[1].replace(",", "")) in flawed)
                or (attempt.keeps and not is_too_many)
            ):
                self.violate(f"spoken errors: rows {flawed} are flawed, and {name} says: {text}")
        elif isinstance(error, DisorderError):
            known = self._knows_of_disorder(attempt, self._now)
            if attempt.options.on_disorder != "fail" or not (known or self._may_be_out_of_order(attempt)):
                self.violate(f"spoken errors: nothing of {name} can be out of order: {text}")
        elif isinstance(error, BatchForgottenError):
            if attempt.place.batch is None:
                is_early = self._hub.now() - attempt.draft.began_ms / 1000 < REMEMBERED_WRITE_S
            else:
                is_early = attempt.place.batch > self._newest - self.kept_batches
            if is_early:
                self.violate(f"bounded: forgotten too early: {text}")
        elif isinstance(error, PayloadError):
            if not attempt.could_not_write:
                self.violate(f"spoken errors: no body of {name} could not be written: {text}")
        elif isinstance(error, (TransientQueueError, JournalUnavailableError)):
            self._audit_passing(attempt, error, text)
        if self.is_calm:
            self.violate(f"spoken errors: nothing happened, and {name} ended with {type(error).__name__}: {error}")

    def _audit_passing(
        self, attempt: SinkAttempt, error: TransientQueueError | JournalUnavailableError, text: str
    ) -> None:
        """Require that each attempt tries passing faults again, for long enough; and that no tidying up fails one."""
        name = attempt.process.name
        if not attempt.asked and not self.stood_still(attempt.process, attempt.launched_at):
            self.violate(f"progress: {name} fails without a call: {text}")
        if text.startswith("cannot drop 'sent/") or any(text.startswith(f"{each} ") for each in attempt.tidying):
            self.violate(f"cost: {name} fails, and could only not tidy up: {text}")
        is_too_late = any(each in text for each in _TOO_LATE)
        if is_too_late and not attempt.was_held_up:
            self.violate(f"progress: nothing holds {name} up for long: {text}")
        may_be_sent = attempt.in_doubt_since or not attempt.calls or "was not made in time" in text
        may_ask = attempt.refused_at > -math.inf or any(row.group != group_alone(row.group) for row in attempt.rows)
        asks_why = may_ask and text.startswith("get_queue_attributes on ")
        if isinstance(error, TransientQueueError) and not (is_too_late or may_be_sent or asks_why):
            self.violate(f"progress: {name} fails, and was throttled at most: {text}")
        is_explained = attempt.doomed_at is not None or is_too_late or any(each in text for each in _NO_CALL_FAILED)
        if isinstance(error, JournalUnavailableError) and not is_explained:
            self.violate(f"cost: {name} fails, and nothing that it needed has failed: {text}")
        now = self._hub.now()
        tried_s = now - min(attempt.tried_at.values(), default=now if attempt.calls else attempt.launched_at)
        if text.startswith("get_queue_attributes"):
            tried_s = max(tried_s, now - max(attempt.refused_at, attempt.launched_at))
        is_early = tried_s < SHORTEST_TRY_S and not self.stood_still(attempt.process, attempt.launched_at)
        if isinstance(error, TransientQueueError) and is_early and not is_too_late:
            self.violate(f"progress: {name} tries for {tried_s:.0f} s: {text}")

    def _audit_cost(self, attempt: SinkAttempt, book: _Book) -> None:
        """Nothing is sent again, in no more calls than the longest group needs, for each ten groups."""
        name = attempt.process.name
        times = Counter({row.key for row in attempt.rows} if self._has_journal else (row.key for row in attempt.rows))
        again = [key for key in times if len(book.accepted[key]) > times[key]]
        if again or attempt.entries > times.total():
            self.violate(f"cost: {name} sent again what was sent: {again}")
        rows = Counter(row.group for row in attempt.rows)
        queues: defaultdict[str, list[int]] = defaultdict(list)
        for group, count in rows.items():
            queues[group.rpartition("\n")[0]].append(count)
        most = sum(-(-len(counts) // MAX_ENTRIES) * (max(counts) + 1) for counts in queues.values())
        most = min(len(attempt.rows), most)
        self._payloads.audit_cost(name)
        # Rows come one by one where their bodies go to S3 first.
        is_sure = attempt.parts == 1 and attempt.options.payload_location is None
        if is_sure and self.max_call_bytes == 1 << 20 and attempt.calls > most:
            self.violate(f"cost: {name} took {attempt.calls} calls for {dict(rows)}")

    def committing(self, attempts: Sequence[SinkAttempt], batch: int) -> None:
        """Spark is told by all tasks that they have succeeded."""
        objects = Counter(name for attempt in attempts for name in attempt.kept)
        if twice := [name for name, count in objects.items() if count > 1]:
            self.violate(f"one place: {twice} are each kept for the rows of two tasks")
        for attempt in attempts:
            book = self._books[attempt.folder]
            lost = [row.key for row in attempt.rows if row.key not in book.accepted and row.key not in book.kept]
            if lost:
                self.violate(f"no loss: batch {batch} is committed, and {lost} are neither sent nor kept")
            if self.is_calm and self._has_journal and attempt.rows:
                names = self._world.store.under(f"{attempt.folder}/{_place(attempt)}-")
                pieces = len({row.group for row in attempt.rows}) if self.is_cut else 1
                if not 1 <= len(names) <= (1 + attempt.calls // self.merge_at) * pieces:
                    self.violate(f"bounded: {attempt.process.name} has left {names}")
        self._newest = max(self._newest, batch)

    def _left_out(self, attempt: SinkAttempt) -> int:
        """Return the number of rows behind a sent equal one in their partition: with a journal, they are not sent."""
        return len(attempt.rows) - len(attempt.kept) - len(attempt.sent_keys()) if self._has_journal else 0

    def compared(self, attempts: Sequence[SinkAttempt], overlap: Overlap, line: str, *, is_refused: bool) -> None:
        """The driver has compared what the tasks that have succeeded tell, and the log has its line, or the error."""
        partitions: defaultdict[str, set[int]] = defaultdict(set)
        for attempt in attempts:
            for row in attempt.rows:
                partitions[row.group].add(attempt.place.partition)
        shared = {group for group, places in partitions.items() if len(places) > 1}
        if overlap.groups > len(shared) or (overlap.are_compared and overlap.groups < len(shared)):
            self.violate(f"order: {shared} stand in several partitions, and the driver tells of {overlap.groups}")
        if overlap.groups and not any(f"{shown(group)} in partitions" in line for group in shared):
            self.violate(f"order: {shared} stand in several partitions, and the driver says: {line}")
        is_certain = overlap.are_compared and not shared
        if bool(line) is is_certain:
            self.violate(f"order: {shared} stand in several partitions, and the driver says {line!r}")
        if is_refused is not (bool(line) and self._world.sink_options.on_disorder == "fail"):
            self.violate(f"order: {shared} stand in several partitions, and the write ends well: {not is_refused}")
        sent = [each.sent for each in attempts if each.sent is not None]
        equal = overlap.equal + sum(each.counts.equal for each in sent) - sum(map(self._left_out, attempts))
        messages = set[str]().union(*(each.told_ids for each in attempts))
        repeated = sum(each.answered for each in attempts) - len(messages)
        if equal < repeated and all(each.summary.message_ids.is_complete for each in sent):
            self.violate(f"end: the driver tells of {equal} equal rows, and {repeated} were no messages of their own")
        if equal > sum(each.repeats for each in attempts):
            self.violate(f"end: the driver tells of {equal} equal rows, and not so many were equal to others")

    # When all is over

    def audit_journal(self, oldest_kept: int) -> None:
        """Nothing is left of older micro-batches, or of batch writes that began before."""
        names = self._world.store.under("sent/")
        numbers = {name: int(name.split("/")[2].partition("-")[0]) for name in names}
        left = [name for name, number in numbers.items() if number < oldest_kept]
        if left:
            self.violate(f"bounded: left of what is forgotten: {left}")
        marks = self._world.store.under("over/")
        if len(marks) > 2:
            self.violate(f"bounded: more than two marks are left: {marks}")


def _place(attempt: SinkAttempt) -> str:
    """Return how the names of objects begin in which it records what it has sent."""
    return f"{attempt.draft.run}-{attempt.place.partition:05d}"


def _key(entry: Entry) -> Key:
    return entry["MessageGroupId"], entry.get("MessageDeduplicationId", entry["MessageBody"])


def _kept_key(line: Mapping[str, Any]) -> tuple[Key, str]:
    """Return what row a line is of, and its body."""
    row = line["row"]
    group = group_of_line(row["messageGroupId"], row.get("queueUrl"))
    body, told = row["body"], row["messageDeduplicationId"]
    return (group, body if told is None else told), body


def _digests(data: bytes) -> list[bytes]:
    return list(split(data))


def _bytes(entry: Entry) -> int:
    attributes = entry.get("MessageAttributes", {})
    size = len(entry["MessageBody"].encode())
    return size + sum(len(name) + len("".join(value.values())) for name, value in attributes.items())


def _earlier(attempt: SinkAttempt, key: Key) -> tuple[list[Key], Key | None]:
    """Return the rows of the group before the first one of this key, and the first of them that is flawed, if any."""
    found: dict[Key, None] = {}
    flawed: Key | None = None
    for row in attempt.rows:
        if row.group == key[0]:
            if row.key == key:
                break
            if row.flaw and not attempt.leaves_out(row, found):
                flawed = flawed or row.key
            found[row.key] = None
    return list(found), flawed


def _places(attempt: SinkAttempt, key: Key) -> Iterator[set[Key]]:
    """Yield what may stand before a row of this key, for each place in its group where the attempt may send one.

    With a journal the first row that is good stands for all that are equal; without one each stands for itself.
    """
    found: set[Key] = set()
    for row in attempt.rows:
        if row.group == key[0]:
            if row.key == key and row.flaw != "empty":
                yield set(found)
                if not row.flaw and attempt.options.journal_location is not None:
                    return
            found.add(row.key)
