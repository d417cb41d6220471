"""Deduplication: which sends are taken for copies of others, for how long, and in which scope."""

from __future__ import annotations

import hashlib
from typing import Any

from sqs_fifo_spark.conformance.bench import Bench, marks_of, marks_text, system
from sqs_fifo_spark.conformance.case import API, RECORDED, case
from sqs_fifo_spark.conformance.refusals import failures, require, require_refusal

_BY_CONTENT = {"ContentBasedDeduplication": "true"}
_MINUTES_5 = 300


@case(API)
def same_id(bench: Bench) -> None:
    """A second send with the same deduplication id succeeds, and delivers nothing."""
    queue = bench.queue("1")
    queue.send("1")
    queue.delete(queue.take_one("1"))
    queue.expect_nothing("the second was a copy")


@case(RECORDED)
def answer_of_a_copy(bench: Bench) -> None:
    """A copy's send is answered with the message id and the sequence number of the first."""
    queue = bench.queue()
    first, second = (queue.send("1") for _ in range(2))
    for name in ("MessageId", "SequenceNumber"):
        require(True, first[name] == second[name], f"the same {name}:")


@case(API)
def other_body(bench: Bench) -> None:
    """The id alone decides: a send with the same id and another body is a copy."""
    queue = bench.queue()
    queue.send("1", MessageDeduplicationId="x")
    queue.send("2", MessageDeduplicationId="x")
    require("1", queue.drain(2))


@case(API, RECORDED)
def after_delete(bench: Bench) -> None:
    """An id is remembered also after its message was received and deleted."""
    queue = bench.queue("1")
    queue.delete(queue.take_one("1"))
    queue.send("1")
    queue.expect_nothing("the id is remembered")


@case(API, seconds=317)
def five_minutes(bench: Bench) -> None:
    """An id is forgotten 5 minutes after it was sent."""
    queue = bench.queue("1")
    queue.delete(queue.take_one("1"))
    bench.sleep(_MINUTES_5 + 15)
    queue.send("1")
    queue.take("1")


@case(API, seconds=282)
def nearly_five_minutes(bench: Bench) -> None:
    """An id is still remembered after 4 minutes and 40 seconds."""
    queue = bench.queue("1")
    queue.delete(queue.take_one("1"))
    bench.sleep(_MINUTES_5 - 20)
    queue.send("1")
    queue.expect_nothing("the id is remembered")


@case(API, RECORDED)
def scope_of_the_queue(bench: Bench) -> None:
    """By default an id counts in the whole queue: the same in another group is a copy."""
    queue = bench.queue()
    queue.send("1", group="a", MessageDeduplicationId="x")
    queue.send("2", group="b", MessageDeduplicationId="x")
    require("1", queue.drain(2))


@case(API)
def scope_of_the_group(bench: Bench) -> None:
    """With DeduplicationScope=messageGroup, an id counts in its group: the same in another is no copy."""
    queue = bench.queue(DeduplicationScope="messageGroup")
    for mark, group in (("1", "a"), ("2", "b"), ("3", "b")):
        queue.send(mark, group=group, MessageDeduplicationId="x")
    require("1, 2", marks_text(sorted(marks_of(queue.collect(3)))))


@case(API)
def content(bench: Bench) -> None:
    """With ContentBasedDeduplication, a send of the same body without an id is a copy; attributes do not count."""
    queue = bench.queue(**_BY_CONTENT)
    attributes = {"a": {"DataType": "String", "StringValue": "b"}}
    for given in (None, attributes):
        queue.send("1", MessageDeduplicationId=None, MessageAttributes=given)
    queue.send("2", MessageDeduplicationId=None)
    require("1, 2", queue.drain(3))


@case(API)
def id_of_content(bench: Bench) -> None:
    """The id that ContentBasedDeduplication makes is the body's SHA-256; a send that names it is a copy."""
    queue = bench.queue(**_BY_CONTENT)
    digest = hashlib.sha256(b"1").hexdigest()
    queue.send("1", MessageDeduplicationId=None)
    queue.send("2", MessageDeduplicationId=digest)
    message = queue.take_one("1", most=1)
    require(digest, system(message, "MessageDeduplicationId"), "id")
    queue.delete(message)
    queue.expect_nothing("the second was a copy")


@case(API)
def own_id_of_content(bench: Bench) -> None:
    """An id that the sender gives counts in place of the content's."""
    queue = bench.queue(**_BY_CONTENT)
    queue.send("1", MessageDeduplicationId="x")
    queue.send("1", MessageDeduplicationId="y")
    require("1, 1", queue.drain(2))


@case(API)
def within_a_batch(bench: Bench) -> None:
    """Two entries of a batch with one id both succeed; the second is a copy."""
    queue = bench.queue()
    draft: dict[str, Any] = queue.draft("1")
    answer = queue.send_batch(draft, draft)
    require({}, failures(answer), "failed")
    require(1, len({entry["MessageId"] for entry in answer["Successful"]}), "message ids:")
    require("1", queue.drain(2))


@case(RECORDED, settles=True)
def purge(bench: Bench) -> None:
    """To purge a queue forgets its ids."""
    queue = bench.queue("1")
    queue.call("PurgeQueue")
    bench.settle()
    queue.send("1")
    queue.take("1")


@case(API, RECORDED)
def missing_id(bench: Bench) -> None:
    """Without ContentBasedDeduplication, a send without an id is refused."""
    queue = bench.queue()
    require_refusal("InvalidParameterValue", queue.send, "1", MessageDeduplicationId=None)
