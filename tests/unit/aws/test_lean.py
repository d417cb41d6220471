"""The lean calls: to SQS and to us they are boto3's, in what is sent, in what comes back, and in how it fails."""

from __future__ import annotations

import base64
import json
import logging
import socket
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import botocore.auth
import botocore.awsrequest
import botocore.exceptions
import botocore.parsers
import pytest
from botocore.credentials import Credentials

from sqs_fifo_spark.aws import client as aws
from sqs_fifo_spark.aws import credentials, form, lean
from sqs_fifo_spark.aws.sdk_logs import without_sdk_logs
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import AccessDeniedError, TransientQueueError
from sqs_fifo_spark.local import LocalQueueServer
from sqs_fifo_spark.options import AWS_CHAIN
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.message import Receipt
from tests.helpers import run_python, wait_until
from tests.unit.aws.answering import Answer, Answering, answering, make_authority, source_queue

URL = "https://sqs.us-east-1.amazonaws.com/123456789012/bids.fifo"
TOKEN, BODY = "TOKEN-77aa", "BODY-77aa"

REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "receive_message": {
        "QueueUrl": URL,
        "MaxNumberOfMessages": 10,
        "WaitTimeSeconds": 0,
        "ReceiveRequestAttemptId": "a",
        "MessageSystemAttributeNames": ["SenderId", "SequenceNumber"],
        "MessageAttributeNames": ["All"],
    },
    "delete_message_batch": {"QueueUrl": URL, "Entries": [{"Id": "0", "ReceiptHandle": "AQ=="}]},
    "change_message_visibility_batch": {
        "QueueUrl": URL,
        "Entries": [{"Id": "0", "ReceiptHandle": "AQ==", "VisibilityTimeout": 0}],
    },
    "send_message_batch": {
        "QueueUrl": URL,
        "Entries": [
            {
                "Id": "0",
                "MessageBody": f'{BODY} "ü€𐍈" \u2028',
                "MessageGroupId": "g",
                "MessageDeduplicationId": "d",
                "MessageAttributes": {
                    "BinaryValue": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff"},
                    "empty": {"DataType": "Binary", "BinaryValue": bytearray()},
                    "ünï": {"DataType": "String", "StringValue": "ü€𐍈"},
                },
            }
        ],
    },
}
RECEIVE, DELETE = REQUESTS["receive_message"], REQUESTS["delete_message_batch"]
FAILED = {"Id": "1", "Code": "ReceiptHandleIsInvalid", "SenderFault": True, "Message": "no"}


def build(url: str, transport: str = "lean") -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(lean.TRANSPORT_VARIABLE, transport)
        client = aws.sqs_client(aws.ClientConfig("us-east-1", url, replace(AWS_CHAIN, role_session_name=transport)))
    assert isinstance(client, lean.LeanClient) is (transport == "lean")
    return client


def outcome(client: Any, operation: str = "receive_message") -> object:
    """Return a call's outcome, as far as anybody sees it."""
    try:
        answer = getattr(client, operation)(**REQUESTS[operation])
    except botocore.exceptions.ClientError as error:
        text = str(error).replace(" (reached max retries: 0)", "")
        return (
            type(error).__name__,
            text,
            error.response.get("Error"),
            error.response["ResponseMetadata"]["HTTPStatusCode"],
        )
    except Exception as error:
        return type(error)
    return {name: value for name, value in answer.items() if name != "ResponseMetadata"}


@contextmanager
def listening(serve: Callable[[socket.socket], object]) -> Iterator[str]:
    """Let this serve the first who connects, in a thread of its own; the URL."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def accept() -> None:
            connection, _ = listener.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def read_request(connection: socket.socket) -> None:
    taken = b""
    while not taken.endswith(b"}"):
        taken += connection.recv(65_536)


class Pair:
    """A server, our client of it, and boto3's."""

    def __init__(self, server: Answering) -> None:
        self.server = server
        self.clients = [build(server.url, transport) for transport in ("lean", "boto3")]

    def outcomes(self, operation: str = "receive_message", answer: Answer | None = None) -> list[object]:
        """Return our outcome, then boto3's."""
        self.server.asked.clear()
        self.server.answer = answer or Answer()
        ended = [outcome(client, operation) for client in self.clients]
        assert len(self.server.asked) == 2
        return ended


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with answering() as running:
        yield Pair(running)


