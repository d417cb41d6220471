"""The source as it is, with points in it at which a process can be held, and now and then a slow task.

Nothing is decided here: each point stands before or after a call of the package that is made all the same.
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sqs_fifo_spark.datasource import SqsFifoDataSource
from sqs_fifo_spark.options import parse_source_options, queue_key
from sqs_fifo_spark.retry import PendingCall
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.driver.driver import Driver
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.ledger import Ledger
from sqs_fifo_spark.source.plan import PartitionPlan
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.reader import SqsFifoPartition, SqsFifoStreamReader
from sqs_fifo_spark.source.segment import Segment
from tests.crash.traps import Traps
from tests.helpers import wait_until

HOME_VARIABLE = "SQSFIFO_CRASH_HOME"
"""Names the directory of the run, in the environment of driver and executors."""
SLOW = 0.15
"""The share of first attempts that are slow, unless there is a copy before."""
SLOW_S = 3.0


class TrappedReader(SqsFifoStreamReader):
    """The reader with points around its methods."""

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        _install()
        offset = super().latestOffset(start, limit)
        if offset != start:
            _traps().reach("announced")
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        _install()
        if start != end:
            _traps().reach("offset-logged")
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        _install()
        _slow.begins(partition)
        yield from super().read(partition)
        _slow.passed()


class TrappedSource(SqsFifoDataSource):
    """`format("trapped")`, registered for one session."""

    @classmethod
    def name(cls) -> str:
        return "trapped"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = parse_source_options(self.options)
        return TrappedReader(options, schema, given=dict(self.options) if options.has_many_queues else None)


class _Slow:
    """Makes some first attempts wait, before or after they seal, until a speculative copy has read the partition."""

    def __init__(self) -> None:
        self._name = ""

    def begins(self, partition: InputPartition) -> None:
        """Have this be the task's partition from now on."""
        of_queue = cast("SqsFifoPartition", partition)
        plan: PartitionPlan = of_queue.value
        self._name = f"{queue_key(of_queue.url)}-" if of_queue.url else ""
        self._name += f"{plan.epoch}/{plan.partition}"

    def stall(self, moment: str) -> None:
        context = TaskContext.get()
        if not self._name or context is None or context.attemptNumber():
            return
        dice = random.Random(self._name)
        if dice.random() >= SLOW or dice.choice(("before", "after")) != moment:
            return
        copied = self._copied()
        try:
            wait_until(copied.exists, SLOW_S, "a copy has read the partition")
        except AssertionError:
            return  # Spark made none, and need not

    def passed(self) -> None:
        context = TaskContext.get()
        if self._name and context is not None and context.attemptNumber():
            self._copied().touch()

    def _copied(self) -> Path:
        return _home() / "traps" / f"copied-{self._name.replace('/', '-')}"


_slow = _Slow()


def _home() -> Path:
    return Path(os.environ[HOME_VARIABLE])


@functools.cache
def _traps() -> Traps:
    return Traps(_home() / "traps")


@functools.cache
def _install() -> None:
    """Put the points into this process's copy of the package, once."""
    settling: list[int] = []
    seal, put_ledger = Journal.seal, Journal.put_ledger
    begin_batch: Callable[..., PendingCall[list[Outcome]]] = Queue._begin_batch
    commit = Driver.commit

    def trapped_seal(journal: Journal, segment: Segment, claim: int, **given: Any) -> Segment:
        if segment.head.receipts:
            _traps().reach("received")
        _slow.stall("before")
        sealed = seal(journal, segment, claim, **given)
        if sealed.head.receipts:
            _traps().reach("sealed")
        _slow.stall("after")
        return sealed

    def trapped_batch(queue: Queue, operation: str, *arguments: Any, **named: Any) -> PendingCall[list[Outcome]]:
        begun = begin_batch(queue, operation, *arguments, **named)
        ask = begun._ask

        def trapped_ask() -> list[Outcome]:
            outcomes = ask()
            if operation == "delete_message_batch":
                _traps().reach("deleting" if settling else "task-deleted")
            return outcomes

        begun._ask = trapped_ask
        return begun

    def trapped_put_ledger(journal: Journal, ledger: Ledger) -> None:
        _traps().reach("deleted")
        put_ledger(journal, ledger)
        _traps().reach("recorded")

    def trapped_commit(driver: Driver, end: Any, **given: Any) -> None:
        settling.append(1)
        try:
            commit(driver, end, **given)
        finally:
            settling.pop()

    for owner, name, trapped in (
        (Journal, "seal", trapped_seal),
        (Journal, "put_ledger", trapped_put_ledger),
        (Queue, "_begin_batch", trapped_batch),
        (Driver, "commit", trapped_commit),
    ):
        setattr(owner, name, trapped)
