"""Sequence numbers, and what else SQS says of a message by itself."""

from __future__ import annotations

from sqs_fifo_spark.conformance.bench import Bench, marks_text, system
from sqs_fifo_spark.conformance.case import API, DOCUMENTATION, RECORDED, Differs, case
from sqs_fifo_spark.conformance.refusals import require, require_refusal


@case(API)
def rise(bench: Bench) -> None:
    """Sequence numbers rise within a group, compared as numbers."""
    queue = bench.queue()
    numbers = [int(queue.send(str(at))["SequenceNumber"]) for at in range(8)]
    numbers += [int(entry["SequenceNumber"]) for entry in queue.send_all("a", "b", "c", "d")["Successful"]]
    require(True, numbers == sorted(set(numbers)), "rise:")


@case(DOCUMENTATION)
def form(bench: Bench) -> None:
    """A sequence number is a decimal text of at most 128 bits."""
    text = bench.queue().send("1")["SequenceNumber"]
    if not (text.isascii() and text.isdigit() and int(text) < 2**128):
        raise Differs("digits of at most 128 bits", str(text)[:50])


@case(API, RECORDED)
def same_when_received(bench: Bench) -> None:
    """A message is received with the sequence number and message id that its send was answered, each time."""
    queue = bench.queue()
    sent = queue.send("1")
    for _ in range(2):
        message = queue.take_one("1")
        require(True, sent["MessageId"] == message["MessageId"], "the same message id:")
        require(True, sent["SequenceNumber"] == system(message, "SequenceNumber"), "the same number:")
        queue.release(message)


@case(API)
def of_content(bench: Bench) -> None:
    """Messages deduplicated by content have sequence numbers, too."""
    queue = bench.queue(ContentBasedDeduplication="true")
    queue.send("1", MessageDeduplicationId=None)
    system(queue.take_one("1"), "SequenceNumber")


@case(API, calls=40)
def batch_order(bench: Bench) -> None:
    """The messages of a batch are enqueued in the order of its entries."""
    queue = bench.queue()
    marks = [str(number) for number in range(10)]
    queue.send_all(*marks)
    require(marks_text(marks), queue.drain(10))


@case(API)
def sent_ids(bench: Bench) -> None:
    """A message is received with its group and its deduplication id as they were sent."""
    queue = bench.queue()
    queue.send("1", group="G-1", MessageDeduplicationId="D-1")
    message = queue.take_one("1")
    require("G-1", system(message, "MessageGroupId"), "group")
    require("D-1", system(message, "MessageDeduplicationId"), "id")


@case(API)
def times(bench: Bench) -> None:
    """SentTimestamp and ApproximateFirstReceiveTimestamp are milliseconds since 1970; SenderId is there."""
    _, message = bench.received()
    for name in ("SentTimestamp", "ApproximateFirstReceiveTimestamp"):
        off = abs(int(system(message, name)) / 1000 - bench.clock.now())
        if off > 300:
            raise Differs(f"{name} of now, in milliseconds", f"{off:.0f} seconds away from this machine's clock")
    system(message, "SenderId")


@case(API)
def only_when_asked(bench: Bench) -> None:
    """System attributes come only when they are asked for, and then only those."""
    queue = bench.queue("1")
    message = queue.take_one("1", MessageSystemAttributeNames=None)
    require([], list(message.get("Attributes", {})), "attributes")
    queue.release(message)
    names = ["MessageGroupId", "SequenceNumber"]
    message = queue.take_one("1", MessageSystemAttributeNames=names)
    require(names, sorted(message.get("Attributes", {})), "attributes")


@case(API)
def old_parameter(bench: Bench) -> None:
    """AttributeNames, the parameter's old name, is taken, too."""
    queue = bench.queue("1")
    message = queue.take_one("1", MessageSystemAttributeNames=None, AttributeNames=["SequenceNumber"])
    system(message, "SequenceNumber")


@case(API)
def trace_header(bench: Bench) -> None:
    """AWSTraceHeader is delivered as a system attribute; no other can be sent."""
    queue = bench.queue()
    header = "Root=1-5759e988-bd862e3fe1be46a994272793"
    value = {"DataType": "String", "StringValue": header}
    queue.send("1", MessageSystemAttributes={"AWSTraceHeader": value})
    require(header, system(queue.take_one("1"), "AWSTraceHeader"), "header")
    require_refusal("InvalidParameterValue", queue.send, "2", MessageSystemAttributes={"Other": value})
