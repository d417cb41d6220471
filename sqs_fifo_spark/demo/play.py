"""The command `demo`: an auction through a local queue and Spark, and an audit of the rows that arrived.

Bidders send interleaved bids of many auctions, one message group for each auction, and repeat some of them on purpose.
A streaming query writes them to Parquet. Once the queue is empty, the Parquet files are compared with the sent bids.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.demo.auction import Audit, Bid, SinkLog, audit, bids, count_rows, read_rows, sendings
from sqs_fifo_spark.demo.screen import Entry, Screen, make_screen, print_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_PATIENCE_S = 180.0
"""Seconds for which the demo goes on without a single row arriving."""
_ENTRIES = 10
_PAUSE_S = 0.02
"""Between two calls of the bidders, so that bids still come while the query runs."""
_REFRESH_S = 0.2

# Dummy credentials for the local queue, and nothing of the user's own AWS or proxy settings.
_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_DRIVER_PYTHON": sys.executable,
}
_UNWANTED = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SQS")


class DemoError(Exception):
    """The demo cannot go on; the message is one line for the person at the terminal, `status` the exit status."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text, status)
        self.text = text
        self.status = status


def run(messages: int, auctions: int, keep: Path | None) -> int:
    """Play the auction and print the audit; return 0 if nothing was lost, doubled or out of order, else 1."""
    try:
        with _work_directory(keep) as work:
            found = _play(bids(messages, auctions), work)
    except DemoError as error:
        hint = "" if keep else " (Spark's log: run again with --keep DIR)"
        print(f"demo: {error.text}{hint}", file=sys.stderr)
        return error.status
    return 0 if found.is_clean else 1


@contextmanager
def _work_directory(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="sqsfifo-demo-", ignore_cleanup_errors=True) as directory:
            yield Path(directory)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise DemoError(f"--keep '{keep}' must be a new or an empty directory", status=2)
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.resolve()


def _play(made: Sequence[Bid], work: Path) -> Audit:
    try:
        import pyspark
        from botocore.exceptions import BotoCoreError, ClientError

        from sqs_fifo_spark.local.server import LocalQueueServer
    except ModuleNotFoundError as error:
        raise DemoError(f"{error.name} is missing: pip install '.[demo]' in this package's sources", status=3) from None
    os.environ.update(_ENVIRONMENT)
    for name in _UNWANTED:
        os.environ.pop(name, None)
    auctions = len({bid.auction for bid in made})
    title = f"{len(made):,} bids in {auctions:,} auctions: local FIFO queue -> Spark {pyspark.__version__} -> Parquet"
    print(title, flush=True)
    try:
        with ExitStack() as stack:
            # Entered last, left first: the query stops, then Spark, the bidders, the queue, the screen.
            screen = make_screen(len(made), SYSTEM_CLOCK)
            stack.enter_context(screen)
            screen.begin("a local FIFO queue, and bidders who send to it")
            server = stack.enter_context(LocalQueueServer(queues=["bids.fifo"]))
            url = server.queue_url("bids.fifo")
            bidders = _Bidders(server.client, url, made, screen)
            pool = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="bidders"))
            stack.callback(bidders.leave.set)
            sending = pool.submit(bidders.send)
            screen.begin(f"Spark {pyspark.__version__} starts, while bids come in")
            spark = stack.enter_context(_spark(work))
            screen.begin("the streaming query starts, and runs its first micro-batch")
            began_at = SYSTEM_CLOCK.monotonic()
            query = stack.enter_context(_query(spark, url, work))
            _watch(query, bidders, sending, SinkLog(work / "parquet"))
            took_s = SYSTEM_CLOCK.monotonic() - began_at
            screen.begin("Spark stops")
    except (BotoCoreError, ClientError) as error:
        raise DemoError(f"the local queue did not answer as it should: {_one_line(error)}") from None
    files = SinkLog(work / "parquet").new_files()
    found = audit(made, read_rows(files))
    micro_batches = len({file.batch_id for file in files})
    repeated = len(list(sendings(made))) - len(made)
    entries = _entries(found, repeated, len(files), micro_batches, took_s)
    verdict = "Every bid arrived once and in order." if found.is_clean else "THE GUARANTEE IS BROKEN."
    print_table(title, entries, verdict, is_good=found.is_clean)
    return found


@dataclass
class _Bidders:
    """Send all bids, on one thread, so that they have an order."""

    sqs: Any
    url: str
    made: Sequence[Bid]
    screen: Screen
    sent: int = 0
    """Bids that the queue has taken; written by their thread alone."""
    leave: threading.Event = field(default_factory=threading.Event)
    """Set to end the sending early."""

    def send(self) -> None:
        pending = sendings(self.made)
        message_ids: set[str] = set()
        while entries := list(islice(pending, _ENTRIES)):
            answer = self.sqs.send_message_batch(
                QueueUrl=self.url,
                Entries=[
                    {
                        "Id": str(position),
                        "MessageBody": bid.body,
                        "MessageGroupId": bid.auction,
                        "MessageDeduplicationId": bid.deduplication_id,
                    }
                    for position, bid in enumerate(entries)
                ],
            )
            if answer.get("Failed"):
                raise DemoError(f"the local queue refused a bid: {answer['Failed'][0].get('Message')}")
            message_ids.update(done["MessageId"] for done in answer["Successful"])
            self.sent = len(message_ids)
            self.screen.sent(self.sent)
            if SYSTEM_CLOCK.wait(self.leave, _PAUSE_S):
                return


