"""The laws of a task's end, of a micro-batch's and of the journal when all is over."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from sqs_fifo_spark.errors import (
    BatchForgottenError,
    DisorderError,
    JournalUnavailableError,
    PayloadError,
    RowError,
    SqsFifoError,
    TransientQueueError,
)
from sqs_fifo_spark.sink.recorder import DISORDER
from sqs_fifo_spark.sink.summary import Overlap
from tests.simulation.sink_book import Book, place_of
from tests.simulation.sink_history import SinkHistory
from tests.simulation.sink_queues import group_alone, shown
from tests.simulation.sink_rows import Key
from tests.simulation.sink_tasks import SinkAttempt
from tests.simulation.sink_waits import LONGEST_PAUSE_S, MOMENTS_S
from tests.simulation.sink_world import Panic

REMEMBERED_WRITE_S = 7 * 86_400
"""Seconds for which a batch write is remembered, from its beginning."""
SHORTEST_TRY_S = 15
"""For how long a row is tried at least: 30 s, if the look was as old as it may be, less what is too short for another
pause, of 5 s of its own and one that all share, of 7.5 s."""
MAX_ENTRIES = 10
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


class EndLaws(SinkHistory):
    """Judges each end."""

    def ended(self, attempt: SinkAttempt, threads: Sequence[str]) -> None:
        """A task has returned or raised."""
        name, book = attempt.process.name, self._books[attempt.folder]
        writers = [each for each in threads if each in self._payloads.away or self._has_just_written(each)]
        threads = [each for each in threads if each not in writers]
        attempt.ended_at = self._hub.now()
        attempt.was_held_up = attempt.error is not None and self.waits.is_held_up(attempt)
        self._audit_disorder(attempt, book)
        # Another call may have failed before, so that nothing is waited for after its limit, a look neither.
        may_abandon = attempt.error is not None and self.waits.is_held_up(attempt, self.waits.looks)
        if not may_abandon:
            attempt.writers_left = frozenset(writers)
        if threads and not may_abandon:
            self.violate(f"end: {name} is over, and {threads} are not")
        # Who has failed may have waited for its rows first; who ends well has noticed that nothing was too late.
        self._audit_hold_up(attempt, self.waits.pauses, self.waits.upstream if attempt.error is not None else {})
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

    def _has_just_written(self, thread: str) -> bool:
        """Return whether the last step of a thread was a write to S3, for which its task does not wait."""
        return "the body of" in next((event for _, who, event in reversed(self._world.trace) if who == thread), "")

    def _audit_refused(self, attempt: SinkAttempt, book: Book) -> None:
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
    def _overtook(attempt: SinkAttempt, book: Book) -> list[Key]:
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

    def _audit_disorder(self, attempt: SinkAttempt, book: Book) -> None:
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
        own = place_of(attempt)
        # A put that is under way still is one that was tried: it may be held up for longer than the attempt waits.
        putting = self._are_putting.intersection(each.name for each in self._hub.threads_of(attempt.process))
        is_under_way = any(DISORDER in self._putting[name] for name in putting)
        could_not = DISORDER in attempt.could_not_record or is_under_way
        if (told or fails_itself) and own not in book.out_of_order and not could_not:
            self.violate(f"order: {attempt.process.name} knows of {told}, and has not recorded that it is out of order")

    def _audit_record(self, attempt: SinkAttempt, book: Book) -> None:
        """Require that sent rows that a task knows are recorded when it fails, or were tried to the end."""
        name, ended_at = attempt.process.name, attempt.ended_at
        left = [key for key in attempt.confirmed if attempt.digests[key] not in book.recorded]
        untried = [key for key in left if attempt.digests[key] not in attempt.could_not_record]
        if untried:
            self.violate(f"once: {name} fails, and {untried} are sent and not recorded")
        for key in left:
            failed_at = max(attempt.could_not_record.get(attempt.digests[key], [ended_at]))
            if self.waits.untried_s(attempt.process, failed_at, ended_at) > MOMENTS_S - LONGEST_PAUSE_S:
                self.violate(f"once: {name} fails, and has not tried to the end to record {key}")

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
        if not attempt.asked and not self.waits.stood_still_s(attempt.process, attempt.launched_at):
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
        is_early = tried_s < SHORTEST_TRY_S and not self.waits.stood_still_s(attempt.process, attempt.launched_at)
        if isinstance(error, TransientQueueError) and is_early and not is_too_late:
            self.violate(f"progress: {name} tries for {tried_s:.0f} s: {text}")

    def _audit_cost(self, attempt: SinkAttempt, book: Book) -> None:
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
                names = self._world.store.under(f"{attempt.folder}/{place_of(attempt)}-")
                pieces = len({row.group for row in attempt.rows}) if self.is_cut else 1
                if not 1 <= len(names) <= (1 + attempt.calls // self.merge_at) * pieces:
                    self.violate(f"bounded: {attempt.process.name} has left {names}")
        self._newest = max(self._newest, batch)

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
