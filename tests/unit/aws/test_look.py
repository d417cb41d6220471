"""`.load()` says of a queue all that is wrong for good, after one call, and nothing that may pass."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from sqs_fifo_spark.aws.look import look_at_queue
from sqs_fifo_spark.errors import AccessDeniedError, QueueNotFoundError, SqsFifoError
from sqs_fifo_spark.local import Faults, LocalQueueServer, PlannedFault
from sqs_fifo_spark.options import SourceOptions, parse_source_options
from tests.helpers import raises_one_line

KEYS = {"awsAccessKeyId": "any", "awsSecretAccessKey": "any"}


@pytest.fixture
def server() -> Iterator[LocalQueueServer]:
    look_at_queue.cache_clear()  # an earlier server may have had the same port
    with LocalQueueServer() as running:
        queue = {"QueueName": "bids.fifo", "Attributes": {"FifoQueue": "true"}}
        running.run(lambda model: model.call("CreateQueue", queue))
        yield running


def options(server: LocalQueueServer, queue: str, **more: str) -> SourceOptions:
    host = {"endpointUrl": server.endpoint_url, "region": "eu-west-1", "journalLocation": "/journal"}
    return parse_source_options({**host, "queueUrl": queue, **(more or KEYS)})


each_way = pytest.mark.parametrize("action", ["GetQueueAttributes", "GetQueueUrl"])


def queue_for(action: str, server: LocalQueueServer, name: str) -> SourceOptions:
    return options(server, name if action == "GetQueueUrl" else server.queue_url(name))


@each_way
def test_a_right_queue_is_asked_once_in_a_process(server: LocalQueueServer, action: str) -> None:
    """However often Spark plans the same frame."""
    for _ in range(3):
        look_at_queue(queue_for(action, server, "bids.fifo"))
    assert server.requests.counts() == {action: 1}


@each_way
@pytest.mark.parametrize(
    ("name", "deny", "error", "said"),
    [
        ("bid.fifo", False, QueueNotFoundError, r"the queue '.*bid\.fifo' does not exist .+ Correct 'queueUrl'\."),
        ("bids.fifo", True, AccessDeniedError, "AWS denied .+ Grant the permission 'sqs:{}' on the queue"),
    ],
)
def test_what_is_wrong_for_good_is_told_after_one_call(
    server: LocalQueueServer, action: str, name: str, deny: bool, error: type[SqsFifoError], said: str
) -> None:
    """Each time: it may have been corrected meanwhile."""
    server.faults = Faults(deny=frozenset({action} if deny else ()))
    for _ in range(2):
        with raises_one_line(error, match=said.format(action)):
            look_at_queue(queue_for(action, server, name))
    assert server.requests.counts() == {action: 2}


@each_way
@pytest.mark.parametrize("fault", ["throttle", "reset", "server_error"])
def test_what_may_pass_is_left_to_the_query(
    server: LocalQueueServer, action: str, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """After one try, with a line in the log."""
    server.faults = Faults(planned=(PlannedFault.from_text(f"{fault}:{action}:1-9"),))
    with caplog.at_level(logging.WARNING, "sqs_fifo_spark"):
        look_at_queue(queue_for(action, server, "bids.fifo"))
    assert server.requests.counts() == {action: 1}
    assert "asks again when it starts" in caplog.text


def test_a_queue_that_this_process_cannot_reach_is_left_to_the_query(server: LocalQueueServer) -> None:
    """A refused connection, and a process without credentials, or their function: another one may have them."""
    look_at_queue(options(server, server.queue_url("bids.fifo"), profile="none-such"))
    look_at_queue(options(server, server.queue_url("bids.fifo"), credentialsProvider="none_such:keys"))
    gone = options(server, server.queue_url("bids.fifo"))
    server.stop()
    look_at_queue(gone)
