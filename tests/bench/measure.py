"""Paired rounds, and what each run takes."""

from __future__ import annotations

import functools
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping

from tests.bench import processes
from tests.bench.model import Bench, Comparison, Job, Run
from tests.bench.payload_store import pointer_message

Way = Callable[[Bench, Job, "Window"], None]
"""Does the job, opens the window when it is ready to begin, and closes it when all is done."""
_FILLED = frozenset({"drain", "hot", "bodies", "delay", "backlog", "partitions", "s3", "payloads"})
WARM_MESSAGES = 50_000
"""As many as make the JVM compile what runs often: that is no part of what a message costs a query that runs on."""


class Window:
    """From the moment that a way begins until it is done: time, CPU, requests, and peaks of memory, into `run`."""

    def __init__(self, bench: Bench, run: Run, *, counts_java: bool) -> None:
        self.run = run
        self._queue = bench.queue
        # A way without Spark does not pay for the JVM that stands idle beside it.
        self._excluded = set(bench.uncounted) | (set() if counts_java else processes.java_pids())
        self._requests: Counter[str] = Counter()
        self._cpu_s = self._begun = 0.0

    def leave_out(self, pids: set[int]) -> None:
        """Do not count these processes, which live until the window is closed: the load, not what is measured."""
        self._excluded |= pids

    def open(self) -> None:
        processes.forget_peaks(self._excluded)
        self._requests = self._queue.counts()
        self._cpu_s = processes.cpu_s(self._excluded)
        self._begun = time.monotonic()

    def first(self, at: float) -> None:
        """Note when the first rows were there, by `time.monotonic()`."""
        self.run.first_s = at - self._begun

    def close(self, ended: float | None = None) -> None:
        """Note what was taken until `ended`, or now. The way's processes must still live, but for idle ones."""
        self.run.seconds = (ended or time.monotonic()) - self._begun
        self.run.cpu_s = processes.cpu_s(self._excluded) - self._cpu_s
        self.run.requests = dict(self._queue.counts() - self._requests)
        self.run.requests.pop("SendMessage", None)  # the pacer's
        self.run.peaks_mib = processes.peaks_mib(self._excluded)


def compare(bench: Bench, comparison: Comparison, ways: Mapping[str, Way], spark_ways: frozenset[str]) -> list[Run]:
    """Let the entrants take turns, round after round. What starts only once is warmed up before the first."""
    if any(entrant.way in spark_ways for entrant in comparison.entrants):
        bench.sessions.use(comparison.slots)
    for index, entrant in enumerate(comparison.entrants):
        if entrant.way in spark_ways and not bench.sessions.is_warm(entrant.name):
            _run(bench, comparison, index, -1, ways, spark_ways)
    return [
        _run(bench, comparison, index, number, ways, spark_ways)
        for number in range(comparison.rounds)
        for index in range(len(comparison.entrants))
    ]


def _run(
    bench: Bench,
    comparison: Comparison,
    index: int,
    number: int,
    ways: Mapping[str, Way],
    spark_ways: frozenset[str],
) -> Run:
    entrant = comparison.entrants[index]
    groups = entrant.groups or comparison.groups
    messages = comparison.messages if number >= 0 else min(comparison.messages, WARM_MESSAGES)
    url = bench.queue.create()
    job = Job(url, messages, groups, comparison.size, comparison.rate, entrant.options)
    run = Run(entrant.name, number, messages)
    if comparison.topic in _FILLED:
        pointing = functools.partial(pointer_message, size=comparison.size)
        is_pointing = entrant.way.endswith("-pointers")
        bench.queue.fill(url, messages, groups, comparison.size, pointing if is_pointing else None)
    bench.queue.delay(comparison.delay_s)
    try:
        ways[entrant.way](bench, job, Window(bench, run, counts_java=entrant.way in spark_ways))
    finally:
        bench.queue.delay(0)
    bench.queue.delete(url)
    what = f"round {number + 1}" if number >= 0 else "warm-up"
    print(
        f"{comparison.name:24} {what:8} {entrant.name:16} {run.seconds:7.2f} s  {run.per_second:8.0f}/s  "
        f"CPU {run.cpu_s:6.2f} s",
        file=sys.stderr,
        flush=True,
    )
    return run
