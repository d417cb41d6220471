"""A queue of the strict model, called without HTTP, and a clock to turn."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from sqs_fifo_spark.local import FifoModel, SqsError
from tests.manual_clock import ManualClock

ARN = "arn:aws:sqs:us-east-1:000000000000:"


class ModelQueue:
    """One queue of a model; `another` makes more of the same one. What is None in a request is left out."""

    def __init__(self, model: FifoModel, clock: ManualClock, name: str = "orders.fifo", **attributes: str) -> None:
        self.model = model
        self.clock = clock
        self.name = name
        self.arn = ARN + name
        given = {"FifoQueue": "true", **attributes} if name.endswith(".fifo") else attributes
        self.url = model.call("CreateQueue", {"QueueName": name, "Attributes": given})["QueueUrl"]
        self._sent = 0

    def another(self, name: str, **attributes: str) -> ModelQueue:
        return ModelQueue(self.model, self.clock, name, **attributes)

    def source(self, name: str, receives: int) -> ModelQueue:
        """Another queue, that gives its messages up to this one after so many receives."""
        policy = {"deadLetterTargetArn": self.arn, "maxReceiveCount": receives}
        return self.another(name, RedrivePolicy=json.dumps(policy))

    def call(self, action: str, **request: Any) -> dict[str, Any]:
        given = {"QueueUrl": self.url, **request}
        return self.model.call(action, {name: value for name, value in given.items() if value is not None})

    def send(self, group: str = "g", body: str = "", **request: Any) -> dict[str, Any]:
        self._sent += 1
        return self.call("SendMessage", **{**a_message(body or self._sent, group, f"d{self._sent}"), **request})

    def send_many(self, group: str, *bodies: str) -> None:
        for body in bodies:
            self.send(group, body)

    def send_in_groups(self, *bodies: str) -> None:
        """Send each to the group that its first letter names."""
        for body in bodies:
            self.send(body[0], body)

    def receive(self, limit: int = 10, **request: Any) -> list[dict[str, Any]]:
        answer = self.call("ReceiveMessage", MaxNumberOfMessages=limit, MessageSystemAttributeNames=["All"], **request)
        found: list[dict[str, Any]] = answer.get("Messages", [])
        return found

    def bodies(self, limit: int = 10, **request: Any) -> list[str]:
        return [message["Body"] for message in self.receive(limit, **request)]

    def held(self) -> list[str]:
        """Return the bodies of all that is there, received or not."""
        return [message.draft.body for message in self.model.messages(self.name)]

    def hide(self, message: dict[str, Any], timeout_s: int) -> None:
        self.call("ChangeMessageVisibility", ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=timeout_s)

    def delete(self, message: dict[str, Any]) -> None:
        self.call("DeleteMessage", ReceiptHandle=message["ReceiptHandle"])

    def set(self, **attributes: str) -> None:
        self.call("SetQueueAttributes", Attributes=attributes)

    def attributes(self) -> dict[str, str]:
        shown: dict[str, str] = self.call("GetQueueAttributes", AttributeNames=["All"])["Attributes"]
        return shown


def a_message(body: object = "b", group: str = "g", deduplication_id: str = "d") -> dict[str, Any]:
    """Return the parameters of a message, for a call or for an entry of one."""
    return {"MessageBody": str(body), "MessageGroupId": group, "MessageDeduplicationId": deduplication_id}


def model_queue(seed: int = 7, **limits: Any) -> ModelQueue:
    """Return a queue of a model of its own."""
    clock = ManualClock()
    return ModelQueue(FifoModel(clock, random.Random(seed), **limits), clock)


def redriven(receives: int) -> tuple[ModelQueue, ModelQueue]:
    """Return a queue, and the one that it gives its messages up to after so many receives."""
    dead = model_queue().another("dead.fifo")
    return dead.source("q.fifo", receives), dead


def refused(call: Callable[..., object], *given: object, **named: object) -> SqsError:
    """Return the error of a call that must fail."""
    with pytest.raises(SqsError) as caught:
        call(*given, **named)
    return caught.value


def failed(response: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Return id, code and fault of each entry that failed in a batch."""
    return [(each["Id"], each["Code"], each["SenderFault"]) for each in response["Failed"]]
