"""A backlog in a local queue, made in process: nothing of it goes over HTTP."""

from __future__ import annotations

import random
from functools import partial

from sqs_fifo_spark.local import FifoModel, LocalQueueServer

_AT_ONCE = 5_000


def preload(server: LocalQueueServer, url: str, count: int, size: int, groups: int) -> None:
    """Send `count` messages of `size` bytes that hardly compress, to `groups` groups in turn."""
    noise = random.Random(0).randbytes(size).hex()

    def send(first: int, model: FifoModel) -> None:
        for number in range(first, min(count, first + _AT_ONCE)):
            body = f"{number} {noise[number % size :]}{noise}"[:size]
            request = {
                "QueueUrl": url,
                "MessageBody": body,
                "MessageGroupId": f"group-{number % groups}",
                "MessageDeduplicationId": str(number),
            }
            model.call("SendMessage", request)

    for first in range(0, count, _AT_ONCE):
        server.run(partial(send, first))
