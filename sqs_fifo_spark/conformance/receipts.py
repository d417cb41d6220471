"""Receipt handles and visibility timeouts: how long a message is held, by which handle, and what is refused."""

from __future__ import annotations

from sqs_fifo_spark.conformance.bench import Bench, Message, Queue, marks_text, system
from sqs_fifo_spark.conformance.case import API, DOCUMENTATION, RECORDED, REPORT, case
from sqs_fifo_spark.conformance.refusals import failures, outcome, require, require_refusal

_NONSENSE = {"ReceiptHandle": "no-handle", "Body": "", "MessageId": ""}
_NOT_HELD = ("InvalidParameterValue", "MessageNotInflight")


def _lapsed(bench: Bench) -> tuple[Queue, Message]:
    """Return a queue with one message, and the handle of a receive of it that has lapsed."""
    queue, message = bench.received()
    queue.let_lapse(message)
    return queue, message


@case(RECORDED, DOCUMENTATION, "the API text says of any queue that such a delete succeeds", seconds=4)
def expired_delete(bench: Bench) -> None:
    """A delete with a handle that has lapsed is refused, and the message comes again."""
    queue, message = _lapsed(bench)
    require_refusal("InvalidParameterValue", queue.delete, message, reason="receipt handle has expired")
    queue.take("1")


@case(RECORDED, seconds=4)
def expired_delete_in_batch(bench: Bench) -> None:
    """In a batch, a delete with a handle that has lapsed fails with ReceiptHandleIsInvalid, by the sender's fault."""
    queue, message = _lapsed(bench)
    answer = queue.delete_batch([message])
    require({"0": "ReceiptHandleIsInvalid"}, failures(answer), "failed")
    require(True, answer["Failed"][0]["SenderFault"], "SenderFault")
    queue.take("1")


@case(RECORDED, "the API text says of any queue that such a delete may succeed without effect", seconds=4)
def superseded_delete(bench: Bench) -> None:
    """A delete with the handle of an earlier receive leaves the message, whether it is refused or not."""
    queue, old = _lapsed(bench)
    new = queue.take_one("1")
    code, _ = outcome(queue.delete, old)
    require(True, code in ("", "InvalidParameterValue", "ReceiptHandleIsInvalid"), f"{code} is known:")
    queue.hide(new, 0)
    queue.take("1")


@case(API)
def new_handle(bench: Bench) -> None:
    """Each receive of a message has a handle of its own, and the same message id."""
    queue, first = bench.received()
    queue.release(first)
    second = queue.take_one("1")
    require(True, first["MessageId"] == second["MessageId"], "the same message id:")
    require(False, first["ReceiptHandle"] == second["ReceiptHandle"], "the same handle:")


@case(DOCUMENTATION)
def second_delete(bench: Bench) -> None:
    """To delete once more what is deleted succeeds, alone and in a batch."""
    queue, message = bench.received()
    queue.delete(message)
    queue.delete(message)
    require({}, failures(queue.delete_batch([message])), "failed")


@case(API)
def nonsense(bench: Bench) -> None:
    """A text that is no handle is refused with ReceiptHandleIsInvalid, by deletes and by visibility changes."""
    queue = bench.queue()
    require_refusal("ReceiptHandleIsInvalid", queue.delete, _NONSENSE)
    require_refusal("ReceiptHandleIsInvalid", queue.hide, _NONSENSE, 1)
    require({"0": "ReceiptHandleIsInvalid"}, failures(queue.delete_batch([_NONSENSE])), "failed")


@case(DOCUMENTATION, REPORT, "they differ about the code of the refusal")
def foreign_handle(bench: Bench) -> None:
    """A handle of another queue is refused, and deletes nothing."""
    queue, other = bench.queue(), bench.queue()
    queue.send("1")
    message = queue.take_one("1")
    require_refusal(("ReceiptHandleIsInvalid", "InvalidParameterValue"), other.delete, message)
    queue.release(message)
    queue.take("1")


@case(RECORDED, API, seconds=4)
def lapsed_change(bench: Bench) -> None:
    """A handle that has lapsed changes no visibility: InvalidParameterValue or MessageNotInflight, both are seen."""
    queue, message = _lapsed(bench)
    require_refusal(_NOT_HELD, queue.hide, message, 60)
    queue.take("1")


