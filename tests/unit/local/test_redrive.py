"""Move tasks, dead-letter sources and tags: the rules that AWS documents, and answers that boto3 can read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

from sqs_fifo_spark.clock import ManualClock
from sqs_fifo_spark.local import Event, FifoModel, LocalQueueServer, SqsError

ARN = "arn:aws:sqs:us-east-1:000000000000:"


class Account:
    """A queue `q.fifo` that gives its messages up to `dead.fifo` after one receive."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.model = FifoModel(self.clock)
        self.dead = self.create("dead.fifo")
        self.url = self.create("q.fifo", dead="dead.fifo")

    def create(self, name: str, dead: str | None = None, **request: Any) -> str:
        attributes = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
        if dead is not None:
            attributes["RedrivePolicy"] = json.dumps({"deadLetterTargetArn": ARN + dead, "maxReceiveCount": 1})
        url: str = self.call("CreateQueue", QueueName=name, Attributes=attributes, **request)["QueueUrl"]
        return url

    def call(self, action: str, **request: Any) -> dict[str, Any]:
        return self.model.call(action, request)

    def send(self, url: str, *bodies: str, group: str = "g") -> None:
        for body in bodies:
            self.call("SendMessage", QueueUrl=url, MessageBody=body, MessageGroupId=group, MessageDeduplicationId=body)

    def receive(self, url: str, **request: Any) -> list[dict[str, Any]]:
        request = {"QueueUrl": url, "MaxNumberOfMessages": 10, "AttributeNames": ["All"], **request}
        messages: list[dict[str, Any]] = self.call("ReceiveMessage", **request).get("Messages", [])
        return messages

    def give_up(self, *bodies: str, group: str = "g", url: str | None = None) -> None:
        """Let messages go to the dead-letter queue."""
        url = self.url if url is None else url
        self.send(url, *bodies, group=group)
        for _ in bodies:
            self.receive(url, VisibilityTimeout=0)
        assert self.receive(url) == []

    def bodies(self, name: str) -> list[str]:
        return [message.body for message in self.model.messages(name)]

    def start(self, **request: Any) -> str:
        handle: str = self.call("StartMessageMoveTask", **{"SourceArn": f"{ARN}dead.fifo", **request})["TaskHandle"]
        return handle

    def tasks(self, **request: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("ListMessageMoveTasks", SourceArn=f"{ARN}dead.fifo", **request)[
            "Results"
        ]
        return found


@pytest.fixture
def account() -> Account:
    return Account()


def refused(call: Callable[[], object]) -> SqsError:
    with pytest.raises(SqsError) as caught:
        call()
    return caught.value


# Moving


def test_messages_go_back_to_where_they_came_from_in_order(account: Account) -> None:
    """Without a destination, each goes to its own source, and each group's order is kept."""
    other = account.create("other.fifo", dead="dead.fifo")
    account.give_up("a1", "a2", group="a")
    account.give_up("x1", "x2", url=other)
    account.give_up("a3", "b1", group="a")
    account.start()
    assert (account.bodies("q.fifo"), account.bodies("other.fifo")) == (["a1", "a2", "a3", "b1"], ["x1", "x2"])
    assert account.bodies("dead.fifo") == []
    assert [message["Body"] for message in account.receive(account.url)] == ["a1", "a2", "a3", "b1"]


def test_messages_go_to_the_destination_that_is_named(account: Account) -> None:
    """Also those that were sent to the dead-letter queue itself."""
    account.create("spare.fifo")
    account.give_up("1")
    account.send(account.dead, "2")
    account.start(DestinationArn=f"{ARN}spare.fifo")
    assert (account.bodies("spare.fifo"), account.bodies("q.fifo")) == (["1", "2"], [])
    [task] = account.tasks()
    assert (task["Status"], task["DestinationArn"]) == ("COMPLETED", f"{ARN}spare.fifo")


def test_moved_message_is_a_new_one_with_the_old_content(account: Account) -> None:
    """Its id and sending time are new, its receives are none, its group and body are the old ones."""
    account.give_up("1")
    [old] = account.model.messages("dead.fifo")
    account.clock.advance(1_000)
    account.start()
    [new] = account.receive(account.url)
    attributes = new["Attributes"]
    assert new["MessageId"] != old.message_id
    assert (new["Body"], attributes["MessageGroupId"]) == ("1", "g")
    assert attributes["ApproximateReceiveCount"] == "1"
    assert int(attributes["SentTimestamp"]) == int(account.clock.now() * 1_000)
    assert "DeadLetterQueueSourceArn" not in attributes


def test_moved_message_counts_its_receives_anew_before_it_is_given_up_again(account: Account) -> None:
    """One receive is allowed again, and the next one gives it up."""
    account.give_up("1")
    account.start()
    assert len(account.receive(account.url, VisibilityTimeout=0)) == 1
    assert account.receive(account.url) == []
    assert account.bodies("dead.fifo") == ["1"]


def test_handle_from_before_the_move_is_expired(account: Account) -> None:
    """It was received in the dead-letter queue, its time lapsed, and it is there no more."""
    account.give_up("1")
    [message] = account.receive(account.dead, VisibilityTimeout=1)
    account.clock.advance(1)
    account.start()
    error = refused(
        lambda: account.call("DeleteMessage", QueueUrl=account.dead, ReceiptHandle=message["ReceiptHandle"])
    )
    assert "The receipt handle has expired" in error.message


def test_rate_is_messages_a_second_from_the_first_one_at_once(account: Account) -> None:
    """At 2 a second: one at 0 s, one at 0.5 s, and so on; the task says how far it is."""
    account.give_up(*"12345")
    account.start(MaxNumberOfMessagesPerSecond=2)
    seen = []
    for _ in range(6):
        [task] = account.tasks()
        seen.append((task["Status"], task["ApproximateNumberOfMessagesMoved"], len(account.bodies("q.fifo"))))
        account.clock.advance(0.5)
    assert seen == [*(("RUNNING", moved, moved) for moved in (1, 2, 3, 4, 5)), ("COMPLETED", 5, 5)]
    [task] = account.tasks()
    assert (task["ApproximateNumberOfMessagesToMove"], task["MaxNumberOfMessagesPerSecond"]) == (5, 2)
    assert "TaskHandle" not in task


def test_what_a_clock_leaps_over_was_moved_at_its_own_time(account: Account) -> None:
    """Looking only once, an hour later, finds each message with the second at which it moved."""
    account.give_up("1", "2")
    began = account.clock.now()
    account.start(MaxNumberOfMessagesPerSecond=1)
    account.clock.advance(3_600)
    assert [message.sent_at for message in account.model.messages("q.fifo")] == [began, began + 1]


def test_group_in_flight_in_the_dead_letter_queue_stays_there(account: Account) -> None:
    """A task takes what a receive could: nothing behind a message that somebody holds."""
    account.give_up("a1", "a2", group="a")
    account.give_up("b1", group="b")
    assert [message["Body"] for message in account.receive(account.dead, MaxNumberOfMessages=1)] == ["a1"]
    account.start()
    assert (account.bodies("dead.fifo"), account.bodies("q.fifo")) == (["a1", "a2"], ["b1"])
    assert account.tasks()[0]["Status"] == "COMPLETED"


def test_task_does_not_chase_what_comes_after_its_start(account: Account) -> None:
    """It ends though its messages were given up again meanwhile."""
    account.give_up("1", "2")
    account.start(MaxNumberOfMessagesPerSecond=1)
    account.receive(account.url, VisibilityTimeout=0)
    assert account.receive(account.url) == []
    account.clock.advance(10)
    assert account.tasks()[0]["ApproximateNumberOfMessagesMoved"] == 2
    assert (account.bodies("dead.fifo"), account.bodies("q.fifo")) == (["1"], ["2"])


def test_cancelled_task_moves_no_more_and_takes_nothing_back(account: Account) -> None:
    """The answer says how many have moved; afterwards the queue is free for another task."""
    account.give_up("1", "2", "3")
    handle = account.start(MaxNumberOfMessagesPerSecond=1)
    account.clock.advance(1)
    assert account.call("CancelMessageMoveTask", TaskHandle=handle) == {"ApproximateNumberOfMessagesMoved": 2}
    account.clock.advance(60)
    assert (account.bodies("q.fifo"), account.bodies("dead.fifo")) == (["1", "2"], ["3"])
    assert account.tasks()[0]["Status"] == "CANCELLED"
    account.start()
    assert account.bodies("dead.fifo") == []


def test_queue_has_one_task_at_a_time(account: Account) -> None:
    """A second start is refused while the first task runs."""
    account.give_up("1", "2")
    account.start(MaxNumberOfMessagesPerSecond=1)
    error = refused(account.start)
    assert (error.query_code, error.message) == (
        "InvalidParameterValue",
        "There is already a task running. Only one active task is allowed for a source queue arn at a given time.",
    )


def test_message_of_unknown_origin_fails_the_task(account: Account) -> None:
    """It was sent to the dead-letter queue itself, so nobody knows where back is."""
    account.give_up("1")
    account.send(account.dead, "2")
    account.start()
    [task] = account.tasks()
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "CouldNotDetermineMessageSource")
    assert (task["ApproximateNumberOfMessagesMoved"], account.bodies("dead.fifo")) == (1, ["2"])


