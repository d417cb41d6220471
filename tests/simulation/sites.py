"""The queues of a schedule: its own one, and a neighbour that the same query reads, each with a world and laws."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sqs_fifo_spark.local import SqsError
from sqs_fifo_spark.options import SourceOptions, queue_key
from sqs_fifo_spark.source.offsets import Offsets
from tests.simulation.laws import Laws
from tests.simulation.world import Checkpoint, Row, World

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

NEIGHBOUR_GROUPS = "fghij"
GONE_S = (5, 31, 70, 200)
"""Seconds for which the neighbour is not there, or not ours to call."""
DISCOVERY_S = 20
TROUBLES = "denied", "missing", "unlisted"
ACTIONS = "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes"
"""Actions that a policy may deny one by one; the batch of an action has the permission of the action."""


@dataclass
class SharedCheckpoint(Checkpoint):
    """Spark's logs and the sink of a query over two queues. To the first queue it is a checkpoint like any other.

    Each queue has a history of its own: the batches that moved it. A batch that did not is another source's alone.
    """

    log: list[Offsets] = field(default_factory=list)
    """Spark's offset log."""
    done: set[int] = field(default_factory=set)
    """Spark's commit log."""
    moves: list[dict[str, int]] = field(default_factory=list)
    """For each batch of the offset log, the queues that it moved, by key, and its number in their own histories."""
    sinks: dict[int, dict[str, dict[int, list[Row]]]] = field(default_factory=dict)
    """The sink by Spark's batches: of each queue, by key, the rows of its partitions."""
    other: Checkpoint = field(default_factory=Checkpoint)
    """The history of the neighbour."""

    def batch_of(self, key: str, number: int) -> int:
        """Return Spark's number of the batch which is `number` in a queue's own history."""
        return next(batch for batch, moved in enumerate(self.moves) if moved.get(key) == number)


