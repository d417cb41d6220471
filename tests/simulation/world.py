"""The world that outlives processes: a queue, a journal's store, checkpoints and their sinks, and faults in them.

Every call of queue and store is a step before and after its effect; `World.on_step` gets each, and may raise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from botocore.exceptions import ClientError, ReadTimeoutError

from sqs_fifo_spark.aws import lean
from sqs_fifo_spark.aws.answer import Arrival, arriving
from sqs_fifo_spark.aws.client import READ_TIMEOUT_S
from sqs_fifo_spark.errors import JournalUnavailableError
from sqs_fifo_spark.journal.store import put_until_seen
from sqs_fifo_spark.local import FifoModel, SqsError
from sqs_fifo_spark.options import parse_source_options
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.offset import EpochPlan, Offset
from sqs_fifo_spark.source.plan import Deal, PartitionPlan
from sqs_fifo_spark.source.pool import MakePool, in_calling_thread
from sqs_fifo_spark.source.segment import decode
from tests.manual_clock import ManualClock

if TYPE_CHECKING:
    from tests.simulation.payloads import Bucket

VISIBILITY_S = 30
LAPSE_S = VISIBILITY_S + 1
BEGAN_AT = 1_700_000_000

ACTIONS = {
    "change_message_visibility_batch": "ChangeMessageVisibilityBatch",
    "delete_message_batch": "DeleteMessageBatch",
    "get_queue_attributes": "GetQueueAttributes",
    "receive_message": "ReceiveMessage",
    "send_message_batch": "SendMessageBatch",
}
_REFUSALS = {
    "refused": ("InternalFailure", 500),
    "throttled": ("ThrottlingException", 400),
    "denied": ("AccessDenied", 403),
    "missing": ("AWS.SimpleQueueService.NonExistentQueue", 400),
}


Names = list[str]
_COUNTS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")


class Row(NamedTuple):
    message_id: str
    group: str
    sequence: int
    body: str


@dataclass
class Checkpoint:
    """A query's offset log and commit log, and a sink that honours batch ids. Rows by batch and partition."""

    offsets: list[Offset] = field(default_factory=list)
    committed: set[int] = field(default_factory=set)
    sink: dict[int, dict[int, list[Row]]] = field(default_factory=dict)
    epochs: dict[int, EpochPlan] = field(default_factory=dict)
    """The epoch of each batch that is in the sink: the log may lose it."""

    def rows(self) -> Iterator[list[Row]]:
        for batch in sorted(self.sink):
            for partition in sorted(self.sink[batch]):
                yield self.sink[batch][partition]


class MemoryStore:
    """A journal's store in memory; each call is a step before and after its effect."""

    location = "memory"

    def __init__(self, step: Callable[[str], None], clock: ManualClock) -> None:
        self.objects: dict[str, bytes] = {}
        self.ever: dict[str, bytes] = {}
        """All that was ever put, the newest of each name."""
        self._clock = clock
        self.lies_about: Callable[[str], str] = lambda name: ""
        """Returns the fate of a put: "refuse" fails before its effect, "raise" after it, "deny" says it was there.

        "conflict" says so though nothing is there and nothing was put.
        """
        self.fails: Callable[[str], bool] = lambda call: False
        """Returns True if any other call fails."""
        self.on_listed: Callable[[str, Names], None] = lambda prefix, names: None
        self.transfer_s = 0.0
        """A segment takes so long to get here, or away."""
        self._step = step

    def get(self, name: str) -> bytes | None:
        self._before("get", name)
        found = self.objects.get(name)
        if found is not None:
            self._transfer(name)
        return found

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        self._before("get", name)
        data = self.objects.get(name)
        return None if data is None else data[start : start + length]

    def list(self, prefix: str) -> list[str]:
        self._before("list", prefix)
        found = sorted(name for name in self.objects if name.startswith(f"{prefix}/"))
        self.on_listed(prefix, found)
        return found

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return put_until_seen(
            lambda: self._create(name, data),
            lambda: name in self.objects,
            clock=self._clock,
            name=name,
            location=self.location,
        )

    def _create(self, name: str, data: bytes) -> bool:
        self._step(f"before put {name}")
        lie = self.lies_about(name)
        if lie == "refuse":
            raise JournalUnavailableError(f"cannot write '{name}'")
        if lie == "conflict":
            self._step(f"conflict about {name}")
            return False
        self._transfer(name)
        is_new = self.objects.setdefault(name, data) is data
        self.ever[name] = self.objects[name]
        self._step(f"after put {name}{'' if is_new else ': taken'}")
        if lie == "raise":
            raise JournalUnavailableError(f"no answer about '{name}'")
        return is_new and lie != "deny"

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._before("drop", name)
            self.objects.pop(name, None)

    def under(self, prefix: str) -> Names:
        return sorted(name for name in self.objects if name.startswith(prefix))

    def _transfer(self, name: str) -> None:
        if self.transfer_s and name.startswith("epochs/"):
            self._clock.sleep(self.transfer_s)

    def _before(self, call: str, name: str) -> None:
        self._step(f"before {call} {name}")
        if self.fails(call):
            raise JournalUnavailableError(f"cannot {call} '{name}'")


