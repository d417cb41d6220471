"""Dead-letter queues, move tasks and their sources: the rules of AWS that `conformance` does not show."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sqs_fifo_spark.local import Event
from tests.unit.local.model_queue import ARN, ModelQueue, redriven, refused

Pair = tuple[ModelQueue, ModelQueue]


@pytest.fixture
def pair() -> Pair:
    """A queue `q.fifo` that gives its messages up to `dead.fifo` after one receive, and the latter."""
    return redriven(1)


def give_up(source: ModelQueue, *bodies: str) -> None:
    """Let messages, each of the group of its first letter, go to the dead-letter queue."""
    source.send_in_groups(*bodies)
    for _ in bodies:
        source.receive(VisibilityTimeout=0)
    assert source.receive() == []


def start(dead: ModelQueue, **request: Any) -> str:
    handle: str = dead.call("StartMessageMoveTask", **{"SourceArn": dead.arn, **request})["TaskHandle"]
    return handle


def tasks(dead: ModelQueue, **request: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = dead.call("ListMessageMoveTasks", SourceArn=dead.arn, **request)["Results"]
    return found


# Giving up


def test_message_that_was_given_up_has_new_time_sequence_and_deduplication_id(pair: Pair) -> None:
    """The move sets enqueue time, sequence number, dedup id = message id, and the source's ARN. A release counts."""
    source, dead = pair
    sent = source.send("g")
    source.hide(source.receive()[0], 0)
    source.clock.advance(5)
    assert source.receive() == []
    moved = dead.receive()[0]
    shown = moved["Attributes"]
    assert moved["MessageId"] == shown["MessageDeduplicationId"] == sent["MessageId"]
    assert shown["MessageGroupId"] == "g"
    assert shown["SequenceNumber"] != sent["SequenceNumber"]
    assert shown["SentTimestamp"] == "1700000005000"
    assert shown["DeadLetterQueueSourceArn"] == source.arn


def test_receives_before_the_move_do_not_count_against_the_next_policy() -> None:
    """A dead-letter queue with a policy of its own delivers what was moved to it as often as it says."""
    source, dead = redriven(2)
    last = dead.another("last.fifo")
    dead.set(RedrivePolicy=json.dumps({"deadLetterTargetArn": last.arn, "maxReceiveCount": 1}))
    source.send()
    for _ in range(3):
        source.receive(VisibilityTimeout=1)
        source.clock.advance(1)
    message = dead.receive(VisibilityTimeout=1)[0]
    assert message["Attributes"]["ApproximateReceiveCount"] == "3"
    source.clock.advance(1)
    assert dead.receive() == []
    assert len(last.receive()) == 1


@pytest.mark.parametrize(
    "policy",
    [
        "no json",
        "[]",
        {"maxReceiveCount": 1},
        {"deadLetterTargetArn": f"{ARN}dead.fifo"},
        {"deadLetterTargetArn": "dummy", "maxReceiveCount": 42},
        {"deadLetterTargetArn": f"{ARN}none.fifo", "maxReceiveCount": 1},
        {"deadLetterTargetArn": f"{ARN}plain", "maxReceiveCount": 1},
        {"deadLetterTargetArn": f"{ARN}dead.fifo", "maxReceiveCount": 0},
    ],
)
def test_redrive_policy_must_name_a_fifo_queue_and_a_count(pair: Pair, policy: Any) -> None:
    """A dead-letter queue must exist and be FIFO, and the count be from 1 to 1000."""
    source, dead = pair
    dead.another("plain")
    given = policy if isinstance(policy, str) else json.dumps(policy)
    for error in (refused(source.set, RedrivePolicy=given), refused(dead.another, "new.fifo", RedrivePolicy=given)):
        assert error.query_code == "InvalidParameterValue"


