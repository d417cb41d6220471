"""A call whose first try is made before there is anything to try it again; and the clock that tests turn by hand."""

from __future__ import annotations

import math
import threading

import pytest
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_none

from sqs_fifo_spark.retry import LONGEST_PAUSE_S, SharedPause, retried
from tests.manual_clock import ManualClock


def three_tries() -> Retrying:
    return Retrying(retry=retry_if_exception_type(OSError), stop=stop_after_attempt(3), wait=wait_none(), reraise=True)


@pytest.mark.parametrize(("failures", "is_told"), [(0, False), (1, False), (2, False), (3, True), (9, True)])
def test_the_first_try_counts(failures: int, is_told: bool) -> None:
    """Three tries are three calls, whoever makes the first one; the last error is the one that is told."""
    calls: list[int] = []

    def call() -> str:
        calls.append(1)
        if len(calls) <= failures:
            raise OSError(len(calls))
        return "done"

    if is_told:
        with pytest.raises(OSError, match=r"^3$"):
            retried(call, OSError, three_tries)
    else:
        assert retried(call, OSError, three_tries) == "done"
    assert len(calls) == min(3, failures + 1)


def test_a_queue_may_throttle_for_days() -> None:
    """A pause is never longer than the longest, and none fails to be told."""
    clock = ManualClock()
    pause = SharedPause(clock)
    for _ in range(2_000):
        pause.throttled()
        before = clock.monotonic()
        pause.wait(math.inf, threading.Event())
        assert clock.monotonic() - before <= 1.5 * LONGEST_PAUSE_S
        clock.advance(LONGEST_PAUSE_S)


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_a_clock_turned_by_hand_goes_forward_and_not_for_ever(seconds: float) -> None:
    """After a leap to infinity every deadline would be over, and a wait that nobody ends would seem to end."""
    clock = ManualClock()
    began_at = clock.monotonic()
    with pytest.raises(ValueError, match="time goes forward"):
        clock.wait_on(threading.Condition(), seconds)
    assert clock.monotonic() == began_at
