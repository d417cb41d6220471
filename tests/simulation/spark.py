"""Spark's own order of calls, for one run of a streaming query, and one attempt of a task."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, cast

from sqs_fifo_spark.payloads.buckets import Buckets
from sqs_fifo_spark.source.driver.driver import Driver
from sqs_fifo_spark.source.driver.startless import StartlessDriver
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.payload_deletes import PayloadDeletes
from sqs_fifo_spark.source.plan import PartitionPlan
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.task.partition import serve
from sqs_fifo_spark.source.task.payloads import Payloads
from tests.simulation.world import Checkpoint, Row, World


class ConcurrentUpdateError(Exception):
    """Another run of the same query has written this batch to the checkpoint's log first: Spark stops this one."""


class ContradictionError(Exception):
    """The source has told Spark two things that do not go together."""


class Query:
    """One run of a streaming query, from what the checkpoint says.

    `tells_start` is Spark 4.2 and later; before, `latestOffset` has no arguments, a new query asks for it before the
    beginning, and a restart asks for `partitions(x, x)`. `is_wrapped` is AvailableNow there with Spark's wrapper around
    the source: it asks for the latest offset before anything else, and only then. `reads` says which partitions of a
    batch are read; None means that not even the plan is asked for.
    """

    def __init__(
        self,
        world: World,
        *,
        checkpoint: Checkpoint | None = None,
        tells_start: bool = True,
        available_now: bool = False,
        is_wrapped: bool = False,
        reads: Callable[[int, int], range | None] = lambda batch, count: range(count),
    ) -> None:
        self.world = world
        self.checkpoint = checkpoint or world.checkpoint
        self.driver: Driver = make_driver(world, Queue(world.options, world.clock, world.pool))
        self.startless = StartlessDriver(self.driver)
        # Spark looks at the logs when it starts, and goes on from there by itself.
        self.offsets = list(self.checkpoint.offsets)
        self._tells_start = tells_start
        self._reads = reads
        self._is_wrapped = is_wrapped
        self._fetched: Offset | None = None
        if available_now:
            self.driver.prepare_available_now()

    def resume(self) -> Query:
        """Do what Spark does first: run the last batch again, if it was not committed."""
        if self._is_wrapped:
            self._fetched = self.startless.latest_offset()
        if self.offsets and not self._tells_start and self.startless.plan(self.offsets[-1], self.offsets[-1]):
            raise ContradictionError("an epoch that follows itself has partitions")
        if self.offsets and len(self.offsets) - 1 not in self.checkpoint.committed:
            self.run(len(self.offsets) - 1)
        return self

    def trigger(self) -> bool:
        """Construct and run the next batch; return False when there is nothing new."""
        batch = len(self.offsets)
        asks_for_the_end_first = not batch and not self._tells_start and not self._is_wrapped
        start = None if asks_for_the_end_first else self.start_of(batch)
        end = self.latest_offset(start)
        if end == start:
            return False
        self.log(end)
        if batch:
            self.startless.commit(self.offsets[batch - 1])
        self.run(batch)
        return True

    def latest_offset(self, start: Offset | None) -> Offset:
        if self._fetched is not None:
            if self._fetched not in self.offsets and self.startless.latest_offset() != self._fetched:
                raise ContradictionError("Spark asks once more, and is told another offset")
            return self._fetched
        if self._tells_start:
            assert start is not None
            return self.driver.latest_offset(start, self.world.options.max_messages_per_trigger)
        return self.startless.latest_offset()

    def log(self, end: Offset) -> None:
        """Write the next batch's end to the offset log, which takes each batch once."""
        batch = len(self.offsets)
        if len(self.checkpoint.offsets) != batch:
            raise ConcurrentUpdateError(f"batch {batch} is planned already")
        self.checkpoint.offsets.append(end)
        self.offsets.append(end)
        self.world.step(f"-- batch {batch} is {end.epoch}/{end.partitions}")

    def start_of(self, batch: int) -> Offset:
        return self.offsets[batch - 1] if batch else self.startless.initial_offset()

    def plans(self, batch: int) -> list[PartitionPlan]:
        return self.startless.plan(self.start_of(batch), self.offsets[batch])

    def run(self, batch: int) -> None:
        wanted = self._reads(batch, self.offsets[batch].partitions)
        rows: Mapping[int, list[Row]] = {}
        if wanted is None:
            self.start_of(batch)  # Spark asks a new query for it all the same
        else:
            plans = self.plans(batch)
            self.world.step(f"-- batch {batch} is planned")
            rows = self.read_all([plans[index] for index in wanted if index < len(plans)])
        self.world.step(f"-- batch {batch} is read")
        self.to_sink(batch, dict(rows))
        self.world.step(f"-- batch {batch} is in the sink")
        if batch in self.checkpoint.committed:
            raise ConcurrentUpdateError(f"batch {batch} is committed already")
        self.checkpoint.committed.add(batch)

    def to_sink(self, batch: int, rows: dict[int, list[Row]]) -> None:
        """Write a batch to a sink that skips a batch id that it has."""
        self.checkpoint.sink.setdefault(batch, rows)
        self.checkpoint.epochs.setdefault(batch, self.offsets[batch].of)

    def read_all(self, plans: list[PartitionPlan]) -> Mapping[int, list[Row]]:
        """Return the rows of the partitions that `plans` are for."""
        return {plan.partition: self.read(plan) for plan in plans}

    def read(self, plan: PartitionPlan) -> list[Row]:
        return read(self.world, plan)

    def drain(self, limit: int = 400) -> Query:
        """Trigger until there is nothing new and nothing in the queue, and the journal says so too.

        What the probe deletes leaves the ledger with the next commit, so one more message is sent for that.
        """
        for _ in range(limit):
            if not self.trigger() and self.world.depth() == (0, 0):
                if not self.driver.report()["unconfirmedDeletes"] and self.world.journal().ledger().unconfirmed:
                    self.world.send("last1")
                else:
                    return self
        raise AssertionError(f"not drained: {self.world.depth()} after {limit} triggers")


def make_driver(world: World, queue: Queue, make: type[Driver] = Driver, **of_union: Any) -> Any:
    """Return the driver of a world's queue."""
    return make(
        world.options,
        queue=queue,
        store=lambda: world.store,
        clock=world.clock,
        pool=world.pool,
        payload_deletes=PayloadDeletes(
            world.bucket.delete if world.bucket is not None and world.options.delete_payloads else None,
            world.pool("payload-delete", 1),
        ),
        **of_union,
    )


_COLUMNS = ("messageId", "messageGroupId", "sequenceNumber", "body")


def read(
    world: World,
    plan: PartitionPlan,
    most_links: int | None = None,
    rows: list[Row] | None = None,
    *,
    may_go: bool = False,
) -> list[Row]:
    """One attempt of a task, in a process of its own; it may stop early, as one does whose rows have a limit.

    `rows`, which it returns, has what it has read by then, should it fail or be killed.
    """
    plan = pickle.loads(pickle.dumps(plan))
    queue = Queue(world.options, world.clock, world.pool, may_go=may_go)
    rows = [] if rows is None else rows
    journal = Journal(world.store, plan.journal)
    payloads = Payloads(world.options, cast("Buckets | None", world.bucket), world.pool)
    with closing(serve(plan, queue, journal, world.options, world.clock, world.pool("begin", 3), payloads)) as links:
        for batch in itertools.islice(links, most_links):
            columns = [batch.column(name).to_pylist() for name in _COLUMNS]
            rows += [Row(first, group, int(number), body) for first, group, number, body in zip(*columns, strict=True)]
    return rows
