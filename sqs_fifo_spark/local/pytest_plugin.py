"""Fixtures for tests that need FIFO queues: a server, one queue or several, and the environment to find them.

pytest finds this module by the package's entry point. It imports neither aiohttp nor boto3 before a test asks for them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from operator import methodcaller
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from sqs_fifo_spark.local.server import LocalQueueServer


class LocalQueue:
    """A FIFO queue that one test has for itself.

    `send`, `messages` and `history` go past HTTP: the server's faults do not touch them, and they are not counted as
    requests.
    """

    def __init__(self, server: LocalQueueServer, name: str) -> None:
        self.name = name
        self.endpoint_url = server.endpoint_url
        self.url = self.queue_url = server.queue_url(name)
        self._server = server

    def __repr__(self) -> str:
        return f"LocalQueue({self.url!r})"

    @property
    def client(self) -> Any:
        """The server's boto3 client, with made-up credentials."""
        return self._server.client

    def send(
        self,
        body: str,
        group: str = "group-1",
        dedup_id: str | None = None,
        *,
        attributes: Mapping[str, str] | None = None,
    ) -> str:
        """Send a message and return its id. Without `dedup_id`, it duplicates no other message.

        `attributes` become message attributes of type String. Raises SqsError if SQS would refuse it.
        """
        __tracebackhide__ = True
        request = {
            "QueueUrl": self.url,
            "MessageBody": body,
            "MessageGroupId": group,
            "MessageDeduplicationId": str(uuid.uuid4()) if dedup_id is None else dedup_id,
            "MessageAttributes": {
                name: {"DataType": "String", "StringValue": value} for name, value in (attributes or {}).items()
            },
        }
        answer = self._server.run(lambda model: model.call("SendMessage", request))
        message_id: str = answer["MessageId"]
        return message_id

    def messages(self) -> list[dict[str, Any]]:
        """All messages of the queue, oldest first, each with its state; nothing is received."""
        return self._server.messages(self.name)

    def history(self, message_id: str) -> list[dict[str, Any]]:
        """The events of a message, in order, also after its end; none for one that is not known."""
        return self._server.history(message_id)

    def advance(self, seconds: float) -> None:
        """Set the server's clock ahead, for all its queues; see `LocalQueueServer.advance`."""
        self._server.advance(seconds)


_NOT_THE_USERS = (
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
)


@pytest.fixture(scope="session")
def sqs_fifo_server() -> Iterator[LocalQueueServer]:
    """A local SQS server with FIFO semantics, for all tests of a run, or of a worker of pytest-xdist."""
    if find_spec("aiohttp") is None:  # to fail while it is imported would show that error, too
        pytest.fail("the fixture 'sqs_fifo_server' needs aiohttp: pip install 'aiohttp>=3.9'", pytrace=False)
    from sqs_fifo_spark.local.server import LocalQueueServer

    with LocalQueueServer() as server:
        yield server


@pytest.fixture
def sqs_fifo_queue_factory(sqs_fifo_server: LocalQueueServer) -> Iterator[Callable[..., LocalQueue]]:
    """Make FIFO queues for this test alone: `sqs_fifo_queue_factory({"ContentBasedDeduplication": "true"})`.

    Takes the attributes of `CreateQueue`, whose values are texts, and what it refuses raises SqsError. Afterwards the
    queues are deleted, and the server's faults are as they were before the test.
    """
    names: list[str] = []
    faults = sqs_fifo_server.faults

    def make(attributes: Mapping[str, str] | None = None) -> LocalQueue:
        __tracebackhide__ = True
        # Not counted: a test may have made the queue of the next number.
        name = f"test-{uuid.uuid4()}.fifo"
        request = {"QueueName": name, "Attributes": {"FifoQueue": "true", **(attributes or {})}}
        sqs_fifo_server.run(lambda model: model.call("CreateQueue", request))
        names.append(name)
        return LocalQueue(sqs_fifo_server, name)

    yield make
    if sqs_fifo_server.faults is not faults:
        sqs_fifo_server.faults = faults
    left = sqs_fifo_server.run(lambda model: model.queue_names)
    for name in set(names).intersection(left):  # the test may have deleted some
        sqs_fifo_server.run(methodcaller("call", "DeleteQueue", {"QueueUrl": name}))


@pytest.fixture
def sqs_fifo_queue(sqs_fifo_queue_factory: Callable[..., LocalQueue]) -> LocalQueue:
    """A new FIFO queue for this test alone: `.url`, `.client`, `.send(...)`, `.messages()`, `.advance(31)`.

    Afterwards the queue is deleted, and the server's faults are as they were before the test.
    """
    return sqs_fifo_queue_factory()


@pytest.fixture
def sqs_fifo_environment(sqs_fifo_server: LocalQueueServer, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Let this test's own code find the server by itself: endpoint, region and made-up keys, in the environment.

    Returns what it has set, for processes that are started with an environment of their own. No profile, token or file
    of the user's counts meanwhile.
    """
    settings = {
        "AWS_ENDPOINT_URL_SQS": sqs_fifo_server.endpoint_url,
        "AWS_REGION": sqs_fifo_server.region,
        "AWS_DEFAULT_REGION": sqs_fifo_server.region,
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    host = urlsplit(sqs_fifo_server.endpoint_url).hostname or ""
    settings |= {"NO_PROXY": host, "no_proxy": host}
    for name in _NOT_THE_USERS:
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    # boto3's own session keeps the credentials that it has found once.
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    return settings


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Take back the faults that a test sets on the server; those of a fixture are the fixture's own affair."""
    server: LocalQueueServer | None = getattr(item, "funcargs", {}).get("sqs_fifo_server")
    if server is None:
        yield
        return
    faults = server.faults
    yield
    if server.faults is not faults:  # else planned ones would be counted from the beginning
        server.faults = faults