class SqsClient:
    """boto3's client, as far as `Queue` uses it, over the model; and the link to it.

    It waits for an answer as the lean client does: for a receive as its `Arrival` says, else for so long in all.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name == "begin" and self._world.begins_calls:
            return self._begin
        if name not in ACTIONS:
            raise AttributeError(name)
        return lambda **request: self._call(ACTIONS[name], request, *_patience())

    def _begin(self, operation: str, **request: Any) -> Callable[[], dict[str, Any]]:
        """The lean client's: SQS takes the call at any time until its answer is waited for."""
        patience = _patience()  # the caller's
        return self._world.pool("begun", 1).submit(lambda: self._call(ACTIONS[operation], request, *patience)).result

    def _call(self, action: str, request: dict[str, Any], limit_s: float, arrival: Arrival | None) -> dict[str, Any]:
        world = self._world
        fault = ""
        if _is_renewal(action, request):
            fault = world.failing_renewals([entry["ReceiptHandle"] for entry in request["Entries"]])
        if fault == "hangs":
            self._give_up(action, limit_s)
        if fault in _REFUSALS:
            raise _refused(action, fault)
        asked_at = world.clock.monotonic()
        answer = world.call_sqs(action, request)
        messages = answer.get("Messages") or []
        if fault == "lost":
            self._give_up(action, limit_s)
        if not (messages and world.message_s):
            world.has_arrived(messages)
            return answer
        if arrival is not None:
            limit_s, arrival.waited_s = arrival.within_s, world.clock.monotonic() - asked_at
            arrival.is_cut = world.message_s * len(messages) > limit_s
            messages = messages[: int(limit_s / world.message_s)] if arrival.is_cut else messages
        if not messages or world.message_s * len(messages) > limit_s:
            self._give_up(action, limit_s)
        world.clock.sleep(limit_s if arrival is not None and arrival.is_cut else world.message_s * len(messages))
        world.has_arrived(messages)
        return {**answer, "Messages": messages}

    def _give_up(self, action: str, after_s: float) -> NoReturn:
        self._world.note(f"{action} has no whole answer within {after_s:g} s")
        self._world.clock.sleep(after_s)
        raise ReadTimeoutError(endpoint_url=self._world.url)


def _patience() -> tuple[float, Arrival | None]:
    limit_s = lean.answered_within.get()
    return READ_TIMEOUT_S if limit_s is None else limit_s, arriving.get()


