"""Which failures are tried again, how often, and for how long: one policy for every SQS call.

Botocore's own retries are off (`aws`), so that this is the only one. A retry never starts unless its pause
ends within the budget, or the call is one that must be tried more than once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import TransientQueueError

T = TypeVar("T")

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 5.0


def retry_transient(call: Callable[[], T], *, clock: Clock, budget_s: float, min_tries: int = 1) -> T:
    """Return `call()`, tried again after each TransientQueueError with growing, random pauses.

    Raises the last TransientQueueError after `min_tries` at the earliest, when the next try would begin more than
    `budget_s` seconds after the first; any other error at once.
    """
    deadline = clock.monotonic() + budget_s

    def is_over(state: RetryCallState) -> bool:
        return state.attempt_number >= min_tries and clock.monotonic() + state.upcoming_sleep > deadline

    retrying = Retrying(
        retry=retry_if_exception_type(TransientQueueError),
        wait=wait_random_exponential(multiplier=FIRST_PAUSE_S, max=LONGEST_PAUSE_S),
        stop=is_over,
        sleep=clock.sleep,
        reraise=True,
    )
    return retrying(call)
