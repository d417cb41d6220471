"""A bare boto3 loop in a process of its own, as a reader or as a sender."""

from __future__ import annotations

import json
import time
from typing import Any

import boto3

from tests.bench.queue_process import body_of
from tests.bench.worker import Work, serve

RECEIVE = {
    "MaxNumberOfMessages": 10,
    "VisibilityTimeout": 120,
    "MessageSystemAttributeNames": ["All"],
    "MessageAttributeNames": ["All"],
}
NAMES = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
STAMP = 17
"""Digits of the time at which a message was sent, at the start of its body."""


class Taken:
    """Counts a reader's messages. Raises RuntimeError for one that comes twice or out of order."""

    def __init__(self) -> None:
        self.count = 0
        self.finished = time.monotonic()
        self.latencies: list[float] = []
        self._last: dict[str, int] = {}

    def add(self, messages: list[dict[str, Any]], *, stamped: bool = False) -> None:
        now = time.time()
        for message in messages:
            attributes = message["Attributes"]
            group, number = attributes["MessageGroupId"], int(attributes["SequenceNumber"])
            if number <= self._last.get(group, -1):
                raise RuntimeError(f"group {group} is not in order, or has a message twice")
            self._last[group] = number
            if stamped:
                self.latencies.append(now - float(message["Body"][:STAMP]))

    def deleted(self, count: int) -> None:
        self.count += count
        self.finished = time.monotonic()

    def result(self) -> dict[str, Any]:
        return {"count": self.count, "finished": self.finished, "latencies": self.latencies}


def drain(job: dict[str, Any]) -> Work:
    """Receive ten, put them into the journal if there is one, delete ten, until the queue is drained.

    It is, when a receive finds nothing, nothing is in flight, and nothing has come for `patience_s`.
    """
    sqs = boto3.client("sqs", endpoint_url=job["endpoint"], region_name="us-east-1")
    url, patience_s, journal = job["url"], job.get("patience_s", 0.0), job.get("journal")
    store = None
    if journal:
        from sqs_fifo_spark.journal.location import open_store

        store = open_store(journal)

    def work() -> dict[str, Any]:
        taken = Taken()
        while True:
            messages = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1, **RECEIVE).get("Messages")
            if messages:
                taken.add(messages, stamped=patience_s > 0)
                if store is not None:
                    store.put_if_absent(f"{taken.count}.json", json.dumps(messages).encode())
                entries = [{"Id": str(i), "ReceiptHandle": each["ReceiptHandle"]} for i, each in enumerate(messages)]
                answer = sqs.delete_message_batch(QueueUrl=url, Entries=entries)
                if answer.get("Failed"):
                    raise RuntimeError(f"a delete failed: {answer}")
                taken.deleted(len(messages))
            elif time.monotonic() - taken.finished >= patience_s:
                held = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=NAMES)["Attributes"]
                if not any(int(held[name]) for name in NAMES):
                    return taken.result()

    return work


def send(job: dict[str, Any]) -> Work:
    """Send numbered messages, ten in a call, to groups that no other worker sends to."""
    sqs = boto3.client("sqs", endpoint_url=job["endpoint"], region_name="us-east-1")

    def work() -> dict[str, Any]:
        for first in range(0, job["messages"], 10):
            numbers = range(first, min(first + 10, job["messages"]))
            entries = [
                {
                    "Id": str(number),
                    "MessageBody": body_of(number, job["size"]),
                    "MessageGroupId": f"g{job['worker']}-{number % job['groups']}",
                    "MessageDeduplicationId": f"d{job['worker']}-{number}",
                }
                for number in numbers
            ]
            answer = sqs.send_message_batch(QueueUrl=job["url"], Entries=entries)
            if answer.get("Failed"):
                raise RuntimeError(f"a send failed: {answer}")
        return {"count": job["messages"], "finished": time.monotonic()}

    return work


if __name__ == "__main__":
    serve(lambda job: {"drain": drain, "send": send}[job["task"]](job))
