"""The local queue's failures on purpose: by dice, by count and by queue, with or without effect as promised."""

from __future__ import annotations

import http.client
import re
from typing import Any

import pytest

from sqs_fifo_spark.local import Faults, LocalQueueServer, PlannedFault
from sqs_fifo_spark.local.faults import Injector
from sqs_fifo_spark.local.planned import KINDS
from sqs_fifo_spark.local.requests import HISTORY, RequestLog, RequestRecord
from tests.manual_clock import ManualClock
from tests.unit.local.caller import Caller, call


def drawn(faults: Faults, *actions: str) -> list[tuple[Any, ...]]:
    """Return all that is done to requests with these actions, one after the other."""
    injector = Injector(faults)
    verdicts = [injector.decide(action, "q") for action in actions]
    codes = [verdict.error and verdict.error.query_code for verdict in verdicts]
    others = [(each.reset, each.drop_answer, sorted(each.failing_entries), each.receive_share) for each in verdicts]
    return list(zip(codes, others, strict=True))


def plan(*texts: str) -> Faults:
    return Faults(planned=tuple(PlannedFault.from_text(text) for text in texts))


def failing(faults: Faults, *requests: str) -> list[int]:
    """The numbers, from 1, of the `requests` (ACTION@QUEUE) that fail."""
    injector = Injector(faults)
    verdicts = [injector.decide(*request.split("@")) for request in requests]
    return [number for number, verdict in enumerate(verdicts, 1) if verdict.error is not None]


PLANNED = PlannedFault("throttle", "SendMessage", 1)
EVERYTHING = Faults(seed=4).changed(dict.fromkeys(KINDS, 0.4))


def test_same_seed_and_requests_give_the_same_faults() -> None:
    """Two runs with one seed fail alike; another seed fails otherwise."""
    actions = ["SendMessageBatch", "ReceiveMessage"] * 30
    first, second = (drawn(EVERYTHING, *actions) for _ in range(2))
    assert first == second
    assert drawn(EVERYTHING.changed({"seed": 5}), *actions) != first


def test_other_actions_in_between_change_no_faults() -> None:
    """The dice of an action depend only on how often it was called."""
    mixed = drawn(EVERYTHING, *["DeleteMessage", "ReceiveMessage"] * 20)
    assert drawn(EVERYTHING, *["DeleteMessage"] * 20) == mixed[::2]


def test_probability_is_a_frequency() -> None:
    """Of a thousand requests about a quarter fails at 0.25, none at 0, all at 1."""
    for probability, least, most in ((0.0, 0, 0), (0.25, 201, 299), (1.0, 1_000, 1_000)):
        failed = failing(Faults(throttle=probability), *["SendMessage@q"] * 1_000)
        assert least <= len(failed) <= most


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        *(({name: 1.5}, f"'{name}' is 1.5.*from 0 to 1") for name in KINDS),
        ({"throtle": 1}, "unknown fault 'throtle'"),
        ({"throttle": "often"}, "'throttle' is 'often'; it must be a number"),
        ({"seed": 1.5}, "'seed' is 1.5; it must be a number"),
        ({"actions": "SendMessage"}, "'actions' is 'SendMessage'; it must be a list of action names"),
        ({"queues": "q.fifo.x"}, "'queues' is 'q.fifo.x'; it must be a list of queue names"),
        ({"deny": None}, "'deny' is None; it must be a list"),
        ({"planned": 3}, "'planned' is 3; it must be a list"),
        ({"planned": PLANNED}, r"'planned' is PlannedFault\(.*; it must be a list"),
        ({"delay_s": -1}, "cannot be negative"),
        ({"calls_per_second": 0}, "'calls_per_second' is 0; it must be a whole number, at least 1"),
        ({"calls_per_second": 2.5}, "'calls_per_second' is 2.5; it must be a whole number"),
        ({"deny": ["DeleteMesage"]}, "unknown action 'DeleteMesage'.*Did you mean 'DeleteMessage'"),
        ({"actions": ["Fly"]}, "unknown action 'Fly'"),
    ],
)
def test_changes_of_the_wrong_kind_are_refused(fields: dict[str, Any], message: str) -> None:
    """Field by field, whether they come from outside or a test makes them."""
    with pytest.raises(ValueError, match=message):
        Faults().changed(fields)
    if "throtle" not in fields:
        with pytest.raises(ValueError, match=message):
            Faults(**fields)