def test_other_attributes_may_be_set_after_the_dead_letter_queue_is_gone(pair: Pair) -> None:
    """A redrive policy is checked when it is given, not whenever something else is."""
    source, dead = pair
    policy = source.attributes()["RedrivePolicy"]
    dead.call("DeleteQueue")
    source.set(VisibilityTimeout="7")
    assert source.attributes()["VisibilityTimeout"] == "7"
    assert "Dead letter target does not exist." in refused(source.set, RedrivePolicy=policy).message


# Moving


def test_messages_go_back_to_where_they_came_from_in_order(pair: Pair) -> None:
    """Without a destination, each goes to its own source, and each group's order is kept."""
    source, dead = pair
    other = dead.source("other.fifo", 1)
    give_up(source, "a1", "a2")
    give_up(other, "x1", "x2")
    give_up(source, "a3", "ab1")
    start(dead)
    assert (source.held(), other.held(), dead.held()) == (["a1", "a2", "a3", "ab1"], ["x1", "x2"], [])
    assert source.bodies() == ["a1", "a2", "a3", "ab1"]


def test_messages_go_to_the_destination_that_is_named(pair: Pair) -> None:
    """Also those that were sent to the dead-letter queue itself."""
    source, dead = pair
    spare = dead.another("spare.fifo")
    give_up(source, "1")
    dead.send(body="2")
    start(dead, DestinationArn=spare.arn)
    assert (spare.held(), source.held()) == (["1", "2"], [])
    [task] = tasks(dead)
    assert (task["Status"], task["DestinationArn"]) == ("COMPLETED", spare.arn)


def test_moved_message_is_a_new_one_with_the_old_content(pair: Pair) -> None:
    """Its id and time are new, its receives none, its group and body the old ones; and listeners hear of both."""
    source, dead = pair
    give_up(source, "g1")
    [old] = dead.model.messages("dead.fifo")
    dead.clock.advance(1_000)
    heard: list[Event] = []
    dead.model.on_event(heard.append)
    start(dead)
    assert [(event.kind, event.queue) for event in heard] == [("redriven", "dead.fifo"), ("sent", "q.fifo")]
    [new] = source.receive(VisibilityTimeout=0)
    attributes = new["Attributes"]
    assert new["MessageId"] != old.message_id
    assert (new["Body"], attributes["MessageGroupId"]) == ("g1", "g")
    assert attributes["ApproximateReceiveCount"] == "1"
    assert int(attributes["SentTimestamp"]) == int(dead.clock.now() * 1_000)
    assert "DeadLetterQueueSourceArn" not in attributes
    # One receive was allowed again, and the next one gives it up.
    assert source.receive() == []
    assert dead.held() == ["g1"]


def test_rate_is_messages_a_second_from_the_first_one_at_once(pair: Pair) -> None:
    """At 2 a second: one at 0 s, one at 0.5 s, and so on; the task says how far it is."""
    source, dead = pair
    give_up(source, *"12345")
    start(dead, MaxNumberOfMessagesPerSecond=2)
    seen = []
    for _ in range(6):
        [task] = tasks(dead)
        seen.append((task["Status"], task["ApproximateNumberOfMessagesMoved"], len(source.held())))
        dead.clock.advance(0.5)
    assert seen == [*(("RUNNING", moved, moved) for moved in (1, 2, 3, 4, 5)), ("COMPLETED", 5, 5)]
    [task] = tasks(dead)
    assert (task["ApproximateNumberOfMessagesToMove"], task["MaxNumberOfMessagesPerSecond"]) == (5, 2)
    assert "TaskHandle" not in task


def test_what_a_clock_leaps_over_was_moved_at_its_own_time(pair: Pair) -> None:
    """Looking only once, an hour later, finds each message with the second at which it moved."""
    source, dead = pair
    give_up(source, "1", "2")
    began = dead.clock.now()
    start(dead, MaxNumberOfMessagesPerSecond=1)
    dead.clock.advance(3_600)
    assert [message.sent_at for message in source.model.messages("q.fifo")] == [began, began + 1]


