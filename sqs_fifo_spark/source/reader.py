"""Spark's stream reader over `Driver` and `partition`: each of Spark's calls, and the side on which it runs.

Spark builds a reader in several processes for one query, to use one and to pickle another, so building one does
nothing, and imports neither side. Only the reader process beside the driver ever makes a `Driver`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sqs_fifo_spark.boundary import called_by_spark
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.columns import QUEUE_URL
from sqs_fifo_spark.logs import set_subject
from sqs_fifo_spark.options import SourceOptions, parse_queue
from sqs_fifo_spark.schema import arrow_schema
from sqs_fifo_spark.source.message import repeated
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.offsets import Offsets
from sqs_fifo_spark.source.pool import Pools
from sqs_fifo_spark.worker import exempt_from_collection

if TYPE_CHECKING:
    from sqs_fifo_spark.source.driver.startless import StartlessDriver
    from sqs_fifo_spark.source.driver.union import QueueUnion
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

    def __init__(self, plan: PartitionPlan, url: str = "", sharer: int = 0, sharers: int = 1) -> None:
        """`url` is one of several queues', whose `sharers` tasks share `maxCallsPerSecond`; `sharer` is its number."""
        super().__init__(plan)
        self.url = url
        self.sharer = sharer
        self.sharers = sharers


class SqsFifoStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads FIFO queues as a stream. `read` runs on executors, everything else in the driver's reader process.

    An offset is an `Offset` as JSON; of a source over several queues, it is `Offsets`.
    """

    def __init__(self, options: SourceOptions, schema: StructType, given: Mapping[str, str] | None = None) -> None:
        """`given` are the options as the user gave them, of a source over several queues."""
        self._options = options
        self._columns = schema
        self._given = given
        self._source_or_none: StartlessDriver | QueueUnion | None = None
        self._pools = Pools()

    @called_by_spark
    def initialOffset(self) -> dict[str, Any]:
        set_subject(self._options.queue_name)
        return _to_json(self._source.initial_offset())

    @called_by_spark
    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return the next epoch's offset, or `start`. Spark before 4.2 gives no arguments."""
        if start is None:
            set_subject(self._options.queue_name)
            return _to_json(self._source.latest_offset())
        max_messages = limit.max_rows if ReadMaxRows is not None and isinstance(limit, ReadMaxRows) else None
        return _to_json(self._source.latest_offset(self._offset(start), max_messages))

    @called_by_spark
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if self._given is None:
            plans = self._source.plan(Offset.from_json(start), self._offset(end))
            return [SqsFifoPartition(plan) for plan in plans]
        plans = self._source.plan(Offsets.from_json(start), self._offset(end))
        return [SqsFifoPartition(each.plan, each.url, place, len(plans)) for place, each in enumerate(plans)]

    @called_by_spark
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from sqs_fifo_spark.source.task.partition import read_partition

        fields = arrow_schema(self._columns)
        schema = pa.schema(list(fields.values()))
        context = TaskContext.get()
        plan = replace(partition.value, query=context.getLocalProperty("sql.streaming.queryId") if context else None)
        options, sharers = self._options, None
        if self._given is not None:
            of_union = cast("SqsFifoPartition", partition)
            options, sharers = parse_queue(self._given, of_union.url), (of_union.sharer, of_union.sharers)
        set_subject(options.queue_name, query=plan.query, epoch=plan.epoch, partition=plan.partition)
        for batch in read_partition(options, plan, one_of=sharers):
            arrays = [
                repeated(options.queue_url, batch.num_rows) if name == QUEUE_URL.name else batch.column(name)
                for name in fields
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        exempt_from_collection()

    @called_by_spark
    def commit(self, end: dict[str, Any]) -> None:
        self._source.commit(self._offset(end))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_messages_per_trigger)

    @called_by_spark
    def prepareForTriggerAvailableNow(self) -> None:
        self._source.prepare_available_now()

    @called_by_spark
    def reportLatestOffset(self) -> dict[str, Any]:
        figures: dict[str, Any] = self._source.report()
        return figures

    def stop(self) -> None:
        """End the heartbeat. Nothing may depend on it: Spark 4.3.0 does not call it after AvailableNow."""
        if self._source_or_none is not None:
            self._source_or_none.stop()
        self._pools.close()

    def _offset(self, offset: dict[str, Any]) -> Any:
        """Return Spark's offset; of one queue, log lines name its epoch from now on."""
        if self._given is not None:
            return Offsets.from_json(offset)
        known = Offset.from_json(offset)
        set_subject(self._options.queue_name, query=self._source.query, epoch=known.epoch)
        return known

    @property
    def _source(self) -> Any:
        """The `StartlessDriver` of one queue, or the `QueueUnion` of several: they have the same methods."""
        if self._source_or_none is None:
            from sqs_fifo_spark.source.driver import assembly

            # A wrong one is reported before the first message is received. Not in the constructor: Spark would bury it.
            arrow_schema(self._columns)
            _let_ctrl_c_end_the_jvm_first()
            options = self._options
            if self._given is None:
                self._source_or_none = assembly.driver_of_one(options, self._pools.make)
            else:
                tells_start = ReadMaxRows is not None
                self._source_or_none = assembly.union_of_several(options, self._given, tells_start=tells_start)
        return self._source_or_none


def _to_json(offset: Offset | Offsets) -> dict[str, Any]:
    return offset.to_json()


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
