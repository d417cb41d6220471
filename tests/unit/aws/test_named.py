"""A queue that is given by its name has the URL that SQS says, and is called by that from then on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sqs_fifo_spark.aws.named import with_url
from sqs_fifo_spark.errors import NotFifoQueueError, OptionError, QueueNotFoundError
from sqs_fifo_spark.local import LocalQueueServer
from sqs_fifo_spark.options import parse_sink_options, parse_source_options


@pytest.fixture
def server() -> Iterator[LocalQueueServer]:
    with LocalQueueServer() as running:
        queue = {"QueueName": "bids.fifo", "Attributes": {"FifoQueue": "true"}}
        running.run(lambda model: model.call("CreateQueue", queue))
        yield running


def given(server: LocalQueueServer, **options: str) -> dict[str, str]:
    keys = {"awsAccessKeyId": "any", "awsSecretAccessKey": "any", "region": "eu-west-1"}
    return {"endpointUrl": server.endpoint_url, "journalLocation": "/journal", **keys, **options}


@pytest.mark.parametrize("parse", [parse_source_options, parse_sink_options])
@pytest.mark.parametrize("key", ["queueUrl", "queueurl"])
def test_a_name_becomes_the_url(server: LocalQueueServer, parse: Any, key: str) -> None:
    """Whatever else is given stays as it is."""
    options = with_url(parse, given(server, **{key: "bids.fifo", "maxCallsPerSecond": "7"}))
    by_url = parse(given(server, queueUrl=server.queue_url("bids.fifo"), maxCallsPerSecond="7"))
    assert options == by_url
    assert server.requests.counts() == {"GetQueueUrl": 1}


def test_a_url_or_an_arn_takes_no_call(server: LocalQueueServer) -> None:
    for queue in (server.queue_url("bids.fifo"), "arn:aws:sqs:eu-west-1:000000000000:bids.fifo"):
        with_url(parse_source_options, given(server, queueUrl=queue))
    assert not server.requests.counts()


def test_the_owner_is_named_to_sqs(server: LocalQueueServer) -> None:
    """And stands in the URL then."""
    options = with_url(parse_source_options, given(server, queueUrl="bids.fifo", queueOwnerAccountId="000000000000"))
    assert (options.queue_url, options.queue_owner_account_id) == (server.queue_url("bids.fifo"), None)
    with pytest.raises(QueueNotFoundError, match=r"the queue 'bids\.fifo' does not exist \(get_queue_url: "):
        with_url(parse_source_options, given(server, queueUrl="bids.fifo", queueOwnerAccountId="999999999999"))


def test_faults_of_other_options_are_told_before_any_call(server: LocalQueueServer) -> None:
    for wrong in ({"numPartitions": "0"}, {"roleArn": "x"}):
        with pytest.raises(OptionError):
            with_url(parse_source_options, given(server, queueUrl="bids.fifo", **wrong))
    with pytest.raises(NotFifoQueueError):
        with_url(parse_source_options, given(server, queueUrl="bids"))
    assert not server.requests.counts()


def test_refused_rows_do_not_go_to_the_queue_itself(server: LocalQueueServer) -> None:
    """That the two are one shows only when the name has its URL."""
    options = given(server, queueUrl="bids.fifo", badRecordsQueueUrl=server.queue_url("bids.fifo"))
    with pytest.raises(OptionError, match="'badRecordsQueueUrl' is the queue that is written to"):
        with_url(parse_sink_options, options)