def test_destination_deleted_while_the_task_runs_fails_it(account: Account) -> None:
    """What was not moved stays in the dead-letter queue."""
    spare = account.create("spare.fifo")
    account.give_up("1", "2")
    account.start(DestinationArn=f"{ARN}spare.fifo", MaxNumberOfMessagesPerSecond=1)
    account.call("DeleteQueue", QueueUrl=spare)
    account.clock.advance(1)
    [task] = account.tasks()
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "AWS.SimpleQueueService.NonExistentQueue")
    assert account.bodies("dead.fifo") == ["2"]


def test_deleted_queue_takes_its_tasks_with_it(account: Account) -> None:
    """A queue of the same name begins without any."""
    account.give_up("1", "2")
    account.start(MaxNumberOfMessagesPerSecond=1)
    account.call("DeleteQueue", QueueUrl=account.dead)
    account.clock.advance(5)
    account.create("dead.fifo")
    assert account.tasks() == []


def test_last_ten_tasks_are_listed_newest_first(account: Account) -> None:
    """One by default, up to ten on demand; older ones are forgotten."""
    for _ in range(12):
        account.start()
        account.clock.advance(1)
    assert len(account.tasks()) == 1
    listed = [task["StartedTimestamp"] for task in account.tasks(MaxResults=10)]
    newest = int((account.clock.now() - 1) * 1_000)
    assert listed == [newest - 1_000 * age for age in range(10)]


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        ({"SourceArn": None}, "MissingParameter", "SourceArn"),
        (
            {"SourceArn": "dead.fifo"},
            "InvalidParameterValue",
            "You must use this format to specify the SourceArn: arn:",
        ),
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
def test_task_that_cannot_be_is_refused_and_moves_nothing(
    account: Account, request_: dict[str, Any], code: str, message: str
) -> None:
    """Each rule has the code that AWS gives it."""
    account.create("plain")
    account.give_up("1")
    error = refused(lambda: account.start(**request_))
    assert error.query_code == code
    assert message in error.message
    assert account.bodies("dead.fifo") == ["1"]


