"""The window of a call: from a look at the record until its rows may no longer be sent, and must be recorded.

SQS knows for 300 s a row that it has taken, and adds no equal one in that time. So of two attempts that send the same
row, neither knowing of the other, the second must reach SQS within 300 s of the first. After a look an attempt

    within REFRESH_AFTER_S       begins calls, or looks again; on a slow store within OLDEST_REFRESH_S
    within SEND_BUDGET_S         begins its last try, nothing of which leaves this process CONNECT_TIMEOUT_S later
    CONFIRM_BUDGET_S after that  has an answer and has recorded it, or the task fails

An attempt that looks just before another's record is written sends the row at most SEND_BUDGET_S and the time to
connect later: 280 s after the other's look. An attempt that follows one that has failed has the rest of the 300 s to
start, to look, and to reach the row: 123 s.

A row of which SQS has throttled each try is not sent. So at the end of its window it gets another one, after another
look, for as long as SQS throttles it.
"""

from __future__ import annotations

from dataclasses import dataclass

REFRESH_AFTER_S = 30.0
"""Age that a look at the record may have when a row is sent: another attempt may have sent that row since."""
OLDEST_REFRESH_S = 70.0
"""Age that it may have where the store is so slow that no look is younger."""
SEND_BUDGET_S = 100.0
"""Time for which a row is tried after a look at the record."""
CONFIRM_BUDGET_S = 75.0
"""Time that the last try's answer and its record may take."""


@dataclass(frozen=True)
class Window:
    """The times of a call, in seconds of the monotonic clock; the look before it was made at `looked_at`."""

    looked_at: float

    @property
    def last_try(self) -> float:
        return self.looked_at + SEND_BUDGET_S

    @property
    def limit(self) -> float:
        """The time by which the call's rows must be recorded."""
        return self.last_try + CONFIRM_BUDGET_S