@contextmanager
def _failing(what: str) -> Iterator[None]:
    """Raise DemoError for an error of Spark's: `what` has failed, and why."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        raise DemoError(f"{what}: {_one_line(error)}") from None


@contextmanager
def _spark(work: Path) -> Iterator[SparkSession]:
    """Spark on this machine, silent: the output of the JVM and its workers goes to `spark.log`."""
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .appName("sqs-fifo-spark demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(work / "warehouse"))
        .config("spark.local.dir", str(work / "spark"))
    )
    with _failing("Spark did not start; it needs Java 17 or later"), _stderr_to(work / "spark.log"):
        spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Let all that is started in this block write its standard error to `path`, for as long as it lives."""
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


@contextmanager
def _query(spark: SparkSession, url: str, work: Path) -> Iterator[StreamingQuery]:
    """The streaming query that the demo is about."""
    with _failing("the query did not start"):
        query = (
            spark.readStream.format("sqsfifo")
            .option("queueUrl", url)
            .option("journalLocation", str(work / "journal"))
            .option("waitTimeSeconds", "1")
            .load()
            .writeStream.format("parquet")
            .option("path", str(work / "parquet"))
            .option("checkpointLocation", str(work / "checkpoint"))
            .start()
        )
    try:
        yield query
    finally:
        query.stop()


def _watch(query: StreamingQuery, bidders: _Bidders, sending: Future[None], log: SinkLog) -> None:
    """Show the progress until all is sent and the queue is empty; DemoError if the query fails, or nothing arrives."""
    screen = bidders.screen
    delivered = deleted = 0
    deadline = SYSTEM_CLOCK.monotonic() + _PATIENCE_S
    while True:
        # Before the depth, or bids sent in between would be missed.
        all_sent, sent = sending.done(), bidders.sent
        if all_sent:
            sending.result()  # raises the error of the sending
        left = _depth(bidders.sqs, bidders.url)
        deleted = max(deleted, sent - left)
        if arrived := count_rows(log.new_files()):
            if not delivered:
                screen.begin("bids arrive, and are deleted from the queue once Spark has committed them")
            delivered += arrived
            deadline = SYSTEM_CLOCK.monotonic() + _PATIENCE_S
        screen.arrived(delivered, deleted)
        if all_sent and left == 0:
            return
        if SYSTEM_CLOCK.monotonic() > deadline:
            raise DemoError(f"nothing arrived for {_PATIENCE_S:g} s, and the queue is not empty")
        with _failing("the query failed"):
            if query.awaitTermination(cast(int, _REFRESH_S)):  # it takes parts of a second, and does not say so
                raise DemoError("the query stopped before the queue was empty")


def _depth(sqs: Any, url: str) -> int:
    """Return how many messages are in the queue, waiting or in flight."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return sum(int(attributes[name]) for name in names)


def _one_line(error: Exception) -> str:
    """Return our own message if one stands in Spark's error, else its first line with a text."""
    text = str(error)
    own = re.findall(r"sqs_fifo_spark\.errors\.\w+: (.+)", text)
    spoken = [line.lstrip(": ") for line in text.splitlines() if line.strip(": ")]
    if spoken and spoken[0].startswith("An error occurred while calling"):
        # Py4J's first line only names the call.
        spoken = spoken[1:]
    return str(own[-1]) if own else next(iter(spoken), repr(error))


def _entries(found: Audit, repeated: int, files: int, micro_batches: int, took_s: float) -> list[Entry]:
    """Return the lines of the table at the end."""

    def fault(name: str, count: int, note: str) -> Entry:
        return Entry(name, f"{count:,}", note, is_good=count == 0)

    rows_each = found.delivered / max(micro_batches, 1)
    entries = [
        Entry("sent", f"{found.sent:,}", f"and {repeated:,} of them a second time, with the same deduplication id"),
        Entry("delivered", f"{found.delivered:,}", f"rows in {files:,} Parquet files"),
        fault("lost", found.lost, "sent, but in no file"),
        fault("doubled", found.doubled, "rows that had come before"),
        fault("out of order", found.out_of_order, "in their group, within files and across micro-batches"),
        Entry("micro-batches", f"{micro_batches:,}", f"of {rows_each:,.0f} rows on average"),
        Entry("throughput", f"{found.delivered / took_s:,.0f}/s", f"{took_s:.1f} s from the query's start to the end"),
    ]
    if found.unknown:
        entries.append(fault("unknown", found.unknown, "rows that nobody sent"))
    return entries
