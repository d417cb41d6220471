"""The SQS calls against the strict local queue, which fails on purpose: nothing is lost, and each error is one line."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import boto3
import botocore.exceptions
import botocore.session
import pytest

from sqs_fifo_spark.aws import client as aws
from sqs_fifo_spark.aws.calls import CALL_BUDGET_S
from sqs_fifo_spark.clock import ManualClock, SystemClock
from sqs_fifo_spark.columns import ARROW_SCHEMA
from sqs_fifo_spark.errors import (
    AccessDeniedError,
    NotFifoQueueError,
    OptionError,
    QueueNotFoundError,
    QueueRequestError,
    SqsFifoError,
    TransientQueueError,
)
from sqs_fifo_spark.local import Faults, FifoModel, LocalQueueServer
from sqs_fifo_spark.options import SourceOptions, parse_source_options
from sqs_fifo_spark.retry import Begun
from sqs_fifo_spark.source.message import Message, Receipt
from sqs_fifo_spark.source.queue import (
    CONCURRENT_CALLS,
    DRIVER_DELETES,
    LONGEST_BEGIN_S,
    Counts,
    Outcome,
    Queue,
    split_into_batches,
)
from tests.helpers import raises_one_line

pytestmark = pytest.mark.usefixtures("transport")

NAMES = [field.name for field in ARROW_SCHEMA]


class QuickClock(SystemClock):
    """The machine's time, but pauses between retries take none: they only move the monotonic reading."""

    def __init__(self) -> None:
        self.slept_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.slept_s

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds


class Rig:
    """One fresh queue on a server, `Queue` on it, and a plain client."""

    numbers = itertools.count(1)

    def __init__(self, server: LocalQueueServer, clock: ManualClock) -> None:
        self.server = server
        self.server_clock = clock
        self.clock = QuickClock()
        self.client = boto3.client("sqs", endpoint_url=server.endpoint_url)
        self.url: str = self.client.create_queue(
            QueueName=f"q{next(self.numbers)}.fifo", Attributes={"FifoQueue": "true"}
        )["QueueUrl"]
        self.queue = self.make()
        self.sent = 0

    def make(self, **options: str) -> Queue:
        return Queue(self.options(**options), self.clock)

    def options(self, **options: str) -> SourceOptions:
        return parse_source_options({"queueUrl": self.url, "journalLocation": "/journal", **options})

    def send(self, *bodies: str, **request: Any) -> None:
        for body in bodies:
            self.sent += 1
            self.client.send_message(
                QueueUrl=self.url,
                MessageBody=body,
                MessageGroupId=body.rstrip("0123456789"),
                MessageDeduplicationId=str(self.sent),
                **request,
            )

    def delete(self, receipts: list[Receipt], *, budget_s: float = CALL_BUDGET_S) -> list[Outcome]:
        """Delete up to ten messages and return the outcomes, which stand in the order of the receipts."""
        pairs = self.queue.delete(receipts, budget_s=budget_s)
        assert [receipt for receipt, _ in pairs] == receipts
        return [outcome for _, outcome in pairs]

    def receive_all(self) -> list[Message]:
        """Receive until two answers in a row are empty."""
        received: list[Message] = []
        empty = 0
        while True:
            answer = self.queue.receive(10)
            received += answer
            empty = 0 if answer else empty + 1
            if empty == 2:
                return received

    def depth(self) -> tuple[int, int]:
        def ask(model: FifoModel) -> Any:
            return model.call("GetQueueAttributes", {"QueueUrl": self.url, "AttributeNames": ["All"]})["Attributes"]

        shown = self.server.run(ask)
        return int(shown["ApproximateNumberOfMessages"]), int(shown["ApproximateNumberOfMessagesNotVisible"])


@pytest.fixture(scope="module")
def server_clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def server(server_clock: ManualClock) -> Iterator[LocalQueueServer]:
    with LocalQueueServer(clock=server_clock) as running:
        yield running


@pytest.fixture
def rig(server: LocalQueueServer, server_clock: ManualClock) -> Iterator[Rig]:
    server.faults = Faults()
    rig = Rig(server, server_clock)
    server.requests.clear()
    yield rig
    server.faults = Faults()
    rig.client.close()


