"""What a setting needs of the link to SQS and to the journal: for the warnings at the start, and the pages' table.

All of a query's processes share the link. What only makes a query slow is no matter here.
"""

from __future__ import annotations

import math

from sqs_fifo_spark.aws.calls import MAX_ENTRIES
from sqs_fifo_spark.source.queue import most_renewed
from sqs_fifo_spark.source.receive import WORTH

RENEWAL_BYTES = 600
"""What the renewal of one message sends: its receipt handle, and its part of the call around ten."""


def bytes_at_once(partitions: int, max_bytes: int, message_bytes: int) -> int:
    """Return how many bytes all partitions may receive at once, if messages have up to `message_bytes`.

    Each asks for ten messages before it knows how large they are, then for what its share of `max_bytes` has room for.
    """
    return max(partitions * MAX_ENTRIES * message_bytes, max_bytes)


def visibility_needed_s(size: int, bytes_per_s: float, *, is_on_path: bool) -> int:
    """Return how long SQS must hide messages of `size` bytes, so that they have come and are sealed by then.

    Until an answer is there nobody knows its handles, so nothing of it can be renewed; and it is waited for only while
    it is worth that. A journal that `is_on_path` is not written over the link.
    """
    return math.ceil(size / bytes_per_s * max(1 / WORTH, 1 if is_on_path else 2))


def most_held(heartbeat_s: float, bytes_per_s: float | None) -> int:
    """Return how many messages can be renewed within half a heartbeat, on a link of `bytes_per_s` if it is known."""
    carried = math.inf if bytes_per_s is None else bytes_per_s * heartbeat_s / 2 / RENEWAL_BYTES
    return int(min(most_renewed(heartbeat_s), carried))
