"""The laws, audited from the histories of the queue and of the sinks: as things happen, and when all is over."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from sqs_fifo_spark.local.events import Event
from sqs_fifo_spark.source.ledger import decode_ledger
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.offset import EpochPlan, Offset
from sqs_fifo_spark.source.plan import PartitionPlan
from sqs_fifo_spark.source.segment import Head, decode
from tests.simulation.repair_laws import RepairLaws
from tests.simulation.world import VISIBILITY_S, Checkpoint, Row, World

_TASK = re.compile(r"task \d+/\d+ #\d+")
_QUERY = re.compile(r"query \d+")
_NUMBER = re.compile(r"\d+")
CLAIM = re.compile(r"drivers/(\d+)\.json")


class Offered(NamedTuple):
    """The messages of a queue at some time."""

    at: float
    waiting: frozenset[str]
    """Those in no committed batch."""
    times: Mapping[str, int]
    """For each that is free, its receives before, or those of its group by somebody else."""
    held: frozenset[str]
    elsewhere: frozenset[str]
    """Those that somebody else holds, be they copies of served ones."""
    taken: int
    """Number of receives by somebody else."""
    received: int
    """Number of receives by anybody."""


class _Served(NamedTuple):
    """A row's place in a sink: its partition and epoch."""

    row: Row
    epoch: EpochPlan
    partition: int


class _Read(NamedTuple):
    """The rows of a read of a partition, whole or in part."""

    rows: list[Row]
    skipped: frozenset[str]
    """Ids that its plan left out."""

    def but(self, other: _Read) -> list[Row]:
        """Return the rows that the other one was to give, too."""
        return [row for row in self.rows if row.message_id not in other.skipped]


def _begin_alike(one: _Read, other: _Read) -> bool:
    rows, others = one.but(other), other.but(one)
    count = min(len(rows), len(others))
    return rows[:count] == others[:count]


def _place(plan: PartitionPlan) -> tuple[int, int, int]:
    return plan.epoch, plan.plan, plan.partition


class AvailableNowRun(NamedTuple):
    """A run with AvailableNow that has ended well."""

    query: str
    began: Offered
    last: Offered
    """The queue when its last micro-batch with tasks began."""
    polled: Offered
    """The queue when its last long poll began, or the same if it made none since."""
    received_old: int
    """Number of receives by the end of the last micro-batch that served an old message, or by the run's start."""
    rows: int
    counted: int
    """Number of messages that the queue counted at its beginning."""
    lapse_at: float
    """Time by which all holds of its last tasks, or of its beginning, had lapsed."""
    newer_at: float
    """End of the first micro-batch of newer messages only, after as many were served as `counted`."""
    is_newer: bool
    """True if its last micro-batch with tasks served something, and nothing of the messages that had waited."""
    waits_for_holds: bool
    """True if no late task hides messages again and again, so that it sees all holds lapse."""


