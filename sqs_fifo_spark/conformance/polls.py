"""Long polls: how long they wait, and who gets a message that comes meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqs_fifo_spark.conformance.bench import Bench, Queue, marks_of, marks_text
from sqs_fifo_spark.conformance.case import API, DOCUMENTATION, Differs, case
from sqs_fifo_spark.conformance.refusals import require, require_refusal


def _timed(bench: Bench, queue: Queue, **given: Any) -> tuple[str, float]:
    """Receive; return the marks, and the seconds that it took."""
    began = bench.clock.monotonic()
    marks = marks_text(marks_of(queue.receive(**given)))
    return marks, bench.clock.monotonic() - began


@case(API, seconds=4)
def early_answer(bench: Bench) -> None:
    """A long poll ends as soon as a message is sent."""
    queue = bench.queue()
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(_timed, bench, queue, wait_s=20)
        bench.sleep(2)
        queue.send("1")
        marks, took_s = poll.result()
    require("1", marks)
    if took_s > 12:
        raise Differs("an answer soon after 2 seconds", f"after {took_s:.1f} seconds")


@case(API, seconds=4)
def empty_answer(bench: Bench) -> None:
    """A long poll that finds nothing ends when its time is over, and not before."""
    marks, took_s = _timed(bench, bench.queue(), wait_s=3)
    require("nothing", marks)
    if not 2.5 < took_s < 12:
        raise Differs("an answer after 3 seconds", f"after {took_s:.1f} seconds")


@case(API, seconds=4)
def wait_of_the_queue(bench: Bench) -> None:
    """A receive that names no wait waits for the queue's ReceiveMessageWaitTimeSeconds."""
    _, took_s = _timed(bench, bench.queue(ReceiveMessageWaitTimeSeconds="3"), wait_s=None)
    if not 2.5 < took_s < 12:
        raise Differs("an answer after 3 seconds", f"after {took_s:.1f} seconds")


@case(API, seconds=4)
def short_poll(bench: Bench) -> None:
    """A wait of 0 is a short poll, also where the queue's is longer."""
    _, took_s = _timed(bench, bench.queue(ReceiveMessageWaitTimeSeconds="20"), wait_s=0)
    if took_s > 12:
        raise Differs("an answer at once", f"after {took_s:.1f} seconds")


@case(DOCUMENTATION, seconds=6)
def two_at_once(bench: Bench) -> None:
    """Of two long polls that wait at once, one gets the message, and the other nothing."""
    queue = bench.queue()
    with ThreadPoolExecutor(2) as pool:
        polls = [pool.submit(_timed, bench, queue, wait_s=5) for _ in range(2)]
        bench.sleep(1)
        queue.send("1")
        require(["1", "nothing"], sorted(poll.result()[0] for poll in polls))


@case(API, seconds=6)
def lapse(bench: Bench) -> None:
    """A long poll gets a message whose visibility timeout lapses meanwhile."""
    queue = bench.queue("1")
    queue.take("1", timeout_s=3)
    marks, _ = _timed(bench, queue, wait_s=12)
    require("1", marks)


@case(API)
def longest(bench: Bench) -> None:
    """A wait of 21 seconds is refused."""
    require_refusal("InvalidParameterValue", bench.queue().receive, wait_s=21)
