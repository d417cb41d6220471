"""The names of queues, read from a URL, a name or an ARN; and names to give: of queues to make, and new ids."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from sqs_fifo_spark.local import validation
from sqs_fifo_spark.local.errors import SqsError


def of_queue(given: str) -> str:
    """The name of the queue whose name or URL this is, under whatever host the server was called."""
    return given.rstrip("/").rpartition("/")[2]


def of_new_queues(given: Iterable[str]) -> tuple[str, ...]:
    """The names of FIFO queues to make. Raises ValueError, with one line, for anything but such names."""
    if isinstance(given, str):
        raise ValueError(f"queues is {given!r}; it must be a list of names, such as ['bids.fifo']")
    found = tuple(given)
    for name in found:
        try:
            validation.queue_name(name, is_fifo=True)
        except SqsError as error:
            raise ValueError(f"queue {name!r} cannot be made: {error.message}") from None
    return found


def of_request(request: Mapping[str, Any]) -> str:
    """The name of the queue that `request` is about, which need not exist, or "*"."""
    if "QueueUrl" in request:
        return of_queue(str(request["QueueUrl"]))
    if "QueueName" in request:
        return str(request["QueueName"])
    return str(request.get("SourceArn", "*")).rpartition(":")[2]


def new_id(rng: random.Random) -> str:
    """An id that no message and no task has."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))
