"""Spark's order of calls around a sink: runs of a query or of batch writes, whose tasks are processes of their own."""

from __future__ import annotations

import math
import pickle
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqs_fifo_spark.errors import DisorderError, SqsFifoError
from sqs_fifo_spark.options import SinkOptions
from sqs_fifo_spark.sink.sink_queue import SinkQueue
from sqs_fifo_spark.sink.summary import compare, finding
from sqs_fifo_spark.sink.write import Draft, Place, Sent, SinkPlan, draft, finish_write, plan_for_tasks, send_partition
from tests.simulation.hub import Crash, Hub, Process
from tests.simulation.sink_rows import Key, Partition, SinkRow
from tests.simulation.spark import ConcurrentUpdateError
from tests.simulation.tasks import MAX_FAILURES, TaskFailedError

if TYPE_CHECKING:
    from tests.simulation.sink_schedule import SinkSchedule

QUERY = "q1"
WORKER_LIVES_S = 30
"""Seconds by which a worker's process outlives its task: late effects of it would be seen."""
ABANDONED_LIVE_S = 600
"""Seconds for which it may live longer while threads are left in it: it ends when Spark closes its connection."""


@dataclass
class MicroBatch:
    """The checkpoint's plan under one batch id. A function in `foreachBatch` may write it in several parts."""

    rows: list[SinkRow]
    writes: int
    version: int = 0
    """Rises when the source gives other rows."""

    def parts(self) -> list[list[SinkRow]]:
        groups = sorted({row.group for row in self.rows})
        part = {group: index % self.writes for index, group in enumerate(groups)}
        return [[row for row in self.rows if part[row.group] == index] for index in range(self.writes)]


@dataclass
class SinkCheckpoint:
    """A query's logs: micro-batches that are planned, and those that are committed, all but the last one perhaps."""

    planned: list[MicroBatch] = field(default_factory=list)
    committed: int = 0


