"""The local queue's server: requests of every kind, its addresses, its start and its end."""

from __future__ import annotations

import contextlib
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest

from sqs_fifo_spark.local import LocalQueueServer
from tests.contract.conftest import Queue, code_of, make_client
from tests.helpers import wait_until
from tests.manual_clock import ManualClock
from tests.unit.local.caller import exchange

FIFO = {"FifoQueue": "true"}
MESSAGE = {"MessageBody": "b", "MessageGroupId": "g", "MessageDeduplicationId": "d"}


def address(server: LocalQueueServer) -> tuple[str, int]:
    where = urlsplit(server.endpoint_url)
    return str(where.hostname), int(where.port or 0)


def call_as(host: str, server: LocalQueueServer, action: str, request: dict[str, Any]) -> Any:
    """The content of an answer to a client that calls the server by the name `host`."""
    headers = {"Host": host, "X-Amz-Target": f"AmazonSQS.{action}"}
    return exchange(server.endpoint_url, "/", request, headers)[1]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"Action=ListQueues", {"Content-Type": "text/plain"}),
        (b"{", {"X-Amz-Target": "AmazonSQS.ListQueues"}),
        (b"[]", {"X-Amz-Target": "AmazonSQS.ListQueues"}),
        (b'{"QueueUrl": 1}', {"X-Amz-Target": "AmazonSQS.ReceiveMessage"}),
        (b'{"QueueUrl": "q", "Entries": 1}', {"X-Amz-Target": "AmazonSQS.SendMessageBatch"}),
    ],
)
def test_what_is_no_sqs_request_is_refused(server: LocalQueueServer, body: bytes, headers: dict[str, str]) -> None:
    """Whatever comes in, the answer is a 400 in AWS's form, and the server goes on."""
    status, content = exchange(server.endpoint_url, "/", body, headers)
    assert status == 400
    assert content["__type"].startswith("com.amazonaws.sqs#")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"garbage\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 70000000\r\n\r\n" + b"x" * 70_000_000, b"413"),
    ],
)
def test_what_is_no_request_harms_nobody(server: LocalQueueServer, strict: Queue, sent: bytes, status: bytes) -> None:
    """Garbage, and bodies past 64 MiB, are refused, and the server goes on."""
    with socket.create_connection(address(server), timeout=10) as connection:
        # The server may have refused and hung up before it has read everything.
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
        assert status in connection.recv(100)
    strict.send("1")
    assert strict.bodies() == ["1"]


def test_request_that_breaks_off_has_no_effect(server: LocalQueueServer, strict: Queue) -> None:
    """A connection that closes in the middle of a body changes nothing, and is no defect of the server."""
    body = json.dumps({"QueueUrl": strict.url, **MESSAGE}).encode()
    head = f"POST / HTTP/1.1\r\nHost: h\r\nX-Amz-Target: AmazonSQS.SendMessage\r\nContent-Length: {len(body)}"
    with socket.create_connection(address(server), timeout=10) as connection:
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
    """An error at the start is raised by start(), and nothing runs afterwards."""
    server = LocalQueueServer(port=70_000)
    with pytest.raises(OverflowError):
        server.start()
    server.stop()
    with pytest.raises(RuntimeError, match="does not run"):
        server.run(lambda model: None)


def test_queue_urls_name_the_host_that_the_client_called(server: LocalQueueServer) -> None:
    """A container that knows the server as `queue:9324` gets URLs that it can call; Python gets its own."""
    url = "http://queue:9324/000000000000/a.fifo"
    for _ in range(2):
        created = call_as("queue:9324", server, "CreateQueue", {"QueueName": "a.fifo", "Attributes": FIFO})
        assert created == {"QueueUrl": url}
    assert call_as("queue:9324", server, "GetQueueUrl", {"QueueName": "a.fifo"}) == {"QueueUrl": url}
    assert call_as("queue:9324", server, "ListQueues", {}) == {"QueueUrls": [url]}
    assert server.queue_url("a.fifo") == f"{server.endpoint_url}/000000000000/a.fifo"
    assert "MessageId" in call_as("queue:9324", server, "SendMessage", {"QueueUrl": url, **MESSAGE})


def test_request_that_names_no_host_gets_the_servers_own(server: LocalQueueServer) -> None:
    """HTTP 1.0 knows no Host header."""
    server.run(lambda model: model.call("CreateQueue", {"QueueName": "a.fifo", "Attributes": FIFO}))
    with socket.create_connection(address(server), timeout=10) as connection:
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
        port = address(server)[1]
        assert server.endpoint_url == f"http://{shown}:{port}"
        assert server.queue_url("a.fifo") == f"http://{shown}:{port}/000000000000/a.fifo"
        client = make_client(server.endpoint_url)
        assert client.list_queues()["QueueUrls"] == [server.queue_url("a.fifo")]
        client.close()


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
    with LocalQueueServer(port=address(server)[1]) as again:
        assert again.endpoint_url == server.endpoint_url


def test_taken_port_is_an_error_of_the_caller(server: LocalQueueServer) -> None:
    """Starting on a port that is in use raises OSError where start was called."""
    with pytest.raises(OSError, match="in use"):
        LocalQueueServer(port=address(server)[1]).start()
