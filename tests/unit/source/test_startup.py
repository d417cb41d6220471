"""Start-up: all that can be known to be wrong is told in one line before the first message is received."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import (
    JournalMismatchError,
    JournalUnavailableError,
    QueueNotFoundError,
    SqsFifoError,
)
from sqs_fifo_spark.journal.location import open_store
from sqs_fifo_spark.local import LocalQueueServer
from sqs_fifo_spark.options import parse_source_options
from sqs_fifo_spark.source.driver.driver import Driver
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.plan import PartitionPlan, deal_of
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.task.partition import read_partition
from tests.helpers import raises_one_line


class Rig:
    """A queue with one message in it, a journal location, and drivers on both."""

    def __init__(self, server: LocalQueueServer, directory: Path) -> None:
        self.server = server
        self.sqs: Any = boto3.client("sqs", endpoint_url=server.endpoint_url)
        self.url = self.create("bids.fifo")
        self.journal = directory / "journal"
        self.sqs.send_message(QueueUrl=self.url, MessageBody="x", MessageGroupId="a", MessageDeduplicationId="1")

    def create(self, name: str, **attributes: str) -> str:
        url: str = self.sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true", **attributes})["QueueUrl"]
        return url

    def driver(self, **options: str) -> Driver:
        parsed = parse_source_options(
            {"queueUrl": self.url, "journalLocation": str(self.journal), "waitTimeSeconds": "1", **options}
        )
        return Driver(
            parsed,
            queue=Queue(parsed, SYSTEM_CLOCK),
            store=lambda: open_store(parsed.journal_location),
            clock=SYSTEM_CLOCK,
        )

    def received(self) -> int:
        return self.server.requests.counts().get("ReceiveMessage", 0)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with LocalQueueServer() as server:
        yield Rig(server, tmp_path)


def a_missing_queue(rig: Rig) -> Driver:
    return rig.driver(queueUrl=rig.url.replace("bids", "bidz"))


def an_unwritable_journal(rig: Rig) -> Driver:
    return rig.driver(journalLocation="/proc/journal")


def a_file_where_the_journal_should_be(rig: Rig) -> Driver:
    rig.journal.write_text("")
    return rig.driver()


def a_journal_of_another_queue(rig: Rig) -> Driver:
    rig.driver().initial_offset()
    return rig.driver(queueUrl=rig.create("other.fifo"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "error", "says"),
    [
        (a_missing_queue, QueueNotFoundError, "bidz.fifo' does not exist"),
        (an_unwritable_journal, JournalUnavailableError, "cannot write"),
        (a_file_where_the_journal_should_be, JournalUnavailableError, "Not a directory"),
        (a_journal_of_another_queue, JournalMismatchError, "belongs to the queue 'arn:aws:sqs:us-east-1:.+:bids.fifo'"),
    ],
)
def test_what_is_wrong_is_told_before_the_first_receive(
    rig: Rig, spoil: Callable[[Rig], Driver], error: type[SqsFifoError], says: str
) -> None:
    """One line of its own class, and nothing was received. A missing permission is told so, too: test_permissions."""
    driver = spoil(rig)
    with raises_one_line(error, match=says):
        driver.initial_offset()
    assert rig.received() == 0


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"MessageRetentionPeriod": "600"}, "keeps messages for only 600 s"),
        ({"RedrivePolicy": '{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": "2"}}'}, "after 2 receives"),
    ],
)
def test_a_queue_that_drops_messages_early_is_warned_of(
    rig: Rig, attributes: dict[str, str], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A short retention, or a redrive policy that two crashes set off, is said once, and the query starts."""
    rig.create("dead.fifo")
    arn = "arn:aws:sqs:us-east-1:000000000000:dead.fifo"
    url = rig.create("risky.fifo", **{name: text.format(arn=arn) for name, text in attributes.items()})
    rig.driver(queueUrl=url).initial_offset()
    assert caplog.text.count(says) == 1


def test_an_executor_that_does_not_find_the_journal_receives_nothing(rig: Rig, tmp_path: Path) -> None:
    """On a path that is not shared it would keep messages where the driver never finds them."""
    driver = rig.driver()
    start = driver.initial_offset()
    (plan,) = driver.plan(start, driver.latest_offset(start))
    probed = rig.received()
    elsewhere = parse_source_options({"queueUrl": rig.url, "journalLocation": str(tmp_path / "own-disk")})
    with pytest.raises(JournalUnavailableError, match="does not find the driver's journal"):
        list(read_partition(elsewhere, plan))
    foreign = PartitionPlan("0" * 32, 1, 1, 0, 10, 10, 0, "", 0, False, 0, b"", False)
    with pytest.raises(JournalUnavailableError, match="one place that driver and all executors share"):
        list(read_partition(parse_source_options({"queueUrl": rig.url, "journalLocation": str(rig.journal)}), foreign))
    assert rig.received() == probed
    driver.stop()


def test_a_plan_shows_no_body_and_no_handle(rig: Rig) -> None:
    """Spark prints partitions in its own logs. What the probe got stands in the journal; a plan names it."""
    secret = "body-that-nobody-may-see"
    rig.sqs.send_message(QueueUrl=rig.url, MessageBody=secret, MessageGroupId="b", MessageDeduplicationId="2")
    driver = rig.driver()
    start = driver.initial_offset()
    plans = driver.plan(start, driver.latest_offset(start))
    journal = Journal(open_store(str(rig.journal)), start.journal)
    caught = [journal.read(share.name) for share in deal_of(plans[0], journal).shares]
    assert secret in {body for each in caught if each for body in each.rows.column("body").to_pylist()}
    shown = repr(plans) + repr(deal_of(plans[0], journal)) + str(pickle.dumps(plans))
    assert secret not in shown
    assert not any(receipt.receipt_handle in shown for each in caught if each for receipt in each.head.receipts)
    driver.stop()
