"""The receives that an attempt goes on to make, pure: those that its chain and link may take, and that are worth it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqs_fifo_spark.aws.calls import MAX_ENTRIES
from sqs_fifo_spark.source.message import Message
from sqs_fifo_spark.source.queue import CONCURRENT_CALLS

LINK_MESSAGES = 1_000
"""Messages of a link at most, where others follow."""
LINK_BYTES = 8 << 20
_FIRST_GAP = 8
_LONGEST_GAP = 64
"""Links before more is asked for again, after the queue gave less: twice as many each time that it is in vain."""


class Allowance:
    """The rest of a chain's limits, for all its attempts: messages, bytes, and the time to fetch them."""

    def __init__(self, *, messages: int, size: int, expected: int, share: int, until: float, began_ms: float) -> None:
        """About `expected` messages may come; of those, `share` come if all partitions get as many.

        `until` is monotonic time; `began_ms` is the wall clock's when the attempt began to receive.
        """
        self.messages = messages
        self.size = size
        self.expected = expected
        self.share = share
        self.until = until
        self._began_ms = began_ms
        self._has_message = False

    def is_used_up(self, now: float) -> bool:
        return self.messages <= 0 or self.size <= 0 or now >= self.until

    def spend(self, messages: int, size: int) -> None:
        """Count messages of the chain, be they another attempt's; `size` is in bytes."""
        self.messages -= messages
        self.size -= size
        self.expected -= messages
        self.share -= messages

    def take(self, kept: Sequence[Message]) -> None:
        self._has_message = self._has_message or bool(kept)
        self.spend(len(kept), sum(message.size for message in kept))

    def extend(self, until: float) -> None:
        """Let the fetch time count from the first message to serve. It comes in the end: a copy is deleted once."""
        if not self._has_message:
            self.until = until

    def has_only_new(self, messages: Sequence[Message]) -> bool:
        """Return True if all of these were sent since this attempt began: the backlog is drained, the chain may end."""
        return bool(messages) and all(message.receipt.sent_at_ms > self._began_ms for message in messages)


class LinkRoom:
    """The rest of a link's limits. Where no other follows it, it has none but the chain's."""

    def __init__(self, receives: float = math.inf, messages: float = math.inf, size: float = math.inf) -> None:
        self.receives = receives
        self.messages = messages
        self.size = size
        self.made = 0
        """Number of receives that brought something."""

    @property
    def is_full(self) -> bool:
        return self.receives <= 0 or self.messages <= 0 or self.size <= 0

    def take(self, kept: Sequence[Message]) -> None:
        """Count one receive that brought something, of which these are left."""
        self.made += 1
        self.receives -= 1
        self.messages -= len(kept)
        self.size -= sum(message.size for message in kept)


class Demand:
    """The number of receives that are worth a try, by what those for the last link have brought.

    Sealed messages are deleted only after the receives of their link, so groups stay locked: where the queue gave no
    more for the link before, it is not asked in vain each time.
    """

    def __init__(self, *, in_links: bool) -> None:
        self.in_links = in_links
        self._worth = 0
        """Number of receives for the last link that brought something."""
        self._largest = 0
        """Bytes of the largest answer."""
        self._gap = _FIRST_GAP
        self._until_more = 0
        """Number of links until more is asked for."""
        self._was_full = False
        """True if the last link has one receive, which brought as much as one can, of one group."""
        self._has_waited_in_vain = False

    def begin_link(self) -> LinkRoom:
        if not self.in_links:
            return LinkRoom()
        self._until_more -= 1
        most = LINK_MESSAGES if self._until_more < 0 else max(1, self._worth)
        return LinkRoom(most, LINK_MESSAGES, LINK_BYTES)

    def at_once(self, link: LinkRoom, chain: Allowance) -> int:
        """Return the number of receives to make at once: as many as for the last link, or as have brought something."""
        hoped = self._worth - link.made if link.made < self._worth else link.made - self._worth
        wanted = min(chain.messages, max(chain.share, 1), link.messages)
        fitting = min(chain.size, link.size) // max(1, self._largest)
        return int(max(1, min(CONCURRENT_CALLS, hoped, link.receives, -(-wanted // MAX_ENTRIES), fitting)))

    def note_answer(self, answer: Sequence[Message]) -> None:
        self._largest = max(self._largest, sum(message.size for message in answer))

    def end_link(self, link: LinkRoom, messages: Sequence[Message]) -> None:
        if self._until_more < 0:
            self._gap = _FIRST_GAP if link.made > self._worth else min(_LONGEST_GAP, 2 * self._gap)
            self._until_more = self._gap
        self._worth = link.made
        groups = {message.receipt.message_group_id for message in messages}
        self._was_full = link.made == 1 and len(messages) == MAX_ENTRIES and len(groups) == 1

    def may_wait(self, chain: Allowance) -> bool:
        """Return True if it is worthwhile to receive beside the delete of the last link, which unlocks later messages.

        So it is where one group has all: it filled the last receive, and one more would have brought nothing.
        """
        return self._was_full and chain.expected > 0 and not self._has_waited_in_vain

    def note_wait(self, messages: Sequence[Message]) -> None:
        """Note whether the queue answers a waiting receive with the messages that a delete unlocks."""
        self._has_waited_in_vain = not messages
