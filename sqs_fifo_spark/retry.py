"""The one policy by which failed SQS calls are tried again: the failures, the number of tries, and the time.

Botocore's own retries are off (`aws.client`), so that this is the only one. A retry never starts unless its pause ends
within the budget, or the call is one that must be tried more than once.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import TransientQueueError

T = TypeVar("T")

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 5.0
_MOST_TIMES = 10
"""From here on a pause is the longest: a queue may throttle for days, and a power of two has an end."""


def retry_transient(
    call: Callable[[], T],
    *,
    clock: Clock,
    budget_s: float,
    min_tries: int = 1,
    stopped: threading.Event | None = None,
) -> T:
    """Return `call()`, tried again after each TransientQueueError with growing, random pauses.

    A pause ends once `stopped` is set, for `call` to look at that first. Raises the last TransientQueueError after
    `min_tries` at the earliest, when the next try would begin more than `budget_s` seconds after the first; any other
    error at once.
    """
    deadline = clock.monotonic() + budget_s

    def is_over(state: RetryCallState) -> bool:
        return state.attempt_number >= min_tries and clock.monotonic() + state.upcoming_sleep > deadline

    def pause(seconds: float) -> None:
        if stopped is None:
            clock.sleep(seconds)
        else:
            clock.wait(stopped, seconds)

    def retrying() -> Retrying:
        return Retrying(
            retry=retry_if_exception_type(TransientQueueError),
            wait=wait_random_exponential(multiplier=FIRST_PAUSE_S, max=LONGEST_PAUSE_S),
            stop=is_over,
            sleep=pause,
            reraise=True,
        )

    return retried(call, TransientQueueError, retrying)


def retried(call: Callable[[], T], failure: type[Exception], retrying: Callable[[], Retrying]) -> T:
    """Return `call()`, or the result of `retrying()` if it fails with `failure`; that counts as its first try.

    So a call that succeeds, as nearly all do, costs nothing more.
    """
    try:
        return call()
    except failure as error:
        failed = [error]

    def again() -> T:
        if failed:
            raise failed.pop()
        return call()

    return retrying()(again)


class PendingCall(Generic[T]):
    """A call that is under way, of which the first try was sent before anybody waits for its answer.

    So one thread has several under way, without a thread for each. To be used by one thread at a time.
    """

    def __init__(
        self,
        ask: Callable[[], T],
        *,
        clock: Clock,
        budget_s: float,
        min_tries: int = 1,
        otherwise: Callable[[], T] | None = None,
    ) -> None:
        """`ask` returns the answer to the sent call when it is called first, and to a try of its own after that.

        It is tried again as by `retry_transient`, for `budget_s` from now. The result of `otherwise` is taken where
        that raises TransientQueueError.
        """
        self._ask = ask
        self._clock = clock
        self._deadline = clock.monotonic() + budget_s
        self._min_tries = min_tries
        self._otherwise = otherwise
        self._answers: list[T] = []
        self._error: Exception | None = None

    def wait(self) -> bool:
        """Wait for the answer to the first try, if nobody has; return False for an error, which `result` raises."""
        if not self._answers and self._error is None:
            try:
                self._answers.append(self._ask())
            except Exception as error:
                self._error = error
        return bool(self._answers)

    def result(self) -> T:
        """Return the answer, tried again if need be. Raises the errors of `retry_transient`."""

        def first_or_again() -> T:
            error, self._error = self._error, None
            if error is not None:
                raise error
            return self._ask()

        if not self.wait():
            left_s = self._deadline - self._clock.monotonic()
            try:
                answer = retry_transient(first_or_again, clock=self._clock, budget_s=left_s, min_tries=self._min_tries)
            except TransientQueueError as error:
                if self._otherwise is None:
                    self._error = error
                    raise
                answer = self._otherwise()
            self._answers.append(answer)
        return self._answers[0]


class SharedPause:
    """The pause that the calls of one task share while SQS throttles them: when one is, the others wait too.

    Each that goes on would be one more call that SQS counts. A queue that throttles none is not delayed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # `_lock` guards both; nobody sleeps while it is held.
        self._lock = threading.Lock()
        self._until = 0.0
        self._times = 0

    def wait(self, deadline: float, stopped: threading.Event) -> None:
        """Return when the pause is over, if there is one, or `stopped` is set; at once if it ends after `deadline`."""
        with self._lock:
            left_s = self._until - self._clock.monotonic()
        if left_s > 0:
            left_s *= random.uniform(1.0, 1.5)  # so that not all go on in one moment
            if self._clock.monotonic() + left_s <= deadline:
                self._clock.wait(stopped, left_s)

    def throttled(self) -> None:
        """Let all wait: longer each time, until a call is answered."""
        with self._lock:
            now = self._clock.monotonic()
            if now >= self._until:  # calls that were under way together count once
                self._until = now + min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (self._times + 1))
                self._times = min(self._times + 1, _MOST_TIMES)

    def answered(self) -> None:
        with self._lock:
            self._times = 0
