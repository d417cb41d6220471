"""The sink's laws, audited from the histories of queue and journal: as things happen, and when all is over."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqs_fifo_spark.sink.digests import split
from sqs_fifo_spark.sink.marks import parse_name
from sqs_fifo_spark.sink.recorder import DISORDER
from tests.simulation.hub import Hub, Process
from tests.simulation.sink_book import Book, kept_key, key_of, places_before, rows_before, size_of
from tests.simulation.sink_ends import MAX_ENTRIES, EndLaws
from tests.simulation.sink_rows import Key
from tests.simulation.sink_tasks import SinkAttempt
from tests.simulation.sink_waits import LONGEST_PAUSE_S, MOMENTS_S, Spans
from tests.simulation.sink_world import Entry, SinkWorld

REMEMBERED_S = 300
"""Seconds for which SQS knows a sent row."""
TRIED_S = 100
"""For how long a row may be tried, from the look at the journal, or without a journal from its first try."""
CONNECT_S = 5
"""Seconds after the last moment of a try in which its bytes may leave."""
LONG_PAUSE_S = 60
"""For how long somebody stands still who is excused for what is doubled."""
LONGEST_CALL_S = 15
"""Seconds of a call before the client gives it up: its effect comes earlier, or the process stood still."""
MOST_LISTS = 20
"""Lists of sent rows that a thread may make until it has rows to send, or fails."""


class SinkLaws(EndLaws):
    """The laws of the sink. It hears of each effect from the start."""

    def __init__(self, world: SinkWorld, hub: Hub, **given: Any) -> None:
        super().__init__(world, hub, **given)
        self._groups: dict[tuple[str, int], str] = {}
        """The group of each message, by the queue, if rows name theirs, and the sequence number."""
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
        self.waits.add(self.waits.pauses, process, seconds)

    def takes(self, seconds: float, *, is_look: bool = False) -> None:
        """Note that the running task's call of queue or store takes so long."""
        self._keep(self.waits.looks if is_look else self.waits.calls, seconds)

    def writes(self, seconds: float) -> None:
        """Note that a thread of the running task writes to S3 for so long."""
        self._keep(self.waits.writes, seconds)

    def pauses(self) -> None:
        """Note that the running task's call of queue or store fails, so that it waits before it tries that again."""
        self._keep(self.waits.retries, LONGEST_PAUSE_S)

    def upstream(self, seconds: float) -> None:
        """The task that runs asks for its next rows, and waits for them so long."""
        attempt = self._current()
        assert attempt is not None
        self._audit_end(attempt, "asks for its next rows")
        self._audit_hold_up(attempt, self.waits.pauses)
        self._keep(self.waits.upstream, seconds)

    @contextmanager
    def looking_at_queue(self) -> Iterator[None]:
        """The task that runs asks a queue for its settings before it takes the next row: it waits as for its rows."""
        attempt = self._current()
        assert attempt is not None
        self._audit_end(attempt, "looks at a queue")
        self._audit_hold_up(attempt, self.waits.pauses)
        spans = self.waits.upstream.setdefault(attempt.process, [])
        at, began_at = len(spans), self._hub.now()
        spans.append((began_at, math.inf))
        try:
            yield
        finally:
            spans[at] = began_at, self._hub.now()

    def _keep(self, spans: Spans, seconds: float) -> None:
        attempt = self._current()
        if attempt is not None:
            self.waits.add(spans, attempt.process, seconds)

    def _called(self, entries: Sequence[Entry]) -> None:
        attempt, now = self._current(), self._hub.now()
        assert attempt is not None
        size = sum(map(size_of, entries))
        entries = self._payloads.resolved(entries, is_sent=True)
        keys = [key_of(entry) for entry in entries]
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
            if not any(set(before) <= earlier for earlier in places_before(attempt, key)):
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

    def _audit_end(self, attempt: SinkAttempt, what: str) -> None:
        """Nothing is sent any more by a task that is over, or that has met what fails it."""
        if attempt.is_over:
            self.violate(f"end: {attempt.process.name} is over, and {what}")
        doomed_at = attempt.doomed_at
        if doomed_at is not None and self._hub.now() > doomed_at + self.waits.stood_still_s(attempt.process, doomed_at):
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
        since = (
            attempt.lists[-1][1] if attempt.lists else min(attempt.in_doubt_since[key_of(entry)] for entry in entries)
        )
        late_s = self._hub.now() - since - TRIED_S - CONNECT_S
        if late_s > 0:
            self.violate(f"once: a call of {attempt.process.name} leaves it {late_s:.0f} s too late")
        self._audit_end(attempt, "a call leaves it")
        attempt.calls_began_at[self._hub.current_name] = self._hub.now()

    def _accepted(self, entry: Entry, number: int, is_new: bool) -> None:
        self._now += 1
        attempt = self._current()
        assert attempt is not None
        key, book = key_of(entry), self._books[attempt.folder]
        earlier, flawed = rows_before(attempt, key)
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

    def _is_one_place(self, attempt: SinkAttempt, key: Key, book: Book, looked_at: int) -> bool:
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
        key, body = kept_key(line)
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

    def _audit_copy(self, attempt: SinkAttempt, key: Key, book: Book) -> None:
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
            or self.waits.stood_still_s(each.process, book.accepted_at[key, id(each)]) >= LONG_PAUSE_S
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
        awaits_rows = self.waits.covered_s(process, now - MOMENTS_S, now + MOMENTS_S, self.waits.upstream) > 0
        if attempt.error is None and not awaits_rows:
            return False
        if key not in attempt.confirmed:
            return True
        failed_at = attempt.could_not_record.get(attempt.digests[key])
        if failed_at is None:
            return attempt.was_held_up or (awaits_rows and self.waits.is_held_up(attempt))
        until = min(looked_at, attempt.ended_at)
        return (
            self.waits.untried_s(process, max((at for at in failed_at if at <= until), default=until), until)
            <= MOMENTS_S
        )

    def _audit_delay(self, attempt: SinkAttempt, key: Key, forgotten_at: float) -> None:
        """Require that a task that begins in time comes in time, unless something keeps it."""
        began_at = attempt.launched_at
        kept_s = self.waits.covered_s(attempt.process, began_at, forgotten_at, *self.waits.all, self.waits.writes)
        if began_at + kept_s + MOMENTS_S < forgotten_at:
            self.violate(
                f"once: {key} is doubled by {attempt.process.name}, which began {forgotten_at - began_at:.0f} s before "
                f"it was forgotten, and was kept for {kept_s:.0f} s"
            )

    def _answered(self, entries: Sequence[Entry], answer: Mapping[str, Any]) -> None:
        attempt = self._current()
        assert attempt is not None
        sent = {each["Id"] for each in answer["Successful"]}
        sent_keys = {key_of(entry) for entry in entries if entry["Id"] in sent}
        has_two = attempt.unanswered.pop(self._hub.current_name)
        attempt.is_shaken |= has_two and len(sent) < len(entries)
        attempt.answered += len(sent)
        before = dict(attempt.tried_at)
        for each in answer["Successful"]:
            attempt.equal += each["MessageId"] in attempt.told_ids
            attempt.told_ids.add(each["MessageId"])
        for entry in entries:
            if entry["Id"] in sent:
                attempt.tried_at.pop(key_of(entry), None)
                attempt.confirmed.add(key_of(entry))
        for entry in entries:
            if entry["Id"] not in sent and key_of(entry) in before:  # one of several equal rows
                attempt.tried_at.setdefault(key_of(entry), before[key_of(entry)])
        for key in sent_keys:
            attempt.in_doubt_since.pop(key, None)
        throttled = {each["Id"] for each in answer["Failed"] if "Throttl" in each["Code"]}
        self._without_effect({key_of(entry) for entry in entries if entry["Id"] in throttled} - sent_keys)
        attempt.last_events[self._hub.current_name] = self._now
        if refused := {each["Id"] for each in answer["Failed"] if each["SenderFault"]}:
            self._refused_rows([key_of(entry) for entry in entries if entry["Id"] in refused])

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
        digests = list(split(data))
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
            if DISORDER in list(split(data)):
                book.out_of_order.setdefault(parse_name(name).place, self._now)
            for digest in list(split(data)):
                book.recorded.setdefault(digest, self._now)
                book.recorded_in[digest].setdefault(parse_name(name).place, self._now)
                book.recorded_at.setdefault(digest, self._hub.now())
            if attempt is not None:
                attempt.recorded.update(list(split(data)))

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
