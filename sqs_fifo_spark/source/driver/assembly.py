"""The driver's side, put together from the options: of one queue, or of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sqs_fifo_spark.aws.queue_list import queue_urls
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.journal.location import journal_access, open_store
from sqs_fifo_spark.options import SourceOptions, parse_queue
from sqs_fifo_spark.pace import Pace
from sqs_fifo_spark.source.driver.driver import Driver
from sqs_fifo_spark.source.driver.member import MemberDriver
from sqs_fifo_spark.source.driver.startless import StartlessDriver
from sqs_fifo_spark.source.driver.union import QueueUnion
from sqs_fifo_spark.source.payload_deletes import PayloadDeletes
from sqs_fifo_spark.source.pool import MakePool, Pools
from sqs_fifo_spark.source.queue import DRIVER_DELETES, Queue

D = TypeVar("D", bound=Driver)


def driver_of_one(options: SourceOptions, pool: MakePool) -> StartlessDriver:
    """Return the driver's side of a source with one queue. Makes no call."""
    return StartlessDriver(_driver(options, pool, Driver))


def union_of_several(options: SourceOptions, given: Mapping[str, str], *, tells_start: bool) -> QueueUnion:
    """Return that of a source with several queues, whose options were `given` so. Makes no call."""
    pace = Pace(SYSTEM_CLOCK, options.max_calls_per_s)

    def make(url: str, before_poll: Callable[[], None], most_partitions: Callable[[int], int]) -> MemberDriver:
        pools = Pools()  # of its own: a refused queue has a new driver each minute
        return _driver(
            parse_queue(given, url),
            pools.make,
            MemberDriver,
            pace=pace,
            before_poll=before_poll,
            most_partitions=most_partitions,
            after_stop=pools.close,
        )

    return QueueUnion(options, lambda: queue_urls(options, SYSTEM_CLOCK), make, SYSTEM_CLOCK, tells_start=tells_start)


def _driver(options: SourceOptions, pool: MakePool, make: type[D], *, pace: Pace | None = None, **of_union: Any) -> D:
    """Return the driver of one queue; `pace`, which all have in common, if it is one of several."""
    deletes = PayloadDeletes(None)
    if options.delete_payloads:
        from sqs_fifo_spark.payloads.buckets import open_buckets  # with obstore

        deletes = PayloadDeletes(open_buckets(journal_access(options)).delete, pool("payload-delete", 1))
    return make(
        options,
        queue=Queue(options, SYSTEM_CLOCK, pool, deletes=DRIVER_DELETES, pace=pace, may_go=pace is not None),
        store=lambda: open_store(options.journal_location, journal_access(options)),
        clock=SYSTEM_CLOCK,
        pool=pool,
        payload_deletes=deletes,
        **of_union,
    )
