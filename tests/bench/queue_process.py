"""The strict local queue in a process of its own: filling it, and what was asked of it."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

LOCAL_QUEUE = ("-m", "sqs_fifo_spark", "local-queue", "--port", "0")
_NOISE = random.Random(0).randbytes(1 << 19).hex()
_NUMBER_DIGITS = 12
_HIDDEN_S = 900
_RECEIVE = {"MaxNumberOfMessages": 10, "VisibilityTimeout": 600, "MessageSystemAttributeNames": ["All"]}


MessageOf = Callable[[int], dict[str, Any]]


def body_of(number: int, size: int) -> str:
    """Return a body of `size` bytes that begins with `number` and hardly compresses."""
    start = number * 37 % 4096
    return f"{number:0{_NUMBER_DIGITS}d} {_NOISE[start : start + size]}"[:size]


class QueueProcess:
    """A client of the local queue that costs little. What it asks itself does not stand in `counts`."""

    def __init__(self, endpoint_url: str, pid: int) -> None:
        self.endpoint_url = endpoint_url
        self.pid = pid
        self._connection = http.client.HTTPConnection(urlsplit(endpoint_url).netloc)
        self._asked: Counter[str] = Counter()
        self._numbers = itertools.count(1)
        self._sent = itertools.count(1)

    def call(self, action: str, **request: Any) -> dict[str, Any]:
        """Ask the queue; RuntimeError if it refuses, wholly or in part."""
        headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
        self._asked[action] += 1
        answer = self._exchange("POST", "/", request, headers)
        if answer.get("Failed"):
            raise RuntimeError(f"{action} failed: {answer}")
        return answer

    def create(self) -> str:
        """Return the URL of a new queue, that hides what is sent until `release`."""
        attributes = {"FifoQueue": "true", "DelaySeconds": str(_HIDDEN_S)}
        name = f"bench-{next(self._numbers)}.fifo"
        url: str = self.call("CreateQueue", QueueName=name, Attributes=attributes)["QueueUrl"]
        return url

    def release(self, url: str) -> None:
        """Show all that was sent at once. On a FIFO queue, a changed delay holds for what is there already."""
        self.call("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "0"})

    def hide(self, url: str) -> None:
        """Hide what is sent from now on until `release`."""
        self.call("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": str(_HIDDEN_S)})

    def delete(self, url: str) -> None:
        self.call("DeleteQueue", QueueUrl=url)

    def fill(self, url: str, messages: int, groups: int, size: int, message_of: MessageOf | None = None) -> None:
        """Send messages of `size` bytes to `groups` groups in turn, each with what `message_of` its number returns."""
        for first in range(0, messages, 10):
            entries = [
                {
                    "Id": str(number),
                    **(message_of(number) if message_of else {"MessageBody": body_of(number, size)}),
                    "MessageGroupId": f"g{number % groups}",
                    "MessageDeduplicationId": f"d{next(self._sent)}",
                }
                for number in range(first, min(first + 10, messages))
            ]
            self.call("SendMessageBatch", QueueUrl=url, Entries=entries)

    def depth(self, url: str) -> int:
        """Return how many messages the queue holds, in flight ones included."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        attributes = self.call("GetQueueAttributes", QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(int(attributes[name]) for name in names)

    def take_all(self, url: str) -> Iterator[dict[str, Any]]:
        """Yield and delete all messages that are visible, each group in order."""
        while received := self.call("ReceiveMessage", QueueUrl=url, **_RECEIVE).get("Messages"):
            yield from received
            entries = [
                {"Id": str(index), "ReceiptHandle": each["ReceiptHandle"]} for index, each in enumerate(received)
            ]
            self.call("DeleteMessageBatch", QueueUrl=url, Entries=entries)

    def delay(self, delay_s: float) -> None:
        """Let every request wait so long before it is dealt with, from now on."""
        self._exchange("POST", "/_local/faults", {"delay_s": delay_s}, {})

    def counts(self) -> Counter[str]:
        """Return how many requests others have made so far, by action."""
        asked = Counter(self._exchange("GET", "/_local/requests", {}, {}))
        asked.subtract(self._asked)
        return +asked

    def _exchange(self, method: str, path: str, content: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        self._connection.request(method, path, json.dumps(content), headers)
        response = self._connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(f"{path} {headers.get('X-Amz-Target', '')}: {response.status} {answer}")
        return answer


@contextmanager
def started(command: Sequence[str], **given: Any) -> Iterator[tuple[str, int]]:
    """Run a server, and end it with the block. Yield the last word of its first line, an endpoint, and its process."""
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True, **given) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split()[-1], server.pid
        finally:
            server.terminate()


@contextmanager
def queue_process() -> Iterator[QueueProcess]:
    """Run a local queue, and end it with the block."""
    with started(LOCAL_QUEUE) as (endpoint_url, pid):
        yield QueueProcess(endpoint_url, pid)
