"""Failures by count and by queue: exactly the request that was named, and every time the same."""

from __future__ import annotations

import http.client
import re
from typing import Any

import pytest

from sqs_fifo_spark.local import Faults, PlannedFault
from sqs_fifo_spark.local.faults import Injector
from tests.unit.local.caller import Caller, call


def plan(*texts: str) -> Faults:
    return Faults(planned=tuple(PlannedFault.from_text(text) for text in texts))


def failing(faults: Faults, *requests: str) -> list[int]:
    """The numbers, from 1, of the `requests` (ACTION@QUEUE) that fail."""
    injector = Injector(faults)
    verdicts = [injector.decide(*request.split("@")) for request in requests]
    return [number for number, verdict in enumerate(verdicts, 1) if verdict.error is not None]


def test_only_the_request_of_that_number_fails() -> None:
    """Other actions in between do not count."""
    requests = ["SendMessage@q", "DeleteMessage@q"] * 4
    assert failing(plan("throttle:DeleteMessage:3"), *requests) == [6]
    assert failing(plan("throttle:DeleteMessage:2-3"), *requests) == [4, 6]


def test_only_requests_for_that_queue_count() -> None:
    """Without a queue, those for all queues do."""
    requests = ["DeleteMessage@other.fifo", "DeleteMessage@q.fifo", "DeleteMessage@other.fifo", "DeleteMessage@q.fifo"]
    for queue in ("q.fifo", "http://localhost:9324/000000000000/q.fifo"):
        assert failing(plan(f"server_error:DeleteMessage:2:{queue}"), *requests) == [4]
    assert failing(plan("server_error:DeleteMessage:2:q.fifo.x"), *requests) == []
    assert failing(plan("server_error:DeleteMessage:2"), *requests) == [2]


def test_several_plans_count_each_for_itself() -> None:
    """A request that one of them fails still counts for the others."""
    faults = plan("throttle:DeleteMessage:1", "throttle:DeleteMessage:2", "throttle:SendMessage:1")
    assert failing(faults, "DeleteMessage@q", "SendMessage@q", "DeleteMessage@q", "DeleteMessage@q") == [1, 2, 3]


def test_plans_change_nothing_about_the_dice() -> None:
    """The requests that are not planned fail as they would without a plan."""
    requests = ["SendMessage@q"] * 50
    diced = failing(Faults(seed=3, throttle=0.3), *requests)
    spared = next(number for number in range(10, 50) if number not in diced)
    planned = plan(f"throttle:SendMessage:{spared}").planned
    assert failing(Faults(seed=3, throttle=0.3, planned=planned), *requests) == sorted([*diced, spared])


def test_faults_may_be_limited_to_queues() -> None:
    """Requests for others never fail, nor those for no queue at all."""
    for queue in ("q.fifo", "http://localhost:9324/000000000000/q.fifo", "http://localhost:9324/000000000000/q.fifo/"):
        faults = Faults(throttle=1.0, queues=frozenset({queue}))
        assert failing(faults, "SendMessage@q.fifo", "SendMessage@other.fifo", "ListQueues@*") == [1]
    assert failing(Faults(throttle=1.0, queues=frozenset({"q.fifo.x"})), "SendMessage@q.fifo") == []


def test_planned_entries_alone_fail(caller: Caller) -> None:
    """By their positions, in that batch and in no other; without positions, all of them."""
    caller.server.faults = plan("fail_entry=0,2:SendMessageBatch:2", "fail_entry:SendMessageBatch:3")
    assert "Failed" not in caller.send_batch("1", "2", "3")
    answer = caller.send_batch("4", "5", "6")
    assert [(one["Id"], one["Code"]) for one in answer["Failed"]] == [("0", "InternalError"), ("2", "InternalError")]
    assert len(caller.send_batch("7", "8")["Failed"]) == 2
    assert caller.held() == ["1", "2", "3", "5"]


def test_planned_reset_and_short_answer_have_no_effect(caller: Caller) -> None:
    """The message is still there to be received."""
    caller.send_batch("1")
    caller.server.faults = plan("reset:ReceiveMessage:1", "short_answer:ReceiveMessage:2")
    with pytest.raises((ConnectionResetError, http.client.RemoteDisconnected)):
        caller.bodies()
    assert caller.bodies() == []
    assert caller.bodies() == ["1"]