class SinkAttempt:
    """One attempt of a task, in a process of its own, and what its history tells of it."""

    def __init__(
        self, draft: Draft, plan: SinkPlan | Draft | SqsFifoError, place: Place, rows: Partition, version: int
    ) -> None:
        self.draft = draft
        self.plan = plan
        self.place = place
        self.rows = rows
        self.version = version
        self.process: Process
        self.is_over = False
        self.is_known_to_spark = False
        """True if Spark has seen that it is over."""
        self.sent: Sent | None = None
        self.error: BaseException | None = None
        # What is seen from outside
        self.digests: dict[Key, bytes] = {}
        self.lists: list[tuple[int, float]] = []
        """Beginnings of its lists of sent rows: as numbers of the history, and as times."""
        self.looks: list[tuple[int, float]] = []
        """For each list, when the one before it began: it takes two to miss nothing that was merged meanwhile."""
        self.idle_lists: Counter[str] = Counter()
        """Lists of each thread since it last sent something."""
        self.kept_looked_at = -1
        """Number of the history at which it looked for refused rows that earlier attempts have kept."""
        self.refused_at = -math.inf
        """Time at which SQS last refused a row for good: then the queue is asked for the reason."""
        self.kept: dict[str, Key] = {}
        """Refused rows that it has kept, by their objects' names."""
        self.keeps_began_at: list[float] = []
        """Times at which it began to keep a refused row, or to find the owner of an object."""
        self.calling: dict[str, list[Key]] = {}
        """The rows of the last call of each thread."""
        self.recorded: set[bytes] = set()
        """Digests that it has made durable."""
        self.launched_at = 0.0
        self.looked_at: list[float] = []
        """Times at which it asked for each list of sent rows: the list may begin later."""
        self.writers_left: frozenset[str] = frozenset()
        """Threads that wrote to S3 when it ended, where it waits for all others."""
        self.was_held_up = False
        """True if something of it was too late when it failed."""
        self.asked = 0
        """Number of its calls, to queue and journal."""
        self.panicked = False
        self.could_not_write = False
        """True if a body that goes to S3 could not be written."""
        self.could_not_record: defaultdict[bytes, list[float]] = defaultdict(list)
        """Times at which puts of its sent rows have failed, by the row's digest."""
        self.ended_at = math.inf
        """Time at which it has returned or raised."""
        self.late_puts: Counter[tuple[str, frozenset[bytes]]] = Counter()
        """Puts of the same rows that a thread has begun since."""
        self.tidying: list[str] = []
        """Beginnings of errors that only say that it could not tidy up."""
        self.last_events: dict[str, int] = {}
        """The number of the last event of each thread."""
        self.parts = 0
        """Number of pieces of its rows that it has begun."""
        self.tried_at: dict[Key, float] = {}
        """Time at which it first tried a row that it does not know to be sent."""
        self.in_doubt_since: dict[Key, float] = {}
        """Time at which it first tried a row that may be sent: no answer said so, nor that SQS throttled the try."""
        self.fresh: dict[str, list[Key]] = {}
        """Rows in the call of each thread that were not in doubt before."""
        self.confirmed: set[Key] = set()
        """Rows that SQS has confirmed to it."""
        self.calls_began_at: dict[str, float] = {}
        """Beginning of the call of each thread."""
        self.calls = 0
        self.entries = 0
        self.answered = 0
        """Rows that it was told are sent."""
        self.told_ids: set[str] = set()
        """Ids of messages that it was told."""
        self.equal = 0
        """Number of ids that it got again, for another row."""
        self.ahead: defaultdict[Key, set[Key]] = defaultdict(set)
        """Rows before a row, of its group, in a call."""
        self.overtook: dict[Key, set[Key]] = {}
        """Rows that the queue has added in calls of its own before earlier ones of theirs, and those."""
        self.numbers: dict[Key, int] = {}
        """The sequence number of the message that the queue last took a row for, in a call of its own."""
        self.unanswered: dict[str, bool] = {}
        """True for a thread whose call has no answer yet and has two rows of a group."""
        self.is_shaken = False
        """True if such a call had no answer, or one that does not say of all rows that they are sent."""
        self.repeats = 0
        """Number of rows that the queue took for ones that it had."""
        self.doomed_at: float | None = None
        """Time at which it met an error that fails a task at once."""

    def known_look(self, thread: str) -> int:
        """Return the number of the last look that the thread must know of: the first, or one before its last event."""
        last = self.last_events.get(thread, -1)
        return max((number for number, _ in self.looks if number <= last), default=self.looks[0][0])

    def known_look_at(self, thread: str) -> float:
        """Return the time of that look."""
        return dict(self.looks)[self.known_look(thread)]

    @property
    def options(self) -> SinkOptions:
        return self.draft.options

    @property
    def keeps(self) -> bool:
        """True if refused rows are kept."""
        return self.options.bad_records_path is not None or self.options.bad_records_queue_url is not None

    def sent_keys(self) -> list[Key]:
        """Return of which rows, equal ones taken for one, it has not kept all: it has sent them, or knows them."""
        rows, kept = Counter(row.key for row in self.rows), Counter(self.kept.values())
        return list(rows - kept)

    def leaves_out(self, row: SinkRow, before: Collection[Key]) -> bool:
        """Return True if it takes a row for one of those before, which it has sent: a refused one is no message."""
        return row.flaw != "empty" and row.key in before and self.options.journal_location is not None

    def refused_rows(self, kept: Collection[Key] = ()) -> list[SinkRow]:
        """Return the rows that an attempt refuses that finds these `kept`: them and the flawed, and what they hold."""
        held: set[str] = set()
        sent: set[Key] = set()
        found = []
        for row in self.rows:
            if self.leaves_out(row, sent):
                continue
            if not row.flaw and row.key not in kept and row.group not in held:
                sent.add(row.key)
            else:
                found.append(row)
                if self.options.bad_records_group == "hold":
                    held.add(row.group)
        return found

    @property
    def folder(self) -> str:
        """The journal's folder of its sent rows."""
        if self.place.query is None:
            return f"sent/batch-writes/{self.draft.began_ms}-{self.draft.run}"
        return f"sent/{self.place.query}/{self.place.batch:020d}"

    def run(self, schedule: SinkSchedule) -> None:
        """Do what Spark's worker does."""
        world, hub = schedule.world, schedule.hub
        try:
            sent = send_partition(
                pickle.loads(pickle.dumps(self.plan)),
                schedule.slowly(schedule.traffic.arrow(self.rows)),
                self.place,
                queue=SinkQueue(self.draft.options, hub),
                open_journal=lambda: world.store if schedule.has_journal else None,
                open_bad_records=schedule.open_bad_records,
                write_payload=schedule.payloads.write if schedule.payloads.are_used else None,
                clock=hub,
            )
            _require_alive(hub)
            self.sent = sent
        except Crash:
            raise
        except BaseException as error:
            self.error = error
        self.is_over = True
        schedule.laws.ended(self, [thread.name for thread in hub.threads_of(self.process)[1:]])
        if self.error is not None:
            schedule.wait_for_rows()  # Spark looks for what a task has to say when it has given it more
        self.is_known_to_spark = True
        hub.sleep(WORKER_LIVES_S)
        self._wait_for_threads(schedule)

    def _wait_for_threads(self, schedule: SinkSchedule) -> None:
        """Wait for the threads that are left, for a time that does not pass while the process stands still."""
        hub, began_at = schedule.hub, schedule.hub.now()
        while len(hub.threads_of(self.process)) > 1:
            until = began_at + ABANDONED_LIVE_S + schedule.laws.waits.stood_still_s(self.process, began_at)
            if hub.now() >= until:
                schedule.laws.left_behind(self, [thread.name for thread in hub.threads_of(self.process)[1:]])
                return
            hub.wait_until(lambda: len(hub.threads_of(self.process)) == 1, until - hub.now())