# What is sent, and what comes back


@pytest.mark.parametrize("operation", list(REQUESTS))
def test_a_request_is_the_one_that_boto3_makes(pair: Pair, operation: str) -> None:
    """Its content byte for byte, its headers but for those that only tell of boto3's own retries."""
    pair.outcomes(operation)
    ours, theirs = pair.server.asked
    assert (ours.path, ours.content) == (theirs.path, theirs.content)
    differing = {"authorization", "x-amz-date", "amz-sdk-invocation-id", "amz-sdk-request"}
    assert {**ours.headers, **dict.fromkeys(differing)} == {**theirs.headers, **dict.fromkeys(differing)}

    def scope(authorization: str) -> str:
        return authorization.partition(", Signature=")[0]

    assert scope(ours.headers["authorization"]) == scope(theirs.headers["authorization"])


def received(**more: Any) -> dict[str, Any]:
    message = {"MessageId": "m", "ReceiptHandle": "AQ==", "MD5OfBody": "0", "Body": "ü€𐍈 \u2028 null BinaryValue"}
    return {**message, "Attributes": {"SenderId": "s", "SequenceNumber": "1"}, **more}


PICTURE = {"DataType": "Binary.png", "BinaryValue": base64.b64encode(b"\x00\xff").decode()}


@pytest.mark.parametrize(
    ("operation", "content"),
    [
        ("receive_message", {}),
        ("receive_message", {"Messages": []}),
        ("receive_message", {"Messages": None}),
        ("receive_message", b""),
        ("receive_message", {"Messages": [received(), received(MessageAttributes=None, MD5OfMessageAttributes=None)]}),
        (
            "receive_message",
            {
                "Messages": [
                    received(
                        MessageAttributes={
                            "BinaryValue": PICTURE,
                            "none": {"DataType": "String", "StringValue": "x", "BinaryValue": None},
                            "empty": {"DataType": "Binary", "BinaryValue": ""},
                        }
                    )
                ]
            },
        ),
        ("delete_message_batch", {"Successful": [{"Id": "0"}]}),
        ("delete_message_batch", {"Successful": [], "Failed": [FAILED]}),
        ("delete_message_batch", {"Successful": None, "Failed": [{**FAILED, "Message": None}]}),
        ("change_message_visibility_batch", {"Successful": [{"Id": "0"}], "Failed": []}),
        (
            "send_message_batch",
            {"Successful": [{"Id": "0", "MessageId": "m", "MD5OfMessageBody": "0", "SequenceNumber": "188"}]},
        ),
        ("send_message_batch", {"Failed": [FAILED]}),
    ],
)
def test_an_answer_is_the_one_that_boto3_gives(pair: Pair, operation: str, content: object) -> None:
    """A null value is left out, a binary one is bytes, and nothing is made up."""
    ours, theirs = pair.outcomes(operation, Answer(content))
    assert ours == theirs
    assert isinstance(ours, dict)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(
            {"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "no queue"},
            400,
            {"x-amzn-query-error": "AWS.SimpleQueueService.NonExistentQueue;Sender"},
        ),
        Answer({"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "no queue"}, 400),
        Answer({"__type": "QueueDoesNotExist", "Message": "no queue"}, 400),
        Answer({"__type": "ThrottlingException:http://x/", "message": "slow down"}, 400),
        Answer({"__type": "com.amazonaws.sqs#KmsThrottled"}, 400, {"x-amzn-query-error": "KMS.ThrottlingException;X"}),
        Answer({"__type": "x#OverLimit"}, 403, {"x-amzn-query-error": "OverLimit;Sender"}),
        Answer({"__type": "x#ReceiptHandleIsInvalid", "message": "ü"}, 404, {"x-amzn-query-error": "nonsense"}),
        Answer({"__type": "com.amazon.coral.service#ExpiredTokenException"}, 403),
        Answer({}, 400),
        Answer(b"", 400),
        Answer(b"", 413),
        Answer(b"<AccessDenied/>", 403),
        Answer(b"slow", 429),
        Answer(b"", 500),
        Answer(b"<ErrorResponse><Error><Code>InternalError</Code></Error></ErrorResponse>", 500),
        Answer(b"<html><body>Service Unavailable</body></html>", 503),
        Answer(b" \n", 502),
        Answer(b"", 301, {"location": "http://127.0.0.1:1/"}),
        Answer(b"", 300),
    ],
)
def test_a_refusal_is_the_one_that_boto3_raises(pair: Pair, answer: Answer) -> None:
    """The same class, code, text and status, so that one table has both."""
    ours, theirs = pair.outcomes(answer=answer)
    assert ours == theirs
    assert isinstance(ours, tuple)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(b"<html>Sign in to this network</html>"),
        Answer(b"[]"),
        Answer(b'{"Messages": [], "a": "\xff"}'),
        Answer({"Messages": [received(MessageAttributes={"a": {"BinaryValue": "abc"}})]}),
        Answer(b'{"a": ' + b"[" * 100_000),
        Answer(b"\xff", 500),
        Answer(b"[]", 400),
        Answer(b"[" * 100_000, 400),
        Answer({"Messages": [received()]}, is_cut=True),
        Answer({"Messages": [received()]}, has_cut_head=True),
    ],
)
def test_what_cannot_be_read_is_no_answer(pair: Pair, answer: Answer) -> None:
    """Tried again, it may be one. boto3 takes some of them for an answer without messages: they would stay hidden."""
    pair.server.answer = answer
    with pytest.raises((botocore.parsers.ResponseParserError, botocore.exceptions.ConnectionClosedError)):
        pair.clients[0].receive_message(**RECEIVE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer({}, 102), botocore.exceptions.ConnectionClosedError),
        (Answer({}, 103), botocore.exceptions.ConnectionClosedError),
        (Answer(b"", 204), botocore.exceptions.ConnectionClosedError),
        (Answer({}, 202), botocore.exceptions.ConnectionClosedError),
        (Answer(b"<html>"), botocore.parsers.ResponseParserError),
        (Answer({"__type": "x"}, 408), botocore.exceptions.ClientError),
        (Answer(b"", 503), botocore.exceptions.ClientError),
    ],
)
def test_behind_a_strange_answer_another_may_follow(server: Answering, answer: Answer, error: type[Exception]) -> None:
    """SQS never gives one of these. It would be taken for that of the next call, whose entries it would confirm."""
    client = build(server.url)
    server.answer = answer
    with pytest.raises(error):
        client.receive_message(**RECEIVE)
    server.answer = Answer()
    assert client.receive_message(**RECEIVE) == {}
    assert [asked.connection for asked in server.asked] == [1, 2]
    assert client._pool.pool.full(), "a place in the pool is lost"


