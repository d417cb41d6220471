"""Delays, which on a FIFO queue are the queue's."""

from __future__ import annotations

from sqs_fifo_spark.conformance.bench import Bench, marks_of, marks_text
from sqs_fifo_spark.conformance.case import API, DOCUMENTATION, RECORDED, SETTLE_S, case
from sqs_fifo_spark.conformance.refusals import require, require_refusal


@case(API, seconds=9)
def of_the_queue(bench: Bench) -> None:
    """A queue's DelaySeconds hides each new message for so long."""
    queue = bench.queue("1", DelaySeconds="8")
    queue.expect_nothing("8 seconds are not over")
    bench.sleep(7)
    queue.take("1")


@case(API, RECORDED)
def of_a_message(bench: Bench) -> None:
    """A message on a FIFO queue cannot have DelaySeconds of its own."""
    require_refusal("InvalidParameterValue", bench.queue().send, "1", DelaySeconds=5)


@case(API, calls=45, seconds=3, settles=True)
def shortened(bench: Bench) -> None:
    """A new DelaySeconds holds for messages that are there already: one that becomes 0 shows them."""
    queue = bench.queue("1", DelaySeconds="900")
    queue.expect_nothing("900 seconds are not over")
    queue.set(DelaySeconds="0")
    bench.eventually("1", lambda: marks_text(marks_of(queue.receive())))


@case(API, calls=50, seconds=14, settles=True)
def lengthened(bench: Bench) -> None:
    """A new DelaySeconds that is longer hides messages that are there already for longer."""
    first_s = 10 + (SETTLE_S if bench.is_aws else 0)
    queue = bench.queue(DelaySeconds=str(first_s))
    queue.send("1")
    queue.set(DelaySeconds="900")
    bench.sleep(first_s + 1)
    queue.expect_nothing("900 seconds are not over")
    queue.set(DelaySeconds="0")
    bench.eventually("1", lambda: marks_text(marks_of(queue.receive())))


@case(DOCUMENTATION, seconds=5)
def order(bench: Bench) -> None:
    """Delayed messages of a group come in order."""
    queue = bench.queue("1", "2", "3", DelaySeconds="2")
    bench.sleep(2.5)
    require("1, 2, 3", queue.drain(3))


@case(API, calls=45, seconds=3, settles=True)
def count(bench: Bench) -> None:
    """Delayed messages are counted as ApproximateNumberOfMessagesDelayed."""
    queue = bench.queue("1", "2", DelaySeconds="900")
    bench.eventually("2", lambda: queue.attribute("ApproximateNumberOfMessagesDelayed"))


@case(API)
def longest(bench: Bench) -> None:
    """DelaySeconds is at most 900."""
    require_refusal("InvalidAttributeValue", bench.queue, DelaySeconds="901")
