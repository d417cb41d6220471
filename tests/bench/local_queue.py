"""`python -m tests.bench.local_queue`: how fast the local queue moves messages over HTTP.

Each cycle sends ten messages, receives ten and deletes ten, in three requests on one connection. Runs it on
an empty queue and on queues that hold 200,000 messages, in rounds that take turns, so that a busy machine
slows all of them alike.
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from sqs_fifo_spark.clock import SYSTEM_CLOCK

_BODY = "x" * 200
_ROUNDS = 4


class _Client:
    """As little client as possible, so that the figures are the server's."""

    def __init__(self, endpoint_url: str) -> None:
        where = urlsplit(endpoint_url)
        assert where.hostname is not None
        self._connection = http.client.HTTPConnection(where.hostname, where.port)

    def close(self) -> None:
        self._connection.close()

    def call(self, action: str, request: dict[str, Any]) -> dict[str, Any]:
        self._connection.request(
            "POST",
            "/",
            json.dumps(request),
            {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"},
        )
        response = self._connection.getresponse()
        content: dict[str, Any] = json.loads(response.read())
        if response.status != 200 or content.get("Failed"):
            raise RuntimeError(f"{action} failed: {content}")
        return content


class _Backlog:
    """A queue that holds `size` messages in `groups` groups (0: each message has its own)."""

    def __init__(self, client: _Client, name: str, size: int, groups: int) -> None:
        self.name = name
        self.size = size
        self._client = client
        self._groups = groups
        self._sent = 0
        self.moved = 0
        self.spent_s = 0.0
        self._url = client.call("CreateQueue", {"QueueName": f"{name}.fifo", "Attributes": {"FifoQueue": "true"}})[
            "QueueUrl"
        ]
        while self._sent < size:
            self._send()

    def cycle(self) -> None:
        """Move ten messages."""
        self._send()
        messages = self._client.call(
            "ReceiveMessage",
            {
                "QueueUrl": self._url,
                "MaxNumberOfMessages": 10,
                "VisibilityTimeout": 120,
                "MessageSystemAttributeNames": ["All"],
            },
        )["Messages"]
        entries = [{"Id": str(i), "ReceiptHandle": m["ReceiptHandle"]} for i, m in enumerate(messages)]
        self._client.call("DeleteMessageBatch", {"QueueUrl": self._url, "Entries": entries})
        self.moved += len(messages)

    def timed(self, cycles: int) -> None:
        """Move messages `cycles` times, and add up how long that took."""
        begun = SYSTEM_CLOCK.monotonic()
        for _ in range(cycles):
            self.cycle()
        self.spent_s += SYSTEM_CLOCK.monotonic() - begun

    def _send(self) -> None:
        entries = []
        for i in range(10):
            number = self._sent + i
            group = number % self._groups if self._groups else number
            entries.append(
                {
                    "Id": str(i),
                    "MessageBody": _BODY,
                    "MessageGroupId": f"g{group}",
                    "MessageDeduplicationId": str(number),
                }
            )
        self._client.call("SendMessageBatch", {"QueueUrl": self._url, "Entries": entries})
        self._sent += 10


def main() -> int:
    """Print messages per second for each queue, and return 0."""
    parser = argparse.ArgumentParser(description="measure the local queue, empty and full")
    parser.add_argument("--queued", type=int, default=200_000, help="messages in a full queue")
    parser.add_argument("--cycles", type=int, default=1_000, help="cycles of ten messages per queue")
    args = parser.parse_args()
    command = [sys.executable, "-m", "sqs_fifo_spark", "local-queue", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            with closing(_Client(server.stdout.readline().split()[-1])) as client:
                _measure(client, args.queued, args.cycles)
        finally:
            server.terminate()
    return 0


def _measure(client: _Client, queued: int, cycles: int) -> None:
    backlogs = [
        _Backlog(client, "empty", 0, 200),
        _Backlog(client, "one-group", queued, 1),
        _Backlog(client, "two-hundred-groups", queued, 200),
        _Backlog(client, "own-groups", queued, 0),
    ]
    for _ in range(_ROUNDS):
        for backlog in backlogs:
            backlog.timed(cycles // _ROUNDS)
    print(f"{'queue':<20} {'held':>8} {'messages/s':>11}")
    for backlog in backlogs:
        print(f"{backlog.name:<20} {backlog.size:>8} {backlog.moved / backlog.spent_s:>11.0f}")


if __name__ == "__main__":
    sys.exit(main())