def test_quota_counts_each_action_and_queue_by_the_queues_clock() -> None:
    """A second's calls at once, then as many as time allows; one that is refused costs none, and has no effect."""
    clock = ManualClock()
    with LocalQueueServer(clock=clock, queues=["q.fifo", "other.fifo"], faults=Faults(calls_per_second=10)) as server:
        caller = Caller(server)

        def told(number: int, action: str = "ReceiveMessage", **request: Any) -> list[int]:
            return [caller.call(action, **request)[0] for _ in range(number)]

        assert told(12) == [200] * 10 + [400] * 2
        assert told(1, "GetQueueAttributes") == told(1, QueueUrl=server.queue_url("other.fifo")) == [200]
        assert caller.call("ReceiveMessage")[1]["__type"].endswith("#ThrottlingException")
        clock.advance(0.35)
        assert told(5) == [200] * 3 + [400] * 2
        server.advance(0.05)
        assert told(2) == [200, 400]
        server.advance(60)
        assert told(12) == [200] * 10 + [400] * 2
        server.faults = Faults(calls_per_second=10, actions=frozenset({"SendMessage"}))
        assert told(12) == [200] * 12


def test_queue_with_high_throughput_has_no_quota() -> None:
    """Nor has a standard queue: SQS counts what FIFO queues without it are asked."""
    attributes = {"FifoQueue": "true", "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    with LocalQueueServer(clock=ManualClock(), queues=["q.fifo"], faults=Faults(calls_per_second=2)) as server:
        caller = Caller(server)
        for request in ({"QueueName": "fast.fifo", "Attributes": attributes}, {"QueueName": "standard"}):
            url = caller.call("CreateQueue", **request)[1]["QueueUrl"]
            assert [caller.call("ReceiveMessage", QueueUrl=url)[0] for _ in range(3)] == [200] * 3


def test_server_errors_are_both_500_and_503_and_have_no_effect(caller: Caller) -> None:
    """InternalFailure and ServiceUnavailable both occur; the queue stays as it was."""
    caller.send_batch("a")
    caller.server.faults = Faults(server_error=1.0)
    answers = {
        (status, content["__type"].partition("#")[2])
        for status, content in (caller.call("ReceiveMessage") for _ in range(20))
    }
    assert answers == {(500, "InternalFailure"), (503, "ServiceUnavailable")}
    caller.server.faults = Faults()
    assert caller.bodies() == ["a"]


def test_dropped_answer_took_effect(caller: Caller) -> None:
    """The connection closes without an answer, but the message is there, once, though sent again."""
    caller.server.faults = Faults(drop_answer=1.0)
    with pytest.raises(http.client.RemoteDisconnected):
        caller.send_batch("a")
    caller.server.faults = Faults()
    caller.send_batch("a")
    assert caller.bodies() == ["a"]


def test_short_answers_return_less_and_keep_order(caller: Caller) -> None:
    """Receives return fewer messages than they could, some none, and order holds all the same."""
    caller.send_batch(*map(str, range(10)))
    caller.server.faults = Faults(short_answer=1.0)
    received: list[str] = []
    sizes = set()
    while len(received) < 10:
        messages = caller.receive()
        sizes.add(len(messages))
        received += [message["Body"] for message in messages]
        for message in messages:
            caller.call("DeleteMessage", ReceiptHandle=message["ReceiptHandle"])
    assert received == [str(i) for i in range(10)]
    assert max(sizes) < 10


@pytest.mark.parametrize("wait_s", [0, 20])
def test_short_answer_to_a_receive_of_one_is_empty_at_once(caller: Caller, wait_s: int) -> None:
    """An idle queue may answer a poll empty although it holds messages; a long one does not wait for this clock."""
    caller.send_batch("a")
    caller.server.faults = Faults(short_answer=1.0)
    assert caller.call("ReceiveMessage", MaxNumberOfMessages=1, WaitTimeSeconds=wait_s) == (200, {})


@pytest.mark.parametrize("action", ["SendMessage", "DeleteMessage", "ChangeMessageVisibility"])
def test_denied_action_takes_its_batch_with_it(action: str) -> None:
    """They have one permission on AWS; a batch alone can only be denied here."""
    requests = [f"{each}@q" for each in (action, f"{action}Batch", "ReceiveMessage")]
    assert failing(Faults(deny=frozenset({action})), *requests) == [1, 2]
    assert failing(Faults(deny=frozenset({f"{action}Batch"})), *requests) == [2]


def test_faults_are_changed_over_http(caller: Caller) -> None:
    """POST /_local/faults changes the fields it names, and refuses what it does not know."""
    status, shown = caller.local("faults", {"throttle": 1, "deny": ["SendMessage"]})
    assert (status, shown["throttle"], shown["deny"]) == (200, 1, ["SendMessage"])
    status, shown = caller.local("faults", {"deny": [], "expired_keys": ["old"]})
    assert (status, shown["deny"], shown["expired_keys"]) == (200, [], ["old"])
    caller.local("faults", {"expired_keys": []})
    assert caller.server.faults == Faults(throttle=1)
    status, refusal = caller.local("faults", {"nonsense": 1})
    assert status == 400
    assert "unknown fault 'nonsense'" in refusal["error"]
    assert caller.server.faults == Faults(throttle=1)


def test_requests_are_counted_with_their_outcomes(caller: Caller) -> None:
    """Counts per action, and of each request its size and outcome, also over HTTP."""
    caller.send_batch("a", "b")
    caller.bodies()
    caller.call("DeleteMessage", ReceiptHandle="h")
    caller.server.faults = Faults(drop_answer=1.0)
    with pytest.raises(http.client.RemoteDisconnected):
        caller.call("ReceiveMessage")
    assert [(r.action, r.entries, r.outcome) for r in caller.server.requests.recent()] == [
        ("SendMessageBatch", 2, "ok"),
        ("ReceiveMessage", 2, "ok"),
        ("DeleteMessage", 1, "ReceiptHandleIsInvalid"),
        ("ReceiveMessage", 0, "dropped"),
    ]
    counts = {"SendMessageBatch": 1, "ReceiveMessage": 2, "DeleteMessage": 1}
    assert caller.server.requests.counts() == counts
    assert caller.local("requests") == (200, counts)


def test_request_history_is_bounded() -> None:
    """Only the last 10,000 requests are remembered; all are counted."""
    log = RequestLog()
    for number in range(HISTORY + 5):
        log.add(RequestRecord(float(number), "A", 1, "ok"))
    assert log.counts() == {"A": HISTORY + 5}
    assert [record.at for record in log.recent("A")][:1] == [5.0]
    assert len(log.recent()) == HISTORY
    log.clear()
    assert (log.counts(), log.recent()) == ({}, [])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"queues": "bids.fifo"}, "queues is 'bids.fifo'; it must be a list of names, such as"),
        ({"queues": ["bids"]}, "queue 'bids' cannot be made: .* must end with .fifo"),
        ({"faults": {}}, "faults are {}; they must be Faults"),
    ],
)
def test_server_of_the_wrong_form_is_refused_before_it_starts(given: dict[str, Any], message: str) -> None:
    """One line names the value and the rule."""
    with pytest.raises(ValueError, match=message):
        LocalQueueServer(**given)


def test_client_of_a_server_that_does_not_run_is_refused() -> None:
    """The error says what to do first."""
    with pytest.raises(RuntimeError, match="does not run; start it first"):
        _ = LocalQueueServer().client


# By count and by queue: exactly the request that was named, and every time the same


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
    """Earlier calls do not count, nor do those to another queue."""
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
