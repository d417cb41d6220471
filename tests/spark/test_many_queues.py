"""One query reads several queues: each message once, in order within queue and group, whatever becomes of a queue."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.streaming.query import StreamingQuery

from tests.helpers import depth, wait_until
from tests.spark.support import (
    LONG_S,
    SPARK_VERSION,
    Gate,
    Rig,
    in_both_modes,
    kill_in_mid_batch,
    micro_batches,
    require_alive,
)

pytestmark = pytest.mark.law("source-1", "source-3", "source-5")

NAMES = ("bids", "offers", "refunds")


class Queues:
    """Several queues on the rig's server, all with the same groups."""

    def __init__(self, rig: Rig, names: tuple[str, ...] = NAMES) -> None:
        self.rig = rig
        self.urls = {name: rig.create_queue(f"{name}.fifo") for name in names}

    def send(self, count: int, *names: str) -> None:
        for name in names or tuple(self.urls):
            self.rig.send(count, groups=5, url=self.urls[name])

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
            return not self.depths().total() and {row.message_id for row in self.rig.rows()} >= self.rig.sent.keys()

        self.wait(query, is_empty, "all queues are empty")

    def wait(self, query: StreamingQuery, is_so: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            require_alive(query)
            return is_so()

        wait_until(look, LONG_S, what)


@in_both_modes
def test_each_message_of_each_queue_comes_once_and_in_order(rig: Rig) -> None:
    queues = Queues(rig)
    queues.send(60)
    with rig.to_parquet(queues.source(maxMessagesPerTrigger=50)) as query:
        queues.send(30)
        queues.drain(query)
        assert SPARK_VERSION < (4, 2) or "3 queues" in str(query.recentProgress[-1]["sources"][0])
        assert all(batch["numInputRows"] <= 50 for batch in micro_batches(query))
    rig.require_each_once_in_order()
    assert Counter(row.queue_url for row in rig.rows()) == dict.fromkeys(queues.urls.values(), 90)


@in_both_modes
def test_a_driver_killed_in_mid_batch_is_continued_by_the_next(rig: Rig, tmp_path: Path) -> None:
    queues = Queues(rig)
    queues.send(60)
    kill_in_mid_batch(tmp_path, queues.options(maxMessagesPerTrigger=30, visibilityTimeoutSeconds=4))
    queues.send(10)
    with rig.to_parquet(queues.source(visibilityTimeoutSeconds=4)) as query:
        queues.drain(query)
    rig.require_each_once_in_order()


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
    rig.require_each_once_in_order()


def test_a_queue_that_is_created_later_is_found_by_its_name(rig: Rig) -> None:
    queues = Queues(rig, ("offers",))
    rig.call(
        "SendMessage", QueueUrl=rig.url, MessageBody="of no such name", MessageGroupId="g", MessageDeduplicationId="d"
    )
    queues.send(10)
    options = queues.options(queueDiscoverySeconds=1, queueNamePrefix="o", region="us-east-1")
    options = {**options, "endpointUrl": rig.server.endpoint_url}
    del options["queueUrls"]
    with rig.to_parquet(rig.spark.readStream.format("sqsfifo").options(**options).load()) as query:
        queues.wait(query, lambda: not queues.depths().total(), "the first is empty")
        queues.urls["orders"] = rig.create_queue("orders.fifo")
        queues.send(10)
        queues.wait(query, lambda: not queues.depths().total(), "the other one, too")
        query.processAllAvailable()
    assert {row.queue_url for row in rig.rows()} == set(queues.urls.values())
    rig.require_each_once_in_order()


@pytest.mark.skipif(SPARK_VERSION < (4, 2), reason="AvailableNow runs one micro-batch of a Python source before 4.2")
@in_both_modes
def test_available_now_serves_what_waits_in_each_queue_and_ends(rig: Rig) -> None:
    queues = Queues(rig)
    queues.send(40, "bids", "refunds")
    for _ in range(2):
        with rig.to_parquet(queues.source(maxMessagesPerTrigger=25), availableNow=True) as query:
            assert query.awaitTermination(int(LONG_S))
        rig.require_each_once_in_order()
        assert not queues.depths().total()
        queues.send(7)
    with rig.to_parquet(queues.source(), availableNow=True) as query:
        assert query.awaitTermination(int(LONG_S))
    rig.require_each_once_in_order()
