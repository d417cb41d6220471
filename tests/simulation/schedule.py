"""One schedule: what a seed makes of a queue, a query that is killed and started again, and everybody around it."""

from __future__ import annotations

import random
import re
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest import mock

from sqs_fifo_spark.errors import (
    DataLossError,
    EpochSettledError,
    FencedError,
    JournalCorruptError,
    SqsFifoError,
    TransientQueueError,
)
from sqs_fifo_spark.local import SqsError
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.plan import LONGEST_INLINE, PartitionPlan
from sqs_fifo_spark.source.pool import Pool, in_calling_thread
from sqs_fifo_spark.source.queue import Queue, is_about_queue
from sqs_fifo_spark.source.task.demand import LINK_BYTES
from tests.simulation.climate import CLEAR, MOST_FAILURES, PAUSES_S, Climate, Link
from tests.simulation.hub import Hub, HubPool, Process, StuckError, Thread, Threading
from tests.simulation.laws import Laws
from tests.simulation.operators import Operators
from tests.simulation.payloads import Bucket
from tests.simulation.shared import SharedQuery
from tests.simulation.sites import Neighbour, RoutedClient, SharedCheckpoint, Site, poll
from tests.simulation.spark import ConcurrentUpdateError, read
from tests.simulation.tasks import Attempt, History, SimulatedQuery, TaskFailedError
from tests.simulation.union_laws import UnionLaws
from tests.simulation.world import LAPSE_S, VISIBILITY_S, Checkpoint, Row, SqsClient, World

GROUPS, OTHER_GROUPS = "abcde", "vwxyz"
NAMES = {"before put drivers/": 3, "before put ledger/": 1, "before get ledger/": 0}
"""Steps at which a driver that has just seen a name, or its absence, stands still; and the number of its successors."""
DIES_WITH_CATCH = "dies with a catch"
ENDS = {"after put epochs/.*/caught-": DIES_WITH_CATCH, "is in the sink$": "dies before the commit log"}
"""After what a driver dies, and what that is called in a climate."""
HALF_BEGUN, OUTLIVED = "dies half begun", "outlived by its tasks"
EXPIRED = "what a chain has deferred expires"
_LOGGED = re.compile(r"-- batch \d+ is \d")
MOST_ATTEMPTS = 20
"""Of a task, after which it is copied no more: copies that come faster than they end would take all turns, for ever."""
LONGEST_DRAIN = 150
"""Micro-batches that a query may take, without faults, for the few dozen messages of a schedule."""
Errors = type[Exception] | tuple[type[Exception], ...]

UNION_SHARE = 0.5
"""Of the schedules: their query reads two queues."""
TWINS_SHARE = 0.25
"""Of the schedules of two queues that are not calm: runs of their query begin at nearly the same moment."""
OPERATORS_SHARE = 0.25
"""Of the schedules that are not calm: operators repair their journal."""
MOST_SENT = 2_000
"""Messages after which producers stop: a query may take so long under its faults that no drain after it would end."""

MODES = "commit", "journal"
PACES = "2", "10", "50"
"""Calls a second that a query makes, where it makes fewer than it could."""