def one_line(error: BaseException) -> str:
    text = str(error)
    assert text
    assert "\n" not in text
    return text


# Receiving


def test_receive_parses_all_system_attributes(rig: Rig) -> None:
    """Each column has the value that SQS gave, in the column's own unit; the receipt has the numbers."""
    rig.send(
        "bid1",
        MessageAttributes={
            "price": {"DataType": "Number", "StringValue": "100"},
            "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
        },
        MessageSystemAttributes={
            "AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}
        },
    )
    (message,) = rig.queue.receive(10)
    row = dict(zip(NAMES, message.row, strict=True))
    assert row["body"] == "bid1"
    assert row["messageGroupId"] == "bid"
    assert row["messageDeduplicationId"] == "1"
    assert row["sequenceNumber"] == str(message.receipt.sequence_number)
    assert row["sentTimestamp"] == int(rig.server_clock.now() * 1000) * 1000
    assert row["firstReceiveTimestamp"] == row["sentTimestamp"]
    assert row["receiveCount"] == message.receipt.receive_count == 1
    assert row["senderId"]
    assert row["awsTraceHeader"].startswith("Root=1-")
    assert row["deadLetterQueueSourceArn"] is None
    assert dict(row["messageAttributes"]) == {
        "price": {"dataType": "Number", "stringValue": "100", "binaryValue": None},
        "raw": {"dataType": "Binary", "stringValue": None, "binaryValue": b"\x00\xff"},
    }
    assert message.receipt.message_id == row["messageId"]
    assert message.size == len("bid1") + len("priceNumber100") + len("rawBinary") + 2


def test_receive_asks_for_no_more_than_ten(rig: Rig) -> None:
    """A larger wish is cut to SQS's own maximum."""
    rig.send(*(f"a{index}" for index in range(12)))
    assert len(rig.queue.receive(500)) == 10
    assert len(rig.queue.receive(500)) == 0


def test_receive_hides_for_the_visibility_timeout_of_the_options(rig: Rig) -> None:
    """The timeout is set by each receive, whatever the queue's own one is."""
    rig.send("a1")
    assert len(rig.make(visibilityTimeoutSeconds="100").receive(10)) == 1
    rig.server_clock.advance(99)
    assert rig.depth() == (0, 1)
    rig.server_clock.advance(1)
    assert rig.depth() == (1, 0)


def test_dropped_answers_lose_nothing_because_retries_keep_the_attempt_id(rig: Rig) -> None:
    """With most answers lost on the wire every message comes with its first receive, count 1."""
    rig.send(*(f"{'abc'[index % 3]}{index}" for index in range(30)))
    rig.server.faults = Faults(seed=1, drop_answer=0.7, actions=frozenset({"ReceiveMessage"}))
    received = rig.receive_all()
    dropped = [record for record in rig.server.requests.recent("ReceiveMessage") if record.outcome == "dropped"]
    assert any(record.entries for record in dropped)
    assert len(received) == 30
    assert {message.receipt.receive_count for message in received} == {1}
    assert len({message.receipt.message_id for message in received}) == 30


@pytest.mark.parametrize(
    "faults", [Faults(seed=2, throttle=0.6), Faults(seed=3, server_error=0.6), Faults(seed=4, reset=0.6)]
)
def test_throttling_errors_and_resets_are_retried_within_the_budget(rig: Rig, faults: Faults) -> None:
    """A call succeeds as long as one of its tries does."""
    rig.send(*(f"a{index}" for index in range(10)))
    rig.server.faults = faults
    received = rig.receive_all()
    assert [message.row[1] for message in received] == [f"a{index}" for index in range(10)]
    assert rig.delete([message.receipt for message in received]) == [Outcome.DONE] * 10
    assert rig.depth() == (0, 0)


