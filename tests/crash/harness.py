"""One run: a query under traffic, killed again and again as a plan says, drained, and audited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TypeVar

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.local import Faults, LocalQueueServer
from sqs_fifo_spark.options import queue_key
from tests.crash import journals
from tests.crash.application import Application, brief, is_our_own
from tests.crash.audit import Audit, Fate, audit_each
from tests.crash.cluster import Cluster
from tests.crash.lake import Delta, Iceberg
from tests.crash.plan import ANY_TIME, DRIVER, EXECUTOR, KINDS, READER, Kill, Road, kills
from tests.crash.processes import Process, look
from tests.crash.sinks import ParquetSink, PostgresTables, Sink
from tests.crash.traffic import PAUSE_S, Traffic
from tests.crash.traps import Traps
from tests.helpers import wait_until
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

    audits: Mapping[str, Audit]
    """By the URL of the queue; the only one has none."""
    asked: int
    killed: Counter[str]
    problems: list[str] = field(default_factory=list)
    """Violations that do not stand in the audit: of the journal, of replays, of the query's own words."""

    @property
    def is_clean(self) -> bool:
        is_clean = all(each.is_clean for each in self.audits.values())
        return is_clean and self.killed.total() >= self.asked and not self.problems

    def __str__(self) -> str:
        by_kind = ", ".join(f"{kind} {self.killed[kind]}" for kind in KINDS)
        lines = [f"{url}  {audit}".strip() for url, audit in self.audits.items()]
        lines[-1] += f"  kills {self.killed.total()} ({by_kind})"
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
    queues: int = 1
    """Of the one source."""

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
            ExitStack() as stack,
        ):
            self._traffic = self._begin_traffic(stack)
            settings = {
                "master": self.cluster.url,
                "sink": self._sink.name,
                "address": self.address,
                "source": {
                    **self._queue_options(),
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

    def _begin_traffic(self, stack: ExitStack) -> dict[str, Traffic]:
        """Send to each queue, until the stack is closed, and return its traffic by the URL that the source has.

        Group names are the same in each. Together they get as many messages as one queue would.
        """
        padding = PADDING if self.road else 0
        traffics = {}
        for number in range(1, self.queues + 1):
            name = f"{self._sink.name}-{number}.fifo" if self.queues > 1 else f"{self._sink.name}.fifo"
            pause_s = PAUSE_S * self.queues
            traffic = Traffic(self._server, name, seed=self.seed, padding=padding, pause_s=pause_s)
            url = self._link.front(traffic.url) if self.road else traffic.url
            traffics[url] = stack.enter_context(traffic)
        return traffics

    def _queue_options(self) -> dict[str, str]:
        return {"queueUrl" if self.queues == 1 else "queueUrls": ",".join(self._traffic)}

    @property
    def _journals(self) -> dict[str, Path]:
        """The journals' folders by the URLs of their queues; the only one has none."""
        home = self.home / "journal"
        return {"": home} if self.queues == 1 else {url: home / "queues" / queue_key(url) for url in self._traffic}

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
        for traffic in self._traffic.values():
            traffic.check()
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
        for traffic in self._traffic.values():
            traffic.stop()
        resent = sum(traffic.resent for traffic in self._traffic.values())
        self._say(f"all is sent ({resent:,} of it twice); the query drains the queue")
        # Twice what bodies of PADDING / 2 take, if all of them are left.
        sent = sum(len(traffic.sent) for traffic in self._traffic.values())
        carries_s = sent * PADDING / self.road.bytes_per_s if self.road else 0.0
        self._wait(self._is_drained, "all is in the sink, and what is settled is dropped", LONG_S + carries_s)

    def _is_drained(self) -> bool:
        # What a commit settles it drops while the query goes on, so a query that ends then leaves some of it.
        try:
            is_held = any(map(journals.holds_messages, self._journals.values()))
            return not self._queue_problems() and not is_held and not self._journal_problems()
        except FileNotFoundError:
            return False  # the query drops objects at this moment: look again

    # Judging

    def _judge(self) -> Result:
        found = audit_each(
            {
                url if self.queues > 1 else "": Fate(traffic.sent, traffic.deleted_at)
                for url, traffic in self._traffic.items()
            },
            self._sink.rows(),
            self._application.commits(),
            tasks_delete=self.delete_after == "journal",
        )
        problems = [*self._journal_problems(), *self._query_problems()]
        if changed := self._sink.changed():
            problems.append(f"{changed} micro-batches had other rows when they were read again")
        problems += self._queue_problems()
        self._say(f"speculative copies {self._application.speculative_copies()}")
        if self.road is not None:
            self._say(f"requests over the link {self._link.requests.total():,}, {dict(self._link.griefs)}")
        result = Result(found, self.count, self._killed, problems)
        for line in str(result).splitlines():
            self._say(line)
        return result

    def _queue_problems(self) -> list[str]:
        depths = {url: traffic.depth() for url, traffic in self._traffic.items()}
        return [f"the queue {url} holds {depth} (visible, in flight)" for url, depth in depths.items() if any(depth)]

    def _journal_problems(self) -> list[str]:
        return [
            f"{url}: {problem}" if url else problem
            for url, folder in self._journals.items()
            for problem in journals.problems(folder)
        ]

    def _query_problems(self) -> list[str]:
        """Say which failures of the query were the source's own: no kill is a reason for one."""
        said = [brief(failure) for failure in self._application.failures()]
        return [f"the query failed: {line}" for line in said if is_our_own(line)]

    def _say(self, line: str) -> None:
        self.say(
            f"{self._sink.name:>8} {self.delete_after:>7}  {SYSTEM_CLOCK.monotonic() - self._began_at:7.1f} s  {line}"
        )
