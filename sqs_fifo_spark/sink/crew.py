"""The threads of one task: they work until they are stopped, one of them fails, or something under way is late."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.sink.deadlines import Deadlines, RowsUnderWay
from sqs_fifo_spark.sink.sink_queue import StoppedError

THREADS = 8
"""Calls that one task has under way at once."""
GRACE_S = 1.0
"""Seconds for which late work is waited for all the same: if the whole process stood still, it ends now."""


class Crew:
    """Threads that do the same work again and again, beside the thread that owns them.

    `changed` guards all that they share: the fields below, and those of the work. No call is made while it is held. A
    thread that has changed something calls `wake` before it lets go: then only threads wake that have a reason to.
    """

    def __init__(self, clock: Clock) -> None:
        self.changed = threading.Condition()
        self.stopped = threading.Event()
        """Set when nothing more may be sent, perhaps before the `failure` for which; asked at any time."""
        self.failure: BaseException | None = None
        self.reason: BaseException | None = None
        """The failure to come, once its record is being put: what else fails meanwhile does not take its place."""
        self.deadlines = Deadlines()
        self._clock = clock
        self._is_over = False  # once the owner stops: it may wait for its next rows long after a failure
        self._ended: set[int] = set()  # threads, by their numbers
        self._away = 0  # threads in calls that the owner need not wait for
        self._awaited: list[Callable[[], bool]] = []  # the conditions for which threads wait
        # These two are the owner's.
        self._threads: list[threading.Thread] = []
        self._is_abandoned = False

    # In the thread that owns them

    def start(self, *works: Callable[[], None]) -> None:
        """Have the threads begin, once, as many for each work. One may raise StoppedError when `stopped` is set."""
        while len(self._threads) < THREADS * len(works):
            number = len(self._threads)
            work, name = works[number // THREADS], f"sqs-fifo-send-{number}"
            thread = threading.Thread(target=self._run, args=(number, work), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def is_late_locked(self) -> bool:
        return self._clock.monotonic() >= self.deadlines.limit()

    def wait_until(self, condition: Callable[[], bool]) -> BaseException | None:
        """Return when `condition` holds, or the work has failed; then with its error. Something late is a failure."""
        with self.changed:
            if not self._wait_locked(lambda: condition() or self.failure is not None):
                self.failure = self.reason or self.deadlines.held_up(self._clock.monotonic())
            return self.failure

    def stop(self) -> None:
        """End the work, and wait for calls under way, except those to S3 of threads that are `away`: they end later.

        If any other is late, abandon the threads that are left. They cannot send: `stopped` is asked before each call,
        and once more before each piece of it leaves. A put of theirs may still come, and records rows that SQS has
        confirmed: that is true at any time, and an attempt that reads it in time sends them no more.
        """
        if self._is_abandoned:
            return
        with self.changed:
            self._is_over = True
            self.stopped.set()
            self.changed.notify_all()
            is_over = self._wait_locked(lambda: len(self._ended) + self._away == len(self._threads))
            self._is_abandoned = not is_over
            ended = [self._threads[number] for number in sorted(self._ended)] if is_over else []
        for thread in ended:
            thread.join()

    def _wait_locked(self, condition: Callable[[], bool]) -> bool:
        """Return True once `condition` holds, or False if something is held up: sent, and not recorded in time."""
        while not condition():
            limit, now = self.deadlines.limit(), self._clock.monotonic()
            if now < limit:
                self._wait_for(condition, limit - now)
                continue
            until = now + GRACE_S
            while (is_late := self.deadlines.limit() <= limit) and now < until and not condition():
                self._wait_for(condition, until - now)
                now = self._clock.monotonic()
            if is_late and not condition():
                return False
        return True

    # In the threads

    def _run(self, number: int, work: Callable[[], None]) -> None:
        try:
            while not self.stopped.is_set():
                work()
        except StoppedError:
            return  # the thread that set it knows why
        except BaseException as error:  # any end of a thread, by a panic of native code too: the owner waits for it
            self.fail(error)
        finally:
            with self.changed:
                self._ended.add(number)
                self.changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """End the work with `error`, unless another one came first, or is the reason of all that follows."""
        with self.changed:
            self.failure = self.failure or self.reason or error
            self.stopped.set()
            self.changed.notify_all()

    def begin(self, pending: RowsUnderWay) -> RowsUnderWay:
        """Have the owner wait no longer than this may take, and return it."""
        with self.changed:
            if pending.limit < self.deadlines.limit():
                self.changed.notify_all()
            self.deadlines.add(pending)
        return pending

    @contextmanager
    def away(self) -> Iterator[None]:
        """Make a call that puts nothing into the queue, and may take long: who stops the work does not wait for it."""
        with self.changed:
            if self.stopped.is_set():
                raise StoppedError
            self._away += 1
        try:
            yield
        finally:
            with self.changed:
                self._away -= 1

    def end(self, pending: RowsUnderWay) -> None:
        with self.changed:
            self.deadlines.discard(pending)
            self.wake()

    def pause_until_over(self, seconds: float) -> bool:
        """Pause, and return whether the owner has stopped the work."""
        until = self._clock.monotonic() + seconds
        with self.changed:
            while not self._is_over and (left_s := until - self._clock.monotonic()) > 0:
                self._wait_for(lambda: self._is_over, left_s)
            return self._is_over

    # In any of them, while it holds `changed`

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Return when `condition` holds, or `stopped` is set."""
        while not condition() and not self.stopped.is_set():
            self._wait_for(condition)

    def wake(self) -> None:
        """Wake the threads that wait, if the condition of any of them holds now."""
        if any(condition() for condition in self._awaited):
            self.changed.notify_all()

    def _wait_for(self, condition: Callable[[], bool], timeout_s: float | None = None) -> None:
        self._awaited.append(condition)
        try:
            self.changed.wait() if timeout_s is None else self._clock.wait_on(self.changed, timeout_s)
        finally:
            self._awaited.remove(condition)