@pytest.mark.parametrize("faults", [Faults(throttle=1.0), Faults(server_error=1.0), Faults(reset=1.0)])
def test_a_failure_that_lasts_is_a_transient_error_when_the_budget_is_over(rig: Rig, faults: Faults) -> None:
    """The last failure is raised, in one line, and no try begins after the budget."""
    rig.server.faults = faults
    with raises_one_line(TransientQueueError):
        rig.queue.receive(10, budget_s=20)
    assert 0 < rig.clock.slept_s <= 20
    assert len(rig.server.requests.recent("ReceiveMessage")) > 2


def test_no_budget_is_one_try(rig: Rig) -> None:
    """With no time left a call is made once."""
    rig.send("a1")
    receipts = [message.receipt for message in rig.queue.receive(10)]
    rig.server.faults = Faults(throttle=1.0)
    assert rig.queue.extend(receipts, 60, budget_s=0) == [Outcome.FAILED]
    assert len(rig.server.requests.recent("ChangeMessageVisibilityBatch")) == 1


def test_a_receive_without_an_answer_is_asked_for_again_though_no_time_is_left(rig: Rig) -> None:
    """Its messages are hidden already: only another try with its attempt id gets them before they lapse."""
    rig.send("a1", "a2")
    # The first answer is lost; the second call is throttled.
    rig.server.faults = Faults(seed=28, drop_answer=0.5, throttle=0.3, actions=frozenset({"ReceiveMessage"}))
    received = rig.queue.receive(10, budget_s=0)
    outcomes = [record.outcome for record in rig.server.requests.recent("ReceiveMessage")]
    assert outcomes == ["dropped", "ThrottlingException", "ok"]
    assert [message.receipt.receive_count for message in received] == [1, 1]
    # It ends all the same.
    rig.server.faults = Faults(drop_answer=1.0)
    with pytest.raises(TransientQueueError):
        rig.queue.receive(10, budget_s=0)


def test_void_attempt_id_recovers_with_a_fresh_one(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A receive whose attempt id became void between two tries goes on with a fresh id."""
    rig.send("a1", "b1")
    rig.server.faults = Faults(drop_answer=1.0, actions=frozenset({"ReceiveMessage"}))

    def meddle(seconds: float) -> None:
        # While the retry waits, the messages of the lost answer are released: their attempt id is void.
        rig.server.faults = Faults()
        rig.clock.slept_s += seconds
        if rig.depth()[1]:
            rig.server_clock.advance(1)
            rig.server.run(release)

    def release(model: FifoModel) -> None:
        (queue,) = (q for name, q in model._queues.items() if rig.url.endswith(f"/{name}"))
        message = queue._store.first
        while message is not None:
            queue.change_visibility(queue.handle_of(message), 0, rig.server_clock.now())
            message = message.next

    monkeypatch.setattr(rig.clock, "sleep", meddle)
    received = rig.queue.receive(10)
    assert [message.row[1] for message in received] == ["a1", "b1"]
    assert {message.receipt.receive_count for message in received} == {2}


# Deleting and extending


def test_partial_failures_are_retried_until_each_entry_is_done(rig: Rig) -> None:
    """Entries in `Failed` by the server's fault are sent again, and only they."""
    rig.send(*(f"a{index}" for index in range(10)))
    receipts = [message.receipt for message in rig.queue.receive(10)]
    rig.server.faults = Faults(seed=5, fail_entry=0.5)
    assert rig.queue.extend(receipts, 60) == [Outcome.DONE] * 10
    assert rig.delete(receipts) == [Outcome.DONE] * 10
    sizes = [record.entries for record in rig.server.requests.recent("DeleteMessageBatch")]
    assert sizes[0] == 10
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) > 1
    assert rig.depth() == (0, 0)


@pytest.mark.parametrize("faults", [Faults(fail_entry=1.0), Faults(throttle=1.0), Faults(reset=1.0)])
def test_entries_without_an_answer_are_failed_when_the_budget_is_over(rig: Rig, faults: Faults) -> None:
    """Each receipt has an outcome also when nothing is known: FAILED, and no error."""
    rig.send("a1", "a2")
    receipts = [message.receipt for message in rig.queue.receive(10)]
    rig.server.faults = faults
    assert rig.delete(receipts, budget_s=2) == [Outcome.FAILED] * 2
    assert rig.queue.extend(receipts, 30, budget_s=2) == [Outcome.FAILED] * 2


