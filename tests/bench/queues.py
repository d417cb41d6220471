"""Many queues in one source, beside the other ways to read them.

    python -m tests.bench.queues                 8 queues, and then 100 of which one is busy: half an hour
    python -m tests.bench.queues --only busy --rounds 5

Of 8 queues, with a long poll of 20 s, each way has Spark to itself, and messages come one by one, each to any queue,
once the one before is there: time from send to row, memory and receives while nothing comes.

    source    one source, with `queueUrls`
    union     a union of frames, one for each queue: Spark asks one after the other
    queries   one query for each queue

Of 100 queues one has a backlog, and the others are empty: `many` reads it by a source of all, `alone` by one of its
own, in turns. The empty ones are in a local queue of another process, for each call costs it as much as polls wait.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from tests.bench.__main__ import set_up
from tests.bench.figures import paired
from tests.bench.model import Bench
from tests.bench.processes import pss_mib
from tests.bench.queue_process import QueueProcess, queue_process
from tests.bench.report import table
from tests.bench.spark_ways import Arrivals
from tests.helpers import wait_until

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

WAYS = ("source", "union", "queries")
PYTHON = ("stream reader", "worker daemon", "task worker")
WAIT_S = 20
LONG_S = 900.0
"""A union of 8 frames comes to a queue after 7 long polls of others, and to the row after as many again."""
WARM = 200
"""Messages and groups of the busy queue that a query has taken before the backlog."""
_numbers = itertools.count(1)


def frames(bench: Bench, way: str, urls: Sequence[str], home: str, delete_after: str) -> list[DataFrame]:
    """Return what this way reads; each is the input of one query."""
    reader = bench.sessions.session.readStream.format("sqsfifo")
    reader = reader.option("waitTimeSeconds", WAIT_S).option("deleteAfter", delete_after)
    if way in ("source", "many"):
        return [reader.option("queueUrls", ",".join(urls)).option("journalLocation", f"{home}/journals").load()]
    each = [
        reader.option("queueUrl", url).option("journalLocation", f"{home}/journals/{number}").load()
        for number, url in enumerate(urls)
    ]
    return [functools.reduce(DataFrame.union, each)] if way == "union" else each


@contextmanager
def running(bench: Bench, way: str, urls: Sequence[str], arrivals: Arrivals, delete_after: str) -> Iterator[Any]:
    """Run this way's queries into `arrivals`, and stop them with the block. Yield what fails if one of them ended."""
    # Each queue has a message that waits.
    home = f"{bench.home}/queues-{next(_numbers)}"
    queries: list[StreamingQuery] = []

    def require_alive() -> None:
        for each in queries:
            if not each.isActive:
                raise RuntimeError(f"a query of '{way}' ended: {each.exception()}")

    try:
        for number, frame in enumerate(frames(bench, way, urls, home, delete_after)):
            writer = frame.writeStream.foreachBatch(arrivals.take)
            queries.append(writer.option("checkpointLocation", f"{home}/checkpoint-{number}").start())
            # Spark gives each reader's process ten seconds to come up.
            wait_until(lambda: arrivals.count > number or not queries[-1].isActive, LONG_S, "a first row")  # noqa: B023
        yield require_alive
    finally:
        arrivals.close()
        for each in queries:
            each.stop()


def wait_for(arrivals: Arrivals, rows: int, require_alive: Any) -> None:
    def is_there() -> bool:
        require_alive()
        return arrivals.count >= rows

    wait_until(is_there, LONG_S, f"{rows} rows", pause_s=0.01)


def queue(process: QueueProcess, name: str) -> str:
    """Return the URL of a new queue. No two of this run have the same name, whichever process has them."""
    attributes = {"FifoQueue": "true"}
    url: str = process.call("CreateQueue", QueueName=f"{name}-{next(_numbers)}.fifo", Attributes=attributes)["QueueUrl"]
    return url


def send(bench: Bench, url: str, group: str) -> None:
    """Send one message, which waits for no other of its group to be deleted."""
    bench.queue.call("SendMessage", QueueUrl=url, MessageBody="x", MessageGroupId=group, MessageDeduplicationId=group)


