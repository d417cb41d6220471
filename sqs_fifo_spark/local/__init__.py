"""The strict local queue: SQS FIFO semantics to test consumers against.

`FifoModel` needs nothing but the standard library. `LocalQueueServer` needs aiohttp, which the package's extra `local`
installs. Each name is imported when it is first asked for: every run of pytest where this package is installed imports
this room, for its plugin.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqs_fifo_spark.local.errors import SqsError
    from sqs_fifo_spark.local.events import Event
    from sqs_fifo_spark.local.faults import Faults
    from sqs_fifo_spark.local.model import FifoModel
    from sqs_fifo_spark.local.planned import PlannedFault
    from sqs_fifo_spark.local.server import LocalQueueServer

__all__ = ["Event", "Faults", "FifoModel", "LocalQueueServer", "PlannedFault", "SqsError"]

_MODULES = {
    "Event": "events",
    "Faults": "faults",
    "FifoModel": "model",
    "LocalQueueServer": "server",
    "PlannedFault": "planned",
    "SqsError": "errors",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"sqs_fifo_spark.local.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
