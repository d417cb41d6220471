"""The needs of a setting on the network to SQS: for the warnings at the start, and the table in the pages.

All processes of a query share that network. A need that only makes a query slow does not count here.
"""

from __future__ import annotations

import math

from sqs_fifo_spark.aws.calls import MAX_ENTRIES
from sqs_fifo_spark.source.queue import most_renewed
from sqs_fifo_spark.source.receive import WORTH

RENEWAL_BYTES = 600
"""Sent for the renewal of one message: its receipt handle, and its part of the call for ten."""


def bytes_at_once(partitions: int, max_bytes: int, message_bytes: int) -> int:
    """Return the bytes that all partitions may receive at once, if messages have up to `message_bytes`.

    Each asks for ten messages before it knows how large they are, then for as many as its share of `max_bytes` has room
    for.
    """
    return max(partitions * MAX_ENTRIES * message_bytes, max_bytes)


def visibility_needed_s(size: int, bytes_per_s: float) -> int:
    """Return the seconds for which SQS must hide messages of `size` bytes, so that they have come by then.

    Until an answer is there nobody knows its handles, so nothing of it can be renewed; from then on its task renews,
    also while the journal takes its time.
    """
    return math.ceil(size / bytes_per_s / WORTH)


def most_held(heartbeat_s: float, bytes_per_s: float | None) -> int:
    """Return the number of messages that can be renewed within half a heartbeat, at `bytes_per_s` if it is known."""
    carried = math.inf if bytes_per_s is None else bytes_per_s * heartbeat_s / 2 / RENEWAL_BYTES
    return int(min(most_renewed(heartbeat_s), carried))