def test_group_in_flight_in_the_dead_letter_queue_stays_there(pair: Pair) -> None:
    """A task takes what a receive could: nothing behind a message that somebody holds."""
    source, dead = pair
    give_up(source, "a1", "a2", "b1")
    assert dead.bodies(1) == ["a1"]
    start(dead)
    assert (dead.held(), source.held()) == (["a1", "a2"], ["b1"])
    assert tasks(dead)[0]["Status"] == "COMPLETED"


def test_task_does_not_chase_what_comes_after_its_start(pair: Pair) -> None:
    """It ends though its messages were given up again meanwhile."""
    source, dead = pair
    give_up(source, "g1", "g2")
    start(dead, MaxNumberOfMessagesPerSecond=1)
    source.receive(VisibilityTimeout=0)
    assert source.receive() == []
    dead.clock.advance(10)
    assert tasks(dead)[0]["ApproximateNumberOfMessagesMoved"] == 2
    assert (dead.held(), source.held()) == (["g1"], ["g2"])


def test_cancelled_task_moves_no_more_and_takes_nothing_back(pair: Pair) -> None:
    """The answer says how many have moved; afterwards the queue is free for another task, and only then."""
    source, dead = pair
    give_up(source, "1", "2", "3")
    handle = start(dead, MaxNumberOfMessagesPerSecond=1)
    assert str(refused(start, dead)) == (
        "InvalidParameterValue: There is already a task running. Only one active task is allowed for a source queue "
        "arn at a given time."
    )
    dead.clock.advance(1)
    assert dead.call("CancelMessageMoveTask", TaskHandle=handle) == {"ApproximateNumberOfMessagesMoved": 2}
    dead.clock.advance(60)
    assert (source.held(), dead.held()) == (["1", "2"], ["3"])
    assert tasks(dead)[0]["Status"] == "CANCELLED"
    start(dead)
    assert dead.held() == []


def test_message_of_unknown_origin_fails_the_task(pair: Pair) -> None:
    """It was sent to the dead-letter queue itself, so nobody knows where back is."""
    source, dead = pair
    give_up(source, "1")
    dead.send(body="2")
    start(dead)
    [task] = tasks(dead)
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "CouldNotDetermineMessageSource")
    assert (task["ApproximateNumberOfMessagesMoved"], dead.held()) == (1, ["2"])


def test_destination_deleted_while_the_task_runs_fails_it(pair: Pair) -> None:
    """A message that was not moved stays in the dead-letter queue."""
    source, dead = pair
    spare = dead.another("spare.fifo")
    give_up(source, "1", "2")
    start(dead, DestinationArn=spare.arn, MaxNumberOfMessagesPerSecond=1)
    spare.call("DeleteQueue")
    dead.clock.advance(1)
    [task] = tasks(dead)
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "AWS.SimpleQueueService.NonExistentQueue")
    assert dead.held() == ["2"]


def test_deleted_queue_takes_its_tasks_with_it(pair: Pair) -> None:
    """A queue of the same name begins without any."""
    source, dead = pair
    give_up(source, "1", "2")
    start(dead, MaxNumberOfMessagesPerSecond=1)
    dead.call("DeleteQueue")
    dead.clock.advance(5)
    assert tasks(dead.another("dead.fifo")) == []


def test_last_ten_tasks_are_listed_newest_first(pair: Pair) -> None:
    """One by default, up to ten on demand; older ones are forgotten."""
    _, dead = pair
    for _ in range(12):
        start(dead)
        dead.clock.advance(1)
    assert len(tasks(dead)) == 1
    listed = [task["StartedTimestamp"] for task in tasks(dead, MaxResults=10)]
    newest = int((dead.clock.now() - 1) * 1_000)
    assert listed == [newest - 1_000 * age for age in range(10)]


