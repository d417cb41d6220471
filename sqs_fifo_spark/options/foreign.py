"""Options of other sources and sinks, and a sentence on each: what takes its place here, or that nothing does."""

from __future__ import annotations

import re
from typing import NamedTuple


class Hint(NamedTuple):
    """A sentence on these names for the side of the source, and one for that of the sink; None where there is none."""

    names: tuple[str, ...]
    source: str | None
    sink: str | None


_KEYS = "Give 'awsAccessKeyId' and 'awsSecretAccessKey', or better a 'profile' or a 'roleArn'."
_SERVERS = "AWS's host follows from 'queueUrl'; another one is given as 'endpointUrl'."
_TRIGGER = "It belongs to the query: call writeStream.trigger(...)."

HINTS = (
    Hint(
        ("queue", "queueName", "queueArn", "sqsUrl", "url", "streamName"),
        *["Give 'queueUrl', which takes a queue's URL, ARN or name."] * 2,
    ),
    Hint(
        ("path",),
        "load() takes no path: give the queue as option 'queueUrl'.",
        "start() and save() take no path: give the queue as option 'queueUrl'.",
    ),
    Hint(("endpoint", "endpoint_url", "serviceEndpoint", "kinesis.endpointUrl"), *["Give 'endpointUrl'."] * 2),
    Hint(("awsRegion", "region_name", "kinesis.region"), *["Give 'region'."] * 2),
    Hint(("accessKey", "secretKey", "awsAccessKey", "awsSecretKey"), _KEYS, _KEYS),
    Hint(("awsStsRoleArn", "kinesis.stsRoleArn"), *["Give 'roleArn'."] * 2),
    Hint(("kafka.bootstrap.servers", "bootstrapServers"), _SERVERS, _SERVERS),
    Hint(
        ("topic", "topicId", "subscribe", "subscriptionId", "assign"),
        "A queue has no topics: give 'queueUrl', or 'queueUrls' for several.",
        "A queue has no topics: give 'queueUrl', and a column of that name where rows go to several queues.",
    ),
    Hint(
        ("subscribePattern",),
        "Give 'queueNamePrefix', with which the names of the queues begin.",
        "A queue has no topics: give 'queueUrl', and a column of that name where rows go to several queues.",
    ),
    Hint(
        ("startingOffsets", "startingTimestamp", "startingPosition", "initialPosition", "endingOffsets"),
        "SQS keeps no offsets: a new query takes all that the queue holds, and a known one what it has not committed.",
        None,
    ),
    Hint(
        ("kafka.group.id", "groupId", "groupIdPrefix", "consumerGroup"),
        "SQS has no consumer groups: give each query a queue of its own, to which SNS can send copies.",
        None,
    ),
    Hint(
        ("maxOffsetsPerTrigger", "maxRecordsPerTrigger", "maxRowsPerTrigger", "maxFilesPerTrigger"),
        "Give 'maxMessagesPerTrigger', 'maxBytesPerTrigger', or both.",
        "A sink takes each micro-batch as it comes: limit it by an option of the source that is read.",
    ),
    Hint(
        ("batchSize", "maxNumberOfMessages", "maxRecordsPerFetch"),
        "Each call takes up to ten messages: 'maxMessagesPerTrigger' limits a micro-batch.",
        "Each call takes up to ten rows; with 'order' set to batch, even rows of one group.",
    ),
    Hint(
        ("minPartitions", "maxPartitions", "numFetchPartitions", "fetchParallelism"),
        "Give 'numPartitions'.",
        "A write has the partitions of its rows: repartition them by messageGroupId before it.",
    ),
    Hint(("pollTimeout", "longPollWaitTimeSeconds"), "Give 'waitTimeSeconds'.", None),
    Hint(("trigger", "processingTime", "availableNow", "fetchIntervalSeconds"), _TRIGGER, _TRIGGER),
    Hint(("checkpointLocation",), "It belongs to the query: give it to writeStream.", None),
    Hint(("queryName",), "It belongs to the query: call writeStream.queryName(...).", None),
    Hint(
        ("deleteMessages", "autoDelete", "autoCommit", "enable.auto.commit"),
        "Messages are deleted once Spark has committed them; 'deleteAfter' names another moment.",
        None,
    ),
    Hint(
        ("fileFormat", "valueFormat", "schema"),
        "The column body has each message's text: parse it with from_json, say.",
        "The column body is sent as it is: make it with to_json, say.",
    ),
    Hint(
        ("deadLetterQueue", "deadLetterQueueUrl", "dlqUrl"),
        "SQS itself moves messages there: set the queue's RedrivePolicy.",
        "Give 'badRecordsQueueUrl', or 'badRecordsPath'.",
    ),
    Hint(
        ("deduplicationId", "messageDeduplicationId"),
        None,
        "Give it in the column messageDeduplicationId, or set 'deduplication' to content.",
    ),
    Hint(
        ("large_payload_support", "payloadSupportEnabled", "s3BucketName", "s3KeyPrefix"),
        "Set 'payloads' to s3: each message names its bucket.",
        "Give 'payloadLocation', such as s3://bucket/prefix.",
    ),
    Hint(("always_through_s3",), None, "Give 'payloadLocation', and set 'payloadThresholdBytes' to 1."),
    Hint(("delaySeconds",), None, "A FIFO queue delays all messages alike: set the queue's own DelaySeconds."),
)


def hints_of(side: str) -> dict[str, tuple[str, str]]:
    """Return the hints of a side, source or sink, by `plain` name: each with the name as others write it."""
    return {plain(name): (name, said) for hint in HINTS if (said := getattr(hint, side)) for name in hint.names}


def plain(name: str) -> str:
    """Return a name without case and signs, in which writings of one name differ."""
    return re.sub(r"[\W_]", "", name.lower())
