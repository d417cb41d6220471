"""The executor's side: read one partition of one epoch, the same rows however often it is asked.

    a link there?   -> serve it, and go on with the next, up to the last
    else            receive under a lease, seal the next link, serve what is sealed there

A row is served after its segment exists, so what is not in the chain was never shown to anyone.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Generator, Iterator
from contextlib import closing

import pyarrow as pa

from sqs_fifo_spark.clock import SYSTEM_CLOCK, Clock
from sqs_fifo_spark.errors import EpochSettledError, JournalCorruptError
from sqs_fifo_spark.journal.location import open_store
from sqs_fifo_spark.journal.object_store import S3Access, journal_access
from sqs_fifo_spark.options import SourceOptions
from sqs_fifo_spark.source.attempt import Attempt, deferred_groups
from sqs_fifo_spark.source.journal import Journal
from sqs_fifo_spark.source.message import Message, from_arrow
from sqs_fifo_spark.source.plan import PartitionPlan
from sqs_fifo_spark.source.pool import IN_CALLING_THREAD, Pool, Pools
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.segment import Segment

ROWS_PER_BATCH = 2_000
GATHERED_BYTES = 1 << 20
"""Of rows in Arrow's form, after which those of several links go to Spark."""


def read_partition(options: SourceOptions, plan: PartitionPlan) -> Iterator[pa.RecordBatch]:
    """Yield the partition's rows, in order, with the columns of `ARROW_SCHEMA`.

    Runs in an executor's Python worker; may run many times, at once and after the query. Raises EpochSettledError
    for an epoch that is settled, JournalCorruptError for a damaged segment, and the errors of queue and store.
    """
    journal = _journal(options.journal_location, journal_access(options), plan.journal)
    pools = Pools()
    queue = Queue(options, SYSTEM_CLOCK, pools.make, sharer=plan.partition, sharers=plan.partitions)
    begun = serve(plan, queue, journal, options, SYSTEM_CLOCK, pools.make("begin", 3))
    with closing(pools), closing(begun) as links:
        for rows in _gathered(links):
            for start in range(0, rows.num_rows, ROWS_PER_BATCH):
                yield rows.slice(start, ROWS_PER_BATCH)


def _gathered(links: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of several links at once where links are small: each batch costs Spark as much as many rows."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for rows in links:
        gathered.append(rows)
        size += rows.get_total_buffer_size()
        if size >= GATHERED_BYTES:
            yield from pa.Table.from_batches(gathered).combine_chunks().to_batches()
            gathered, size = [], 0
    if gathered:
        yield from pa.Table.from_batches(gathered).combine_chunks().to_batches()


def serve(
    plan: PartitionPlan,
    queue: Queue,
    journal: Journal,
    options: SourceOptions,
    clock: Clock,
    pool: Pool = IN_CALLING_THREAD,
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the rows of each link of the partition's chain, which is made, or gone on with, if it is not closed.

    What a chain that nobody has begun takes from the journal is asked for at once, in `pool`.
    """

    def read(link: int) -> Segment | None:
        return journal.read(journal.segment_name(plan.epoch, plan.partition, plan.plan, link))

    def look() -> None:
        journal.require_current(plan.epoch, plan.claim)

    is_begun = threading.Event()
    first, is_current = pool.submit(lambda: read(0)), pool.submit(look)
    carried = pool.submit(lambda: _decided(plan, journal, is_begun))
    try:
        segment, end, decided = first.result(), None, list[Message]()
        if segment is None:
            # A look that was over before that read: if the epoch was settled between the two, what this attempt
            # receives is released when it finds that.
            is_current.result()
            decided = carried.result()
    finally:
        is_begun.set()
    del first, is_current, carried  # they have rows, and Spark may take long
    deferred = set(plan.reserved_groups if plan.deletes else plan.reserved_groups | plan.decided_groups)
    while segment is not None:
        look()  # what was read may be a leftover's, put where the epoch's own has been dropped
        yield segment.served(plan.skipped)
        end = segment.head
        if end.chain.is_last:
            return
        deferred |= deferred_groups(end)
        segment = read(end.origin.link + 1)
    if end is not None:
        look()
    with Attempt(plan, end, deferred, queue, journal, options, clock) as attempt:
        links = attempt.append(decided)
        del decided
        for segment in links:
            yield segment.served(plan.skipped)


def _decided(plan: PartitionPlan, journal: Journal, is_begun: threading.Event) -> list[Message]:
    """Return the decided messages: those that the plan carries, with their rows from the journal.

    Or only some of them, if the chain `is_begun`: then it has them.
    """
    messages: list[Message] = []
    for name, message_ids in plan.carried:
        if is_begun.is_set():
            break
        source = journal.read(name)
        if source is None:
            raise EpochSettledError(
                f"'{name}', which holds messages that epoch {plan.epoch} serves, is gone from the journal. Either the "
                "epoch is committed and this task runs too late, or somebody has removed it: start the query again."
            )
        receipts = source.head.receipts
        places = {receipt.message_id: place for place, receipt in enumerate(receipts)}
        if not places.keys() >= set(message_ids):
            raise JournalCorruptError(
                f"'{name}' in the journal is not what the driver saw there: it lacks messages that epoch {plan.epoch} "
                "serves. With deleteAfter=commit, what is not committed is still in the queue. Restore the object."
            )
        wanted = [places[message_id] for message_id in message_ids]
        held = [receipts[place]._replace(deferred=False) for place in wanted]
        messages += from_arrow(held, source.rows.take(wanted))
    return messages


@functools.cache
def _journal(location: str, access: S3Access, journal_id: str) -> Journal:
    """This process's view of the journal, found once; never shared with a forked child."""
    return Journal.join(open_store(location, access), journal_id)


os.register_at_fork(after_in_child=_journal.cache_clear)
