"""The calls that receive, and what the queue says of itself, against the strict local queue: nothing is lost."""

from __future__ import annotations

import pytest

from sqs_fifo_spark.columns import ARROW_SCHEMA
from sqs_fifo_spark.errors import TransientQueueError
from sqs_fifo_spark.local import Faults, FifoModel
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.queue import Counts
from tests.helpers import raises_one_line
from tests.manual_clock import ManualClock
from tests.unit.source.rig import Rig

pytestmark = pytest.mark.usefixtures("transport")
NAMES = [field.name for field in ARROW_SCHEMA]


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
        for message in list(queue._store):
            queue.change_visibility(queue.handle_of(message), 0, rig.server_clock.now())

    monkeypatch.setattr(rig.clock, "sleep", meddle)
    received = rig.queue.receive(10)
    assert [message.row[1] for message in received] == ["a1", "b1"]
    assert {message.receipt.receive_count for message in received} == {2}


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
