"""What an unmodified boto3 client sees: first what moto answers too, then what only AWS and we do."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError

from sqs_fifo_spark.clock import ManualClock
from sqs_fifo_spark.local import Faults, FifoModel, LocalQueueServer
from sqs_fifo_spark.local.waiting import Waiter, WaitingRoom
from tests.contract.conftest import Queue, make_client
from tests.helpers import wait_until


def connect(server: LocalQueueServer) -> socket.socket:
    where = urlsplit(server.endpoint_url)
    assert where.hostname is not None
    assert where.port is not None
    return socket.create_connection((where.hostname, where.port), timeout=10)


def code_of(call: Callable[[], object]) -> str:
    """The error code that boto3 shows for `call`, which must fail."""
    with pytest.raises(ClientError) as caught:
        call()
    code: str = caught.value.response["Error"]["Code"]
    return code


# The same on both


def test_messages_of_a_group_come_in_order(queue: Queue) -> None:
    """Ten messages in one receive, in the order of their sending."""
    for number in range(10):
        queue.send(str(number))
    assert queue.bodies() == [str(number) for number in range(10)]


def test_group_in_flight_gives_no_more_and_other_groups_do(queue: Queue) -> None:
    """The lock holds a group, not the queue."""
    queue.send("a1", "a")
    queue.send("a2", "a")
    assert queue.bodies(1) == ["a1"]
    queue.send("b1", "b")
    assert queue.bodies() == ["b1"]


def test_partial_delete_keeps_the_group_locked(queue: Queue) -> None:
    """Only when all in-flight messages of a group are deleted does the next one come."""
    for body in "123":
        queue.send(body)
    first, second = queue.receive(2)
    queue.delete(first)
    assert queue.bodies() == []
    queue.delete(second)
    assert queue.bodies() == ["3"]


def test_released_messages_come_back_with_their_receive_counted(queue: Queue) -> None:
    """Visibility 0 releases at once."""
    queue.send("1")
    queue.hide(queue.receive()[0], 0)
    assert queue.receive()[0]["Attributes"]["ApproximateReceiveCount"] == "2"


def test_duplicate_of_a_waiting_message_is_not_stored(queue: Queue) -> None:
    """Sent twice with one deduplication id, a message is there once."""
    queue.send("1", MessageDeduplicationId="same")
    queue.send("1", MessageDeduplicationId="same")
    assert queue.bodies() == ["1"]


def test_message_attributes_arrive_with_types_and_bytes(queue: Queue) -> None:
    """Strings, numbers and bytes arrive as sent; botocore itself checks the digests."""
    attributes = {
        "text": {"DataType": "String", "StringValue": "é"},
        "number": {"DataType": "Number.int", "StringValue": "7"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    queue.send("body é", MessageAttributes=attributes)
    message = queue.receive(MessageAttributeNames=["All"])[0]
    assert message["MessageAttributes"] == attributes
    assert message["Body"] == "body é"


def test_batch_answers_name_each_entry(queue: Queue) -> None:
    """Sends and deletes in batches list each id under Successful."""
    entries = [
        {"Id": str(i), "MessageBody": str(i), "MessageGroupId": "g", "MessageDeduplicationId": f"x{i}"}
        for i in range(3)
    ]
    sent = queue.client.send_message_batch(QueueUrl=queue.url, Entries=entries)
    assert [entry["Id"] for entry in sent["Successful"]] == ["0", "1", "2"]
    handles = [message["ReceiptHandle"] for message in queue.receive()]
    done = queue.client.delete_message_batch(
        QueueUrl=queue.url,
        Entries=[{"Id": str(i), "ReceiptHandle": handle} for i, handle in enumerate(handles)],
    )
    assert [entry["Id"] for entry in done["Successful"]] == ["0", "1", "2"]
    assert not done.get("Failed")
    assert queue.bodies() == []


def test_repeated_entry_ids_are_refused(queue: Queue) -> None:
    """Two entries of one batch cannot share an id."""
    entries = [{"Id": "a", "ReceiptHandle": "h"}, {"Id": "a", "ReceiptHandle": "h"}]
    with pytest.raises(queue.client.exceptions.BatchEntryIdsNotDistinct):
        queue.client.delete_message_batch(QueueUrl=queue.url, Entries=entries)


def test_unknown_queue_has_the_code_of_the_old_protocol(queue: Queue) -> None:
    """boto3 shows the query code, and the modelled exception matches."""
    with pytest.raises(queue.client.exceptions.QueueDoesNotExist) as caught:
        queue.client.get_queue_url(QueueName="missing.fifo")
    assert caught.value.response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"


def test_send_without_group_is_refused(queue: Queue) -> None:
    """MessageGroupId is required on a FIFO queue."""
    call = queue.client.send_message
    assert code_of(lambda: call(QueueUrl=queue.url, MessageBody="b", MessageDeduplicationId="d")) == (
        "MissingParameter"
    )


def test_attributes_tell_fifo_and_counts(queue: Queue) -> None:
    """FifoQueue and the approximate counts are there under All."""
    queue.send("1", "a")
    queue.send("2", "b")
    queue.receive(1)
    shown = queue.client.get_queue_attributes(QueueUrl=queue.url, AttributeNames=["All"])["Attributes"]
    assert shown["FifoQueue"] == "true"
    assert shown["QueueArn"].endswith(f":{queue.name}")
    counted = (shown["ApproximateNumberOfMessages"], shown["ApproximateNumberOfMessagesNotVisible"])
    assert counted == ("1", "1")


def test_standard_queue_shows_no_fifo_attribute(queue: Queue) -> None:
    """A client can tell a standard queue by the missing attribute."""
    url = queue.client.create_queue(QueueName=queue.name.removesuffix(".fifo"))["QueueUrl"]
    shown = queue.client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert "FifoQueue" not in shown


# What moto gets wrong


def test_sequence_numbers_rise_within_a_group(strict: Queue) -> None:
    """As numbers, in the order of sending; moto draws them at random."""
    sent = [int(strict.send(str(number))["SequenceNumber"]) for number in range(10)]
    received = [int(message["Attributes"]["SequenceNumber"]) for message in strict.receive()]
    assert received == sent == sorted(sent)


@pytest.mark.parametrize(("held", "comes"), [(0, []), (1, ["1"]), (2, ["1", "2"])])
def test_lapsed_messages_come_back_up_to_the_first_one_held(
    strict: Queue, clock: ManualClock, held: int, comes: list[str]
) -> None:
    """Recorded: holding 1 of [1, 2, 3] nothing comes, holding 2 [1], holding 3 [1, 2]."""
    for body in "123":
        strict.send(body)
    strict.hide(strict.receive(VisibilityTimeout=10)[held], 60)
    clock.advance(10)
    assert strict.bodies() == comes


def test_expired_handle_is_refused_with_the_recorded_codes(strict: Queue, clock: ManualClock) -> None:
    """InvalidParameterValue alone, ReceiptHandleIsInvalid in a batch; the message comes back."""
    strict.send("1")
    old = strict.receive(VisibilityTimeout=1)[0]
    clock.advance(1)
    with pytest.raises(ClientError, match="The receipt handle has expired") as caught:
        strict.delete(old)
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    done = strict.client.delete_message_batch(
        QueueUrl=strict.url, Entries=[{"Id": "0", "ReceiptHandle": old["ReceiptHandle"]}]
    )
    assert [(e["Code"], e["SenderFault"]) for e in done["Failed"]] == [("ReceiptHandleIsInvalid", True)]
    assert strict.bodies() == ["1"]


def test_duplicate_returns_the_ids_of_the_first(strict: Queue) -> None:
    """The sender of a duplicate learns which message it duplicates."""
    first, again = (strict.send("1", MessageDeduplicationId="same") for _ in range(2))
    assert again["MessageId"] == first["MessageId"]
    assert again["SequenceNumber"] == first["SequenceNumber"]


def test_deduplication_outlives_the_delete(strict: Queue, clock: ManualClock) -> None:
    """For five minutes a deleted message is not delivered again, then it is."""
    strict.send("1", MessageDeduplicationId="same")
    strict.delete(strict.receive()[0])
    strict.send("1", MessageDeduplicationId="same")
    assert strict.bodies() == []
    clock.advance(300)
    strict.send("1", MessageDeduplicationId="same")
    assert strict.bodies() == ["1"]


def test_deduplication_scope_is_obeyed(strict: Queue) -> None:
    """Per group, the same id serves in two groups."""
    scoped = strict.another(DeduplicationScope="messageGroup")
    scoped.send("1", "a", MessageDeduplicationId="same")
    scoped.send("2", "b", MessageDeduplicationId="same")
    assert scoped.bodies() == ["1", "2"]


def test_attempt_id_returns_the_same_handles_until_void(strict: Queue) -> None:
    """A repeat gets the same; after a delete it is an error."""
    strict.send("1")
    first = strict.receive(ReceiveRequestAttemptId="try")
    assert strict.receive(ReceiveRequestAttemptId="try") == first
    strict.delete(first[0])
    with pytest.raises(ClientError, match="the receive call is not retryable") as caught:
        strict.receive(ReceiveRequestAttemptId="try")
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"


def test_visibility_errors_have_the_recorded_codes(strict: Queue, clock: ManualClock) -> None:
    """Gone: InvalidParameterValue. Lapsed: MessageNotInflight. Made up: ReceiptHandleIsInvalid."""
    strict.send("1")
    message = strict.receive(VisibilityTimeout=1)[0]
    clock.advance(0.5)
    with pytest.raises(ClientError, match=r"beyond the limit \[43200 seconds\]"):
        strict.hide(message, 43_200)
    clock.advance(1)
    with pytest.raises(strict.client.exceptions.MessageNotInflight):
        strict.hide(message, 10)
    with pytest.raises(strict.client.exceptions.ReceiptHandleIsInvalid):
        strict.hide({"ReceiptHandle": "made-up"}, 10)
    message = strict.receive()[0]
    strict.delete(message)
    assert code_of(lambda: strict.hide(message, 10)) == "InvalidParameterValue"


def test_redrive_moves_a_message_with_new_identity(strict: Queue, clock: ManualClock) -> None:
    """Past maxReceiveCount a message moves, with its id as deduplication id and its source's ARN."""
    arns = strict.client.get_queue_attributes(QueueUrl=strict.url, AttributeNames=["QueueArn"])
    policy = {"deadLetterTargetArn": arns["Attributes"]["QueueArn"], "maxReceiveCount": "1"}
    source = strict.another(RedrivePolicy=json.dumps(policy))
    sent = source.send("1")
    source.receive(VisibilityTimeout=1)
    clock.advance(1)
    assert source.bodies() == []
    shown = strict.receive()[0]["Attributes"]
    assert shown["MessageDeduplicationId"] == sent["MessageId"]
    assert shown["DeadLetterQueueSourceArn"].endswith(f":{source.name}")


