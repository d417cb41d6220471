"""The command `demo`: an auction through a FIFO queue and Spark, and an audit of the rows that arrived.

Bidders send interleaved bids of many auctions, one message group for each auction, and repeat some of them on purpose.
A streaming query writes them to Parquet, and is killed meanwhile. Once the queue is empty, the Parquet files are
compared with the sent bids. The queue is a local one, or one that is given: empty, on AWS or an emulator.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from sqs_fifo_spark.aws.calls import CALL_BUDGET_S, MAX_ENTRIES, QueueCalls
from sqs_fifo_spark.aws.named import with_url
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.demo.auction import Audit, Bid, SinkLog, audit, bids, count_rows, read_rows, sendings
from sqs_fifo_spark.demo.query import QueryProcess
from sqs_fifo_spark.demo.screen import Entry, Screen, make_screen, print_table
from sqs_fifo_spark.options import parse_source_options

_PATIENCE_S = 180.0
"""Seconds for which the demo goes on without a single row arriving."""
_FEWEST_RECEIVES = 10
"""A message that a killed process held is received again; fewer than so many might move it to a dead-letter queue."""
_PAUSE_S = 0.02
"""Between two calls of the bidders, so that bids still come while the query runs."""
_REFRESH_S = 0.1

# Dummy credentials for the local queue, and nothing of the user's own AWS or proxy settings.
_LOCAL = {
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
}
_UNWANTED = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SQS")


class DemoError(Exception):
    """The demo cannot go on; the message is one line for the person at the terminal, `status` the exit status."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text, status)
        self.text = text
        self.status = status


class DemoQueue(QueueCalls):
    """The queue as the demo sees it, beside the query."""

    def require_free(self) -> None:
        """Raise DemoError if the demo and what is there would mix, or NotFifoQueueError."""
        most = self.describe().max_receive_count
        if most is not None and most < _FEWEST_RECEIVES:
            raise DemoError(
                f"a bid goes to the dead-letter queue after {most} receives, and each process killed here costs one. "
                f"Take the redrive policy off the queue, or set maxReceiveCount to {_FEWEST_RECEIVES} or more",
                status=2,
            )
        if depth := self.depth():
            raise DemoError(f"the queue has {depth} messages, and must be empty: give one that nobody uses", status=2)

    def depth(self) -> int:
        """Return how many messages are in the queue, waiting, delayed or in flight, as far as SQS knows yet."""
        names = [f"ApproximateNumberOfMessages{which}" for which in ("", "Delayed", "NotVisible")]
        attributes = self._attributes(*names)
        return sum(int(attributes[name]) for name in names)

    def send(self, entries: Sequence[Mapping[str, str]]) -> set[str]:
        """Send up to ten messages and return their ids. Raises DemoError if SQS refuses one."""
        answer = self._retrying("send_message_batch", CALL_BUDGET_S, Entries=entries)
        if failed := answer.get("Failed"):
            raise DemoError(f"the queue refused a bid: {failed[0].get('Code')}: {failed[0].get('Message')}")
        return {done["MessageId"] for done in answer["Successful"]}


def run(
    messages: int, auctions: int, keep: Path | None, given: Mapping[str, str] | None = None, *, crash: bool = True
) -> int:
    """Play the auction and print the audit; return 0 if nothing was lost, doubled or out of order, else 1.

    `given` are the source's options of a queue to play on, in place of a local one.
    """
    log = ""
    try:
        work = _work_directory(keep)
        log = f" (Spark's log: {work / 'spark.log'})"
        found = _play(bids(messages, auctions), work, given or {}, crash=crash)
    except DemoError as error:
        print(f"demo: {error.text}{log if error.status == 1 else ''}", file=sys.stderr)
        return error.status
    show = f"{sys.executable} -m sqs_fifo_spark journal show --journal-location {work / 'journal'}"
    rows = f"spark.read.parquet('{work / 'parquet'}')"
    print(f"All is kept in {work}. Look at the journal: {show}; at the rows, in pyspark: {rows}")
    return 0 if found.is_clean else 1


def _work_directory(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="sqsfifo-demo-"))
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise DemoError(f"--keep '{keep}' must be a new or an empty directory", status=2)
    keep.mkdir(parents=True, exist_ok=True)
    return keep.resolve()


def _play(made: Sequence[Bid], work: Path, given: Mapping[str, str], *, crash: bool) -> Audit:
    try:
        import pyspark

        from sqs_fifo_spark.local.server import LocalQueueServer
    except ModuleNotFoundError as error:
        raise DemoError(f"{error.name} is missing: pip install '.[demo]' in this package's sources", status=3) from None
    os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable)
    auctions = len({bid.auction for bid in made})
    place = f"{'given' if given else 'local'} FIFO queue"
    title = f"{len(made):,} bids in {auctions:,} auctions: {place} -> Spark {pyspark.__version__} -> Parquet"
    print(title, flush=True)
    with ExitStack() as stack:
        # Entered last, left first: the query stops, then the bidders, the queue, the screen.
        screen = make_screen(len(made), SYSTEM_CLOCK)
        stack.enter_context(screen)
        screen.begin(f"a {place}, and bidders who send to it")
        if not given:
            os.environ.update(_LOCAL)
            for name in _UNWANTED:
                os.environ.pop(name, None)
            given = {"queueUrl": stack.enter_context(LocalQueueServer(queues=["bids.fifo"])).queue_url("bids.fifo")}
        options = with_url(parse_source_options, {**given, "journalLocation": str(work / "journal")})
        queue = DemoQueue(options, SYSTEM_CLOCK)
        queue.require_free()
        bidders = _Bidders(queue, made, screen)
        pool = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="bidders"))
        stack.callback(bidders.leave.set)
        sending = pool.submit(bidders.send)
        screen.begin(f"Spark {pyspark.__version__} and the streaming query start, while bids come in")
        began_at = SYSTEM_CLOCK.monotonic()
        query = stack.enter_context(QueryProcess(given, work))
        _watch(query, bidders, sending, SinkLog(work / "parquet"), _crashes(query, len(made)) if crash else [])
        took_s = SYSTEM_CLOCK.monotonic() - began_at
        screen.begin("the query stops")
    files = SinkLog(work / "parquet").new_files()
    found = audit(made, read_rows(files))
    micro_batches = len({file.batch_id for file in files})
    repeated = len(list(sendings(made))) - len(made)
    entries = _entries(found, repeated, len(files), micro_batches, took_s)
    if crash:
        entries.insert(2, _killed(query.kills, query.worker_kills))
    verdict = "Every bid arrived once and in order." if found.is_clean else "THE GUARANTEE IS BROKEN."
    print_table(title, entries, verdict, is_good=found.is_clean)
    return found


