"""A sink stays inside the limits of SQS's memory, of its own, and of the journal."""

from __future__ import annotations

import http.client
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import botocore.session
import pyarrow as pa
import pytest
import urllib3.util.connection
from botocore.awsrequest import AWSHTTPConnection

from sqs_fifo_spark.aws import client as aws
from sqs_fifo_spark.aws.credentials import CONNECT_TIMEOUT_S
from sqs_fifo_spark.aws.lean import TRANSPORT_VARIABLE
from sqs_fifo_spark.errors import JournalUnavailableError, TransientQueueError
from sqs_fifo_spark.local import Faults, LocalQueueServer
from sqs_fifo_spark.local.fifo import DEDUPLICATION_S
from sqs_fifo_spark.options import AWS_CHAIN, parse_sink_options
from sqs_fifo_spark.sink import judge, window
from sqs_fifo_spark.sink import write as sink
from sqs_fifo_spark.sink.crew import GRACE_S
from sqs_fifo_spark.sink.outgoing import RowForm
from sqs_fifo_spark.sink.record import Record, SentRecord
from sqs_fifo_spark.sink.sink_queue import SinkQueue, StoppedError
from tests.helpers import wait_until
from tests.unit.sending import LONG_S, SharedClock, Sqs, Store, make, patched, rows, rows_of, waiting
from tests.unit.sending import send as send_all

pytestmark = pytest.mark.law("sink-3", "sink-4", "sink-5")

RECORDED_S = window.SEND_BUDGET_S + window.CONFIRM_BUDGET_S
"""Time from a look at the record until a call's rows must be recorded."""


# Time


def test_two_attempts_that_do_not_see_each_other_send_a_row_within_sqs_memory() -> None:
    """From one's look to the other's last call; the first may record late, and the second look just before."""
    piece_s = CONNECT_TIMEOUT_S  # the limit of each wait while it is sent, too
    call_s = CONNECT_TIMEOUT_S + piece_s + aws.READ_TIMEOUT_S
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


class Real:
    """A real server, and what sends a row to it."""

    def __init__(self, server: LocalQueueServer) -> None:
        self.server = server
        self.clock = SharedClock()
        self.stopped = threading.Event()
        self._queue = SinkQueue(parse_sink_options({"queueUrl": server.queue_url("q.fifo")}), self.clock)
        aws.forget_clients()  # so that it has no open connection

    def send(self) -> None:
        """Send it, with ten seconds for all tries."""
        deadline = self.clock.monotonic() + 10
        self._queue.send(rows("a1"), lambda confirmed, pending: None, stopped=self.stopped, deadline=deadline)

    def calls(self) -> int:
        return self.server.requests.counts().get("SendMessageBatch", 0)

    def require_that_a_stopped_call_sends_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(StoppedError):
            self.send()
        monkeypatch.undo()
        self.stopped.clear()
        aws.forget_clients()
        self.send()
        assert self.calls() == 1


@pytest.fixture
def real() -> Iterator[Real]:
    with LocalQueueServer(queues=["q.fifo"]) as server:
        yield Real(server)