class Schedule:
    """One history from a seed: `play` it, and `laws` tells what was violated, `world.told()` what happened."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = random.Random(seed)
        self.is_calm = rng.random() < 0.15
        self.climate = Climate.draw(rng, is_calm=self.is_calm)
        ends = Climate.draw(
            random.Random(f"{seed}/ends"),
            is_calm=self.is_calm,
            faults=(*ENDS.values(), HALF_BEGUN, OUTLIVED, EXPIRED),
            chaos={},
        )
        self.climate = replace(self.climate, calls={**self.climate.calls, **ends.calls})
        self._links = random.Random(f"{seed}/link")
        self.link = Link.draw(self._links, is_calm=self.is_calm)
        self._failures: Counter[str] = Counter()
        """Failed renewals with a receipt handle since one did not fail."""
        self._may_hang_at = 0.0
        self.hub = Hub(rng)
        self.world = self._make_world(rng)
        self.laws = Laws(
            self.world, is_calm=self.is_calm, is_overdue=lambda message_id: self.is_overdue(self.site, message_id)
        )
        if self.world.options.payloads == "s3":
            self.world.bucket = Bucket(self.world, random.Random(f"{seed}/bucket"), self.laws.violate)
            if self.is_calm:
                self.world.bucket.clear()
        self.site = Site(self.world, self.laws)
        unions = random.Random(f"{seed}/union")
        self.neighbour = Neighbour(self, unions) if unions.random() < UNION_SHARE else None
        """The other queue of a query that reads two."""
        self.union_laws = UnionLaws(self, random.Random(f"{seed}/union laws"))
        self.sites: list[Site] = [self.site, *([self.neighbour] if self.neighbour is not None else [])]
        self.hub.next_lapse_at, self.hub.lapse = self._next_lapse_at, self._lapse
        self.checkpoint = self._make_checkpoint()
        self.tells_start = rng.random() < 0.7
        self.wraps = not self.tells_start and rng.random() < 0.4
        """True if runs may be with AvailableNow under the wrapper that Spark before 4.2 has, until one is refused."""
        # After an epoch that was announced in the dark and whose rows nobody read, a restart ends with one clear line.
        modes = ["all"] * 8 + ["some"] + ["none"] * (not self.wraps)
        self._modes = [rng.choice(modes) for _ in range(200)]
        self._cuts = random.Random(f"{seed}/cuts")
        self._replays = random.Random(f"{seed}/replays")
        self._lends = random.Random(f"{seed}/lends")
        self._turns = random.Random(f"{seed}/turns")
        self._turns_left = self._turns.randint(1, 8)
        self._modes_of_runs = random.Random(f"{seed}/modes of runs")
        self._changes_mode = self._modes_of_runs.random() < 0.2
        """True if each run of a query has a `deleteAfter` of its own."""
        self._stops = random.Random(f"{seed}/stops")
        self._stop_share = self._stops.choice((0.0, 0.0, 0.3))
        """Share of the reads that stop early, as those with a limit do."""
        self._lost_batches: list[tuple[Checkpoint, int, set[str]]] = []
        """Batches that offset logs have lost, each with the messages that it had for a sink, and the sink not yet."""
        self._to_lose: frozenset[str] = frozenset()
        """The next task that has received any of these messages dies with it, while producers go on."""
        self._is_lent = False
        """True if somebody else has all messages that waited at the run's start, until its first task receives."""
        self._spared: list[Process] = []
        """Tasks of a query that is dead, or a run beside another: they stand still until that has done something."""
        self._spared_until = ""
        """The event that they wait for."""
        self._has_died_with_catch = False
        """True if the last sudden end left a catch that Spark's log does not lead to; the next comes soon."""
        self._is_cut_due = False
        """True if the end after that one has come, and the offset log is to lose the epoch that its query announced."""
        self._outages = random.Random(f"{seed}/outages")
        self._has_outages = not self.is_calm and self._outages.random() < 0.15
        """True if machines are cut off again and again, the log's too, while tasks on others go on."""
        self._twins = random.Random(f"{seed}/twins")
        self._has_twins = self.neighbour is not None and not self.is_calm and self._twins.random() < TWINS_SHARE
        """True if a run of a query over two queues may begin while another one claims their journals."""
        operators = random.Random(f"{seed}/operators")
        has_operators = not self.is_calm and operators.random() < OPERATORS_SHARE
        self._operators = Operators(self, operators) if has_operators else None
        """Those who repair the journal now and then."""
        self._steps_left = -1
        """After how many steps of its query the machine is cut off; negative: no time is set."""
        self._begun = 0
        """Number of batches of the first checkpoint that have begun, as far as a log has lost them since."""
        self._numbers: Counter[str] = Counter()
        self._deduplication_ids: list[tuple[str, str]] = []
        self._elsewhere: list[dict[str, Any]] = []
        self._recent: list[tuple[PartitionPlan, Site]] = []
        self._plans: dict[Process, PartitionPlan] = {}
        """Of the tasks of the schedule's own queue."""
        self._tasks: dict[Process, tuple[PartitionPlan, Site]] = {}
        self._with_rivals: set[Process] = set()
        self._begun_in_quiet: set[Process] = set()
        """Processes started when all faults were over: nothing is left to fail of."""
        self._pool_threads = rng.choice((1, 2, 4))
        if self.climate.calls["stalled discovery"] > 0 and random.Random(f"{seed}/threads").random() < 0.7:
            self._pool_threads = 1  # whoever shares that thread waits as long
        self._most_in_a_receive = random.Random(f"{seed}/receive").choice((2, 3, 10))
        self._most_kept = random.Random(f"{seed}/kept").choice((1, LINK_BYTES))
        """Bytes of others' links that an attempt keeps; it reads the rest again."""
        self._longest_inline = random.Random(f"{seed}/inline").choice((0, LONGEST_INLINE))
        """Bytes of a deal that stands in the plans; a longer one is an object of its own."""
        self._running: dict[Process, SimulatedQuery | SharedQuery] = {}
        self._queries = 0
        self._stalled_until = 0.0
        """Until when the journal stalls for whoever discovers: all at once."""
        self._query: Thread | None = None
        self.is_sink_slow = self.is_calm and random.Random(f"{seed}/sink").random() < 0.5
        """True if each micro-batch takes longer than a hold that nobody renews."""

    def _make_world(self, rng: random.Random) -> World:
        attributes = {}
        if not self.is_calm and rng.random() < 0.1:
            attributes["MessageRetentionPeriod"] = str(rng.choice((60, 120, 300)))
        turns = random.Random(f"{self.seed}/pace")
        paced = {"maxCallsPerSecond": turns.choice(PACES)} if turns.random() < 0.15 else {}
        payloads = random.Random(f"{self.seed}/payloads")
        pointing = {
            "payloads": "s3",
            "deletePayloads": payloads.choice(("true", "true", "false")),
            "payloadErrors": payloads.choice(("fail", "null")),
            "maxBytesPerTrigger": payloads.choice(("64m", "64m", "40", "12")),
        }
        world = World(
            self.seed,
            clock=self.hub,
            attributes=attributes,
            any_order=rng.random() < 0.5,
            **paced,
            **(pointing if payloads.random() < 0.3 else {}),
            numPartitions=str(rng.randint(1, 3)),
            maxMessagesPerTrigger=str(rng.choice((3, 7, 10, 50))),
            deleteAfter=random.Random(f"{self.seed}/mode").choice(MODES),
        )
        world.begins_calls = random.Random(f"{self.seed}/beside").random() < 0.7
        if not self.is_calm and rng.random() < 0.1:
            dead = world.create_queue("dead.fifo").rpartition("/")[2]
            policy = f'{{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:{dead}","maxReceiveCount":"3"}}'
            world.model.call("SetQueueAttributes", {"QueueUrl": world.url, "Attributes": {"RedrivePolicy": policy}})
        world.actor = lambda: self.hub.current_name
        world.on_step = self._step
        world.poll = self._poll
        world.fault = self.fault
        world.failing_entries = lambda action: frozenset(i for i in range(10) if self._happens("entry"))
        world.receive_share = lambda: rng.random() if self._happens("short") else 1.0
        world.message_s, world.store.transfer_s = self.link.message_s, self.link.transfer_s
        world.failing_renewals = self._failing_renewal
        world.store.lies_about = self._lie
        world.store.fails = self._fails
        # Who stalls holds up others only where they share threads.
        has_pools = rng.random() < 0.3 or self.climate.calls["stalled discovery"] > 0

        def pool(name: str, threads: int) -> Pool:
            if has_pools or name == "begun":  # what SQS takes while its caller goes on
                return HubPool(self.hub, name, min(threads, self._pool_threads))
            return in_calling_thread(name, threads)

        world.pool = pool
        return world

    def _next_lapse_at(self) -> float | None:
        found = [at for site in self.sites if (at := site.world.next_lapse_at()) is not None]
        return min(found, default=None)

    def _lapse(self) -> None:
        self.world.lapse()
        if self.neighbour is not None:
            self.neighbour.lapse()

    def share_mood(self) -> None:
        """Let the laws of all queues be as strict as those of the schedule's own."""
        if self.neighbour is not None:
            self.neighbour.share_mood()

    def _renewals_due(self, site: Site) -> list[tuple[str, float]]:
        """Return the messages that drivers that live hold, and when each is to be renewed."""
        running = [query for process, query in self._running.items() if process.is_alive]
        drivers = [driver for query in running for driver in query.drivers_of(site)]
        holds = [hold for driver in drivers for hold in driver._lease._holds.values()]
        return [(hold.receipt.message_id, hold.renew_at) for hold in holds]

    def is_overdue(self, site: Site, message_id: str) -> bool:
        """Return True if a driver that lives should have renewed the message a while ago."""
        overdue_at = self.hub.now() - VISIBILITY_S / 3
        return any(held == message_id and renew_at < overdue_at for held, renew_at in self._renewals_due(site))

    def _step(self, event: str) -> None:
        is_discovery = "discovery" in self.hub.current_name and event.startswith("before get epochs/")
        likely = 15 if is_discovery and self._renewals_due(self.site) else 5
        if is_discovery and self.hub.now() >= self._stalled_until and self._happens("stalled discovery", likely):
            pause_s = self.rng.choice(PAUSES_S)
            self.world.note(f"the journal stalls for {pause_s} s")
            self._stalled_until = self.hub.now() + pause_s
            self.laws.stalls(self._stalled_until)
        if is_discovery and self.hub.now() < self._stalled_until:
            self.hub.sleep(self._stalled_until - self.hub.now())
        if self._is_lent and event == "before ReceiveMessage" and "task" in self.hub.current_name:
            self._is_lent = False
            self._give_back()
        if event.startswith("before put epochs/") and self.laws.has_received(self._to_lose):
            self._to_lose = frozenset()
            self.world.note(f"kill -9 of {self.hub.current_process.name}, and producers go on")
            for _ in range(8):
                self._send()
            self.hub.kill(self.hub.current_process)
        self._go_on_of_the_spared(event)
        if self._has_outages and self.climate is not CLEAR:
            self._near_an_outage(event)
        self._near_an_end(event)
        self._near_a_claim(event)
        if event.startswith("before put epochs/"):
            self.laws.puts_link()
        if event.startswith("after put epochs/"):
            self.laws.has_put_link(event.removeprefix("after put "))
            factor = 15 if self._is_first_of_new() else 3
            if self._is_half_begun() and self._happens(HALF_BEGUN, factor):
                self.hub.outside(self._kill_all)
            if self.laws.has_just_deferred() and self._happens(EXPIRED, 50):
                self.hub.outside(self._let_expire)
        if event.startswith("after put skipped/"):
            self.laws.repairs.has_marked(event.removeprefix("after put skipped/").removesuffix(": taken"))
        if self._operators is not None and self.climate is not CLEAR:
            self._operators.step(event)
        if "task" in self.hub.current_name:
            if event.startswith("before put epochs/") and self._happens(OUTLIVED, 3):
                self.hub.outside(lambda: self._outlive("is planned"))
            if event == "before ReceiveMessage" and self._is_deleting() and self._happens(OUTLIVED, 10):
                self.hub.outside(lambda: self._outlive("after put drivers/"))
        rivals = next((count for name, count in NAMES.items() if event.startswith(name)), None)
        if rivals is not None and "query" in self.hub.current_name and self._happens("still at a name", 5):
            process, pause_s = self.hub.current_process, self.rng.choice(PAUSES_S)
            self.world.note(f"stands still for {pause_s} s before a name that may be gone then")
            process.stalled_until = self.hub.now() + pause_s
            for _ in range(min(rivals, 4 - len(self._processes("query")))):
                self.start_query()
        self.hub.step()

    def step_beside(self, event: str) -> None:
        """A step in the neighbour's world."""
        self._go_on_of_the_spared(event)
        self._near_an_end(event)
        self._near_a_claim(event)
        self.hub.step()

    def _go_on_of_the_spared(self, event: str) -> None:
        if self._spared and "query" in self.hub.current_name and self._spared_until in event:
            for task in self._spared:
                task.stalled_until = 0.0
            self._spared = []

    def _near_an_end(self, event: str) -> None:
        end = next((ENDS[each] for each in ENDS if re.search(each, event)), None)
        if end is not None and "query" in self.hub.current_name and self._happens(end, self._haste(end)):
            process = self.hub.current_process
            self._is_cut_due = self._has_died_with_catch
            self._has_died_with_catch = end == DIES_WITH_CATCH and bool(self.checkpoint.offsets)
            self.hub.outside(lambda: self._end_query(process))

    def _near_a_claim(self, event: str) -> None:
        """Begin another run of the query as one claims a journal; or let one stand still there, between two claims."""
        is_claim = "put drivers/" in event and "query" in self.hub.current_name
        if not (self._has_twins and is_claim) or self.climate is CLEAR or self._twins.random() < 0.6:
            return
        if len(self._processes("query")) < 2:
            self.start_query()
        else:
            self._spared_until = self._twins.choice(("after put drivers/", "is in the sink", "queues': "))
            self.world.note(f"stands still until another one '{self._spared_until}', with any of its claims")
            self._spared.append(self.hub.current_process)
            self.hub.current_process.stalled_until = self.hub.now() + LAPSE_S
            self.hub.outside(lambda: None)

    def _near_an_outage(self, event: str) -> None:
        """Cut the query's machine off a few steps after it has logged an offset, or as its first task is to put a link.

        Only its tasks go on, some time after another query, or the same one again, has begun.
        """
        is_query = "query" in self.hub.current_name
        plan = self._plans.get(self.hub.current_process)
        if is_query and self._steps_left < 0 and _LOGGED.search(event) and self._outages.random() < 0.3:
            self._steps_left = self._outages.randint(0, 40)
        elif is_query and self._steps_left >= 0:
            self._steps_left -= 1
            if self._steps_left < 0:
                self.hub.outside(self._cut_off)
        elif (
            plan is not None
            and event.startswith("before put epochs/")
            and not self.laws.has_links(plan)
            and self._outages.random() < 0.3
        ):
            self.hub.outside(self._cut_off)

    def _cut_off(self) -> None:
        queries = self._processes("query")
        for process in queries:
            self._end_query(process, spares_tasks=True)
        if queries:
            self._is_cut_due = True
            self._spare_tasks(self._outages.choice(("after put drivers/", "is planned", "is in the sink")))

    def _haste(self, end: str) -> float:
        """Return how much more likely than other faults that `end` is: after a catch that is lost, the other one."""
        if not self._has_died_with_catch:
            return 10.0 if end == DIES_WITH_CATCH and self.checkpoint.offsets else 5.0
        return 0.0 if end == DIES_WITH_CATCH else 15.0

    def _kill_all(self) -> None:
        self.world.note("all processes are killed")
        for process in (*self._processes("query"), *self._processes("task")):
            self.hub.kill(process)

    def _outlive(self, until: str) -> None:
        """A new query, with a checkpoint of its own, while tasks of the old one go on after the new one's `until`."""
        self._start_other()
        self._spare_tasks(until)
        for _ in range(4):
            self._send_more()

    def _spare_tasks(self, until: str) -> None:
        """Let the tasks that there are stand still until a query comes to the event `until`, and then go on."""
        self._spared, self._spared_until = self._processes("task"), until
        for task in self._spared:
            task.stalled_until = self.hub.now() + LAPSE_S

    def _let_expire(self) -> None:
        """The queue keeps nothing for more than a minute, for a moment; and more is sent."""
        model, url = self.world.model, self.world.url
        self.world.note("what is older than a minute expires")
        kept = model.call("GetQueueAttributes", {"QueueUrl": url, "AttributeNames": ["MessageRetentionPeriod"]})
        for attributes in ({"MessageRetentionPeriod": "60"}, kept["Attributes"]):
            model.call("SetQueueAttributes", {"QueueUrl": url, "Attributes": attributes})
            model.call("GetQueueAttributes", {"QueueUrl": url, "AttributeNames": ["All"]})
        for _ in range(4):
            self._send_within_limit()

    def _is_deleting(self) -> bool:
        """Return True if the process that runs has begun to delete a link, and has no answer yet."""
        return any(thread.name.endswith(" begun") for thread in self.hub.threads_of(self.hub.current_process))

    def _is_half_begun(self) -> bool:
        """Return True if a task runs in whose epoch some partitions have a link, and some have none."""
        plan = self._plans.get(self.hub.current_process)
        if plan is None:
            return False
        firsts = [Journal.segment_name(plan.epoch, index, plan.plan) for index in range(plan.partitions)]
        return 0 < sum(name in self.world.store.objects for name in firsts) < plan.partitions

    # The faults of calls

    def _happens(self, kind: str, factor: float = 1.0) -> bool:
        probability = self.climate.calls.get(kind, 0.0)
        return probability > 0 and self.rng.random() < probability * factor

    def _slows(self, kind: str) -> bool:
        """Maybe let the process wait for its call; never fail."""
        if self._happens(kind, 0.3):
            pause_s = self.rng.choice(PAUSES_S)
            self.world.note(f"the call takes {pause_s} s")
            self.hub.sleep(pause_s)
        return False

    def fault(self, action: str) -> str:
        self._slows("slow")
        factor = 10.0 if action.startswith("ChangeMessage") and self._is_first_of_new() else 1.0
        return next((kind for kind in ("refused", "throttled", "lost") if self._happens(kind, factor)), "")

    def _failing_renewal(self, receipt_handles: list[str]) -> str:
        dice = [kind for kind, rate in self.link.renewals.items() if self._links.random() < rate]
        now, may_fail = self.hub.now(), all(self._failures[each] < MOST_FAILURES for each in receipt_handles)
        may_hang = now >= self._may_hang_at
        fault = next((kind for kind in dice if may_fail and (may_hang or kind != "hangs")), "")
        if fault == "hangs":
            self._may_hang_at = now + self.world.options.heartbeat_s
        for each in receipt_handles:
            self._failures[each] = self._failures[each] + 1 if fault else 0
        return fault

    def _lie(self, name: str) -> str:
        self._slows("slow store")
        if name.startswith("check/"):
            return ""
        if "operator" in self.hub.current_name and self._operators is not None and (fate := self._operators.lie()):
            return fate
        return next((kind for kind in ("refuse", "raise", "deny", "conflict") if self._happens(kind)), "")

    def _fails(self, call: str) -> bool:
        return self._happens("fails", 0.2) or self._slows("slow store")

    def _poll(self, seconds: float) -> None:
        if self.checkpoint.offsets and self._happens(DIES_WITH_CATCH, 5):
            self._send()  # else a query that goes on seldom catches anything itself
        poll(self.hub, self.world, seconds)

    # What happens around

    def _chaos(self) -> None:
        neighbour = self.neighbour
        if neighbour is not None and self.climate is not CLEAR and neighbour.dice.random() < neighbour.trouble_share:
            neighbour.meet_trouble()
            return
        kinds = [kind for kind, weight in self.climate.chaos.items() if weight]
        if not kinds:
            return
        weights = [self.climate.chaos[kind] for kind in kinds]
        kind = self.rng.choices(kinds, weights)[0]
        actions: dict[str, Callable[[], None]] = {
            "send": self._send_more,
            "resend": self._resend,
            "receive elsewhere": self._receive_elsewhere,
            "copy of a task": self._copy_a_task,
            "kill the query": self._kill_query,
            "kill a task": self._kill_task,
            "stall": self._stall,
            "jump": self._jump,
            "rival": self._start_rival,
            "other checkpoint": self._start_other,
        }
        actions[kind]()

    def _send(self, groups: str = GROUPS) -> None:
        for _ in range(self.rng.randint(1, 5)):
            group = self.rng.choice(groups)
            self._numbers[group] += 1
            body = f"{group}{self._numbers[group]}"
            self._deduplication_ids.append((body, f"id-{body}"))
            self.laws.sent(self.world.put(body, f"id-{body}"))
        self.world.note(f"a producer sent up to {dict(self._numbers)}")

    def _send_more(self) -> None:
        """Send, unless so much was sent that its drain would be all that is left of the schedule."""
        neighbour = self.neighbour
        if neighbour is not None and neighbour.dice.random() < 0.5:
            if neighbour.sent_count() < MOST_SENT:
                neighbour.send()
        else:
            self._send_within_limit()

    def _send_within_limit(self) -> None:
        if len(self._deduplication_ids) < MOST_SENT:
            self._send()

    def _resend(self) -> None:
        """A producer that got no answer sends again. SQS knows the id for five minutes; then it is a new message."""
        if self.neighbour is not None and self.neighbour.dice.random() < 0.5:
            self.neighbour.resend()
            return
        body, deduplication_id = self.rng.choice(self._deduplication_ids)
        self.world.note(f"a producer sends {body} again")
        self.laws.sent(self.world.put(body, deduplication_id))

    def _receive_elsewhere(self) -> None:
        """Somebody else's consumer receives, and later lets lapse, gives back or deletes what it has."""
        if self.neighbour is not None and self.neighbour.dice.random() < 0.5:
            self.neighbour.receive_elsewhere()
            return
        held, self._elsewhere = self._elsewhere, []
        if not held or self.rng.random() < 0.5:
            self._elsewhere = self.world.receive_elsewhere(self.rng.randint(1, 10), self.rng.choice((1, 10, 60)))
        elif self.rng.random() < 0.5:
            self.world.note("somebody else deletes what it still holds")
            for message in held:
                self._try_elsewhere("DeleteMessage", message)
        else:
            self._elsewhere = held
            self._give_back()

    def _give_back(self) -> None:
        self.world.note("somebody else gives back what it still holds")
        for message in self._elsewhere:
            self._try_elsewhere("ChangeMessageVisibility", message, VisibilityTimeout=0)
        self._elsewhere = []

    def _lend(self) -> None:
        """Somebody else takes all that can be had, so that a run's first catch is of newer messages only."""
        self._elsewhere = []
        while taken := self.world.receive_elsewhere(10, 60):
            self._elsewhere += taken
        self._is_lent = True

    def writes_to_sink(self) -> None:
        """A sink may be slow."""
        if self.is_sink_slow:
            self.others_go_on()
            self.hub.sleep(LAPSE_S)
        elif self.rng.random() < 0.15:
            self.hub.sleep(self.rng.choice(PAUSES_S))

    def others_go_on(self) -> None:
        """While a sink writes slowly, others may send and receive."""
        if self.climate.chaos.get("receive elsewhere"):
            self._send()
            self._receive_elsewhere()

    def _try_elsewhere(self, action: str, message: dict[str, Any], **arguments: int) -> None:
        request = {"QueueUrl": self.world.url, "ReceiptHandle": message["ReceiptHandle"], **arguments}
        try:
            self.world.model.call(action, request)
        except SqsError as error:
            self.world.note(f"refused: {error.query_code}")

    def _copy_a_task(self) -> None:
        """A speculative copy, a repeat after success, or a leftover of an epoch long settled."""
        tasks = self._processes("task")
        if tasks and self.rng.random() < 0.7:
            (plan, site), copies = self._tasks[self.rng.choice(tasks)], 1
        elif self._recent:
            last = 30 if self._has_outages else 5
            (plan, site), copies = self.rng.choice(self._recent[-last:]), self.rng.randint(1, 2)
        else:
            return
        if site.launched[plan.epoch, plan.partition] < MOST_ATTEMPTS:
            for _ in range(copies):
                self.launch(plan, site, is_retried=True)

    def _kill_query(self) -> None:
        if self._query is not None and not self._query.is_done:
            self._end_query(self._query.process)

    def _end_query(self, process: Process, *, spares_tasks: bool = False) -> None:
        """Kill a driver; executors may notice late, or stand still and then go on."""
        self.world.note(f"kill -9 of {process.name}")
        self.hub.kill(process)
        for task in self._processes("task"):
            if spares_tasks:
                task.stalled_until = self.hub.now() + self.rng.choice(PAUSES_S)
            elif self.rng.random() < 0.5:
                self.hub.kill(task)

    def _processes(self, kind: str) -> list[Process]:
        return [process for process in self.hub.alive() if process.name.startswith(kind)]

    def _kill_task(self) -> None:
        tasks = self._processes("task")
        if tasks:
            task = self.rng.choice(tasks)
            self.world.note(f"kill -9 of {task.name}")
            self.hub.kill(task)

    def _stall(self) -> None:
        process = self.rng.choice(self.hub.alive() or [Process("nobody")])
        pause_s = self.rng.choice(PAUSES_S)
        self.world.note(f"{process.name} stands still for {pause_s} s")
        process.stalled_until = self.hub.now() + pause_s

    def _jump(self) -> None:
        pause_s = self.rng.choice(PAUSES_S)
        self.world.note(f"everybody stands still for {pause_s} s")
        self.hub.advance(pause_s)

    def _start_rival(self) -> None:
        """The cluster takes the driver for dead, perhaps because it stands still, and starts it again."""
        alive = self._processes("query")
        if len(alive) < 2:
            for process in alive:
                self._lose_sight_of(process, self.rng)
            self.start_query()

    def _lose_sight_of(self, process: Process, rng: random.Random) -> None:
        process.stalled_until = self.hub.now() + rng.choice((0, *PAUSES_S))
        self.world.note(f"{process.name} is taken for dead, until {process.stalled_until:.0f}")

    def _start_other(self) -> None:
        """Another query on the old journal: mostly a new one, or one of an older checkpoint.

        The one before is killed, or only taken for dead: then it goes on with what it was about to do.
        """
        if self._turns_left > 0:
            for process in self._processes("query"):
                spares_tasks = self.rng.random() < 0.6
                if self._turns.random() < 0.3:
                    self.laws.has_turns = True
                    self._lose_sight_of(process, self._turns)
                else:
                    self._end_query(process, spares_tasks=spares_tasks)
            self._take_turns()
            self.start_query()

    def _take_turns(self) -> None:
        self._turns_left -= 1
        checkpoints = self.laws.checkpoints
        older = [each for each in checkpoints if each is not self.checkpoint]
        if older and self._turns.random() < 0.4:
            self.world.note("an older checkpoint")
            self.laws.has_turns = True  # the journal may be its own still, if the newer one has not begun
            self.checkpoint = self._turns.choice(older)
        else:
            self._begin_anew()

    def _begin_anew(self) -> None:
        self.world.note("a new checkpoint")
        self.checkpoint = self._make_checkpoint()

    def _make_checkpoint(self) -> Checkpoint:
        made = Checkpoint() if self.neighbour is None else SharedCheckpoint()
        for site in self.sites:
            site.laws.checkpoints.append(site.history_in(made))
        return made

    def _is_over(self, checkpoint: Checkpoint) -> bool:
        """Return True if another query has taken a journal over since this checkpoint's began."""
        return any(site.laws.is_over(site.history_in(checkpoint)) for site in self.sites)

    def _is_first_of_new(self) -> bool:
        """Return True if a new query's first micro-batch runs, with messages that an older one's tasks deleted."""
        return len(self.checkpoint.offsets) == 1 < len(self.laws.checkpoints)

    def _cut_checkpoint(self) -> None:
        """Perhaps lose the last offset of Spark's log: its machine was cut off before it was durable."""
        if isinstance(self.checkpoint, SharedCheckpoint):
            self._cut_shared(self.checkpoint)
            return
        checkpoint, batch = self.checkpoint, len(self.checkpoint.offsets) - 1
        if (
            batch < 1
            or batch in checkpoint.committed
            or self._processes("query")
            or (self._cuts.random() < 0.5 and not self._is_cut_due)
        ):
            return
        self._is_cut_due = False
        lost = checkpoint.offsets.pop()
        if checkpoint is self.laws.checkpoints[0]:
            self._begun = max(self._begun, batch + 1)
        self.laws.loses(checkpoint, lost, batch)
        rows = set() if batch in checkpoint.sink else self.laws.sealed(lost, to_serve=True)
        self._lost_batches.append((checkpoint, batch, rows))
        self.world.note(f"the offset log loses batch {batch}, which is {lost.epoch}")

    def lose_batch(self) -> None:
        """Lose the last batch of a query over two queues, as if it had died just before Spark's commit log had it."""
        assert isinstance(self.checkpoint, SharedCheckpoint)
        batch = len(self.checkpoint.log) - 1
        self.checkpoint.done.discard(batch)
        for site in self.sites:
            site.history_in(self.checkpoint).committed.discard(self.checkpoint.moves[batch].get(site.key, -1))
        self._is_cut_due = True
        self._cut_shared(self.checkpoint)

    def _begins(self, site: Site, checkpoint: SharedCheckpoint, batch: int) -> bool:
        """Return True if the batch has the first epoch of a queue: without its entry, nothing leads to that."""
        offset, before = checkpoint.log[batch].of(site.key), checkpoint.log[batch - 1].of(site.key)
        return offset is not None and bool(offset.plan) and not (before and before.plan)

    def _cut_shared(self, checkpoint: SharedCheckpoint) -> None:
        """The same of a query over two queues: it loses the epochs of both."""
        batch = len(checkpoint.log) - 1
        if (
            batch < 1
            or batch in checkpoint.done
            or any(self._begins(site, checkpoint, batch) for site in self.sites)
            or self._processes("query")
            or (self._cuts.random() < 0.5 and not self._is_cut_due)
        ):
            return
        self._is_cut_due = False
        checkpoint.log.pop()
        moved = checkpoint.moves.pop()
        if checkpoint is self.laws.checkpoints[0]:
            self._begun = max(self._begun, batch + 1)
        for site in self.sites:
            if site.key not in moved:
                continue
            history = site.history_in(checkpoint)
            lost = history.offsets.pop()
            site.laws.loses(history, lost, batch)
            rows = set() if batch in checkpoint.sinks else site.laws.sealed(lost, to_serve=True)
            self._lost_batches.append((history, moved[site.key], rows))
        self.world.note(f"the offset log loses batch {batch}, which is of {sorted(moved)}")

    # Processes of ours

    def start_query(
        self,
        *,
        until_drained: bool = False,
        triggers: int = 0,
        lends: bool = False,
        drains: bool = False,
        story: Callable[[SharedQuery], None] | None = None,
        wrapped: bool = False,
    ) -> Thread:
        """Start the query, for so many triggers, until all is drained, for a story, or for as long as the dice say.

        With `drains` it runs with AvailableNow; with `lends` too, and the first task that has what waited dies (see
        `_lend`). If it is `wrapped` it is that for one micro-batch, under the wrapper.
        """
        self._queries += 1
        process = Process(f"query {self._queries}")
        if self._changes_mode:
            mode = self._modes_of_runs.choice(MODES)
            self.world.note(f"from now on deleteAfter is {mode}")
            for site in self.sites:
                site.world.options = replace(site.world.options, delete_after=mode)
        rivals = self._processes("query")
        if rivals:
            self._with_rivals.update([process, *rivals])
        if self.climate is CLEAR:
            self._begun_in_quiet.add(process)
        checkpoint, is_free = self.checkpoint, not (until_drained or triggers or story or wrapped or drains)
        for site in self.sites:
            site.laws.checkpoint_of[process.name] = site.history_in(checkpoint)
        triggers = triggers or self.rng.randint(1, 8)
        # Leftovers hide messages again and again, and AvailableNow waits for no longer than one timeout.
        with_leftovers = bool(self._processes("task")) or self.climate.chaos.get("copy of a task", 0.0) > 0
        # What an earlier query has sealed counts as read, so a later one that takes it over reads it all.
        is_first = checkpoint is self.laws.checkpoints[0]
        reads = self._reads if is_first else lambda batch, count: range(count)
        available_now = drains or (is_free and self.tells_start and self.rng.random() < 0.2)
        is_followed = available_now and self.rng.random() < 0.5
        is_wrapped = wrapped or (is_free and self.wraps and self.rng.random() < 0.4)
        loses_attempt = available_now and not self.is_calm and not with_leftovers and self.rng.random() < 0.5
        if lends:
            available_now = is_followed = loses_attempt = True

        def run() -> None:
            try:
                began = {site: site.laws.begins() for site in self.sites}
                first = {site: max(0, len(site.history_in(checkpoint).offsets) - 1) for site in self.sites}
                aside = self.laws.marked() & self.world.present()
                self._to_lose = began[self.site].waiting if loses_attempt else frozenset()
                self._is_lent = False
                query = self._make_query(checkpoint, available_now=available_now, is_wrapped=is_wrapped, reads=reads)
                self._running[process] = query
                counted = {site: site.world.counted for site in self.sites}
                if available_now and is_followed:
                    self.hub.sleep(2)  # SQS tells its time in whole seconds
                    if lends:
                        self._lend()
                    for _ in range(6):
                        self._send(OTHER_GROUPS if lends else GROUPS)
                query.resume()
                for history in query.histories:
                    history.site.laws.goes_on(history.checkpoint, history.offsets)
                if until_drained:
                    self._drain(query)
                    return
                if story is not None:
                    assert isinstance(query, SharedQuery)
                    story(query)
                    return
                if available_now:
                    while query.trigger():
                        pass
                    # Where nothing of its last micro-batch was read, it ends.
                    counted[self.site] -= len(aside - self.world.present())  # it has settled these, and served none
                    for history in query.histories:
                        site, offsets = history.site, history.offsets
                        tasked = [batch for batch in range(first[site], len(offsets)) if offsets[batch].partitions]
                        is_unread = is_first and bool(tasked) and self._mode_of(query, history, tasked[-1]) == "none"
                        is_served = site.is_served_since(began[site].at)
                        if process not in self._with_rivals and not is_unread and is_served:
                            run = history.told(
                                began[site], first[site], counted[site], waits_for_holds=not with_leftovers
                            )
                            site.laws.ended_well(run)
                    return
                for _ in range(1 if is_wrapped else triggers):
                    query.trigger()
                    self.hub.sleep(self.rng.choice((0, 0, 0, 1, 5)))
            except Exception as error:
                self._query_failed(process, error)

        how = " with AvailableNow" if available_now else " with AvailableNow, wrapped" if is_wrapped else ""
        self.world.note(f"{process.name} starts{how}")
        self._query = self.hub.spawn(process, run)
        return self._query

    def _make_query(self, checkpoint: Checkpoint, **arguments: Any) -> SimulatedQuery | SharedQuery:
        if isinstance(checkpoint, SharedCheckpoint):
            return SharedQuery(self, checkpoint, tells_start=self.tells_start, **arguments)
        return SimulatedQuery(self, checkpoint, tells_start=self.tells_start, **arguments)

    def _mode_of(self, query: SimulatedQuery | SharedQuery, history: History, batch: int) -> str:
        """Return how much is read of a batch, by its number in the queue's own history."""
        if isinstance(query, SharedQuery):
            batch = query.checkpoint.batch_of(history.site.key, batch)
        return self._mode(batch)

    def _drain(self, query: SimulatedQuery | SharedQuery) -> None:
        most = LONGEST_DRAIN + len(self._deduplication_ids)  # in the worst case it takes one at a time
        if self.neighbour is not None:
            most += LONGEST_DRAIN + self.neighbour.sent_count()
        for _ in range(most):
            offered = [(site, site.laws.offers()) for site in self.sites]
            if query.trigger():
                continue
            if all(site.world.depth() == (0, 0) for site in self.sites):
                self._audit_idleness(query)
                return
            for site, each in offered:
                site.laws.idle_over(each)
        depths = [site.world.depth() for site in self.sites]
        self.laws.violate(f"progress: {depths[0] if len(depths) == 1 else depths} are left after {most} micro-batches")

    def _audit_idleness(self, query: SimulatedQuery | SharedQuery) -> None:
        """An empty queue costs one long poll, and no micro-batch."""
        if isinstance(query, SharedQuery):
            self._audit_shared_idleness(query)
            return
        first, began_at = len(self.world.trace), self.hub.now()
        if query.trigger():
            return  # something came meanwhile
        own = f"{self.hub.current_process.name} "
        steps = [event for _, who, event in self.world.trace[first:] if f"{who} ".startswith(own)]
        calls = [event for event in steps if event.startswith("after ") and "/" not in event]
        if calls != ["after ReceiveMessage "] or self.hub.now() - began_at != self.world.options.wait_time_s:
            self.laws.violate(f"idle is cheap: {calls} in {self.hub.now() - began_at} s")

    def _audit_shared_idleness(self, query: SharedQuery) -> None:
        """Two empty queues cost one long poll each, again and again, a count each minute, and no micro-batch."""
        wait_s = self.world.options.wait_time_s
        first, began_at = len(self.world.trace), self.hub.now()
        for _ in range(5):
            if query.trigger():
                return  # something came meanwhile
        own, spent_s = f"{self.hub.current_process.name} ", self.hub.now() - began_at
        steps = [event for _, who, event in self.world.trace[first:] if f"{who} ".startswith(own)]
        calls = Counter(event for event in steps if "after " in event and "/" not in event)
        labels = [site.world.label for site in self.sites]
        polls = [calls.pop(f"{label}after ReceiveMessage ", 0) for label in labels]
        counts = [calls.pop(f"{label}after GetQueueAttributes ", 0) for label in labels]
        is_cheap = all(4 <= each <= 6 for each in polls) and max(counts) <= 1
        if calls or spent_s != 5 * wait_s or not is_cheap:
            self.laws.violate(f"idle is cheap: {polls} polls, {counts} counts and {dict(calls)} in {spent_s} s")

    def _reads(self, batch: int, count: int) -> range | None:
        mode = self._mode(batch)
        if mode == "none":
            return None
        return range(count) if mode == "all" else range((count + 1) // 2)

    def _mode(self, batch: int) -> str:
        """The same for every replay of the batch, as it would be for a function of the batch id."""
        return self._modes[batch] if batch < len(self._modes) else "all"

    def read_nothing_of(self, batch: int) -> None:
        """Have nobody look at the rows of a batch that is to come, of the schedule's first query."""
        self._modes += ["all"] * (batch - len(self._modes)) + ["none"]

    def launch(self, plan: PartitionPlan, site: Site, *, is_retried: bool = False) -> Attempt:
        """Start an attempt of a task. `is_retried` says that nobody else tries again if it fails."""
        key = plan.epoch, plan.partition
        site.launched[key] += 1
        attempt = Attempt(plan, site)
        process = Process(f"task {plan.epoch}/{plan.partition} #{site.launched[key]}{site.suffix}")
        laws, may_go = site.laws, self.neighbour is not None
        most_links = self._stops.randint(0, 3) if self._stops.random() < self._stop_share else None

        def run() -> None:
            rows: list[Row] = []
            try:
                if most_links is not None:
                    laws.served_partly(plan, read(site.world, plan, most_links, may_go=may_go))
                try:
                    read(site.world, plan, rows=rows, may_go=may_go)
                except BaseException:
                    laws.served_partly(plan, rows)
                    raise
            except Exception as error:
                attempt.error = error
                self._task_failed(process, error)
                if is_retried:
                    self.launch(plan, site)
            else:
                laws.served(plan, rows)
                attempt.rows = rows

        if self.climate is CLEAR:
            self._begun_in_quiet.add(process)
        self._recent.append((plan, site))
        self._tasks[process] = plan, site
        if site is self.site:
            self._plans[process] = plan
        laws.launched(process.name.removesuffix(site.suffix), plan)
        attempt.thread = self.hub.spawn(process, run)
        return attempt

    def _task_failed(self, process: Process, error: Exception) -> None:
        self.world.note(f"{process.name} failed: {type(error).__name__}: {error}")
        is_late = isinstance(error, (EpochSettledError, FencedError))
        plan, site = self._tasks[process]
        name = process.name.removesuffix(site.suffix)
        if is_late:
            site.laws.came_late(name, plan)
        site.laws.failed(name)
        if not is_late:  # else a leftover's proper end
            self.judge(process, error, SqsFifoError, never=(DataLossError, JournalCorruptError))

    def _query_failed(self, process: Process, error: Exception) -> None:
        self.world.note(f"{process.name} failed: {type(error).__name__}: {error}")
        is_over = any(site.laws.is_over(site.laws.checkpoint_of[process.name]) for site in self.sites)
        if isinstance(error, DataLossError) and is_over:
            return  # another query has taken the journal over
        if isinstance(error, DataLossError) and "triggerAvailableNowWrapper" in str(error) and self._has_lost(process):
            self.wraps = False  # as the text asks for
            return
        self._judge_refusal(process, error)
        if process in self._with_rivals and "goes back" not in str(error):
            self.judge(
                process, error, (SqsFifoError, ConcurrentUpdateError, TaskFailedError), never=JournalCorruptError
            )
        else:
            self.judge(process, error, (SqsFifoError, TaskFailedError), never=(DataLossError, JournalCorruptError))

    def _has_lost(self, process: Process) -> bool:
        """Return True if Spark's log has lost an entry of the query's, and none is in its place."""
        histories = [site.laws.checkpoint_of[process.name] for site in self.sites]
        return any(
            each is history and len(each.offsets) <= batch
            for each, batch, _ in self._lost_batches
            for history in histories
        )

    def _judge_refusal(self, process: Process, error: Exception) -> None:
        """One queue of several that is not there, or not ours to call, ends nothing."""
        if self.neighbour is not None and is_about_queue(error) and not isinstance(error, TransientQueueError):
            self.laws.violate(f"progress: {process.name} ends as one queue of two is refused: {error}")

    def judge(self, process: Process, error: Exception, expected: Errors, *, never: Errors) -> None:
        if not isinstance(error, expected):
            self.world.note("".join(traceback.format_exception(error)))
        is_quiet = self.laws.is_calm or (process in self._begun_in_quiet and process not in self._with_rivals)
        if not isinstance(error, expected) or isinstance(error, never) or is_quiet:
            self.laws.violate(f"spoken errors: {process.name} ended with {type(error).__name__}: {error}")

    # The whole

    def play(self) -> None:
        """Let it happen, until all is audited or the first law is broken."""
        with self._in_place():
            try:
                self._play()
            except StuckError as error:
                self.laws.violate(f"progress: {error}")
            finally:
                self.hub.end()

    def _play(self) -> None:
        hub, rng = self.hub, self.rng
        hub.chaos = self._chaos
        hub.next_chaos = lambda: rng.randint(1, 2 * self.climate.steps_between)
        for _ in range(rng.randint(1, 6)):
            self._send()
        if self.neighbour is not None:
            for _ in range(self.neighbour.dice.randint(1, 6)):
                self.neighbour.send()
        runs = 1 if self.is_calm else rng.randint(1, 4)
        if self._has_outages:
            runs = self._outages.randint(3, 8)
        for _ in range(runs):
            self.start_query()
            self.run_query()
            if self.laws.violations:
                return
            if self._is_over(self.checkpoint):
                self._begin_anew()
            if self._query is not None:
                self.laws.is_calm = False
                if not (self._has_outages and self._query.is_done):
                    self._end_query(self._query.process)
                self._cut_checkpoint()
                takes_turns = (self._has_outages or len(self.laws.checkpoints) > 1) and self._turns.random() < 0.5
                if takes_turns and not self._processes("query"):  # one that lives would be a turn of its own
                    self._take_turns()
            if self._operators is not None:
                self._operators.operate()
            if rng.random() < 0.4:
                self._let_pass(rng.choice((5, VISIBILITY_S + 1, 200, 400)))
        self.world.note("-- the faults are over")
        self.climate = CLEAR
        if self.neighbour is not None:
            self.neighbour.be_well()
        if self.world.bucket is not None:
            self.world.bucket.clear()
        if self._operators is not None:
            self._operators.end()
        if self.laws.has_turns:
            for process in self._processes("query"):
                self.hub.kill(process)  # it may settle what leaves the other one behind
            if self._is_over(self.checkpoint):
                self._begin_anew()
        oldest = self.laws.checkpoints[0]
        begun = max(self._begun, len(oldest.log if isinstance(oldest, SharedCheckpoint) else oldest.offsets))
        self._modes = self._modes[:begun]  # a batch that runs again runs as before
        hub.advance(61)  # what others hold
        if rng.random() < 0.3:
            self._run_far_apart()
            if self.laws.violations:
                return
        self.start_query(until_drained=True)
        self.run_query()
        hub.run(lambda: bool(self.laws.violations) or not hub.alive())
        if self.laws.violations:
            return
        # What leftovers of tasks wrote, and the ledger of the last epoch, go with the next commit.
        self.drain_once_more()
        if not self.laws.violations and self._replays.random() < 0.15:
            self._replay_in_time()
        if not self.laws.violations and self.tells_start and self._lends.random() < 0.05:
            self._lose_what_waits()
        if not self.laws.violations and self.neighbour is not None:
            self.union_laws.tell_one()

    def drain_once_more(self) -> None:
        """Send to each queue, drain all, and audit."""
        self._send()
        if self.neighbour is not None:
            self.neighbour.send()
        self.start_query(until_drained=True)
        self.run_query()
        if not self.laws.violations:
            self._audit()

    def _audit(self) -> None:
        self.share_mood()
        for site in self.sites:
            site.laws.audit()
        for each in self.laws.checkpoints:
            if isinstance(each, SharedCheckpoint):
                self.union_laws.audit_sink(each)

    def _lose_what_waits(self) -> None:
        """An AvailableNow run whose first task dies with all that waited, while what is newer is there to be served.

        It comes last, with dice of its own, so that a seed plays the same up to here.
        """
        self.laws.is_calm = False
        for process in self.hub.alive():
            self.hub.kill(process)
        self.hub.advance(LAPSE_S)
        self._send()
        self.start_query(lends=True)
        self.run_query()
        if self.laws.violations:
            return
        self.start_query(until_drained=True)
        self.run_query()
        if not self.laws.violations:
            self._audit()

    def _replay_in_time(self) -> None:
        """The query is killed while its sink writes, and started again before what it holds lapses.

        It comes last, with dice of its own, so that a seed plays the same up to here.
        """
        self.laws.is_calm = False
        self.is_sink_slow = True
        for _ in range(self._replays.randint(1, 4)):
            self._send()
        self.start_query(triggers=1)
        self._let_pass(self._replays.choice((1, 5, 12, 22)))
        for process in self.hub.alive():
            self.hub.kill(process)
        self.hub.advance(self._replays.choice((0, 5, 12, 22)))
        self.laws.takes_over(self.checkpoint)
        self.world.failing_renewals = lambda receipt_handles: (
            ""
        )  # of what it holds by a moment, one that fails is one too many
        self.start_query(triggers=1)
        self.run_query()
        self.laws.has_taken_over()
        self.is_sink_slow = False
        if not self.laws.violations:
            self.drain_once_more()

    def _run_far_apart(self) -> None:
        """Trigger.Once, again and again, when all holds of the run before are long over: each serves something new.

        Of any queue. Or it settles what was moved aside, and has received nothing else. A run that meets messages which
        somebody has received before may leave them to the next one. One whose messages have expired since it received
        them, or stand behind such in their groups, counts for nothing. And the first run has nothing new where it has
        to repeat a batch that Spark's log has lost, under the same batch id, if the sink has it, or if all its messages
        were moved aside since. Of two queues, one may have a micro-batch that serves nothing new, while the other has
        not yet written down what it has received: that comes with the next run.
        """
        self.laws.is_calm = False
        for process in self.hub.alive():
            self.hub.kill(process)
        histories = [site.history_in(self.checkpoint) for site in self.sites]
        repeats = any(
            history is each and batch not in each.committed and rows <= self.laws.marked()
            for history, batch, rows in self._lost_batches
            for each in histories
        )
        misses = -repeats
        for _ in range(self.rng.randint(3, 12)):
            self.hub.advance(self.rng.choice((LAPSE_S, 61, 600)))
            served = self._served()
            waiting = self._present() - served - self.laws.marked()
            marked = self._present() & self.laws.marked()
            known, times = self._known(waiting | marked), self._known(waiting)
            self.start_query(triggers=1)
            self.run_query()
            if self.laws.violations or not waiting:
                return
            if self._query is not None:
                self.hub.kill(self._query.process)
            has_settled = bool(marked - self._present() - self.laws.taken_away())
            has_settled_alone = has_settled and self._known(waiting) == times
            received = {each for each, count in self._known(waiting).items() if count > times.get(each, 0)}
            misses = 0 if self._served() - served or has_settled_alone else misses + (not self._are_lost(received))
            has_met_known = self._known(known) != known
            if misses > int(has_met_known) + len(self.sites) - 1 and waiting & self._present():
                self.laws.violate(f"progress: a run far from the last one serves nothing new, and {len(waiting)} wait")
                return

    def _served(self) -> set[str]:
        """Return the ids of what the query of the present checkpoint has put into its sink."""
        histories = [site.history_in(self.checkpoint) for site in self.sites]
        return {row.message_id for history in histories for rows in history.rows() for row in rows}

    def _present(self) -> set[str]:
        """Return the ids of all messages of all queues."""
        return set[str]().union(*(site.world.present() for site in self.sites))

    def _known(self, messages: Iterable[str]) -> dict[str, int]:
        """Return how often each of the messages was received, of those that were."""
        wanted = list(messages)
        return {each: count for site in self.sites for each, count in site.laws.known(wanted).items()}

    def _are_lost(self, received: set[str]) -> bool:
        """Return whether `Laws.are_lost` of all these, each by its own queue."""
        parts = [received & site.laws.known(received).keys() for site in self.sites]
        return any(parts) and all(
            site.laws.are_lost(part) for site, part in zip(self.sites, parts, strict=True) if part
        )

    def run_query(self) -> None:
        self.hub.run(lambda: bool(self.laws.violations) or self._query is None or self._query.is_done)

    def _let_pass(self, seconds: float) -> None:
        until = self.hub.now() + seconds
        timer = self.hub.spawn(Process("time"), lambda: self.hub.sleep(seconds))
        self.hub.run(lambda: timer.is_done or bool(self.laws.violations) or self.hub.now() >= until)

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """Put the simulated parts where the real ones are, and take every random number from the seed."""
        dice = random.Random(f"{self.seed}/ids")
        random.seed(self.seed)  # tenacity's pauses

        routed = RoutedClient(*(site.world for site in self.sites))

        def client(*_: object) -> SqsClient | RoutedClient:
            return self.world.client if self.neighbour is None else routed

        def new_id() -> uuid.UUID:
            return uuid.UUID(int=dice.getrandbits(128), version=4)

        def laws_of(journal: Journal) -> Laws:
            return next((site.laws for site in self.sites if site.world.store is journal.store), self.laws)

        def claim(journal: Journal, about: Mapping[str, Any], *, after: int | None = None) -> int:
            number = really_claim(journal, about, after=after)
            laws_of(journal).has_claimed(number)
            return number

        def release(queue: Queue, receipts: Iterable[Receipt]) -> Counter[Outcome]:
            asked = list(receipts)
            next(site for site in self.sites if site.world.url == queue._url).laws.asks_to_release(asked)
            return really_release(queue, asked)

        really_claim, really_release = Journal.claim, Queue.release
        with (
            mock.patch("uuid.uuid4", new_id),
            mock.patch("sqs_fifo_spark.source.journal_objects.Journal.claim", claim),
            mock.patch("sqs_fifo_spark.source.queue.Queue.release", release),
            mock.patch("sqs_fifo_spark.source.owner._machine", return_value=""),  # so that operators have to ask
            mock.patch("sqs_fifo_spark.source.lease.threading", Threading(self.hub)),
            mock.patch("sqs_fifo_spark.source.driver.chains.threading", Threading(self.hub)),
            mock.patch("sqs_fifo_spark.source.driver.member.threading", Threading(self.hub)),
            mock.patch("sqs_fifo_spark.source.driver.union.threading", Threading(self.hub)),
            mock.patch("sqs_fifo_spark.source.driver.planning.MESSAGES_PER_PARTITION", 4),
            mock.patch("sqs_fifo_spark.source.task.receiver.MAX_ENTRIES", self._most_in_a_receive),
            mock.patch("sqs_fifo_spark.source.task.demand.MAX_ENTRIES", self._most_in_a_receive),
            mock.patch("sqs_fifo_spark.source.task.attempt.LINK_BYTES", self._most_kept),
            mock.patch("sqs_fifo_spark.source.plan.LONGEST_INLINE", self._longest_inline),
            mock.patch.dict("sqs_fifo_spark.source.receive._portions", clear=True),
            mock.patch("sqs_fifo_spark.aws.client.sqs_client", client),
            self._operators.in_place() if self._operators is not None else nullcontext(),
        ):
            yield
