"""A queue, a journal that a query has written, and the commands."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
from click.testing import CliRunner, Result

from sqs_fifo_spark.cli.commands import commands
from sqs_fifo_spark.cli.output import Status
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.journal.location import open_store
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.local import Faults, LocalQueueServer
from sqs_fifo_spark.options import parse_source_options
from sqs_fifo_spark.sink.digests import digest_of
from sqs_fifo_spark.sink.marks import new_run
from sqs_fifo_spark.sink.record import SentRecord
from sqs_fifo_spark.source import owner as owners
from sqs_fifo_spark.source.driver.driver import Driver
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.task.partition import read_partition

_numbers = itertools.count(1)


@dataclass
class QueueRig:
    """On any server of SQS."""

    sqs: Any
    location: str
    """The journal's."""
    url: str = ""
    drivers: list[Driver] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.url = self.create("bids")
        self._sent = itertools.count(1)

    def create(self, name: str) -> str:
        """Create a queue whose name begins so, and return its URL."""
        name = f"{name}-{next(_numbers)}.fifo"
        url: str = self.sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})["QueueUrl"]
        return url

    def arn(self, url: str) -> str:
        return f"arn:aws:sqs:us-east-1:000000000000:{url.rpartition('/')[2]}"

    def set(self, **attributes: str) -> None:
        if attributes:
            self.sqs.set_queue_attributes(QueueUrl=self.url, Attributes=attributes)

    def send(self, *bodies: str, group: str = "g", **request: Any) -> None:
        for body in bodies:
            self.sqs.send_message(
                QueueUrl=self.url,
                MessageBody=body,
                MessageGroupId=group,
                MessageDeduplicationId=str(next(self._sent)),
                **request,
            )

    def receive(self, *, delete: bool = False) -> list[tuple[str, str, int]]:
        """Return body, group and receive count of all that the queue gives now, in its order.

        Of a group that is at most ten messages, unless they are deleted.
        """
        found: list[tuple[str, str, int]] = []
        names = ["MessageGroupId", "ApproximateReceiveCount"]
        while messages := self.sqs.receive_message(
            QueueUrl=self.url, MaxNumberOfMessages=10, MessageSystemAttributeNames=names
        ).get("Messages"):
            for each in messages:
                attributes = each["Attributes"]
                count = int(attributes["ApproximateReceiveCount"])
                found.append((each["Body"], attributes["MessageGroupId"], count))
                if delete:
                    self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=each["ReceiptHandle"])
        return found

    def driver(self) -> tuple[Driver, Offset]:
        """Return a new driver, which owns the journal, and its first offset."""
        options = self._options()
        driver = Driver(
            options,
            queue=Queue(options, SYSTEM_CLOCK),
            store=lambda: open_store(options.journal_location),
            clock=SYSTEM_CLOCK,
        )
        self.drivers.append(driver)
        start = driver.initial_offset()
        driver._owned(start)
        return driver, start

    def read_epoch(self) -> tuple[Driver, Offset, list[dict[str, Any]]]:
        """Let a query read what the queue has, without committing it. Return its driver, the offset, and the rows."""
        driver, start = self.driver()
        self._end = driver.latest_offset(start)
        return driver, self._end, self.read(driver, start, self._end)

    def read_and_die(self, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
        """Let a query read what the queue has, and end before it has committed that. Return its rows, in order."""
        driver, _, rows = self.read_epoch()
        driver.stop()
        # Its claim names this process, which goes on.
        monkeypatch.setattr(owners, "_began", lambda pid: 0)
        return rows

    def read_again(self) -> tuple[Driver, Offset, list[dict[str, Any]]]:
        """Let the query start again, and read the open epoch, without committing it. Return as `read_epoch`."""
        driver, start = self.driver()
        return driver, self._end, self.read(driver, start, self._end)

    def read(self, driver: Driver, start: Offset, end: Offset) -> list[dict[str, Any]]:
        """Return the rows of the epoch that ends at `end`."""
        batches = [batch for plan in driver.plan(start, end) for batch in read_partition(self._options(), plan)]
        return [row for batch in batches for row in batch.to_pylist()]

    def _options(self) -> Any:
        given = {"queueUrl": self.url, "journalLocation": self.location, "waitTimeSeconds": "1"}
        return parse_source_options({**given, "visibilityTimeoutSeconds": "60"})

    def run(self, *arguments: str, **extra: Any) -> Result:
        """Run a command; what is no exit is raised."""
        result = CliRunner().invoke(commands, arguments, **extra)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def on_queue(self, command: str, *arguments: str, **extra: Any) -> Result:
        return self.run(command, "--queue-url", self.url, *arguments, **extra)

    def on_journal(self, command: str, *arguments: str, **extra: Any) -> Result:
        return self.run("journal", command, "--journal-location", self.location, *arguments, **extra)


@dataclass
class Rig(QueueRig):
    """On the local queue, with a journal on a path."""

    server: LocalQueueServer = field(kw_only=True)
    journal: Path = field(kw_only=True)

    def stored(self) -> dict[str, tuple[bytes, int]]:
        """Return what stands in the journal, and when it was written."""
        files = [path for path in self.journal.rglob("*") if path.is_file()]
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def record_rows(store: Store, writer: str, *, batch: int, began_at: float) -> None:
    """Record three rows, as a task of this writer does."""
    run = new_run(int(began_at * 1_000))
    record = SentRecord(store, SYSTEM_CLOCK, query=writer, batch=str(batch), run=run, partition=0)
    record.add([digest_of("id", "g", number) for number in "123"], by=math.inf)


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[LocalQueueServer, Any]]:
    """A server and its client, for all tests of a module: clients take long to make."""
    with LocalQueueServer() as running:
        client = boto3.client("sqs", endpoint_url=running.endpoint_url)
        yield running, client
        client.close()


@pytest.fixture
def rig(server: tuple[LocalQueueServer, Any], tmp_path: Path) -> Iterator[Rig]:
    running, client = server
    made = Rig(client, str(tmp_path / "journal"), server=running, journal=tmp_path / "journal")
    yield made
    made.server.faults = Faults()
    for driver in made.drivers:
        driver.stop()


def lines(result: Result) -> list[dict[str, Any]]:
    """Return the JSON values that a command has printed, one on each line."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def one_error(result: Result) -> str:
    """Return the one line that a command has printed to the standard error."""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def error_of(result: Result, status: Status) -> str:
    """Return the one line to which a command that ended with `status` has come."""
    assert result.exit_code == status, result.output
    return one_error(result)


def output_of(result: Result, status: Status = Status.OK) -> str:
    """Return the text of a command that ended with `status`."""
    assert result.exit_code == status, result.output
    return result.stdout
