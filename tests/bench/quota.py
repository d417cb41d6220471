"""Many tasks of the sink at once, and one queue with SQS's quota: failed attempts, and the share of it that is used.

    python -m tests.bench.quota                                   100 tasks, 300 calls/s, 60 s
    python -m tests.bench.quota --calls-per-second 100 --seconds 600
    python -m tests.bench.quota --beside ../main                  another checkout too, on a queue of its own

No Spark: each task is a sender with a queue of its own and 8 threads, as in an executor, and never lacks rows, in 200
groups. Tasks that fail begin anew. The local queue takes one core for some hundred calls a second, those that it
throttles included: on a small machine, ask for fewer.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import SqsFifoError, TransientQueueError
from sqs_fifo_spark.options import parse_sink_options
from sqs_fifo_spark.sink import sender as senders
from sqs_fifo_spark.sink.lanes import Stride
from sqs_fifo_spark.sink.message import RowForm, outgoing
from sqs_fifo_spark.sink.queue import SinkQueue
from sqs_fifo_spark.sink.record import NoRecord

HERE = Path(__file__).resolve().parents[2]
GROUPS = 200
WARM_UP_S = 10.0
"""What is counted begins so much later: a bucket of one second, and all tasks at once, stand at the beginning."""
STARTS_IN_S = 8.0


class _Counting(SinkQueue):
    """Counts its calls by how they end, from a time on."""

    counts: ClassVar[Counter[str]] = Counter()
    lock = threading.Lock()
    since = until = 0.0

    def _call_once(self, *given: Any) -> Mapping[str, Any]:
        outcome = "answered"
        try:
            return super()._call_once(*given)
        except BaseException as error:
            is_throttled = isinstance(error, TransientQueueError) and error.is_throttling
            outcome = "throttled" if is_throttled else type(error).__name__
            raise
        finally:
            if self.since <= time.time() < self.until:
                with self.lock:
                    self.counts[outcome] += 1


def _task(name: str, url: str, endpoint_url: str, counts: Counter[str]) -> None:
    options = parse_sink_options({"queueUrl": url, "endpointUrl": endpoint_url, "region": "us-east-1"})
    form, first = RowForm(None, True, 1 << 20), 1
    while time.time() < _Counting.until:
        sender = senders.Sender(
            _Counting(options, SYSTEM_CLOCK), NoRecord(SYSTEM_CLOCK), SYSTEM_CLOCK, Stride.of(options)
        )
        try:
            while time.time() < _Counting.until:
                numbers = range(first, first + GROUPS)
                columns = [
                    (f"{name}/{number}", f"{name}/{number % GROUPS}", f"{name}/{number}", None, None)
                    for number in numbers
                ]
                sender.add(outgoing(list(zip(*columns, strict=True)), form, first_row=first))
                first += GROUPS
        except SqsFifoError:
            counts["failed attempts"] += 1
            traceback.print_exc()
        finally:
            sender.stop()


def _work(given: argparse.Namespace) -> None:
    """Run a share of the tasks in this process, and print what became of their calls."""
    senders.MAX_BUFFERED_BYTES = 3 * GROUPS * 1_000  # rows that wait are the next ones: more of them show nothing
    _Counting.since, _Counting.until = given.start + WARM_UP_S, given.start + WARM_UP_S + given.seconds
    counts = _Counting.counts
    time.sleep(max(0.0, given.start - time.time()))
    names = [f"{given.work}-{number}" for number in range(given.tasks)]
    threads = [threading.Thread(target=_task, args=(name, given.url, given.endpoint, counts)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(counts))


def _run(given: argparse.Namespace, checkouts: list[Path]) -> None:
    from tests.bench.queue_process import LOCAL_QUEUE, started  # which another checkout may not have

    keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
    with ExitStack() as stack:
        running = []
        queue = [*LOCAL_QUEUE, "--queue", "quota.fifo", "--calls-per-second", str(given.calls_per_second)]
        endpoints = [stack.enter_context(started(queue, cwd=HERE))[0] for _ in checkouts]
        start = time.time() + STARTS_IN_S
        for checkout, endpoint in zip(checkouts, endpoints, strict=True):
            for number in range(given.processes):
                tasks = given.tasks // given.processes + (number < given.tasks % given.processes)
                task = {
                    "work": f"p{number}",
                    "tasks": tasks,
                    "start": start,
                    "seconds": given.seconds,
                    "endpoint": endpoint,
                    "url": f"{endpoint}/000000000000/quota.fifo",
                }
                command = [sys.executable, __file__, *(f"--{name}={value}" for name, value in task.items())]
                environment = {**os.environ, **keys, "PYTHONPATH": str(checkout)}
                worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=checkout)
                running.append((checkout, stack.enter_context(worker)))
        counts = {checkout: Counter[str]() for checkout in checkouts}
        for checkout, worker in running:
            counts[checkout].update(json.loads(worker.communicate()[0]))
    for checkout, counted in counts.items():
        share = counted["answered"] / (given.calls_per_second * given.seconds)
        print(f"{checkout}: {given.tasks} tasks, {given.calls_per_second} calls/s, {given.seconds:g} s")
        print(
            f"    {counted.pop('failed attempts', 0)} failed attempts, {share:.3f} of the quota; calls: {dict(counted)}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.quota", description=__doc__)
    parser.add_argument("--tasks", type=int, default=100, help="how many run at once")
    parser.add_argument("--processes", type=int, default=4, help="which they share")
    parser.add_argument("--calls-per-second", type=int, default=300, help="the queue's quota")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long calls are counted")
    parser.add_argument(
        "--beside", type=Path, action="append", default=[], help="another checkout, run at the same time"
    )
    for name in ("--work", "--url", "--endpoint"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--start", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        _work(given)
    else:
        _run(given, [HERE, *(each.resolve() for each in given.beside)])


if __name__ == "__main__":
    main()
