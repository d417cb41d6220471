"""The queues of a source over several, as its list has them now, and as Spark's offsets have them."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import urlsplit

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import AccessDeniedError, OptionError, TransientQueueError
from sqs_fifo_spark.options import SourceOptions, queue_key
from sqs_fifo_spark.source.driver.member import Member, MemberDriver
from sqs_fifo_spark.source.driver.sharing import share_partitions
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.offsets import Offsets

_log = logging.getLogger(__name__)

MakeDriver = Callable[[str, Callable[[], None], Callable[[int], int]], MemberDriver]
"""Makes the driver of a queue, by its URL, with its `before_poll` and its `most_partitions`."""


class Membership:
    """A `Member` for each queue of the list, and for each that has left it and is not settled yet.

    Lives in the reader process beside Spark's driver, and is used by one thread.
    """

    def __init__(
        self,
        options: SourceOptions,
        list_queues: Callable[[], Sequence[str]],
        make_driver: MakeDriver,
        changed: threading.Condition,
        clock: Clock,
    ) -> None:
        """`list_queues` returns the URLs of the queues. Makes no call."""
        self._options = options
        self._list_queues = list_queues
        self._make_driver = make_driver
        self._changed = changed
        self._clock = clock
        self._by_key: dict[str, Member] = {}
        self._ends: dict[str, Offset] = {}
        """By key, the places at which queues were settled, and left Spark's offsets in this run."""
        self.listed: frozenset[str] = frozenset()
        """Keys of those that the list has."""
        self.busy: frozenset[str] = frozenset()
        """Keys of those in the micro-batch that was announced last; all of them before the first one."""
        self.list_at = -math.inf
        """Monotonic time at which the list is asked for again."""
        self.is_available_now = False
        """True if each new driver is to serve what waits then, and to end."""

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._by_key.values()))

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def __getitem__(self, key: str) -> Member:
        return self._by_key[key]

    def refresh(self, known: Offsets) -> None:
        """Have a member for each queue of the list, and of `known`; the list is asked for when it is due."""
        now = self._clock.monotonic()
        if now >= self.list_at:
            try:
                urls = {queue_key(url): url for url in self._list_queues()}
            except (AccessDeniedError, TransientQueueError) as error:
                if not self._by_key:
                    raise
                _log.warning("the list of queues is not known, so the last one is used: %s", error)
            else:
                self.listed = frozenset(urls)
                self.busy = self.busy or self.listed
                for key, url in urls.items():
                    self._by_key.setdefault(key, self._member(url))
            # Which messages wait at its beginning is what an AvailableNow query is about.
            every_s = math.inf if self.is_available_now else self._options.queue_discovery_s
            self.list_at = now + every_s if self._options.queue_name_prefix else math.inf
        for key, url, _ in known:
            if key not in self._by_key:
                self._require_host_of_list(url)
                self._by_key[key] = self._member(url)
        for member in self._by_key.values():
            if member.aside_until is not None and now >= member.aside_until and not self.is_available_now:
                member.aside_until = member.refusal = None

    def _member(self, url: str) -> Member:
        def make(before_poll: Callable[[], None]) -> MemberDriver:
            driver = self._make_driver(url, before_poll, lambda waiting: self._most_partitions(member, waiting))
            # Of one that is refused, or not in the list, the last micro-batch is all that there is to do.
            if self.is_available_now and member.aside_until is None and member.key in self.listed:
                driver.prepare_available_now()
            return driver

        member = Member(url, make, self._changed, self._clock)
        return member

    def _require_host_of_list(self, url: str) -> None:
        """Require of a queue that the list has no longer that calls go where they went before."""
        hosts = {urlsplit(each.url).netloc for each in self._by_key.values()}
        if hosts and urlsplit(url).netloc not in hosts:  # all queues of a prefix may be gone
            raise OptionError(
                f"the checkpoint has the queue '{url}', which is none of 'queueUrls' or 'queueNamePrefix', on a host "
                "that none of these has. Name it in queueUrls once more, until a micro-batch has been committed."
            )

    def _most_partitions(self, member: Member, waiting: int) -> int:
        others = [each for each in list(self._by_key.values()) if each.key in self.busy and each is not member]
        return share_partitions(self._options.num_partitions, waiting, [each.waiting for each in others])

    def free(self) -> list[Member]:
        """Return the queues of the list whose drivers may be asked; and those of which Spark was told an epoch.

        It may ask once more for that before it plans it, when the list is another one.
        """
        free = [each for each in self._by_key.values() if each.is_free]
        return [each for each in free if each.key in self.listed or each.has_announced]

    def asked(self) -> list[Member]:
        """Return the queues with a question under way, or with an answer that is not taken."""
        return [each for each in self._by_key.values() if each.is_asked]

    def forget(self, member: Member, end: Offset) -> None:
        """Give up a queue that is settled up to `end`, and has no place from now on; one of the list begins anew.

        If the run's first answer has told Spark an epoch of it, it has begun anew with that, and keeps its driver.
        """
        self._ends[member.key] = end
        if member.has_announced_blindly:
            return
        member.discard()
        del self._by_key[member.key]
        if member.key in self.listed:
            self._by_key[member.key] = self._member(member.url)

    def without_ended(self, offsets: Offsets) -> Offsets:
        """Return them without the places at which queues have left: Spark still commits the entry that has these."""
        return Offsets({url: offset for key, url, offset in offsets if self._ends.get(key) != offset})

    def renew(self, key: str) -> None:
        url = self._by_key[key].url
        self._by_key[key].discard()
        self._by_key[key] = self._member(url)

    def leave(self, known: Offsets) -> frozenset[str]:
        """Return the queues of `known` that are not in the list any more, and settled; forget them."""
        left = set()
        for key, _, offset in known:
            member = self._by_key[key]
            if key in self.listed or member.is_asked or member.has_announced:
                continue
            if member.has_settled(offset):
                self.forget(member, offset)
                left.add(key)
        return frozenset(left)