class Laws:
    """The laws, and breaches of them in `violations`. It listens to the queue from the start."""

    def __init__(
        self, world: World, *, is_calm: bool, is_overdue: Callable[[str], bool] = lambda message_id: True
    ) -> None:
        self.violations: list[str] = []
        self.is_calm = is_calm
        """Nothing happens that excuses a lost lease."""
        self.checkpoints: list[Checkpoint] = []
        self.checkpoint_of: dict[str, Checkpoint] = {}
        """That of each query, by the query's name."""
        self.claim_of: dict[str, int] = {}
        """The last claim of each query, by the query's name."""
        self.has_turns = False
        """True if a query went on, or came back, after another one had been started on the journal."""
        self._deleting: set[EpochPlan] = set()
        """The epochs whose tasks delete: only there may a group stand in several partitions."""
        self._world = world
        self._name: dict[str, str] = {}
        """The sent messages, by message id."""
        self._sequence: dict[str, int] = {}
        """Its place in the queue, by message id."""
        self._delivered: set[str] = set()
        """Messages in a batch that Spark has committed."""
        self._gone: dict[str, float] = {}
        """Messages that expired, were moved to a dead-letter queue, or deleted by somebody else; and the time."""
        self._ours: set[str] = set()
        """Messages that our side received last."""
        self._others: set[str] = set()
        """Messages that somebody else received last."""
        self._taken: list[str] = []
        """All that somebody else has received, in that order."""
        self._received: dict[str, tuple[str, int]] = {}
        """The thread of ours that received it last, or "" for somebody else; and the number of that receive."""
        self.receives = 0
        """Number of all receives. Much happens at one time, so that times do not say what came first."""
        self._receives: dict[str, int] = {}
        """Its number of receives, while somebody holds it."""
        self._epoch: dict[str, int] = {}
        """The epoch whose task received it last."""
        self._plans: dict[str, PartitionPlan] = {}
        """Each task's plan, by the name of its process."""
        self._makers: dict[int, tuple[PartitionPlan, str]] = {}
        """The query that has made a plan, by the plan's identity."""
        self._handed: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
        """The groups of which a query has handed something to tasks of an epoch."""
        self._decided: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
        """Messages that a query's plans carry for an epoch, also plans that no task was given."""
        self._chains: defaultdict[tuple[int, int, int], dict[str, float]] = defaultdict(dict)
        """Messages that a chain has served or deferred, and the time of the link, before the epoch was settled."""
        self._first_links: defaultdict[tuple[int, int, int], frozenset[str]] = defaultdict(frozenset)
        """Messages of the first link of each of these chains."""
        self._has_just_deferred = False
        self._newest_claim: dict[str, int] = {}
        """The highest claim in the last list of claims of each thread."""
        self._read_in: defaultdict[str, set[EpochPlan]] = defaultdict(set)
        """In which epochs, of which plans, tasks received it, or a driver handed it."""
        self._receives_by_task: defaultdict[str, list[tuple[str, PartitionPlan, float]]] = defaultdict(list)
        """The tasks that received it, and the times."""
        self._putters: dict[tuple[tuple[int, int, int], str], str] = {}
        """The task that has put a message into a partition's chain first."""
        self._times: Counter[str] = Counter()
        """Its number of receives in all."""
        self._times_elsewhere: Counter[str] = Counter()
        """Receives of a group by somebody else."""
        self._polled: dict[str, Offered] = {}
        """The queue when the last long poll of each query began."""
        self._brought: set[str] = set()
        """The queries whose last long poll has brought something, after their last micro-batch with tasks began."""
        self._put: defaultdict[str, set[str]] = defaultdict(set)
        """Messages in the links that each task has put, also in those that were dropped since."""
        self._told: defaultdict[str, set[str]] = defaultdict(set)
        """Messages in the answers to each task; it knows of no other message that it has received."""
        self._released: defaultdict[str, set[str]] = defaultdict(set)
        """Messages that each task has asked to release."""
        self._is_putting: set[str] = set()
        """Tasks that put a link, and were not told that it is theirs."""
        self._is_overdue = is_overdue
        self._stalled_until = 0.0
        self._taken_over: set[str] = set()
        """Messages that a driver that nothing harms has to hold from its start."""
        self._taken_over_at = 0.0
        self._over = 0
        self.logged: set[tuple[int, int]] = set()
        """The epochs that Spark was given, with the names of their plans, also those that a log has lost."""
        self._lost: dict[int, tuple[EpochPlan, EpochPlan, int, int]] = {}
        """By the checkpoint's identity: the settled epoch, the one after it that was lost, its number, its batch."""
        self._heads: dict[str, tuple[bytes, Head]] = {}
        self._shown: dict[tuple[int, int, int], _Read] = {}
        self._shown_partly: defaultdict[tuple[int, int, int], list[_Read]] = defaultdict(list)
        self.repairs = RepairLaws(world, self.violate)
        self._marked = self.repairs.marked
        world.model.on_event(self._on_event)
        world.on_refused = self._refused
        world.on_release = self._releases
        world.on_told = self._has_told
        world.store.on_listed = self._has_listed
        world.on_poll = self._polls
        world.on_polled = self._has_polled

    def violate(self, law: str) -> None:
        self.violations.append(law)
        self._world.note(f"!! {law}")

    # As it happens

    def sent(self, row: Row) -> None:
        self._name[row.message_id] = row.body
        self._sequence[row.message_id] = row.sequence
        self.repairs.sent(row)

    def planned(self, plans: list[PartitionPlan]) -> None:
        """A driver has told what each task of an epoch is to read."""
        self._deleting.update(EpochPlan(plan.epoch, plan.plan) for plan in plans if plan.deletes)
        for plan in plans:
            self._decided[plan.epoch, self._query()].update(*self._world.carried(plan).values())

    def launched(self, task: str, plan: PartitionPlan) -> None:
        """A task begins: what its plan hands over is received in its epoch, though the driver did it."""
        self._plans[task] = plan
        _, maker = self._makers.setdefault(id(plan), (plan, self._query()))  # a copy of a task has the same one
        carried = self._world.carried(plan)
        caught = [each for name, message_ids in carried.items() if "/caught-" in name for each in message_ids]
        self._handed[plan.epoch, maker].update(map(self._group, caught))
        for message_id in caught:
            self._read_in[message_id].add(EpochPlan(plan.epoch, plan.plan))

    def marked(self) -> set[str]:
        """Return the ids of what no query is to serve that begins now."""
        return set(self._marked)

    def served(self, plan: PartitionPlan, rows: list[Row]) -> None:
        """One content: all reads of a partition of a plan give the same rows in the same order.

        But for what an operator has moved aside: all plans of drivers that have begun since leave that out.
        """
        key, read = _place(plan), self._read_of(plan, rows)
        first = self._shown.setdefault(key, read)
        parts = self._shown_partly.pop(key, [])
        if not all(_begin_alike(part, read) and len(part.but(read)) <= len(read.but(part)) for part in parts):
            names = [[row.body for row in each.rows] for each in (*parts, read)]
            self.violate(f"one content: epoch {plan.epoch}, partition {plan.partition} was partly {names}")
        if read.but(first) != first.but(read):
            names = [[row.body for row in each.rows] for each in (first, read)]
            self.violate(f"one content: epoch {plan.epoch}, partition {plan.partition} was {names[0]}, now {names[1]}")

    def served_partly(self, plan: PartitionPlan, rows: list[Row]) -> None:
        """One content: a read that stops early, or fails, gives the first of those rows."""
        key, read = _place(plan), self._read_of(plan, rows)
        whole = self._shown.get(key)
        for other in self._shown_partly[key] if whole is None else [whole]:
            if not _begin_alike(read, other):
                names = [[row.body for row in each.rows] for each in (read, other)]
                self.violate(f"one content: epoch {plan.epoch}, partition {plan.partition} was partly {names}")
        if whole is None:
            self._shown_partly[key].append(read)
        elif len(read.but(whole)) > len(whole.but(read)):
            self.violate(f"one content: epoch {plan.epoch}, partition {plan.partition} has more than all its rows")

    def _read_of(self, plan: PartitionPlan, rows: list[Row]) -> _Read:
        """Moved aside: a task leaves out all that was marked when its driver claimed the journal, and nothing else."""
        self.repairs.serves(plan.claim, [row.message_id for row in rows])
        skipped = self._world.deal(plan).skipped
        if not skipped <= self._marked.keys():
            self.violate(f"moved aside: a plan of epoch {plan.epoch} leaves out what is not marked")
        return _Read(rows, skipped)

    def loses(self, checkpoint: Checkpoint, lost: Offset, batch: int) -> None:
        """Spark's log has lost its last entry, `batch`. If Spark has committed the one before, the ledger names it."""
        ledger = self._world.journal().ledger()
        self._lost.pop(id(checkpoint), None)
        if ledger.settled == checkpoint.offsets[-1].of:
            self._lost[id(checkpoint)] = (ledger.settled, lost.of, len(checkpoint.offsets), batch)

    def logs(self, checkpoint: Checkpoint, batch_of: Callable[[int], int]) -> None:
        """One content: no other epoch gets the batch id of one that Spark's log has lost, and that may be in the sink.

        Unless it is lost again before anything of it can be: then the driver that settles what is before it sees it.
        """
        if id(checkpoint) not in self._lost:
            return
        settled, lost, number, batch = self._lost.pop(id(checkpoint))
        found = checkpoint.offsets[number].of  # perhaps one that a query was killed after, so that nobody has looked
        is_batch = batch_of(number) == batch  # which may have other queues' epochs alone
        if is_batch and settled == self._world.journal().ledger().settled and found != lost:
            self.violate(f"one content: the batch of the lost epoch {lost.name} is given to epoch {found.name}")

    def puts_link(self) -> None:
        """A task is about to put a link: if it is not told that it has, only a read may tell it whose that is."""
        task = _TASK.match(self._world.actor())
        if task:
            self._is_putting.add(task[0])

    def has_put_link(self, name: str) -> None:
        """Chains: a link says what of those before it is not confirmed, so who puts it deletes nothing meanwhile."""
        task = _TASK.match(self._world.actor())
        self._has_just_deferred = False
        if task and name in self._world.store.objects:  # else it was taken
            self._is_putting.discard(task[0])
            head = self._decoded(name)
            if self._world.bucket is not None:
                self._world.bucket.has_put(decode(self._world.store.objects[name], name))
            self._has_just_deferred = not head.chain.is_last and any(receipt.deferred for receipt in head.receipts)
            self._put[task[0]].update(receipt.message_id for receipt in head.receipts)
            if head.origin.epoch > self._world.journal().ledger().epoch:
                place = (head.origin.epoch, head.origin.plan, head.origin.partition)
                for receipt in head.receipts:
                    self._chains[place].setdefault(receipt.message_id, self._world.clock.now())
                    self._putters.setdefault((place, receipt.message_id), task[0])
                if not head.origin.link:
                    self._first_links[place] = frozenset(receipt.message_id for receipt in head.receipts)
        deleting = [_TASK.match(actor) for actor in self._world.deleting]
        if task and any(each is not None and each[0] == task[0] for each in deleting):
            self.violate(f"chains: {task[0]} puts a link while it deletes what stands before it")

    def has_just_deferred(self) -> bool:
        """Return True if the link that a task has just put defers something, and another one may follow it."""
        return self._has_just_deferred

    def _has_listed(self, prefix: str, names: list[str]) -> None:
        if prefix == "drivers":
            claims = [int(match[1]) for match in map(CLAIM.fullmatch, names) if match]
            self._newest_claim[self._world.actor()] = max(claims, default=0)

    def has_claimed(self, number: int) -> None:
        """One owner: who has seen a newer claim does not own the journal."""
        self.repairs.has_claimed(number)
        self.claim_of[self._query()] = number
        seen = self._newest_claim[self._world.actor()]
        if seen > number:
            self.violate(
                f"one owner: {self._world.actor()} takes the journal by claim {number}, and has seen claim {seen}"
            )

    def came_late(self, task: str, plan: PartitionPlan) -> None:
        """Progress: only a task that is late says so."""
        ledger = self._world.journal().ledger()
        owner = max(map(int, (_NUMBER.findall(name)[0] for name in self._world.store.under("ledger/"))), default=0)
        if plan.epoch > ledger.epoch and owner <= plan.claim:
            self.violate(f"progress: {task} says that it comes too late, and nobody has taken its epoch over")

    def failed(self, task: str) -> None:
        """Progress: a task that fails asks to release what it has received and put nowhere."""
        if task in self._is_putting:
            return
        told = self._told[task] - self._released[task]
        held = {each for each in told & self._ours & self._receives.keys() if self._received[each][0] == task}
        if held:
            heads = map(self._decoded, self._world.store.under("epochs/"))
            held -= {receipt.message_id for head in heads for receipt in head.receipts} | self._put[task]
            if held:
                self.violate(f"progress: {task} fails, and leaves hidden {sorted(self._name[each] for each in held)}")

    def _has_told(self, message_ids: set[str]) -> None:
        task = _TASK.match(self._world.actor())
        if task:
            self._told[task[0]] |= message_ids

    def _releases(self, message_ids: set[str]) -> None:
        task = _TASK.match(self._world.actor())
        if task:
            self._released[task[0]] |= message_ids
        else:
            self.repairs.releases(message_ids)

    def asks_to_release(self, receipts: list[Receipt]) -> None:
        """A task is about to release these: SQS is asked for as long as a release may take, and the rest lapses."""
        task = _TASK.match(self._world.actor())
        if task:
            self._released[task[0]] |= {receipt.message_id for receipt in receipts}

    def taken_away(self) -> set[str]:
        """Return the ids of what left the queue, and was not deleted by us."""
        return set(self._gone)

    def are_lost(self, received: set[str]) -> bool:
        """Return whether each has left the queue, or stands behind one of its group, among them, that has."""
        heads: dict[str, int] = {}
        for each in received & self._gone.keys():
            heads[self._group(each)] = min(self._sequence[each], heads.get(self._group(each), self._sequence[each]))
        return bool(received) and all(
            self._sequence[each] >= heads.get(self._group(each), math.inf) for each in received
        )

    def waiting(self) -> set[str]:
        """Return the ids of what is in the queue, and in no committed batch, nor moved aside."""
        return self._name.keys() - self._gone.keys() - self._delivered - self._marked.keys()

    def known(self, messages: Iterable[str]) -> dict[str, int]:
        """Return how often each of the messages was received, of those that were."""
        return {each: self._times[each] for each in messages if self._times[each]}

    def begins(self) -> Offered:
        """Return what is there when a run begins."""
        return self.offers()

    def offers(self) -> Offered:
        """Return what the queue has, and may give, now."""
        waiting, free = self.waiting(), self._world.free()
        times = {message_id: self._times_taken(message_id) for message_id in waiting & free}
        held = frozenset(self._receives)
        elsewhere, now = held & self._others, self._world.clock.now()
        return Offered(now, frozenset(waiting), times, held, elsewhere, len(self._taken), self.receives)

    def begins_tasks(self) -> Offered:
        """Return what there is when a micro-batch with tasks begins; no poll before it tells what that leaves."""
        self._brought.discard(self._query())
        return self.offers()

    def _polls(self) -> None:
        self._polled[self._query()] = self.offers()

    def _has_polled(self, has_brought: bool) -> None:
        (self._brought.add if has_brought else self._brought.discard)(self._query())

    def polled(self, began: Offered) -> Offered:
        """Return what there was when the last long poll of the query that runs began, or when its run did."""
        return self._polled.get(self._query(), began)

    def ended_well(self, run: AvailableNowRun) -> None:
        """AvailableNow serves what waited when it began and SQS gave it.

        None of it is left that was free since its last long poll began, or the last micro-batch with tasks if none came
        after that; nor what `_knows_of` names; nor anything at all, if that was before `lapse_at`, unless the last
        micro-batch was of newer messages only. With `waits_for_holds` it also waits until what dead attempts held is
        free again, while there is always more at least for a visibility timeout after `newer_at`; but not for what
        somebody else had locked when it looked last, or has locked since. What is excused: as many messages were served
        as had waited, and a long poll after the last micro-batch with tasks brought more.
        """
        free = self._world.free()
        old = run.began.waiting & self.waiting()
        locked = old & self._locked_since(run.polled)
        has_waited = run.polled.at >= run.lapse_at
        left = {each for each in old if self._knows_of(each, run)} - (locked if has_waited else set())
        if run.rows < run.counted or self._query() not in self._brought:
            left |= {each for each in old & free if self._times_taken(each) == run.polled.times.get(each)}
        if run.rows < run.counted and run.waits_for_holds:
            left |= old - locked
        if not (has_waited or run.is_newer):
            left |= old
        if run.waits_for_holds and run.polled.at < run.newer_at + VISIBILITY_S:
            left |= {each for each in old - locked if each in run.polled.held and self._is_dead_attempts(each, run)}
        if left:
            names = sorted(self._name[each] for each in left)
            self.violate(f"available now: it ended well, and these had waited: {names}")

    def _locked_since(self, polled: Offered) -> set[str]:
        """Return what somebody else had or has taken since `polled`, with all that stands behind it in its group."""
        heads: dict[str, int] = {}
        for each in (*polled.elsewhere, *self._taken[polled.taken :]):
            group = self._group(each)
            heads[group] = min(self._sequence[each], heads.get(group, self._sequence[each]))
        return {each for each in self._name if self._sequence[each] >= heads.get(self._group(each), math.inf)}

    def _knows_of(self, message_id: str, run: AvailableNowRun) -> bool:
        """Return True if the run cannot end well before it has served the message, however many others it has served.

        A long poll of its own brought it after the last micro-batch; or an attempt that is dead had it by
        `received_old`, and held it still when the last micro-batch began, which was too early to be the last one.
        """
        if message_id not in self._received:
            return False
        who, number = self._received[message_id]
        if who == run.query and number > run.last.received:
            return True
        return run.waits_for_holds and who != "" and message_id in run.last.held and number <= run.received_old

    def _is_dead_attempts(self, message_id: str, run: AvailableNowRun) -> bool:
        """Return True if a task received it last, and sealed none of the messages that the run leaves."""
        return message_id in self._received and self._received[message_id][0] not in ("", run.query)

    def _times_taken(self, message_id: str) -> int:
        """Return a number that rises whenever the message is received, or somebody else may have locked its group."""
        return self._times[message_id] + self._times_elsewhere[self._group(message_id)]

    def _group(self, message_id: str) -> str:
        return self._name[message_id].rstrip("0123456789")

    def stalls(self, until: float) -> None:
        """The journal stalls for who looks for what tasks have sealed: what it has not found, nobody renews."""
        self._stalled_until = max(self._stalled_until, until)

    def takes_over(self, checkpoint: Checkpoint) -> None:
        """Leases: of the batch that runs again, a driver that nothing harms holds what is held still when it starts."""
        is_committed = len(checkpoint.offsets) - 1 in checkpoint.committed
        self._world.free()  # what has lapsed is no longer held
        self._taken_over = set() if is_committed else self._receives.keys() & self.sealed(checkpoint.offsets[-1])
        self._taken_over_at = self._world.clock.now()

    def has_taken_over(self) -> None:
        """That driver is over."""
        self._taken_over = set()

    def has_links(self, offset: Offset | PartitionPlan) -> bool:
        """Return True if any chain of an epoch has been begun."""
        return any(
            self._world.journal().plan_of(name) == offset.plan and "/caught-" not in name
            for name in self._world.store.under(f"epochs/{offset.epoch:020d}/")
        )

    def sealed(self, offset: Offset, *, to_serve: bool = False) -> set[str]:
        """Return what stands in the segments of an epoch; with `to_serve`, only what a read of it shows."""
        names = self._world.store.under(f"epochs/{offset.epoch:020d}/")
        heads = [decode(self._world.store.objects[name], name).head for name in names if "/caught-" not in name]
        return {
            receipt.message_id
            for head in heads
            if head.origin.plan == offset.plan
            for receipt in head.receipts
            if not (to_serve and receipt.deferred)
        }

    def _is_durable(self, message_id: str) -> bool:
        """Return True if the journal has it, where tasks may delete: carried by the newest ledger, or served."""
        newest = max(self._world.store.under("ledger/"), default=None)
        if newest is not None:
            ledger = decode_ledger(self._world.store.objects[newest], 0, newest)
            names = [name for name, ids in ledger.carried.items() if message_id in ids]
            if any(name in self._world.store.objects and self._decoded(name).origin.deletes for name in names):
                return True
        heads = [self._decoded(name) for name in self._world.store.under("epochs/")]
        return any(
            head.origin.deletes
            and (head.origin.epoch, head.origin.plan) in self.logged
            and any(receipt.message_id == message_id and not receipt.deferred for receipt in head.receipts)
            for head in heads
        )

    def _decoded(self, name: str) -> Head:
        data = self._world.store.objects[name]
        known = self._heads.get(name)
        if known is None or known[0] is not data:
            known = self._heads[name] = data, decode(data, name).head
        return known[1]

    def is_over(self, checkpoint: Checkpoint, offsets: list[Offset] | None = None) -> bool:
        """Return True if another query has taken the journal over since this checkpoint's began: it is refused.

        Or that one has gone on since Spark has logged the first epoch of this one, and nobody has planned that. A query
        may have begun with fewer `offsets` than its checkpoint has now.
        """
        offsets = checkpoint.offsets if offsets is None else offsets
        is_committed = len(offsets) - 1 in checkpoint.committed
        known = offsets[-1:] if is_committed else offsets[-2:]
        if not known:
            return False
        ledger = self._world.journal().ledger()
        is_first = len(offsets) == 1 and offsets[0].generation > ledger.generation
        if is_first and offsets[0].epoch <= ledger.epoch + (not is_committed):
            return True
        return any(ledger.has_ended(each.generation) and each.of != ledger.begun_after for each in known)

    def goes_on(self, checkpoint: Checkpoint, offsets: list[Offset]) -> None:
        """One query: none goes on that another one has taken the journal from. It may not know of that yet."""
        if not self.is_over(checkpoint, offsets):
            return
        if self.claim_of.get(self._query()) == max(self._world.journal().claims()):
            self.violate(f"one query: {self._query()} goes on, and another one has taken the journal over")

    def idle(self) -> None:
        """Progress: a query that finds nothing to do holds nothing."""
        held = sorted(self._name[each] for each in (self._ours & self._receives.keys()) - self._late())
        if self.is_calm and held:
            self.violate(f"progress: the query does nothing, and holds {held}")

    def idle_over(self, offered: Offered) -> None:
        """Progress: what was free all the time while a query looked for work is not passed over."""
        left = [each for each in self._world.free() if self._times_taken(each) == offered.times.get(each)]
        if left:
            self.violate(f"progress: the query does nothing, and passes over {sorted(self._name[x] for x in left)}")

    def over(self, epoch: int) -> None:
        """The tasks of `epoch` are over: what a leftover catches from now on, nobody can know of."""
        self._over = max(self._over, epoch)

    def has_received(self, messages: Iterable[str]) -> bool:
        """Return True if the task that runs holds any of the messages."""
        task = _TASK.match(self._world.actor())
        held = (self._received[each][0] for each in messages if each in self._receives)
        return task is not None and task[0] in held

    def _query(self) -> str:
        """Return the name of the query that runs."""
        found = _QUERY.match(self._world.actor())
        return found[0] if found else ""

    def _late(self) -> set[str]:
        shown = {row.message_id for read in self._shown.values() for row in read.rows}
        sealed = {message_id for chain in self._chains.values() for message_id in chain}
        return {each for each, epoch in self._epoch.items() if epoch <= self._over} - shown - sealed

    def committed(self, checkpoint: Checkpoint, batch: int) -> None:
        self._delivered.update(row.message_id for rows in checkpoint.sink[batch].values() for row in rows)

    def _on_event(self, event: Event) -> None:
        if not event.queue.startswith("q"):
            return
        if event.kind in ("lapsed", "deleted", "expired", "moved_to_dlq") or event.visible_at == event.at:
            self._receives.pop(event.message_id, None)
        ours = self._world.is_ours
        name = self._name.get(event.message_id, event.message_id)
        if event.kind == "received":
            self._receives[event.message_id] = event.receive_count
            for known in (*self._told.values(), *self._released.values()):
                known.discard(event.message_id)  # that was of an earlier receive
            self._times[event.message_id] += 1
            if not ours:
                self._taken.append(event.message_id)
                self._times_elsewhere[self._group(event.message_id)] += 1
            task = _TASK.match(self._world.actor())
            who = task[0] if task else self._world.actor()
            self.receives += 1
            self._received[event.message_id] = (who if ours else "", self.receives)
            if ours and task:
                plan = self._plans[task[0]]
                self._epoch[event.message_id] = plan.epoch
                self._read_in[event.message_id].add(EpochPlan(plan.epoch, plan.plan))
                self._receives_by_task[event.message_id].append((task[0], plan, event.at))
                # One that is late may do so for a settled epoch: it finds that, and releases it, before it serves it.
                if plan.claim != plan.plan and plan.epoch > self._world.journal().ledger().epoch:
                    self.violate(f"one content: {task[0]} receives {name} for an epoch that an earlier run announced")
            for owned, is_theirs in ((self._ours, ours), (self._others, not ours)):
                (owned.add if is_theirs else owned.discard)(event.message_id)
        elif event.kind == "deleted" and ours:
            is_elsewhere = event.message_id in self._delivered or event.message_id in self._marked
            if not is_elsewhere and not self._is_durable(event.message_id):
                self.violate(f"delete after commit: {name} is deleted, and in no committed batch")
        elif event.kind == "lapsed" and event.message_id in self._taken_over and event.at > self._taken_over_at:
            self.violate(f"leases: our hold on {name} lapsed, which a new driver had taken over")
        elif event.kind == "lapsed" and self.is_calm and event.message_id in self._ours - self._late():
            if self._world.clock.now() > self._stalled_until + VISIBILITY_S or self._is_overdue(event.message_id):
                self.violate(f"leases: our hold on {name} lapsed while the query lived")
        elif event.kind in ("expired", "moved_to_dlq", "deleted"):
            self._gone.setdefault(event.message_id, event.at)

    def _refused(self, receipt_handle: str) -> None:
        """Settle with the newest handle: an older one is refused while the same epoch sealed one that works.

        Its driver answers for the epochs of its own log alone: what other queries' tasks put late, on the same journal,
        is nobody's, and what those of a newer one put comes too late for it. Nor does anybody answer for what a task
        puts into an epoch that is settled, and that the ledger does not carry.
        """
        if self._world.bucket is not None:
            self._world.bucket.refused(self._world.message_of(receipt_handle))
        checkpoint = self.checkpoint_of.get(self._query())
        names = self._world.store.under("epochs/")
        if checkpoint is None or not names:
            return  # if it is a task, it does not know what other partitions have received
        epochs: defaultdict[tuple[int, int], list[Receipt]] = defaultdict(list)
        ledger = self._world.journal().ledger()
        for name in names:
            head = self._decoded(name)
            if head.origin.epoch > ledger.epoch or name in ledger.carried:
                epochs[head.origin.epoch, head.origin.plan] += head.receipts
        ours = {(offset.epoch, offset.plan) for offset in checkpoint.offsets}
        epochs = defaultdict(list, {each: receipts for each, receipts in epochs.items() if each in ours})
        for receipts in epochs.values():
            used = {each.message_id for each in receipts if each.receipt_handle == receipt_handle}
            for other in receipts:
                is_current = other.receive_count == self._receives.get(other.message_id)
                if other.message_id in used and other.receipt_handle != receipt_handle and is_current:
                    self.violate(f"settle with the newest handle: {self._name[other.message_id]} had a newer one")

    # When all is over

    def audit(self) -> None:
        """Judge what the sinks hold, and what is left in the queue and in the journal."""
        self.audit_sinks()
        if self._world.depth() != (0, 0):
            self.violate(f"progress: the queue still has {self._world.depth()} visible and in flight")
        self._audit_journal()
        rows = [row for checkpoint in self.checkpoints for each in checkpoint.rows() for row in each]
        self.repairs.audit()
        bucket = self._world.bucket
        if bucket is not None and len(self.checkpoints) == 1:
            served = (row for row in rows if row.message_id not in self._gone.keys() | self._marked.keys())
            bucket.audit(served, self.repairs.asked_for())

    def audit_sinks(self) -> None:
        """Judge what the sinks hold: everything that was sent, not taken away and not moved aside; once, in order."""
        everywhere: Counter[str] = Counter()
        for number, checkpoint in enumerate(self.checkpoints):
            counts = Counter(row.message_id for rows in checkpoint.rows() for row in rows)
            doubled = sorted(self._name.get(each, each) for each, count in counts.items() if count > 1)
            if doubled:
                self.violate(f"exactly once: twice or more in sink {number}: {doubled}")
            everywhere.update(counts)
            self._audit_order(number, checkpoint)
            if self._world.bucket is not None:
                for row in (row for rows in checkpoint.rows() for row in rows if row.message_id in self._name):
                    self._world.bucket.audit_row(row, self._name[row.message_id])
        for old, new in itertools.combinations([] if self.has_turns else self.checkpoints, 2):
            self._audit_new_query(old, new)
        missing = self._name.keys() - everywhere.keys() - self._gone.keys() - self._marked.keys()
        lost = sorted(self._name[each] for each in missing)
        if lost:
            self.violate(f"no loss: {lost}")
        foreign = sorted(everywhere.keys() - self._name.keys())
        if foreign:
            self.violate(f"exactly once: in a sink, and never sent: {foreign}")

    def _audit_new_query(self, old: Checkpoint, new: Checkpoint) -> None:
        """A new query repeats no more than the last micro-batch with rows of the old one."""
        ids = {batch: {row.message_id for part in parts.values() for row in part} for batch, parts in old.sink.items()}
        last = max((batch for batch in ids if ids[batch]), default=-1)
        settled = {each for batch in ids if batch != last for each in ids[batch]}
        again = settled & {row.message_id for rows in new.rows() for row in rows}
        if again:
            names = sorted(self._name.get(each, each) for each in again)
            self.violate(f"exactly once: a new query repeats what the old one had settled: {names}")

    def _audit_order(self, number: int, checkpoint: Checkpoint) -> None:
        before: defaultdict[str, list[_Served]] = defaultdict(list)
        for batch in sorted(checkpoint.sink):
            epoch = checkpoint.epochs[batch]
            here: defaultdict[str, list[_Served]] = defaultdict(list)
            for partition in sorted(checkpoint.sink[batch]):
                beside: defaultdict[str, list[Row]] = defaultdict(list)
                for row in checkpoint.sink[batch][partition]:
                    for later in beside[row.group]:
                        if later.sequence > row.sequence:
                            self.violate(f"order: {row.body} comes after {later.body} in sink {number}, {batch=}")
                    for served in before[row.group]:
                        if served.row.sequence > row.sequence:
                            what = f"{row.body} comes after {served.row.body} in sink {number}, {batch=}"
                            self._disorder(row, served, what)
                    beside[row.group].append(row)
                    here[row.group].append(_Served(row, epoch, partition))
            for group, found in here.items():
                before[group] += found
                found.sort(key=lambda served: served.row.sequence)
                for one, other in itertools.combinations(found, 2):
                    if one.partition != other.partition and epoch not in self._deleting:
                        what = f"{one.row.body} and {other.row.body} in two partitions, {batch=}"
                        self._disorder(one.row, other, what)

    def _disorder(self, earlier: Row, later: _Served, what: str) -> None:
        """A violation, unless the epoch that served `later` received `earlier`, too, and SQS had let go of that.

        Before the task that put `later` into its chain received it. If we lose the lease and `earlier` then expires, is
        deleted by somebody else or moved to a dead-letter queue, SQS hands out what follows; within one epoch no task
        knows all that another one has. But a task knows some of it: nothing is excused that `_knew_of` names.
        """
        gone_at = self._gone.get(earlier.message_id, math.inf)
        place = (later.epoch.epoch, later.epoch.plan, later.partition)
        put_at = self._chains[place].get(later.row.message_id, -math.inf)
        putter = self._putters.get((place, later.row.message_id))
        if later.epoch not in self._read_in[earlier.message_id] or not any(
            task == putter and gone_at <= at <= put_at and not self._knew_of(earlier, later.row, plan)
            for task, plan, at in self._receives_by_task[later.row.message_id]
        ):
            self.violate(f"order: {what}")

    def _knew_of(self, earlier: Row, later: Row, plan: PartitionPlan) -> bool:
        """Return True if a task with this plan must not serve `later`, which it has received, because of `earlier`.

        Its chain has both; or `earlier` is assigned, or deferred by the first link of the chain to which the assigned
        messages of its group belong; or a later epoch is to serve something of the group. Where the commit deletes, a
        task serves nothing of the groups of assigned messages; where tasks delete, they receive on behind those. A
        later driver's task, which runs the epoch again, does not know of messages that the one before has handed to
        tasks.
        """
        _, maker = self._makers[id(plan)]
        if {earlier.message_id, later.message_id} <= self._chains[_place(plan)].keys():
            return True
        deal = self._world.deal(plan)
        owner = deal.groups.get(earlier.group, plan.partition)
        if owner != plan.partition and earlier.message_id in self._first_links[plan.epoch, plan.plan, owner]:
            return True
        if earlier.group in deal.reserved or earlier.message_id in self._decided[plan.epoch, maker]:
            return True
        return not plan.deletes and earlier.group in deal.groups.keys() | self._handed[plan.epoch, maker]

    def _audit_journal(self) -> None:
        """The journal holds only what is not settled. An id of a copy that was deleted since may be left.

        Above what is settled, it holds only the last epoch of each query's log.
        """
        journal = self._world.journal()
        ledger = journal.ledger()
        if ledger.carried:
            self.violate(f"bounded: the ledger still carries {dict(ledger.carried)}")
        left = [name for epoch, names in journal.objects().items() if epoch <= ledger.epoch for name in names]
        if left:
            self.violate(f"bounded: left of settled epochs: {left}")
        # A driver that is overtaken may put one late: the next one that opens the journal drops it.
        deals = self._world.store.under(f"plans/{max(journal.claims(), default=0):020d}")
        if [name for name in deals if int(_NUMBER.findall(name)[1]) <= ledger.epoch]:
            self.violate(f"bounded: deals of settled epochs are left: {deals}")
        unconfirmed = [each for each, entry in ledger.unconfirmed.items() if entry.receipt is not None]
        if unconfirmed:
            self.violate(f"bounded: not confirmed: {sorted(self._name[each] for each in unconfirmed)}")
        last = {checkpoint.offsets[-1].of for checkpoint in self.checkpoints if checkpoint.offsets}
        above = [name for epoch, names in journal.objects().items() if epoch > ledger.epoch for name in names]
        strange = [name for name in above if (int(_NUMBER.findall(name)[0]), journal.plan_of(name)) not in last]
        if strange:
            self.violate(f"bounded: left of no query's last epoch: {strange}")
