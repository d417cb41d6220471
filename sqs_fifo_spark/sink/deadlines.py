"""The times by which all that a task has under way must be over, or the task fails.

A call may hang before it reaches SQS, and so may the record. Then the task fails without waiting for them: SQS forgets
the rows that it has taken, and the task's next attempt must come before. Pure: no call, no clock. The user holds one
lock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from sqs_fifo_spark.errors import JournalUnavailableError, SqsFifoError, TransientQueueError
from sqs_fifo_spark.sink.outgoing import OutgoingRow
from sqs_fifo_spark.sink.window import CONFIRM_BUDGET_S, SEND_BUDGET_S

RECORDS = "the record of what was sent is held up: the journal does not have it {:g} s after the look before."
KEEPS = "a refused row is held up: it is not kept {:g} s after that began."


@dataclass(eq=False)
class RowsUnderWay:
    """A thread's rows while it sends and records them, for good if that fails; or a refused one while it keeps it."""

    limit: float
    """Monotonic time after which it can only fail: SQS will forget rows that an earlier try may have sent."""
    unrecorded: dict[int, str] = field(default_factory=dict)
    """Its rows that the record lacks, by identity, and their groups."""
    puts: str = ""
    """The text for a put of its own that is held up. Only its own thread writes this."""

    def note_recorded(self, rows: Iterable[OutgoingRow]) -> None:
        for row in rows:
            del self.unrecorded[id(row)]


class Deadlines(set[RowsUnderWay]):
    """All that a task has under way."""

    def limit(self) -> float:
        """Return the monotonic time by which something must be over; infinity if nothing is under way."""
        return min((each.limit for each in self), default=math.inf)

    def is_clear(self, groups: set[str], by: float) -> bool:
        """Return whether nobody will send rows of these groups again by then: the record has them, or time is left."""
        return all(each.limit >= by or groups.isdisjoint(each.unrecorded.values()) for each in self)

    def held_up(self, now: float) -> SqsFifoError:
        """Return the error of a task in which something is late at `now`, a monotonic time."""
        budget_s = SEND_BUDGET_S + CONFIRM_BUDGET_S
        end = "So that Spark tries the task again while SQS knows what it has taken, this attempt ends without it."
        if puts := next((each.puts for each in self if each.puts and each.limit <= now), ""):
            return JournalUnavailableError(f"{puts.format(budget_s)} {end}")
        return TransientQueueError(
            f"a call to SQS is held up: {budget_s:g} s after the time to try its rows began it is not over, and can "
            f"send nothing any more. {end} Check the network, how names are looked up, and where "
            "credentials come from."
        )
