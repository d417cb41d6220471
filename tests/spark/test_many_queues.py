"""One query reads several queues: each message once, in order within queue and group, whatever becomes of a queue."""

from __future__ import annotations

import functools
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.streaming.query import StreamingQuery

from sqs_fifo_spark.demo.auction import SinkLog
from tests.helpers import depth, wait_until
from tests.spark.support import (
    LONG_S,
    SPARK_VERSION,
    Gate,
    Rig,
    Sent,
    assert_each_once,
    in_both_modes,
    micro_batches,
    require_alive,
    start_app,
)

pytestmark = pytest.mark.law("source-1", "source-3", "source-5")

NAMES = ("bids", "offers", "refunds")


class Queues:
    """Several queues on the rig's server, all with the same groups."""

    def __init__(self, rig: Rig, names: tuple[str, ...] = NAMES) -> None:
        self.rig = rig
        self.urls = {name: rig.create_queue(f"{name}.fifo") for name in names}
        self.sent: dict[str, Sent] = {}

    def create(self, name: str) -> None:
        self.urls[name] = self.rig.create_queue(f"{name}.fifo")

    def send(self, count: int, *names: str) -> None:
        for name in names or tuple(self.urls):
            self.sent.update(self.rig.send(count, groups=5, url=self.urls[name]))

    def source(self, *names: str, **options: object) -> DataFrame:
        return self.rig.spark.readStream.format("sqsfifo").options(**self.options(*names, **options)).load()

    def options(self, *names: str, **options: object) -> dict[str, str]:
        urls = ", ".join(self.urls[name] for name in names or tuple(self.urls))
        given = self.rig.options(queueUrls=urls, **options)
        return {name: value for name, value in given.items() if name != "queueUrl"}

    def depths(self) -> Counter[str]:
        depth_of = functools.partial(self.rig.call, "GetQueueAttributes")
        return Counter({name: sum(depth(depth_of, url)) for name, url in self.urls.items()})

    def drain(self, query: StreamingQuery) -> None:
        def is_empty() -> bool:
            return not self.depths().total() and {row["messageId"] for row in self.rows()} >= self.sent.keys()

        self.wait(query, is_empty, "all queues are empty")

    def wait(self, query: StreamingQuery, is_so: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            require_alive(query)
            return is_so()

        wait_until(look, LONG_S, what)

    def rows(self) -> list[dict[str, Any]]:
        """Return the sink's rows in the order of micro-batches, files, and positions in a file."""
        columns = ["messageId", "messageGroupId", "sequenceNumber", "queueUrl"]
        found = []
        for file in SinkLog(self.rig.home / "parquet").new_files():
            read = pq.ParquetFile(file.path).read(columns=columns).to_pylist()
            found += [{**row, "batch": file.batch_id, "file": file.path} for row in read]
        return found

    def require_each_once_and_in_order(self) -> None:
        rows = self.rows()
        assert_each_once((row["messageId"] for row in rows), self.sent)
        last: defaultdict[tuple[str, str], tuple[int, int]] = defaultdict(lambda: (-1, -1))
        files: defaultdict[tuple[str, str, int], set[str]] = defaultdict(set)
        by_batch = sorted(rows, key=lambda row: (row["batch"], self.rig.may_split and int(row["sequenceNumber"])))
        for row in by_batch:
            group = row["queueUrl"], row["messageGroupId"]
            files[row["queueUrl"], row["messageGroupId"], row["batch"]].add(row["file"])
            assert int(row["sequenceNumber"]) > last[group][1], f"{group} is not in order in batch {row['batch']}"
            last[group] = row["batch"], int(row["sequenceNumber"])
        assert self.rig.may_split or all(len(each) == 1 for each in files.values())


@in_both_modes
def test_each_message_of_each_queue_comes_once_and_in_order(rig: Rig) -> None:
    queues = Queues(rig)
    queues.send(60)
    with rig.to_parquet(queues.source(maxMessagesPerTrigger=50)) as query:
        queues.send(30)
        queues.drain(query)
        assert SPARK_VERSION < (4, 2) or "3 queues" in str(query.recentProgress[-1]["sources"][0])
        assert all(batch["numInputRows"] <= 50 for batch in micro_batches(query))
    queues.require_each_once_and_in_order()
    of_queue = {
        url: {row["messageId"] for row in queues.rows() if row["queueUrl"] == url} for url in queues.urls.values()
    }
    assert {len(ids) for ids in of_queue.values()} == {90}


def test_a_message_does_not_wait_for_the_long_poll_of_another_queue(rig: Rig) -> None:
    queues = Queues(rig)
    with rig.to_parquet(queues.source(waitTimeSeconds=20)):
        for name in NAMES[::-1]:
            queues.send(1, name)
            wait_until(lambda: {row["messageId"] for row in queues.rows()} >= queues.sent.keys(), 15, "it comes")
    queues.require_each_once_and_in_order()


@in_both_modes
def test_a_driver_killed_in_mid_batch_is_continued_by_the_next(rig: Rig, tmp_path: Path) -> None:
    queues = Queues(rig)
    queues.send(60)
    options = queues.options(maxMessagesPerTrigger=30, visibilityTimeoutSeconds=4)
    committed = tmp_path / "parquet" / "_spark_metadata"
    gate = Gate(tmp_path / "gate")
    gate.open()
    log = tmp_path / "log.txt"
    killed = start_app("to_parquet.py", tmp_path, *(f"{name}={value}" for name, value in options.items()), log=log)
    try:

        def is_under_way() -> bool:
            assert killed.poll() is None, log.read_text(errors="replace")[-4000:]
            return committed.exists() and len(list(committed.glob("[0-9]*"))) >= 2

        wait_until(is_under_way, LONG_S, "two micro-batches are committed")
        gate.close()
        wait_until(lambda: gate.waiting, LONG_S, "tasks are in mid-batch")
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    gate.open()
    queues.send(10)
    with rig.to_parquet(queues.source(visibilityTimeoutSeconds=4)) as query:
        queues.drain(query)
    queues.require_each_once_and_in_order()


@in_both_modes
def test_the_list_may_change_between_runs_while_a_micro_batch_is_not_committed(rig: Rig, tmp_path: Path) -> None:
    """A queue that leaves has its last micro-batch served and deleted; one that comes is read; one may come back."""
    queues = Queues(rig)
    queues.send(20)
    gate = Gate(tmp_path / "gate")
    frame = queues.source("bids", "offers", visibilityTimeoutSeconds=4)
    with rig.to_parquet(frame.withColumn("body", gate.column(col("body")))) as query:
        queues.wait(query, lambda: bool(gate.waiting), "tasks are in mid-batch")
    gate.open()
    with rig.to_parquet(queues.source("bids", "refunds", visibilityTimeoutSeconds=4)) as query:
        served = {row.message_id for row in rig.rows()}

        queues.wait(query, lambda: not (queues.depths()["bids"] or queues.depths()["refunds"]), "the two are empty")
        assert served <= {row.message_id for row in rig.rows()}
    queues.send(5)
    with rig.to_parquet(queues.source(visibilityTimeoutSeconds=4)) as query:
        queues.drain(query)
    queues.require_each_once_and_in_order()


def test_a_queue_that_is_deleted_stops_no_other(rig: Rig) -> None:
    queues = Queues(rig)
    queues.send(20)
    with rig.to_parquet(queues.source()) as query:
        queues.drain(query)
        rig.call("DeleteQueue", QueueUrl=queues.urls.pop("offers"))
        for _ in range(3):
            queues.send(10, "bids", "refunds")
            queues.drain(query)
    queues.require_each_once_and_in_order()


def test_a_queue_that_is_created_later_is_found_by_its_name(rig: Rig) -> None:
    queues = Queues(rig)
    queues.send(10)
    options = queues.options(queueDiscoverySeconds=1)
    options = {name: value for name, value in options.items() if name != "queueUrls"}
    endpoint = rig.url.rpartition("/")[0].rpartition("/")[0]
    options |= {"queueNamePrefix": "o", "endpointUrl": endpoint, "region": "us-east-1"}
    queues.urls = {name: url for name, url in queues.urls.items() if name.startswith("o")}
    queues.sent.clear()
    queues.send(10)
    with rig.to_parquet(rig.spark.readStream.format("sqsfifo").options(**options).load()) as query:
        queues.wait(query, lambda: not queues.depths().total(), "the first is empty")
        queues.create("orders")
        queues.send(10)
        queues.wait(query, lambda: not queues.depths().total(), "the other one, too")
        query.processAllAvailable()
    assert {row["queueUrl"] for row in queues.rows()} == set(queues.urls.values())


@pytest.mark.skipif(SPARK_VERSION < (4, 2), reason="AvailableNow runs one micro-batch of a Python source before 4.2")
@in_both_modes
def test_available_now_serves_what_waits_in_each_queue_and_ends(rig: Rig) -> None:
    queues = Queues(rig)
    queues.send(40, "bids", "refunds")
    for _ in range(2):
        with rig.to_parquet(queues.source(maxMessagesPerTrigger=25), availableNow=True) as query:
            assert query.awaitTermination(int(LONG_S))
        queues.require_each_once_and_in_order()
        assert not queues.depths().total()
        queues.send(7)
    with rig.to_parquet(queues.source(), availableNow=True) as query:
        assert query.awaitTermination(int(LONG_S))
    queues.require_each_once_and_in_order()