class SinkRun:
    """One run of a query, from what the checkpoint says; or, without a query, of batch writes one after the other."""

    def __init__(self, schedule: SinkSchedule, checkpoint: SinkCheckpoint, *, until: int) -> None:
        self._schedule = schedule
        self._checkpoint = checkpoint
        self._until = until

    def run(self) -> None:
        checkpoint, schedule = self._checkpoint, self._schedule
        for batch in range(checkpoint.committed, self._until):
            if batch > len(checkpoint.planned):
                raise ConcurrentUpdateError(f"batch {batch} cannot be planned")
            if batch == len(checkpoint.planned):
                checkpoint.planned.append(schedule.new_micro_batch())
            schedule.world.step(f"-- batch {batch} is planned")
            micro_batch = checkpoint.planned[batch]
            for part in micro_batch.parts():
                self._write(batch, part, micro_batch.version)
            schedule.world.step(f"-- batch {batch} is written")
            if checkpoint.committed != batch:
                raise ConcurrentUpdateError(f"batch {batch} is committed already")
            checkpoint.committed += 1

    def _write(self, batch: int, rows: Sequence[SinkRow], version: int) -> None:
        schedule = self._schedule
        world, hub = schedule.world, schedule.hub
        store = world.store if schedule.has_journal else None
        queue = SinkQueue(world.sink_options, hub)
        given = draft(world.sink_options, by_column=schedule.by_column, clock=hub)
        plan = plan_for_tasks(
            given, queue=queue, open_journal=lambda: store, open_bad_records=schedule.open_bad_records
        )
        partitions = schedule.traffic.partitioned(rows)
        query = None if schedule.is_batch_write else QUERY
        attempts = [
            SinkAttempt(given, plan, Place(index, query, None if query is None else batch), partition, version)
            for index, partition in enumerate(partitions)
        ]
        schedule.laws.dealt(attempts)
        winners = self._run_tasks(attempts)
        world.step(f"-- the tasks of batch {batch} are done")
        schedule.laws.committing(winners, batch)
        sent = [each.sent for each in winners if each.sent is not None]
        overlap = compare([(each.place.partition, each.summary) for each in sent])
        try:
            line, is_refused = finding(overlap, f"batch {batch}", world.sink_options), False
        except DisorderError as error:
            line, is_refused = str(error), True
        schedule.laws.compared(winners, overlap, line, is_refused=is_refused)
        if is_refused:
            raise DisorderError(line)
        try:
            finish_write(lambda: store, sent, hub)
            _require_alive(hub)
        except Exception as error:
            schedule.laws.violate(f"cost: all rows of batch {batch} are sent, and its write fails: {error}")
            raise

    def _run_tasks(self, attempts: list[SinkAttempt]) -> list[SinkAttempt]:
        """Run tasks in slots, each again until it succeeds, and return those that did; one may be a copy."""
        schedule = self._schedule
        slots = schedule.rng.randint(1, 3)
        done: dict[int, SinkAttempt] = {}
        failures: Counter[int] = Counter()
        pending, running = list(attempts), list[SinkAttempt]()
        while pending or running:
            while pending and len(running) < slots:
                running.append(schedule.launch(pending.pop(0)))
            schedule.hub.wait_until(lambda: any(_has_ended(attempt) for attempt in running))  # noqa: B023
            over = [attempt for attempt in running if _has_ended(attempt)]
            running = [attempt for attempt in running if attempt not in over]
            for attempt in over:
                index = attempt.place.partition
                if attempt.sent is not None:
                    done[index] = attempt
                    schedule.end_copies(attempt)
                    continue
                failures[index] += 1
                if failures[index] == MAX_FAILURES:
                    raise TaskFailedError(f"partition {index}: {attempt.error or 'killed'}")
                pending.append(schedule.again(attempt))
        return [done[index] for index in sorted(done)]


def _require_alive(hub: Hub) -> None:
    """End here who is killed where a panic would be survived."""
    if not hub.current_process.is_alive:
        raise Crash


def _has_ended(attempt: SinkAttempt) -> bool:
    return attempt.is_known_to_spark or not attempt.process.is_alive
