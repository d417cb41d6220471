"""The clock that tests turn by hand."""

from __future__ import annotations

import math
import threading

import pytest

from sqs_fifo_spark.clock import ManualClock


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_a_clock_turned_by_hand_goes_forward_and_not_for_ever(seconds: float) -> None:
    """After a leap to infinity every deadline would be over, and a wait that nobody ends would seem to end."""
    clock = ManualClock()
    began_at = clock.monotonic()
    with pytest.raises(ValueError, match="time goes forward"):
        clock.wait_on(threading.Condition(), seconds)
    assert clock.monotonic() == began_at
