"""A pure model of SQS with FIFO queues: no I/O, no threads, time and chance handed in.

`FifoModel.call` takes an action and a request in the shape of AWS's service model and returns the
response in that shape, or raises `SqsError`; it never waits. Long polling, HTTP and failures on purpose
are the server's. Binary attribute values are base64 text, as on the wire.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

from sqs_fifo_spark.clock import SYSTEM_CLOCK, Clock
from sqs_fifo_spark.local import answers, draft, errors, names, tags, validation
from sqs_fifo_spark.local import settings as queue_settings
from sqs_fifo_spark.local.errors import SqsError
from sqs_fifo_spark.local.events import Event, Listener
from sqs_fifo_spark.local.fifo import FifoQueue, Glance
from sqs_fifo_spark.local.message_store import StoredMessage
from sqs_fifo_spark.local.redrive import MoveTasks

ACCOUNT = "000000000000"
IN_FLIGHT_CAP = 120_000
SCAN_LIMIT = 120_000

_PURGE_INTERVAL_S = 60.0

Request = Mapping[str, Any]
Response = dict[str, Any]


class _Way(NamedTuple):
    """The way in which a request is to be met: the other arguments of `FifoModel.call`."""

    action: str
    base_url: str
    receive_share: float
    failing_entries: frozenset[int]


@dataclass(eq=False, repr=False)
class FifoModel:
    """An account's queues in one region. Not for use by several threads.

    Ids, sequence numbers and receipt handles are drawn from `rng`; without one, no two models share any.
    `in_flight_cap` is the number of messages per queue above which receives come back empty; `scan_limit` the number of
    messages, from the oldest, that are looked at for free groups. Groups are served in the order in which they became
    free; with `any_order`, `rng` draws the next one instead, so that nobody can rely on an order that SQS does not
    promise. Within a group the order is always that of sending.
    """

    clock: Clock = SYSTEM_CLOCK
    rng: random.Random = field(default_factory=random.Random)
    _: KW_ONLY
    region: str = "us-east-1"
    in_flight_cap: int = IN_FLIGHT_CAP
    scan_limit: int = SCAN_LIMIT
    any_order: bool = False

    def __post_init__(self) -> None:
        if self.in_flight_cap < 1 or self.scan_limit < 1:
            raise ValueError(f"in_flight_cap ({self.in_flight_cap}) and scan_limit ({self.scan_limit}) are at least 1")
        self.base_url = "http://127.0.0.1:9324"
        self._queues: dict[str, FifoQueue] = {}
        self._listeners: list[Listener] = []
        self._moves = MoveTasks(self.clock, self.rng, self._by_arn, lambda queue: bool(self._sources_of(queue)))

    def call(
        self,
        action: str,
        request: Request,
        *,
        base_url: str | None = None,
        receive_share: float = 1.0,
        failing_entries: frozenset[int] = frozenset(),
    ) -> Response:
        """Do `action` and return its response.

        `base_url` stands in place of the model's own in queue URLs that the response names. `receive_share` makes a
        receive return only that share of the messages it is asked for, rounded down; `failing_entries` are positions in
        a batch whose entries fail with InternalError and take no effect. Raises SqsError, with nothing done, for
        requests that AWS refuses, and UnsupportedOperation for other actions.
        """
        self._let_move()
        if action not in ACTIONS:
            raise errors.unsupported_operation(action)
        return ACTIONS[action](self, request, _Way(action, base_url or self.base_url, receive_share, failing_entries))

    def on_event(self, listener: Listener) -> None:
        """Call `listener` with every `Event` from now on, before the call that caused it returns."""
        self._listeners.append(listener)
        for queue in self._queues.values():
            queue.notify = self._notify

    def has_deliverable(self, queue_url: str) -> bool:
        """True if a receive from the queue would now find something."""
        self._let_move()
        return self._queue_at(queue_url).has_deliverable(self.clock.now())

    @property
    def queue_names(self) -> list[str]:
        """The names of all queues, those first that were made first."""
        return list(self._queues)

    def messages(self, name: str) -> list[StoredMessage]:
        """All messages of the queue `name`, oldest first; looking receives nothing. Raises QueueDoesNotExist."""
        self._let_move()
        return self._queue_at(name).messages(self.clock.now())

    def glance(self, name: str, limit: int) -> Glance:
        """The queue `name` with its `limit` oldest messages. Looking changes nothing. Raises QueueDoesNotExist."""
        return self._queue_at(name).glance(limit, self.clock.now())

    def advance(self) -> None:
        """Let the changes of time alone happen in all queues, so that listeners hear of them."""
        self._let_move()
        for queue in self._queues.values():
            queue.advance(self.clock.now())

    def next_change_at(self, queue_url: str) -> float | None:
        """The next time (wall clock, seconds) at which time alone makes a message of the queue visible, or None."""
        return self._queue_at(queue_url).next_change_at()

    def wait_s(self, request: Request) -> int:
        """The seconds that a ReceiveMessage `request` may wait for messages: its own time or the queue's."""
        given = validation.optional_number(request, "WaitTimeSeconds", 0, 20, "Must be >= 0 and <= 20, if provided.")
        return self._queue_of(request).settings.wait_s if given is None else given

    def has_quota(self, name: str) -> bool:
        """Return whether `name` is a FIFO queue without high throughput, whose calls SQS counts."""
        queue = self._queues.get(name)
        return queue is not None and queue.settings.is_fifo and not queue.settings.has_high_throughput

    def queue_name(self, request: Request) -> str:
        """The name of the existing queue that `request` is about."""
        return self._queue_of(request).name

    def queue_url(self, name: str) -> str:
        """The URL of the queue `name`, which need not exist."""
        return _queue_url(self.base_url, name)

    def _let_move(self) -> None:
        if self._moves.running:
            self._moves.advance()

    def _notify(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)

    def _queue_at(self, queue_url: str) -> FifoQueue:
        queue = self._queues.get(names.of_queue(queue_url))
        if queue is None:
            raise errors.queue_does_not_exist()
        return queue

    def _queue_of(self, request: Request) -> FifoQueue:
        return self._queue_at(validation.required_text(request, "QueueUrl"))

    def _arn(self, name: str) -> str:
        return f"arn:aws:sqs:{self.region}:{ACCOUNT}:{name}"

    def _by_arn(self, arn: str) -> FifoQueue | None:
        return self._queues.get(name) if self._arn(name := arn.rpartition(":")[2]) == arn else None

    # Queues

    def _create_queue(self, request: Request, way: _Way) -> Response:
        name = validation.required_text(request, "QueueName")
        given = validation.mapping(request, "Attributes")
        is_fifo = queue_settings.is_true(given, "FifoQueue")
        existing = self._queues.get(name)
        if existing is not None and existing.settings.is_fifo and "FifoQueue" in given and not is_fifo:
            raise errors.queue_type_is_fixed()
        validation.queue_name(name, is_fifo=is_fifo)
        parsed = queue_settings.parse(given, is_fifo=is_fifo)
        if existing is not None:
            shown = existing.settings.described()
            for attribute, value in parsed.given.items():
                if shown.get(attribute, "") != value:
                    raise errors.queue_name_exists(attribute)
            return {"QueueUrl": _queue_url(way.base_url, name)}
        self._check_redrive(parsed)
        queue = FifoQueue(
            name,
            self._arn(name),
            parsed,
            self.clock.now(),
            self.rng,
            self.in_flight_cap,
            self.scan_limit,
            self._by_arn,
            self.any_order,
            self._notify if self._listeners else None,
            tags.added(name, {}, validation.mapping(request, "tags")),
        )
        self._queues[name] = queue
        return {"QueueUrl": _queue_url(way.base_url, name)}

    def _check_redrive(self, parsed: queue_settings.Settings) -> None:
        if parsed.redrive is None:
            return
        target = self._by_arn(parsed.redrive.target_arn)
        written = parsed.given["RedrivePolicy"]
        if target is None:
            raise errors.invalid_value(written, "RedrivePolicy", "Dead letter target does not exist.")
        if target.settings.is_fifo != parsed.is_fifo:
            reason = "Dead-letter queue must be same type of queue as the source."
            raise errors.invalid_value(written, "RedrivePolicy", reason)

    def _get_queue_url(self, request: Request, way: _Way) -> Response:
        if (validation.optional_text(request, "QueueOwnerAWSAccountId") or ACCOUNT) != ACCOUNT:
            raise errors.queue_does_not_exist()
        return {
            "QueueUrl": _queue_url(way.base_url, self._queue_at(validation.required_text(request, "QueueName")).name)
        }

    def _list_queues(self, request: Request, way: _Way) -> Response:
        prefix = validation.optional_text(request, "QueueNamePrefix") or ""
        page, token = answers.page(request, [name for name in self._queues if name.startswith(prefix)])
        return ({"QueueUrls": [_queue_url(way.base_url, name) for name in page]} if page else {}) | token

    def _list_dead_letter_source_queues(self, request: Request, way: _Way) -> Response:
        page, token = answers.page(request, self._sources_of(self._queue_of(request)))
        return {"queueUrls": [_queue_url(way.base_url, name) for name in page]} | token

    def _sources_of(self, target: FifoQueue) -> list[str]:
        policies = ((queue.name, queue.settings.redrive) for queue in self._queues.values())
        return [name for name, policy in policies if policy is not None and policy.target_arn == target.arn]

    def _delete_queue(self, request: Request, way: _Way) -> Response:
        queue = self._queue_of(request)
        self._moves.forget(queue)
        del self._queues[queue.name]
        return {}

    def _purge_queue(self, request: Request, way: _Way) -> Response:
        queue, now = self._queue_of(request), self.clock.now()
        if queue.purged_at is not None and now < queue.purged_at + _PURGE_INTERVAL_S:
            raise errors.purge_in_progress(queue.name)
        queue.purge(now)
        return {}

    def _get_queue_attributes(self, request: Request, way: _Way) -> Response:
        queue = self._queue_of(request)
        wanted = validation.text_list(request, "AttributeNames")
        queue_settings.check_names(wanted, is_fifo=queue.settings.is_fifo)
        shown = queue.settings.described()
        shown |= {name: str(count) for name, count in queue.counts(self.clock.now()).items()}
        shown["QueueArn"] = queue.arn
        shown["CreatedTimestamp"] = str(int(queue.created_at))
        shown["LastModifiedTimestamp"] = str(int(queue.modified_at))
        if "All" not in wanted:
            shown = {name: value for name, value in shown.items() if name in wanted}
        return {"Attributes": shown} if shown else {}

    def _set_queue_attributes(self, request: Request, way: _Way) -> Response:
        queue = self._queue_of(request)
        given = validation.mapping(request, "Attributes")
        if not given:
            raise errors.missing_parameter("Attribute.Name")
        parsed = queue_settings.parse({**queue.settings.given, **given}, is_fifo=queue.settings.is_fifo)
        if "RedrivePolicy" in given:
            self._check_redrive(parsed)
        queue.configure(parsed, self.clock.now())
        return {}

    # Messages

    def _receive_message(self, request: Request, way: _Way) -> Response:
        queue = self._queue_of(request)
        limit = validation.optional_number(
            request, "MaxNumberOfMessages", 1, validation.MAX_ENTRIES, "Must be between 1 and 10, if provided."
        )
        timeout_s = validation.optional_number(request, "VisibilityTimeout", 0, validation.MAX_VISIBILITY_TIMEOUT_S)
        self.wait_s(request)
        attempt_id = validation.optional_text(request, "ReceiveRequestAttemptId")
        if attempt_id is not None:
            if not queue.settings.is_fifo:
                raise errors.not_for_this_queue_type(attempt_id, "ReceiveRequestAttemptId")
            validation.fifo_id(attempt_id, "ReceiveRequestAttemptId")
        system_names = frozenset(
            validation.text_list(request, "MessageSystemAttributeNames")
            + validation.text_list(request, "AttributeNames")
        )
        attribute_names = validation.text_list(request, "MessageAttributeNames")
        messages = queue.receive(int((limit or 1) * way.receive_share), timeout_s, attempt_id, self.clock.now())
        if not messages:
            return {}
        return {"Messages": [answers.received_message(queue, m, system_names, attribute_names) for m in messages]}

    def _change_visibility(self, queue: FifoQueue, entry: Request) -> Response:
        handle = validation.required_text(entry, "ReceiptHandle")
        timeout_s = validation.optional_number(entry, "VisibilityTimeout", 0, validation.MAX_VISIBILITY_TIMEOUT_S)
        if timeout_s is None:
            raise errors.missing_parameter("VisibilityTimeout")
        queue.change_visibility(handle, timeout_s, self.clock.now())
        return {}

    def _delete(
        self, queue: FifoQueue, entry: Request, expired: Callable[[str], SqsError] = errors.expired_handle
    ) -> Response:
        queue.delete(validation.required_text(entry, "ReceiptHandle"), self.clock.now(), expired=expired)
        return {}

    def _delete_entry(self, queue: FifoQueue, entry: Request) -> Response:
        return self._delete(queue, entry, errors.expired_handle_in_batch)

    def _send(self, queue: FifoQueue, entry: Request) -> Response:
        return answers.send_response(queue, *queue.send(dict(entry), self.clock.now()))

    def _batch(self, request: Request, way: _Way, do: _EntryAction) -> Response:
        queue = self._queue_of(request)
        batch = validation.entries(request, way.action)
        if way.action == "SendMessageBatch":
            validation.batch_size(batch)
            for entry in batch:
                draft.require_ids(entry, queue.settings, no_group=errors.missing_in_entry)
        successful: list[Response] = []
        failed: list[Response] = []
        for position, entry in enumerate(batch):
            try:
                if position in way.failing_entries:
                    raise errors.entry_failed()
                successful.append({"Id": entry["Id"], **do(self, queue, entry)})
            except SqsError as error:
                failed.append(
                    {
                        "Id": entry["Id"],
                        "Code": error.query_code,
                        "Message": error.message,
                        "SenderFault": error.sender_fault,
                    }
                )
        # AWS leaves an empty Failed out, and always sends Successful.
        return {"Successful": successful, "Failed": failed} if failed else {"Successful": successful}