@dataclass
class _Bidders:
    """Send all bids, on one thread, so that they have an order."""

    queue: DemoQueue
    made: Sequence[Bid]
    screen: Screen
    sent: int = 0
    """Bids that the queue has taken; written by their thread alone."""
    leave: threading.Event = field(default_factory=threading.Event)
    """Set to end the sending early."""

    def send(self) -> None:
        pending = sendings(self.made)
        message_ids: set[str] = set()
        # For 5 minutes SQS takes no id a second time, and an earlier demo may have sent the same bids.
        auctioneer = uuid.uuid4().hex
        while entries := list(islice(pending, MAX_ENTRIES)):
            message_ids |= self.queue.send(
                [
                    {
                        "Id": str(position),
                        "MessageBody": bid.body,
                        "MessageGroupId": bid.auction,
                        "MessageDeduplicationId": f"{auctioneer}-{bid.deduplication_id}",
                    }
                    for position, bid in enumerate(entries)
                ]
            )
            self.sent = len(message_ids)
            self.screen.sent(self.sent)
            if SYSTEM_CLOCK.wait(self.leave, _PAUSE_S):
                return


@dataclass(frozen=True)
class _Crash:
    """A kill that is due in the first micro-batch after `delivered` messages have arrived."""

    delivered: int
    step: str
    kill: Callable[[], bool]
    """Return False if this was no moment for it."""


def _crashes(query: QueryProcess, total: int) -> list[_Crash]:
    return [
        _Crash(total // 8, "kill -9 of a busy one of Spark's Python workers", query.kill_a_worker),
        _Crash(
            total // 3,
            "kill -9 of the query, driver and JVM; it starts again, on the same checkpoint and journal",
            query.kill_and_restart,
        ),
    ]


def _watch(
    query: QueryProcess, bidders: _Bidders, sending: Future[None], log: SinkLog, crashes: Sequence[_Crash]
) -> None:
    """Show the progress until all has arrived and the queue is empty; DemoError if the query fails, or nothing arrives.

    Each of the `crashes` is made when it is due. SQS's counts may be late: so an empty queue ends nothing before
    a micro-batch after the last one with rows is committed. If rows are lost, it ends once nothing arrives any more.
    """
    screen, left_to_make = bidders.screen, list(crashes)
    delivered = deleted = last_batch = 0
    is_flowing = False
    deadline = SYSTEM_CLOCK.monotonic() + _PATIENCE_S
    while True:
        # Before the depth, or bids sent in between would be missed.
        all_sent, sent = sending.done(), bidders.sent
        if all_sent:
            sending.result()  # raises the error of the sending
        left = bidders.queue.depth()
        deleted = max(deleted, sent - left)
        # Files without a row are the mark of an empty micro-batch.
        if files := [file for file in log.new_files() if count_rows([file])]:
            if not is_flowing:
                again = " again" if delivered else ", and are deleted from the queue once Spark has committed them"
                screen.begin(f"bids arrive{again}")
                is_flowing = True
            delivered += count_rows(files)
            last_batch = files[-1].batch_id
            deadline = SYSTEM_CLOCK.monotonic() + _PATIENCE_S
        screen.arrived(delivered, deleted)
        is_late = SYSTEM_CLOCK.monotonic() > deadline
        if all_sent and left == 0 and (is_late or (delivered >= sent and query.last_commit > last_batch)):
            return
        if is_late:
            raise DemoError(f"nothing arrived for {_PATIENCE_S:g} s, and the queue is not empty")
        if query.end is not None:
            raise DemoError(query.end)
        due = left_to_make[0] if left_to_make and delivered >= left_to_make[0].delivered else None
        if due and query.is_in_a_batch and due.kill():
            screen.begin(left_to_make.pop(0).step)
            is_flowing = False
        SYSTEM_CLOCK.sleep(_REFRESH_S)


def _killed(queries: int, workers: int) -> Entry:
    note = f"with kill -9: the query {queries} x, and a Python worker of Spark {workers} x"
    return Entry("killed", f"{queries + workers:,}", note)


def _entries(found: Audit, repeated: int, files: int, micro_batches: int, took_s: float) -> list[Entry]:
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
        Entry("seconds", f"{took_s:.1f}", "from the query's first start until the queue was empty"),
    ]
    if found.unknown:
        entries.append(fault("unknown", found.unknown, "rows that nobody sent"))
    return entries