@pytest.mark.parametrize("value", ["keep-alive", "Keep-Alive"])
def test_an_answer_of_sqs_is_read_by_its_length(server: Answering, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by http.client, which takes longer."""
    monkeypatch.setattr("http.client.HTTPResponse", None)
    server.answer = Answer({"Messages": []}, headers={"x-amzn-RequestId": "r", "connection": value})
    assert build(server.url).receive_message(**RECEIVE) == {"Messages": []}


# Address and signature


class _Sent(Exception):
    """The request that boto3 was about to send."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("region", "environment", "host"),
    [
        ("eu-west-1", {}, "sqs.eu-west-1.amazonaws.com"),
        ("cn-north-1", {}, "sqs.cn-north-1.amazonaws.com.cn"),
        ("us-east-2", {"AWS_USE_FIPS_ENDPOINT": "true"}, "sqs-fips.us-east-2.amazonaws.com"),
        ("us-east-2", {"AWS_USE_DUALSTACK_ENDPOINT": "true"}, "sqs.us-east-2.api.aws"),
        ("us-east-2", {"AWS_ENDPOINT_URL_SQS": "https://vpce-1.sqs.example.com"}, "vpce-1.sqs.example.com"),
        ("us-east-2", {"AWS_ENDPOINT_URL": "http://127.0.0.1:4566"}, "127.0.0.1:4566"),
    ],
)
def test_the_host_is_the_one_that_boto3_finds(
    monkeypatch: pytest.MonkeyPatch, region: str, environment: Mapping[str, str], host: str
) -> None:
    """Whatever names it, and whatever the queue's URL says."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    client = aws.sqs_client(aws.ClientConfig(region, None))

    def stop(*, request: Any, **_: Any) -> None:
        raise _Sent(request.url)

    client.meta.events.register("before-send.sqs", stop)
    with pytest.raises(_Sent) as sent:
        client.get_queue_attributes(QueueUrl=URL)
    assert client._url == sent.value.args[0] == f"{'http' if ':' in host else 'https'}://{host}/"
    assert client._pool.scheme == ("http" if ":" in host else "https")
    assert host in (client._pool.host, f"{client._pool.host}:{client._pool.port}")


@pytest.mark.slow
@pytest.mark.parametrize("token", [None, TOKEN, " of  two words\t"])
@pytest.mark.parametrize(
    ("region", "url"), [("us-east-1", "http://127.0.0.1:4566"), ("eu-west-1", None), ("cn-north-1", "https://[::1]")]
)
def test_a_signature_is_the_one_that_botocore_gives(region: str, url: str | None, token: str | None) -> None:
    """For the same request at the same time, with nothing left out."""
    client = aws.sqs_client(aws.ClientConfig(region, url))
    credentials = Credentials("AKIDEXAMPLE", "secret", token).get_frozen_credentials()
    body = b'{"QueueUrl": "x"}'
    for each in client._forms.values():
        _, *lines = each.head_for(body, credentials).decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:])
        signature = headers.pop("Authorization")
        assert headers.pop("Content-Length") == str(len(body))
        assert headers.get("X-Amz-Security-Token") == token
        request = botocore.awsrequest.AWSRequest("POST", each.url, headers=headers, data=body)
        request.context["timestamp"] = headers["X-Amz-Date"]
        signer = botocore.auth.SigV4Auth(credentials, "sqs", region)
        wanted = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
        names = signer.signed_headers(signer.headers_to_sign(request))
        assert signature == (
            f"AWS4-HMAC-SHA256 Credential={signer.scope(request)}, SignedHeaders={names}, Signature={wanted}"
        )
        assert {"host", "x-amz-date", "x-amz-target"} <= set(names.split(";"))


@pytest.mark.parametrize("token", [f"{TOKEN}\nx: y", f"{TOKEN}\r", f"{TOKEN}€", f"{TOKEN}\x00"])
def test_a_token_that_no_header_may_have_is_not_sent(server: Answering, token: str) -> None:
    """Nor told."""
    credentials = Credentials("AKIDEXAMPLE", "secret", token)
    client = lean.LeanClient(build(server.url, "boto3"), credentials)
    with pytest.raises(form.IllegalHeaderError) as caught:
        client.receive_message(**RECEIVE)
    assert TOKEN not in "".join(traceback.format_exception(caught.value))
    assert not caught.value.__context__
    assert not server.asked


# Connections


def test_a_connection_is_kept_and_a_closed_one_is_found(server: Answering) -> None:
    """It is found before anything is sent: no request is sent twice."""
    client = build(server.url)
    client.receive_message(**RECEIVE)
    server.answer = Answer(closes=True)
    client.delete_message_batch(**DELETE)
    assert client._pool.pool.queue[-1].sock.recv(1, socket.MSG_PEEK) == b"", "the server has closed it"
    client.receive_message(**RECEIVE)
    assert [asked.connection for asked in server.asked] == [1, 1, 2]


def test_a_client_for_long_polls_is_the_same_with_more_time(server: Answering) -> None:
    """Another one would be built once more, assume the role once more, and open connections of its own."""
    client = build(server.url)
    client.delete_message_batch(**DELETE)
    config = aws.ClientConfig("us-east-1", server.url, replace(AWS_CHAIN, role_session_name="lean"))
    patient = aws.sqs_client(config, 20)
    assert "Messages" not in patient.receive_message(**RECEIVE)
    assert [asked.connection for asked in server.asked] == [1, 1]
    assert (client._read_timeout, patient._read_timeout) == (aws.READ_TIMEOUT_S, 20 + aws.READ_TIMEOUT_S)
    assert aws.sqs_client(config, 20) is patient


def test_a_connection_that_the_server_ends_is_not_used_again(server: Answering) -> None:
    """Its last answer is whole."""
    client = build(server.url)
    server.answer = Answer({"Messages": [received(Body="x" * 200_000)]}, headers={"connection": "close"})
    for _ in range(2):
        (message,) = client.receive_message(**RECEIVE)["Messages"]
        assert len(message["Body"]) == 200_000
    assert [asked.connection for asked in server.asked] == [1, 2]


@pytest.mark.parametrize("transport", ["lean", "boto3"])
def test_a_connection_that_is_closed_without_an_answer_is_no_resend(server: Answering, transport: str) -> None:
    """SQS may have taken the request: what happens next is the caller's decision. The next call has a new one."""
    client = build(server.url, transport)
    client.receive_message(**RECEIVE)
    server.answer = Answer(status=0)
    with pytest.raises(botocore.exceptions.ConnectionClosedError):
        client.receive_message(**RECEIVE)
    server.answer = Answer()
    assert "Messages" not in client.receive_message(**RECEIVE)
    assert [asked.connection for asked in server.asked] == [1, 1, 2]


