"""Dead-letter queues, and the tasks that move messages back from them."""

from __future__ import annotations

import json

from sqs_fifo_spark.conformance.bench import Bench, Message, Queue, system
from sqs_fifo_spark.conformance.case import API, DOCUMENTATION, RECORDED, REPORT, case
from sqs_fifo_spark.conformance.refusals import failures, require, require_refusal

_MOVE_S = 5
"""SQS does not say how soon a message that has moved can be received: a receive waits for it."""


def _moved(bench: Bench, *, after_s: float = 0) -> tuple[Queue, Queue, Message]:
    """Return a queue, its dead-letter queue to which a message has moved, and that message as it was received."""
    queue, dead = bench.queue_with_dead_letters()
    queue.send("1")
    message = queue.take_one("1")
    queue.release(message)
    bench.sleep(after_s)
    queue.expect_nothing("its receives are used up")
    return queue, dead, message


@case(API)
def move(bench: Bench) -> None:
    """A message that was received maxReceiveCount times goes to the dead-letter queue at the next receive."""
    _, dead, _ = _moved(bench)
    dead.take("1", wait_s=_MOVE_S)


@case(API)
def not_before(bench: Bench) -> None:
    """A message is received maxReceiveCount times before it moves."""
    queue, dead = bench.queue_with_dead_letters(2)
    queue.send("1")
    for _ in range(2):
        queue.release(queue.take_one("1"))
    queue.expect_nothing("its receives are used up")
    dead.take("1", wait_s=_MOVE_S)


@case(DOCUMENTATION)
def unlocks_group(bench: Bench) -> None:
    """The next message of a group comes once its head has moved away."""
    queue, dead = bench.queue_with_dead_letters()
    queue.send_all("1", "2")
    queue.release(queue.take_one("1", most=1))
    queue.take("2")
    dead.take("1", wait_s=_MOVE_S)


@case(DOCUMENTATION, seconds=4)
def new_ids(bench: Bench) -> None:
    """The move keeps message id and group, takes the message id for deduplication id, and makes SentTimestamp new."""
    _, dead, sent = _moved(bench, after_s=1)
    moved = dead.take_one("1", wait_s=_MOVE_S)
    require(True, sent["MessageId"] == moved["MessageId"], "the same message id:")
    deduplication_id = system(moved, "MessageDeduplicationId")
    require(True, deduplication_id == sent["MessageId"], "the message id as deduplication id:")
    require(system(sent, "MessageGroupId"), system(moved, "MessageGroupId"), "group")
    require(True, int(system(moved, "SentTimestamp")) > int(system(sent, "SentTimestamp")), "a later SentTimestamp:")


@case(API)
def count_goes_on(bench: Bench) -> None:
    """ApproximateReceiveCount counts receives across all queues: it goes on in the dead-letter queue."""
    _, dead, _ = _moved(bench)
    require(True, int(system(dead.take_one("1", wait_s=_MOVE_S), "ApproximateReceiveCount")) >= 2, "at least 2:")


@case(API)
def source(bench: Bench) -> None:
    """A moved message names the queue from which it came, as DeadLetterQueueSourceArn."""
    queue, dead, _ = _moved(bench)
    require(
        True, system(dead.take_one("1", wait_s=_MOVE_S), "DeadLetterQueueSourceArn") == queue.arn, "the queue's ARN:"
    )


@case(RECORDED)
def old_handle(bench: Bench) -> None:
    """A handle from before the move is expired: a delete with it is refused, and deletes nothing."""
    queue, dead, message = _moved(bench)
    require({"0": "ReceiptHandleIsInvalid"}, failures(queue.delete_batch([message])), "failed")
    dead.take("1", wait_s=_MOVE_S)


@case(API, REPORT)
def target(bench: Bench) -> None:
    """The dead-letter queue has to exist; several codes of the refusal are reported."""
    arn = bench.queue().arn + "x"
    policy = json.dumps({"deadLetterTargetArn": arn.replace(".fifox", "-x.fifo"), "maxReceiveCount": 1})
    codes = ("InvalidParameterValue", "InvalidAttributeValue", "NonExistentQueue")
    require_refusal(codes, bench.queue, RedrivePolicy=policy)


@case(API, calls=45)
def sources(bench: Bench) -> None:
    """ListDeadLetterSourceQueues names the queues that have this one as their dead-letter queue."""
    queue, dead = bench.queue_with_dead_letters()
    bench.eventually(True, lambda: dead.call("ListDeadLetterSourceQueues").get("queueUrls", []) == [queue.url])


@case(API, DOCUMENTATION, calls=55, seconds=3, settles=True)
def move_back(bench: Bench) -> None:
    """A move task takes a dead letter back to its queue, with a new message id and no receives."""
    queue, dead, old = _moved(bench)
    bench.call("StartMessageMoveTask", SourceArn=dead.arn)
    bench.eventually("COMPLETED", lambda: _status(bench, dead))
    message = queue.take_one("1", wait_s=_MOVE_S)
    require("1", system(message, "ApproximateReceiveCount"), "receive count")
    require(False, message["MessageId"] == old["MessageId"], "the same message id:")


@case(API, calls=55, seconds=3, settles=True)
def move_elsewhere(bench: Bench) -> None:
    """A move task with a destination takes the dead letters there."""
    queue, dead, _ = _moved(bench)
    other = bench.queue()
    bench.call("StartMessageMoveTask", SourceArn=dead.arn, DestinationArn=other.arn)
    bench.eventually("COMPLETED", lambda: _status(bench, dead))
    other.take("1", wait_s=_MOVE_S)
    queue.expect_nothing("it moved elsewhere")


def _status(bench: Bench, dead: Queue) -> str:
    tasks = bench.call("ListMessageMoveTasks", SourceArn=dead.arn).get("Results", [])
    return ", ".join(task["Status"] for task in tasks)


@case(API, RECORDED)
def move_from_no_dead_letter_queue(bench: Bench) -> None:
    """A move task from a queue that is nobody's dead-letter queue is refused."""
    require_refusal("InvalidParameterValue", bench.call, "StartMessageMoveTask", SourceArn=bench.queue().arn)
