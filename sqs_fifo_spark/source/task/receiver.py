"""The receives of a task's attempt: under a lease, until a limit or an empty answer, and without copies.

About a message that somebody received before, a task decides only one thing: if the ledger lists it as unconfirmed, it
is a copy, and is deleted at once. Any other is deferred, also one that the ledger carries, and the driver judges it
once the epoch is closed and nothing can be sealed any more.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Container, Iterable

from sqs_fifo_spark.aws.calls import MAX_ENTRIES
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import TransientQueueError
from sqs_fifo_spark.options import SourceOptions
from sqs_fifo_spark.retry import PendingCall
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.lease import Lease
from sqs_fifo_spark.source.message import Message, Receipt
from sqs_fifo_spark.source.pool import Answer
from sqs_fifo_spark.source.queue import Queue, is_held_up
from sqs_fifo_spark.source.receive import ReceivedMessages
from sqs_fifo_spark.source.settlement import release
from sqs_fifo_spark.source.task.demand import Allowance, Demand
from sqs_fifo_spark.worker import without_collection

_log = logging.getLogger(__name__)
DELETE_BUDGET_S = 30.0
"""Seconds for deleting a link, or a copy. The rest is tried again: with the next link, or by the commit."""
_LAST_S = 1.0
"""A receive that begins so late, where SQS throttles, may have no turn any more: that is no news."""
_WAIT_S = 1
"""Seconds for which a receive beside a delete waits for the messages that the delete unlocks."""


class Receiver:
    """Receives for one attempt, link by link, as long as its chain may take more."""

    def __init__(
        self,
        queue: Queue,
        journal: Journal,
        lease: Lease,
        options: SourceOptions,
        clock: Clock,
        *,
        chain: Allowance,
        in_links: bool,
    ) -> None:
        self._queue = queue
        self._lease = lease
        self._options = options
        self._clock = clock
        self._copies = _Copies(queue, journal, lease, budget_s=min(options.heartbeat_s, DELETE_BUDGET_S))
        self._demand = Demand(in_links=in_links)
        self.chain = chain
        self.is_over = False
        """True if the chain gets nothing more."""
        self.unsealed: list[Receipt] = []
        """Messages received, and not deleted, since its attempt sealed a link last; be they of the chain or not."""

    @property
    def deleted(self) -> frozenset[str]:
        return frozenset(self._copies.deleted)

    @property
    def may_wait(self) -> bool:
        """True if it is worthwhile to receive beside the delete of the last link: see `Demand.may_wait`."""
        return not self.is_over and self._demand.may_wait(self.chain)

    def beside_delete(self) -> list[Message]:
        """Return the messages received for a link while the last one is being deleted, perhaps none: see `may_wait`."""
        received = self.next_link(may_end=False, wait_time_s=_WAIT_S)
        self._demand.note_wait(received)
        self.is_over = self.is_over or self.chain.has_only_new(received)
        return received

    @without_collection()
    def next_link(self, *, may_end: bool, wait_time_s: int = 0) -> list[Message]:
        """Return the messages received for a link, and still held; `is_over` if no other is to follow.

        Not `may_end`: the link has assigned messages, whose groups are locked until they are deleted. The first receive
        waits for `wait_time_s` at most.
        """
        link = self._demand.begin_link()
        messages: list[Message] = []
        self._copies.lost_groups.clear()
        while True:
            if self.chain.is_used_up(self._clock.monotonic()):
                self.is_over = True
                break
            if link.is_full:
                break
            if wait_time_s and not link.made:
                all_answers = self._receive(1, wait_time_s)
            else:
                all_answers = self._receive(self._demand.at_once(link, self.chain), 0)
            answers = [answer for answer in all_answers if answer]
            has_freed = False
            for answer in answers:
                self._demand.note_answer(answer)
                kept = self._keep(answer)
                messages += kept
                link.take(kept)
                has_freed = has_freed or len(kept) < len(answer)
            if len(answers) < len(all_answers) and not has_freed:  # else messages behind a copy were locked
                self.is_over = not self._demand.in_links or (may_end and not messages)
                break
        self._demand.end_link(link, messages)
        if self._demand.in_links and may_end and self.chain.has_only_new(messages):
            self.is_over = True
        # A group of which anything has lapsed may be somebody else's by now. SQS delivers it again.
        held_no_more = self._lease.lapsed_receipts(each.receipt for each in messages)
        lapsed = self._copies.lost_groups.union(each.message_group_id for each in held_no_more)
        if not lapsed:
            return messages
        self.release(each.receipt for each in messages if each.receipt.message_group_id in lapsed)
        return [each for each in messages if each.receipt.message_group_id not in lapsed]

    def release(self, receipts: Iterable[Receipt] | None = None) -> None:
        """Release some of the messages that are not sealed; or all of them."""
        released = list(self.unsealed if receipts is None else receipts)
        if released:
            self._forget(released)
            release(released, queue=self._queue, lease=self._lease)

    def _forget(self, receipts: Iterable[Receipt]) -> None:
        handles = {receipt.receipt_handle for receipt in receipts}
        self.unsealed = [each for each in self.unsealed if each.receipt_handle not in handles]

    def _receive(self, count: int, wait_time_s: int) -> list[ReceivedMessages]:
        """Return the answers of up to so many receives, all held; after an error, which is raised, see `unsealed`."""
        left = self.chain.messages
        calls: list[tuple[float, PendingCall[ReceivedMessages]]] = []
        while len(calls) < count and not (calls and (self._queue.pace.is_slow or is_held_up(calls[0][0], self._clock))):
            calls.append(self._begin(min(MAX_ENTRIES, left), wait_time_s))
            left -= MAX_ENTRIES
        answers: dict[int, ReceivedMessages] = {}
        failed: dict[int, Callable[[], ReceivedMessages]] = {}
        waits: dict[int, Answer[ReceivedMessages]] = {}
        errors: list[Exception] = []
        for place, (asked_at, call) in enumerate(calls):
            finish = functools.partial(self._finish, asked_at, call)
            if call.wait():
                answers[place] = finish()
            else:
                failed[place] = finish
        # Only once those that came are held: to try again may take long.
        for place, again in failed.items():
            try:
                waits[place] = self._queue.finish_receive(again)
            except Exception as error:  # there is no thread for it
                errors.append(error)
        for place, wait in waits.items():
            try:
                answers[place] = wait.result()
            except Exception as error:
                errors.append(error)
        for messages in answers.values():
            self.unsealed += (message.receipt for message in messages)
        if errors:
            raise errors[0]
        return [answers[place] for place in sorted(answers)]

    def _begin(self, most: int, wait_time_s: int) -> tuple[float, PendingCall[ReceivedMessages]]:
        self._queue.pace.wait()
        asked_at = self._clock.monotonic()
        budget_s = self.chain.until - asked_at
        return asked_at, self._queue.begin_receive(most, wait_time_s=wait_time_s, budget_s=budget_s)

    def _finish(self, asked_at: float, call: PendingCall[ReceivedMessages]) -> ReceivedMessages:
        """Return the answer to a receive that was begun then. May run beside others."""
        try:
            answer = call.result()
        except TransientQueueError as error:
            if not error.is_throttling or self.chain.until - asked_at >= _LAST_S:
                _log.warning("a partition stops receiving early: %s", error)
            return ReceivedMessages()
        # At once: others may take long, and finding the copies among them reads the ledger.
        self._lease.hold_received(answer)
        return answer

    def _keep(self, answer: ReceivedMessages) -> list[Message]:
        """Delete the copies in an answer, which is held; return the other messages."""
        kept = self._copies.delete_from(answer)
        if kept is not answer:
            # Copies whose delete has failed are held again.
            self._lease.hold((message.receipt for message in kept), since=answer.since)
        if len(kept) < len(answer):
            self._forget({message.receipt for message in answer} - {message.receipt for message in kept})
            self.chain.extend(self._clock.monotonic() + self._options.max_fetch_s)
        self.chain.take(kept)
        return kept


class _Copies:
    """Deletes copies as soon as a task receives them: no later verdict can change that they are.

    So their groups are free at once, and their next messages are received in the same micro-batch. The ledger is read
    only when a message comes that somebody received before.
    """

    def __init__(self, queue: Queue, journal: Journal, lease: Lease, *, budget_s: float) -> None:
        self._queue = queue
        self._journal = journal
        self._lease = lease
        self._budget_s = budget_s
        self._unconfirmed: Container[str] | None = None
        self.deleted: set[str] = set()
        """Ids whose delete SQS has confirmed."""
        self.lost_groups: set[str] = set()
        """Groups of copies that had lapsed again before they were deleted, since the last link."""

    def delete_from(self, answer: list[Message]) -> list[Message]:
        """Delete the copies in one answer. Return the others, and copies whose delete failed: hold those again."""
        copies = [each.receipt for each in answer if each.receipt.receive_count > 1 and self._is_copy(each)]
        if not copies:
            return answer
        kept = set()
        outcomes = self._queue.delete(copies, budget_s=self._budget_s, before_call=self._lease.stop_renewing)
        for receipt, outcome in outcomes:
            if outcome is Outcome.DONE:
                self.deleted.add(receipt.message_id)
            elif outcome is Outcome.LOST:
                self.lost_groups.add(receipt.message_group_id)
            else:
                kept.add(receipt.message_id)  # it is deferred, and the commit tries again
        handled = {receipt.message_id for receipt in copies} - kept
        return [each for each in answer if each.receipt.message_id not in handled]

    def _is_copy(self, message: Message) -> bool:
        if self._unconfirmed is None:
            self._unconfirmed = self._journal.ledger().unconfirmed
        return message.receipt.message_id in self._unconfirmed