def test_expired_handles_are_gone_and_the_others_done(rig: Rig) -> None:
    """The outcomes stand in the order of the receipts, whatever the order of the answer."""
    rig.send("a1", "b1")
    first, second = (message.receipt for message in rig.queue.receive(10))
    assert rig.queue.extend([second], 1_000) == [Outcome.DONE]
    rig.server_clock.advance(130)
    assert rig.queue.extend([first, second], 60) == [Outcome.LOST, Outcome.DONE]
    assert rig.delete([first, second]) == [Outcome.LOST, Outcome.DONE]
    assert rig.depth() == (1, 0)


def test_extending_past_twelve_hours_is_gone(rig: Rig) -> None:
    """SQS's own limit ends the hold; it is no error of the request."""
    rig.send("a1")
    (receipt,) = (message.receipt for message in rig.queue.receive(10))
    rig.server_clock.advance(60)
    assert rig.queue.extend([receipt], 43_200) == [Outcome.LOST]


def test_deleting_twice_is_done_twice(rig: Rig) -> None:
    """Deleting what is deleted succeeds, so a commit can be repeated."""
    rig.send("a1")
    receipts = [message.receipt for message in rig.queue.receive(10)]
    assert rig.delete(receipts) == [Outcome.DONE]
    assert rig.delete(receipts) == [Outcome.DONE]


def test_a_message_may_stand_twice_in_one_call(rig: Rig) -> None:
    """Entry ids are positions, so a redelivered message with two handles is no conflict."""
    rig.send("a1")
    (old,) = (message.receipt for message in rig.queue.receive(10))
    rig.server_clock.advance(130)
    (new,) = (message.receipt for message in rig.queue.receive(10))
    assert old.message_id == new.message_id
    assert rig.delete([old, new]) == [Outcome.LOST, Outcome.DONE]
    assert rig.delete([new, new]) == [Outcome.DONE, Outcome.DONE]


def test_lost_answers_of_deletes_and_extends_are_made_good(rig: Rig) -> None:
    """A batch that took effect without an answer is sent again, with the same outcomes."""
    rig.send(*(f"a{index}" for index in range(10)))
    receipts = [message.receipt for message in rig.queue.receive(10)]
    rig.server.faults = Faults(seed=7, drop_answer=0.7)
    assert rig.queue.extend(receipts, 60) == [Outcome.DONE] * 10
    assert rig.delete(receipts) == [Outcome.DONE] * 10


def test_entries_of_one_receive_go_together(rig: Rig) -> None:
    """Batches are built from whole receives, at most ten entries each, and keep the order within each."""
    rig.send(*(f"{group}{index}" for group in "abc" for index in range(4)))
    receipts = [message.receipt for _ in range(4) for message in rig.queue.receive(4)]
    calls = split_into_batches(reversed(receipts))
    assert sum(map(len, calls)) == 12
    assert all(len(call) <= 10 for call in calls)
    whole = Counter(receipt.receive for receipt in receipts)
    assert sorted(whole.values()) == [4, 4, 4], "each receive has a number of its own"
    for call in calls:
        assert all(whole[receive] == count for receive, count in Counter(r.receive for r in call).items())


def test_any_number_of_messages_is_deleted(rig: Rig) -> None:
    """In calls for ten at most; each is told before its turn, so that what is not called for yet is still renewed."""
    rig.send(*(f"{group}{number}" for group in "abcdefghijk" for number in range(10)), "l1", "m1", "n1", "o1", "p1")
    receipts = [message.receipt for message in rig.receive_all()]
    told: list[int] = []

    def note(entries: Sequence[Receipt]) -> None:
        told.append(len(entries))
        answered = len(rig.server.requests.recent("DeleteMessageBatch"))
        assert answered < len(told) <= answered + CONCURRENT_CALLS

    assert set(rig.queue.delete(receipts, before_call=note)) == {(receipt, Outcome.DONE) for receipt in receipts}
    assert (len(told), sum(told), max(told)) == (12, 115, 10)
    assert rig.depth() == (0, 0)


