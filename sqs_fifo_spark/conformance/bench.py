"""The bench of a case: fresh queues, helpers to send, receive and delete, and a count of calls.

A message is known by its mark, a short text such as "1" that the case chose; bodies and deduplication ids are made of
it. Messages of a receive are compared by their marks, and so are they shown.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from botocore import xform_name
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest
from botocore.exceptions import ClientError

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.conformance.case import SETTLE_S, Differs, NotDecided, NotSupported
from sqs_fifo_spark.conformance.refusals import code_of, failures, is_broken, require

Message = dict[str, Any]

DELETES = 4
"""Calls beside those of a case, to delete its queues. None makes more than three, of which one may have to be found."""
_TRIES = 5
_LONGEST_NAME = 80


@dataclass(eq=False)
class Bench:
    """The queues and calls of one case. Several threads may call.

    `limit` is the most calls that the case may make, beside those that delete its queues. Once `stopped` is set, the
    next call or wait ends the case.
    """

    client: Any
    prefix: str
    clock: Clock
    limit: int
    is_aws: bool
    stopped: threading.Event
    calls: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _urls: dict[str, str] = field(default_factory=dict)

    def call(self, action: str, **request: Any) -> dict[str, Any]:
        """Make a call of SQS. Raises ClientError, and NotDecided once the case has made all the calls that it may."""
        self._count()
        answer: dict[str, Any] = getattr(self.client, xform_name(action))(**request)
        return answer

    def signed(self, **form: str) -> AWSPreparedRequest:
        """Return the request of a call in the query protocol; it may be posted several times."""
        url = self.client.meta.endpoint_url.rstrip("/") + "/"
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        request = AWSRequest("POST", url, headers=kind, data=urlencode(form))
        SigV4Auth(self.client._request_signer._credentials, "sqs", self.client.meta.region_name).add_auth(request)
        return request.prepare()

    def post(self, request: AWSPreparedRequest) -> tuple[int, str]:
        """Make that call; return the status and the text of its answer."""
        self._count()
        answer = self.client._endpoint.http_session.send(request)  # with its proxies and certificates
        return answer.status_code, answer.text

    def name(self, suffix: str = ".fifo") -> str:
        """Return the name of no queue that there is."""
        return f"{self.prefix[: _LONGEST_NAME - 18]}-{uuid.uuid4().hex[:12]}{suffix}"

    def queue(self, *marks: str, name: str | None = None, **attributes: str) -> Queue:
        """Make a FIFO queue, and send these messages to it, several in one batch; it is deleted at the end."""
        given = {"FifoQueue": "true", **attributes}
        name = name or self.name()
        try:
            answer = self.call("CreateQueue", QueueName=name, Attributes=given)
        except ClientError as error:
            if is_broken(error) or error.response.get("ResponseMetadata", {}).get("RetryAttempts"):
                self._urls.setdefault(name, "")  # this try, or one before it, may have made it
            if code_of(error) == "InvalidAttributeName":
                raise NotSupported(f"a queue with {', '.join(attributes)}") from None
            raise
        except Exception:  # of an answer that was lost: the queue may be there
            self._urls.setdefault(name, "")
            raise
        self._urls[name] = answer["QueueUrl"]
        if self.is_aws:
            self.sleep(1)  # which the API text asks for
        queue = Queue(self, answer["QueueUrl"])
        if marks:
            queue.send_all(*marks) if len(marks) > 1 else queue.send(*marks)
        return queue

    def received(self) -> tuple[Queue, Message]:
        """Make a queue with one message, and receive it."""
        queue = self.queue("1")
        return queue, queue.take_one("1")

    def queue_of_1_mib(self) -> Queue:
        """Make a queue that takes messages of 1 MiB. Raises NotSupported where the older limit of 256 KiB holds."""
        queue = self.queue()
        if queue.attribute("MaximumMessageSize") == "262144":
            raise NotSupported("more than 262,144 bytes")
        return queue

    def queue_with_dead_letters(self, receives: int = 1, **attributes: str) -> tuple[Queue, Queue]:
        """Make a queue, and the one to which a message goes that was received so often."""
        dead = self.queue()
        policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": receives})
        return self.queue(**{"RedrivePolicy": policy, **attributes}), dead

    def close(self) -> list[str]:
        """Delete the queues that were made, and return the names of those that could not be deleted.

        Tries again as long as the calls suffice that the case has left.
        """
        left, calls = list(self._urls), self.limit - self.calls + DELETES
        for _ in range(_TRIES):
            calls -= sum(1 if self._urls[name] else 2 for name in left)
            if not left or calls < 0:
                break
            left = [name for name in left if not self._is_deleted(name)]
        return left

    def _is_deleted(self, name: str) -> bool:
        try:
            url = self._urls[name] or self.client.get_queue_url(QueueName=name)["QueueUrl"]
            self.client.delete_queue(QueueUrl=url)
        except Exception as error:  # of whatever kind: what is left is named at the end
            return "NonExistentQueue" in code_of(error)
        return True

    def sleep(self, seconds: float) -> None:
        """Wait. Raises NotDecided when the run is broken off."""
        if self.clock.wait(self.stopped, seconds):
            raise NotDecided("the run was broken off")

    def _count(self) -> None:
        if self.stopped.is_set():
            raise NotDecided("the run was broken off")
        with self._lock:
            if self.calls >= self.limit:
                raise NotDecided(f"{self.limit} calls did not decide it")
            self.calls += 1

    def settle(self) -> None:
        """Wait as long as SQS may take to purge a queue, or to put an attribute in force."""
        if self.is_aws:
            self.sleep(SETTLE_S)

    def eventually(self, expected: object, look: Callable[[], object]) -> None:
        """Look until it is as expected, on AWS for up to two minutes. Raises Differs when it is still not so."""
        deadline = self.clock.monotonic() + (120 if self.is_aws else 10)
        while (seen := look()) != expected:
            if self.clock.monotonic() > deadline:
                raise Differs(str(expected), str(seen))
            self.sleep(4 if self.is_aws else 1)


class Queue:
    """A queue that the case made."""

    def __init__(self, bench: Bench, url: str) -> None:
        self.bench = bench
        self.url = url
        self._salt = uuid.uuid4().hex

    def call(self, action: str, **request: Any) -> dict[str, Any]:
        return self.bench.call(action, QueueUrl=self.url, **request)

    @cached_property
    def arn(self) -> str:
        return self.attribute("QueueArn")

    def attribute(self, name: str) -> str:
        return str(self.call("GetQueueAttributes", AttributeNames=[name]).get("Attributes", {}).get(name))

    def set(self, **attributes: str) -> None:
        self.call("SetQueueAttributes", Attributes=attributes)

    # Sending

    def draft(self, mark: str, group: str = "g", **given: Any) -> dict[str, Any]:
        """Return the fields of a send, less those given as None."""
        made = {"MessageBody": mark, "MessageGroupId": group, "MessageDeduplicationId": f"{mark[:60]}-{self._salt}"}
        return {name: value for name, value in {**made, **given}.items() if value is not None}

    def send(self, mark: str, group: str = "g", **given: Any) -> dict[str, Any]:
        return self.call("SendMessage", **self.draft(mark, group, **given))

    def send_all(self, *marks: str, group: str = "g") -> dict[str, Any]:
        """Send the messages in one batch. Raises Differs unless all are taken."""
        answer = self.send_batch(*(self.draft(mark, group) for mark in marks))
        require({}, failures(answer), "failed")
        return answer

    def send_batch(self, *drafts: dict[str, Any]) -> dict[str, Any]:
        return self.call("SendMessageBatch", Entries=[{"Id": str(at), **draft} for at, draft in enumerate(drafts)])

    # Receiving

    def receive(
        self, most: int | None = 10, *, timeout_s: int | None = 60, wait_s: int | None = 1, **given: Any
    ) -> list[Message]:
        """Receive once; what is None is left out. The wait makes SQS ask all its servers, and ends with a message."""
        request = {
            "MaxNumberOfMessages": most,
            "VisibilityTimeout": timeout_s,
            "WaitTimeSeconds": wait_s,
            "MessageSystemAttributeNames": ["All"],
            **given,
        }
        asked = {name: value for name, value in request.items() if value is not None}
        found: list[Message] = self.call("ReceiveMessage", **asked).get("Messages", [])
        return found

    def take(self, *marks: str, **given: Any) -> list[Message]:
        """Receive exactly these messages, in this order, in one receive.

        SQS may return fewer than it could: then they are released, and it is tried again. Raises Differs when others
        come, or none; NotDecided when only the first of them come each time.
        """
        expected = marks_text(marks)
        got: list[Message] = []
        for _ in range(_TRIES):
            got = self.receive(**given)
            found = marks_of(got)
            if found == list(marks):
                return got
            if found != list(marks[: len(found)]):
                raise Differs(expected, marks_text(found))
            self.release(*got)
        if not got:
            raise Differs(expected, "nothing")
        raise NotDecided(f"{expected} in one receive did not come in {_TRIES} receives, only {marks_text(found)}")

    def take_one(self, mark: str, **given: Any) -> Message:
        return self.take(mark, **given)[0]

    def collect(self, count: int, **given: Any) -> list[Message]:
        """Receive until so many messages have come, or twice in a row none."""
        found: list[Message] = []
        empty = 0
        while len(found) < count and empty < 2:
            got = self.receive(**given)
            empty = 0 if got else empty + 1
            found += got
        return found

    def drain(self, count: int) -> str:
        """Receive and delete until so many messages have come, or twice in a row none; return their marks in order."""
        seen: list[str] = []
        while len(seen) < count and (got := self.collect(1)):
            seen += marks_of(got)
            for message in got:
                self.delete(message)
        return marks_text(seen)

    def expect_nothing(self, why: str, **given: Any) -> None:
        """Raise Differs when a message comes."""
        got = self.receive(**given)
        if got:
            raise Differs(f"nothing, {why}", marks_text(marks_of(got)))

    # Receipts

    def delete(self, message: Message) -> None:
        self.call("DeleteMessage", ReceiptHandle=message["ReceiptHandle"])

    def delete_batch(self, messages: Sequence[Message]) -> dict[str, Any]:
        entries = [{"Id": str(at), "ReceiptHandle": each["ReceiptHandle"]} for at, each in enumerate(messages)]
        return self.call("DeleteMessageBatch", Entries=entries)

    def hide(self, message: Message, seconds: int) -> None:
        """Change the message's visibility timeout; 0 releases it."""
        self.call("ChangeMessageVisibility", ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds)

    def release(self, *messages: Message) -> None:
        """Show the messages again, the last one first, so that the group's order holds meanwhile."""
        for message in reversed(messages):
            self.hide(message, 0)

    def let_lapse(self, *messages: Message) -> None:
        """Let the visibility timeouts of these lapse."""
        for message in messages:
            self.hide(message, 1)
        self.bench.sleep(3 if self.bench.is_aws else 1.5)


def marks_of(messages: Sequence[Message]) -> list[str]:
    return [str(message.get("Body")) for message in messages]


def marks_text(marks: Sequence[str]) -> str:
    """Return the marks as a verdict shows them; a body that is no mark is not shown."""
    return ", ".join(mark if len(mark) <= 12 else f"a body of {len(mark)} characters" for mark in marks) or "nothing"


def system(message: Message, name: str) -> str:
    """Return a system attribute of a received message. Raises Differs when it is not there."""
    value = message.get("Attributes", {}).get(name)
    if value is None:
        raise Differs(f"the system attribute {name}", "none")
    return str(value)
