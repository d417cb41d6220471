"""One queue of a source over several: its driver, and the one question to it that may be under way."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import SqsFifoError
from sqs_fifo_spark.options import SourceOptions, queue_key
from sqs_fifo_spark.source.driver.driver import Driver
from sqs_fifo_spark.source.driver.startless import StartlessDriver
from sqs_fifo_spark.source.offset import Offset

LOOK_S = 0.25
"""Seconds from the beginning of a long poll in which SQS has answered it if a message waited."""


class MemberDriver(Driver):
    """The driver of one queue of several: beside Spark's questions, it answers those of the union."""

    def __init__(
        self, options: SourceOptions, *, after_stop: Callable[[], None] = lambda: None, **of_driver: Any
    ) -> None:
        """`after_stop` is called at the end; see `Driver` for the rest."""
        super().__init__(options, **of_driver)
        self._after_stop = after_stop

    @property
    def has_claim(self) -> bool:
        """True once it has claimed the journal."""
        return self._owned_or_none is not None

    def require_claim(self) -> None:
        """Raise FencedError if another driver has claimed the journal since. May be asked by any thread."""
        owned = self._owned_or_none
        if owned is not None:
            owned.journal.require_claim(owned.claim)

    @property
    def gone(self) -> SqsFifoError | None:
        """SQS's last word on a queue that may go: it is not there, or its calls are refused."""
        return self._queue.gone

    @property
    def waiting(self) -> int:
        """About how many messages wait, by the queue's last answer. May be asked by any thread."""
        return self._work.counts.waiting

    @property
    def has_announced_again(self) -> bool:
        """True if the announced epoch is one that Spark's log has lost."""
        return self._epochs.next is not None and self._epochs.next.is_replay

    def expected(self, end: Offset) -> int:
        """Return about how many messages the epoch `end` can get that is to be planned."""
        return self._epochs.expected(end)

    def has_settled(self, end: Offset) -> bool:
        return self._owned_or_none is not None and end.epoch <= self._owned_or_none.ledger.epoch

    def stop(self) -> None:
        super().stop()
        self._after_stop()


