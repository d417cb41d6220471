"""Spark Structured Streaming for Amazon SQS FIFO queues: `spark.readStream.format("sqsfifo")`.

Once the package is installed, Spark finds the format without registration. `SqsFifoDataSource` is for those who
register it themselves; the errors are what a query can stop with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqs_fifo_spark.errors import (
    AccessDeniedError,
    DataLossError,
    EpochSettledError,
    FencedError,
    JournalCorruptError,
    JournalMismatchError,
    JournalUnavailableError,
    NotFifoQueueError,
    OptionError,
    QueueNotFoundError,
    QueueRequestError,
    SchemaError,
    SqsFifoError,
    TransientQueueError,
    UnsupportedReadError,
)

if TYPE_CHECKING:
    from sqs_fifo_spark.datasource import SqsFifoDataSource

__version__ = "0.1.0"
__all__ = [
    "AccessDeniedError",
    "DataLossError",
    "EpochSettledError",
    "FencedError",
    "JournalCorruptError",
    "JournalMismatchError",
    "JournalUnavailableError",
    "NotFifoQueueError",
    "OptionError",
    "QueueNotFoundError",
    "QueueRequestError",
    "SchemaError",
    "SqsFifoDataSource",
    "SqsFifoError",
    "TransientQueueError",
    "UnsupportedReadError",
]


def __getattr__(name: str) -> Any:
    """Import the data source only when it is asked for: the local queue needs no Spark."""
    if name == "SqsFifoDataSource":
        from sqs_fifo_spark.datasource import SqsFifoDataSource

        return SqsFifoDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