def test_largest_message_passes_and_one_byte_more_does_not(strict: Queue) -> None:
    """1,048,576 bytes is the limit of a message, over HTTP too."""
    strict.send("x" * 1_048_576)
    assert len(strict.bodies()[0]) == 1_048_576
    assert code_of(lambda: strict.send("x" * 1_048_577)) == "InvalidParameterValue"


@pytest.mark.parametrize(
    ("faults", "code", "status"),
    [
        (Faults(throttle=1.0), "ThrottlingException", 400),
        (Faults(deny=frozenset({"SendMessage"})), "AccessDenied", 403),
    ],
)
def test_faults_show_as_aws_codes(
    strict: Queue, server: LocalQueueServer, faults: Faults, code: str, status: int
) -> None:
    """boto3 sees throttling and refusals under AWS's codes."""
    server.faults = faults
    with pytest.raises(ClientError) as caught:
        strict.send("1")
    response = caught.value.response
    assert (response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]) == (code, status)


def test_unsupported_action_says_so(strict: Queue) -> None:
    """An action that the local queue lacks is UnsupportedOperation and names itself."""
    with pytest.raises(strict.client.exceptions.UnsupportedOperation, match="AddPermission"):
        strict.client.add_permission(QueueUrl=strict.url, Label="l", AWSAccountIds=["1"], Actions=["*"])


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"Action=ListQueues", {"Content-Type": "application/x-www-form-urlencoded"}),
        (b"{", {"X-Amz-Target": "AmazonSQS.ListQueues"}),
        (b"[]", {"X-Amz-Target": "AmazonSQS.ListQueues"}),
        (b'{"QueueUrl": 1}', {"X-Amz-Target": "AmazonSQS.ReceiveMessage"}),
        (b'{"QueueUrl": "q", "Entries": 1}', {"X-Amz-Target": "AmazonSQS.SendMessageBatch"}),
    ],
)
def test_request_that_is_no_sqs_request_gets_a_clear_refusal(
    server: LocalQueueServer, body: bytes, headers: dict[str, str]
) -> None:
    """Whatever comes in, the answer is a 400 in AWS's form, and the server goes on."""
    where = urlsplit(server.endpoint_url)
    assert where.hostname is not None
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=10)
    connection.request("POST", "/", body, headers)
    response = connection.getresponse()
    content = json.loads(response.read())
    connection.close()
    assert response.status == 400
    assert content["__type"].startswith("com.amazonaws.sqs#")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"garbage\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 70000000\r\n\r\n" + b"x" * 70_000_000, b"413"),
    ],
)
def test_what_is_no_http_request_harms_nobody(
    server: LocalQueueServer, strict: Queue, sent: bytes, status: bytes
) -> None:
    """Garbage, and bodies past 64 MiB, are refused, and the server goes on."""
    with connect(server) as connection:
        # The server may have refused and hung up before it has read everything.
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
        assert status in connection.recv(100)
    strict.send("1")
    assert strict.bodies() == ["1"]


