"""A queue whose holds a lease renews on a hand-turned clock."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from sqs_fifo_spark.local import FifoModel
from sqs_fifo_spark.options import parse_source_options
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.lease import Lease
from sqs_fifo_spark.source.message import Receipt, from_sqs
from sqs_fifo_spark.source.queue import Queue
from tests.manual_clock import ManualClock

VISIBILITY_S = 30
HEARTBEAT_S = 10.0
OPTIONS = parse_source_options({"queueUrl": "http://localhost:1/0/q.fifo", "journalLocation": "/j"})


def is_held(lease: Lease, receipt: Receipt) -> bool:
    return not lease.lapsed_receipts([receipt])


class ModelQueue(Queue):
    """A queue whose `extend` is made of the strict model; `answer` may say something else than the model did."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(OPTIONS, clock)
        self.clock = clock
        self.model = FifoModel(clock, random.Random(0))
        created = self.model.call("CreateQueue", {"QueueName": "q.fifo", "Attributes": {"FifoQueue": "true"}})
        self.url = created["QueueUrl"]
        self.calls: list[tuple[list[Receipt], int, float]] = []
        self.answer: Callable[[Receipt, Outcome], Outcome] = lambda receipt, outcome: outcome
        self.before: Callable[[], None] = lambda: None
        self.sent = 0

    def take(self, *groups: str, receive: int = 0) -> list[Receipt]:
        """Send one message for each group and receive them all in one receive."""
        for group in groups:
            self.sent += 1
            request = {"MessageBody": "b", "MessageGroupId": group, "MessageDeduplicationId": str(self.sent)}
            self.model.call("SendMessage", {"QueueUrl": self.url, **request})
        request_: dict[str, Any] = {
            "QueueUrl": self.url,
            "MaxNumberOfMessages": 10,
            "VisibilityTimeout": VISIBILITY_S,
            "MessageSystemAttributeNames": ["All"],
        }
        found = self.model.call("ReceiveMessage", request_).get("Messages", [])
        return [from_sqs(each, receive=receive, received_at=self.clock.now()).receipt for each in found]

    def held_by(self, lease: Lease, *groups: str, may_be_deleted: bool = False) -> list[Receipt]:
        """Take one message of each group, and let the lease hold them from now on."""
        held = self.take(*groups)
        lease.hold(held, since=self.clock.monotonic(), may_be_deleted=may_be_deleted)
        return held

    def extend(
        self,
        receipts: Sequence[Receipt],
        visibility_timeout_s: int,
        *,
        budget_s: float = 30.0,
        answer_s: float | None = None,
    ) -> list[Outcome]:
        self.calls.append((list(receipts), visibility_timeout_s, answer_s or budget_s))
        self.before()
        outcomes = []
        for receipt in receipts:
            entry = {"Id": "0", "ReceiptHandle": receipt.receipt_handle, "VisibilityTimeout": visibility_timeout_s}
            if self.answer(receipt, Outcome.DONE) is Outcome.FAILED:
                outcomes.append(Outcome.FAILED)
                continue
            done = self.model.call("ChangeMessageVisibilityBatch", {"QueueUrl": self.url, "Entries": [entry]})
            outcomes.append(self.answer(receipt, Outcome.DONE if done["Successful"] else Outcome.LOST))
        return outcomes

    def in_flight(self) -> int:
        request = {"QueueUrl": self.url, "AttributeNames": ["All"]}
        shown = self.model.call("GetQueueAttributes", request)["Attributes"]
        return int(shown["ApproximateNumberOfMessagesNotVisible"])

    def let_go(self, receipt: Receipt) -> None:
        entry = {"ReceiptHandle": receipt.receipt_handle, "VisibilityTimeout": 0}
        self.model.call("ChangeMessageVisibility", {"QueueUrl": self.url, **entry})
