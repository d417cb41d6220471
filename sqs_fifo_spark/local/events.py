"""Events of messages in the local queue, for a test that audits their history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "sent",
    "duplicate",
    "received",
    "replayed",
    "deleted",
    "visibility_changed",
    "lapsed",
    "moved_to_dlq",
    "redriven",
    "expired",
    "purged",
]


@dataclass(frozen=True, slots=True)
class Event:
    """One event of one message; never holds its body.

    `at` is the model's wall-clock time in seconds, `queue` the queue's name. `visible_at` is the time at which the
    message shows again, for "received", "replayed" and "visibility_changed". `receive_count` stands as after the event.
    "duplicate" names the message whose ids were given again; its `message_group_id` is the one that the duplicate was
    sent with. "redriven" is a message's end in a dead-letter queue: the new message is "sent" to the other queue.
    """

    kind: Kind
    at: float
    queue: str
    message_id: str
    message_group_id: str | None
    sequence_number: int
    receive_count: int
    visible_at: float | None = None


Listener = Callable[[Event], None]
