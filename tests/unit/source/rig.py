"""A queue on a server that fails on purpose, and the source's calls on it."""

from __future__ import annotations

import itertools
from typing import Any

import boto3

from sqs_fifo_spark.aws.calls import CALL_BUDGET_S
from sqs_fifo_spark.clock import SystemClock
from sqs_fifo_spark.local import FifoModel, LocalQueueServer
from sqs_fifo_spark.options import SourceOptions, parse_source_options
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.message import Message, Receipt
from sqs_fifo_spark.source.queue import Queue
from tests.manual_clock import ManualClock


class QuickClock(SystemClock):
    """The machine's time, but pauses between retries take none: they only move the monotonic reading."""

    def __init__(self) -> None:
        self.slept_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.slept_s

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds


class Rig:
    """One fresh queue on a server, `Queue` on it, and a plain client."""

    numbers = itertools.count(1)

    def __init__(self, server: LocalQueueServer, clock: ManualClock) -> None:
        self.server = server
        self.server_clock = clock
        self.clock = QuickClock()
        self.client = boto3.client("sqs", endpoint_url=server.endpoint_url)
        self.url: str = self.client.create_queue(
            QueueName=f"q{next(self.numbers)}.fifo", Attributes={"FifoQueue": "true"}
        )["QueueUrl"]
        self.queue = self.make()
        self.sent = 0

    def make(self, **options: str) -> Queue:
        return Queue(self.options(**options), self.clock)

    def options(self, **options: str) -> SourceOptions:
        return parse_source_options({"queueUrl": self.url, "journalLocation": "/journal", **options})

    def send(self, *bodies: str, **request: Any) -> None:
        for body in bodies:
            self.sent += 1
            self.client.send_message(
                QueueUrl=self.url,
                MessageBody=body,
                MessageGroupId=body.rstrip("0123456789"),
                MessageDeduplicationId=str(self.sent),
                **request,
            )

    def delete(self, receipts: list[Receipt], *, budget_s: float = CALL_BUDGET_S) -> list[Outcome]:
        """Delete up to ten messages and return the outcomes, which stand in the order of the receipts."""
        pairs = self.queue.delete(receipts, budget_s=budget_s)
        assert [receipt for receipt, _ in pairs] == receipts
        return [outcome for _, outcome in pairs]

    def receive_all(self) -> list[Message]:
        """Receive until two answers in a row are empty."""
        received: list[Message] = []
        empty = 0
        while True:
            answer = self.queue.receive(10)
            received += answer
            empty = 0 if answer else empty + 1
            if empty == 2:
                return received

    def depth(self) -> tuple[int, int]:
        def ask(model: FifoModel) -> Any:
            return model.call("GetQueueAttributes", {"QueueUrl": self.url, "AttributeNames": ["All"]})["Attributes"]

        shown = self.server.run(ask)
        return int(shown["ApproximateNumberOfMessages"]), int(shown["ApproximateNumberOfMessagesNotVisible"])
