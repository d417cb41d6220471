"""The laws of a query over several queues: what one queue may do to another, in plans, in the sink and at the end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sqs_fifo_spark.source.driver.union import POLLS_S
from sqs_fifo_spark.source.plan import PartitionPlan
from tests.simulation.sites import DISCOVERY_S

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule
    from tests.simulation.shared import SharedQuery
    from tests.simulation.sites import SharedCheckpoint, Site

ROUNDS = 4
LONG_S = 13
"""Seconds that a sink may take, longer than a long poll."""
MOST_BATCHES = 2
"""Micro-batches within which a message is served that waits: the one that may have begun, and the next."""


class UnionLaws:
    """The laws that are about both queues; for the end of a schedule it has stories, with dice of its own."""

    def __init__(self, schedule: Schedule, dice: random.Random) -> None:
        self._schedule = schedule
        self._violate = schedule.laws.violate
        self._dice = dice
        self._count = 0

    def planned(self, plans: Iterable[PartitionPlan], *, most: int, queues: int) -> None:
        """Bounded: the limit of messages holds for all queues together, but each that has work gets one."""
        total = sum(plan.max_messages for plan in plans)
        if total > max(most, queues):
            self._violate(f"limits: a micro-batch of {queues} queues may have {total} messages, not {most}")

    def audit_sink(self, checkpoint: SharedCheckpoint) -> None:
        """Exactly once: no message is in two micro-batches of Spark's, whatever its queue's history says."""
        ids = Counter(
            row.message_id
            for sink in checkpoint.sinks.values()
            for parts in sink.values()
            for part in parts.values()
            for row in part
        )
        if doubled := sorted(each for each, count in ids.items() if count > 1):
            self._violate(f"exactly once: {len(doubled)} messages are in two micro-batches")

    # Stories for the end of a schedule, when nothing is left and nobody else is there

    def tell_one(self) -> None:
        """Play one of the stories. Afterwards all is drained and audited again."""
        schedule, neighbour = self._schedule, self._schedule.neighbour
        assert neighbour is not None
        for process in schedule.hub.alive():
            schedule.hub.kill(process)
        stories = [self._serve_both, self._serve_beside, self._go_on_without, self._do_without, self._leave_unsettled]
        story = self._dice.choice(stories)
        schedule.laws.is_calm = False
        schedule.world.note(f"-- {story.__name__}")
        if story == self._do_without:
            neighbour.is_listed = False
        schedule.start_query(story=story)
        schedule.run_query()
        if story == self._leave_unsettled and not schedule.laws.violations:
            self._begin_in_the_dark() if schedule.wraps else self._begin_after_a_loss()
        neighbour.be_well()
        if not schedule.laws.violations:
            schedule.drain_once_more()

    def _serve_both(self, query: SharedQuery) -> None:
        """While both queues always have something, each micro-batch has something of both."""
        self._settle_in(query)
        for number in range(ROUNDS):
            for site in self._schedule.sites:
                self._send(site)
            query.trigger()
            missing = [site.key for site in self._schedule.sites if site.key not in query.moved(len(query.log) - 1)]
            if number and missing:
                self._violate(f"progress: a micro-batch is without {missing}, which had work and were as quick")

    def _serve_beside(self, query: SharedQuery) -> None:
        """A queue that is always busy keeps no message of the other one waiting, nor its poll."""
        busy, idle = self._dice.sample(self._schedule.sites, 2)
        self._settle_in(query)
        hub, first = self._schedule.hub, len(self._schedule.world.trace)
        began_at, waits, has_served = hub.now(), 0, 0
        sent = ""
        for number in range(ROUNDS * 2):
            self._send(busy)
            asked_at = hub.now()
            query.trigger()
            if sent and self._is_served(idle, sent):
                sent, waits, has_served = "", 0, has_served + 1
            elif sent:
                waits += 1
            if waits >= MOST_BATCHES:
                self._violate(f"progress: {idle.key} is served nothing in {waits} micro-batches")
                return
            for_s = self._dice.choice((1, LONG_S))
            hub.sleep(for_s)
            if not sent and number % 4 == 1:
                sent = self._send(idle)
                hub.sleep(1)
                if hub.now() < asked_at + POLLS_S and not idle.laws.known([sent]):
                    self._violate(f"progress: no poll of {idle.key} goes on while a micro-batch of the other one runs")
                    return
        own = f"{hub.current_process.name} "
        label = idle.world.label
        polls = sum(
            event.startswith(f"{label}before ReceiveMessage") and f"{who} ".startswith(own)
            for _, who, event in self._schedule.world.trace[first:]
        )
        most = (hub.now() - began_at) / self._schedule.world.options.wait_time_s + 2 + 3 * has_served
        if polls > most:
            self._violate(f"idle is cheap: {polls} polls of a queue, beside one that is busy; at most {most:.0f}")

    def _go_on_without(self, query: SharedQuery) -> None:
        """A queue that is gone for a while stops nothing; once it is back, its messages are served."""
        self._settle_in(query)
        main, neighbour = self._schedule.sites
        if self._dice.random() < 0.5:
            self._send(neighbour)  # its last micro-batch is not settled
            query.trigger()
        assert self._schedule.neighbour is not None
        self._schedule.neighbour.be_gone(self._dice.choice(("denied", "missing")), 60 * 60)
        lost = self._send(neighbour)
        for _ in range(ROUNDS):
            self._require_soon(query, main, self._send(main))
            self._schedule.hub.sleep(self._dice.choice((1, LONG_S)))
        self._schedule.neighbour.be_well()
        self._schedule.hub.sleep(100)
        query.trigger()  # as it is tried again after a while
        self._schedule.hub.sleep(100)
        self._require_soon(query, neighbour, lost)

    def _do_without(self, query: SharedQuery) -> None:
        """A queue that has left the list is settled, and then leaves the offsets."""
        main, neighbour = self._schedule.sites
        for _ in range(ROUNDS):
            self._require_soon(query, main, self._send(main))
        if query.log[-1].of(neighbour.key) is not None:
            self._violate(f"bounded: {neighbour.key} left the list, and is still in the offsets")
        if query.drivers_of(neighbour):
            self._violate(f"bounded: {neighbour.key} left the list, and still has a driver")
        served = {row.message_id for rows in neighbour.history_in(query.checkpoint).rows() for row in rows}
        if left := served & neighbour.world.present():
            self._violate(f"bounded: {neighbour.key} left the list, and keeps {len(left)} messages that it has served")
        if self._schedule.neighbour is not None and self._schedule.neighbour.by_prefix:
            self._come_back(query)

    def _come_back(self, query: SharedQuery) -> None:
        """A queue that is new in the list is served, though nobody looks at the rows of its first micro-batch."""
        schedule, neighbour = self._schedule, self._schedule.neighbour
        assert neighbour is not None
        neighbour.is_listed = True
        schedule.hub.sleep(DISCOVERY_S)
        self._send(neighbour)
        schedule.read_nothing_of(len(query.log))
        query.trigger()
        self._require_soon(query, neighbour, self._send(neighbour))

    def _leave_unsettled(self, query: SharedQuery) -> None:
        """Commit a micro-batch of both queues, and settle it in neither."""
        self._settle_in(query)
        for site in self._schedule.sites:
            self._send(site)
        query.trigger()

    def _begin_in_the_dark(self) -> None:
        """Before 4.2, under Spark's wrapper, a run that begins while a queue is gone does not know its place in it."""
        self._end_without_neighbour()
        self._schedule.start_query(wrapped=True)
        self._schedule.run_query()

    def _begin_after_a_loss(self) -> None:
        """Spark's log has lost a micro-batch of both queues, which the sink has. One of them is not there by then."""
        schedule = self._schedule
        self._end_without_neighbour()
        schedule.lose_batch()
        if schedule.tells_start and self._dice.random() < 0.5:
            schedule.start_query(drains=True)
        else:
            schedule.start_query(triggers=MOST_BATCHES)
        schedule.run_query()

    def _end_without_neighbour(self) -> None:
        schedule, neighbour = self._schedule, self._schedule.neighbour
        assert neighbour is not None
        for process in schedule.hub.alive():
            schedule.hub.kill(process)
        fate = self._dice.random()
        if fate < 0.3 and schedule.wraps:
            neighbour.leaves_after_first_answer = True
        elif fate < 0.6:
            neighbour.is_listed = False
        else:
            neighbour.be_gone(self._dice.choice(("denied", "missing")), 60 * 60)
        schedule.hub.advance(self._dice.choice((1, 100)))

    def _settle_in(self, query: SharedQuery) -> None:
        """Let the query open both queues."""
        for _ in range(MOST_BATCHES):
            query.trigger()

    def _require_soon(self, query: SharedQuery, site: Site, message_id: str) -> None:
        for _ in range(MOST_BATCHES):
            query.trigger()
            if self._is_served(site, message_id):
                return
        self._violate(f"progress: {site.key} is served nothing in {MOST_BATCHES} micro-batches")

    def _is_served(self, site: Site, message_id: str) -> bool:
        histories = (site.history_in(each) for each in self._schedule.laws.checkpoints)
        return any(row.message_id == message_id for each in histories for rows in each.rows() for row in rows)

    def _send(self, site: Site) -> str:
        """Send one message of a group of its own; return its id."""
        self._count += 1
        body = f"{'xyz'[self._count % 3]}{self._count}"
        row = site.world.put(body, f"beside-{body}")
        site.laws.sent(row)
        site.world.note(f"a producer sent {body}")
        return row.message_id