def few(bench: Bench, way: str, given: argparse.Namespace) -> dict[str, float]:
    """Return the figures of one way, on queues of its own, in a session of its own."""
    bench.sessions.stop()
    bench.sessions.use(2)
    dice = random.Random(given.seed)
    arrivals = Arrivals(("messageId",))
    urls = [queue(bench.queue, way) for _ in range(given.queues)]
    for url in urls:
        send(bench, url, "first")
    latencies = []
    with running(bench, way, urls, arrivals, "commit") as require_alive:
        wait_for(arrivals, len(urls), require_alive)
        for number in range(given.messages):
            time.sleep(dice.uniform(0, WAIT_S))  # at any moment of the long polls
            rows, sent_at = arrivals.count, time.monotonic()
            send(bench, dice.choice(urls), f"group-{number}")
            wait_for(arrivals, rows + 1, require_alive)
            latencies.append(arrivals.last_rows_at() - sent_at)
            print(f"{way:8} message {number + 1:2}  {latencies[-1]:7.2f} s", flush=True)
        time.sleep(2 * WAIT_S)
        before, began = bench.queue.counts()["ReceiveMessage"], time.monotonic()
        time.sleep(given.idle_s)
        receives = bench.queue.counts()["ReceiveMessage"] - before
        minutes = (time.monotonic() - began) / 60
        held = pss_mib(bench.uncounted)
        require_alive()
    found = {
        "median": statistics.median(latencies),
        "most": max(latencies),
        "memory": sum(sum(held.get(role, ())) for role in PYTHON),
        "readers": float(len(held.get("stream reader", ()))),
        "receives": receives / minutes,
    }
    print(f"{way:8} {', '.join(f'{name} {figure:.2f}' for name, figure in found.items())}", flush=True)
    return found


def busy(bench: Bench, empty: QueueProcess, way: str, given: argparse.Namespace) -> float:
    """Return messages per second of a drain of one queue, with others beside it that are empty, or alone."""
    url = queue(bench.queue, "busy")
    others = [queue(empty, "empty") for _ in range(given.many - 1 if way == "many" else 0)]
    arrivals = Arrivals()
    bench.queue.fill(url, WARM, WARM, 500)
    with running(bench, way, [*others, url], arrivals, given.delete_after) as require_alive:
        wait_for(arrivals, WARM, require_alive)
        wait_until(lambda: bench.queue.depth(url) == 0, LONG_S, "what warms it up is deleted")
        bench.queue.hide(url)
        bench.queue.fill(url, given.backlog, given.groups, 500)
        began = time.monotonic()
        bench.queue.release(url)
        wait_for(arrivals, WARM + given.backlog, require_alive)
        wait_until(lambda: bench.queue.depth(url) == 0, LONG_S, "the queue is empty")
        took_s = time.monotonic() - began
        arrivals.check(WARM + given.backlog, given.groups, 500)
    bench.queue.delete(url)
    for each in others:
        empty.delete(each)
    return float(given.backlog / took_s)


def compare_few(bench: Bench, given: argparse.Namespace) -> None:
    found = {way: few(bench, way, given) for way in given.ways.split(",")}
    print(f"\n{given.queues} queues, {given.messages} messages one by one, {given.idle_s:g} s idle:\n")
    heads = ["way", "median, s", "most, s", "Python's memory (PSS), MiB", "stream readers", "receives/minute, idle"]
    forms = {"median": ".2f", "most": ".2f", "memory": ".0f", "readers": ".0f", "receives": ".1f"}
    print(table(heads, [[way, *(f"{each[name]:{forms[name]}}" for name in forms)] for way, each in found.items()]))
    first, *others = found
    for other in others:
        names = ("median", "most", "memory", "receives")
        shares = [f"{name} {found[first][name] / found[other][name]:.3f}" for name in names]
        print(f"\n{first} / {other}: {', '.join(shares)}", flush=True)


def compare_busy(bench: Bench, empty: QueueProcess, given: argparse.Namespace) -> None:
    bench.sessions.stop()
    bench.sessions.use(2)
    rates: dict[str, list[float]] = {"alone": [], "many": []}
    for number in range(given.rounds + 1):
        for way, each in rates.items():
            rate = busy(bench, empty, way, given)
            print(f"{'warm-up' if not number else f'round {number}'}  {way:6} {rate:8,.0f}/s", flush=True)
            each += [rate] if number else []
    rows = []
    for way, each in rates.items():
        ratios = paired(rates["alone"], each)
        medians = f"{statistics.median(each):,.0f}", f"{statistics.median(ratios):.2f}"
        rows.append([way, *medians, " ".join(f"{ratio:.2f}" for ratio in ratios)])
    print(f"\n{given.many} queues, a backlog of {given.backlog:,} in one, deleteAfter={given.delete_after}:\n")
    print(table(["way", "messages/s", "ratio", "of each round"], rows), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.queues", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=["few", "busy"])
    parser.add_argument("--ways", default=",".join(WAYS), help="of reading 8; the others are compared to the first")
    parser.add_argument("--queues", type=int, default=8, help="that are all used")
    parser.add_argument("--messages", type=int, default=10, help="sent to them, one by one")
    parser.add_argument("--idle-s", type=float, default=160.0, help="for which receives are counted")
    parser.add_argument("--many", type=int, default=100, help="queues of which one is busy")
    parser.add_argument("--backlog", type=int, default=20_000, help="of the busy one")
    parser.add_argument("--groups", type=int, default=5_000, help="of the backlog, at most as many as messages")
    parser.add_argument("--delete-after", choices=["commit", "journal"], default="commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with ExitStack() as stack:
        bench, _ = set_up(stack, set())
        if given.only != "busy":
            compare_few(bench, given)
        if given.only != "few":
            compare_busy(bench, stack.enter_context(queue_process()), given)


if __name__ == "__main__":
    main()