@pytest.mark.parametrize(
    ("request_", "code", "says"),
    [
        ({"SourceArn": None}, "MissingParameter", "SourceArn"),
        ({"SourceArn": "dead.fifo"}, "InvalidParameterValue", "use this format to specify the SourceArn: arn:"),
        ({"SourceArn": f"{ARN}nowhere.fifo"}, "ResourceNotFoundException", "SourceArn parameter doesn't exist"),
        ({"SourceArn": f"{ARN}q.fifo"}, "InvalidParameterValue", "must be configured as a Dead Letter Queue"),
        ({"DestinationArn": "x"}, "InvalidParameterValue", "to specify the DestinationArn: arn:"),
        ({"DestinationArn": f"{ARN}nowhere.fifo"}, "ResourceNotFoundException", "DestinationArn parameter"),
        ({"DestinationArn": f"{ARN}dead.fifo"}, "InvalidParameterValue", "cannot be the same"),
        ({"DestinationArn": f"{ARN}plain"}, "InvalidParameterValue", "of the same queue type"),
        ({"MaxNumberOfMessagesPerSecond": 0}, "InvalidParameterValue", "between 1 and 500"),
        ({"MaxNumberOfMessagesPerSecond": 501}, "InvalidParameterValue", "between 1 and 500"),
        ({"MaxNumberOfMessagesPerSecond": "5"}, "SerializationException", "must be an integer"),
    ],
)
def test_wrong_task_is_refused_and_moves_nothing(pair: Pair, request_: dict[str, Any], code: str, says: str) -> None:
    """Each rule has the code that AWS gives it."""
    source, dead = pair
    dead.another("plain")
    give_up(source, "1")
    error = refused(start, dead, **request_)
    assert (error.query_code, says in error.message) == (code, True)
    assert dead.held() == ["1"]


def test_task_that_cannot_be_cancelled_is_named(pair: Pair) -> None:
    """No handle, a handle of no queue, of no task, and of a task that is over."""
    _, dead = pair
    handle = start(dead)
    spare = dead.another("spare.fifo")
    spare.source("more.fifo", 1)
    foreign = start(spare)
    spare.call("DeleteQueue")
    for bad, code, says in [
        ("nonsense", "InvalidParameterValue", "Value for parameter TaskHandle is invalid."),
        ("MTIz", "InvalidParameterValue", "Value for parameter TaskHandle is invalid."),
        (foreign, "ResourceNotFoundException", "SourceArn parameter doesn't exist."),
        (handle, "InvalidParameterValue", "Only active tasks can be cancelled."),
    ]:
        error = refused(dead.call, "CancelMessageMoveTask", TaskHandle=bad)
        assert (error.query_code, error.message.endswith(says)) == (code, True)
    dead.another("spare.fifo")
    error = refused(dead.call, "CancelMessageMoveTask", TaskHandle=foreign)
    assert (error.query_code, error.message, error.status) == ("ResourceNotFoundException", "Task does not exist.", 404)


def test_sources_of_a_dead_letter_queue_are_listed_page_by_page(pair: Pair) -> None:
    """By name, only those whose policy names it."""
    source, dead = pair
    for name in ("c.fifo", "a.fifo"):
        dead.source(name, 1)
    dead.another("b.fifo")
    everything = dead.call("ListDeadLetterSourceQueues")
    names = [url.rpartition("/")[2] for url in everything["queueUrls"]]
    assert (names, "NextToken" in everything) == (["a.fifo", "c.fifo", "q.fifo"], False)
    first = dead.call("ListDeadLetterSourceQueues", MaxResults=2)
    rest = dead.call("ListDeadLetterSourceQueues", MaxResults=2, NextToken=first["NextToken"])
    assert first["queueUrls"] + rest["queueUrls"] == everything["queueUrls"]
    assert "NextToken" not in rest
    assert source.call("ListDeadLetterSourceQueues") == {"queueUrls": []}
