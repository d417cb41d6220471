"""The strict local queue: SQS FIFO semantics to test consumers against.

`FifoModel` needs nothing but the standard library. `LocalQueueServer` needs aiohttp, which the package's extra `local`
installs, and is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqs_fifo_spark.local.errors import SqsError
from sqs_fifo_spark.local.events import Event
from sqs_fifo_spark.local.faults import Faults
from sqs_fifo_spark.local.model import FifoModel

if TYPE_CHECKING:
    from sqs_fifo_spark.local.server import LocalQueueServer

__all__ = ["Event", "Faults", "FifoModel", "LocalQueueServer", "SqsError"]


def __getattr__(name: str) -> Any:
    if name == "LocalQueueServer":
        from sqs_fifo_spark.local.server import LocalQueueServer

        return LocalQueueServer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