@case(RECORDED, API, "no text tells the code in a batch", seconds=4)
def lapsed_change_in_batch(bench: Bench) -> None:
    """In a batch, a visibility change with a handle that has lapsed fails its entry, and changes nothing."""
    queue, message = _lapsed(bench)
    entry = {"Id": "0", "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 60}
    found = failures(queue.call("ChangeMessageVisibilityBatch", Entries=[entry]))
    require(True, found.get("0") in (*_NOT_HELD, "ReceiptHandleIsInvalid"), f"{found.get('0')} is a known refusal:")
    queue.take("1")


@case(RECORDED)
def deleted_change(bench: Bench) -> None:
    """The visibility of a deleted message cannot be changed."""
    queue, message = bench.received()
    queue.delete(message)
    require_refusal(_NOT_HELD, queue.hide, message, 60)


@case(API)
def release(bench: Bench) -> None:
    """A visibility timeout of 0 shows a message at once."""
    queue = bench.queue("1")
    queue.hide(queue.take_one("1"), 0)
    queue.take("1")


@case(API, seconds=4)
def from_now(bench: Bench) -> None:
    """A new visibility timeout counts from the change; it is not added to what was left."""
    queue = bench.queue("1")
    queue.let_lapse(queue.take_one("1", timeout_s=600))
    queue.take("1")


@case(API, seconds=18)
def extension(bench: Bench) -> None:
    """A message whose visibility timeout was extended stays hidden beyond its first one."""
    queue = bench.queue("1")
    queue.hide(queue.take_one("1", timeout_s=15), 90)
    bench.sleep(15.5)
    queue.expect_nothing("the timeout was extended")


@case(API, seconds=18)
def queue_timeout(bench: Bench) -> None:
    """A receive that names no timeout hides for the queue's, also a message that was hidden longer before."""
    queue = bench.queue("1", VisibilityTimeout="15")
    message = queue.take_one("1", timeout_s=90)
    queue.hide(message, 900)
    queue.release(message)
    queue.take("1", timeout_s=None)
    queue.expect_nothing("15 seconds are not over")
    bench.sleep(15)
    queue.take("1")


@case(API, seconds=12)
def lapse_is_timely(bench: Bench) -> None:
    """A message is not shown before its visibility timeout is over."""
    queue = bench.queue("1")
    queue.take("1", timeout_s=20)
    queue.expect_nothing("20 seconds are not over", wait_s=8)


@case(API, RECORDED, seconds=4)
def twelve_hours(bench: Bench) -> None:
    """No message is hidden for more than 12 hours since its receive: a change beyond is refused."""
    queue, message = bench.received()
    bench.sleep(2.5)
    require_refusal("InvalidParameterValue", queue.hide, message, 43_200, reason="Total VisibilityTimeout")
    queue.expect_nothing("the refused change changes nothing")


@case(API)
def timeout_range(bench: Bench) -> None:
    """A visibility timeout is at most 43,200 seconds, by a receive and by a change; one below 0 is refused, too."""
    queue = bench.queue("1")
    for wrong in (43_201, -1):
        require_refusal("InvalidParameterValue", queue.receive, timeout_s=wrong)
    message = queue.take_one("1", timeout_s=43_200)
    for wrong in (43_201, -1):
        require_refusal("InvalidParameterValue", queue.hide, message, wrong)
    queue.hide(message, 43_000)


@case(API)
def change_in_batch(bench: Bench) -> None:
    """Each entry of a batch of visibility changes succeeds or fails by itself."""
    queue = bench.queue("1")
    handles = [queue.take_one("1")["ReceiptHandle"], "no-handle"]
    entries = [{"Id": str(at), "ReceiptHandle": text, "VisibilityTimeout": 0} for at, text in enumerate(handles)]
    answer = queue.call("ChangeMessageVisibilityBatch", Entries=entries)
    require({"1": "ReceiptHandleIsInvalid"}, failures(answer), "failed")
    require("0", marks_text([entry["Id"] for entry in answer["Successful"]]), "successful")
    queue.take("1")


@case(API, seconds=5)
def receive_count(bench: Bench) -> None:
    """Each receive adds 1 to ApproximateReceiveCount, also of a message that was released or has lapsed."""
    queue, first = bench.received()
    queue.release(first)
    second = queue.take_one("1")
    queue.let_lapse(second)
    counts = [system(each, "ApproximateReceiveCount") for each in (first, second, queue.take_one("1"))]
    require("1, 2, 3", marks_text(counts))


@case(API, seconds=4)
def first_receive(bench: Bench) -> None:
    """ApproximateFirstReceiveTimestamp stays that of the first receive, and is not before SentTimestamp."""
    queue, first = bench.received()
    queue.let_lapse(first)
    name = "ApproximateFirstReceiveTimestamp"
    require(True, system(first, name) == system(queue.take_one("1"), name), f"the same {name}:")
    require(True, int(system(first, name)) >= int(system(first, "SentTimestamp")), "not before SentTimestamp:")
