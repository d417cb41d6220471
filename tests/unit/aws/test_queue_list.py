"""The queues of a source that reads several are those that SQS names, in as many calls as that takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sqs_fifo_spark.aws import queue_list
from sqs_fifo_spark.aws.queue_list import queue_urls
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import AccessDeniedError, OptionError, TransientQueueError
from sqs_fifo_spark.local import Faults, LocalQueueServer, PlannedFault
from sqs_fifo_spark.options import SourceOptions, parse_source_options
from tests.helpers import raises_one_line


@pytest.fixture
def server() -> Iterator[LocalQueueServer]:
    with LocalQueueServer(queues=["bids.fifo", "bids-2.fifo", "lots.fifo"]) as running:
        yield running


def options(server: LocalQueueServer, **given: str) -> SourceOptions:
    keys = {"awsAccessKeyId": "any", "awsSecretAccessKey": "any", "region": "eu-west-1"}
    return parse_source_options({"endpointUrl": server.endpoint_url, "journalLocation": "/journal", **keys, **given})


def found(server: LocalQueueServer, **given: str) -> list[str]:
    """Return the names of the queues that are found so."""
    urls = queue_urls(options(server, **given), SYSTEM_CLOCK)
    names = [url.rpartition("/")[2] for url in urls]
    assert urls == [server.queue_url(name) for name in names]
    return names


# A prefix


def test_a_prefix_names_the_queues_that_begin_so(server: LocalQueueServer) -> None:
    """Sorted, by one call; there may be none."""
    assert found(server, queueNamePrefix="bids") == ["bids-2.fifo", "bids.fifo"]
    assert found(server, queueNamePrefix="lots.fifo") == ["lots.fifo"]
    assert found(server, queueNamePrefix="none") == []
    assert server.requests.counts() == {"ListQueues": 3}


def test_a_queue_that_is_made_or_deleted_meanwhile_is_seen(server: LocalQueueServer) -> None:
    given = {"queueNamePrefix": "bids"}
    assert len(found(server, **given)) == 2
    server.client.create_queue(QueueName="bids-3.fifo", Attributes={"FifoQueue": "true"})
    server.client.delete_queue(QueueUrl=server.queue_url("bids.fifo"))
    assert found(server, **given) == ["bids-2.fifo", "bids-3.fifo"]


def answered(monkeypatch: pytest.MonkeyPatch, *pages: list[str]) -> list[dict[str, Any]]:
    """Let SQS give these pages of URLs; return the arguments with which it is asked."""
    asked: list[dict[str, Any]] = []

    def page(self: Any, operation: str, budget_s: float, **arguments: Any) -> dict[str, Any]:
        assert operation == "list_queues"
        asked.append({**self._queue, **arguments})
        more = {"NextToken": str(len(asked))} if len(asked) < len(pages) else {}
        urls = pages[len(asked) - 1]
        return {**({"QueueUrls": urls} if urls else {}), **more}

    monkeypatch.setattr(queue_list.QueueList, "_retrying", page)
    return asked


HOST = "https://sqs.eu-west-1.amazonaws.com/123456789012"
LISTED = parse_source_options({"queueNamePrefix": "q", "journalLocation": "/journal"})


def test_all_pages_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind one that has no FIFO queue; standard queues do not count."""
    asked = answered(monkeypatch, [f"{HOST}/q2.fifo", f"{HOST}/q3"], [], [f"{HOST}/q1.fifo", f"{HOST}/q1"])
    assert queue_urls(LISTED, SYSTEM_CLOCK) == [f"{HOST}/q1.fifo", f"{HOST}/q2.fifo"]
    assert asked == [
        {"QueueNamePrefix": "q", "MaxResults": 1000, **more} for more in ({}, {"NextToken": "1"}, {"NextToken": "2"})
    ]