def test_task_that_cannot_be_cancelled_is_named(account: Account) -> None:
    """No handle, a handle of no queue, of no task, and of a task that is over."""
    handle = account.start()
    spare = account.create("spare.fifo")
    account.create("more.fifo", dead="spare.fifo")
    foreign = account.start(SourceArn=f"{ARN}spare.fifo")
    account.call("DeleteQueue", QueueUrl=spare)
    for bad, code, message in [
        ("nonsense", "InvalidParameterValue", "Value for parameter TaskHandle is invalid."),
        ("MTIz", "InvalidParameterValue", "Value for parameter TaskHandle is invalid."),
        (foreign, "ResourceNotFoundException", "SourceArn parameter doesn't exist."),
        (handle, "InvalidParameterValue", "Only active tasks can be cancelled."),
    ]:
        error = refused(lambda bad=bad: account.call("CancelMessageMoveTask", TaskHandle=bad))  # type: ignore[misc]
        assert (error.query_code, error.message.endswith(message)) == (code, True)
    account.create("spare.fifo")
    error = refused(lambda: account.call("CancelMessageMoveTask", TaskHandle=foreign))
    assert (error.query_code, error.message, error.status) == ("ResourceNotFoundException", "Task does not exist.", 404)


def test_listeners_hear_of_a_move_on_both_sides(account: Account) -> None:
    """The old message ends, the new one is sent."""
    account.give_up("1")
    heard: list[Event] = []
    account.model.on_event(heard.append)
    account.start()
    assert [(event.kind, event.queue) for event in heard] == [("redriven", "dead.fifo"), ("sent", "q.fifo")]


# Sources


def test_sources_of_a_dead_letter_queue_are_listed_page_by_page(account: Account) -> None:
    """By name, only those whose policy names it."""
    for name in ("c.fifo", "a.fifo"):
        account.create(name, dead="dead.fifo")
    account.create("b.fifo")
    everything = account.call("ListDeadLetterSourceQueues", QueueUrl=account.dead)
    names = [url.rpartition("/")[2] for url in everything["queueUrls"]]
    assert (names, "NextToken" in everything) == (["a.fifo", "c.fifo", "q.fifo"], False)
    first = account.call("ListDeadLetterSourceQueues", QueueUrl=account.dead, MaxResults=2)
    rest = account.call("ListDeadLetterSourceQueues", QueueUrl=account.dead, MaxResults=2, NextToken=first["NextToken"])
    assert first["queueUrls"] + rest["queueUrls"] == everything["queueUrls"]
    assert "NextToken" not in rest
    assert account.call("ListDeadLetterSourceQueues", QueueUrl=account.url) == {"queueUrls": []}


# Tags


