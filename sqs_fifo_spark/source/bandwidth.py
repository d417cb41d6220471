"""The needs of a setting on the network to SQS: for the warnings at the start, and the table in the pages.

All processes of a query share that network. A need that only makes a query slow does not count here.
"""

from __future__ import annotations

import math

from sqs_fifo_spark.aws.calls import CALL_BUDGET_S, MAX_ENTRIES
from sqs_fifo_spark.source.receive import WORTH

RENEWAL_BYTES = 600
"""Sent for the renewal of one message: its receipt handle, and its part of the call for ten."""
RENEWAL_S = 0.1
"""Seconds that a renewal of ten messages takes, on a slow day."""
MOST_RENEWAL_THREADS = 32


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
    """Return the number of messages that can be renewed within half a heartbeat, for it may begin late.

    By MOST_RENEWAL_THREADS, and at `bytes_per_s` if it is known.
    """
    carried = math.inf if bytes_per_s is None else bytes_per_s * heartbeat_s / 2 / RENEWAL_BYTES
    return int(min(MOST_RENEWAL_THREADS * MAX_ENTRIES * heartbeat_s / 2 / RENEWAL_S, carried))


def renewal_threads(max_messages: int, heartbeat_s: float) -> int:
    """Return the number of calls at once that renew `max_messages` in time, from 4 to MOST_RENEWAL_THREADS.

    Within half a heartbeat, and within the budget of one call, as a restart wants it.
    """
    wanted = math.ceil(max_messages / MAX_ENTRIES * RENEWAL_S / min(heartbeat_s / 2, CALL_BUDGET_S))
    return max(4, min(MOST_RENEWAL_THREADS, wanted))