def test_more_than_a_thousand_queues_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand are read, and standard queues beside them are no matter."""
    fifo, standard = ([f"{HOST}/q{number}{end}" for number in range(1_000)] for end in (".fifo", ""))
    answered(monkeypatch, fifo, standard)
    assert len(queue_urls(LISTED, SYSTEM_CLOCK)) == 1_000
    answered(monkeypatch, fifo, [f"{HOST}/qq.fifo"])
    with raises_one_line(OptionError, match=r"'queueNamePrefix' is 'q', and the names of 1001 FIFO queues begin so; "):
        queue_urls(LISTED, SYSTEM_CLOCK)


def test_one_queue_twice_in_an_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS never does that, but an emulator may have odd names: two queues must not share a journal."""
    answered(monkeypatch, ["http://h/1/a b.fifo", "http://h/1/a_b.fifo"])
    with raises_one_line(OptionError, match=r"SQS's list of 'q\*' has one queue twice, as "):
        queue_urls(LISTED, SYSTEM_CLOCK)


def test_a_missing_permission_to_list_is_named(server: LocalQueueServer) -> None:
    """It is one of the whole account, which no policy gives for a queue."""
    server.faults = Faults(deny=frozenset({"ListQueues"}))
    said = (
        r"AWS denied list_queues on 'bids\*': AccessDenied\. Grant the permission 'sqs:ListQueues' on '\*', for AWS "
        r"knows no narrower one, or correct the credentials\."
    )
    with raises_one_line(AccessDeniedError, match=said):
        found(server, queueNamePrefix="bids")


def test_a_policy_must_allow_all_queues_to_be_listed(server: LocalQueueServer) -> None:
    """As on AWS, where ListQueues has no resource."""
    for resource, is_allowed in (("arn:aws:sqs:us-east-1:000000000000:bids*", False), ("*", True)):
        statement = {"Effect": "Allow", "Action": "sqs:ListQueues", "Resource": resource}
        server.set_policies({"any": {"Statement": [statement]}})
        if is_allowed:
            assert len(found(server, queueNamePrefix="bids")) == 2
        else:
            with pytest.raises(AccessDeniedError):
                found(server, queueNamePrefix="bids")


# A list


def test_names_have_the_urls_that_sqs_says(server: LocalQueueServer) -> None:
    """In the order of the list; one that has a URL takes no call."""
    given = f"lots.fifo,{server.queue_url('bids.fifo')},bids-2.fifo"
    assert found(server, queueUrls=given) == ["lots.fifo", "bids.fifo", "bids-2.fifo"]
    assert server.requests.counts() == {"GetQueueUrl": 2}


def test_urls_and_arns_take_no_call(server: LocalQueueServer) -> None:
    given = f"{server.queue_url('bids.fifo')},arn:aws:sqs:eu-west-1:000000000000:none.fifo"
    assert len(queue_urls(options(server, queueUrls=given), SYSTEM_CLOCK)) == 2
    assert not server.requests.counts()


def test_a_name_and_a_url_of_one_queue_are_refused(server: LocalQueueServer) -> None:
    """Only SQS knows that they are one."""
    url = server.queue_url("bids.fifo")
    with raises_one_line(OptionError, match=f"option 'queueUrls' has one queue twice, as '{url}' and '{url}'"):
        found(server, queueUrls=f"bids.fifo,{url}")


# Failures that pass


@pytest.mark.parametrize(
    ("given", "action"), [({"queueNamePrefix": "bids"}, "ListQueues"), ({"queueUrls": "bids.fifo"}, "GetQueueUrl")]
)
def test_what_may_pass_is_tried_again(server: LocalQueueServer, given: dict[str, str], action: str) -> None:
    """For as long as the caller has time."""
    server.faults = Faults(planned=(PlannedFault.from_text(f"throttle:{action}:1-2"),))
    assert "bids.fifo" in found(server, **given)
    assert server.requests.counts() == {action: 3}
    server.faults = Faults(planned=(PlannedFault.from_text(f"server_error:{action}:1-9"),))
    with pytest.raises(TransientQueueError):
        queue_urls(options(server, **given), SYSTEM_CLOCK, budget_s=0.0)
    assert server.requests.counts() == {action: 4}