def test_request_that_breaks_off_has_no_effect(server: LocalQueueServer, strict: Queue) -> None:
    """A connection that closes in the middle of a body changes nothing, and is no defect of the server."""
    body = json.dumps(
        {"QueueUrl": strict.url, "MessageBody": "b", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    ).encode()
    head = f"POST / HTTP/1.1\r\nHost: h\r\nX-Amz-Target: AmazonSQS.SendMessage\r\nContent-Length: {len(body)}"
    with connect(server) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body[:-1])
    assert strict.bodies() == []
    assert "SendMessage" not in server.requests.counts()


def test_defect_of_the_server_is_answered_and_then_raised_by_stop() -> None:
    """A request that the server fails on is HTTP 500 to the client and an error to who stops it."""
    server = LocalQueueServer(queues=["a.fifo"])
    server.start()

    def break_down(event: object) -> None:
        raise ZeroDivisionError

    server.run(lambda model: model.on_event(break_down))
    client = make_client(server.endpoint_url)
    assert code_of(lambda: Queue(client, name="a.fifo").send("1")) == "InternalFailure"
    client.close()
    with pytest.raises(RuntimeError, match="failed to handle a request") as caught:
        server.stop()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    server.stop()


def test_server_that_cannot_start_says_so_where_it_was_started() -> None:
    """What stops a start is raised by start(), and nothing runs afterwards."""
    server = LocalQueueServer(port=70_000)
    with pytest.raises(OverflowError):
        server.start()
    server.stop()
    with pytest.raises(RuntimeError, match="does not run"):
        server.run(lambda model: None)


