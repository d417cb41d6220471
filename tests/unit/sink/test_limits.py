"""What keeps a sink inside its limits: of SQS's memory, of its own, and of what the journal holds."""

from __future__ import annotations

import http.client
import math
import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import boto3
import pyarrow as pa
import pytest
import urllib3.util.connection
from botocore.awsrequest import AWSHTTPConnection

from sqs_fifo_spark.aws import client as aws
from sqs_fifo_spark.aws.lean import TRANSPORT_VARIABLE
from sqs_fifo_spark.errors import (
    AccessDeniedError,
    JournalUnavailableError,
    QueueRequestError,
    SqsFifoError,
    TransientQueueError,
)
from sqs_fifo_spark.local import Faults, LocalQueueServer
from sqs_fifo_spark.local.fifo import DEDUPLICATION_S
from sqs_fifo_spark.options import AWS_CHAIN, parse_sink_options
from sqs_fifo_spark.sink import judge, window
from sqs_fifo_spark.sink import write as sink
from sqs_fifo_spark.sink.crew import GRACE_S
from sqs_fifo_spark.sink.digests import digest_of
from sqs_fifo_spark.sink.message import Outgoing, RefusedRowError, RowForm
from sqs_fifo_spark.sink.outcome import Confirmed
from sqs_fifo_spark.sink.queue import SinkQueue, StoppedError
from sqs_fifo_spark.sink.record import MERGE_AT, NoRecord, SentRecord
from tests.helpers import wait_until
from tests.unit.sending import LONG_S, LOST, Noted, SharedClock, Sqs, Store, make, patched, refusal, rows, rows_of
from tests.unit.sending import send as send_all

pytestmark = pytest.mark.law("sink-3", "sink-4", "sink-5")

RECORDED_S = window.SEND_BUDGET_S + window.CONFIRM_BUDGET_S
"""How long after a look at the record what is sent then may be recorded."""


# Time


def test_two_attempts_that_do_not_see_each_other_send_a_row_within_sqs_memory() -> None:
    """From one's look to the other's last call; the first may record late, and the second look just before."""
    piece_s = aws.CONNECT_TIMEOUT_S  # the limit of each wait while it is sent, too
    call_s = aws.CONNECT_TIMEOUT_S + piece_s + aws.READ_TIMEOUT_S
    assert RECORDED_S + window.SEND_BUDGET_S + call_s < DEDUPLICATION_S
    fails_after_s = RECORDED_S + 2 * GRACE_S
    assert fails_after_s + window.SEND_BUDGET_S + call_s < DEDUPLICATION_S, "nor one that follows a failed one"
    assert call_s < window.CONFIRM_BUDGET_S
    assert window.REFRESH_AFTER_S < window.SEND_BUDGET_S / 2, "a row has time for retries after an old look"


def test_a_record_that_comes_too_late_stops_the_group(sqs: Sqs) -> None:
    """Another attempt may have sent the row anew by then: its copy must stand right behind it."""
    store = Store()
    record = SentRecord(store, sqs.clock, query="q", batch="1", run="018bcfe56800r1", partition=0)
    late_s = 0.0
    store.on_step = lambda event: sqs.clock.advance(RECORDED_S + late_s if event.startswith("before put") else 0)
    send_all(sqs, rows("a1", "b1"), record)
    late_s = 0.1
    with pytest.raises(JournalUnavailableError, match="took so long"):
        send_all(sqs, rows("a2", "a3"), record)
    assert sqs.bodies("a") == ["a1", "a2"]


def test_without_a_journal_no_record_comes_too_late(sqs: Sqs) -> None:
    """A process that stood still goes on when SQS has confirmed the row: nobody waits for a record of it."""
    sqs.after = lambda bodies, answer: sqs.clock.advance(RECORDED_S + 1)
    assert send_all(sqs, rows("a1", "a2"), NoRecord(sqs.clock)).counts.sent == 2
    assert sqs.bodies() == ["a1", "a2"]


