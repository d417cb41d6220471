"""`python -m tests.bench.hot_groups`: how fast a query drains few message groups, beside plain loops in one process.

Each round drains the same backlog in each way, in turn, from queues of one local server in a process of its own, so
that a busy machine slows all ways alike. The rows that a query gave are checked: each once, each group in order.

    loop      boto3: receive ten messages, put the same bytes durably on a local disk, delete the ten: what the laws
              force
    bare      the same without the put
    journal   a query with deleteAfter=journal, its journal on a local disk, until all is in its sink
    commit    the same with deleteAfter=commit

A way can have its own number of groups, such as `journal:50`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from pyspark.sql import SparkSession

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.journal.location import open_store
from sqs_fifo_spark.source.message import SYSTEM_ATTRIBUTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_numbers = itertools.count(1)


class Bench:
    """One server, one Spark, and the ways to drain a queue. Each way returns how many micro-batches it took."""

    def __init__(self, endpoint_url: str, spark: SparkSession, home: Path, args: argparse.Namespace) -> None:
        self._sqs = boto3.client("sqs", endpoint_url=endpoint_url, region_name="us-east-1")
        self._endpoint_url = endpoint_url
        self._spark = spark
        self._home = home
        self._args = args
        self.ways: dict[str, Callable[[str, int, int], int]] = {
            "loop": self._loop,
            "bare": self._bare,
            "journal": self._journal,
            "commit": self._commit,
        }

    def fill(self, messages: int, groups: int) -> str:
        """Return the URL of a new queue that holds so many messages."""
        attributes = {"FifoQueue": "true"}
        url: str = self._sqs.create_queue(QueueName=f"bench-{next(_numbers)}.fifo", Attributes=attributes)["QueueUrl"]
        body = "x" * self._args.bytes
        for start in range(0, messages, 10):
            entries = [
                {
                    "Id": str(number),
                    "MessageBody": body,
                    "MessageGroupId": f"g{number % groups}",
                    "MessageDeduplicationId": str(number),
                }
                for number in range(start, min(start + 10, messages))
            ]
            self._sqs.send_message_batch(QueueUrl=url, Entries=entries)
        return url

    def _loop(self, url: str, messages: int, groups: int) -> int:
        store = open_store(str(self._home / f"loop-{next(_numbers)}"), None)
        return self._receive_all(url, messages, lambda number, data: store.put_if_absent(f"{number}.json", data))

    def _bare(self, url: str, messages: int, groups: int) -> int:
        return self._receive_all(url, messages, lambda number, data: None)

    def _receive_all(self, url: str, messages: int, put: Callable[[int, bytes], object]) -> int:
        """Receive ten messages with all that the query receives, `put` them, and delete them, until none is left."""
        left = messages
        while left:
            answer = self._sqs.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=10,
                MessageSystemAttributeNames=list(SYSTEM_ATTRIBUTES),
                MessageAttributeNames=["All"],
            )
            put(left, json.dumps(answer["Messages"]).encode())
            entries = [
                {"Id": str(index), "ReceiptHandle": each["ReceiptHandle"]}
                for index, each in enumerate(answer["Messages"])
            ]
            left -= len(self._sqs.delete_message_batch(QueueUrl=url, Entries=entries)["Successful"])
        return 0

    def _journal(self, url: str, messages: int, groups: int) -> int:
        return self._query(url, messages, groups, "journal")

    def _commit(self, url: str, messages: int, groups: int) -> int:
        return self._query(url, messages, groups, "commit")

    def _common(self) -> dict[str, str]:
        return {"endpointUrl": self._endpoint_url, "region": "us-east-1", **dict(self._args.option)}

    def _query(self, url: str, messages: int, groups: int, delete_after: str) -> int:
        home = self._home / f"query-{next(_numbers)}"
        rows: list[list[Any]] = []
        count = [0]

        def take(batch: DataFrame, number: int) -> None:
            rows.append(batch.select("messageGroupId", "sequenceNumber").collect())
            count[0] += len(rows[-1])

        options = {"queueUrl": url, "journalLocation": str(home / "journal"), "deleteAfter": delete_after}
        stream = self._spark.readStream.format("sqsfifo").options(**options, **self._common()).load()
        query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(home / "checkpoint")).start()
        while count[0] < messages and query.isActive:
            query.awaitTermination(0.05)  # type: ignore[arg-type]  # it takes parts of a second, too
        query.stop()
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        self._check(rows, messages, groups)
        return sum(map(bool, rows))

    def _check(self, batches: list[list[Any]], messages: int, groups: int) -> None:
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        for batch in batches:
            for group, number in sorted((row[0], int(row[1])) for row in batch):
                numbers[group].append(number)
        told = sum(map(len, numbers.values()))
        if told != messages or len(numbers) != groups:
            raise RuntimeError(f"{told} rows of {messages} messages, {len(numbers)} of {groups} groups")
        for group, each in numbers.items():
            if each != sorted(set(each)):
                raise RuntimeError(f"group {group} is not in order, or has a message twice")


def main() -> int:
    """Print messages per second for each way, and each way's ratio to the first one, and return 0."""
    parser = argparse.ArgumentParser(description="measure how fast few message groups are drained")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=500, help="of a message's body")
    parser.add_argument("--delay-ms", type=float, default=0, help="added to each request")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", default="loop,journal", help="loop, bare, journal, commit; each perhaps with :GROUPS")
    parser.add_argument("--option", type=lambda text: text.split("=", 1), action="append", default=[])
    args = parser.parse_args()
    os.environ.update(AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any")  # the local queue takes all
    command = [sys.executable, "-m", "sqs_fifo_spark", "local-queue", "--port", "0"]
    if args.delay_ms:
        command += ["--delay-s", str(args.delay_ms / 1000)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
        tempfile.TemporaryDirectory() as home,
    ):
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]
            _measure(url, Path(home), args)
        finally:
            server.terminate()
    return 0


def _measure(url: str, home: Path, args: argparse.Namespace) -> None:
    from sqs_fifo_spark import register

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    register(spark)
    bench = Bench(url, spark, home, args)
    names = args.ways.split(",")
    if {"journal", "commit"} & {name.partition(":")[0] for name in names}:
        bench._query(bench.fill(2_000, args.groups), 2_000, args.groups, "journal")  # what starts only once
    spent: dict[str, list[float]] = {name: [] for name in names}
    batches: dict[str, list[int]] = {name: [] for name in names}
    for _ in range(args.rounds):
        for name in names:
            way, _, own = name.partition(":")
            groups = int(own or args.groups)
            queue = bench.fill(args.messages, groups)
            begun = SYSTEM_CLOCK.monotonic()
            batches[name].append(bench.ways[way](queue, args.messages, groups))
            spent[name].append(SYSTEM_CLOCK.monotonic() - begun)
    print(f"{args.messages:,} messages of {args.bytes} B, groups: {args.groups}, delay: {args.delay_ms:g} ms")
    print(f"{'way':<14} {'messages/s':>11} {'ratio':>6} {'micro-batches':>14}  ratio of each round")
    for name in names:
        ratios = [first / own for first, own in zip(spent[names[0]], spent[name], strict=True)]
        speed = args.messages / statistics.median(spent[name])
        each = " ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"{name:<14} {speed:>11.0f} {statistics.median(ratios):>6.2f} {max(batches[name]):>14}  {each}")
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
