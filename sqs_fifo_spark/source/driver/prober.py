"""The driver's own receives, which show if the queue has anything for a next epoch.

A driver that holds nothing asks with one long poll. The messages that it brings are held, and become the first content
of the epoch that is announced for them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping

from sqs_fifo_spark.aws.calls import CALL_BUDGET_S, MAX_ENTRIES
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import SqsFifoError, TransientQueueError
from sqs_fifo_spark.options import SourceOptions
from sqs_fifo_spark.source.driver.available_now import WAIT_S, AvailableNow
from sqs_fifo_spark.source.driver.epoch import Epoch
from sqs_fifo_spark.source.driver.ownership import Ownership
from sqs_fifo_spark.source.driver.planning import epoch_size, partition_count
from sqs_fifo_spark.source.driver.verdict import Verdict
from sqs_fifo_spark.source.lease import Lease
from sqs_fifo_spark.source.ledger import UnconfirmedMessage
from sqs_fifo_spark.source.message import Message
from sqs_fifo_spark.source.queue import Counts, Queue
from sqs_fifo_spark.source.settlement import SETTLE_BUDGET_S

_log = logging.getLogger(__name__)

COUNTED_EVERY_S = 60.0
"""Seconds between two questions to the queue of an idle query, about the number of its messages."""
COUNT_BUDGET_S = 3.0
"""Seconds for which that is tried again: Spark waits for it."""


class Prober:
    """Looks for work, and says when an AvailableNow query is finished. Lives on the driver."""

    def __init__(
        self,
        options: SourceOptions,
        queue: Queue,
        lease: Lease,
        clock: Clock,
        *,
        before_poll: Callable[[], None],
        most_partitions: Callable[[int], int],
    ) -> None:
        """`before_poll` is called before each long poll; `most_partitions` gives an epoch's most where so many wait."""
        self._options = options
        self._queue = queue
        self._lease = lease
        self._clock = clock
        self._before_poll = before_poll
        self._most_partitions = most_partitions
        self._available_now: AvailableNow | None = None
        self._is_idle = False
        """True if the last poll has found nothing."""
        self._counted_at = -math.inf
        """Time of the last such question."""
        self.is_finished = False
        """True if an AvailableNow query has served all that it was to serve."""

    @property
    def counts(self) -> Counts:
        """About how many messages the queue has, by its last answer."""
        return self._queue.counts or Counts()

    def prepare_available_now(self) -> None:
        """Note the messages that wait now: the query ends when they are served."""
        self._available_now = AvailableNow(
            self._queue, self._clock, visibility_timeout_s=self._options.visibility_timeout_s
        )

    @property
    def may_end(self) -> bool:
        """True if the query ends where nothing is found."""
        return self._available_now is not None

    def find(
        self, owned: Ownership, epoch: Epoch | None, verdict: Verdict, max_messages: int, *, carries: bool
    ) -> tuple[Message, ...] | None:
        """Return the messages received for a next epoch, perhaps none; or None if there is nothing for one to do.

        `epoch` is the one that this driver has closed with `verdict`, if any; `carries`: it, or the ledger, carries
        something. An AvailableNow query may be finished with that: then it only wants its last epoch committed.
        """
        caught: tuple[Message, ...] = ()
        if self._available_now and epoch:
            if self._available_now.may_end_with(epoch, verdict):
                caught = self._look_further(owned, verdict, max_messages)
                if self.is_finished:
                    return None
            if epoch.is_unread() and (caught or carries):
                _log.warning(
                    "the last micro-batch read none of the messages that it got, so this AvailableNow query ends."
                )
                owned.release([*(message.receipt for message in caught), *epoch.taken_over()])
                return None
        if verdict.is_empty and not carries:
            return caught or self._probe(owned, max_messages) or None
        if not verdict.count and not carries and not caught and not self._available_now:
            return self._glance(owned, max_messages)
        return caught

    def note_unconfirmed(self, sent_at_ms: int | None) -> None:
        """Note that a commit could not delete a message, and the time at which that was sent, if known."""
        if self._available_now is not None:
            self._available_now.note_unconfirmed(sent_at_ms)

    def note_settled(self, before: Mapping[str, UnconfirmedMessage], after: Mapping[str, UnconfirmedMessage]) -> None:
        """Note the messages that a commit could not delete: what the ledger lists as unconfirmed after it."""
        for message_id, entry in after.items() - before.items():
            last = before.get(message_id)
            receipt = entry.receipt or (last.receipt if last else None)
            self.note_unconfirmed(receipt.sent_at_ms if receipt else None)

    def size(
        self, before: Epoch | None, verdict: Verdict, caught: int, carried: int, *, max_messages: int, deletes: bool
    ) -> tuple[int, int]:
        """Return the number of partitions of the next epoch, and about how many messages it can get.

        `before` is the epoch that this driver has closed with `verdict`, if any.
        """
        self.count_waiting(verdict.held + caught)
        return epoch_size(
            self.counts.waiting + caught,
            carried,
            served=verdict.count,
            groups=verdict.groups,
            expected_before=before.expected if before is not None and before.plans is not None else None,
            most=min(self._most_partitions(self.counts.waiting), max_messages),
            deletes=deletes,
        )

    def blind_size(self) -> tuple[int, int]:
        """Return the same of an epoch that is announced before Spark has said where it is."""
        self.count_waiting(0)
        most = min(self._most_partitions(self.counts.waiting), self._options.max_messages_per_trigger)
        return partition_count(self.counts.waiting, most), self.counts.waiting

    def count_waiting(self, ours: int) -> None:
        """Ask roughly how many messages wait: an old answer will do. `ours` of those in flight this query knows of."""
        self._is_idle, self._counted_at = False, -math.inf
        try:
            in_flight = self._queue.approximate_counts().in_flight
            if self._available_now is not None:
                self._available_now.note_announced(in_flight, ours)
        except TransientQueueError as error:
            self._counted_at = self._clock.monotonic()
            _log.warning("the number of waiting messages is not known, so the last one is used: %s", error)

    def recount(self) -> None:
        """Bring `counts` up to date for a report, where no epoch is announced: when the query becomes idle, or starts.

        While it is idle it is asked again now and then. Messages that it does not get may be locked behind those that
        somebody else holds.
        """
        now = self._clock.monotonic()
        if (self._is_idle or self._queue.counts is None) and now - self._counted_at >= COUNTED_EVERY_S:
            self._counted_at = now
            try:
                self._queue.approximate_counts(budget_s=COUNT_BUDGET_S)
            except SqsFifoError as error:  # a figure stops no query: for its needs the query asks by itself
                _log.warning("the number of waiting messages is not known, so the last one is reported: %s", error)

    def _look_further(self, owned: Ownership, verdict: Verdict, max_messages: int) -> tuple[Message, ...]:
        """Return a poll's messages after the possibly last epoch of an AvailableNow query, which may finish then."""
        assert self._available_now is not None
        found, is_all = self._poll(owned, max_messages)
        caught = self._without_held(owned, found, verdict)
        if is_all and len(caught) == len(found) and self._available_now.ends_with(found):
            receipts = [message.receipt for message in found]
            owned.require_claim_of(receipts)
            owned.release(receipts)
            self.is_finished = True
            return ()
        return caught

    def _probe(self, owned: Ownership, max_messages: int) -> tuple[Message, ...]:
        """Return the messages of a long poll that no epoch has served; none when the queue gives no whole answer."""
        while True:
            asked_at = self._clock.monotonic()
            try:
                found, _ = self._poll(owned, max_messages)
            except TransientQueueError as error:
                if self._available_now:
                    raise  # it would end as if nothing were left
                _log.warning("the queue gives no whole answer, so the query waits for it: %s", error)
                return ()
            self._is_idle = not found
            if found or not self._available_now or self._queue.gone or self._available_now.may_end_empty(asked_at):
                return found

    def _glance(self, owned: Ownership, max_messages: int) -> tuple[Message, ...]:
        """Return the messages of a short poll after an epoch of which only copies are left, perhaps none.

        Tasks defer messages that somebody else has received before, so two epochs in a row would serve nothing. Those
        that are here now need not be deferred.
        """
        try:
            return self._poll(owned, max_messages, wait_time_s=0)[0]
        except TransientQueueError as error:
            _log.warning("the queue gives no whole answer, so the next micro-batch asks for it: %s", error)
            return ()

    def _poll(
        self, owned: Ownership, max_messages: int, wait_time_s: int | None = None
    ) -> tuple[tuple[Message, ...], bool]:
        """Return the messages of a poll, a long one, that no epoch has served, and whether it brought nothing else.

        Copies are deleted. If nothing is left to return, poll again. No task can seal anything meanwhile, so the
        returned messages need not be deferred, however often they were received before.
        """
        if wait_time_s is None:
            wait_time_s = min(self._options.wait_time_s, WAIT_S) if self._available_now else self._options.wait_time_s
        is_all = True
        until = math.inf
        while True:
            if self._queue.gone is not None:
                return (), is_all  # SQS may refuse only to delete, or to hold: what is received would never end
            if wait_time_s:
                self._before_poll()
            received = self._queue.receive(min(MAX_ENTRIES, max_messages), wait_time_s=wait_time_s)
            if not received:
                return (), is_all
            self._lease.hold_received(received)
            if received.is_cut:
                self.note_unconfirmed(None)  # the rest shows again within one visibility timeout, too
            if not self._available_now:
                until = min(until, self._clock.monotonic() + CALL_BUDGET_S)
            left_s = max(1.0, min(until - self._clock.monotonic(), SETTLE_BUDGET_S))
            found, has_released = self._without_copies(owned, received, left_s)
            is_all = is_all and not has_released and not received.is_cut
            if found:
                # A copy was in its group's way: later messages can be received only now.
                return found, is_all and len(found) == len(received)
            unconfirmed = owned.ledger.unconfirmed
            if self._clock.monotonic() >= until and any(each.receipt.message_id in unconfirmed for each in received):
                return (), False  # deletes fail: Spark asks again, and meets the other errors meanwhile

    def _without_copies(
        self, owned: Ownership, received: list[Message], left_s: float
    ) -> tuple[tuple[Message, ...], bool]:
        """Delete the copies in `received`, and messages that an operator has moved aside.

        Return the other messages, and whether some of those were released: so they are if a copy of their group could
        not be deleted. A later message of the group, once sealed, would be taken as proof that the copy is gone.
        """
        known = owned.ledger.unconfirmed.keys() | owned.skipped
        copies = {each.receipt.message_id for each in received if each.receipt.message_id in known}
        if not copies:
            return tuple(received), False
        owned.require_claim_of([each.receipt for each in received])
        doomed = [each.receipt for each in received if each.receipt.message_id in copies]
        owned.delete_copies(doomed, budget_s=left_s)
        unconfirmed = owned.ledger.unconfirmed
        left = {receipt.message_group_id for receipt in doomed if receipt.message_id in unconfirmed}
        others = [each for each in received if each.receipt.message_id not in copies]
        if self._available_now and any(unconfirmed[key].receipt for key in copies & unconfirmed.keys()):
            # They hide later messages of their groups: the next poll would find nothing, and the query would end.
            owned.release([each.receipt for each in others])
            raise TransientQueueError(
                f"{len(copies)} copies of committed messages could not be deleted, and they hide the messages "
                "behind them. Start the query again."
            )
        released = [each.receipt for each in others if each.receipt.message_group_id in left]
        owned.release(released)
        return tuple(each for each in others if each.receipt.message_group_id not in left), bool(released)

    def _without_held(self, owned: Ownership, found: tuple[Message, ...], verdict: Verdict) -> tuple[Message, ...]:
        """Release the groups of `found` in which a message of the last epoch came again; return the other messages.

        The hold on such a message is lost, but the last epoch is not settled yet: the message is left to the
        commit, and to the tasks after it.
        """
        held = {*verdict.served, *verdict.copies, *(each.message_id for each in verdict.carried_receipts())}
        again = {each.receipt.message_group_id for each in found if each.receipt.message_id in held}
        owned.release([each.receipt for each in found if each.receipt.message_group_id in again])
        return tuple(each for each in found if each.receipt.message_group_id not in again)
