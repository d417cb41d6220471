"""One schedule of the sink: what a seed makes of a queue, a query that writes to it, and all that goes wrong there."""

from __future__ import annotations

import random
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import pyarrow as pa

from sqs_fifo_spark.errors import JournalCorruptError, JournalMismatchError, SqsFifoError
from sqs_fifo_spark.options import SinkOptions, bad_records_queue
from sqs_fifo_spark.sink import outgoing as package
from sqs_fifo_spark.sink.crew import Crew
from sqs_fifo_spark.sink.deadlines import RowsUnderWay
from sqs_fifo_spark.sink.keepers import QueueKeeper
from sqs_fifo_spark.sink.outgoing import ROW_BYTES, OutgoingRow, RefusedRowError, RowForm
from sqs_fifo_spark.sink.record import SentRecord
from sqs_fifo_spark.sink.row_queues import RowQueues
from sqs_fifo_spark.sink.sink_queue import SinkQueue
from tests.simulation import sink_keepers
from tests.simulation.climate import CLEAR, STORE_FAULTS, Climate
from tests.simulation.hub import Hub, Process, StuckError, Thread, Threading
from tests.simulation.sink_keepers import URL, KeeperLaws, KeeperWorld
from tests.simulation.sink_laws import SinkLaws
from tests.simulation.sink_payloads import Payloads
from tests.simulation.sink_queues import OTHER, Queues, group_of_lane
from tests.simulation.sink_rows import Traffic
from tests.simulation.sink_tasks import QUERY, MicroBatch, SinkAttempt, SinkCheckpoint, SinkRun
from tests.simulation.sink_world import Panic, SinkWorld
from tests.simulation.spark import ConcurrentUpdateError
from tests.simulation.tasks import TaskFailedError
from tests.simulation.world import MemoryStore

CALLS_TAKE_S = (1, 5, 12)
CONNECTS_TAKE_S = (6, 30, 110, 250)
HANGS_S = (60, 130, 310)
"""Seconds for which the journal's store does not answer a call that is held up: also longer than SQS remembers an id.

A thread that is left behind puts its record once more: two such calls end within `ABANDONED_LIVE_S`.
"""
STALLS_S = (1, 5, 31, 70, 130, 200, 400)
GAPS_S = (5, 31, 200, 290, 310, 400, 3_600, 8 * 86_400)
"""Seconds for which a query is down."""
KEEPS_SHARE = 0.35
"""Of the schedules: refused rows are kept."""
MOST_TASKS = 4
"""Beyond which no copy is started."""
OUTAGES_S = (10, 60, 150, 200)
LONG_THROTTLES_S = (110, 250, 600)
"""Seconds for which SQS may throttle all calls: for longer than a row may be tried."""
MOST_OUTAGES = 2
NO_PUTS = "the store takes nothing"
"""An outage of the journal: it is full, say, or may only be read."""
MOST_ATTEMPTS = 20
"""Of a task, after which it is copied no more: copies that come faster than they end would take all turns, for ever."""
MOST_RUNS = 40
"""After so many, no rival is started any more: one comes for each that ends."""
LISTS_TAKE_S = (8, 12, 20, 36)
"""Seconds that each list takes where lists are slow."""
ROWS_TAKE_S = (5, 60, 400)
"""Seconds that the next Arrow batch takes at most where a task's rows come slowly."""
FAULTS = (
    *("refused", "throttled", "lost", "denied", "entry", "throttled entries", "unsaid", "panic"),
    *("slow", "slow connect", "slow put", "slow look"),
    *STORE_FAULTS,
)
CHAOS = {"copy of a task": 4, "kill a task": 3, "kill the query": 2, "stall": 3, "jump": 1, "outage": 2, "rival": 1}
HARMLESS = frozenset({"slow", "slow store"})


