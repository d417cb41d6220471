"""A query whose tasks are processes of their own, as Spark runs them: in slots, with retries."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.plan import PartitionPlan
from tests.simulation.climate import PAUSES_S
from tests.simulation.hub import Thread
from tests.simulation.laws import CLAIM, AvailableNowRun, Offered
from tests.simulation.spark import Query
from tests.simulation.world import LAPSE_S, VISIBILITY_S, Checkpoint, Row

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

MAX_FAILURES = 4
"""Spark's `spark.task.maxFailures`."""


class TaskFailedError(Exception):
    """A task failed as often as Spark allows, so Spark stops the query."""


class Attempt:
    """One attempt of a task, in a process of its own."""

    def __init__(self, plan: PartitionPlan) -> None:
        self.plan = plan
        self.rows: list[Row] | None = None
        self.error: Exception | None = None
        self.thread: Thread


class SimulatedQuery(Query):
    """A query whose tasks are processes, with retries; a sink that may be slow, and functions that read twice."""

    def __init__(self, schedule: Schedule, checkpoint: Checkpoint, **arguments: Any) -> None:
        super().__init__(schedule.world, checkpoint=checkpoint, **arguments)
        self._schedule = schedule
        self.over_at: dict[int, float] = {}
        """End of each batch of this run."""
        self._received_by: dict[int, int] = {}
        """Number of receives by then."""
        self.lapse_at = self.world.clock.now() + (VISIBILITY_S if self.world.in_flight else 0)
        """Time by which the last hold has lapsed that was there when the run began, or when its tasks last ran."""
        self._announced: Offset | None = None
        self.tasked: int | None = None
        """The last batch with tasks."""
        self.offered: Offered | None = None
        """The messages that the queue had to give when the last micro-batch with tasks began."""

    def rows(self, batch: int) -> list[list[Row]]:
        """Return what a batch has put into the sink, by partition."""
        return list(self.checkpoint.sink.get(batch, {}).values())

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
        return AvailableNowRun(
            query=self._schedule.hub.current_name,
            began=began,
            last=self.offered or began,
            polled=max(self._schedule.laws.polled(began), self.offered or began, key=lambda offered: offered.at),
            received_old=max(
                [began.received, *(self._received_by[batch] for batch in served_old if batch in self.over_at)]
            ),
            rows=sum(len(rows[batch]) for batch in rows if batch in self.over_at),
            counted=counted,
            lapse_at=self.lapse_at,
            newer_at=newer_at,
            is_newer=is_newer,
            waits_for_holds=waits_for_holds,
        )

    def log(self, end: Offset) -> None:
        last = self.offsets[-1].epoch if self.offsets else 0
        super().log(end)
        self._schedule.laws.logs(self.checkpoint)
        self._schedule.laws.logged.add((end.epoch, end.plan))
        if end.epoch <= last:
            self._schedule.laws.violate(f"progress: the offset log goes from epoch {last} to {end.epoch}")

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
            self.offered = schedule.laws.offers()
        rows: dict[int, list[Row]] = {}
        for _ in range(rng.choice((1, 1, 1, 2))):
            rows = self._run_tasks(plans, slots=rng.randint(1, 3))
        if plans:
            self.lapse_at, self.tasked = schedule.hub.now() + VISIBILITY_S, len(self.offsets) - 1
        return rows

    def _run_tasks(self, plans: list[PartitionPlan], *, slots: int) -> dict[int, list[Row]]:
        schedule = self._schedule
        rows: dict[int, list[Row]] = {}
        failures: Counter[int] = Counter()
        pending, running = list(plans), list[Attempt]()
        while pending or running:
            while pending and len(running) < slots:
                running.append(schedule.launch(pending.pop(0)))
            schedule.hub.wait_until(lambda: any(attempt.thread.is_done for attempt in running))  # noqa: B023
            over = [attempt for attempt in running if attempt.thread.is_done]
            running = [attempt for attempt in running if attempt not in over]
            for attempt in over:
                index = attempt.plan.partition
                if attempt.rows is not None:
                    rows[index] = attempt.rows
                    continue
                failures[index] += 1
                if failures[index] == MAX_FAILURES:
                    raise TaskFailedError(f"partition {index}: {attempt.error or 'killed'}")
                pending.append(attempt.plan)
        return rows

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
        if self._schedule.is_sink_slow:
            self._schedule.others_go_on()
            self._schedule.hub.sleep(LAPSE_S)
        elif self._schedule.rng.random() < 0.15:
            self._schedule.hub.sleep(self._schedule.rng.choice(PAUSES_S))
        super().to_sink(batch, rows)

    def run(self, batch: int) -> None:
        super().run(batch)
        self.over_at[batch] = self.world.clock.now()
        self._received_by[batch] = self._schedule.laws.receives
        self._schedule.laws.committed(self.checkpoint, batch)