def test_an_answer_to_half_a_request_is_taken(server: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQS may refuse a long request by its head, and close."""
    send = aws._HttpConnection.send

    def pipe_breaks(connection: Any, data: bytes) -> None:
        send(connection, data)
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(aws._HttpConnection, "send", pipe_breaks)
    server.answer = Answer({"__type": "RequestEntityTooLarge"}, 413)
    with pytest.raises(botocore.exceptions.ClientError, match="RequestEntityTooLarge"):
        build(server.url).receive_message(**RECEIVE)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["lean", "boto3"])
def test_an_answer_that_does_not_come_is_a_read_timeout(
    server: Answering, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time that it may take, which is not that of the other waits."""
    monkeypatch.setattr(aws, "READ_TIMEOUT_S", 0.2)
    monkeypatch.setattr(credentials, "CONNECT_TIMEOUT_S", 60)
    client = build(server.url, transport)
    server.hold.clear()
    begun = SYSTEM_CLOCK.monotonic()
    assert outcome(client) is botocore.exceptions.ReadTimeoutError
    assert SYSTEM_CLOCK.monotonic() - begun < 30


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["lean", "boto3"])
def test_a_request_that_is_not_taken_is_given_up(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a kept connection as on a new one, within the time that the sink counts on: not that of an answer."""
    monkeypatch.setattr(aws, "READ_TIMEOUT_S", 60)
    monkeypatch.setattr(credentials, "CONNECT_TIMEOUT_S", 0.3)
    answered, given_up = threading.Event(), threading.Event()

    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        answered.set()
        given_up.wait(60)

    with listening(serve) as url:
        client = build(url, transport)
        client.receive_message(**RECEIVE)
        assert answered.wait(60)
        big = {**REQUESTS["send_message_batch"]["Entries"][0], "MessageBody": "x" * 20_000_000}
        begun = SYSTEM_CLOCK.monotonic()
        with pytest.raises(botocore.exceptions.HTTPClientError):
            client.send_message_batch(QueueUrl=URL, Entries=[big])
        assert SYSTEM_CLOCK.monotonic() - begun < 30
        given_up.set()


@pytest.mark.parametrize("transport", ["lean", "boto3"])
def test_nobody_there_is_an_endpoint_error(transport: str) -> None:
    with socket.socket() as bound:  # so that nobody else listens there
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        assert outcome(build(url, transport)) is botocore.exceptions.EndpointConnectionError


@pytest.mark.parametrize("transport", ["lean", "boto3"])
def test_a_host_that_does_not_speak_http_is_a_closed_connection(transport: str) -> None:
    def speak(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(b"220 mail.example.com ESMTP\r\n")

    with listening(speak) as url:
        assert outcome(build(url, transport)) is botocore.exceptions.ConnectionClosedError


@pytest.mark.parametrize("is_kept", [True, False])
def test_nothing_is_sent_once_the_check_raises(server: Answering, is_kept: bool) -> None:
    """On a new connection and on one that was kept, which is not used again."""
    client = build(server.url)
    if is_kept:
        client.receive_message(**RECEIVE)

    def check() -> None:
        raise TransientQueueError("too late")

    with pytest.raises(botocore.exceptions.HTTPClientError) as told, aws.checked_before_sending(check):
        client.receive_message(**RECEIVE)
    assert isinstance(told.value.kwargs["error"], TransientQueueError)
    client.delete_message_batch(**DELETE)
    assert [asked.connection for asked in server.asked] == ([1, 2] if is_kept else [1])
    assert len(server.asked) == 1 + is_kept


def test_a_request_leaves_in_one_piece(server: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the check before it is the last word, and no half of a request is ever on its way."""
    send, pieces = aws._HttpConnection.send, list[bytes]()

    def note(connection: Any, data: bytes) -> None:
        pieces.append(data)
        send(connection, data)

    monkeypatch.setattr(aws._HttpConnection, "send", note)
    build(server.url).send_message_batch(**REQUESTS["send_message_batch"])
    (piece,) = pieces
    assert piece.endswith(server.asked[0].content)


def test_a_call_goes_on_while_its_caller_makes_another() -> None:
    """SQS takes it when it begins. Each of the two has its own answer, and the pool keeps both connections."""
    with LocalQueueServer(queues=["bids.fifo"]) as server:
        client, url = build(server.endpoint_url), server.queue_url("bids.fifo")
        entries = [
            {"Id": each, "MessageBody": each, "MessageGroupId": "g", "MessageDeduplicationId": each} for each in "ab"
        ]
        client.send_message_batch(QueueUrl=url, Entries=entries)
        (first,) = client.receive_message(QueueUrl=url, MaxNumberOfMessages=1)["Messages"]
        handle = {"Id": "0", "ReceiptHandle": first["ReceiptHandle"]}
        wait = client.begin("delete_message_batch", QueueUrl=url, Entries=[handle])
        (second,) = client.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
        assert [first["Body"], second["Body"]] == ["a", "b"]
        assert [each["Id"] for each in wait()["Successful"]] == ["0"]
        assert sum(connection is not None for connection in client._pool.pool.queue) == 2


def in_pieces(pieces: Iterator[bytes], go: threading.Event) -> AbstractContextManager[str]:
    """Answer one request with these pieces, each sent as it is made, once `go` is set; the URL."""

    def serve(connection: socket.socket) -> None:
        with suppress(OSError):
            read_request(connection)
            go.wait(60)
            for piece in pieces:
                connection.sendall(piece)

    return listening(serve)


def test_an_answer_in_drops_is_waited_for_no_longer_than_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each drop comes in time; together they would take minutes."""
    monkeypatch.setattr(aws, "READ_TIMEOUT_S", 0.5)
    go = threading.Event()
    go.set()

    def drops() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nx: "
        for _ in range(6_000):
            SYSTEM_CLOCK.sleep(0.02)
            yield b"x"

    with in_pieces(drops(), go) as url, pytest.raises(botocore.exceptions.ReadTimeoutError):
        build(url).receive_message(**RECEIVE)


def test_an_answer_that_nobody_waited_for_in_time_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller had to read others first; it is not there as a whole."""
    monkeypatch.setattr(aws, "READ_TIMEOUT_S", 0.001)
    monkeypatch.setattr(lean, "_LEAST_S", 60)
    go = threading.Event()
    with in_pieces(iter([b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{", b"}"]), go) as url:
        wait = build(url).begin("receive_message", **RECEIVE)
        threading.Timer(0.05, go.set).start()
        assert wait() == {}


def test_a_forked_child_opens_connections_of_its_own(server: Answering) -> None:
    """The parent goes on with its own one."""
    script = """
import os, sys
from sqs_fifo_spark.aws import client as aws
def ask():
    client = aws.sqs_client(aws.ClientConfig("us-east-1", sys.argv[1]))
    assert type(client).__name__ == "LeanClient"
    client.receive_message(QueueUrl="q")
ask()
child = os.fork()
if child == 0:
    ask()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
ask()
"""
    ran = run_python(script, server.url)
    assert ran.returncode == 0, ran.stderr
    assert [asked.connection for asked in server.asked] == [1, 2, 1]


@pytest.mark.parametrize("transport", ["lean", "boto3"])
@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_certificate_is_trusted_by_the_bundle_that_boto3_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: str, is_trusted: bool
) -> None:
    """And no other one."""
    with answering(make_authority(tmp_path)) as server:
        if is_trusted:
            monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))
        server.answer = Answer({"Messages": [received()]})
        ended = outcome(build(server.url, transport))
        assert ended == ({"Messages": [received()]} if is_trusted else botocore.exceptions.SSLError)
        assert len(server.asked) == is_trusted


# What stays with boto3


@pytest.mark.parametrize("is_exempt", [True, False])
def test_calls_through_a_proxy_are_boto3_s(server: Answering, monkeypatch: pytest.MonkeyPatch, is_exempt: bool) -> None:
    """It has all that proxies take. An exempt host is called leanly."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1" if is_exempt else "")
    monkeypatch.setenv("HTTP_PROXY", server.url)
    url = server.url if is_exempt else "http://sqs.example.com"
    client = aws.sqs_client(aws.ClientConfig("us-east-1", url))
    assert isinstance(client, lean.LeanClient) is is_exempt
    client.receive_message(**RECEIVE)
    assert [asked.path for asked in server.asked] == ["/" if is_exempt else "http://sqs.example.com/"]


def test_an_endpoint_with_a_path_is_boto3_s(server: Answering, caplog: pytest.LogCaptureFixture) -> None:
    client = aws.sqs_client(aws.ClientConfig("us-east-1", f"{server.url}/sqs"))
    assert not isinstance(client, lean.LeanClient)
    client.receive_message(**RECEIVE)
    assert server.asked[0].path == "/sqs"
    assert caplog.text == ""


class _Renamed(botocore.auth.SigV4Auth):  # type: ignore[misc]
    canonical_request = property()


class _Otherwise(botocore.auth.SigV4Auth):  # type: ignore[misc]
    """Signs in another way."""

    def _sign(self, key: bytes, msg: str, hex: bool = False) -> object:
        return super()._sign(key, msg + "\n", hex)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "other"),
    [("AWSRequest", lambda *_: None), ("SigV4Auth", _Renamed), ("SigV4Auth", _Otherwise), ("_DATE", "host")],
)
def test_a_botocore_whose_inside_is_another_is_told_once_and_works(
    server: Answering, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, other: object
) -> None:
    """It only takes more CPU: one line for each process, whatever number of clients it builds."""
    lean._warn_once.cache_clear()
    monkeypatch.setattr(form, name, other)
    for number in range(2):
        client = aws.sqs_client(
            aws.ClientConfig("us-east-1", server.url, replace(AWS_CHAIN, role_session_name=str(number)))
        )
        assert not isinstance(client, lean.LeanClient)
        client.receive_message(**RECEIVE)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("sqs_fifo_spark.aws.lean", "WARNING")
    assert f"botocore {botocore.__version__} does not fit" in record.message
    assert len(server.asked) == 2
    lean._warn_once.cache_clear()


def test_a_pool_without_its_methods_does_not_fit(server: Answering) -> None:
    """It is seen when the client is built, not in a call."""
    client = build(server.url, "boto3")
    session = client._endpoint.http_session
    session._manager = SimpleNamespace(connection_from_url=lambda _: SimpleNamespace())
    with pytest.raises(AttributeError, match="_get_conn"):
        lean.LeanClient(client, SimpleNamespace())


# Secrets


@pytest.mark.parametrize("answer", [Answer({"Messages": [received(Body=BODY)]}), Answer(status=0), Answer(b"x", 403)])
def test_no_log_or_error_has_a_body_a_token_or_a_signature(
    server: Answering, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, answer: Answer
) -> None:
    """At any level, whatever comes back."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    server.answer = answer
    queue = source_queue(f"{server.url}/123456789012/q.fifo")
    said = ""
    with caplog.at_level(logging.DEBUG):
        try:
            with without_sdk_logs():
                answered = aws.sqs_client(queue._config).receive_message(**RECEIVE)
            assert answered["Messages"][0]["Body"] == BODY
        except Exception as error:
            said = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
        said += repr(aws.sqs_client(queue._config))
    (asked,) = server.asked
    signature = asked.headers["authorization"].partition("Signature=")[2]
    assert asked.headers["x-amz-security-token"] == TOKEN
    for secret in (BODY, TOKEN, signature):
        assert secret not in said
        assert secret not in caplog.text


RECEIPT = Receipt("m", "AQ==", "g", 1, 1, 0, 0.0, 0)
ANSWERED = Answer(lambda request: {"Successful": [{"Id": each["Id"]} for each in request["Entries"]]})


def begin_delete(server: Answering, budget_s: float = 30.0) -> Callable[[], list[tuple[Receipt, Outcome]]]:
    queue = source_queue(f"{server.url}/123456789012/q.fifo")
    return queue.begin_delete([RECEIPT], budget_s=budget_s, before_call=lambda entries: None)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["lean", "boto3"])