class SinkSchedule:
    """One history from a seed: `play` it, and `laws` tells what was violated, `world.told()` what happened."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = random.Random(seed)
        self.is_calm = rng.random() < 0.15
        self.climate = Climate.draw(rng, is_calm=self.is_calm, faults=FAULTS, chaos=CHAOS, harmless=HARMLESS)
        self.hub = Hub(rng)
        self.has_journal = rng.random() < 0.8
        self.by_column = rng.random() < 0.7
        self.is_batch_write = rng.random() < 0.15
        self.keeps = rng.random() < KEEPS_SHARE
        self.keeps_in_queue = self.keeps and random.Random(f"{seed}/keeper").random() < sink_keepers.QUEUE_SHARE
        self.payloads = Payloads(seed, is_calm=self.is_calm)
        self.queues = Queues(seed, is_calm=self.is_calm)
        self._writes = rng.choice((1, 1, 1, 2)) if not self.is_batch_write else 1
        self._limits = self._draw_limits(rng)
        self.world = self._make_world(rng)
        self.laws = self._make_laws()
        self._tell_of_payloads()
        self.laws.kept_batches = self._limits.get("sink.marks.KEPT_BATCHES", 100)
        self.laws.merge_at = self._limits.get("sink.record.MERGE_AT", 64)
        self.laws.is_cut = "sink.record.PIECE_BYTES" in self._limits
        self.laws.max_call_bytes = self._limits.get("sink.lanes.MAX_CALL_BYTES", 1 << 20)
        self._forgets_early = "sink.marks.KEPT_BATCHES" in self._limits
        most = rng.choice((2, 6) if self._forgets_early else (2, 6, 15, 40))
        scatter = rng.choice((0.05, 0.5)) if not self.is_calm and rng.random() < 0.15 else 0.0
        self.traffic = Traffic(
            rng,
            by_column=self.by_column,
            is_calm=self.is_calm,
            most=most,
            scatter=scatter,
            keeps=self.keeps,
            queues=self.queues,
        )
        self._checkpoint = SinkCheckpoint()
        self._attempts: dict[Process, SinkAttempt] = {}
        self._recent: list[SinkAttempt] = []
        self._launched: Counter[str] = Counter()
        self._runs = 0
        self._run: Thread | None = None
        self._outage = ("", 0.0)
        self._outages = 0
        self._lists_take_s = rng.choice(LISTS_TAKE_S) if not self.is_calm and rng.random() < 0.05 else 0
        self._lists_in_pieces = rng.random() < 0.3
        self._rows_take_s = rng.choice(ROWS_TAKE_S) if not self.is_calm and rng.random() < 0.15 else 0

    def _draw_limits(self, rng: random.Random) -> dict[str, int]:
        """Return the package's limits that this schedule makes smaller, so that they are met."""
        limits = {"sink.crew.THREADS": rng.choice((1, 2, 3, 8))}
        if rng.random() < 0.4:
            limits["sink.marks.KEPT_BATCHES"] = rng.choice((1, 2, 3))
            limits["sink.marks.FORGET_EVERY"] = rng.choice((1, 2))
        if rng.random() < 0.2:
            most = rng.choice((120, 300))
            if self.payloads.are_used:
                most = 300  # for a pointer
            limits["sink.lanes.MAX_CALL_BYTES"] = limits["sink.write.MAX_CALL_BYTES"] = most
        if rng.random() < 0.3:
            limits["sink.record.MERGE_AT"] = rng.choice((2, 3))
        if rng.random() < 0.3:
            limits["sink.record.PIECE_BYTES"] = 1
        if rng.random() < 0.3:
            limits["sink.record.WHOLE_BYTES"] = rng.choice((1, 100))
        if rng.random() < 0.2:
            limits["sink.sender.MAX_BUFFERED_BYTES"] = rng.choice((1, 5, 20)) * (ROW_BYTES + 10)
        if rng.random() < 0.2:
            limits["sink.write.MAX_PART_ROWS"] = rng.choice((1, 3, 10))
        if not self.is_calm and rng.random() < 0.1:
            limits["sink.summary.MOST"] = rng.choice((1, 2, 5))
        return limits

    def _draw_options(self, rng: random.Random) -> dict[str, str]:
        options = {}
        if rng.random() < 0.3:
            options["order"] = "batch"
        if self.has_journal:
            options["journalLocation"] = "/journal"
            if rng.random() < (0.4 if "order" in options else 0.2):
                options["onDisorder"] = "fail"
            if rng.random() < 0.3:
                options["maxUnrecordedRows"] = rng.choice(("1", "2", "5", "20"))
        if self.keeps:
            options |= {"badRecordsQueueUrl": URL} if self.keeps_in_queue else {"badRecordsPath": "/kept"}
            if "order" not in options:
                options["badRecordsGroup"] = rng.choice(("hold", "continue"))
            if rng.random() < 0.15:
                options["badRecordsMax"] = rng.choice(("1", "3"))
        return options

    def _make_world(self, rng: random.Random) -> SinkWorld:
        attributes = {}
        if not self.by_column:
            attributes["ContentBasedDeduplication"] = "true"
        if rng.random() < 0.4:
            attributes |= {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
        options = self._draw_options(rng) | self.payloads.options()
        world = (KeeperWorld if self.keeps_in_queue else SinkWorld)(self.seed, self.hub, attributes, options)
        if self.queues.are_used:
            world.create_queue(OTHER, **attributes)
        world.resolved = self.payloads.resolved
        world.actor = lambda: self.hub.current_name
        world.on_step = self._take_step
        world.fault = self._fault
        world.failing_entries = self._failing_entries
        world.connect = self._connect
        world.unsaid = self._leaves_unsaid
        world.throttles_entries = lambda: self._happens("throttled entries", 8)
        world.refuses_whole_calls = lambda: rng.random() < 0.5
        world.store.lies_about = self._lie
        world.store.fails = self._fails
        world.kept.lies_about = self._lie_of_kept
        world.kept.fails = self._fails
        world.store.is_in_pieces = lambda: self._lists_in_pieces and rng.random() < 0.5
        return world

    def _make_laws(self) -> SinkLaws:
        given: dict[str, Any] = {"has_journal": self.has_journal, "is_calm": self.is_calm, "payloads": self.payloads}
        if isinstance(self.world, KeeperWorld):
            return KeeperLaws(self.world, self.hub, **given)
        return SinkLaws(self.world, self.hub, **given)

    def open_bad_records(self) -> MemoryStore | SinkQueue | None:
        """Return where refused rows are kept."""
        refused = bad_records_queue(self.world.sink_options)
        if refused is not None:
            return SinkQueue(refused, self.hub)
        return self.world.kept if self.keeps else None

    def _tell_of_payloads(self) -> None:
        payloads = self.payloads
        payloads.step = self.world.step
        payloads.violate = self.laws.violate
        payloads.fail = self.laws.could_not_write
        payloads.take = self._write_for
        payloads.who = lambda: (self.hub.current_process.name if self.hub.current_name else "", self.hub.current_name)
        payloads.is_over = lambda: self._attempts[self.hub.current_process].is_over

    def _take_step(self, event: str) -> None:
        self.laws.stepped()
        self.laws.audit_step(event)
        self.payloads.audit_step(event)
        self.hub.step()

    # The faults of calls

    def _happens(self, kind: str, factor: float = 1.0) -> bool:
        probability = factor * self.climate.calls.get(kind, 0.0)
        return probability > 0 and self.rng.random() < probability

    def _slows(self, kind: str, *, is_look: bool = False) -> None:
        """Maybe let the thread wait for its call, no longer than a client does."""
        if self._happens(kind, 9 if self.is_calm else 3):
            self._take(self.rng.choice(CALLS_TAKE_S), is_look=is_look)

    def _take(self, seconds: float, *, is_look: bool = False) -> None:
        self.laws.takes(seconds, is_look=is_look)
        self.hub.sleep(seconds)

    def _write_for(self, seconds: float) -> None:
        self.laws.writes(seconds)
        self.hub.sleep(seconds)

    def _connect(self) -> None:
        if self._happens("slow connect"):
            self.laws.stepped()
            self._take(self.rng.choice(CONNECTS_TAKE_S))

    def _fault(self, action: str) -> str:
        self._slows("slow")
        # What AWS denies once it takes in the next moment: of a queue that a row names, that is no fact.
        kind = self._draw_fault(may_deny=not (self.queues.are_used and action == "GetQueueAttributes"))
        if kind:
            self.laws.pauses()
        return kind

    def _draw_fault(self, *, may_deny: bool) -> str:
        if (kind := self._out_of_order()) and kind != NO_PUTS:
            return kind
        if may_deny and self._happens("denied", 0.1):
            return "denied"
        return next((kind for kind in ("refused", "throttled", "lost") if self._happens(kind)), "")

    def _failing_entries(self, action: str) -> frozenset[int]:
        failing = frozenset(index for index in range(10) if self._happens("entry"))
        if failing:
            self.laws.pauses()
        return failing

    def _leaves_unsaid(self) -> bool:
        is_unsaid = self._happens("unsaid")
        if is_unsaid:
            self.laws.pauses()
        return is_unsaid

    def _lie(self, name: str) -> str:
        self._slows("slow store")
        if name.startswith("check/"):
            return ""
        if name.startswith("sent/") and self._happens("slow put", 0.5):
            self.world.note("the put is held up")
            self._take(self.rng.choice(HANGS_S))
        self._panics(0.5, "put")
        lie = next((kind for kind in ("refuse", "raise", "deny") if self._happens(kind, 0.4)), "")
        if self._out_of_order() == NO_PUTS:
            lie = "refuse"
        if lie:
            self.laws.pauses()
        if lie in ("refuse", "raise"):
            if self.laws.is_tidying():
                self.laws.could_not_tidy(name)
            else:
                self.laws.could_not_put()
                self.laws.doom()
        return lie

    def _lie_of_kept(self, name: str) -> str:
        self._slows("slow store", is_look=True)
        if name.startswith("check/"):
            return ""
        if self.laws.is_in_task() and self._happens("panic", 0.5):
            self.laws.panicked("keep")
            self.world.note("the store panics")
            raise Panic
        lie = next((kind for kind in ("refuse", "raise", "deny") if self._happens(kind, 0.4)), "")
        if self._out_of_order() == NO_PUTS:
            lie = "refuse"
        if lie in ("refuse", "raise"):
            self.laws.doom()
        return lie

    def _fails(self, call: str) -> bool:
        self._slows("slow store", is_look=True)
        if call == "list" and self._lists_take_s:
            self._take(self._lists_take_s, is_look=True)
        # Looks for a refused row that were held up one after the other would outlive a task that is over for too long.
        is_over = self.keeps_in_queue and self.laws.is_in_task() and self._attempts[self.hub.current_process].is_over
        if self.laws.is_in_task() and not is_over and self._happens("slow look", 0.2):
            self.world.note(f"the {call} is held up")
            self._take(self.rng.choice(HANGS_S), is_look=True)
        self._panics(0.1, call)
        fails = self._happens("fails", 1 if call == "drop" else 0.2)
        if fails and call != "drop":
            self.laws.doom()
        return fails

    def _panics(self, factor: float, call: str) -> None:
        """Maybe let the store's native code panic, in a task."""
        if self.laws.is_in_task() and self._happens("panic", factor):
            self.laws.panicked(call)
            self.world.note("the store panics")
            raise Panic

    # What happens around

    def _chaos(self) -> None:
        weights = self.climate.chaos
        if not any(weights.values()):
            return
        kind = self.rng.choices(list(weights), list(weights.values()))[0]
        actions: dict[str, Callable[[], None]] = {
            "copy of a task": self._copy_a_task,
            "kill a task": self._kill_task,
            "kill the query": self._kill_query,
            "stall": self._stall,
            "jump": self._jump,
            "outage": self._begin_outage,
            "rival": self._start_rival,
        }
        actions[kind]()

    def _processes(self, kind: str) -> list[Process]:
        return [process for process in self.hub.alive() if process.name.startswith(kind)]

    def _copy_a_task(self) -> None:
        """A speculative copy; or one more attempt of a task of earlier, which a scheduler of earlier still wants."""
        running = [self._attempts[process] for process in self._processes("task")]
        if len(running) > MOST_TASKS:
            return
        if running and self.rng.random() < 0.7:
            attempt = self.rng.choice(running)
        elif self._recent:
            attempt = self.rng.choice(self._recent[-20:])
        else:
            return
        if self._launched[_task(attempt)] < MOST_ATTEMPTS:
            self.launch(self.again(attempt))

    def _kill(self, process: Process) -> None:
        self.world.note(f"kill -9 of {process.name}")
        self.hub.kill(process)

    def _kill_task(self) -> None:
        tasks = self._processes("task")
        if tasks:
            self._kill(self.rng.choice(tasks))

    def _kill_query(self) -> None:
        if self._run is not None and not self._run.is_done:
            self._end_run(self._run.process)

    def _end_run(self, process: Process) -> None:
        """Kill a driver; executors may notice late."""
        self._kill(process)
        for task in self._processes("task"):
            if self.rng.random() < 0.5:
                self._kill(task)

    def _stall(self) -> None:
        process, pause_s = self.rng.choice(self.hub.alive() or [Process("nobody")]), self.rng.choice(STALLS_S)
        self.world.note(f"{process.name} stands still for {pause_s} s")
        self.laws.paused(process, pause_s)
        process.stalled_until = self.hub.now() + pause_s

    def _jump(self) -> None:
        pause_s = self.rng.choice(STALLS_S)
        self.world.note(f"everybody stands still for {pause_s} s")
        self.laws.paused(None, pause_s)
        self.hub.advance(pause_s)

    def _begin_outage(self) -> None:
        if self._outages == MOST_OUTAGES:
            return
        self._outages += 1
        kind = self.rng.choice(("refused", "throttled", "lost", NO_PUTS))
        pause_s = self.rng.choice(OUTAGES_S if kind != "throttled" else LONG_THROTTLES_S)
        self.world.note(f"for {pause_s} s all calls are {kind}" if kind != NO_PUTS else f"{kind} for {pause_s} s")
        self._outage = kind, self.hub.now() + pause_s

    def _out_of_order(self) -> str:
        kind, until = self._outage
        return kind if self.hub.now() < until else ""

    def _start_rival(self) -> None:
        """The cluster takes the driver for dead and starts it again; both go on, on one checkpoint."""
        if len(self._processes("query")) == 1 and self._runs < MOST_RUNS:
            self._start(self._checkpoint.committed + 1)

    # Processes of ours

    def slowly(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give a task its rows, perhaps after a while."""
        for batch in batches:
            yield batch
            self.wait_for_rows(self.laws.upstream)

    def wait_for_rows(self, on_wait: Callable[[float], None] = lambda seconds: None) -> None:
        if self._rows_take_s:
            wait_s = self.rng.uniform(0, self._rows_take_s)
            on_wait(wait_s)
            self.hub.sleep(wait_s)

    def new_micro_batch(self) -> MicroBatch:
        return MicroBatch(self.queues.deal(self.traffic.rows()), self._writes)

    def launch(self, attempt: SinkAttempt) -> SinkAttempt:
        """Start an attempt of a task in a process of its own."""
        key = _task(attempt)
        self._launched[key] += 1
        attempt.process = process = Process(f"task {key} #{self._launched[key]}")
        self._attempts[process] = attempt
        self._recent.append(attempt)
        self.laws.launched(attempt)
        self.hub.spawn(process, lambda: attempt.run(self))
        return attempt

    def again(self, attempt: SinkAttempt) -> SinkAttempt:
        """Return another attempt at the same task."""
        place = replace(attempt.place, attempt=self._launched[_task(attempt)])
        return SinkAttempt(attempt.draft, attempt.plan, place, attempt.rows, attempt.version)

    def end_copies(self, winner: SinkAttempt) -> None:
        """Spark kills the other attempts of a task that has succeeded; that may take its time."""
        task = winner.draft, winner.place.partition
        for process in self._processes("task"):
            attempt = self._attempts[process]
            is_copy = attempt is not winner and (attempt.draft, attempt.place.partition) == task
            if is_copy and not attempt.is_over and self.rng.random() < 0.5:
                self._kill(process)

    def _start(self, until: int) -> None:
        self._runs += 1
        process = Process(f"query {self._runs}")

        def run() -> None:
            try:
                SinkRun(self, self._checkpoint, until=until).run()
            except Exception as error:
                self._run_failed(process, error)

        self.world.note(f"{process.name} starts")
        self._run = self.hub.spawn(process, run)

    def _run_failed(self, process: Process, error: Exception) -> None:
        self.world.note(f"{process.name} failed: {type(error).__name__}: {error}")
        expected = (SqsFifoError, ConcurrentUpdateError, TaskFailedError)
        is_expected = isinstance(error, expected) and not isinstance(error, (JournalCorruptError, JournalMismatchError))
        if not is_expected:
            self.world.note("".join(traceback.format_exception(error)))
        if not is_expected or self.laws.is_calm:
            self.laws.violate(f"spoken errors: {process.name} ended with {type(error).__name__}: {error}")

    # The whole

    def play(self) -> None:
        """Let it happen, until all is audited or the first law is broken."""
        with self._in_place():
            try:
                self._play()
            except StuckError as error:
                self.laws.violate(f"progress: {error}")
            finally:
                self.hub.end()

    def _play(self) -> None:
        hub, rng = self.hub, self.rng
        hub.chaos = self._chaos
        hub.next_chaos = lambda: rng.randint(1, 2 * self.climate.steps_between)
        for _ in range(1 if self.is_calm else rng.randint(1, 4)):
            self._start(self._checkpoint.committed + rng.randint(1, 5 if self._forgets_early else 3))
            self._run_on()
            if self.laws.violations:
                return
            if self._run is not None and not self._run.is_done:
                self._end_run(self._run.process)
            self._between()
        self.world.note("-- the faults are over")
        self.climate, self._outage, self._lists_take_s, self._rows_take_s = CLEAR, ("", 0.0), 0, 0
        self.traffic.calm_down()
        self.payloads.calm_down()
        self.queues.calm_down()
        if not self.keeps:
            self._correct_rows()
        # The remedies that errors tell.
        self.world.sink_options = replace(self.world.sink_options, on_disorder="log", bad_records_max=1_000)
        self._finish()

    def _run_on(self) -> None:
        self.hub.run(lambda: bool(self.laws.violations) or self._run is None or self._run.is_done)

    def _between(self) -> None:
        """The query is down: time passes, what it reads changes, an older checkpoint is put back."""
        rng, checkpoint = self.rng, self._checkpoint
        if self.is_calm:
            return
        self.world.sink_options = self.payloads.others(self.world.sink_options)
        if rng.random() < 0.6:
            self._let_pass(rng.choice(GAPS_S))
        if rng.random() < (0.3 if self._forgets_early else 0.1) and checkpoint.committed:
            for process in self._processes("query"):
                self._end_run(process)
            checkpoint.committed = max(0, checkpoint.committed - rng.randint(1, 6))
            self.world.note(f"an older checkpoint is put back: batch {checkpoint.committed} is next")
        if rng.random() < (0.5 if self.keeps else 0.25) and self._may_change_rows():
            self._correct_rows()
            for batch, micro_batch in enumerate(checkpoint.planned[checkpoint.committed :], checkpoint.committed):
                if rng.random() < 0.5 and self._may_refuse_others(batch):
                    micro_batch.rows = self.queues.deal(self.traffic.others(micro_batch.rows))
                    micro_batch.version += 1

    def _may_change_rows(self) -> bool:
        """Return whether the source may give other rows: of another queue for refused ones once late tasks are over."""
        if not self.keeps_in_queue:
            return True
        if not self.has_journal:
            return False
        for process in self._processes("query"):
            self._end_run(process)
        self.hub.run(lambda: bool(self.laws.violations) or not self._processes("task"))
        self._recent.clear()
        return True

    def _may_refuse_others(self, batch: int) -> bool:
        """Return whether a row may be refused before those that were sent: then the journal has to know these."""
        if not isinstance(self.laws, KeeperLaws) or self.world.sink_options.bad_records_group != "hold":
            return True
        return self.laws.knows_all_sent(f"sent/{QUERY}/{batch:020d}")

    def _let_pass(self, seconds: float) -> None:
        """Leftovers of tasks go on meanwhile."""
        timer = self.hub.spawn(Process("time"), lambda: self.hub.sleep(seconds))
        self.hub.run(lambda: timer.is_done or bool(self.laws.violations))

    def _correct_rows(self) -> None:
        """Somebody mends or filters out what is refused."""
        for micro_batch in self._checkpoint.planned:
            if any(row.flaw for row in micro_batch.rows):
                micro_batch.rows = [row for row in micro_batch.rows if not row.flaw]
                micro_batch.version += 1

    def _finish(self) -> None:
        """Without faults all that is planned is written, and the journal holds what it should."""
        checkpoint, limits = self._checkpoint, self._limits
        kept, every = limits.get("sink.marks.KEPT_BATCHES", 100), limits.get("sink.marks.FORGET_EVERY", 20)
        self.hub.run(lambda: bool(self.laws.violations) or not self._processes("task") + self._processes("query"))
        if self.laws.violations:
            return
        forgotten = [int(name.rpartition("/")[2]) for name in self.world.store.under(f"over/{QUERY}/")]
        checkpoint.committed = max(checkpoint.committed, *(over + 1 for over in forgotten), 0)
        until = max(checkpoint.committed, len(checkpoint.planned)) + 1
        if kept < 100:
            until += kept + every + 1  # so that it forgets once more
        if self.is_batch_write:
            self.hub.advance(8 * 86_400)
            began_ms = int(self.hub.now() * 1000)
        self._start(until)
        self._run_on()
        if not self.laws.violations and checkpoint.committed != until:
            self.laws.violate(f"progress: without faults it ends at batch {checkpoint.committed}, not {until}")
        if self.laws.violations or not self.has_journal:
            return
        if self.is_batch_write:
            self.laws.audit_journal(began_ms)
        elif kept < 100:
            self.laws.audit_journal(until - kept - every)

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """Put the simulated parts where the real ones are, and take every random number from the seed."""
        dice = random.Random(f"{self.seed}/ids")
        random.seed(self.seed)  # tenacity's pauses

        def new_id() -> uuid.UUID:
            return uuid.UUID(int=dice.getrandbits(128), version=4)

        def outgoing(
            columns: Sequence[Sequence[Any]], form: RowForm | Iterable[RowForm], *, first_row: int
        ) -> list[OutgoingRow]:
            attempt = self._attempts[self.hub.current_process]
            attempt.parts += 1
            try:
                rows = package.outgoing(columns, form, first_row=first_row)
            except RefusedRowError:
                self.laws.doom()
                raise
            for row in (row for row in rows if not row.refusal):
                body = self.payloads.row(row, attempt.folder, by_column=self.by_column)
                told = row.entry["MessageDeduplicationId"] if self.by_column else body
                attempt.digests[group_of_lane(row.group), told] = row.digest
            return rows

        def look_at_queue(queues: RowQueues, key: str, options: SinkOptions) -> RowForm:
            with self.laws.looking_at_queue():
                return look(queues, key, options)

        def is_sent(record: SentRecord, digest: bytes) -> bool:
            self.hub.step()  # others may go on here
            return ask(record, digest)

        def merge(record: SentRecord, **given: int) -> None:
            self.laws.merging.add(name := self.hub.current_name)
            try:
                make_one(record, **given)
            finally:
                self.laws.merging.discard(name)

        def begin_call(crew: Crew, pending: RowsUnderWay) -> RowsUnderWay:
            if self.keeps_in_queue and pending.puts:  # its time is counted from here, before the lock is there
                self._attempts[self.hub.current_process].keeps_began_at.append(self.hub.now())
            return begin(crew, pending)

        begin, keep = Crew.begin, QueueKeeper.keep
        if isinstance(self.laws, KeeperLaws):
            keep = self.laws.keeping(keep)
        ask, make_one, look, away = SentRecord.is_sent, SentRecord._merge, RowQueues._looked_at, Crew.away
        patches = {
            "uuid.uuid4": new_id,
            "sqs_fifo_spark.sink.record.SentRecord.is_sent": is_sent,
            "sqs_fifo_spark.sink.record.SentRecord._merge": merge,
            "sqs_fifo_spark.sink.crew.threading": Threading(self.hub),
            "sqs_fifo_spark.sink.crew.Crew.begin": begin_call,
            "sqs_fifo_spark.sink.crew.Crew.away": lambda crew: self.payloads.going_away(away(crew)),
            "sqs_fifo_spark.sink.keepers.QueueKeeper.keep": keep,
            "sqs_fifo_spark.sink.record.threading": Threading(self.hub),
            "sqs_fifo_spark.aws.client.sqs_client": lambda *_: self.world.client,
            "sqs_fifo_spark.sink.write.outgoing": outgoing,
            "sqs_fifo_spark.sink.row_queues.RowQueues._looked_at": look_at_queue,
            **{f"sqs_fifo_spark.{name}": value for name, value in self._limits.items()},
        }
        with ExitStack() as stack:
            for name, value in patches.items():
                stack.enter_context(mock.patch(name, value))
            yield


def _task(attempt: SinkAttempt) -> str:
    return f"{'write' if attempt.place.batch is None else attempt.place.batch}/{attempt.place.partition}"