def test_plan_is_set_over_http_and_counts_from_then_on(caller: Caller) -> None:
    """What came before does not count, and a plan for another queue waits for it."""
    caller.send_batch("1")
    planned = [{"fault": "throttle", "action": "SendMessageBatch", "number": 2, "queue": "q.fifo"}]
    status, shown = caller.local("faults", {"planned": planned, "queues": ["q.fifo"]})
    assert caller.local("faults") == (200, shown)
    assert (status, shown["queues"]) == (200, ["q.fifo"])
    assert shown["planned"] == [{**planned[0], "times": 1, "entries": []}]
    caller.send_batch("2")
    other: dict[str, Any] = {"QueueUrl": caller.server.queue_url("other.fifo"), "Entries": []}
    assert caller.call("SendMessageBatch", **other)[1]["__type"].endswith("EmptyBatchRequest")
    assert caller.send_batch("3")["__type"].endswith("ThrottlingException")
    caller.send_batch("4")
    assert caller.held() == ["1", "2", "4"]


def test_queue_of_an_action_without_url_is_known_too(caller: Caller) -> None:
    """By its name, or by its ARN."""
    caller.server.faults = plan("throttle:GetQueueUrl:1:q.fifo", "throttle:ListMessageMoveTasks:1:q.fifo")
    endpoint, arn = caller.server.endpoint_url, "arn:aws:sqs:us-east-1:000000000000:q.fifo"
    assert [call(endpoint, "GetQueueUrl", QueueName=name)[0] for name in ("other.fifo", "q.fifo")] == [200, 400]
    assert [call(endpoint, "ListMessageMoveTasks", SourceArn=arn)[0] for _ in range(2)] == [400, 200]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"fault": "explode"}, "unknown planned fault 'explode'"),
        ({"action": "DeleteMesage"}, "unknown action 'DeleteMesage'.*Did you mean 'DeleteMessage'"),
        ({"number": 0}, "number is 0"),
        ({"number": "3"}, "number is '3'; it must be a whole number"),
        ({"times": 0}, "times 0"),
        ({"queue": 5}, "queue is 5; it must be a string"),
        ({"entries": [0]}, "only 'fail_entry' takes them"),
        ({"entries": "0"}, "must be a list of whole numbers"),
        ({"fault": "fail_entry", "entries": [10]}, "positions are from 0 to 9"),
        ({"fault": "fail_entry", "action": "DeleteMessage"}, "only a batch has entries"),
        ({"fault": "short_answer"}, "only ReceiveMessage can be short"),
        ({"nth": 3}, "unknown field 'nth'.*the fields are: fault, action, number"),
    ],
)
def test_plan_of_the_wrong_form_is_refused(given: dict[str, Any], message: str) -> None:
    """One line with the value and the rule."""
    good = {"fault": "throttle", "action": "DeleteMessageBatch", "number": 3}
    with pytest.raises(ValueError, match=message):
        Faults().changed({"planned": [{**good, **given}]})
    if "nth" not in given:
        with pytest.raises(ValueError, match=message):
            PlannedFault(**{**good, **given})


@pytest.mark.parametrize("given", ["x", [3], [{"fault": "throttle"}]])
def test_plan_that_is_no_list_of_maps_is_refused(given: object) -> None:
    """And the error shows what one looks like."""
    with pytest.raises(ValueError, match=r"must be a (list of maps|map such as)"):
        Faults().changed({"planned": given})


FORM = "it must be FAULT:ACTION:NUMBER"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        *((text, FORM) for text in ("", "throttle", "a=b:c:1")),
        *((f"throttle:SendMessage{rest}", FORM) for rest in ("", ":x", ":1-")),
        ("throttle:SendMessage:4-1", "4-1 ends before it begins"),
    ],
)
def test_plan_on_the_command_line_of_the_wrong_form_is_refused(text: str, rule: str) -> None:
    """The error shows the form; a range of numbers is from the first to the last."""
    with pytest.raises(ValueError, match=f"'{re.escape(text)}'; {rule}"):
        PlannedFault.from_text(text)
