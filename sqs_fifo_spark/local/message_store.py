"""A queue's messages in order, and those of them that may be handed out: the data structure under it.

Every message stands in its queue and in its group, both in the order of sending. A group is free while its first
message may be handed out and lies within the scan limit; free groups stand in line in the order in which they became
free. Nothing that a message goes through walks over all messages: each operation costs O(log n) at most. So all these
are OrderedDicts, which find their first key at once however many were taken before it.

The heap of hidden messages is cleaned lazily. An entry that no longer holds is dropped when it comes to the top, and a
heap with more dead entries than live ones is rebuilt.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice, takewhile

from sqs_fifo_spark.local.draft import MessageDraft

_HEAP_SLACK = 1_000


@dataclass(slots=True, eq=False, repr=False)
class Group:
    """The messages of one message group, first to last, by their sequence numbers."""

    key: Hashable
    messages: OrderedDict[int, StoredMessage] = field(default_factory=OrderedDict)

    @property
    def first(self) -> StoredMessage | None:
        return next(iter(self.messages.values()), None)


_NO_GROUP = Group(None)


@dataclass(slots=True, eq=False, repr=False)
class StoredMessage:
    """A message in a queue; to move it makes another one of its draft. All times are wall-clock seconds.

    A message is hidden when it is in flight, or delayed. Its repr shows no body.
    """

    sequence: int
    message_id: str
    draft: MessageDraft
    sent_at: float
    receive_count: int = 0
    first_received_at: float | None = None
    source_arn: str | None = None
    receives_here: int = 0
    """Receives from the queue it stands in: those from a queue it was moved out of do not count against this one's
    redrive policy."""
    received_at: float = 0.0
    hidden_until: float | None = None
    """None while it may be handed out."""
    in_flight: bool = False
    changed_in: int = 0
    """The last receive (by `receives_here`) in which its visibility was changed; 0 for none."""
    group: Group = _NO_GROUP


class MessageStore:
    """All messages of one queue, in sequence order.

    Messages past the first `scan_limit` are not looked at for free groups, as SQS does not look past the first 120,000.
    """

    def __init__(self, scan_limit: int) -> None:
        self._scan_limit = scan_limit
        # By sequence number: those within the scan limit, and later ones.
        self._near: OrderedDict[int, StoredMessage] = OrderedDict()
        self._far: OrderedDict[int, StoredMessage] = OrderedDict()
        self._groups: dict[Hashable, Group] = {}
        # In line, first to last.
        self._free: OrderedDict[Group, None] = OrderedDict()
        self._hidden_heap: list[tuple[float, int]] = []
        self._hidden_count = 0
        self.in_flight_count = 0

    def __len__(self) -> int:
        return len(self._near) + len(self._far)

    def __iter__(self) -> Iterator[StoredMessage]:
        return chain(self._near.values(), self._far.values())

    @property
    def delayed_count(self) -> int:
        """Number of messages that are hidden without having been received."""
        return self._hidden_count - self.in_flight_count

    @property
    def first(self) -> StoredMessage | None:
        """The oldest message."""
        return next(iter(self._near.values()), None)

    def get(self, sequence: int) -> StoredMessage | None:
        """The message with this sequence number, or None when it is gone."""
        return self._near.get(sequence) or self._far.get(sequence)

    def append(self, message: StoredMessage, key: Hashable) -> None:
        """Add `message` at the end of its queue and of the group `key`; it may be handed out."""
        group = message.group = self._groups.get(key) or self._groups.setdefault(key, Group(key))
        group.messages[message.sequence] = message
        within = self._near if len(self._near) < self._scan_limit else self._far
        within[message.sequence] = message
        self._settle(group)

    def remove(self, message: StoredMessage) -> None:
        """Take `message` out for good; later ones of its group may become free."""
        self._leave_hiding(message)
        group = message.group
        del group.messages[message.sequence]
        if not group.messages:
            del self._groups[group.key]
        reached = None
        if message.sequence in self._far:
            del self._far[message.sequence]
        else:
            del self._near[message.sequence]
            if self._far:
                sequence, reached = self._far.popitem(last=False)
                self._near[sequence] = reached
        self._settle(group)
        if reached is not None:
            self._settle(reached.group)
        message.group = _NO_GROUP

    def hide(self, message: StoredMessage, until: float, *, in_flight: bool) -> None:
        """Do not hand out `message`, nor later ones of its group, before `until`."""
        if message.hidden_until is None:
            self._hidden_count += 1
        if in_flight and not message.in_flight:
            message.in_flight = True
            self.in_flight_count += 1
        message.hidden_until = until
        self._settle(message.group)
        heapq.heappush(self._hidden_heap, (until, message.sequence))
        if len(self._hidden_heap) > 2 * self._hidden_count + _HEAP_SLACK:
            self._hidden_heap = [entry for entry in self._hidden_heap if self._is_live(entry)]
            heapq.heapify(self._hidden_heap)

    def show(self, message: StoredMessage) -> None:
        """Let a hidden `message` be handed out, as far as its group lets it."""
        self._leave_hiding(message)
        self._settle(message.group)

    def delay_unreceived(self, delay_s: int, now: float) -> None:
        """Let every message that was never received show `delay_s` after it was sent. Walks over all messages."""
        for message in self:
            if message.receive_count == 0:
                until = message.sent_at + delay_s
                if until > now:
                    self.hide(message, until, in_flight=False)
                elif message.hidden_until is not None:
                    self.show(message)

    def pop_due(self, now: float) -> Iterator[StoredMessage]:
        """Show every message that was hidden until `now` or earlier, and yield those that were in flight."""
        heap = self._hidden_heap
        while heap and heap[0][0] <= now:
            entry = heapq.heappop(heap)
            if self._is_live(entry):
                message = self._near.get(entry[1]) or self._far[entry[1]]
                was_in_flight = message.in_flight
                self.show(message)
                if was_in_flight:
                    yield message

    def next_due_at(self) -> float | None:
        """The time at which the next hidden message shows again, or None."""
        heap = self._hidden_heap
        while heap and not self._is_live(heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now: float) -> set[StoredMessage]:
        """The messages that `pop_due` would show; they stay hidden. Walks over all that are hidden."""
        due = (entry for entry in self._hidden_heap if entry[0] <= now and self._is_live(entry))
        return {self._near.get(sequence) or self._far[sequence] for _, sequence in due}

    def first_free(self) -> StoredMessage | None:
        """The first message of the group that has been free the longest, or None when no group is free."""
        return next(iter(self._free)).first if self._free else None

    def free_heads(self) -> list[StoredMessage]:
        """The first message of every free group, the one that has been free the longest first."""
        return [group.first for group in self._free if group.first is not None]

    def oldest_free(self) -> StoredMessage | None:
        """The oldest message that is the first of a free group. Walks over the older ones."""
        return next(
            (message for message in self if message.group in self._free and message.group.first is message), None
        )

    def deliverable(self, group: Group, most: int) -> list[StoredMessage]:
        """The first messages of a free group that may be handed out together."""
        return list(islice(takewhile(self._is_deliverable, group.messages.values()), most))

    def _is_deliverable(self, message: StoredMessage) -> bool:
        return message.hidden_until is None and message.sequence in self._near

    def _settle(self, group: Group) -> None:
        """Give `group` the last place in line if it became free, or take its place away if it is no longer."""
        first = group.first
        if first is None or not self._is_deliverable(first):
            self._free.pop(group, None)
        elif group not in self._free:
            self._free[group] = None

    def _leave_hiding(self, message: StoredMessage) -> None:
        if message.hidden_until is not None:
            self._hidden_count -= 1
            message.hidden_until = None
        if message.in_flight:
            self.in_flight_count -= 1
            message.in_flight = False

    def _is_live(self, entry: tuple[float, int]) -> bool:
        message = self.get(entry[1])
        return message is not None and message.hidden_until == entry[0]
