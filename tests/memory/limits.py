"""The most memory that our Python processes may take: a formula over the options, not over the backlog.

The constants are measured ones with a reserve of about a half; `make memory` prints both side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqs_fifo_spark.source.queue import CONCURRENT_CALLS
from sqs_fifo_spark.source.task.demand import LINK_BYTES, LINK_MESSAGES

MIB = 1 << 20
ENTRIES = 10
"""A receive that begins below `maxBytesPerTrigger` still brings up to ten messages; a worker makes several at once."""

READER_FIXED = 12 * MIB
"""Connections, thread stacks, what libraries load at their first use."""
READER_PER_MESSAGE = 4 << 10
"""Receipt, hold and delete of one message of the micro-batch, or one that is carried or stands in the ledger. SQS's
handles are several hundred characters longer than the local queue's."""
READER_COPIES = 4
"""Of what the probe brought: the answer, its parsed form, and the plans on their way to Spark."""

WORKER_FIXED = 40 * MIB
WORKER_PER_MESSAGE = 4 << 10
"""The columns that are not the body, as Python objects and as Arrow, with receipt and hold."""
WORKER_PER_UNCONFIRMED = 3 << 10
"""An entry of the ledger, as read and as parsed: a task looks there for what was received before."""
WORKER_COPIES = 5
"""Of bodies and attributes: as received, as Arrow, compressed, and as the segment that is written."""
LINK_COPIES = WORKER_COPIES + 2
"""Of a link's, where tasks delete: its rows are gathered with those of the links before it, too."""


@dataclass(frozen=True)
class Load:
    """The limits of a micro-batch, and the largest message of the queue, in bytes."""

    messages: int
    bytes: int
    partitions: int
    largest: int
    remembered: int = 0
    """Messages that are carried over."""
    unconfirmed: int = 0
    """Messages whose delete is not confirmed."""
    deletes: bool = False
    """True if tasks delete: then a worker holds one link at a time."""


def reader_limit(idle: int, load: Load) -> int:
    """Return the most bytes for the process beside the driver; `idle` is what it takes with a nearly empty queue."""
    of_messages = READER_PER_MESSAGE * (load.messages + load.remembered + load.unconfirmed)
    return idle + READER_FIXED + of_messages + READER_COPIES * ENTRIES * load.largest


def worker_limit(idle: int, load: Load) -> int:
    """Return the most bytes for an executor's Python worker, which reads one partition at a time."""
    messages, size, copies = -(-load.messages // load.partitions), load.bytes // load.partitions, WORKER_COPIES
    if load.deletes:
        messages, size, copies = min(messages, LINK_MESSAGES), min(size, LINK_BYTES), LINK_COPIES
    of_bodies = min(size, messages * load.largest) + CONCURRENT_CALLS * ENTRIES * load.largest
    of_messages = WORKER_PER_MESSAGE * messages + WORKER_PER_UNCONFIRMED * load.unconfirmed
    return idle + WORKER_FIXED + of_messages + copies * of_bodies
