"""The source over several queues, as the union of the sources of its queues in one process.

Each queue has a driver and a journal of its own, so all that holds for one queue holds for each of them. To its driver
a micro-batch without anything of its queue is one that is another source's alone, as Spark itself has them.

Spark asks one source after the other for its latest offset, and each may wait for its long poll. Here all drivers are
asked at once, each in a thread. A micro-batch begins once one of them has work, and no other is about to say so: those
that are left wait for their polls. What a poll brings then is held by its driver, and comes with the next micro-batch.
So a message that waits is served within two micro-batches, whatever other queues bring.

A queue that is not there any more, refuses our calls, or is silent when it is opened, is left alone for a while, and
tried again; others go on.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import SqsFifoError, TransientQueueError
from sqs_fifo_spark.options import SourceOptions, queue_key
from sqs_fifo_spark.source.driver.epochs import Limits
from sqs_fifo_spark.source.driver.figures import sum_up
from sqs_fifo_spark.source.driver.member import Member, wait_for_answer
from sqs_fifo_spark.source.driver.membership import MakeDriver, Membership
from sqs_fifo_spark.source.driver.sharing import share_limits
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.offsets import Offsets
from sqs_fifo_spark.source.plan import PartitionPlan
from sqs_fifo_spark.source.queue import is_about_queue

_log = logging.getLogger(__name__)

GRACE_S = 2.0
"""Seconds for which a micro-batch that could begin waits for queues that may have work, too."""
ASIDE_S = 60.0
"""Seconds after which a queue that was refused is tried again."""
POLLS_S = 30.0
"""Seconds for which an idle queue is polled again and again, once Spark has asked: for that long it may be busy."""


class QueuePlan(NamedTuple):
    """One partition of a micro-batch: the plan for a task, and the queue that it is of."""

    url: str
    plan: PartitionPlan


class QueueUnion:
    """Spark's calls, on all queues. Used by one thread; lives in the reader process beside Spark's driver."""

    def __init__(
        self,
        options: SourceOptions,
        list_queues: Callable[[], Sequence[str]],
        make_driver: MakeDriver,
        clock: Clock,
        *,
        tells_start: bool,
    ) -> None:
        """`list_queues` returns the URLs of the queues; `tells_start` is Spark 4.2 and later. Makes no call."""
        self._options = options
        self._clock = clock
        self._tells_start = tells_start
        self._changed = threading.Condition()
        self.queues = Membership(options, list_queues, make_driver, self._changed, clock)
        self._last: Offsets | None = None
        """Spark's place, as far as it was told."""
        self._has_been_told = tells_start
        """True if Spark says its place, or has said it: then nothing needs to be announced blindly."""
        self._polls_until = -math.inf
        self._has_begun = False
        """True once all drivers were asked for their latest offsets."""

    def __repr__(self) -> str:
        return f"<QueueUnion of {len(self.queues.listed)} queues: {list(self.queues)!r}>"

    # Spark calls these

    def prepare_available_now(self) -> None:
        """Serve the messages that wait now in any queue, then end: `Driver.prepare_available_now` of each."""
        self.queues.is_available_now = True
        self.queues.refresh(Offsets())
        self._on_each(self.queues.free(), lambda member: member.driver)
        self._require_some()

    def initial_offset(self) -> Offsets:
        """Return the start of a new query, which is that of each queue."""
        self.queues.refresh(Offsets())
        unknown = [each for each in self.queues.free() if each.start is None or not self._tells_start]
        for member, start in self._on_each(unknown, lambda member: member.startless.initial_offset()):
            member.start = start
        self._require_some()
        return Offsets({each.url: each.start for each in self.queues if each.start is not None})

    def latest_offset(self, start: Offsets | None = None, max_messages: int | None = None) -> Offsets:
        """Return the offsets of the next micro-batch if there is work, else `start`; see `Driver.latest_offset`.

        With nothing to do this blocks for `waitTimeSeconds`. Spark before 4.2 does not say its `start`. Raises the
        error of a driver that is not about one queue alone, or of the last queue if none is left.
        """
        known = start if start is not None else self._last or Offsets()
        self.queues.refresh(known)
        began_at = self._clock.monotonic()
        self._polls_until = began_at + POLLS_S
        for member in self.queues.asked():
            member.has_looked = False
        free = self.queues.free()
        self._require_claim(free)
        # Before 4.2 Spark may ask once more for what it was told, and logs the first answer.
        told = [] if self._tells_start else [each for each in free if each.has_announced]
        for member in free:
            self._ask_for_work(member, known, max_messages)
        if not self._has_begun:
            self._ask_others(known, max_messages)
        until = math.inf if self.queues.is_available_now else began_at + self._options.wait_time_s
        found: dict[str, Offset] = {}
        is_first, self._has_begun = not self._has_begun, True
        while True:
            # Of no queue at all an idle query waits until it is asked again; one that drains them is at its end.
            if self.queues.asked() or not (self.queues.listed or self.queues.is_available_now):
                wait_for_answer(
                    self.queues.asked(),
                    self._changed,
                    self._clock,
                    until,
                    has_found=bool(found),
                    due=self.queues.asked() if is_first else told,
                )
            answered = [each for each in self.queues if each.has_answered]
            for member in answered:
                offset = self._take_offset(member, known)
                if offset is not None:
                    until = until if found else self._clock.monotonic() + GRACE_S
                    found[member.url] = offset
            self._require_some()
            if is_first and found:
                found = self._of_one_batch(found)
                break
            is_first = False
            if not answered:
                break
            for member in answered:
                # Else it says the same again. Once something is found, it is to poll while that is served.
                if member.is_free and member.is_polling and member.url not in found:
                    self._ask_for_work(member, known, max_messages)
                    member.has_looked = True
        if found:
            self.queues.busy = frozenset(map(queue_key, found))
            self._last = known.moved(found, without=self.queues.leave(known))
        else:
            if self.queues.is_available_now and (silence := self._silence()) is not None:
                raise silence  # else it would end as if nothing were left there
            self._last = known
        return self._last

    def plan(self, start: Offsets, end: Offsets) -> list[QueuePlan]:
        """Return the plans of the micro-batch from `start` to `end`, of all queues; the same ones when asked again."""
        self._settle_left_out(start, end)
        self.queues.refresh(end)
        is_answered = start == end and self._has_begun
        self._last, self._has_been_told = end, True
        befores: dict[str, Offset | None] = {}
        ends: dict[str, Offset] = {}
        for key, _, offset in end:
            member, before = self.queues[key], start.of(key)
            # Before 4.2 a restart says by such a question where Spark is.
            is_told = self._tells_start or start != end
            if before != offset or not (is_told or (member.has_driver and member.driver.position)):
                befores[key], ends[key] = before, offset
        self._end_questions([self.queues[key] for key in ends], start)
        moved = {key: offset for key, offset in ends.items() if befores[key] != offset}
        options = self._options
        limits = share_limits(
            Limits(options.max_messages_per_trigger, options.max_bytes_per_trigger),
            {key: self.queues[key].driver.expected(offset) for key, offset in moved.items()},
        )

        def plans_of(member: Member) -> list[PartitionPlan]:
            before, after = befores[member.key], ends[member.key]
            if before is None:  # Spark's log does not say where it began
                before = member.start = member.start or member.startless.initial_offset()
            if is_answered:  # the next entry has what was announced before, whatever it is to take the place of
                member.driver.log(after).require_none_lost(after)
            return member.startless.plan(before, after, limits.get(member.key))

        answers = self._on_each([self.queues[key] for key in ends], plans_of, is_strict=True)
        return [QueuePlan(member.url, plan) for member, plans in answers for plan in plans]

    def commit(self, end: Offsets) -> None:
        """Settle the micro-batch `end`, which Spark has committed: see `Driver.commit`.

        A driver that still looks for work is not asked: nothing follows its epoch yet. Spark says it again with the
        next micro-batch.
        """
        end = self.queues.without_ended(end)
        self.queues.refresh(end)
        ends = {key: offset for key, _, offset in end}
        # One that has left the list is settled though it is refused: what cannot be deleted stands in its ledger.
        resting = [
            each
            for each in self.queues
            if not each.is_asked and (each.aside_until is None or each.key not in self.queues.listed)
        ]
        ready = [each for each in resting if each.key in ends and not each.has_settled(ends[each.key])]

        def settle(member: Member) -> None:
            if member.key in self.queues.listed:
                member.startless.commit(ends[member.key])
            else:
                member.driver.commit(ends[member.key], logs_next=member.driver.announced is not None)

        self._on_each(ready, settle)

    def report(self) -> dict[str, Any]:
        """Return figures for Spark's progress report: their sums, and those of the queues with the most messages."""
        return sum_up(
            {each.key: each.driver.report(recounts=False) for each in self.queues if each.has_driver},
            self._options.queue_name,
            refused=sum(each.aside_until is not None for each in self.queues),
        )

    def stop(self) -> None:
        for member in self.queues:
            if member.has_driver:
                member.driver.stop()

    # The parts of the calls above

    def _ask_for_work(self, member: Member, known: Offsets, max_messages: int | None) -> None:
        def next_offset() -> Offset:
            start = known.of(member.key) or member.start
            if start is None and self._has_been_told:
                start = member.start = member.startless.initial_offset()
            is_new = member.driver.position is None and member.driver.announced is None
            if start is not None and is_new and not self._tells_start:
                member.startless.plan(start, start)  # a driver in the place of one that was refused knows no place
            while True:
                offset = member.startless.latest_offset(start if self._tells_start else None, max_messages)
                member.driver.recount()
                has_ended = self.queues.is_available_now or self._clock.monotonic() >= self._polls_until
                if has_ended or not member.is_polling or offset != start or member.driver.gone is not None:
                    return offset
                member.comes_back()

        member.ask(next_offset)

    def _ask_others(self, known: Offsets, max_messages: int | None) -> None:
        """Ask queues that have left the list, or are refused, for what Spark's log has lost, and no more."""
        limit = max_messages or self._options.max_messages_per_trigger

        def ask(member: Member, offset: Offset) -> None:
            member.ask(lambda: member.driver.announce_again(offset, limit) or offset)

        for key, _, offset in known:
            if not self.queues[key].is_asked:
                ask(self.queues[key], offset)

    def _of_one_batch(self, found: dict[str, Offset]) -> dict[str, Offset]:
        """Return what comes first of what was found first: what Spark's log has lost, and all of that.

        The sink may have that micro-batch, and skips another one of its number: what is new comes after it.
        """
        members = {member.url: member for member in self.queues}
        again = {url: offset for url, offset in found.items() if members[url].driver.has_announced_again}
        for url in found.keys() - again.keys() if again else ():
            members[url].hold(found[url])
        return again or found

    def _take_offset(self, member: Member, known: Offsets) -> Offset | None:
        """Return the place of a queue that has work; None for one that has none, or is refused."""
        try:
            offset: Offset = member.take()
            if offset != (known.of(member.key) or member.start):
                return offset
            if member.driver.gone is not None:
                raise member.driver.gone
        except SqsFifoError as error:
            self._set_aside(member, error)
        else:
            member.is_over = self.queues.is_available_now
        return None

    def _set_aside(self, member: Member, error: SqsFifoError) -> None:
        """Leave a refused queue alone for a while; raise an error that is not about it alone."""
        if not is_about_queue(error):
            raise error
        _log.warning("the queue '%s' is left alone for %g s, and the others go on: %s", member.url, ASIDE_S, error)
        member.discard()
        member.aside_until, member.refusal = self._clock.monotonic() + ASIDE_S, error

    def _require_some(self) -> None:
        """Raise an error if no queue is left that is not refused; one that is silent may answer the next run."""
        refusals = [error for key in self.queues.listed if (error := self.queues[key].refusal) is not None]
        if refusals and len(refusals) == len(self.queues.listed):
            raise self._silence() or refusals[-1]

    def _silence(self) -> SqsFifoError | None:
        """Return the error of a queue that is left alone as it gave no answer, if there is one."""
        return next((each.refusal for each in self.queues if isinstance(each.refusal, TransientQueueError)), None)

    def _require_claim(self, asked: Sequence[Member]) -> None:
        """Raise FencedError if another run owns the journals, and one that is `asked` would claim one more.

        That run would stop with it. To look at one of them will do: a run claims all that it finds when it begins.
        """
        if all(each.has_driver for each in asked):
            return
        drivers = [each.driver for each in self.queues if each.has_driver]
        for owner in [each for each in drivers if each.has_claim][:1]:
            owner.require_claim()

    def _settle_left_out(self, start: Offsets, end: Offsets) -> None:
        """Settle what Spark has committed of queues that `end` does not have.

        Before 4.2 Spark may say only now that it has a place in them: a run's first answer was without those that were
        refused, or not in the list any more. Whoever reads such a queue later begins after what is settled.
        """
        start = self.queues.without_ended(start)
        places = {key: offset for key, _, offset in start if offset.plan and end.of(key) is None}
        if self._tells_start or not places:
            return
        self.queues.refresh(start)
        self._end_questions([self.queues[key] for key in places], start)
        for key in places:
            if not self.queues[key].has_announced_blindly:
                self.queues.renew(key)
        members = [self.queues[key] for key in places]
        self._on_each(members, lambda each: each.driver.commit(places[each.key], logs_next=False), is_strict=True)
        for member in members:
            self.queues.forget(member, places[member.key])

    def _end_questions(self, members: Iterable[Member], known: Offsets) -> None:
        """Wait until none of these looks for work; what it finds is announced again when it is asked again."""
        asked = [each for each in members if each.is_asked]
        with self._changed:
            while not all(each.has_answered for each in asked):
                self._clock.wait_on(self._changed, math.inf)
        for member in asked:
            self._take_offset(member, known)

    def _on_each(
        self, members: Iterable[Member], call: Callable[[Member], Any], *, is_strict: bool = False
    ) -> list[tuple[Member, Any]]:
        """Return the result of `call` for each of these free members, all at once; refused queues are left out.

        If `is_strict` every error is raised.
        """
        asked = list(members)
        self._require_claim(asked)
        for member in asked:
            member.ask(lambda member=member: call(member))  # type: ignore[misc]
        with self._changed:
            while not all(each.has_answered for each in asked):
                self._clock.wait_on(self._changed, math.inf)
        answers: list[tuple[Member, Any]] = []
        errors: list[Exception] = []
        for member in asked:
            try:
                answers.append((member, member.take()))
            except SqsFifoError as error:
                if is_strict or not is_about_queue(error):
                    errors.append(error)
                else:
                    self._set_aside(member, error)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return answers