class Deletes:
    """In place of a queue's calls: how many are under way, who waits for them, and which fail at first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, deletes: int) -> None:
        self.clock = ManualClock()
        self.under_way: set[str] = set()
        self.most = 0
        self.begun = 0
        self.in_pool: list[int] = []
        """How many had begun when the pool was used."""
        self.failing: int | None = None
        self.slow_from, self.slow_s = 0, 0.0
        url = "http://127.0.0.1:9/000000000000/q.fifo"
        options = parse_source_options({"queueUrl": url, "journalLocation": "/journal"})
        self.queue = Queue(options, self.clock, self.pool, deletes=deletes)
        monkeypatch.setattr(self.queue, "_begin_delete", self.begin)

    def pool(self, name: str, threads: int) -> Any:
        def use(call: Callable[[int], Any], items: Sequence[int]) -> list[Any]:
            assert name == "call"
            self.in_pool.append(self.begun)
            return list(map(call, items))

        return SimpleNamespace(map=use)

    def begin(self, receipts: Sequence[Receipt], deadline: float) -> Begun[list[Outcome]]:
        if self.begun >= self.slow_from:
            self.clock.advance(self.slow_s)
        name, fails = receipts[0].message_id, self.begun == self.failing
        self.begun += 1
        self.under_way.add(name)
        self.most = max(self.most, len(self.under_way))

        def ask() -> list[Outcome]:
            nonlocal fails
            if fails:
                fails = False
                raise TransientQueueError("no answer")
            self.under_way.discard(name)
            return [Outcome.DONE] * len(receipts)

        return Begun(ask, clock=self.clock, budget_s=1.0)

    def delete(self) -> None:
        """Delete a thousand messages; each has its outcome."""
        receipts = [
            Receipt(str(each), f"handle {each}", "a", each, 1, sent_at_ms=0, received_at=0.0, receive=each // 10)
            for each in range(1_000)
        ]
        assert self.queue.delete(receipts) == [(receipt, Outcome.DONE) for receipt in receipts]
        assert not self.under_way
        assert self.begun == 100


@pytest.mark.parametrize("most", [1, CONCURRENT_CALLS, DRIVER_DELETES])
def test_one_thread_has_several_deletes_under_way(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """As many as it may, and needs no other while all goes well."""
    deletes = Deletes(monkeypatch, most)
    deletes.delete()
    assert deletes.most == most
    assert deletes.in_pool == []


def test_a_delete_that_fails_leaves_what_follows_to_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """To try it again takes time, and nothing is begun meanwhile by the one thread."""
    deletes = Deletes(monkeypatch, DRIVER_DELETES)
    deletes.failing = 3
    deletes.delete()
    assert deletes.in_pool == [3 + DRIVER_DELETES]


@pytest.mark.parametrize("slow_s", [0.6, 5.0])
def test_where_each_beginning_is_slow_several_threads_make_the_calls(
    monkeypatch: pytest.MonkeyPatch, slow_s: float
) -> None:
    """A name server that does not answer, or an address: one after the other would take for ever."""
    deletes = Deletes(monkeypatch, DRIVER_DELETES)
    deletes.slow_s = slow_s
    deletes.delete()
    assert deletes.in_pool == [-(-LONGEST_BEGIN_S // slow_s)]


def test_answers_to_deletes_are_read_first_where_further_connections_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is soon free for the calls that follow."""
    deletes = Deletes(monkeypatch, DRIVER_DELETES)
    deletes.slow_from, deletes.slow_s = 20, 0.6
    deletes.delete()
    assert deletes.in_pool == []
    assert CONCURRENT_CALLS < deletes.most < DRIVER_DELETES


def test_what_is_not_called_for_in_time_is_failed(rig: Rig) -> None:
    """The budget is one for all batches: those behind it cost no call, and are told all the same."""
    rig.send(*(f"{group}1" for group in "abcdefghijkl"))
    receipts = [message.receipt for message in rig.receive_all()]
    told: list[int] = []

    def stand_still(entries: Sequence[Receipt]) -> None:
        told.append(len(entries))
        rig.clock.sleep(6)

    outcomes = rig.queue.delete(receipts, budget_s=10, before_call=stand_still)
    assert [outcome for _, outcome in outcomes] == [Outcome.DONE] * 10 + [Outcome.FAILED] * 2
    assert told == [10, 2]


