"""`python -m tests.bench.renewals`: whether thousands of messages stay held while calls that renew them fail.

The lease and its heartbeat as a driver has them, over HTTP, to a local queue in a process of its own, which fails some
of the renewals: throttled and hanging ones have no effect, those that lose their answer have. Nobody else receives, so
what is visible in the end has lapsed. `--scale 4` divides times and messages by four; time-outs stay as they are. With
another build: `PYTHONPATH=BUILD python tests/bench/renewals.py`.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.local import LocalQueueServer, errors, server
from sqs_fifo_spark.local.faults import Decision, Injector
from sqs_fifo_spark.options import parse_source_options
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.lease import Heartbeat, Lease
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.pool import Pools
from sqs_fifo_spark.source.queue import Queue
from tests.bench.queue_process import QueueProcess, started

_ACTION = "ChangeMessageVisibilityBatch"
_HANGING_S = 30.0
"""Longer than any client waits."""
_VISIBILITY_S = 120.0
_TOLD_EVERY_S = 10.0


class WatchedQueue(Queue):
    """Notes when each hold was renewed, and the longest time between two renewals of one."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.renewed_at: dict[str, float] = {}
        self.longest_s = 0.0
        self.renewals = self.failed = 0

    def extend(self, receipts: Sequence[Receipt], visibility_timeout_s: int, **limits: Any) -> list[Outcome]:
        outcomes = super().extend(receipts, visibility_timeout_s, **limits)
        now = time.monotonic()
        for receipt, outcome in zip(receipts, outcomes, strict=True):
            if outcome is Outcome.DONE:
                self.longest_s = max(self.longest_s, now - self.renewed_at[receipt.receipt_handle])
                self.renewed_at[receipt.receipt_handle] = now
        self.renewals += outcomes.count(Outcome.DONE)
        self.failed += outcomes.count(Outcome.FAILED)
        return outcomes


def serve(hanging: float) -> None:
    """Be the queue's process, until its standard input ends."""
    dice = random.Random(1)

    class HangingInjector(Injector):
        def decide(self, action: str, *where: Any) -> Decision:
            if self.faults.actions and action in self.faults.actions and dice.random() < hanging:
                return Decision(delay_s=_HANGING_S, error=errors.throttled())
            return super().decide(action, *where)

    with mock.patch.object(server, "Injector", HangingInjector), LocalQueueServer() as queue:
        print(queue.endpoint_url, flush=True)
        sys.stdin.read()
        os._exit(0)  # those that hang are not waited for


def receive(queue: Queue, count: int) -> list[Receipt]:
    """Receive `count` messages, in several calls at once."""
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda _: queue.receive(10), range(-(-count // 10)))
        return [message.receipt for messages in answers for message in messages]


def visible(queue: QueueProcess, url: str) -> int:
    """Return how many messages anybody could receive: whose holds have lapsed."""
    name = "ApproximateNumberOfMessages"
    return int(queue.call("GetQueueAttributes", QueueUrl=url, AttributeNames=[name])["Attributes"][name])


def hold(queue: QueueProcess, given: argparse.Namespace) -> None:
    """Hold the messages for as long as is `given`, and print what came of them."""
    visibility_s, held = int(_VISIBILITY_S / given.scale), int(given.held / given.scale)
    heartbeat_s, seconds = visibility_s / 3, given.minutes * 60 / given.scale
    url = queue.call("CreateQueue", QueueName="held.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    queue.fill(url, held, held, 20)
    options = parse_source_options(
        {
            "queueUrl": url,
            "journalLocation": "/none",
            "visibilityTimeoutSeconds": str(visibility_s),
            "heartbeatSeconds": str(heartbeat_s),
            "maxMessagesPerTrigger": str(held),
        }
    )
    pools = Pools()
    watched = WatchedQueue(options, SYSTEM_CLOCK, pools.make)
    lease = Lease(watched, SYSTEM_CLOCK, visibility_timeout_s=visibility_s, heartbeat_s=heartbeat_s)
    looks = [time.monotonic()]
    longest_look_s = 0.0

    def look() -> None:
        nonlocal longest_look_s
        looks.append(time.monotonic())
        longest_look_s = max(longest_look_s, looks[-1] - looks[-2])

    heartbeat = Heartbeat(lease, SYSTEM_CLOCK, every_s=heartbeat_s, discover=look)
    heartbeat.start()
    receipts: list[Receipt] = []
    while len(receipts) < held:
        since = SYSTEM_CLOCK.monotonic()
        part = receive(watched, min(1_000, held - len(receipts)))
        watched.renewed_at.update((receipt.receipt_handle, time.monotonic()) for receipt in part)
        lease.hold(part, since=since)
        receipts += part
    faults = {"seed": 1, "actions": [_ACTION], "throttle": given.throttled, "drop_answer": given.lost}
    queue._exchange("POST", "/_local/faults", faults, {})
    before, began, cpu_s = queue.counts()[_ACTION], time.monotonic(), time.process_time()
    while (passed_s := time.monotonic() - began) < seconds:
        time.sleep(min(_TOLD_EVERY_S, seconds - passed_s))
        now = time.monotonic()
        print(
            f"{now - began:5.0f} s: {watched.renewals:,} renewed, {watched.failed:,} failed, {lease.lost_count:,} "
            f"lost, {visible(queue, url):,} lapsed, {threading.active_count()} threads",
            flush=True,
        )
    calls, lapsed = queue.counts()[_ACTION] - before, visible(queue, url)
    late_s = max(watched.longest_s, *(now - at for at in watched.renewed_at.values())) - heartbeat_s
    print(
        f"held {held:,} for {seconds:.0f} s, heartbeat {heartbeat_s:.0f} s, visibility timeout {visibility_s} s; "
        f"throttled {given.throttled:.0%}, lost {given.lost:.0%}, hanging {given.hanging:.0%}\n"
        f"calls {calls:,}, renewals {watched.renewals:,}, CPU {time.process_time() - cpu_s:.1f} s\n"
        f"healthy holds lapsed: {lapsed:,} of {held:,}; lost by the lease's account: {lease.lost_count:,}\n"
        f"longest time that a renewal was late: {late_s:.1f} s; between two looks: {longest_look_s:.1f} s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.renewals", description=__doc__)
    parser.add_argument("--held", type=int, default=20_000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--scale", type=float, default=1.0)
    for name in ("throttled", "lost", "hanging"):
        parser.add_argument(f"--{name}", type=float, default=0.0, help="the share of calls, from 0 to 1")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        return serve(given.hanging)
    os.environ.update(AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any")
    command = [__file__, "--serve", "--hanging", str(given.hanging)]
    with started(command, stdin=subprocess.PIPE) as (endpoint_url, pid):
        hold(QueueProcess(endpoint_url, pid), given)
    os._exit(0)  # nor is a call that hangs


if __name__ == "__main__":
    main()
