"""A look into queues without receiving, for tests: the messages in them, and the history of each."""

from __future__ import annotations

from collections import deque
from typing import Any

from sqs_fifo_spark.local.events import Event
from sqs_fifo_spark.local.message_store import StoredMessage
from sqs_fifo_spark.local.model import FifoModel

HISTORY = 100_000
"""Events, of all queues together; about 20 MB."""

Described = dict[str, Any]


class Inspector:
    """Answers about a model's queues, and remembers the last 100,000 events. For the model's thread only.

    Times are wall-clock seconds, the queue's own. Bodies are shown: they are those of the caller's own tests.
    """

    def __init__(self, model: FifoModel) -> None:
        self._model = model
        self._events: deque[Event] = deque(maxlen=HISTORY)
        model.on_event(self._events.append)

    def messages(self, queue: str | None = None) -> list[Described]:
        """All messages of the queue of that name or URL, oldest first; without one, of all queues, one after another.

        Raises SqsError when there is no such queue.
        """
        names = self._model.queue_names if queue is None else [self._model.queue_name({"QueueUrl": queue})]
        return [_message(name, message) for name in names for message in self._model.messages(name)]

    def history(self, message_id: str) -> list[Described]:
        """The events of a message, in order, also after its end; none for one that is not known, or forgotten.

        Changes by time alone stand at the time at which the queue noticed them, here at the latest.
        """
        self._model.advance()
        return self.noticed(message_id)

    def noticed(self, message_id: str) -> list[Described]:
        """The same without a trace: changes by time alone that no call has noticed yet are not there."""
        return [_event(event) for event in self._events if event.message_id == message_id]


def _message(queue: str, message: StoredMessage) -> Described:
    state = "waiting"
    if message.hidden_until is not None:
        state = "in flight" if message.in_flight else "delayed"
    return {
        "messageId": message.message_id,
        "queue": queue,
        "state": state,
        "messageGroupId": message.draft.group_id,
        "sequenceNumber": str(message.sequence),
        "messageDeduplicationId": message.draft.deduplication_id,
        "receiveCount": message.receive_count,
        "sentAt": message.sent_at,
        "visibleAt": message.hidden_until,
        "deadLetterQueueSourceArn": message.source_arn,
        "messageAttributes": message.draft.attributes,
        "body": message.draft.body,
    }


def _event(event: Event) -> Described:
    return {
        "event": event.kind,
        "at": event.at,
        "queue": event.queue,
        "messageGroupId": event.message_group_id,
        "sequenceNumber": str(event.sequence_number),
        "receiveCount": event.receive_count,
        "visibleAt": event.visible_at,
    }