class World:
    """One queue and all that is durable around it."""

    def __init__(
        self,
        seed: int = 0,
        clock: ManualClock | None = None,
        attributes: dict[str, str] | None = None,
        *,
        any_order: bool = False,
        name: str = "q.fifo",
        **options: str,
    ) -> None:
        """`any_order` lets the queue hand out groups in any order, rather than those first that became free first."""
        self.clock = clock or ManualClock()
        self.model = FifoModel(self.clock, random.Random(seed), any_order=any_order)
        self.url = self.create_queue(name, **(attributes or {}))
        self.options = parse_source_options(
            {
                "queueUrl": self.url,
                "journalLocation": "/journal",
                "visibilityTimeoutSeconds": str(VISIBILITY_S),
                "waitTimeSeconds": "10",
                **options,
            }
        )
        self.store = MemoryStore(self.step, self.clock)
        self.client = SqsClient(self)
        self.trace: list[tuple[float, str, str]] = []
        self.label = ""
        """Before each of its lines, in a trace of several queues."""
        self.events: list[Any] = []
        self.model.on_event(self.events.append)
        self.on_step: Callable[[str], None] = lambda event: None
        self.actor: Callable[[], str] = lambda: ""
        """Returns the name of the process that takes the step."""
        self.fault: Callable[[str], str] = lambda action: ""
        """Returns the fate of a call: "refused", "throttled", "denied" or "missing" has no effect, "lost" no answer."""
        self.failing_renewals: Callable[[list[str]], str] = lambda receipt_handles: ""
        """Return the fate of a renewal, if it has one: the same; and one that "hangs" never comes to SQS."""
        self.failing_entries: Callable[[str], frozenset[int]] = lambda action: frozenset()
        self.receive_share: Callable[[], float] = lambda: 1.0
        """Returns the share that a short poll is given of the messages that it could have."""
        self.counted = 0
        """Number of messages in the queue's last answer."""
        self.in_flight = 0
        """Number of them that somebody held."""
        self.pool: MakePool = in_calling_thread
        """Makes the pools of threads of a driver and its queue."""
        self.begins_calls = True
        """True if the client can send a call and wait for its answer later."""
        self.deleting: list[str] = []
        """The processes that have a delete under way, once for each call."""
        self.on_release: Callable[[set[str]], None] = lambda message_ids: None
        """Told which messages our side asks to release, whatever becomes of it."""
        self._deals: dict[bytes | str, Deal] = {}
        self._ids: dict[str, list[str]] = {}
        """Of the messages in each object that was dealt out."""
        self._told: dict[str, str] = {}
        """The message of each receipt handle that our side was given."""
        self.on_told: Callable[[set[str]], None] = lambda message_ids: None
        """Told of what each answer to a receive brings its caller."""
        self.on_refused: Callable[[str], None] = lambda receipt_handle: None
        """Told of each handle with which a delete was refused."""
        self.on_poll: Callable[[], None] = lambda: None
        """Told when SQS has a long poll of ours, before it looks for messages."""
        self.on_polled: Callable[[bool], None] = lambda has_brought: None
        """Told whether a long poll of ours has brought anything, be it for the second time, under one attempt id."""
        self.poll: Callable[[float], None] = self.clock.advance
        """Wait for messages, for so many seconds at most."""
        self.message_s = 0.0
        """Each message of an answer takes so long to arrive."""
        self.is_ours = False
        """True if the call of the model that is under way is the query's, and not somebody else's."""
        self.sent: list[Row] = []
        self.bucket: Bucket | None = None
        """The bucket of the payloads, if messages may be pointers."""
        self.checkpoint = Checkpoint()

    # Steps

    def note(self, event: str) -> None:
        """Write a line of the trace."""
        self.trace.append((self.clock.now() - BEGAN_AT, self.actor(), f"{self.label}{event}"))

    def step(self, event: str) -> None:
        self.note(event)
        self.on_step(event)

    def told(self) -> list[str]:
        """Return the trace, a line for each step: time in seconds, who, what."""
        return [f"{at:9.2f}  {who:24} {event}" for at, who, event in self.trace]

    # The queue

    def create_queue(self, name: str, **attributes: str) -> str:
        request = {"QueueName": name, "Attributes": {"FifoQueue": "true", **attributes}}
        url: str = self.model.call("CreateQueue", request)["QueueUrl"]
        return url

    def call_sqs(self, action: str, request: dict[str, Any]) -> dict[str, Any]:
        if action == "ChangeMessageVisibilityBatch" and not request["Entries"][0]["VisibilityTimeout"]:
            handles = (each["ReceiptHandle"] for each in request["Entries"])  # the check of permissions has none
            self.on_release({self._told[handle] for handle in handles if handle in self._told})
        if action != "DeleteMessageBatch":
            return self._call_sqs(action, request)
        actor = self.actor()
        self.deleting.append(actor)
        try:
            return self._call_sqs(action, request)
        finally:
            self.deleting.remove(actor)

    def _call_sqs(self, action: str, request: dict[str, Any]) -> dict[str, Any]:
        self.step(f"before {action}")
        fault = self.fault(action)
        if fault in _REFUSALS:
            self.note(f"{action} is {fault}")
            raise _refused(action, fault)
        if request.get("WaitTimeSeconds"):
            self.on_poll()
        try:
            answer = self._call_model(action, request)
            if not answer and request.get("WaitTimeSeconds"):
                self.poll(request["WaitTimeSeconds"])
                answer = self._call_model(action, request)
            if request.get("WaitTimeSeconds"):
                self.on_polled(bool(answer))
        except SqsError as error:
            self.note(f"{action}: {error.query_code}: {error.message}")
            raise _client_error(action, error.query_code, error.message, error.status) from None
        shown = answer.get("Attributes", {})
        if _COUNTS[0] in shown and request["QueueUrl"] == self.url:
            self.counted = sum(int(shown[name]) for name in _COUNTS)
            self.in_flight = int(shown[_COUNTS[1]])
        failed = [entry["Code"] for entry in answer.get("Failed", ())]
        if action == "DeleteMessageBatch":
            handles = {entry["Id"]: entry["ReceiptHandle"] for entry in request["Entries"]}
            for entry in answer.get("Failed", ()):
                if entry["SenderFault"]:
                    self.on_refused(handles[entry["Id"]])
        self.step(f"after {action} {[m['Body'] for m in answer.get('Messages', ())] or ''}{failed or ''}{fault}")
        if fault == "lost":
            raise ReadTimeoutError(endpoint_url=self.url)
        return {**answer, "ResponseMetadata": {"HTTPHeaders": {}, "HTTPStatusCode": 200}}

    def message_of(self, receipt_handle: str) -> str:
        """Return the id of the message that our side was given this handle of; empty for any other handle."""
        return self._told.get(receipt_handle, "")

    def has_arrived(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Take note that these messages of an answer have arrived whole."""
        told = {each["ReceiptHandle"]: each["MessageId"] for each in messages}
        self._told.update(told)
        self.on_told({*told.values()})

    def _call_model(self, action: str, request: dict[str, Any]) -> dict[str, Any]:
        self.is_ours = True
        # A short poll asks some of SQS's servers, and may bring nothing though there is something; a long one asks all.
        is_short_poll = action == "ReceiveMessage" and not request["WaitTimeSeconds"]
        share = self.receive_share() if is_short_poll else 1.0
        try:
            return self.model.call(
                action,
                request,
                failing_entries=self.failing_entries(action) if action.endswith("Batch") else frozenset(),
                receive_share=share,
            )
        finally:
            self.is_ours = False

    def send(self, *bodies: str) -> None:
        """Send messages whose group is the letters of the body, such as "a" for "a7"."""
        for body in bodies:
            self.sent.append(self.put(body, str(len(self.sent))))

    def put(self, body: str, deduplication_id: str) -> Row:
        """Send one message as a producer does, and return what the queue says it is."""
        group = body.rstrip("0123456789")
        pointer = None if self.bucket is None else self.bucket.pointer_to(body)
        text, attributes = pointer or (body, {})
        request = {
            "QueueUrl": self.url,
            "MessageBody": text,
            "MessageAttributes": attributes,
            "MessageGroupId": group,
            "MessageDeduplicationId": deduplication_id,
        }
        answer = self.model.call("SendMessage", request)
        if self.bucket is not None:
            self.bucket.has_sent(answer["MessageId"], text if pointer else "")
        return Row(answer["MessageId"], group, int(answer["SequenceNumber"]), body)

    def receive_elsewhere(self, limit: int = 10, visibility_timeout_s: int = VISIBILITY_S) -> list[dict[str, Any]]:
        """A plain consumer, somebody else's, receives."""
        request = {
            "QueueUrl": self.url,
            "MaxNumberOfMessages": limit,
            "VisibilityTimeout": visibility_timeout_s,
            "MessageSystemAttributeNames": ["All"],
        }
        found: list[dict[str, Any]] = self.model.call("ReceiveMessage", request).get("Messages", [])
        self.note(f"somebody else receives {[message['Body'] for message in found]} for {visibility_timeout_s} s")
        return found

    def depth(self) -> tuple[int, int]:
        """Return the numbers of messages that are visible, and in flight."""
        shown = self.model.call("GetQueueAttributes", {"QueueUrl": self.url, "AttributeNames": ["All"]})["Attributes"]
        return int(shown["ApproximateNumberOfMessages"]), int(shown["ApproximateNumberOfMessagesNotVisible"])

    def next_lapse_at(self) -> float | None:
        """Return when a visibility timeout lapses next, or None."""
        return self.model.next_change_at(self.url)

    def lapse(self) -> None:
        """Let those lapse whose time is over."""
        self.model._queues[self.url.rpartition("/")[2]].advance(self.clock.now())

    def present(self) -> set[str]:
        """Return the ids of all messages of the queue."""
        queue = self.model._queues[self.url.rpartition("/")[2]]
        queue.advance(self.clock.now())
        return {message.message_id for message in queue._store}

    def free(self) -> set[str]:
        """Return the ids of the messages that a receive may be given now."""
        now, found = self.clock.now(), set[str]()
        queue = self.model._queues[self.url.rpartition("/")[2]]
        queue.advance(now)
        for group in queue._store._groups.values():
            shown = takewhile(lambda message: message.hidden_until is None, group.messages.values())
            found |= {message.message_id for message in shown}
        return found

    # What was written

    def deal(self, plan: PartitionPlan) -> Deal:
        """Return what all tasks of the plan are told in common, also if it was dropped."""
        if plan.deal not in self._deals:
            data = plan.deal if isinstance(plan.deal, bytes) else self.store.ever[plan.deal]
            self._deals[plan.deal] = Deal.decode(data)
        return self._deals[plan.deal]

    def carried(self, plan: PartitionPlan) -> dict[str, list[str]]:
        """Return the ids of the messages that are decided for the plan's task, by the object that has them."""
        shares = [share for share in self.deal(plan).shares if share.partition == plan.partition]
        for name in {share.name for share in shares} - self._ids.keys():
            receipts = decode(self.store.ever[name], name).head.receipts
            self._ids[name] = [receipt.message_id for receipt in receipts]
        return {share.name: [self._ids[share.name][place] for place in share.places] for share in shares}

    def journal(self) -> Journal:
        """Return the journal as it stands, to be read without a step of anybody's."""
        store = MemoryStore(lambda event: None, self.clock)
        store.objects = self.store.objects
        found = Journal.find(store, f"arn:aws:sqs:us-east-1:000000000000:{self.url.rpartition('/')[2]}")
        assert found is not None
        return found


def _refused(action: str, fault: str) -> ClientError:
    code, status = _REFUSALS[fault]
    return _client_error(action, code, "", status)


def _is_renewal(action: str, request: Mapping[str, Any]) -> bool:
    return action == "ChangeMessageVisibilityBatch" and bool(request["Entries"][0]["VisibilityTimeout"])


def _client_error(action: str, code: str, message: str, status: int) -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}, action
    )
