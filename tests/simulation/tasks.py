"""A query whose tasks are processes of their own, as Spark runs them: in slots, with retries."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqs_fifo_spark.source.driver.driver import Driver
from sqs_fifo_spark.source.driver.member import MemberDriver
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.plan import PartitionPlan
from tests.simulation.hub import Hub, Thread
from tests.simulation.laws import CLAIM, AvailableNowRun, Laws, Offered
from tests.simulation.sites import Site
from tests.simulation.spark import Query
from tests.simulation.world import VISIBILITY_S, Checkpoint, Row, World

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

MAX_FAILURES = 4
"""Spark's `spark.task.maxFailures`."""


class TaskFailedError(Exception):
    """A task failed as often as Spark allows, so Spark stops the query."""


class Attempt:
    """One attempt of a task, in a process of its own."""

    def __init__(self, plan: PartitionPlan, site: Site) -> None:
        self.plan = plan
        self.site = site
        self.rows: list[Row] | None = None
        self.error: Exception | None = None
        self.thread: Thread


class WatchedDriver(MemberDriver):
    """A driver on which the laws look as it is asked for work."""

    laws: Laws
    world: World

    def latest_offset(self, start: Offset, max_messages: int | None = None) -> Offset:
        newest, was = self._newest_claim(), self.announced
        end = super().latest_offset(start, max_messages)
        if end not in (start, was):
            self._judge(newest)
        return end

    def announce_blindly(self) -> Offset:
        newest = self._newest_claim()
        end = super().announce_blindly()
        self._judge(newest)
        return end

    def _newest_claim(self) -> str:
        return max(filter(CLAIM.fullmatch, self.world.store.under("drivers/")), default="")

    def _judge(self, newest: str) -> None:
        if newest > f"drivers/{self._owned(None).claim:020d}.json":
            self.laws.violate("one owner: a driver went on though another had claimed the journal")


class History:
    """The batches of one run that move one queue, by their numbers in that queue's own history."""

    def __init__(self, site: Site, checkpoint: Checkpoint, offsets: list[Offset], hub: Hub) -> None:
        self.site = site
        self.checkpoint = checkpoint
        self.offsets = offsets
        self._hub = hub
        self.over_at: dict[int, float] = {}
        """End of each batch of this run."""
        self.received_by: dict[int, int] = {}
        """Number of receives by then."""
        self.lapse_at = hub.now() + (VISIBILITY_S if site.world.in_flight else 0)
        """Time by which the last hold has lapsed that was there when the run began, or when its tasks last ran."""
        self.tasked: int | None = None
        """The last batch with tasks."""
        self.offered: Offered | None = None
        """The messages that the queue had to give when the last micro-batch with tasks began."""

    def rows(self, batch: int) -> list[list[Row]]:
        """Return what a batch has put into the sink, by partition."""
        return list(self.checkpoint.sink.get(batch, {}).values())

    def logs(self, end: Offset, batch_of: Callable[[int], int] = lambda number: number) -> None:
        """Judge the next entry, which the offset log has just got; `batch_of` gives Spark's number of one of ours."""
        laws, last = self.site.laws, self.offsets[-2].epoch if len(self.offsets) > 1 else 0
        laws.logs(self.checkpoint, batch_of)
        laws.logged.add((end.epoch, end.plan))
        if end.epoch <= last:
            laws.violate(f"progress: the offset log goes from epoch {last} to {end.epoch}")

    def begins_tasks(self) -> None:
        self.offered = self.site.laws.begins_tasks()

    def ends_tasks(self) -> None:
        self.lapse_at, self.tasked = self._hub.now() + VISIBILITY_S, len(self.offsets) - 1

    def is_over(self, batch: int) -> None:
        """Take note of the end of a batch, which Spark has committed."""
        self.over_at[batch] = self._hub.now()
        self.received_by[batch] = self.site.laws.receives
        self.site.laws.committed(self.checkpoint, batch)

    def told(self, began: Offered, first: int, counted: int, *, waits_for_holds: bool) -> AvailableNowRun:
        """Return what this run has done since it began, with the batch `first`."""
        rows = {batch: [row for rows in self.rows(batch) for row in rows] for batch in range(first, len(self.offsets))}
        served_old = [batch for batch in rows if any(row.message_id in began.waiting for row in rows[batch])]
        newest = rows.get(self.tasked, []) if self.tasked is not None else []
        is_newer = bool(newest) and self.tasked not in served_old
        total, newer_at = 0, math.inf
        for batch in rows:
            total += len(rows[batch])
            if rows[batch] and batch not in served_old and batch in self.over_at and total >= counted:
                newer_at = min(newer_at, self.over_at[batch])
        laws = self.site.laws
        return AvailableNowRun(
            query=self._hub.current_name,
            began=began,
            last=self.offered or began,
            polled=max(laws.polled(began), self.offered or began, key=lambda offered: offered.at),
            received_old=max(
                [began.received, *(self.received_by[batch] for batch in served_old if batch in self.over_at)]
            ),
            rows=sum(len(rows[batch]) for batch in rows if batch in self.over_at),
            counted=counted,
            lapse_at=self.lapse_at,
            newer_at=newer_at,
            is_newer=is_newer,
            waits_for_holds=waits_for_holds,
        )