def call_as(host: str, server: LocalQueueServer, action: str, request: dict[str, Any]) -> Any:
    """The content of an answer to a client that calls the server by the name `host`."""
    where = urlsplit(server.endpoint_url)
    assert where.hostname is not None
    with contextlib.closing(http.client.HTTPConnection(where.hostname, where.port, timeout=10)) as connection:
        headers = {"Host": host, "X-Amz-Target": f"AmazonSQS.{action}"}
        connection.request("POST", "/", json.dumps(request), headers)
        return json.loads(connection.getresponse().read())


def test_queue_urls_name_the_host_that_the_client_called(server: LocalQueueServer) -> None:
    """A container that knows the server as `queue:9324` gets URLs that it can call; Python gets its own."""
    url = "http://queue:9324/000000000000/a.fifo"
    attributes = {"FifoQueue": "true"}
    for _ in range(2):
        created = call_as("queue:9324", server, "CreateQueue", {"QueueName": "a.fifo", "Attributes": attributes})
        assert created == {"QueueUrl": url}
    assert call_as("queue:9324", server, "GetQueueUrl", {"QueueName": "a.fifo"}) == {"QueueUrl": url}
    assert call_as("queue:9324", server, "ListQueues", {}) == {"QueueUrls": [url]}
    assert server.queue_url("a.fifo") == f"{server.endpoint_url}/000000000000/a.fifo"
    message = {"MessageBody": "b", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    assert "MessageId" in call_as("queue:9324", server, "SendMessage", {"QueueUrl": url, **message})


def test_request_that_names_no_host_gets_the_servers_own(server: LocalQueueServer) -> None:
    """HTTP 1.0 knows no Host header."""
    server.run(lambda model: model.call("CreateQueue", {"QueueName": "a.fifo", "Attributes": {"FifoQueue": "true"}}))
    with connect(server) as connection:
        connection.sendall(b"POST / HTTP/1.0\r\nX-Amz-Target: AmazonSQS.ListQueues\r\nContent-Length: 2\r\n\r\n{}")
        answer = b"".join(iter(lambda: connection.recv(1_000), b""))
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"QueueUrls": [server.queue_url("a.fifo")]}


