"""A query over two queues, whose tasks are processes of their own: Spark's calls on the union of both."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sqs_fifo_spark.pace import Pace
from sqs_fifo_spark.source.driver.driver import Driver
from sqs_fifo_spark.source.driver.union import QueuePlan, QueueUnion
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.offsets import Offsets
from sqs_fifo_spark.source.queue import Queue
from tests.simulation.sites import SharedCheckpoint, Site
from tests.simulation.spark import ConcurrentUpdateError, ContradictionError, make_driver
from tests.simulation.tasks import History, WatchedDriver, run_tasks

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule
    from tests.simulation.world import Row


class SharedQuery:
    """One run of a query over several queues: see `Query` for the order of calls, and its arguments."""

    def __init__(
        self,
        schedule: Schedule,
        checkpoint: SharedCheckpoint,
        *,
        tells_start: bool,
        available_now: bool,
        is_wrapped: bool,
        reads: Callable[[int, int], range | None],
    ) -> None:
        assert schedule.neighbour is not None
        self._schedule = schedule
        self._neighbour = schedule.neighbour
        self.checkpoint = checkpoint
        self._sites = {site.key: site for site in schedule.sites}
        self.log = list(checkpoint.log)
        self._first = len(self.log)
        """The first batch that this run has constructed."""
        self.histories = [
            History(site, found, list(found.offsets), schedule.hub)
            for site in schedule.sites
            for found in (site.history_in(checkpoint),)
        ]
        self._history = {history.site.key: history for history in self.histories}
        self._tells_start = tells_start
        self._is_wrapped = is_wrapped
        self._reads = reads
        self._fetched: Offsets | None = None
        options = schedule.neighbour.options()
        self._pace = Pace(schedule.hub, options.max_calls_per_s)
        self._most = options.max_messages_per_trigger
        self.union = QueueUnion(
            options, schedule.neighbour.urls, self._make_driver, schedule.hub, tells_start=tells_start
        )
        if available_now:
            self.union.prepare_available_now()

    @property
    def offsets(self) -> list[Offset]:
        """The history of the schedule's own queue."""
        return self.histories[0].offsets

    def drivers_of(self, site: Site) -> list[Driver]:
        """Return the drivers of a queue which the union has not given up."""
        members = self.union.queues
        return [members[site.key].driver] if site.key in members and members[site.key].has_driver else []

    def is_asked(self, site: Site) -> bool:
        """Return True if a question to the queue's driver is under way, or its answer is not taken."""
        return site.key in self.union.queues and self.union.queues[site.key].is_asked

    def _make_driver(
        self, url: str, before_poll: Callable[[], None], most_partitions: Callable[[int], int]
    ) -> WatchedDriver:
        site = next(site for site in self._sites.values() if site.world.url == url)
        world = site.world
        queue = Queue(world.options, world.clock, world.pool, pace=self._pace, may_go=True)
        driver: WatchedDriver = make_driver(
            world, queue, WatchedDriver, before_poll=before_poll, most_partitions=most_partitions
        )
        driver.world, driver.laws = world, site.laws
        return driver

    # Spark's calls

    def resume(self) -> SharedQuery:
        """Do what Spark does first: run the last batch again, if it was not committed."""
        if self._is_wrapped:
            self._fetched = self._in_json(self.union.latest_offset())
            self._neighbour.has_first_answer()
        if self.log and not self._tells_start and self.union.plan(self.log[-1], self.log[-1]):
            raise ContradictionError("an offset that follows itself has partitions")
        if self.log and len(self.log) - 1 not in self.checkpoint.done:
            self.run(len(self.log) - 1)
        return self

    def trigger(self) -> bool:
        """Construct and run the next batch; return False when there is nothing new."""
        batch = len(self.log)
        asks_for_the_end_first = not batch and not self._tells_start and not self._is_wrapped
        start = None if asks_for_the_end_first else self.start_of(batch)
        end = self._latest_offset(start)
        if end == start:
            self._judge_idleness()
            return False
        self._to_log(end)
        if batch:
            self.union.commit(self.log[batch - 1])
        self.run(batch)
        return True

    def _judge_idleness(self) -> None:
        """What a poll has brought since the union looked last comes with the next micro-batch."""
        for site in self._sites.values():
            if not self.is_asked(site):
                self._schedule.share_mood()
                site.laws.idle()

    def _latest_offset(self, start: Offsets | None) -> Offsets:
        if self._fetched is not None:
            # A queue that only Spark's log had may be there, too, once that has said so.
            again = self._fetched if self._fetched in self.log else self._in_json(self.union.latest_offset())
            if any(again.of(key) != offset for key, _, offset in self._fetched):
                raise ContradictionError("Spark asks once more, and is told another offset")
            return self._fetched
        for history in self.histories:
            if history.offsets:
                history.site.laws.over(history.offsets[-1].epoch)
        if self._tells_start:
            assert start is not None
            return self._in_json(self.union.latest_offset(start, self._most))
        return self._in_json(self.union.latest_offset())

    def _in_json(self, offsets: Offsets) -> Offsets:
        return Offsets.from_json(json.loads(json.dumps(offsets.to_json())))

    def start_of(self, batch: int) -> Offsets:
        return self.log[batch - 1] if batch else self._in_json(self.union.initial_offset())

    def _to_log(self, end: Offsets) -> None:
        """Write the next batch's end to the offset log, which takes each batch once."""
        batch, checkpoint = len(self.log), self.checkpoint
        if len(checkpoint.log) != batch:
            raise ConcurrentUpdateError(f"batch {batch} is planned already")
        before = self.log[-1] if self.log else Offsets()
        checkpoint.log.append(end)
        self.log.append(end)
        moved: dict[str, int] = {}
        checkpoint.moves.append(moved)
        told = []
        for key, history in self._history.items():
            offset = end.of(key)
            if offset is None or not offset.plan or offset == before.of(key):
                self._judge_absence(batch, key)
                continue
            moved[key] = len(history.offsets)
            history.checkpoint.offsets.append(offset)
            history.offsets.append(offset)
            history.logs(offset, functools.partial(checkpoint.batch_of, key))
            told.append(f"{offset.epoch}/{offset.partitions} of {key.rpartition('.')[0]}")
        self._schedule.world.step(f"-- batch {batch} is {len(moved)} queues': {', '.join(told) or 'nothing'}")

    def _judge_absence(self, batch: int, key: str) -> None:
        """One content: what the sink has of a batch that the log has lost comes again in that batch, of each queue."""
        if any(self.checkpoint.sinks.get(batch, {}).get(key, {}).values()):
            self._schedule.laws.violate(f"one content: the lost batch {batch} has rows of {key}, and comes without")

    def moved(self, batch: int) -> Mapping[str, int]:
        """Return the number of a batch in the history of each queue that it moves, by key."""
        return self.checkpoint.moves[batch]

    def plans(self, batch: int) -> list[QueuePlan]:
        plans = self.union.plan(self.start_of(batch), self.log[batch])
        for key, site in self._sites.items():
            site.laws.planned([each.plan for each in plans if self._site_of(each) is site])
            offset = self.log[batch].of(key)
            count = offset.partitions if offset is not None and key in self.moved(batch) else 0
            if sum(self._site_of(each) is site for each in plans) != count:
                raise ContradictionError(f"there are not {count} plans of {key}")
        if batch >= self._first:
            laws = self._schedule.union_laws
            laws.planned((each.plan for each in plans), most=self._most, queues=len(self.moved(batch)))
        return plans

    def _site_of(self, plan: QueuePlan) -> Site:
        return next(site for site in self._sites.values() if site.world.url == plan.url)

    def run(self, batch: int) -> None:
        rows: dict[str, dict[int, list[Row]]] = {}
        step = self._schedule.world.step
        if self._reads(batch, 0) is None:
            self.start_of(batch)  # Spark asks a new query for it all the same
        else:
            plans = self.plans(batch)
            step(f"-- batch {batch} is planned")
            by_queue: dict[str, list[QueuePlan]] = {}
            for each in plans:
                by_queue.setdefault(each.url, []).append(each)
            # Of each queue that has any: to a queue nothing of whose part is read, nobody has looked at its rows.
            wanted = [of[place] for of in by_queue.values() for place in self._reads(batch, len(of)) or ()]
            rows = self._read_all(batch, wanted)
        step(f"-- batch {batch} is read")
        self._to_sink(batch, rows)
        step(f"-- batch {batch} is in the sink")
        checkpoint = self.checkpoint
        if batch in checkpoint.done:
            raise ConcurrentUpdateError(f"batch {batch} is committed already")
        checkpoint.done.add(batch)
        for key, number in self.moved(batch).items():
            self._history[key].checkpoint.committed.add(number)
            self._history[key].is_over(number)

    def _read_all(self, batch: int, plans: list[QueuePlan]) -> dict[str, dict[int, list[Row]]]:
        schedule = self._schedule
        rng = schedule.rng
        again = self.plans(batch) if plans and rng.random() < 0.1 else plans
        if any(each not in again for each in plans):
            schedule.laws.violate("one content: the same batch is planned in another way")
        jobs = [(self._site_of(each), each.plan) for each in plans]
        histories = [self._history[key] for key in dict.fromkeys(site.key for site, _ in jobs)]
        for history in histories:
            history.begins_tasks()
        read: list[list[Row]] = []
        for _ in range(rng.choice((1, 1, 1, 2))):
            read = run_tasks(schedule, jobs, slots=rng.randint(1, 3))
        for history in histories:
            history.ends_tasks()
        rows: dict[str, dict[int, list[Row]]] = {}
        for (site, plan), each in zip(jobs, read, strict=True):
            rows.setdefault(site.key, {})[plan.partition] = each
        return rows

    def _to_sink(self, batch: int, rows: dict[str, dict[int, list[Row]]]) -> None:
        """Write a batch to a sink that skips a batch id that it has."""
        self._schedule.writes_to_sink()
        in_sink = self.checkpoint.sinks.setdefault(batch, rows)
        for key, number in self.moved(batch).items():
            checkpoint, offset = self._history[key].checkpoint, self.log[batch].of(key)
            assert offset is not None
            # The number may have been that of another batch, which Spark's log has lost.
            if checkpoint.sink.get(number) is not in_sink.setdefault(key, {}):
                checkpoint.sink[number] = in_sink[key]
                checkpoint.epochs[number] = offset.of
