"""Queues themselves: names, attributes, tags, policies, counts, purges."""

from __future__ import annotations

import json

from sqs_fifo_spark.conformance.bench import Bench, marks_of, marks_text
from sqs_fifo_spark.conformance.case import API, DOCUMENTATION, RECORDED, REPORT, case
from sqs_fifo_spark.conformance.refusals import require, require_refusal


@case(API)
def name(bench: Bench) -> None:
    """The name of a FIFO queue ends with .fifo and has at most 80 characters."""
    for wrong in (bench.name(""), bench.name("").ljust(76, "x") + ".fifo", bench.name(".x.fifo")):
        require_refusal("InvalidParameterValue", bench.queue, name=wrong)


@case(API, RECORDED)
def same_again(bench: Bench) -> None:
    """To create a queue again with the same attributes returns its URL; with others it is refused."""
    name = bench.name()
    queue = bench.queue(name=name, VisibilityTimeout="31")
    require(True, queue.url == bench.queue(name=name, VisibilityTimeout="31").url, "the same URL:")
    require_refusal(("QueueAlreadyExists", "QueueNameExists"), bench.queue, name=name, VisibilityTimeout="32")


@case(API)
def no_queue(bench: Bench) -> None:
    """A call for a queue that does not exist is refused with NonExistentQueue."""
    require_refusal("NonExistentQueue", bench.call, "GetQueueUrl", QueueName=bench.name())


@case(API, "pages of some regions have the older default")
def attributes(bench: Bench) -> None:
    """A FIFO queue shows its attributes, with SQS's defaults; a MaximumMessageSize of 262144 is the older one."""
    found = bench.queue().call("GetQueueAttributes", AttributeNames=["All"]).get("Attributes", {})
    expected = {
        "FifoQueue": "true",
        "ContentBasedDeduplication": "false",
        "DeduplicationScope": "queue",
        "FifoThroughputLimit": "perQueue",
        "VisibilityTimeout": "30",
        "DelaySeconds": "0",
        "ReceiveMessageWaitTimeSeconds": "0",
        "MessageRetentionPeriod": "345600",
    }
    require(expected, {key: found.get(key) for key in expected})
    size = found.get("MaximumMessageSize")
    require(True, size in ("1048576", "262144"), f"MaximumMessageSize {size} is a default:")


@case(DOCUMENTATION, REPORT)
def type_is_fixed(bench: Bench) -> None:
    """A queue cannot cease to be a FIFO queue."""
    require_refusal("InvalidAttributeValue", bench.queue().set, FifoQueue="false")


@case(API)
def high_throughput(bench: Bench) -> None:
    """FifoThroughputLimit=perMessageGroupId needs DeduplicationScope=messageGroup."""
    codes = "InvalidAttributeValue", "InvalidParameterValue"
    require_refusal(codes, bench.queue, FifoThroughputLimit="perMessageGroupId")
    bench.queue(FifoThroughputLimit="perMessageGroupId", DeduplicationScope="messageGroup")


@case(API)
def unknown_attribute(bench: Bench) -> None:
    """An attribute that SQS does not know is refused with InvalidAttributeName."""
    require_refusal("InvalidAttributeName", bench.queue().set, NoSuchAttribute="1")


@case(API)
def ranges(bench: Bench) -> None:
    """Attributes out of their ranges are refused with InvalidAttributeValue."""
    queue = bench.queue()
    wrongs = {"VisibilityTimeout": "43201", "MessageRetentionPeriod": "59", "ReceiveMessageWaitTimeSeconds": "21"}
    for key, value in {**wrongs, "MaximumMessageSize": "1023"}.items():
        require_refusal("InvalidAttributeValue", queue.set, **{key: value})


@case(API, calls=45, seconds=3, settles=True)
def counts(bench: Bench) -> None:
    """Messages that wait and messages in flight are counted apart."""
    queue = bench.queue()
    for group in ("a", "b", "c"):
        queue.send(group, group=group)
    queue.collect(2, most=1, timeout_s=900)  # for the counts may be late
    names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")

    def look() -> list[str | None]:
        found = queue.call("GetQueueAttributes", AttributeNames=list(names)).get("Attributes", {})
        return [found.get(name) for name in names]

    bench.eventually(["1", "2"], look)


@case(API, RECORDED, settles=True)
def purge(bench: Bench) -> None:
    """To purge a queue drops its messages, those in flight, too; a second time within 60 seconds is refused."""
    queue = bench.queue("1", "2")
    queue.take("1", most=1, timeout_s=2)
    queue.call("PurgeQueue")
    require_refusal("PurgeQueueInProgress", queue.call, "PurgeQueue")
    bench.settle()
    bench.sleep(2)
    queue.expect_nothing("the queue was purged")


@case(API, calls=45)
def tags(bench: Bench) -> None:
    """Tags are added, replaced and taken away."""
    queue = bench.queue()
    queue.call("TagQueue", Tags={"a": "1", "b": "2"})
    queue.call("TagQueue", Tags={"a": "3"})
    queue.call("UntagQueue", TagKeys=["b", "none"])
    bench.eventually({"a": "3"}, lambda: queue.call("ListQueueTags").get("Tags", {}))


@case(API, calls=80, settles=True)
def policy(bench: Bench) -> None:
    """A queue keeps the policy that it is given, and takes it away for an empty one."""
    queue = bench.queue()
    account = queue.arn.split(":")[4]
    statement = {
        "Sid": "kit",
        "Effect": "Allow",
        "Principal": {"AWS": account},
        "Action": "sqs:SendMessage",
        "Resource": queue.arn,
    }
    queue.set(Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    bench.eventually(True, lambda: '"kit"' in queue.attribute("Policy"))
    queue.set(Policy="")
    bench.eventually(False, lambda: '"kit"' in queue.attribute("Policy"))


@case(API, calls=45)
def list_by_prefix(bench: Bench) -> None:
    """ListQueues with a prefix names the queues whose names begin so."""
    queue = bench.queue()
    own = queue.url.rpartition("/")[2]

    def look() -> int:
        urls = bench.call("ListQueues", QueueNamePrefix=own[:-5]).get("QueueUrls", [])
        return sum(url.endswith(f"/{own}") for url in urls)

    bench.eventually(1, look)


@case(API)
def url(bench: Bench) -> None:
    """GetQueueUrl finds a queue by its name."""
    queue = bench.queue()
    found = bench.call("GetQueueUrl", QueueName=queue.url.rpartition("/")[2])["QueueUrl"]
    require(True, queue.url.rpartition("/")[2] == found.rpartition("/")[2], "the same name:")


@case(API, RECORDED)
def messages_per_queue(bench: Bench) -> None:
    """Queues have nothing in common: neither messages, nor groups, nor deduplication ids."""
    one, other = bench.queue(), bench.queue()
    for queue in (one, other):
        queue.send("1", MessageDeduplicationId="x")
    one.take("1")
    require("1", marks_text(marks_of(other.take("1"))))