# What the queue says of itself


def test_describe_tells_arn_retention_and_redrive(rig: Rig) -> None:
    """The facts that the start-up checks need."""
    facts = rig.queue.describe()
    assert facts.arn.endswith(rig.url.rpartition("/")[2])
    assert facts.retention_s == 345_600
    assert facts.max_receive_count is None
    dead = rig.client.create_queue(QueueName="dead.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    arn = rig.client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": "2"}}'
    rig.client.set_queue_attributes(
        QueueUrl=rig.url, Attributes={"RedrivePolicy": policy, "MessageRetentionPeriod": "3600"}
    )
    assert (rig.queue.describe().max_receive_count, rig.queue.describe().retention_s) == (2, 3600)


def test_approximate_counts_tell_what_waits_and_what_is_held(rig: Rig) -> None:
    """Messages in flight do not count."""
    rig.send("a1", "b1", "c1")
    assert rig.queue.approximate_counts() == Counts(waiting=3)
    rig.queue.receive(1)
    assert rig.queue.approximate_counts() == Counts(waiting=2, in_flight=1)


def test_time_is_that_of_sending_in_whole_seconds(rig: Rig, server_clock: ManualClock) -> None:
    """SQS's own time, cut to seconds, in milliseconds: also where it is another than this machine's."""
    assert rig.queue.time_ms() == int(server_clock.now()) * 1000
    server_clock.advance(31)
    assert rig.queue.time_ms() == int(server_clock.now()) * 1000


def test_permission_check_touches_no_message(rig: Rig) -> None:
    """Both checks pass when allowed, and leave the queue as it is."""
    rig.send("a1")
    rig.queue.receive(10)
    rig.queue.require_permissions()
    assert rig.depth() == (0, 1)


# Errors


CALLS: dict[str, Callable[[Queue], object]] = {
    "describe": lambda queue: queue.describe(),
    "require_permissions": lambda queue: queue.require_permissions(),
    "approximate_counts": lambda queue: queue.approximate_counts(),
    "time_ms": lambda queue: queue.time_ms(),
    "receive": lambda queue: queue.receive(1),
}


@pytest.mark.parametrize(
    ("call", "action"),
    [
        ("describe", "GetQueueAttributes"),
        ("approximate_counts", "GetQueueAttributes"),
        ("require_permissions", "DeleteMessageBatch"),
        ("require_permissions", "ChangeMessageVisibilityBatch"),
        ("receive", "ReceiveMessage"),
    ],
)
def test_a_denied_action_is_access_denied_at_once(rig: Rig, call: str, action: str) -> None:
    """The permission that is missing is named, and nothing is tried again."""
    rig.server.faults = Faults(deny=frozenset({action}))
    permission = f"sqs:{action.removesuffix('Batch')}"
    with raises_one_line(AccessDeniedError, match=f"Grant the permission '{permission}' on the queue, "):
        CALLS[call](rig.queue)
    assert len(rig.server.requests.recent(action)) == 1


@pytest.mark.parametrize("operation", ["delete", "extend"])
def test_a_denied_batch_is_access_denied(rig: Rig, operation: str) -> None:
    """Not FAILED entries, which would be tried for ever."""
    rig.send("a1")
    receipts = [message.receipt for message in rig.queue.receive(1)]
    rig.server.faults = Faults(deny=frozenset({"DeleteMessageBatch", "ChangeMessageVisibilityBatch"}))
    with raises_one_line(AccessDeniedError):
        rig.queue.delete(receipts) if operation == "delete" else rig.queue.extend(receipts, 10)


@pytest.mark.parametrize("call", list(CALLS))
def test_a_missing_queue_is_queue_not_found(rig: Rig, call: str) -> None:
    """The queue's URL is named, for every call."""
    rig.client.delete_queue(QueueUrl=rig.url)
    with pytest.raises(QueueNotFoundError, match="does not exist") as told:
        CALLS[call](rig.queue)
    assert rig.url in one_line(told.value)