@pytest.mark.parametrize(("host", "shown"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("127.0.0.1", "127.0.0.1")])
def test_endpoint_of_a_server_on_all_addresses_can_be_called(host: str, shown: str) -> None:
    """0.0.0.0 and :: can be listened on and not called: the endpoint and the queue URLs name this machine."""
    if ":" in host:
        try:
            socket.create_server((host, 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("this machine has no IPv6")
    with LocalQueueServer(host=host, queues=["a.fifo"]) as server:
        port = urlsplit(server.endpoint_url).port
        assert server.endpoint_url == f"http://{shown}:{port}"
        assert server.queue_url("a.fifo") == f"http://{shown}:{port}/000000000000/a.fifo"
        client = make_client(server.endpoint_url)
        assert client.list_queues()["QueueUrls"] == [server.queue_url("a.fifo")]
        client.close()


# Long polling. The clock stands still, so that nothing but what the test does can end a wait.


class Polls:
    """Long polls in the background, one thread each."""

    def __init__(self, server: LocalQueueServer, queue: Queue, pool: ThreadPoolExecutor) -> None:
        self.server = server
        self.queue = queue
        self._pool = pool

    def begin(self, **request: Any) -> Future[list[str]]:
        """Start one, and return when the server holds it."""
        before = self.server.waiting
        poll = self._pool.submit(self.queue.bodies, WaitTimeSeconds=20, **request)
        wait_until(lambda: self.server.waiting == before + 1, 10, "the long poll waits")
        return poll


@pytest.fixture
def no_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but requests wakes a long poll: no timer hides a wake-up that was forgotten."""
    monkeypatch.setattr("sqs_fifo_spark.local.waiting._TICK_S", 3_600)


@pytest.fixture
def polls(server: LocalQueueServer, strict: Queue) -> Any:
    with ThreadPoolExecutor(8) as pool:
        yield Polls(server, strict, pool)
        server.stop()


@pytest.mark.usefixtures("no_tick")
def test_long_poll_wakes_when_a_message_is_sent(polls: Polls, strict: Queue) -> None:
    """A send ends the wait at once."""
    poll = polls.begin()
    strict.send("1")
    assert poll.result(10) == ["1"]


@pytest.mark.usefixtures("no_tick")
def test_long_poll_wakes_when_a_delete_unlocks_the_group(polls: Polls, strict: Queue) -> None:
    """The last delete of what is in flight ends the wait for what follows."""
    strict.send("1")
    message = strict.receive()[0]
    strict.send("2")
    poll = polls.begin()
    strict.delete(message)
    assert poll.result(10) == ["2"]


@pytest.mark.usefixtures("no_tick")
def test_long_poll_wakes_when_a_message_is_released(polls: Polls, strict: Queue) -> None:
    """Visibility 0 ends the wait."""
    strict.send("1")
    message = strict.receive()[0]
    poll = polls.begin()
    strict.hide(message, 0)
    assert poll.result(10) == ["1"]


def test_long_poll_wakes_when_a_visibility_timeout_lapses(polls: Polls, strict: Queue, clock: ManualClock) -> None:
    """A lapse ends the wait, on a clock turned by hand too."""
    strict.send("1")
    strict.receive(VisibilityTimeout=5)
    poll = polls.begin()
    clock.advance(5)
    assert poll.result(10) == ["1"]


@pytest.mark.usefixtures("no_tick")
def test_long_poll_wakes_when_a_message_arrives_by_redrive(polls: Polls, strict: Queue, clock: ManualClock) -> None:
    """A move into the queue ends the wait, though another queue's receive caused it."""
    arns = strict.client.get_queue_attributes(QueueUrl=strict.url, AttributeNames=["QueueArn"])
    policy = {"deadLetterTargetArn": arns["Attributes"]["QueueArn"], "maxReceiveCount": 1}
    source = strict.another(RedrivePolicy=json.dumps(policy))
    source.send("1")
    source.receive(VisibilityTimeout=1)
    poll = polls.begin()
    clock.advance(1)
    assert source.bodies() == []
    assert poll.result(10) == ["1"]


def test_long_poll_ends_empty_when_its_time_is_up(polls: Polls, clock: ManualClock) -> None:
    """After WaitTimeSeconds the answer is empty."""
    poll = polls.begin()
    clock.advance(20)
    assert poll.result(10) == []


def test_long_poll_waits_as_long_as_the_queue_says(
    polls: Polls, server: LocalQueueServer, strict: Queue, clock: ManualClock
) -> None:
    """Without WaitTimeSeconds, the queue's ReceiveMessageWaitTimeSeconds counts."""
    strict.client.set_queue_attributes(QueueUrl=strict.url, Attributes={"ReceiveMessageWaitTimeSeconds": "3"})
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(strict.bodies)
        wait_until(lambda: server.waiting == 1, 10, "the long poll waits")
        clock.advance(3)
        assert poll.result(10) == []


def test_long_polls_are_served_in_the_order_of_their_coming(polls: Polls, strict: Queue) -> None:
    """Who has waited longest gets the next message."""
    waiting = [polls.begin() for _ in range(3)]
    for number, poll in enumerate(waiting):
        strict.send(str(number), f"g{number}")
        assert poll.result(10) == [str(number)]


@pytest.mark.usefixtures("no_tick")
def test_newcomer_takes_nothing_from_those_who_wait(polls: Polls, strict: Queue, clock: ManualClock) -> None:
    """What lapsed goes to the long poll that waits, even if a later receive is the first to see it."""
    strict.send("1")
    strict.receive(VisibilityTimeout=5)
    poll = polls.begin()
    clock.advance(5)
    assert strict.bodies() == []
    assert poll.result(10) == ["1"]


@pytest.mark.usefixtures("no_tick")
def test_long_polls_with_one_attempt_id_get_the_same_messages(polls: Polls, strict: Queue) -> None:
    """A client that asked again while its first poll still waits gets one answer twice, ahead of others."""
    first = polls.begin(ReceiveRequestAttemptId="try")
    other = polls.begin()
    again = polls.begin(ReceiveRequestAttemptId="try")
    strict.send("1", "a")
    assert first.result(10) == again.result(10) == ["1"]
    strict.send("2", "b")
    assert other.result(10) == ["2"]
    assert strict.receive(ReceiveRequestAttemptId="try")[0]["Attributes"]["ApproximateReceiveCount"] == "1"


@pytest.mark.usefixtures("no_tick")
def test_long_poll_whose_attempt_became_void_fails_alone(polls: Polls, server: LocalQueueServer, strict: Queue) -> None:
    """Of two long polls, the one whose attempt id was used up meanwhile is void, and the other goes on."""
    void = polls.begin(ReceiveRequestAttemptId="try")
    other = polls.begin()

    def use_up(model: FifoModel) -> None:
        queue = {"QueueUrl": strict.url}
        message = {"MessageBody": "1", "MessageGroupId": "g"}
        model.call("SendMessage", {**queue, **message, "MessageDeduplicationId": "1"})
        taken = model.call("ReceiveMessage", {**queue, "ReceiveRequestAttemptId": "try"})["Messages"][0]
        model.call("DeleteMessage", {**queue, "ReceiptHandle": taken["ReceiptHandle"]})
        model.call("SendMessage", {**queue, **message, "MessageBody": "2", "MessageDeduplicationId": "2"})

    server.run(use_up)
    assert other.result(10) == ["2"]
    assert code_of(lambda: void.result(10)) == "InvalidParameterValue"


def test_long_poll_of_a_deleted_queue_is_an_error(polls: Polls, strict: Queue) -> None:
    """Who waits for a queue that goes away is told."""
    poll = polls.begin()
    strict.client.delete_queue(QueueUrl=strict.url)
    assert code_of(lambda: poll.result(10)) == "AWS.SimpleQueueService.NonExistentQueue"


def test_client_that_left_swallows_no_message(server: LocalQueueServer, strict: Queue) -> None:
    """A long poll whose connection closed receives nothing afterwards, and counts as gone."""
    where = urlsplit(server.endpoint_url)
    assert where.hostname is not None
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=10)
    request = {"QueueUrl": strict.url, "WaitTimeSeconds": 20}
    connection.request("POST", "/", json.dumps(request), {"X-Amz-Target": "AmazonSQS.ReceiveMessage"})
    wait_until(lambda: server.waiting == 1, 10, "the long poll waits")
    connection.close()
    wait_until(lambda: server.waiting == 0, 10, "the server notices that the client left")
    strict.send("1")
    assert strict.receive()[0]["Attributes"]["ApproximateReceiveCount"] == "1"
    assert server.requests.recent("ReceiveMessage")[0].outcome == "gone"


def test_no_two_servers_share_an_id(strict: Queue) -> None:
    """Nor a receipt handle: another server's, of a queue of the same name, is none here."""
    with LocalQueueServer() as other:
        elsewhere = Queue(other.client, name=strict.name)
        for name in ("MessageId", "SequenceNumber"):
            assert strict.send("1")[name] != elsewhere.send("1")[name]
        [message] = elsewhere.receive(1)
        with pytest.raises(strict.client.exceptions.ReceiptHandleIsInvalid):
            strict.delete(message)
        elsewhere.delete(message)


def test_servers_with_the_same_seed_share_their_ids() -> None:
    """So a run can be repeated."""

    def seen() -> tuple[Any, Any]:
        with LocalQueueServer(clock=ManualClock(), seed=1) as server:
            queue = Queue(server.client, name="seeded.fifo")
            return queue.send("1")["SequenceNumber"], queue.receive()

    assert seen() == seen()


def test_waiter_whose_connection_is_closing_is_passed_over() -> None:
    """Even before its handler has noticed, a client that left is not served."""
    clock = ManualClock()
    model = FifoModel(clock)
    url = model.call("CreateQueue", {"QueueName": "a.fifo", "Attributes": {"FifoQueue": "true"}})["QueueUrl"]

    async def scene() -> dict[str, Any]:
        room = WaitingRoom(model, clock)

        def waiter(is_gone: bool) -> Waiter:
            receive = partial(model.call, "ReceiveMessage", {"QueueUrl": url})
            return Waiter(url, receive, lambda: is_gone, clock.now() + 20)

        left, stayed = (asyncio.create_task(room.wait(waiter(is_gone))) for is_gone in (True, False))
        while room.count < 2:
            await asyncio.wait([left, stayed], timeout=0.001)
        message = {"MessageBody": "b", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
        model.call("SendMessage", {"QueueUrl": url, **message})
        room.serve()
        answer = await stayed
        left.cancel()
        await asyncio.wait([left])
        assert room.count == 0
        return answer

    assert len(asyncio.run(scene())["Messages"]) == 1


def test_stopping_answers_long_polls_and_frees_the_port(strict: Queue) -> None:
    """A stop ends every wait with an empty answer and takes no more requests."""
    server = LocalQueueServer(queues=["a.fifo"])
    server.start()
    client = make_client(server.endpoint_url)
    queue = Queue(client, name="a.fifo")
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(queue.bodies, WaitTimeSeconds=20)
        wait_until(lambda: server.waiting == 1, 10, "the long poll waits")
        server.stop()
        assert poll.result(10) == []
    client.close()
    port = urlsplit(server.endpoint_url).port
    assert port is not None
    with LocalQueueServer(port=port) as again:
        assert again.endpoint_url == server.endpoint_url


def test_taken_port_is_an_error_of_the_caller(server: LocalQueueServer) -> None:
    """Starting on a port that is in use raises OSError where start was called."""
    port = urlsplit(server.endpoint_url).port
    assert port is not None
    with pytest.raises(OSError, match="in use"):
        LocalQueueServer(port=port).start()


def test_concurrent_receives_never_get_the_same_message(strict: Queue) -> None:
    """Eight clients at once drain a queue, and each message goes to one of them, in group order."""
    for number in range(100):
        strict.send(str(number), f"g{number % 5}")
    taken: list[list[int]] = [[] for _ in range(5)]
    lock = threading.Lock()

    def drain() -> None:
        while True:
            messages = strict.receive()
            if not messages and not strict.client.get_queue_attributes(QueueUrl=strict.url, AttributeNames=["All"])[
                "Attributes"
            ]["ApproximateNumberOfMessages"].strip("0"):
                return
            with lock:
                for message in messages:
                    taken[int(message["Body"]) % 5].append(int(message["Body"]))
            for message in messages:
                strict.delete(message)

    with ThreadPoolExecutor(8) as pool:
        for worker in [pool.submit(drain) for _ in range(8)]:
            worker.result(30)
    assert taken == [list(range(group, 100, 5)) for group in range(5)]
