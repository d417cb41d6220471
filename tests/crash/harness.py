"""One run: a query under traffic, killed again and again as a plan says, drained, and audited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TypeVar

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.journal.location import open_store
from sqs_fifo_spark.local import Faults, LocalQueueServer
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.segment import decode
from tests.crash.application import Application, brief, is_our_own
from tests.crash.audit import Audit, audit
from tests.crash.cluster import Cluster
from tests.crash.lake import Delta, Iceberg
from tests.crash.plan import ANY_TIME, DRIVER, EXECUTOR, KINDS, READER, Kill, Road, kills
from tests.crash.processes import Process, look
from tests.crash.sinks import ParquetSink, PostgresTables, Sink
from tests.crash.traffic import Traffic
from tests.crash.traps import Traps
from tests.helpers import journal_epochs, wait_until
from tests.links.proxy import Link, Trouble

LONG_S = 180.0
"""A deadline for what takes seconds on a quiet machine."""
VISIBILITY_S = 10
PADDING = 16_000
"""Characters added to a body, at most, where messages go over a link, so that transfers take a while."""
_WATCH_S = 0.001
_PATIENCE_S = 5.0

T = TypeVar("T")


@dataclass(frozen=True)
class Result:
    """A run, and its end."""

    audit: Audit
    asked: int
    killed: Counter[str]
    problems: list[str] = field(default_factory=list)
    """Violations that do not stand in the audit: of the journal, of replays, of the query's own words."""

    @property
    def is_clean(self) -> bool:
        return self.audit.is_clean and self.killed.total() >= self.asked and not self.problems

    def __str__(self) -> str:
        by_kind = ", ".join(f"{kind} {self.killed[kind]}" for kind in KINDS)
        lines = [f"{self.audit}  kills {self.killed.total()} ({by_kind})"]
        if self.killed.total() < self.asked:
            lines.append(f"only {self.killed.total()} of {self.asked} kills took effect")
        return "\n".join([*lines, *(f"VIOLATION: {problem}" for problem in self.problems)])