def sending_by_http(
    server: LocalQueueServer, clock: SharedClock, stopped: threading.Event | None = None
) -> Callable[[float], None]:
    """Return what sends a row to a real server, with so many seconds for its tries."""
    options = parse_sink_options({"queueUrl": server.queue_url("q.fifo")})
    queue = SinkQueue(options, clock)
    aws.forget_clients()  # so that it has no open connection

    def send(budget_s: float) -> None:
        deadline = clock.monotonic() + budget_s
        queue.send(rows("a1"), lambda confirmed, pending: None, stopped=stopped or threading.Event(), deadline=deadline)

    return send


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("late", [True, False])
def test_a_call_that_takes_long_to_connect_sends_nothing_too_late(monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    """Names are looked up and addresses tried without a limit of ours: others may have sent the row meanwhile."""
    clock = SharedClock()
    connect = urllib3.util.connection.create_connection

    def slow(*arguments: Any, **options: Any) -> Any:
        made = connect(*arguments, **options)
        clock.advance(10 + aws.CONNECT_TIMEOUT_S + (0.1 if late else 0))
        return made

    monkeypatch.setattr(urllib3.util.connection, "create_connection", slow)
    with LocalQueueServer(queues=["q.fifo"]) as server:
        send = sending_by_http(server, clock)
        if late:
            with pytest.raises(TransientQueueError, match="was not made in time: to connect took too long"):
                send(10)
            # The server takes connections in their order: it knows the one that was given up, and can close it.
            with closing(http.client.HTTPConnection(urlsplit(server.endpoint_url).netloc)) as other:
                other.request("GET", "/")
                other.getresponse().read()
        else:
            send(10)
        assert server.requests.counts().get("SendMessageBatch", 0) == (0 if late else 1)


@pytest.mark.usefixtures("transport")
def test_a_call_whose_task_ends_while_it_connects_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task's next attempt may be ahead of it."""
    clock, stopped = SharedClock(), threading.Event()
    connect = urllib3.util.connection.create_connection

    def stop(*arguments: Any, **options: Any) -> Any:
        made = connect(*arguments, **options)
        stopped.set()
        return made

    monkeypatch.setattr(urllib3.util.connection, "create_connection", stop)
    with LocalQueueServer(queues=["q.fifo"]) as server:
        with pytest.raises(StoppedError):
            sending_by_http(server, clock, stopped)(10)
        monkeypatch.undo()
        sending_by_http(server, clock)(10)
        assert server.requests.counts()["SendMessageBatch"] == 1


def test_a_call_whose_task_ends_while_it_leaves_is_not_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3 sends a request in two pieces, and SQS takes nothing of one that is not whole. Ours leaves in one."""
    monkeypatch.setenv(TRANSPORT_VARIABLE, "boto3")
    clock, stopped = SharedClock(), threading.Event()
    send_piece, pieces = AWSHTTPConnection.send, list[int]()

    def stop(connection: AWSHTTPConnection, data: bytes) -> None:
        send_piece(connection, data)
        pieces.append(len(data))
        stopped.set()

    monkeypatch.setattr(AWSHTTPConnection, "send", stop)
    with LocalQueueServer(queues=["q.fifo"]) as server:
        with pytest.raises(StoppedError):
            sending_by_http(server, clock, stopped)(10)
        assert len(pieces) == 1
        monkeypatch.undo()
        sending_by_http(server, clock)(10)
        assert server.requests.counts()["SendMessageBatch"] == 1


@pytest.mark.usefixtures("transport")
def test_a_call_that_is_given_up_is_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel has taken all of it, and would deliver it to a server, or through a network, that goes on later."""
    monkeypatch.setattr(aws, "READ_TIMEOUT_S", 0.5)
    clock = SharedClock()
    with closing(socket.socket()) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        server.bind(("127.0.0.1", 0))
        server.listen()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/000000000000/q.fifo"
        queue = SinkQueue(parse_sink_options({"queueUrl": url, "region": "eu-west-1"}), clock)
        big = rows_of([("a", "x" * 200_000)])
        aws.forget_clients()
        try:
            with pytest.raises(TransientQueueError, match="no usable answer"):
                queue.send(big, lambda confirmed, pending: None, stopped=threading.Event(), deadline=clock.monotonic())
        finally:
            aws.forget_clients()
        connection, _ = server.accept()
        with closing(connection), pytest.raises(ConnectionResetError):
            deque(iter(lambda: connection.recv(65_536), b""), maxlen=0)


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("where", ["a call", "its second try"])
def test_a_call_whose_credentials_take_long_sends_nothing_too_late(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Those of a role are asked for while the call is being made; and a call with renewed ones is the same call."""
    clock = SharedClock()
    with LocalQueueServer(queues=["q.fifo"]) as server:
        send = sending_by_http(server, clock)
        send(10)
        forget, build = aws.forget_clients, aws.sqs_client

        def slow(call: Callable[..., Any]) -> Callable[..., Any]:
            def slowly(*given: Any) -> Any:
                clock.advance(30)
                return call(*given)

            return slowly

        if where == "a call":
            monkeypatch.setattr(aws, "sqs_client", slow(build))
        else:
            monkeypatch.setattr(aws, "forget_clients", slow(forget))
            server.faults = Faults(expired_keys=frozenset({"test"}))
        with pytest.raises(TransientQueueError, match="was not made in time"):
            send(10)
        assert server.requests.counts()["SendMessageBatch"] == (1 if where == "a call" else 2)


# What SQS takes for equal


def test_rows_that_sqs_takes_for_equal_are_counted(sqs: Sqs) -> None:
    """The same id again, while the group still has rows: what a user would otherwise miss without a word."""
    assert send_all(sqs, rows("a1", "a2", "a1", "a3", "b1"), NoRecord(sqs.clock)).counts.equal == 1
    assert sqs.bodies("a") == ["a1", "a2", "a3"]


def test_rows_that_are_sent_again_are_not_told_as_equal(sqs: Sqs) -> None:
    """A replay in the same order is told rising numbers, as the first time."""
    given = rows("a1", "b1", "a2", "a3")
    send_all(sqs, given)
    again = send_all(sqs, given, NoRecord(sqs.clock))
    assert (again.counts.sent, again.counts.equal) == (4, 0)


def test_rows_of_different_groups_that_sqs_takes_for_equal_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty rows, one body, one message: without a word they would be gone."""
    sqs = patched(monkeypatch, ContentBasedDeduplication="true")
    given = [(f"g{number}", "one body") for number in range(20)]
    by_body = rows_of(given, form=RowForm(None, False, 1_048_576))
    assert send_all(sqs, by_body, NoRecord(sqs.clock)).counts.equal == 19
    assert sqs.bodies() == ["one body"]
    sqs = patched(monkeypatch, ContentBasedDeduplication="true", DeduplicationScope="messageGroup")
    assert send_all(sqs, by_body, NoRecord(sqs.clock)).counts.equal == 0
    assert len(sqs.bodies()) == 20


def test_of_two_equal_rows_one_is_counted_whichever_is_confirmed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer about the message comes late: its number has told already that the other row is equal to it."""
    sqs = patched(monkeypatch, ContentBasedDeduplication="true")
    by_body, others_are_told = RowForm(None, False, 1_048_576), threading.Event()

    def after(bodies: list[str], answer: dict[str, object]) -> None:
        if len(sqs.calls) == 1:
            assert others_are_told.wait(LONG_S)

    sqs.after = after
    made = make(sqs, NoRecord(sqs.clock))
    made.add(rows_of([("a", "one body")], form=by_body))
    wait_until(lambda: len(sqs.bodies()) == 1, LONG_S, "the message is sent")
    made.add(rows_of([("b", "b1"), ("b", "one body")], form=by_body))
    wait_until(lambda: made.counts.sent == 2, LONG_S, "the others are confirmed")
    others_are_told.set()
    made.finish()
    assert (made.counts.sent, made.counts.equal, sqs.bodies()) == (3, 1, ["one body", "b1"])


def test_a_row_whose_answer_was_lost_is_not_told_as_equal(sqs: Sqs) -> None:
    """It is told the id of its own message, which no other row has been told."""

    def lose(bodies: list[str], answer: dict[str, object]) -> None:
        if len(sqs.calls) in (1, 2):
            raise LOST
        if len(sqs.calls) == 3:
            answer["Successful"] = []

    sqs.after = lose
    sender = send_all(sqs, rows("a1", "b1", "a2"), NoRecord(sqs.clock))
    assert (sender.counts.sent, sender.counts.equal) == (3, 0)


def test_the_ids_that_are_known_are_bounded(sqs: Sqs, monkeypatch: pytest.MonkeyPatch) -> None:
    """An equal row is told if it comes soon enough; a long task does not hold all that it has sent."""
    monkeypatch.setattr(judge, "TOLD_IDS", 50)
    given = [(f"g{number}", f"{number}") for number in range(300)]
    made = make(sqs, NoRecord(sqs.clock))
    made.add(rows_of(given))
    made.finish()
    assert 50 <= len(made.progress._judge._told) + len(made.progress._judge._told_before) <= 100
    assert made.counts.equal == 0


# Who is at fault


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("KmsDisabled", AccessDeniedError),
        ("KMS.InvalidStateException", AccessDeniedError),
        ("InvalidSignatureException", AccessDeniedError),
        ("UnsupportedOperation", QueueRequestError),
    ],
)
def test_what_is_wrong_with_the_queue_is_not_told_as_a_bad_row(sqs: Sqs, code: str, kind: type[SqsFifoError]) -> None:
    """Whoever filters such a row out loses a good one."""

    def refuse(bodies: list[str]) -> None:
        raise refusal(code, 400, "no")

    sqs.before = refuse
    with pytest.raises(kind, match=code):
        send_all(sqs, rows("a1", "b1"))
    assert len(sqs.calls) == 1


def test_an_answer_about_other_entries_is_no_answer(sqs: Sqs) -> None:
    """Ids that were not asked about, and none at all: each row is sent until its own is there."""
    asked = []

    def alien(bodies: list[str], answer: dict[str, object]) -> None:
        asked.append(bodies)
        if len(asked) == 1:
            answer["Successful"] = [{"Id": "99"}, {}]
            answer["Failed"] = None

    sqs.after = alien
    assert send_all(sqs, rows("a1", "b1")).counts.sent == 2
    assert sqs.tries("a1") == 2
    assert sqs.bodies() == ["a1", "b1"]


# Memory


@pytest.mark.parametrize("order", [1, -1])
def test_parts_are_small_whatever_stands_beside_what(order: int) -> None:
    """A few large rows among many small ones do not hide in an average."""
    bodies = ["x" * 100] * 9_000 + ["y" * (1 << 20)] * 20
    batch = pa.RecordBatch.from_arrays([pa.array(bodies[::order])], names=["body"])
    parts = list(sink._parts(batch))
    assert pa.Table.from_batches(parts).to_pydict() == {"body": bodies[::order]}
    assert all(part.nbytes <= sink.MAX_PART_BYTES and part.num_rows <= sink.MAX_PART_ROWS for part in parts)


def test_threads_that_begin_together_build_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client takes megabytes and a second, and with a role a call."""
    built, together = [], threading.Barrier(8)
    build = boto3.session.Session.client

    def count(self: boto3.session.Session, *arguments: object, **options: object) -> object:
        built.append(arguments)
        return build(self, *arguments, **options)

    monkeypatch.setattr(boto3.session.Session, "client", count)
    config = aws.ClientConfig("us-east-1", "http://127.0.0.1:1", replace(AWS_CHAIN, role_session_name="together"))

    def ask(number: int) -> object:
        together.wait()
        return aws.sqs_client(config)

    with ThreadPoolExecutor(8) as pool:
        clients = set(pool.map(ask, range(8)))
    assert len(clients) == len(built) == 1


# The journal


def digest(number: int) -> bytes:
    return digest_of("id", str(number), "")


def test_a_task_leaves_few_objects_also_if_it_dies() -> None:
    """One row at a time, as a hot group sends: a replay reads them one by one, so there must not be thousands."""
    store, clock = Store(), SharedClock()
    record = SentRecord(store, clock, query="q", batch="1", run="018bcfe56800r1", partition=0)
    count = 5 * MERGE_AT + 7
    for number in range(count):
        record.add([digest(number)], by=math.inf)
        record.tidy()
        assert len(store.objects) <= 5 + MERGE_AT
    assert len(store.objects) == 5 + 7
    replay = SentRecord(store, clock, query="q", batch="1", run="018bcfe56800r2", partition=0)
    replay.refresh(map(digest, range(count)))
    assert all(replay.is_sent(digest(number)) for number in range(count))


def test_a_long_look_is_followed_by_a_short_one() -> None:
    """What it has read is known, so a slow store does not make every look too old to send after it."""
    store, clock = Store(), SharedClock()
    for number in range(10):
        SentRecord(store, clock, query="q", batch="1", run=f"018bcfe56800r{number}", partition=0).add(
            [digest(number)], by=math.inf
        )
    reads = []

    def slow(call: str) -> bool:
        if call == "get":
            reads.append(call)
            clock.advance(10)
        return False

    store.fails = slow
    replay = SentRecord(store, clock, query="q", batch="1", run="018bcfe56800new", partition=0)
    assert clock.monotonic() - replay.refresh(map(digest, range(10))) <= window.REFRESH_AFTER_S
    assert len(reads) == 10


def test_rows_of_a_failed_attempt_are_the_next_ones(sqs: Sqs) -> None:
    """What one attempt has sent and recorded, the next does not send."""
    record = Noted()
    first: list[Outgoing] = rows("a1", "b1")
    send_all(sqs, first, record)
    second = make(sqs, record)
    second.add(rows("a1", "a2", "b1"))
    second.finish()
    assert sqs.tries("a1") == 1
    assert sqs.bodies("a") == ["a1", "a2"]


def test_a_refused_row_stops_the_task_before_its_neighbours_are_recorded(sqs: Sqs) -> None:
    """A record may take a while, and until then other groups would go on in a task that has failed."""
    sqs.failing = lambda body: ("InvalidMessageContents", True) if body == "b1" else None
    stopped, told = threading.Event(), []

    def confirm(confirmed: list[Confirmed], pending: list[Outgoing]) -> None:
        told.append(([each.row.row for each in confirmed], stopped.is_set()))

    queue = SinkQueue(sqs.options(), sqs.clock)
    with pytest.raises(RefusedRowError):
        queue.send(rows("a1", "b1"), confirm, stopped=stopped, deadline=sqs.clock.monotonic() + 60)
    assert told == [([1], True)]
