"""Spark Structured Streaming for Amazon SQS FIFO queues: `spark.readStream.format("sqsfifo")`, and `writeStream`.

`read_fifo` and `write_fifo` take the format's options as keywords. `register` makes the format known to a session in
which Spark does not find it by itself. `SqsFifoDataSource` is for applications that register it themselves;
`in_group_order` arranges rows for the sink; `once` writes each micro-batch once in `foreachBatch`; `show_progress`
shows how far a query is; `await_termination` lets Ctrl-C end it between two micro-batches; the errors are those with
which a query can stop.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sqs_fifo_spark.errors import (
    AccessDeniedError,
    BatchForgottenError,
    DataLossError,
    DisorderError,
    EpochSettledError,
    FencedError,
    JournalCorruptError,
    JournalMismatchError,
    JournalUnavailableError,
    MissingPackageError,
    NotFifoQueueError,
    OptionError,
    PayloadError,
    QueueNotFoundError,
    QueueRequestError,
    RowError,
    SchemaError,
    SqsFifoError,
    TransientQueueError,
    UnsupportedReadError,
    UnsupportedWriteError,
)

if TYPE_CHECKING:
    from sqs_fifo_spark.batch_ids import once
    from sqs_fifo_spark.datasource import SqsFifoDataSource
    from sqs_fifo_spark.frames import read_fifo, write_fifo
    from sqs_fifo_spark.ordering import in_group_order
    from sqs_fifo_spark.registration import register
    from sqs_fifo_spark.stopping import await_termination
    from sqs_fifo_spark.watch.bar import show_progress

__version__ = "0.1.0"
__all__ = [
    "AccessDeniedError",
    "BatchForgottenError",
    "DataLossError",
    "DisorderError",
    "EpochSettledError",
    "FencedError",
    "JournalCorruptError",
    "JournalMismatchError",
    "JournalUnavailableError",
    "MissingPackageError",
    "NotFifoQueueError",
    "OptionError",
    "PayloadError",
    "QueueNotFoundError",
    "QueueRequestError",
    "RowError",
    "SchemaError",
    "SqsFifoDataSource",
    "SqsFifoError",
    "TransientQueueError",
    "UnsupportedReadError",
    "UnsupportedWriteError",
    "await_termination",
    "in_group_order",
    "once",
    "read_fifo",
    "register",
    "show_progress",
    "write_fifo",
]


_MODULES = {
    "SqsFifoDataSource": "datasource",
    "await_termination": "stopping",
    "in_group_order": "ordering",
    "once": "batch_ids",
    "read_fifo": "frames",
    "register": "registration",
    "show_progress": "watch.bar",
    "write_fifo": "frames",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Import names when they are asked for: most need Spark, which the local queue does not.

    Raises MissingPackageError where there is no PySpark, or an older one than 4.0, for those that need it.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
