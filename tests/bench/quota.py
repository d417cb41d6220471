"""Many tasks of the sink at once, and one queue with SQS's quota: failed attempts, and the share of it that is used.

    python -m tests.bench.quota                                   100 tasks, 300 calls/s, 60 s
    python -m tests.bench.quota --seconds 600 --beside ../main    and then another checkout, any one that has a sink
    python -m tests.bench.quota --tasks 8 --processes 1 --calls-per-second 8

No Spark: each task is a thread that writes one partition after the other with the sink's own writer, as an executor
does, and begins anew when that fails. The local queue takes a good part of a core for some hundred calls a second,
those that it throttles included: on a small machine, ask for fewer if the share is low and the cores are busy.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

HERE = Path(__file__).resolve().parents[2]
GROUPS = 200
ROWS = 15 * GROUPS
"""In a partition."""
WARM_UP_S = 20.0
"""Seconds before the count begins: imports, and a whole bucket for all tasks at once, stand at the beginning."""


class _TaskContext:
    """The context of the task that this thread plays: Spark's stands for a whole process."""

    current: ClassVar[threading.local] = threading.local()

    @classmethod
    def get(cls) -> _TaskContext:
        return cls()

    def partitionId(self) -> int:
        partition: int = self.current.partition
        return partition

    def attemptNumber(self) -> int:
        return 0

    def getLocalProperty(self, key: str) -> None:
        return None


def _rows(name: str) -> Iterator[pa.RecordBatch]:
    for start in range(0, ROWS, GROUPS):
        numbers = range(start, start + GROUPS)
        ids = [f"{name}/{number}" for number in numbers]
        groups = [f"{name}/{number % GROUPS}" for number in numbers]
        yield pa.RecordBatch.from_pydict({"body": ids, "messageGroupId": groups, "messageDeduplicationId": ids})


def _task(first: int, step: int, pickled: bytes) -> None:
    partition = first
    while True:
        _TaskContext.current.partition = partition
        try:
            pickle.loads(pickled).write(_rows(str(partition)))
        except Exception as error:
            print("failed", type(error).__name__, flush=True)
        else:
            partition += step


def _work(given: argparse.Namespace) -> None:
    """Run a share of the tasks in this process, which is ended from outside; print a line for each that fails."""
    from pyspark.sql.types import StringType, StructType

    from sqs_fifo_spark.datasource import SqsFifoDataSource
    from sqs_fifo_spark.sink import writer

    vars(writer)["TaskContext"] = _TaskContext
    schema = StructType()
    for column in ("body", "messageGroupId", "messageDeduplicationId"):
        schema.add(column, StringType())
    options = {"queueUrl": given.url, "endpointUrl": given.endpoint, "region": "us-east-1"}
    pickled = pickle.dumps(SqsFifoDataSource(options).writer(schema, False))
    for number in range(given.work, given.tasks, given.processes):
        threading.Thread(target=_task, args=(number, given.tasks, pickled)).start()


def _run(given: argparse.Namespace, checkout: Path) -> None:
    """Measure one checkout's sink, on a queue of its own, and print what came of it."""
    from sqs_fifo_spark.local import LocalQueueServer
    from sqs_fifo_spark.local.faults import Faults
    from sqs_fifo_spark.local.requests import RequestLog, RequestRecord

    class Outcomes(RequestLog):
        """Counts the calls that send by what became of them, from the moment on that it is cleared."""

        def __init__(self) -> None:
            super().__init__()
            self.outcomes: Counter[str] = Counter()

        def add(self, record: RequestRecord) -> None:
            if record.action == "SendMessageBatch":
                self.outcomes[record.outcome] += 1

    faults = Faults(calls_per_second=given.calls_per_second)
    with LocalQueueServer(queues=["quota.fifo"], faults=faults) as server, ExitStack() as stack:
        server.requests = counted = Outcomes()
        command = [sys.executable, __file__, "--endpoint", server.endpoint_url, "--url", server.queue_url("quota.fifo")]
        command += ["--tasks", str(given.tasks), "--processes", str(given.processes)]
        environment = {
            **os.environ,
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "PYTHONPATH": str(checkout),
        }
        workers = [
            stack.enter_context(
                subprocess.Popen(
                    [*command, "--work", str(number)], stdout=subprocess.PIPE, text=True, env=environment, cwd=checkout
                )
            )
            for number in range(given.processes)
        ]
        try:
            time.sleep(WARM_UP_S)
            before, began = Counter(counted.outcomes), time.monotonic()
            time.sleep(given.seconds)
            calls, took_s = counted.outcomes - before, time.monotonic() - began
        finally:
            for worker in workers:
                worker.kill()
        failed = [line for worker in workers for line in (worker.stdout or ()) if line.startswith("failed")]
    share = calls["ok"] / (given.calls_per_second * took_s)
    print(f"{checkout}: {given.tasks} tasks, {given.calls_per_second} calls/s, {took_s:.0f} s")
    print(f"    {len(failed)} failed attempts, {share:.3f} of the quota; calls: {dict(calls)}; {dict(Counter(failed))}")


def main() -> None:
    parser: Any = argparse.ArgumentParser(
        prog="python -m tests.bench.quota", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=100, help="how many run at once")
    parser.add_argument("--processes", type=int, default=4, help="which they share")
    parser.add_argument("--calls-per-second", type=int, default=300, help="the queue's quota")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long calls are counted")
    parser.add_argument("--beside", type=Path, action="append", default=[], help="another checkout, measured after it")
    for name in ("--url", "--endpoint"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work is not None:
        _work(given)
        return
    for checkout in [HERE, *(each.resolve() for each in given.beside)]:
        _run(given, checkout)


if __name__ == "__main__":
    main()
