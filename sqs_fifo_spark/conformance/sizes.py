"""Sizes and forms: of bodies at the byte, of ids, and of message attributes."""

from __future__ import annotations

import hashlib
from typing import Any

from sqs_fifo_spark.conformance.bench import Bench, marks_of
from sqs_fifo_spark.conformance.case import API, DOCUMENTATION, RECORDED, case
from sqs_fifo_spark.conformance.refusals import require, require_refusal

_INVALID = "InvalidParameterValue"
_SMALLEST = {"MaximumMessageSize": "1024"}
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def _attribute(value: str, data_type: str = "String") -> dict[str, str]:
    return {"DataType": data_type, "StringValue": value}


@case(API, chunks=50, seconds=4)
def one_mebibyte(bench: Bench) -> None:
    """A message holds 1,048,576 bytes, one byte more is refused; it comes back whole."""
    queue = bench.queue_of_1_mib()
    body = "x" * 1_048_576
    queue.send("1", MessageBody=body)
    require_refusal(_INVALID, queue.send, "2", MessageBody=body + "x")
    require(True, marks_of(queue.collect(1)) == [body], "the same body:")


@case(API, RECORDED)
def maximum_of_the_queue(bench: Bench) -> None:
    """A queue's MaximumMessageSize counts bytes of UTF-8, not characters."""
    queue = bench.queue(**_SMALLEST)
    queue.send("1", MessageBody="é" * 512)
    require_refusal(_INVALID, queue.send, "2", MessageBody="é" * 512 + "x")


@case(API)
def attributes_count(bench: Bench) -> None:
    """Name, type and value of each message attribute count for a message's size."""
    queue = bench.queue(**_SMALLEST)
    attributes = {"name": _attribute("v" * 10)}
    body = "x" * (1024 - len("name") - len("String") - 10)
    queue.send("1", MessageBody=body, MessageAttributes=attributes)
    require_refusal(_INVALID, queue.send, "2", MessageBody=body + "x", MessageAttributes=attributes)


@case(API)
def system_attributes_are_free(bench: Bench) -> None:
    """A message system attribute does not count for a message's size."""
    header = _attribute("Root=1-5759e988-bd862e3fe1be46a994272793")
    queue = bench.queue(**_SMALLEST)
    queue.send("1", MessageBody="x" * 1024, MessageSystemAttributes={"AWSTraceHeader": header})


@case(API)
def empty_body(bench: Bench) -> None:
    """A message has at least one character: an empty body is refused."""
    require_refusal(("MissingParameter", _INVALID), bench.queue().send, "1", MessageBody="")


@case(API)
def characters(bench: Bench) -> None:
    """The characters at the edges of what XML allows come back unchanged."""
    queue = bench.queue()
    body = "\t\n\r \ud7ff\ue000\ufffd\U00010000\U0010ffff"
    queue.send("1", MessageBody=body)
    require(True, marks_of(queue.collect(1)) == [body], "the same body:")


@case(API, "an older one says that SQS replaces them where they stand beside others: here they stand alone")
def forbidden_characters(bench: Bench) -> None:
    """Characters that XML does not have are refused with InvalidMessageContents."""
    queue = bench.queue()
    for at, wrong in enumerate(("\x00", "\x0b", "\x1f", "\ufffe", "\uffff")):
        require_refusal("InvalidMessageContents", queue.send, str(at), MessageBody=wrong)


@case(API, calls=20)
def ids(bench: Bench) -> None:
    """Group and deduplication ids have 1 to 128 letters, digits and punctuation, no spaces."""
    queue = bench.queue()
    queue.send("1", MessageGroupId="g" * 128, MessageDeduplicationId="d" * 128)
    queue.send("2", MessageGroupId=_PUNCTUATION, MessageDeduplicationId=_PUNCTUATION)
    for name in ("MessageGroupId", "MessageDeduplicationId"):
        for wrong in ("x" * 129, "a b", "é"):
            require_refusal(_INVALID, queue.send, "3", **{name: wrong})


@case(API)
def missing_group(bench: Bench) -> None:
    """A send without a group is refused."""
    require_refusal(("MissingParameter", _INVALID), bench.queue().send, "1", MessageGroupId=None)


@case(DOCUMENTATION)
def ten_attributes(bench: Bench) -> None:
    """A message has at most 10 attributes."""
    queue = bench.queue()
    attributes = {f"a{number}": _attribute("x") for number in range(11)}
    require_refusal(_INVALID, queue.send, "1", MessageAttributes=attributes)
    attributes.popitem()
    queue.send("2", MessageAttributes=attributes)


@case(DOCUMENTATION)
def attribute_types(bench: Bench) -> None:
    """Attributes of the types String, Number and Binary, with a label or without, come back as they were sent."""
    queue = bench.queue()
    attributes: dict[str, Any] = {
        "text": _attribute("é"),
        "number": _attribute("-1.50", "Number.euro"),
        "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    queue.send("1", MessageAttributes=attributes)
    found = queue.take_one("1", MessageAttributeNames=["All"]).get("MessageAttributes", {})
    for name, sent in attributes.items():
        require(sent, {key: found.get(name, {}).get(key) for key in sent}, name)


@case(DOCUMENTATION, calls=24)
def attribute_name(bench: Bench) -> None:
    """An attribute's name has up to 256 letters, digits, hyphens, underscores and single periods, none at its ends."""
    queue = bench.queue()
    queue.send("1", MessageAttributes={name: _attribute("x") for name in ("x" * 256, "a.b-C_9")})
    for wrong in ("x" * 257, ".a", "a.", "a..b", "a b", "é", "Amazon.x"):
        require_refusal(_INVALID, queue.send, "2", MessageAttributes={wrong: _attribute("x")})


@case(DOCUMENTATION)
def wrong_attributes(bench: Bench) -> None:
    """Attributes with a reserved name, another type, no value, or a Number that is none are refused."""
    queue = bench.queue()
    wrongs = {
        "AWS.x": _attribute("x"),
        "a": _attribute("x", "Other"),
        "b": _attribute(""),
        "c": _attribute("x", "Number"),
    }
    for name, value in wrongs.items():
        require_refusal(_INVALID, queue.send, name, MessageAttributes={name: value})


@case(API, RECORDED)
def attribute_names(bench: Bench) -> None:
    """Message attributes come only when they are asked for: by name, by prefix with .*, or all."""
    queue = bench.queue()
    queue.send("1", MessageAttributes={name: _attribute("x") for name in ("bar.a", "bar.b", "foo")})
    for asked, expected in ((None, []), (["foo", "none"], ["foo"]), (["bar.*"], ["bar.a", "bar.b"])):
        message = queue.take_one("1", MessageAttributeNames=asked)
        require(expected, sorted(message.get("MessageAttributes", {})), f"{asked}:")
        queue.release(message)


@case(DOCUMENTATION, API)
def digests(bench: Bench) -> None:
    """MD5s of body and attributes are those that the documentation says, in the answers to sends and receives."""
    queue = bench.queue()
    sent = queue.send("1", MessageAttributes={"a": _attribute("b")})
    message = queue.take_one("1", MessageAttributeNames=["All"])
    body, attributes = hashlib.md5(b"1", usedforsecurity=False).hexdigest(), "bef8bf215374a0a228d67533b1a488be"
    require(body, sent.get("MD5OfMessageBody"), "MD5OfMessageBody")
    require(body, message.get("MD5OfBody"), "MD5OfBody")
    require(attributes, sent.get("MD5OfMessageAttributes"), "sent MD5OfMessageAttributes")
    require(attributes, message.get("MD5OfMessageAttributes"), "received MD5OfMessageAttributes")