def after_connecting(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    connect = urllib3.util.connection.create_connection

    def connect_and_act(*arguments: Any, **options: Any) -> Any:
        made = connect(*arguments, **options)
        action()
        return made

    monkeypatch.setattr(urllib3.util.connection, "create_connection", connect_and_act)


@pytest.mark.slow
@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("late", [True, False])
def test_a_call_that_takes_long_to_connect_sends_nothing_too_late(
    real: Real, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """Names are looked up and addresses tried without a limit of ours: others may have sent the row meanwhile."""
    after_connecting(monkeypatch, lambda: real.clock.advance(10 + CONNECT_TIMEOUT_S + (0.1 if late else 0)))
    if late:
        with pytest.raises(TransientQueueError, match="was not made in time: to connect took too long"):
            real.send()
        # The server takes connections in their order: it knows the one that was given up, and can close it.
        with closing(http.client.HTTPConnection(urlsplit(real.server.endpoint_url).netloc)) as other:
            other.request("GET", "/")
            other.getresponse().read()
    else:
        real.send()
    assert real.calls() == (0 if late else 1)


@pytest.mark.usefixtures("transport")
def test_a_call_whose_task_ends_while_it_connects_sends_nothing(real: Real, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task's next attempt may be ahead of it."""
    after_connecting(monkeypatch, real.stopped.set)
    real.require_that_a_stopped_call_sends_nothing(monkeypatch)


def test_a_call_whose_task_ends_while_it_leaves_is_not_completed(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """boto3 sends a request in two pieces, and SQS takes nothing of one that is not whole. Ours leaves in one."""
    monkeypatch.setenv(TRANSPORT_VARIABLE, "boto3")
    real: Real = request.getfixturevalue("real")
    send_piece, pieces = AWSHTTPConnection.send, list[int]()

    def stop(connection: AWSHTTPConnection, data: bytes) -> None:
        send_piece(connection, data)
        pieces.append(len(data))
        real.stopped.set()

    monkeypatch.setattr(AWSHTTPConnection, "send", stop)
    real.require_that_a_stopped_call_sends_nothing(monkeypatch)
    assert len(pieces) == 1


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("where", ["a call", "its second try"])
def test_a_call_whose_credentials_take_long_sends_nothing_too_late(
    real: Real, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Those of a role are asked for while the call is being made; and a call with renewed ones is the same call."""
    real.send()
    name = "sqs_client" if where == "a call" else "forget_clients"
    call = getattr(aws, name)

    def slowly(*given: Any) -> Any:
        real.clock.advance(30)
        return call(*given)

    monkeypatch.setattr(aws, name, slowly)
    if where == "its second try":
        real.server.faults = Faults(expired_keys=frozenset({"test"}))
    with pytest.raises(TransientQueueError, match="was not made in time"):
        real.send()
    assert real.calls() == (1 if where == "a call" else 2)


# What SQS takes for equal


def test_rows_of_different_groups_that_sqs_takes_for_equal_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty rows, one body, one message: without a word they would be gone."""
    sqs = patched(monkeypatch, ContentBasedDeduplication="true")
    given = [(f"g{number}", "one body") for number in range(20)]
    by_body = rows_of(given, form=RowForm(None, False, 1_048_576))
    assert send_all(sqs, by_body, Record(sqs.clock)).counts.equal == 19
    assert sqs.bodies() == ["one body"]
    sqs = patched(monkeypatch, ContentBasedDeduplication="true", DeduplicationScope="messageGroup")
    assert send_all(sqs, by_body, Record(sqs.clock)).counts.equal == 0
    assert len(sqs.bodies()) == 20


def test_of_two_equal_rows_one_is_counted_whichever_is_confirmed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer about the message comes late: its number has told already that the other row is equal to it."""
    sqs = patched(monkeypatch, ContentBasedDeduplication="true")
    by_body, others_are_told = RowForm(None, False, 1_048_576), threading.Event()
    sqs.after = waiting(others_are_told, lambda bodies, answer: len(sqs.calls) == 1)
    made = make(sqs, Record(sqs.clock))
    made.add(rows_of([("a", "one body")], form=by_body))
    wait_until(lambda: len(sqs.bodies()) == 1, LONG_S, "the message is sent")
    made.add(rows_of([("b", "b1"), ("b", "one body")], form=by_body))
    wait_until(lambda: made.counts.sent == 2, LONG_S, "the others are confirmed")
    others_are_told.set()
    made.finish()
    assert (made.counts.sent, made.counts.equal, sqs.bodies()) == (3, 1, ["one body", "b1"])


def test_the_ids_that_are_known_are_bounded(sqs: Sqs, monkeypatch: pytest.MonkeyPatch) -> None:
    """An equal row is told if it comes soon enough; a long task does not hold all that it has sent."""
    monkeypatch.setattr(judge, "KEPT_IDS", 50)
    given = [(f"g{number}", f"{number}") for number in range(300)]
    made = make(sqs, Record(sqs.clock))
    made.add(rows_of(given))
    made.finish()
    assert 50 <= len(made.progress._judge._newer_ids) + len(made.progress._judge._older_ids) <= 100
    assert made.counts.equal == 0


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
    build = botocore.session.Session.create_client

    def count(self: botocore.session.Session, *arguments: object, **options: object) -> object:
        built.append(arguments)
        return build(self, *arguments, **options)

    monkeypatch.setattr(botocore.session.Session, "create_client", count)
    config = aws.ClientConfig("us-east-1", "http://127.0.0.1:1", replace(AWS_CHAIN, role_session_name="together"))

    def ask(number: int) -> object:
        together.wait()
        return aws.sqs_client(config)

    with ThreadPoolExecutor(8) as pool:
        clients = set(pool.map(ask, range(8)))
    assert len(clients) == len(built) == 1