class Site:
    """A queue with its world and its laws."""

    suffix = ""
    """Behind the names of its tasks."""

    def __init__(self, world: World, laws: Laws) -> None:
        self.world = world
        self.laws = laws
        self.key = queue_key(world.url)
        self.launched: Counter[tuple[int, int]] = Counter()

    def history_in(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the queue's own history."""
        return checkpoint

    def is_served_since(self, at: float) -> bool:
        """Return True if it is one that AvailableNow has to serve which began then."""
        return True


class Neighbour(Site):
    """The second queue of a schedule whose query reads two, with dice of its own for what happens to it."""

    suffix = " beside"

    def __init__(self, schedule: Schedule, dice: random.Random) -> None:
        self._schedule = schedule
        self.dice = dice
        main = schedule.world
        world = World(
            dice.getrandbits(32),
            clock=schedule.hub,
            attributes={},
            any_order=dice.random() < 0.5,
            name="qn.fifo",
            numPartitions=str(main.options.num_partitions),
            maxMessagesPerTrigger=str(main.options.max_messages_per_trigger),
            deleteAfter=main.options.delete_after,
            **({"maxCallsPerSecond": str(pace)} if (pace := main.options.max_calls_per_s) else {}),
        )
        world.trace, world.label = main.trace, "beside: "
        world.begins_calls, world.actor, world.pool = main.begins_calls, main.actor, main.pool
        world.failing_entries, world.receive_share = main.failing_entries, main.receive_share
        world.message_s, world.store.transfer_s = main.message_s, main.store.transfer_s
        world.failing_renewals = main.failing_renewals
        world.store.lies_about, world.store.fails = main.store.lies_about, main.store.fails
        world.on_step, world.poll, world.fault = self._step, self._poll, self._fault
        laws = Laws(
            world, is_calm=schedule.is_calm, is_overdue=lambda message_id: schedule.is_overdue(self, message_id)
        )
        super().__init__(world, laws)
        self.laws.violations = schedule.laws.violations
        self.is_listed = True
        """True if the list of queues has it."""
        self.leaves_after_first_answer = False
        """True if the list is without it from the first answer of the next run on."""
        self.by_prefix = dice.random() < 0.5
        """True if the list may change while a query runs."""
        self.trouble_share = 0.0 if schedule.is_calm else dice.choice((0.0, 0.1, 0.3))
        self._gone_until = 0.0
        self._troubled_at = 0.0
        self._fate = ""
        self._refused: tuple[str, ...] = ACTIONS
        """The actions that SQS refuses while it is gone."""
        self._numbers: Counter[str] = Counter()
        self._deduplication_ids: list[tuple[str, str]] = []
        self._elsewhere: list[dict[str, Any]] = []

    def history_in(self, checkpoint: Checkpoint) -> Checkpoint:
        assert isinstance(checkpoint, SharedCheckpoint)
        return checkpoint.other

    @property
    def is_gone(self) -> bool:
        """True if SQS refuses its calls, or those of some actions, as if it were not there."""
        return self._schedule.hub.now() < self._gone_until

    def options(self) -> SourceOptions:
        """Return the options of the source that reads both queues."""
        main = self._schedule.world
        if self.by_prefix:
            return replace(main.options, queue_url="", queue_name_prefix="q", queue_discovery_s=DISCOVERY_S)
        return replace(main.options, queue_url="", queue_urls=tuple(self.urls()))

    def urls(self) -> list[str]:
        """Return the list of queues as it is now."""
        main = self._schedule.world
        return [main.url, self.world.url] if self.is_listed else [main.url]

    def is_served_since(self, at: float) -> bool:
        """Return True if it has been in the list, and has refused nothing, since then."""
        return self.is_listed and max(self._troubled_at, self._gone_until) < at

    def share_mood(self) -> None:
        """Let its laws be as strict as those of the schedule's own queue."""
        self.laws.is_calm, self.laws.has_turns = self._schedule.laws.is_calm, self._schedule.laws.has_turns

    def has_first_answer(self) -> None:
        """A run has its first answer, before it has asked for anything else."""
        if self.leaves_after_first_answer:
            self.is_listed = self.leaves_after_first_answer = False
            self._schedule.hub.sleep(DISCOVERY_S)

    # What happens to it

    def send(self) -> None:
        for _ in range(self.dice.randint(1, 5)):
            group = self.dice.choice(NEIGHBOUR_GROUPS)
            self._numbers[group] += 1
            body = f"{group}{self._numbers[group]}"
            self._deduplication_ids.append((body, f"id-{body}"))
            self.laws.sent(self.world.put(body, f"id-{body}"))
        self.world.note(f"a producer sent up to {dict(self._numbers)}")

    def resend(self) -> None:
        body, deduplication_id = self.dice.choice(self._deduplication_ids)
        self.world.note(f"a producer sends {body} again")
        self.laws.sent(self.world.put(body, deduplication_id))

    def sent_count(self) -> int:
        return len(self._deduplication_ids)

    def receive_elsewhere(self) -> None:
        """Somebody else's consumer receives, and later lets lapse, gives back or deletes what it has."""
        held, self._elsewhere = self._elsewhere, []
        if not held or self.dice.random() < 0.5:
            self._elsewhere = self.world.receive_elsewhere(self.dice.randint(1, 10), self.dice.choice((1, 10, 60)))
            return
        action = self.dice.choice(("DeleteMessage", "ChangeMessageVisibility"))
        more = {"VisibilityTimeout": 0} if action == "ChangeMessageVisibility" else {}
        self.world.note(f"somebody else calls {action} for what it still holds")
        for message in held:
            request = {"QueueUrl": self.world.url, "ReceiptHandle": message["ReceiptHandle"], **more}
            try:
                self.world.model.call(action, request)
            except SqsError as error:
                self.world.note(f"refused: {error.query_code}")

    def meet_trouble(self) -> None:
        """It is not there for a while, or not ours to call; or it leaves the list of queues, or comes back."""
        trouble, self._troubled_at = self.dice.choice(TROUBLES), self._schedule.hub.now()
        if trouble == "unlisted":
            self.is_listed = not self.is_listed
            self.world.note(f"the list of queues {'has' if self.is_listed else 'does not have'} it")
            return
        self.be_gone(trouble, self.dice.choice(GONE_S))

    def be_gone(self, fate: str, for_s: float) -> None:
        """Have SQS refuse each call for a while; or only those of one or two actions, which a policy may deny."""
        self._fate, self._gone_until = fate, self._schedule.hub.now() + for_s
        is_partial = fate == "denied" and self.dice.random() < 0.5
        self._refused = tuple(self.dice.sample(ACTIONS, self.dice.choice((1, 1, 2)))) if is_partial else ACTIONS
        self.world.note(f"{' and '.join(self._refused)}: {fate} for {for_s} s")

    def be_well(self) -> None:
        """All trouble is over."""
        self._gone_until, self.is_listed = 0.0, True

    def lapse(self) -> None:
        self.share_mood()
        self.world.lapse()

    # The world's hooks

    def _step(self, event: str) -> None:
        if event.startswith("before put epochs/"):
            self.laws.puts_link()
        if event.startswith("after put epochs/"):
            self.laws.has_put_link(event.removeprefix("after put "))
        self._schedule.step_beside(event)

    def _fault(self, action: str) -> str:
        is_refused = self.is_gone and action.startswith(self._refused)
        return self._fate if is_refused else self._schedule.fault(action)

    def _poll(self, seconds: float) -> None:
        poll(self._schedule.hub, self.world, seconds)


def poll(hub: Any, world: World, seconds: float) -> None:
    """Wait for a message of the world's queue that can be had."""
    model, url = world.model, world.url
    deadline = hub.now() + seconds
    while hub.now() < deadline and not model.has_deliverable(url):
        next_at = min(deadline, model.next_change_at(url) or deadline)
        hub.wait_until(lambda: model.has_deliverable(url), max(0.0, next_at - hub.now()))


class RoutedClient:
    """boto3's client, which goes to the queue that a request names."""

    def __init__(self, *worlds: World) -> None:
        self._worlds = {world.url: world for world in worlds}
        self._any = worlds[0]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        getattr(self._any.client, name)  # it may have no such call

        def call(*given: Any, **request: Any) -> Any:
            world = self._worlds.get(request["QueueUrl"], self._any)  # or a queue for what operators move
            return getattr(world.client, name)(*given, **request)

        return call
