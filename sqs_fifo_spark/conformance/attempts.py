"""ReceiveRequestAttemptId: the repeat of a receive whose answer was lost."""

from __future__ import annotations

import uuid
from typing import Any

from sqs_fifo_spark.conformance.bench import Bench, Message, Queue, marks_of, marks_text
from sqs_fifo_spark.conformance.case import API, RECORDED, Differs, case
from sqs_fifo_spark.conformance.refusals import outcome, require, require_refusal

_VOID = "not valid anymore"


def _begin(bench: Bench, **given: Any) -> tuple[Queue, str, list[Message]]:
    """Return a queue with two messages, the id of an attempt, and what it has received."""
    queue = bench.queue("1", "2")
    for _ in range(5):
        attempt = uuid.uuid4().hex
        got = queue.receive(ReceiveRequestAttemptId=attempt, **given)
        if got:
            return queue, attempt, got
    raise Differs("1, 2", "nothing")


@case(API)
def repeat(bench: Bench) -> None:
    """A receive with the same attempt id returns the same messages in flight again, with the same handles."""
    queue, attempt, got = _begin(bench)
    again = queue.receive(ReceiveRequestAttemptId=attempt)
    require(marks_text(marks_of(got)), marks_text(marks_of(again)), "messages")
    for one, other in zip(got, again, strict=True):
        require(True, one["ReceiptHandle"] == other["ReceiptHandle"], "the same handle:")
    queue.delete_batch(got)


@case(API)
def other_id(bench: Bench) -> None:
    """A receive with another attempt id returns nothing of what is in flight."""
    queue, _, _ = _begin(bench)
    queue.expect_nothing("the messages are in flight", ReceiveRequestAttemptId=uuid.uuid4().hex)


@case(API, seconds=24)
def timeout_anew(bench: Bench) -> None:
    """The repeat begins the visibility timeout anew."""
    queue, attempt, got = _begin(bench, timeout_s=20)
    bench.sleep(10)
    queue.take(*marks_of(got), ReceiveRequestAttemptId=attempt, timeout_s=20)
    bench.sleep(11)
    queue.expect_nothing("the repeat has hidden them anew")


@case(RECORDED, API)
def void_by_delete(bench: Bench) -> None:
    """Once a message of the receive is deleted, its attempt id is refused."""
    queue, attempt, got = _begin(bench)
    queue.delete(got[0])
    require_refusal("InvalidParameterValue", queue.receive, ReceiveRequestAttemptId=attempt, reason=_VOID)


@case(RECORDED, API)
def void_by_change(bench: Bench) -> None:
    """Once the visibility of a message of the receive is changed, its attempt id is refused."""
    queue, attempt, got = _begin(bench)
    queue.hide(got[0], 60)
    require_refusal("InvalidParameterValue", queue.receive, ReceiveRequestAttemptId=attempt, reason=_VOID)


@case(API, "which speaks of messages; that an attempt without any is forgotten follows from it")
def empty_receive(bench: Bench) -> None:
    """An attempt that found nothing finds what comes later."""
    queue, attempt = bench.queue(), uuid.uuid4().hex
    queue.expect_nothing("nothing was sent", ReceiveRequestAttemptId=attempt)
    queue.send("1")
    queue.take("1", ReceiveRequestAttemptId=attempt)


@case(API)
def form(bench: Bench) -> None:
    """An attempt id has 1 to 128 letters, digits and punctuation."""
    queue = bench.queue()
    queue.receive(wait_s=0, ReceiveRequestAttemptId="x" * 128)
    for wrong in ("x" * 129, "a b"):
        require_refusal("InvalidParameterValue", queue.receive, wait_s=0, ReceiveRequestAttemptId=wrong)


@case(API, "that such a receive is a new one, and not refused, follows from it: both are taken", seconds=317)
def five_minutes(bench: Bench) -> None:
    """An attempt id is good for 5 minutes: after them, a receive with it returns nothing of what is in flight."""
    queue, attempt, _ = _begin(bench, timeout_s=900)
    bench.sleep(315)
    code, got = outcome(lambda: queue.receive(ReceiveRequestAttemptId=attempt))
    require("nothing", marks_text(marks_of(got or [])))
    require(True, code in ("", "InvalidParameterValue"), f"{code} is known:")


@case(API, seconds=282)
def nearly_five_minutes(bench: Bench) -> None:
    """An attempt id is still good after 4 minutes and 40 seconds."""
    queue, attempt, got = _begin(bench, timeout_s=900)
    bench.sleep(280)
    require(marks_text(marks_of(got)), marks_text(marks_of(queue.receive(ReceiveRequestAttemptId=attempt))), "messages")
