"""Which queue is meant: by a URL, a name or an ARN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def of_queue(given: str) -> str:
    """The name of the queue whose name or URL this is, under whatever host the server was called."""
    return given.rstrip("/").rpartition("/")[2]


def of_request(request: Mapping[str, Any]) -> str:
    """The name of the queue that `request` is about, which need not exist, or "*"."""
    if "QueueUrl" in request:
        return of_queue(str(request["QueueUrl"]))
    if "QueueName" in request:
        return str(request["QueueName"])
    return str(request.get("SourceArn", "*")).rpartition(":")[2]
