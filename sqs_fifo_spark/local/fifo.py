"""One queue: sending, receiving, deleting and hiding, as SQS FIFO does them.

A standard queue is the same thing with every message in a group of its own, so that nothing locks anything, and without
deduplication; it serves to test clients that meet one.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Any, NamedTuple

from sqs_fifo_spark.local import draft, errors, names, receipts, validation
from sqs_fifo_spark.local.events import Event, Kind
from sqs_fifo_spark.local.message_store import MessageStore, StoredMessage
from sqs_fifo_spark.local.recent import Recent
from sqs_fifo_spark.local.settings import Settings

# The sequence numbers of a receive with the `receives_here` that each message had: together they show whether the same
# delivery is still in flight. Not the messages, so that deleted ones leave the memory.
Attempt = list[tuple[int, int]]

DEDUPLICATION_S = 300.0
ATTEMPT_S = 300.0

# Number of messages that went to another queue whose old handles are known apart from those of deleted ones.
_MOVED_KEPT = 120_000

# AWS's numbers are 20 digits long, rise, and leave gaps. Each queue begins somewhere in a range of its own making.
_FIRST_SEQUENCE = 18_850_000_000_000_000_000
_LARGEST_GAP = 512


class SentMessage(NamedTuple):
    """A message that a send has stored, or of which it was a duplicate."""

    message_id: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Glance:
    """A queue as it stands for a call at some time: its counts, and its oldest messages, as many as were asked for."""

    settings: Settings
    depth: int
    in_flight: int
    delayed: int
    oldest: list[StoredMessage]


@dataclass(eq=False, repr=False)
class FifoQueue:
    """A queue and its messages. Not for use by several threads.

    `find_dead_letter_queue` looks up the target of the redrive policy, by its ARN. With `any_order`, `rng` draws the
    next free group, for SQS does not say which. Every public method takes the time `now`, in wall-clock seconds, and
    first lets the changes happen that time alone brings; all but `glance`.
    """

    name: str
    arn: str
    settings: Settings
    created_at: float
    rng: random.Random
    in_flight_cap: int
    scan_limit: int
    find_dead_letter_queue: Callable[[str], FifoQueue | None]
    any_order: bool
    notify: Callable[[Event], None] | None
    tags: dict[str, str]
    purged_at: float | None = None

    def __post_init__(self) -> None:
        self.modified_at = self.created_at
        self._tag = self.rng.getrandbits(64)
        # Of the message that came last, even if it is gone.
        self.last_sequence = _FIRST_SEQUENCE + (self._tag >> 16)
        self._store = MessageStore(self.scan_limit)
        # Under the id alone, or with its group, by the scope in force when it was sent.
        self._remembered = Recent[Hashable, SentMessage]()
        self._attempts = Recent[str, Attempt]()
        # The sequence numbers of the last messages that went to another queue, oldest first.
        self._moved: OrderedDict[int, None] = OrderedDict()

    def configure(self, settings: Settings, now: float) -> None:
        """Put `settings` in force.

        A FIFO queue's delay holds for the messages that are there already and were never received, too.
        Deduplication ids stay recognised under the scope at which they were sent.
        """
        self.advance(now)
        is_delay_changed = settings.delay_s != self.settings.delay_s
        self.settings = settings
        self.modified_at = now
        if settings.is_fifo and is_delay_changed:
            self._store.delay_unreceived(settings.delay_s, now)

    def send(self, request: dict[str, Any], now: float) -> tuple[SentMessage, draft.MessageDraft]:
        """Store the message that `request` describes, or recognise it as a duplicate of a stored one: the first."""
        self.advance(now)
        sent = draft.read(request, self.settings)
        in_group, in_queue = (sent.group_id, sent.deduplication_id), sent.deduplication_id
        first = self._remembered.get(in_group) or self._remembered.get(in_queue)  # as the scope may have changed since
        if first is None:
            message = StoredMessage(self._next_sequence(), names.new_id(self.rng), sent, now)
            first = SentMessage(message.message_id, message.sequence)
            if self.settings.is_fifo:
                key = in_group if self.settings.deduplicates_per_group else in_queue
                self._remembered.remember(key, first, now + DEDUPLICATION_S)
            self._enqueue(message, sent.delay_s, now)
            self._notify_of("sent", message, now)
        elif self.notify is not None:
            self.notify(Event("duplicate", now, self.name, first.message_id, sent.group_id, first.sequence, 0))
        return first, sent

    def receive(
        self, limit: int, visibility_timeout_s: int | None, attempt_id: str | None, now: float
    ) -> list[StoredMessage]:
        """Hand out at most `limit` messages and hide them for `visibility_timeout_s` (None: the queue's).

        Takes the group that has been free the longest first, as far as it goes, then the next: one that lapsed or was
        released comes behind those that were free before it. Never more messages than the in-flight cap leaves room
        for, and no error at the cap. With an `attempt_id` that was used in the last five minutes, hands out that
        receive's messages again with the same handles, as long as all of them are still in flight from it.

        Raises InvalidParameterValue when a message of that earlier receive is gone or had its visibility changed since,
        whoever did it.
        """
        self.advance(now)
        timeout_s = self.settings.visibility_timeout_s if visibility_timeout_s is None else visibility_timeout_s
        if attempt_id is not None:
            delivered = self._delivered_by(attempt_id)
            if delivered is not None:
                return self._replay(delivered, timeout_s, now)
        messages = self._take(min(limit, self.in_flight_cap - self._store.in_flight_count), timeout_s, now)
        if messages and attempt_id is not None:
            attempt = [(message.sequence, message.receives_here) for message in messages]
            self._attempts.remember(attempt_id, attempt, now + ATTEMPT_S)
        return messages

    def delete(self, handle: str, now: float, *, expired: Callable[[str], errors.SqsError]) -> None:
        """Delete the message that `handle` was given out for; one that is gone already is a success.

        Raises ReceiptHandleIsInvalid for a text that is no handle of this queue, and the error of `expired` when the
        visibility timeout has lapsed, or the message was received again or has gone to the dead-letter queue since. A
        standard queue takes such a handle.
        """
        receipt, message = self._find(handle, now)
        if message is None:
            if self.settings.is_fifo and receipt.sequence in self._moved:
                raise expired(handle)
            return
        if self.settings.is_fifo and self._in_flight(receipt.sequence, receipt.receive) is None:
            raise expired(handle)
        self._store.remove(message)
        self._notify_of("deleted", message, now)

    def change_visibility(self, handle: str, timeout_s: int, now: float) -> None:
        """Hide the message for `timeout_s` from now; 0 shows it at once.

        Raises InvalidParameterValue when the message is gone, was received again, or would be hidden for more than 12
        hours since its receive; MessageNotInflight when it waits to be received.
        """
        receipt, message = self._find(handle, now)
        if message is None or message.receives_here != receipt.receive:
            raise errors.not_available_for_change(handle)
        if not message.in_flight:
            raise errors.message_not_in_flight()
        until = now + timeout_s
        if until > message.received_at + validation.MAX_VISIBILITY_TIMEOUT_S:
            raise errors.invalid_value(
                timeout_s,
                "VisibilityTimeout",
                "Total VisibilityTimeout for the message is beyond the limit "
                f"[{validation.MAX_VISIBILITY_TIMEOUT_S} seconds]",
            )
        message.changed_in = receipt.receive
        if timeout_s == 0:
            self._store.show(message)
        else:
            self._store.hide(message, until, in_flight=True)
        self._notify_of("visibility_changed", message, now, until)

    def purge(self, now: float) -> None:
        """Drop all messages, those in flight too, and forget all deduplication ids."""
        self.advance(now)
        while (message := self._store.first) is not None:
            self._store.remove(message)
            self._notify_of("purged", message, now)
        self._remembered.clear()
        self.purged_at = now

    def advance(self, now: float) -> None:
        """Let the changes of time alone happen: timeouts lapse, messages expire, ids are forgotten."""
        for message in self._store.pop_due(now):
            self._notify_of("lapsed", message, now)
        oldest_kept = now - self.settings.retention_s
        while (first := self._store.first) is not None and first.sent_at <= oldest_kept:
            self._store.remove(first)
            self._notify_of("expired", first, now)
        self._remembered.forget(now)
        self._attempts.forget(now)

    def has_deliverable(self, now: float) -> bool:
        """True if a receive would now find a free group, and room under the in-flight cap."""
        self.advance(now)
        return self._store.in_flight_count < self.in_flight_cap and self._store.first_free() is not None

    def next_change_at(self) -> float | None:
        """The time at which the next hidden message shows again unless something happens first, or None."""
        return self._store.next_due_at()

    def counts(self, now: float) -> dict[str, int]:
        """The three approximate counts of `GetQueueAttributes`, here exact."""
        self.advance(now)
        hidden, delayed = self._store.in_flight_count, self._store.delayed_count
        return {
            "ApproximateNumberOfMessages": len(self._store) - hidden - delayed,
            "ApproximateNumberOfMessagesNotVisible": hidden,
            "ApproximateNumberOfMessagesDelayed": delayed,
        }

    def handle_of(self, message: StoredMessage) -> str:
        """The receipt handle of the latest delivery of `message`."""
        return receipts.encode(self._tag, message.sequence, message.receives_here)

    def accept_dead_letter(self, message: StoredMessage, source_arn: str, now: float) -> None:
        """Take over a message that its queue gave up: new enqueue time, sequence and deduplication id."""
        moved = StoredMessage(
            self._next_sequence(),
            message.message_id,
            replace(message.draft, deduplication_id=message.message_id if self.settings.is_fifo else None),
            now,
            message.receive_count,
            message.first_received_at,
            source_arn,
        )
        self._enqueue(moved, 0, now)

    def messages(self, now: float) -> list[StoredMessage]:
        """All messages, oldest first, as they stand: nothing is received."""
        self.advance(now)
        return list(self._store)

    def glance(self, limit: int, now: float) -> Glance:
        """Look without a trace, at the `limit` oldest messages: one whose timeout is over counts as shown, and has not
        lapsed by it.
        """
        oldest_kept = now - self.settings.retention_s
        expired = list(takewhile(lambda message: message.sent_at <= oldest_kept, self._store))
        no_longer = [message for message in {*expired, *self._store.due(now)} if message.hidden_until is not None]
        in_flight = sum(message.in_flight for message in no_longer)
        return Glance(
            settings=self.settings,
            depth=len(self._store) - len(expired),
            in_flight=self._store.in_flight_count - in_flight,
            delayed=self._store.delayed_count - (len(no_longer) - in_flight),
            oldest=list(islice(self._store, len(expired), len(expired) + limit)),
        )

    def next_to_redrive(self, up_to: int, now: float) -> StoredMessage | None:
        """The oldest message that a receive could hand out, if its sequence number is at most `up_to`."""
        self.advance(now)
        message = self._store.oldest_free()
        return None if message is None or message.sequence > up_to else message

    def redrive(self, message: StoredMessage, target: FifoQueue, now: float) -> None:
        """Move `message` to `target` as a new message: new id and enqueue time, and no receives."""
        self._give_up(message)
        moved = StoredMessage(target._next_sequence(), names.new_id(target.rng), message.draft, now)
        self._notify_of("redriven", message, now)
        target._enqueue(moved, 0, now)
        target._notify_of("sent", moved, now)

    def _give_up(self, message: StoredMessage) -> None:
        self._store.remove(message)
        self._moved[message.sequence] = None
        if len(self._moved) > _MOVED_KEPT:
            self._moved.popitem(last=False)

    def _take(self, limit: int, timeout_s: int, now: float) -> list[StoredMessage]:
        messages: list[StoredMessage] = []
        while len(messages) < limit and (head := self._next_free()) is not None:
            for message in self._store.deliverable(head.group, limit - len(messages)):
                if not self._moved_to_dead_letter_queue(message, now):
                    self._hand_out(message, timeout_s, now)
                    messages.append(message)
        return messages

    def _next_free(self) -> StoredMessage | None:
        if not self.any_order:
            return self._store.first_free()
        heads = self._store.free_heads()
        return self.rng.choice(heads) if heads else None

    def _hand_out(self, message: StoredMessage, timeout_s: int, now: float) -> None:
        message.receive_count += 1
        message.receives_here += 1
        message.received_at = now
        if message.first_received_at is None:
            message.first_received_at = now
        self._store.hide(message, now + timeout_s, in_flight=True)
        self._notify_of("received", message, now, now + timeout_s)

    def _delivered_by(self, attempt_id: str) -> list[StoredMessage] | None:
        """The messages that an earlier receive handed out if all are still in flight from it, else None."""
        attempt = self._attempts.get(attempt_id)
        if attempt is None:
            return None
        delivered: list[StoredMessage] = []
        for sequence, receive in attempt:
            message = self._store.get(sequence)
            if message is None or message.changed_in >= receive:
                raise errors.void_attempt_id(attempt_id)
            delivered.append(message)
        is_current = all(self._in_flight(sequence, receive) for sequence, receive in attempt)
        return delivered if is_current else None

    def _replay(self, messages: list[StoredMessage], timeout_s: int, now: float) -> list[StoredMessage]:
        for message in messages:
            latest = message.received_at + validation.MAX_VISIBILITY_TIMEOUT_S
            until = min(now + timeout_s, latest)
            self._store.hide(message, until, in_flight=True)
            self._notify_of("replayed", message, now, until)
        return messages

    def _moved_to_dead_letter_queue(self, message: StoredMessage, now: float) -> bool:
        redrive = self.settings.redrive
        if redrive is None or message.receives_here < redrive.max_receive_count:
            return False
        target = self.find_dead_letter_queue(redrive.target_arn)
        if target is None:
            # The target was deleted: the message has nowhere to go, so it goes on being delivered.
            return False
        self._give_up(message)
        target.accept_dead_letter(message, self.arn, now)
        self._notify_of("moved_to_dlq", message, now)
        return True

    def _enqueue(self, message: StoredMessage, delay_s: int, now: float) -> None:
        key = message.draft.group_id if self.settings.is_fifo else message.sequence
        self._store.append(message, key)
        if delay_s:
            self._store.hide(message, now + delay_s, in_flight=False)

    def _in_flight(self, sequence: int, receive: int) -> StoredMessage | None:
        message = self._store.get(sequence)
        if message is None or not message.in_flight or message.receives_here != receive:
            return None
        return message

    def _find(self, handle: str, now: float) -> tuple[receipts.HandleParts, StoredMessage | None]:
        self.advance(now)
        receipt = receipts.decode(self._tag, handle)
        if receipt is None:
            raise errors.malformed_handle(handle)
        return receipt, self._store.get(receipt.sequence)

    def _next_sequence(self) -> int:
        self.last_sequence += self.rng.randint(1, _LARGEST_GAP)
        return self.last_sequence

    def _notify_of(self, kind: Kind, message: StoredMessage, now: float, visible_at: float | None = None) -> None:
        if self.notify is not None:
            ids = message.message_id, message.draft.group_id, message.sequence
            self.notify(Event(kind, now, self.name, *ids, message.receive_count, visible_at))