def test_tags_are_added_replaced_and_removed(account: Account) -> None:
    """A key that is there gets the new value; a key that is not there may be removed."""
    url = account.create("t.fifo", tags={"team": "bids", "stage": "test"})
    account.call("TagQueue", QueueUrl=url, Tags={"team": "auction", "Größe": ""})
    assert account.call("ListQueueTags", QueueUrl=url)["Tags"] == {"team": "auction", "stage": "test", "Größe": ""}
    account.call("UntagQueue", QueueUrl=url, TagKeys=["stage", "other", "team", "Größe"])
    assert account.call("ListQueueTags", QueueUrl=url) == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"": "v"}, "between 1 and 128"),
        ({"k" * 129: "v"}, "between 1 and 128"),
        ({"k": "v" * 257}, "between 0 and 256"),
        ({"k": "a;b"}, "can only include"),
        ({"aws:k": "v"}, "reserved prefix aws:"),
        ({str(number): "v" for number in range(50)}, "Too many tags added for queue t.fifo."),
    ],
)
@pytest.mark.parametrize("action", ["TagQueue", "CreateQueue"])
def test_tags_out_of_bounds_are_refused_and_change_nothing(
    account: Account, action: str, given: dict[str, str], message: str
) -> None:
    """Also at the creation, where no queue comes of it."""
    if action == "TagQueue":
        url = account.create("t.fifo", tags={"team": "bids"})
        error = refused(lambda: account.call("TagQueue", QueueUrl=url, Tags=given))
        assert account.call("ListQueueTags", QueueUrl=url)["Tags"] == {"team": "bids"}
    else:
        error = refused(lambda: account.create("t.fifo", tags={**given, "one": "more"}))
        assert refused(lambda: account.call("GetQueueUrl", QueueName="t.fifo")).shape == "QueueDoesNotExist"
    assert error.query_code == "InvalidParameterValue"
    assert message in error.message


@pytest.mark.parametrize(("action", "parameter"), [("TagQueue", "Tags"), ("UntagQueue", "TagKeys")])
def test_tagging_with_nothing_is_missing_parameter(account: Account, action: str, parameter: str) -> None:
    """Neither action does nothing."""
    error = refused(lambda: account.call(action, QueueUrl=account.url))
    assert (error.query_code, parameter in error.message) == ("MissingParameter", True)


# What boto3 reads


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with LocalQueueServer() as server:
        made = boto3.client("sqs", endpoint_url=server.endpoint_url)
        yield made
        made.close()


def test_boto3_reads_the_answers(client: Any) -> None:
    """Every field comes out under its name and in its type."""
    fifo = {"FifoQueue": "true"}
    dead = client.create_queue(QueueName="dead.fifo", Attributes=fifo, tags={"a": "1"})["QueueUrl"]
    policy = json.dumps({"deadLetterTargetArn": f"{ARN}dead.fifo", "maxReceiveCount": 1})
    url = client.create_queue(QueueName="q.fifo", Attributes={**fifo, "RedrivePolicy": policy})["QueueUrl"]
    client.tag_queue(QueueUrl=dead, Tags={"b": "2"})
    client.untag_queue(QueueUrl=dead, TagKeys=["a"])
    assert client.list_queue_tags(QueueUrl=dead)["Tags"] == {"b": "2"}
    assert client.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    for number in ("1", "2"):
        client.send_message(QueueUrl=url, MessageBody=number, MessageGroupId="g", MessageDeduplicationId=number)
    client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0)
    assert "Messages" not in client.receive_message(QueueUrl=url)
    client.receive_message(QueueUrl=url)
    handle = client.start_message_move_task(SourceArn=f"{ARN}dead.fifo", MaxNumberOfMessagesPerSecond=1)["TaskHandle"]
    [task] = client.list_message_move_tasks(SourceArn=f"{ARN}dead.fifo")["Results"]
    assert (task["TaskHandle"], task["Status"]) == (handle, "RUNNING")
    assert isinstance(task["StartedTimestamp"], int)
    assert client.cancel_message_move_task(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"] >= 1
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.start_message_move_task(SourceArn=f"{ARN}none.fifo")


def test_long_poll_ends_when_a_task_moves_something(client: Any) -> None:
    """Moving is not asked for by the one who waits."""
    fifo = {"FifoQueue": "true"}
    client.create_queue(QueueName="d.fifo", Attributes=fifo)
    policy = json.dumps({"deadLetterTargetArn": f"{ARN}d.fifo", "maxReceiveCount": 1})
    url = client.create_queue(QueueName="s.fifo", Attributes={**fifo, "RedrivePolicy": policy})["QueueUrl"]
    for number in ("1", "2"):
        client.send_message(QueueUrl=url, MessageBody=number, MessageGroupId=number, MessageDeduplicationId=number)
    client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0)
    assert "Messages" not in client.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
    client.start_message_move_task(SourceArn=f"{ARN}d.fifo", MaxNumberOfMessagesPerSecond=2)
    assert [m["Body"] for m in client.receive_message(QueueUrl=url)["Messages"]] == ["1"]
    assert [m["Body"] for m in client.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]] == ["2"]
