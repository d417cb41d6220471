"""Spark's stream reader over `Driver` and `partition`: each of Spark's calls, and the side on which it runs.

Spark builds a reader in several processes for one query, to use one and to pickle another, so building one does
nothing, and imports neither side. Only the reader process beside the driver ever makes a `Driver`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sqs_fifo_spark.boundary import called_by_spark
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.logs import set_subject
from sqs_fifo_spark.options import SourceOptions
from sqs_fifo_spark.schema import arrow_schema
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.pool import Pools
from sqs_fifo_spark.worker import exempt_from_collection

if TYPE_CHECKING:
    from sqs_fifo_spark.source.driver.driver import Driver
    from sqs_fifo_spark.source.driver.startless import StartlessDriver
    from sqs_fifo_spark.source.payload_deletes import PayloadDeletes
    from sqs_fifo_spark.source.plan import PartitionPlan

try:
    from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2, which neither limits a read nor asks for the end of AvailableNow

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands for Spark's class of that name where there is none."""

    ReadLimit = ReadMaxRows = None  # type: ignore[assignment,misc]


_READER_PROCESS = "pyspark.sql.streaming.python_streaming_source_runner"
"""Spark's module that runs as the reader process's main one."""
_LOOK_S = 0.2
"""Between two looks for the JVM."""


class SqsFifoPartition(InputPartition):
    """One partition's share of a plan, pickled to the executors."""

    def __init__(self, plan: PartitionPlan) -> None:
        super().__init__(plan)


class SqsFifoStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads one FIFO queue as a stream. `read` runs on executors, everything else in the driver's reader process.

    An offset is an `Offset` as JSON.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = schema
        self._driver_or_none: Driver | None = None
        self._startless_or_none: StartlessDriver | None = None
        self._pools = Pools()

    @called_by_spark
    def initialOffset(self) -> dict[str, Any]:
        set_subject(self._options.queue_name)
        return self._startless.initial_offset().to_json()

    @called_by_spark
    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return the next epoch's offset, or `start`. Spark before 4.2 gives no arguments."""
        if start is None:
            set_subject(self._options.queue_name)
            return self._startless.latest_offset().to_json()
        last = self._offset(start)
        max_messages = limit.max_rows if ReadMaxRows is not None and isinstance(limit, ReadMaxRows) else None
        return self._driver.latest_offset(last, max_messages).to_json()

    @called_by_spark
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        plans = self._startless.plan(Offset.from_json(start), self._offset(end))
        return [SqsFifoPartition(plan) for plan in plans]

    @called_by_spark
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from sqs_fifo_spark.source.task.partition import read_partition

        fields = arrow_schema(self._columns)
        schema = pa.schema(list(fields.values()))
        context = TaskContext.get()
        plan = replace(partition.value, query=context.getLocalProperty("sql.streaming.queryId") if context else None)
        set_subject(self._options.queue_name, query=plan.query, epoch=plan.epoch, partition=plan.partition)
        for batch in read_partition(self._options, plan):
            yield pa.RecordBatch.from_arrays([batch.column(name) for name in fields], schema=schema)
        exempt_from_collection()

    @called_by_spark
    def commit(self, end: dict[str, Any]) -> None:
        self._startless.commit(self._offset(end))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_messages_per_trigger)

    @called_by_spark
    def prepareForTriggerAvailableNow(self) -> None:
        self._driver.prepare_available_now()

    @called_by_spark
    def reportLatestOffset(self) -> dict[str, Any]:
        return self._driver.report()

    def stop(self) -> None:
        """End the heartbeat. Nothing may depend on it: Spark 4.3.0 does not call it after AvailableNow."""
        if self._driver_or_none is not None:
            self._driver_or_none.stop()
        self._pools.close()

    def _offset(self, offset: dict[str, Any]) -> Offset:
        """Return Spark's offset; log lines name its epoch from now on."""
        known = Offset.from_json(offset)
        set_subject(self._options.queue_name, query=self._driver.query, epoch=known.epoch)
        return known

    @property
    def _startless(self) -> StartlessDriver:
        if self._startless_or_none is None:
            from sqs_fifo_spark.source.driver.startless import StartlessDriver

            self._startless_or_none = StartlessDriver(self._driver)
        return self._startless_or_none

    def _payload_deletes(self) -> PayloadDeletes:
        from sqs_fifo_spark.journal.location import journal_access
        from sqs_fifo_spark.source.payload_deletes import PayloadDeletes

        options = self._options
        if not options.delete_payloads:
            return PayloadDeletes(None)
        from sqs_fifo_spark.payloads.buckets import open_buckets

        return PayloadDeletes(open_buckets(journal_access(options)).delete, self._pools.make("payload-delete", 1))

    @property
    def _driver(self) -> Driver:
        if self._driver_or_none is None:
            from sqs_fifo_spark.journal.location import journal_access, open_store
            from sqs_fifo_spark.source.driver.driver import Driver
            from sqs_fifo_spark.source.queue import DRIVER_DELETES, Queue

            # A wrong one is reported before the first message is received. Not in the constructor: Spark would bury it.
            arrow_schema(self._columns)
            _let_ctrl_c_end_the_jvm_first()
            self._driver_or_none = Driver(
                self._options,
                queue=Queue(self._options, SYSTEM_CLOCK, self._pools.make, deletes=DRIVER_DELETES),
                store=lambda: open_store(self._options.journal_location, journal_access(self._options)),
                clock=SYSTEM_CLOCK,
                pool=self._pools.make,
                payload_deletes=self._payload_deletes(),
            )
        return self._driver_or_none


def _let_ctrl_c_end_the_jvm_first() -> None:
    """Go on at SIGINT for as long as the JVM does: it is for the application to end the query.

    Below spark-submit, Ctrl-C goes to the reader process, too. Below Python it does not: Spark has the JVM ignore it
    there, and the reader process inherits that. A JVM that ends leaves no poll behind, which would hide messages.
    """
    is_ours = getattr(sys.modules["__main__"].__spec__, "name", None) == _READER_PROCESS
    if not is_ours or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return
    jvm, has_come = os.getppid(), threading.Event()

    def end_with_jvm() -> None:
        has_come.wait()
        while os.getppid() == jvm:
            SYSTEM_CLOCK.sleep(_LOOK_S)
        os._exit(1)

    threading.Thread(target=end_with_jvm, name="end-with-jvm", daemon=True).start()
    signal.signal(signal.SIGINT, lambda *_: has_come.set())
