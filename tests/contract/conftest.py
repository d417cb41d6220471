"""Queues to run the same cases against: ours, and moto's where moto is right."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from sqs_fifo_spark.aws.lean import LeanClient
from sqs_fifo_spark.local import LocalQueueServer
from tests.helpers import moto_server
from tests.manual_clock import ManualClock

_NUMBERS = itertools.count(1)


def make_client(endpoint_url: str, transport: str = "boto3") -> Any:
    """A boto3 client that tries once, so that what the server answers is what the test sees."""
    client = boto3.client(
        "sqs",
        endpoint_url=endpoint_url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(retries={"total_max_attempts": 1}, max_pool_connections=20),
    )
    return client if transport == "boto3" else LeanClient(client, Credentials("local", "local"))


def code_of(call: Callable[[], object]) -> str:
    """The error code that boto3 shows for `call`, which must fail."""
    with pytest.raises(ClientError) as caught:
        call()
    return str(caught.value.response["Error"]["Code"])


@dataclass
class Queue:
    """A fresh FIFO queue behind a boto3 client."""

    client: Any
    attributes: dict[str, str] = field(default_factory=dict)
    name: str = ""
    url: str = ""

    def __post_init__(self) -> None:
        self.name = self.name or f"contract-{next(_NUMBERS)}.fifo"
        given = {"FifoQueue": "true", **self.attributes}
        self.url = self.client.create_queue(QueueName=self.name, Attributes=given)["QueueUrl"]
        self._sent = itertools.count(1)

    def another(self, **attributes: str) -> Queue:
        """Another fresh queue in the same place."""
        return Queue(self.client, attributes)

    def give_up_to(self, dead: Queue) -> None:
        """Move messages there after one receive."""
        policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1})
        self.client.set_queue_attributes(QueueUrl=self.url, Attributes={"RedrivePolicy": policy})

    @property
    def arn(self) -> str:
        return f"arn:aws:sqs:us-east-1:000000000000:{self.name}"

    def send(self, body: str, group: str = "g", **request: Any) -> dict[str, Any]:
        defaults = {"MessageBody": body, "MessageGroupId": group, "MessageDeduplicationId": f"d{next(self._sent)}"}
        response: dict[str, Any] = self.client.send_message(QueueUrl=self.url, **{**defaults, **request})
        return response

    def receive(self, limit: int = 10, **request: Any) -> list[dict[str, Any]]:
        response = self.client.receive_message(
            QueueUrl=self.url, MaxNumberOfMessages=limit, MessageSystemAttributeNames=["All"], **request
        )
        found: list[dict[str, Any]] = response.get("Messages", [])
        return found

    def bodies(self, limit: int = 10, **request: Any) -> list[str]:
        return [message["Body"] for message in self.receive(limit, **request)]

    def delete(self, message: dict[str, Any]) -> None:
        self.client.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])

    def hide(self, message: dict[str, Any], timeout_s: int) -> None:
        self.client.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=timeout_s
        )


@pytest.fixture(params=["boto3", "lean"])
def transport(request: pytest.FixtureRequest) -> str:
    """Maker of a client's calls: the SDK, or this package where it makes them."""
    return str(request.param)


@pytest.fixture(scope="session")
def moto_clients() -> Iterator[dict[str, Any]]:
    """A client of moto's server for each transport."""
    with moto_server() as url:
        clients = {name: make_client(url, name) for name in ("boto3", "lean")}
        yield clients
        for client in clients.values():
            client.close()


@pytest.fixture
def moto_client(moto_clients: dict[str, Any], transport: str) -> Any:
    """A client of moto's server."""
    return moto_clients[transport]


@pytest.fixture
def clock() -> ManualClock:
    """The strict server's clock: it stands still until the test turns it."""
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> Iterator[LocalQueueServer]:
    """Our server, on a clock turned by hand."""
    with LocalQueueServer(clock=clock) as running:
        yield running


@pytest.fixture
def strict_client(server: LocalQueueServer, transport: str) -> Iterator[Any]:
    """A client of our server."""
    client = make_client(server.endpoint_url, transport)
    yield client
    client.close()


@pytest.fixture
def strict(strict_client: Any) -> Queue:
    """A queue of our server, for what only AWS and we get right."""
    return Queue(strict_client)


@pytest.fixture(params=["strict", "moto"])
def queue(request: pytest.FixtureRequest, transport: str) -> Queue:
    """A queue of our server, then one of moto's, for what both get right."""
    return Queue(request.getfixturevalue(f"{request.param}_client"))
