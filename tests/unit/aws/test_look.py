"""`.load()` says of a queue all that is wrong for good, after one call, and nothing that may pass."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from sqs_fifo_spark.aws import look, queue_list
from sqs_fifo_spark.aws.look import look_at_queue, look_at_queues
from sqs_fifo_spark.errors import AccessDeniedError, OptionError, QueueNotFoundError, SqsFifoError
from sqs_fifo_spark.local import Faults, LocalQueueServer, PlannedFault
from sqs_fifo_spark.options import SourceOptions, parse_source_options
from tests.helpers import raises_one_line

KEYS = {"awsAccessKeyId": "any", "awsSecretAccessKey": "any"}


@pytest.fixture
def server() -> Iterator[LocalQueueServer]:
    look_at_queue.cache_clear()  # an earlier server may have had the same port
    look._look_at_list.cache_clear()
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


# Several queues


def look_at_all(server: LocalQueueServer, **way: str) -> None:
    host = {"endpointUrl": server.endpoint_url, "region": "eu-west-1", "journalLocation": "/journal"}
    given = {**host, **KEYS, **way}
    look_at_queues(parse_source_options(given), given)


def urls(server: LocalQueueServer, *names: str) -> str:
    return ",".join(map(server.queue_url, names))


def test_each_queue_of_a_list_is_looked_at_once(server: LocalQueueServer) -> None:
    """However often Spark plans the frame, and as if it were alone; a name is looked for."""
    server.client.create_queue(QueueName="lots.fifo", Attributes={"FifoQueue": "true"})
    for _ in range(2):
        look_at_all(server, queueUrls=f"lots.fifo,{urls(server, 'bids.fifo')}")
        look_at_all(server, queueUrl=server.queue_url("bids.fifo"))
    assert server.requests.counts() == {"CreateQueue": 1, "GetQueueUrl": 1, "GetQueueAttributes": 1}


@pytest.mark.parametrize("names", [("bid.fifo", "bids.fifo"), ("bids.fifo", "bid.fifo")])
def test_a_wrong_queue_of_a_list_is_told_by_its_name(server: LocalQueueServer, names: tuple[str, ...]) -> None:
    for queues in (",".join(names), urls(server, *names)):
        with raises_one_line(QueueNotFoundError, match=r"the queue '.*bid\.fifo' does not exist"):
            look_at_all(server, queueUrls=queues)


def test_only_the_first_queues_of_a_long_list_are_looked_at(server: LocalQueueServer) -> None:
    """The others are met when the query starts."""
    names = [f"q{number}.fifo" for number in range(20)]
    for name in names:
        server.client.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})
    before = server.requests.counts()["CreateQueue"]
    look_at_all(server, queueUrls=urls(server, *names, "none.fifo"))
    assert server.requests.counts() == {"CreateQueue": before, "GetQueueAttributes": 20}


def test_a_service_without_an_answer_is_asked_once_for_a_list(
    server: LocalQueueServer, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be silent for each queue, and `.load()` wait for all of them."""
    server.faults = Faults(planned=(PlannedFault.from_text("server_error:GetQueueAttributes:1-9"),))
    with caplog.at_level(logging.WARNING, "sqs_fifo_spark"):
        look_at_all(server, queueUrls=urls(server, "a.fifo", "b.fifo"))
    assert server.requests.counts() == {"GetQueueAttributes": 1}
    assert caplog.text.count("asks again when it starts") == 1


def test_the_queues_of_a_prefix_are_listed_once(server: LocalQueueServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sqs_fifo_spark"):
        for _ in range(3):
            look_at_all(server, queueNamePrefix="bi")
    assert server.requests.counts() == {"ListQueues": 1}
    assert not caplog.text


def test_a_prefix_without_queues_is_a_warning(server: LocalQueueServer, caplog: pytest.LogCaptureFixture) -> None:
    """They may be made later."""
    with caplog.at_level(logging.WARNING, "sqs_fifo_spark"):
        look_at_all(server, queueNamePrefix="none", queueDiscoverySeconds="7")
    assert "No FIFO queue has a name that begins with 'none', in this region and account." in caplog.text
    assert "asks again every 7 s" in caplog.text


def test_a_prefix_that_may_not_be_listed_or_has_too_many_queues_is_refused(
    server: LocalQueueServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_list, "MOST_QUEUES", 0)
    with raises_one_line(OptionError, match="the names of 1 FIFO queues begin so"):
        look_at_all(server, queueNamePrefix="bids")
    server.faults = Faults(deny=frozenset({"ListQueues"}))
    with raises_one_line(AccessDeniedError, match="Grant the permission 'sqs:ListQueues'"):
        look_at_all(server, queueNamePrefix="bids")


@pytest.mark.parametrize("fault", ["throttle", "reset", "server_error"])
def test_a_list_that_may_come_later_is_left_to_the_query(
    server: LocalQueueServer, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.faults = Faults(planned=(PlannedFault.from_text(f"{fault}:ListQueues:1-9"),))
    with caplog.at_level(logging.WARNING, "sqs_fifo_spark"):
        look_at_all(server, queueNamePrefix="bids")
    assert server.requests.counts() == {"ListQueues": 1}
    assert "asks again when it starts" in caplog.text