def test_a_standard_queue_is_told_by_its_attributes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue whose attributes do not say FIFO is refused, whatever its name says."""
    monkeypatch.setattr(Queue, "_attributes", lambda self, name: {"QueueArn": "arn:aws:sqs:eu-west-1:0:q"})
    with raises_one_line(NotFifoQueueError, match="standard queue"):
        rig.queue.describe()


def test_a_real_standard_queue_is_refused(rig: Rig) -> None:
    """AWS does not know the attribute FifoQueue there, and answers without it."""
    url = rig.client.create_queue(QueueName="plain")["QueueUrl"]
    rig.queue._url = url
    with pytest.raises(NotFifoQueueError):
        rig.queue.describe()


@pytest.fixture
def own_clients() -> Iterator[None]:
    """Clients built under this test's environment are forgotten after it."""
    aws.forget_clients()
    yield
    aws.forget_clients()


@pytest.mark.usefixtures("own_clients")
def test_credentials_that_were_missing_once_are_looked_for_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service of the machine that gives no answer in time must not leave a process without credentials for good."""
    find, found = botocore.session.Session.get_credentials, 0

    def not_at_first(session: botocore.session.Session) -> Any:
        nonlocal found
        found += 1
        return find(session) if found > 1 else None

    monkeypatch.setattr(botocore.session.Session, "get_credentials", not_at_first)
    assert rig.queue.approximate_counts() == Counts()
    assert found > 1


@pytest.mark.usefixtures("own_clients")
def test_no_credentials_is_access_denied(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any credentials in the chain the line says where they may come from."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with raises_one_line(AccessDeniedError, match="no usable AWS credentials"):
        rig.queue.describe()


@pytest.mark.usefixtures("own_clients")
def test_no_region_is_an_option_error(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """When neither the URL nor the chain names a region, `region` is asked for."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    options = parse_source_options(
        {"queueUrl": "https://queue.amazonaws.com.cn/123456789012/q.fifo", "journalLocation": "/journal"}
    )
    with raises_one_line(OptionError, match="'region'"):
        Queue(options, rig.clock).describe()


@pytest.mark.usefixtures("own_clients")
def test_connection_refused_is_transient_and_names_the_network(rig: Rig) -> None:
    """A server that is not there is retried, then told with the options to check."""
    options = parse_source_options({"queueUrl": "http://127.0.0.1:9/000000000000/q.fifo", "journalLocation": "/j"})
    with raises_one_line(TransientQueueError, match="'endpointUrl'"):
        Queue(options, rig.clock).describe()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (botocore.exceptions.ReadTimeoutError(endpoint_url="http://x"), TransientQueueError),
        (botocore.exceptions.EndpointConnectionError(endpoint_url="http://x"), TransientQueueError),
        (botocore.exceptions.NoCredentialsError(), AccessDeniedError),
        (botocore.exceptions.ProfileNotFound(profile="p"), AccessDeniedError),
        (botocore.exceptions.ParamValidationError(report="first\nsecond"), QueueRequestError),
    ],
)
def test_botocore_errors_become_ours_in_one_line(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: type[SqsFifoError]
) -> None:
    """No error of botocore's reaches the user, and none of its texts with line breaks."""

    def fail(config: object, wait_time_s: int = 0) -> Any:
        raise error

    monkeypatch.setattr(aws, "sqs_client", fail)
    with raises_one_line(expected):
        rig.queue.describe()


def test_no_error_tells_a_receipt_handle_or_a_body(rig: Rig) -> None:
    """What SQS quotes of a request stays out of our messages and of reprs."""
    rig.send("a1")
    (message,) = rig.queue.receive(1)
    handle = message.receipt.receipt_handle
    assert handle not in repr(message)
    rig.server.faults = Faults(deny=frozenset({"DeleteMessageBatch"}))
    with pytest.raises(AccessDeniedError) as told:
        rig.queue.delete([message.receipt])
    assert handle not in str(told.value)
