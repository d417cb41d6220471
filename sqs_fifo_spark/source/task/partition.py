"""The executor's side: read one partition of one epoch, the same rows however often it is asked.

    a link there?   -> serve it, and go on with the next, up to the last
    else            receive under a lease, seal the next link, serve the sealed segment

A row is served after its segment exists, so a message outside the chain was never shown to anyone.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pyarrow as pa

from sqs_fifo_spark.clock import SYSTEM_CLOCK, Clock
from sqs_fifo_spark.columns import ARROW_SCHEMA
from sqs_fifo_spark.errors import AccessDeniedError, JournalCorruptError, PayloadError
from sqs_fifo_spark.journal.location import S3Access, journal_access, open_store
from sqs_fifo_spark.options import SourceOptions
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.message import Message, from_arrow, rows_at
from sqs_fifo_spark.source.plan import PartitionPlan, deal_of, gone
from sqs_fifo_spark.source.pool import IN_CALLING_THREAD, Pool, Pools
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.segment import Segment
from sqs_fifo_spark.source.task.attempt import Attempt
from sqs_fifo_spark.source.task.payloads import Payloads
from sqs_fifo_spark.source.task.sieve import deferred_groups, sequence_number

ROWS_PER_BATCH = 2_000
BYTES_PER_BATCH = 16 << 20
"""Of rows in Arrow's form: Spark, and Arrow on its way there, hold a batch several times."""
GATHERED_BYTES = 1 << 20
"""Of rows in Arrow's form, after which those of several links go to Spark."""


def read_partition(
    options: SourceOptions, plan: PartitionPlan, *, one_of: tuple[int, int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the partition's rows, in order, with the columns of `ARROW_SCHEMA`.

    `one_of`, if the source has several queues: the number of this task, and of all tasks of the micro-batch.
    Runs in an executor's Python worker; may run many times, at once and after the query. Raises EpochSettledError
    for an epoch that is settled, JournalCorruptError for a damaged segment, and the errors of queue and store.
    """
    journal = _journal(options.journal_location, journal_access(options), plan.journal)
    pools = Pools()
    sharer, sharers = one_of or (plan.partition, plan.partitions)
    queue = Queue(options, SYSTEM_CLOCK, pools.make, sharer=sharer, sharers=sharers, may_go=one_of is not None)
    beginning = ThreadPoolExecutor(3, thread_name_prefix="sqs-fifo-begin")
    buckets = None
    if options.payloads == "s3":
        from sqs_fifo_spark.payloads.buckets import open_buckets

        buckets = open_buckets(journal_access(options))
    payloads = Payloads(options, buckets, pools.make)
    chain = serve(plan, queue, journal, options, SYSTEM_CLOCK, beginning, payloads)
    try:
        with closing(pools), closing(chain) as links:
            for rows in _gathered(links):
                yield from _batches(rows)
    finally:
        # A read that nobody needs any more may take long, and changes nothing: it is not waited for.
        beginning.shutdown(wait=False, cancel_futures=True)


def _batches(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield `rows`, without copying them, as batches that are not too long, nor too large unless of one row."""
    for start in range(0, rows.num_rows, ROWS_PER_BATCH):
        pending = [rows.slice(start, ROWS_PER_BATCH)]
        while pending:
            batch = pending.pop()
            half = batch.num_rows // 2
            if half and batch.nbytes > BYTES_PER_BATCH:
                pending += (batch.slice(half), batch.slice(0, half))
            else:
                yield batch


def _gathered(links: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of several links at once where links are small: each batch costs Spark as much as many rows."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for rows in links:
        is_large = rows.nbytes >= GATHERED_BYTES  # not worth a copy
        size += rows.nbytes
        if not is_large:
            gathered.append(rows)
        if size >= GATHERED_BYTES:
            yield from _joined(gathered)
            gathered, size = [], 0
        if is_large:
            yield rows
    yield from _joined(gathered)


def _joined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from pa.Table.from_batches(batches, ARROW_SCHEMA).combine_chunks().to_batches()


def serve(
    plan: PartitionPlan,
    queue: Queue,
    journal: Journal,
    options: SourceOptions,
    clock: Clock,
    pool: Pool = IN_CALLING_THREAD,
    payloads: Payloads | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the rows of each link of the partition's chain, which is made, or gone on with, if it is not closed.

    The objects that a chain without a link needs from the journal are asked for at once, in `pool`.
    """

    def read(link: int) -> Segment | None:
        return journal.read(journal.segment_name(plan.epoch, plan.partition, plan.plan, link))

    def look() -> None:
        journal.require_current(plan.epoch, plan.claim)

    is_begun = threading.Event()
    first, is_current = pool.submit(lambda: read(0)), pool.submit(look)
    carried = pool.submit(lambda: _assigned_messages(plan, journal, is_begun))
    try:
        segment, end, decided = first.result(), None, list[Message]()
        if segment is None or plan.skips:
            # A look that was over before that read: if the epoch was settled in between, this attempt finds it, and
            # releases its messages. A task that needs the deal learns first if its driver is current.
            is_current.result()
        if segment is None:
            decided = carried.result()
    finally:
        is_begun.set()
    del first, is_current, carried  # they have rows, and Spark may take long
    skipped = deal_of(plan, journal).skipped if plan.skips else frozenset[str]()
    deferred: set[str] = set()
    while segment is not None:
        look()  # that link may be a late task's, put where the epoch's own has been dropped
        yield segment.served(skipped)
        end = segment.head
        if end.chain.is_last:
            return
        deferred |= deferred_groups(end)
        segment = read(end.origin.link + 1)
    if end is not None:
        look()
    payloads = payloads or Payloads(options)
    try:
        # Before anything is received: each attempt that fails here would receive it again.
        decided = payloads.loaded(sorted(decided, key=sequence_number), plan.max_bytes, skipped)
    except (PayloadError, AccessDeniedError):
        if read(0) is None:
            look()  # the payloads of a settled epoch are gone, and so are its links
            raise
        # Another attempt has put it, and has perhaps deleted message and payload since.
        yield from serve(plan, queue, journal, options, clock, pool, payloads)
        return
    with Attempt(plan, deal_of(plan, journal), end, deferred, queue, journal, options, clock, payloads) as attempt:
        links = attempt.append(decided)
        del decided
        for segment in links:
            yield segment.served(skipped)


def _assigned_messages(plan: PartitionPlan, journal: Journal, is_begun: threading.Event) -> list[Message]:
    """Return the assigned messages with their rows; perhaps not all if the chain `is_begun`, for it has them."""
    messages: list[Message] = []
    for share in deal_of(plan, journal).shares:
        if share.partition != plan.partition:
            continue
        if is_begun.is_set():
            break
        source = journal.read(share.name)
        if source is None:
            raise gone(share.name, plan.epoch)
        receipts, places = source.head.receipts, list(share.places)
        if source.head.origin.writer != share.writer or places[-1] >= len(receipts):
            raise JournalCorruptError(
                f"'{share.name}' in the journal is not what the driver saw there, so it lacks messages that epoch "
                f"{plan.epoch} serves. With deleteAfter=commit, messages that are not committed are still in the "
                "queue. Restore the object."
            )
        held = [receipts[place]._replace(deferred=False) for place in places]
        sizes = [source.head.sizes[place] for place in places]
        messages += from_arrow(held, rows_at(source.rows, places), sizes)
    return messages


@functools.cache
def _journal(location: str, access: S3Access, journal_id: str) -> Journal:
    """This process's view of the journal, found once; never shared with a forked child."""
    return Journal.join(open_store(location, access), journal_id)


os.register_at_fork(after_in_child=_journal.cache_clear)