@pytest.mark.parametrize(
    ("first", "tries"), [(ANSWERED, 1), (Answer(status=0), 2), (Answer({"__type": "ExpiredToken"}, 403), 2)]
)
def test_a_delete_is_sent_when_it_begins(
    server: Answering, transport: str, first: Answer, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If that was in vain, whoever waits for it tries again, within its budget, and with new credentials."""
    monkeypatch.setenv(lean.TRANSPORT_VARIABLE, transport)
    server.answer = first
    wait = begin_delete(server)
    wait_until(lambda: server.asked, 30, "the delete to be sent")
    server.answer = ANSWERED
    assert wait() == [(RECEIPT, Outcome.DONE)]
    assert len(server.asked) == tries


def test_a_delete_that_cannot_be_sent_fails_when_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering() as server:
        pass  # nobody answers at its port any more
    assert begin_delete(server, budget_s=0.0)() == [(RECEIPT, Outcome.FAILED)]


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["lean", "boto3"])
@pytest.mark.parametrize("list_name", ["Successful", "Failed"])
def test_what_belongs_to_another_call_confirms_nothing(
    server: Answering, transport: str, list_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Be it the answer to a call before, as something between here and SQS may give it once more."""
    monkeypatch.setenv(lean.TRANSPORT_VARIABLE, transport)
    server.answer = ANSWERED
    assert begin_delete(server)() == [(RECEIPT, Outcome.DONE)]
    (entry,) = json.loads(server.asked[0].content)["Entries"]
    server.answer = Answer({list_name: [{**FAILED, "Id": entry["Id"]}]})
    assert begin_delete(server, budget_s=0.1)() == [(RECEIPT, Outcome.FAILED)]


def test_what_is_told_as_done_and_as_failed_is_not_done(server: Answering) -> None:
    def both(request: Mapping[str, Any]) -> object:
        (entry,) = request["Entries"]
        return {"Successful": [{"Id": entry["Id"]}], "Failed": [{**FAILED, "Id": entry["Id"], "Code": "InternalError"}]}

    server.answer = Answer(both)
    assert begin_delete(server, budget_s=0.1)() == [(RECEIPT, Outcome.FAILED)]


@pytest.mark.slow
def test_a_token_that_no_header_may_have_is_no_credential(server: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    """Renewed meanwhile, it is taken: it is no trouble of the network's, and no fault of the call's."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", f"{TOKEN}\n")
    with pytest.raises(AccessDeniedError, match="no usable AWS credentials") as caught:
        begin_delete(server)()
    assert TOKEN not in str(caught.value)
    server.answer = ANSWERED
    wait = begin_delete(server)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    assert wait() == [(RECEIPT, Outcome.DONE)]