class Member:
    """The queue with its driver, which is used by one thread at a time: a question's, or else Spark's.

    Lives in the reader process beside Spark's driver. `changed` is held by whoever looks at the state of a question.
    """

    def __init__(
        self, url: str, make: Callable[[Callable[[], None]], MemberDriver], changed: threading.Condition, clock: Clock
    ) -> None:
        """`make` makes the driver, which calls what it is given before each long poll."""
        self.url = url
        self.key = queue_key(url)
        self.start: Offset | None = None
        """The place at which the queue began, while Spark's log has none of it."""
        self.aside_until: float | None = None
        """Monotonic time until which it is left alone, as SQS refuses it, or gives no answer."""
        self.refusal: SqsFifoError | None = None
        """Why it is left alone."""
        self.is_over = False
        """True if an AvailableNow query is finished with it."""
        self.is_asked = False
        """True from a question to the end of its answer's `take`."""
        self.is_polling = False
        """True if the question's long poll has begun, if it needs one: it may take as long as SQS waits."""
        self.has_answered = False
        self.has_looked = False
        """True if it has come back from a look for work since the union was asked last."""
        self._make = make
        self._changed = changed
        self._clock = clock
        self._looks_until = -math.inf
        self._driver: MemberDriver | None = None
        self._startless: StartlessDriver | None = None
        self._answer: Any = None
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<Member {self.key} is_asked={self.is_asked} is_polling={self.is_polling} {self._driver!r}>"

    @property
    def driver(self) -> MemberDriver:
        if self._driver is None:
            self._driver = self._make(self._poll_begins)
        return self._driver

    @property
    def startless(self) -> StartlessDriver:
        if self._startless is None:
            self._startless = StartlessDriver(self.driver)
        return self._startless

    @property
    def has_driver(self) -> bool:
        return self._driver is not None

    @property
    def waiting(self) -> int:
        """About how many messages wait; 0 if it has no driver. May be asked by any thread."""
        driver = self._driver
        return driver.waiting if driver is not None else 0

    @property
    def is_free(self) -> bool:
        return not self.is_asked and self.aside_until is None and not self.is_over

    def has_settled(self, end: Offset) -> bool:
        """Return True if its driver knows that the epoch `end` is settled."""
        return self._driver is not None and self._driver.has_settled(end)

    @property
    def has_announced(self) -> bool:
        """True if its driver has announced an epoch that Spark has not planned."""
        return self._driver is not None and self._driver.announced is not None

    @property
    def has_announced_blindly(self) -> bool:
        """True if its driver has announced such an epoch before Spark gave its place."""
        return self._driver is not None and self._driver.announced is not None and self._driver.announced.is_blind

    @property
    def is_settled(self) -> bool:
        """True if nothing but a long poll is waited for, at whose beginning no message was there."""
        return self.has_answered or not self.is_asked or (self.is_polling and not self.is_looking)

    @property
    def is_looking(self) -> bool:
        """True if its long poll has just begun: SQS answers that at once if a message waits."""
        return self.is_polling and self._clock.monotonic() < self._looks_until

    def ask(self, question: Callable[[], Any]) -> None:
        """Have `question`, a call of the driver, answered in a thread of its own: see `take`."""
        self.is_asked, self.is_polling, self.has_answered, self.has_looked = True, False, False, False
        # A daemon: at the end of the process nobody waits for a long poll.
        threading.Thread(target=self._run, args=(question,), name=f"sqs-fifo-ask-{self.key}", daemon=True).start()

    def take(self) -> Any:
        """Return the answer that is there, or raise its error."""
        answer, error = self._answer, self._error
        self._answer = self._error = None
        self.is_asked = self.has_answered = False
        if error is not None:
            raise error
        return answer

    def hold(self, answer: Any) -> None:
        """Have this answer, which was taken, wait to be taken again."""
        self._answer, self.is_asked, self.has_answered = answer, True, True

    def comes_back(self) -> None:
        """Say that one look for work is over. Called by the question."""
        with self._changed:
            self.has_looked = True
            self._changed.notify_all()

    def discard(self) -> None:
        """Give the driver up, as a query does that ends: the next one goes on from Spark's log. Waits for nothing."""
        driver, self._driver, self._startless = self._driver, None, None
        if driver is not None:
            threading.Thread(target=driver.stop, name=f"sqs-fifo-stop-{self.key}", daemon=True).start()

    def _run(self, question: Callable[[], Any]) -> None:
        try:
            self._answer = question()
        except BaseException as error:  # a panic of the store too: somebody waits for an answer
            self._error = error
        with self._changed:
            self.has_answered = True
            self._changed.notify_all()

    def _poll_begins(self) -> None:
        with self._changed:
            if not self.is_polling:  # else it goes on beside a micro-batch
                self._looks_until = self._clock.monotonic() + LOOK_S
            self.is_polling = True
            self._changed.notify_all()


def wait_for_answer(
    asked: Sequence[Member],
    changed: threading.Condition,
    clock: Clock,
    until: float,
    *,
    has_found: bool,
    due: Sequence[Member],
) -> None:
    """Wait until one of the queues that are `asked` has answered, or until there is no answer to wait for.

    Once something is found, answers are waited for where no poll is under way, and not after `until`. Else a poll that
    has begun by then may be about to bring something, so each is waited for that has not come back once. Those that are
    `due` are waited for in any case, unless it is for a poll. A poll that has just begun is waited for as well: with
    long pauses between micro-batches, what it brings would else be held for one of them.
    """
    with changed:
        while True:
            left_s = until - clock.monotonic()
            longest_s = LOOK_S if any(each.is_looking for each in asked) else math.inf
            if not all(each.is_settled for each in due):
                clock.wait_on(changed, longest_s)
                continue
            if any(each.has_answered for each in asked):
                return
            if has_found and (left_s <= 0 or all(each.is_settled for each in asked)):
                return
            if not has_found and left_s <= 0 and all(each.has_looked for each in asked):
                return
            clock.wait_on(changed, min(longest_s, left_s if left_s > 0 else math.inf))
