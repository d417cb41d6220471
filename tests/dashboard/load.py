"""A query that reads a local queue under a changing load, and an exporter of its figures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.local import Faults, LocalQueueServer
from sqs_fifo_spark.watch import Prometheus, SqsFifoListener
from tests.conftest import pytest_configure
from tests.helpers import wait_until
from tests.memory.__main__ import session
from tests.spark.support import LONG_S, Rig, running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY, QUEUE = "bids", "bids.fifo"
GROUPS = 50
LAST = "last_report_timestamp_seconds"


@dataclass
class Load:
    rig: Rig
    registry: CollectorRegistry
    gate: threading.Event = field(default_factory=threading.Event)
    """A micro-batch ends where it is set."""

    def write(self, frame: DataFrame, _: int) -> None:
        frame.write.format("noop").mode("append").save()
        wait_until(self.gate.is_set, LONG_S, "the gate opens")

    def figure(self, name: str) -> float:
        """Return it as the exporter shows it; 0 if it is not known yet."""
        return self.registry.get_sample_value(f"sqs_fifo_{name}", {"query": QUERY, "queue": QUEUE}) or 0.0

    def above(self, name: str, bound: float) -> None:
        wait_until(lambda: self.figure(name) > bound, LONG_S, f"{name} is above {bound:g}")

    def none(self, name: str) -> None:
        wait_until(lambda: not self.figure(name), LONG_S, f"{name} is 0")

    def steady(self, per_s: int, seconds: int) -> None:
        """Send as many messages each second."""
        begun = SYSTEM_CLOCK.monotonic()
        for second in range(seconds):
            self.rig.send(per_s, GROUPS)
            SYSTEM_CLOCK.sleep(max(0.0, begun + second + 1 - SYSTEM_CLOCK.monotonic()))

    def run(self) -> None:
        """Steady, a burst, a lull; throttled calls; a slow micro-batch whose renewals fail; all well again."""
        queue = {"QueueUrl": self.rig.url}
        frame = self.rig.source(maxMessagesPerTrigger=500, visibilityTimeoutSeconds=30)
        writer = frame.writeStream.queryName(QUERY).foreachBatch(self.write)
        self.gate.set()
        self.rig.send(GROUPS, GROUPS)
        # Somebody else holds a message, and with it its group.
        held = self.rig.call("ReceiveMessage", **queue, MaxNumberOfMessages=1, VisibilityTimeout=3600)["Messages"][0]
        self.rig.call("SetQueueAttributes", **queue, Attributes={"DelaySeconds": "2"})
        with running(writer.option("checkpointLocation", str(self.rig.home / "checkpoint")).start()):
            self.above("rows_total", 0)
            self.steady(40, 20)
            self.rig.send(5_000, GROUPS)
            self.above("rows_total", 5_000)
            self.lull()
            self.rig.server.faults = Faults(throttle=0.5, actions=frozenset({"ReceiveMessage", "DeleteMessageBatch"}))
            self.steady(40, 20)
            self.above("retries_total", 0)
            self.rig.server.faults = Faults(throttle=1.0, actions=frozenset({"ChangeMessageVisibilityBatch"}))
            self.gate.clear()
            self.steady(40, 10)
            wait_until(lambda: self.rig.depth()[1] <= 1, LONG_S, "the holds of the micro-batch have lapsed")
            self.gate.set()
            self.rig.server.faults = Faults()
            self.above("lost_leases_total", 0)
            self.steady(40, 10)
            self.rig.call("ChangeMessageVisibility", **queue, ReceiptHandle=held["ReceiptHandle"], VisibilityTimeout=0)
            self.steady(40, 10)
            self.none("waiting_messages")
            self.none("unconfirmed_deletes")
            self.lull()
            print(f"lost leases: {self.figure('lost_leases_total'):g}")

    def lull(self) -> None:
        """Send nothing until the query has reported that it is idle."""
        last = self.figure(LAST)
        self.above(LAST, last + 10)


@contextmanager
def play(home: Path) -> Iterator[tuple[int, Load]]:
    """Give the exporter's port, and the load that is to run."""
    pytest_configure()
    registry = CollectorRegistry()
    server, _ = start_http_server(0, "127.0.0.1", registry)
    spark = session(home)
    spark.streams.addListener(SqsFifoListener(Prometheus(registry)))
    try:
        with LocalQueueServer(queues=[QUEUE]) as queue:
            yield server.server_port, Load(Rig(spark, queue, home, url=queue.queue_url(QUEUE)), registry)
    finally:
        spark.stop()
        server.shutdown()