def _queue_url(base_url: str, name: str) -> str:
    return f"{base_url}/{ACCOUNT}/{name}"


_Action = Callable[[FifoModel, Request, _Way], Response]
_EntryAction = Callable[[FifoModel, FifoQueue, Request], Response]


def _alone(do: _EntryAction) -> _Action:
    """Return the action on a queue; it does for one message what a batch does for each of its entries."""
    return lambda model, request, way: do(model, model._queue_of(request), request)


def _each(do: _EntryAction) -> _Action:
    return lambda model, request, way: model._batch(request, way, do)


ACTIONS: Mapping[str, _Action] = {
    "CancelMessageMoveTask": lambda model, request, way: model._moves.cancel(request),
    "ChangeMessageVisibility": _alone(FifoModel._change_visibility),
    "ChangeMessageVisibilityBatch": _each(FifoModel._change_visibility),
    "CreateQueue": FifoModel._create_queue,
    "DeleteMessage": _alone(FifoModel._delete),
    "DeleteMessageBatch": _each(FifoModel._delete_entry),
    "DeleteQueue": FifoModel._delete_queue,
    "GetQueueAttributes": FifoModel._get_queue_attributes,
    "GetQueueUrl": FifoModel._get_queue_url,
    "ListDeadLetterSourceQueues": FifoModel._list_dead_letter_source_queues,
    "ListMessageMoveTasks": lambda model, request, way: model._moves.recent(request),
    "ListQueueTags": _alone(lambda model, queue, request: tags.listed(queue)),
    "ListQueues": FifoModel._list_queues,
    "PurgeQueue": FifoModel._purge_queue,
    "ReceiveMessage": FifoModel._receive_message,
    "SendMessage": _alone(FifoModel._send),
    "SendMessageBatch": _each(FifoModel._send),
    "SetQueueAttributes": FifoModel._set_queue_attributes,
    "StartMessageMoveTask": lambda model, request, way: model._moves.start(request),
    "TagQueue": _alone(lambda model, queue, request: tags.tag(queue, request)),
    "UntagQueue": _alone(lambda model, queue, request: tags.untag(queue, request)),
}
