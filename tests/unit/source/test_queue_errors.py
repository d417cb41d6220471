"""Each error of a call is one line of its own class, with the permission or the option that is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import botocore.session
import pytest

from sqs_fifo_spark.aws import client as aws
from sqs_fifo_spark.errors import (
    AccessDeniedError,
    NotFifoQueueError,
    OptionError,
    QueueNotFoundError,
    QueueRequestError,
    SqsFifoError,
    TransientQueueError,
)
from sqs_fifo_spark.local import Faults
from sqs_fifo_spark.options import parse_source_options
from sqs_fifo_spark.source.queue import Counts, Queue
from tests.helpers import raises_one_line
from tests.unit.source.rig import Rig

pytestmark = pytest.mark.usefixtures("transport")
CALLS: dict[str, Callable[[Queue], object]] = {
    "describe": lambda queue: queue.describe(),
    "require_permissions": lambda queue: queue.require_permissions(),
    "approximate_counts": lambda queue: queue.approximate_counts(),
    "time_ms": lambda queue: queue.time_ms(),
    "receive": lambda queue: queue.receive(1),
}


@pytest.mark.parametrize(
    ("call", "action"),
    [
        ("describe", "GetQueueAttributes"),
        ("approximate_counts", "GetQueueAttributes"),
        ("require_permissions", "DeleteMessageBatch"),
        ("require_permissions", "ChangeMessageVisibilityBatch"),
        ("receive", "ReceiveMessage"),
    ],
)
def test_a_denied_action_is_access_denied_at_once(rig: Rig, call: str, action: str) -> None:
    """The permission that is missing is named, and nothing is tried again."""
    rig.server.faults = Faults(deny=frozenset({action}))
    permission = f"sqs:{action.removesuffix('Batch')}"
    with raises_one_line(AccessDeniedError, match=f"Grant the permission '{permission}' on the queue, "):
        CALLS[call](rig.queue)
    assert len(rig.server.requests.recent(action)) == 1


@pytest.mark.parametrize("operation", ["delete", "extend"])
def test_a_denied_batch_is_access_denied(rig: Rig, operation: str) -> None:
    """Not FAILED entries, which would be tried for ever. What SQS quotes of a request stays out of texts and reprs."""
    rig.send("a1")
    (message,) = rig.queue.receive(1)
    handle = message.receipt.receipt_handle
    rig.server.faults = Faults(deny=frozenset({"DeleteMessageBatch", "ChangeMessageVisibilityBatch"}))
    with raises_one_line(AccessDeniedError) as told:
        rig.queue.delete([message.receipt]) if operation == "delete" else rig.queue.extend([message.receipt], 10)
    assert handle not in str(told.value)
    assert handle not in repr(message)


@pytest.mark.parametrize("call", list(CALLS))
def test_a_missing_queue_is_queue_not_found(rig: Rig, call: str) -> None:
    """The queue's URL is named, for every call."""
    rig.client.delete_queue(QueueUrl=rig.url)
    with raises_one_line(QueueNotFoundError, match="does not exist") as told:
        CALLS[call](rig.queue)
    assert rig.url in str(told.value)


def test_a_standard_queue_is_refused(rig: Rig) -> None:
    """AWS does not know the attribute FifoQueue there, and answers without it."""
    rig.url = rig.client.create_queue(QueueName="plain")["QueueUrl"]
    with raises_one_line(NotFifoQueueError, match="standard queue"):
        rig.make().describe()


@pytest.fixture
def own_clients() -> Iterator[None]:
    """Clients built under this test's environment are forgotten after it."""
    aws.forget_clients()
    yield
    aws.forget_clients()


@pytest.mark.usefixtures("own_clients")
def test_credentials_that_were_missing_once_are_looked_for_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service of the machine that gives no answer in time must not leave a process without credentials for good."""
    find, found = botocore.session.Session.get_credentials, 0

    def not_at_first(session: botocore.session.Session) -> Any:
        nonlocal found
        found += 1
        return find(session) if found > 1 else None

    monkeypatch.setattr(botocore.session.Session, "get_credentials", not_at_first)
    assert rig.queue.approximate_counts() == Counts()
    assert found > 1


@pytest.mark.usefixtures("own_clients")
def test_no_region_is_an_option_error(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """When neither the URL nor the chain names a region, `region` is asked for."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    options = parse_source_options(
        {"queueUrl": "https://queue.amazonaws.com.cn/123456789012/q.fifo", "journalLocation": "/journal"}
    )
    with raises_one_line(OptionError, match="'region'"):
        Queue(options, rig.clock).describe()


@pytest.mark.usefixtures("own_clients")
def test_connection_refused_is_transient_and_names_the_network(rig: Rig) -> None:
    """A server that is not there is retried, then told with the options to check."""
    options = parse_source_options({"queueUrl": "http://127.0.0.1:9/000000000000/q.fifo", "journalLocation": "/j"})
    with raises_one_line(TransientQueueError, match="'endpointUrl'"):
        Queue(options, rig.clock).describe()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (botocore.exceptions.ReadTimeoutError(endpoint_url="http://x"), TransientQueueError),
        (botocore.exceptions.EndpointConnectionError(endpoint_url="http://x"), TransientQueueError),
        (botocore.exceptions.NoCredentialsError(), AccessDeniedError),
        (botocore.exceptions.ProfileNotFound(profile="p"), AccessDeniedError),
        (botocore.exceptions.ParamValidationError(report="first\nsecond"), QueueRequestError),
    ],
)
def test_botocore_errors_become_ours_in_one_line(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: type[SqsFifoError]
) -> None:
    """No error of botocore's reaches the user, and none of its texts with line breaks."""

    def fail(config: object, wait_time_s: int = 0) -> Any:
        raise error

    monkeypatch.setattr(aws, "sqs_client", fail)
    with raises_one_line(expected):
        rig.queue.describe()