def run_tasks(schedule: Schedule, plans: Sequence[tuple[Site, PartitionPlan]], *, slots: int) -> list[list[Row]]:
    """Return the rows of these tasks, which run in so many slots, with retries."""
    rows: dict[int, list[Row]] = {}
    failures: Counter[int] = Counter()
    pending, running = list(range(len(plans))), dict[int, Attempt]()
    while pending or running:
        while pending and len(running) < slots:
            site, plan = plans[pending[0]]
            running[pending.pop(0)] = schedule.launch(plan, site)
        schedule.hub.wait_until(lambda: any(attempt.thread.is_done for attempt in running.values()))  # noqa: B023
        over = {index: attempt for index, attempt in running.items() if attempt.thread.is_done}
        running = {index: attempt for index, attempt in running.items() if index not in over}
        for index, attempt in over.items():
            if attempt.rows is not None:
                rows[index] = attempt.rows
                continue
            failures[index] += 1
            if failures[index] == MAX_FAILURES:
                raise TaskFailedError(f"partition {attempt.plan.partition}: {attempt.error or 'killed'}")
            pending.append(index)
    return [rows[index] for index in range(len(plans))]


class SimulatedQuery(Query):
    """A query whose tasks are processes, with retries; a sink that may be slow, and functions that read twice."""

    def __init__(self, schedule: Schedule, checkpoint: Checkpoint, **arguments: Any) -> None:
        super().__init__(schedule.world, checkpoint=checkpoint, **arguments)
        self._schedule = schedule
        self.histories = [History(schedule.site, checkpoint, self.offsets, schedule.hub)]
        self._announced: Offset | None = None

    def drivers_of(self, site: Site) -> list[Driver]:
        """Return the drivers of a queue."""
        return [self.driver]

    def log(self, end: Offset) -> None:
        super().log(end)
        self.histories[0].logs(end)

    def plans(self, batch: int) -> list[PartitionPlan]:
        plans = super().plans(batch)
        self._schedule.laws.planned(plans)
        return plans

    def read_all(self, plans: list[PartitionPlan]) -> Mapping[int, list[Row]]:
        schedule = self._schedule
        rng = schedule.rng
        if rng.random() < 0.1 and plans and plans != self.plans(len(self.offsets) - 1)[: len(plans)]:
            schedule.laws.violate("one content: the same batch is planned in another way")
        if plans:
            self.histories[0].begins_tasks()
        rows: list[list[Row]] = []
        for _ in range(rng.choice((1, 1, 1, 2))):
            rows = run_tasks(schedule, [(schedule.site, plan) for plan in plans], slots=rng.randint(1, 3))
        if plans:
            self.histories[0].ends_tasks()
        return {plan.partition: each for plan, each in zip(plans, rows, strict=True)}

    def latest_offset(self, start: Offset | None) -> Offset:
        if self.offsets:
            self._schedule.laws.over(self.offsets[-1].epoch)
        newest = max(filter(CLAIM.fullmatch, self.world.store.under("drivers/")), default="")
        end = super().latest_offset(start)
        is_new = end != start and (self._tells_start or end not in (self._fetched, self._announced))
        self._announced = end
        if is_new and newest > f"drivers/{self.driver._owned(start).claim:020d}.json":
            self._schedule.laws.violate("one owner: a driver went on though another had claimed the journal")
        return end

    def trigger(self) -> bool:
        has_run = super().trigger()
        if not has_run:
            self._schedule.laws.idle()
        return has_run

    def to_sink(self, batch: int, rows: dict[int, list[Row]]) -> None:
        self._schedule.writes_to_sink()
        super().to_sink(batch, rows)

    def run(self, batch: int) -> None:
        super().run(batch)
        self.histories[0].is_over(batch)