@dataclass
class Run:
    """A query into one sink, on `cluster`. Everything it leaves is in `home`."""

    cluster: Cluster
    home: Path
    _: KW_ONLY
    sink: str
    delete_after: str
    address: str
    count: int
    seed: int
    say: Callable[[str], None]
    road: Road | None = None

    def __post_init__(self) -> None:
        self._began_at = SYSTEM_CLOCK.monotonic()
        self.home.mkdir(parents=True)
        self._traps = Traps(self.home / "traps")
        self._sink = self._open_sink()
        self._killed: Counter[str] = Counter()

    def __call__(self) -> Result:
        """Run to the end and return the result. Raises AssertionError when the query does not go on any more."""
        with (
            LocalQueueServer(seed=self.seed) as self._server,
            Link(seed=self.seed) as self._link,
            Traffic(
                self._server, f"{self._sink.name}.fifo", seed=self.seed, padding=PADDING if self.road else 0
            ) as self._traffic,
        ):
            settings = {
                "master": self.cluster.url,
                "sink": self._sink.name,
                "address": self.address,
                "source": {
                    "queueUrl": self._link.front(self._traffic.url) if self.road else self._traffic.url,
                    "journalLocation": str(self.home / "journal"),
                    "visibilityTimeoutSeconds": str(VISIBILITY_S),
                    "waitTimeSeconds": "1",
                    "numPartitions": "4",
                    "maxFetchSeconds": "1",
                    "deleteAfter": self.delete_after,
                },
            }
            self._application = Application(self.cluster, self.home, settings, self._say)
            try:
                self._wait(lambda: self._application.last_commit() >= 1, "the query has committed a micro-batch")
                for number, kill in enumerate(kills(self.count, self._sink.name, self.delete_after, self.seed), 1):
                    self._drop_answers(kill, number)
                    self._change_link(number)
                    if not kill.is_hasty:
                        self._progress()
                    self._kill(kill, number)
                self._drain()
            finally:
                self._application.stop()
            return self._judge()

    def _open_sink(self) -> Sink:
        if self.sink == PostgresTables.name:
            return PostgresTables(self.address)
        return {each.name: each for each in (ParquetSink, Delta, Iceberg)}[self.sink](self.home)

    # Killing

    def _kill(self, kill: Kill, number: int) -> None:
        """Kill as planned, and say so. A kill that cannot be made is not counted."""
        try:
            if kill.point == ANY_TIME:
                SYSTEM_CLOCK.sleep(kill.after_s)
                ended = self._wait(lambda: self._end(kill.kind, None), f"a {kill.kind} dies")
            elif kill.point == "sink-committed" and self._sink.name == "parquet":
                ended = self._wait(self._end_after_sink, "the driver dies between the sink's commit and Spark's")
            else:
                ended = self._wait(lambda: self._end_at(kill), f"a {kill.kind} dies at the point {kill.point}")
        except AssertionError as error:
            self._say(f"kill {number}/{self.count}  {kill.kind}  {kill.point}  had no effect: {error}")
            return
        self._killed[kill.kind] += 1
        haste = ", hastily" if kill.is_hasty else ""
        pids = " and ".join(str(process.pid) for process in ended)
        self._say(f"kill {number}/{self.count}  {kill.kind} {pids}  {kill.point}{haste}")

    def _end(self, kind: str, held: int | None) -> list[Process]:
        """Kill the processes of this kind, and return them, or nothing unless they all ran until then."""
        doomed = self._targets(kind, held)
        killed = [process.kill() for process in doomed]
        return doomed if all(killed) else []

    def _end_at(self, kill: Kill) -> list[Process]:
        """Kill while a process is held at the point. Return nothing if that one ends before."""
        trap = self._traps.arm(kill.point)
        try:
            held = look(self._wait(trap.held, f"a process comes to the point {kill.point}") or 0)
            if held is None:
                return []
            ended: list[Process] = []

            def is_over() -> bool:
                ended.extend(self._end(kill.kind, held.pid))
                return bool(ended) or not held.is_running

            self._wait(is_over, f"there is a {kill.kind}")
            return ended
        finally:
            trap.release()

    def _targets(self, kind: str, held: int | None) -> list[Process]:
        """Return the processes to kill, those that are held first choice; none while there are not any."""
        if kind == DRIVER:
            return self._application.driver()
        if kind == READER:
            reader = self._application.reader()
            return [reader] if reader else []
        executor = self.cluster.executor_of(held) if held else None
        if kind == EXECUTOR:
            found = [executor] if executor else self.cluster.executors()
        else:
            found = [each for each in self.cluster.python_workers() if held is None or each.pid == held]
        return found[-1:]

    def _end_after_sink(self) -> list[Process]:
        """Kill the driver while it stands between the file sink's commit of a micro-batch and Spark's.

        The JVM cannot be held at a point, so it is stopped as soon as the sink's log shows the micro-batch. If Spark
        has committed it by then, it goes on, and nothing is returned.
        """
        batch_id = self._application.last_written() + 1
        jvm = next(iter(self._application.driver()), None)
        if jvm is None:
            return []
        try:
            wait_until(lambda: self._application.has_written(batch_id), _PATIENCE_S, "a commit", pause_s=_WATCH_S)
        except AssertionError:
            return []  # the application may have to be started again first
        jvm.freeze()
        if self._application.has_committed(batch_id):
            jvm.thaw()
            return []
        return self._end(DRIVER, None)

    # Keeping going

    def _wait(self, condition: Callable[[], T], what: str, timeout_s: float = LONG_S) -> T:
        def attempt() -> T:
            self._keep_running()
            return condition()

        return wait_until(attempt, timeout_s, what)

    def _keep_running(self) -> None:
        self._traffic.check()
        self._application.keep_running()

    def _progress(self) -> None:
        """Wait until the query has committed another micro-batch than those that are under way."""
        before = self._application.last_commit()
        self._wait(lambda: self._application.last_commit() > before + 1, "the query goes on")

    def _drop_answers(self, kill: Kill, number: int) -> None:
        if kill.dropped != self._server.faults.drop_answer:
            self._say(f"the queue drops {kill.dropped:.0%} of its answers after their effect")
            self._server.faults = Faults(seed=self.seed + number, drop_answer=kill.dropped)

    def _change_link(self, number: int) -> None:
        if self.road is not None:
            bytes_per_s, trouble = self.road.before_kill(number, self.seed)
            self._link.up.bytes_per_s = self._link.down.bytes_per_s = bytes_per_s
            self._link.troubles = {"": trouble}
            self._say(f"the link carries {bytes_per_s / 1_000:,.0f} KB/s, {trouble}")

    def _drain(self) -> None:
        self._server.faults = Faults()
        self._link.troubles = {"": Trouble(delay_s=self.road.delay_s)} if self.road else {}
        self._traffic.stop()
        self._say(f"all is sent ({self._traffic.resent:,} of it twice); the query drains the queue")
        # Twice what bodies of PADDING / 2 take, if all of them are left.
        carries_s = len(self._traffic.sent) * PADDING / self.road.bytes_per_s if self.road else 0.0
        self._wait(self._is_drained, "all is in the sink, and what is settled is dropped", LONG_S + carries_s)

    def _is_drained(self) -> bool:
        # What a commit settles it drops while the query goes on, so a query that ends then leaves some of it.
        try:
            return self._traffic.depth() == (0, 0) and not self._held_by_journal() and not self._journal_problems()
        except FileNotFoundError:
            return False  # the query drops objects at this moment: look again

    def _held_by_journal(self) -> bool:
        """Return True if the journal holds a message: where tasks delete, perhaps the only copy."""
        objects = [path for path in journal_epochs(self.home / "journal") if not self._is_late(path)]
        return any(decode(path.read_bytes(), path.name).head.receipts for path in objects)

    def _is_late(self, path: Path) -> bool:
        """Return True if a task put this into an epoch settled by then. It goes with the next commit or start."""
        folder = self.home / "journal"
        ledger = folder / max(FileStore(folder).list("ledger"))
        is_settled = int(path.parent.name) <= int(ledger.stem.partition("-")[2])
        # The last that was done to both files was to link them to their names.
        return is_settled and path.stat().st_ctime_ns >= ledger.stat().st_ctime_ns

    # Judging

    def _judge(self) -> Result:
        found = audit(
            self._traffic.sent,
            self._sink.rows(),
            self._traffic.deleted_at,
            self._application.commits(),
            tasks_delete=self.delete_after == "journal",
        )
        problems = [*self._journal_problems(), *self._query_problems()]
        if changed := self._sink.changed():
            problems.append(f"{changed} micro-batches had other rows when they were read again")
        if self._traffic.depth() != (0, 0):
            problems.append(f"the queue holds {self._traffic.depth()} (visible, in flight)")
        self._say(f"speculative copies {self._application.speculative_copies()}")
        if self.road is not None:
            self._say(f"requests over the link {self._link.requests.total():,}, {dict(self._link.griefs)}")
        result = Result(found, self.count, self._killed, problems)
        for line in str(result).splitlines():
            self._say(line)
        return result

    def _journal_problems(self) -> list[str]:
        """Say what stands in the journal and should not: what a commit has left of settled epochs, and any message."""
        folder = self.home / "journal"
        journal = Journal(open_store(str(folder)), "")
        ledger = journal.ledger()
        problems = []
        for path in sorted(journal_epochs(folder)):
            name = str(path.relative_to(folder))
            if int(path.parent.name) <= ledger.epoch and name not in ledger.carried and not self._is_late(path):
                problems.append(f"the journal still holds {name}, and has settled epoch {ledger.epoch}")
        if ledger.carried:
            problems.append(f"the ledger of a drained queue carries messages in {sorted(ledger.carried)}")
        return problems

    def _query_problems(self) -> list[str]:
        """Say which failures of the query were the source's own: no kill is a reason for one."""
        said = [brief(failure) for failure in self._application.failures()]
        return [f"the query failed: {line}" for line in said if is_our_own(line)]

    def _say(self, line: str) -> None:
        self.say(
            f"{self._sink.name:>8} {self.delete_after:>7}  {SYSTEM_CLOCK.monotonic() - self._began_at:7.1f} s  {line}"
        )
