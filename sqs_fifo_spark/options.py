"""Option strings become frozen `SourceOptions` or `SinkOptions`, or one clear line that says what is wrong.

Nothing here touches the network or the disk, so all of it is checked where the user names the format: a source's at
`.load()`, a sink's before its first task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqs_fifo_spark import option_rules as rules
from sqs_fifo_spark.errors import OptionError
from sqs_fifo_spark.option_rules import Option, OptionTable

FIFO_ID = re.compile(r"[!-~]{1,128}")
FIFO_ID_RULE = "it must be 1 to 128 letters, digits or ASCII punctuation marks, without spaces."
"""What SQS takes as the id of a group or of a deduplication."""
_TXN_APP_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
MAX_TXN_VERSION = 2**63 - 1
MAX_VISIBILITY_S = 43_200
"""SQS holds a message for at most 12 hours."""
MAX_WAIT_S = 20
"""SQS's longest long poll."""
MAX_IN_FLIGHT = 120_000
"""SQS's cap of messages in flight in one FIFO queue."""


@dataclass(frozen=True)
class SourceOptions:
    """What a user chose, checked and complete. Durations end in `_s` and are seconds."""

    queue_url: str
    journal_location: str
    region: str | None
    endpoint_url: str | None
    role_arn: str | None
    role_session_name: str
    external_id: str | None = field(repr=False)
    visibility_timeout_s: int
    heartbeat_s: float
    wait_time_s: int
    max_messages_per_trigger: int
    max_bytes_per_trigger: int
    max_fetch_s: float
    num_partitions: int
    fail_on_data_loss: bool


@dataclass(frozen=True)
class SinkOptions:
    """What a user chose for a sink, checked as far as options alone can be."""

    queue_url: str
    journal_location: str | None
    region: str | None
    endpoint_url: str | None
    role_arn: str | None
    role_session_name: str
    external_id: str | None = field(repr=False)
    message_group_id: str | None
    """The group of all rows; None takes each row's own."""
    deduplication: str | None
    """`column`, `content`, or None: `column` if there is one."""
    txn_app_id: str | None
    """Who writes, in the journal: what a stream has of its query. None: Spark says, in a micro-batch."""
    txn_version: int | None
    """What is written: what a stream has of its micro-batch."""


def _deduplication(option: Option, value: str) -> str:
    if value.lower() not in ("column", "content"):
        raise rules.refuse(option, value, "it must be column or content.")
    return value.lower()


def _txn_app_id(option: Option, value: str) -> str:
    if not _TXN_APP_ID.fullmatch(value) or value == "batch-writes":
        raise rules.refuse(
            option,
            value,
            "it must be 1 to 128 letters, digits, '.', '_' and '-', begin with a letter or digit, and not be "
            "batch-writes: a folder of the journal is called so.",
        )
    return value


def _message_group_id(option: Option, value: str) -> str:
    if not FIFO_ID.fullmatch(value):
        raise rules.refuse(option, value, FIFO_ID_RULE)
    return value


_QUEUE_URL = Option("queueUrl", "queue_url", rules.queue_url, "required", "URL of the FIFO queue.")
_CONNECTION = (
    Option("region", "region", rules.text, "from the URL, else the AWS chain", "AWS region of the queue."),
    Option(
        "endpointUrl",
        "endpoint_url",
        rules.endpoint,
        "AWS's for the region, or `queueUrl`'s own host, if it is not AWS's standard one",
        "Endpoint of SQS.",
    ),
    Option("roleArn", "role_arn", rules.role_arn, "none", "Role to assume for the calls to SQS (not for the journal)."),
    Option("roleSessionName", "role_session_name", rules.text, "sqs-fifo-spark", "Session name of the assumed role."),
    Option("externalId", "external_id", rules.text, "none", "External id that the role's trust policy asks for."),
)
SOURCE = OptionTable(
    "source",
    (
        _QUEUE_URL,
        Option(
            "journalLocation",
            "journal_location",
            rules.journal_location,
            "required",
            "Where received messages are kept until they are committed: an absolute path that driver and executors "
            "share, or `s3://`, `gs://`, `az://`. One location for each source.",
        ),
        *_CONNECTION,
        Option(
            "visibilityTimeoutSeconds",
            "visibility_timeout_s",
            rules.whole,
            "120",
            "How long SQS hides a received message from others unless the hold is renewed. When the driver dies, its "
            "messages are free after this time. Below 30 one call without an answer may cost the hold on others.",
            1,
            MAX_VISIBILITY_S,
        ),
        Option(
            "heartbeatSeconds",
            "heartbeat_s",
            rules.seconds,
            "a third of visibilityTimeoutSeconds",
            "How long after a receive or a renewal a held message is renewed.",
            0.1,
            MAX_VISIBILITY_S / 3,
        ),
        Option(
            "waitTimeSeconds",
            "wait_time_s",
            rules.whole,
            "20",
            "How long the driver's long poll waits on an empty queue.",
            1,
            MAX_WAIT_S,
        ),
        Option(
            "maxMessagesPerTrigger",
            "max_messages_per_trigger",
            rules.whole,
            "10000",
            "Most messages in one micro-batch.",
            1,
            MAX_IN_FLIGHT,
        ),
        Option(
            "maxBytesPerTrigger",
            "max_bytes_per_trigger",
            rules.size,
            "67108864 (64m)",
            "Bytes of message bodies and attributes after which a micro-batch takes no further receive; at most `1g` "
            "for each partition.",
        ),
        Option(
            "maxFetchSeconds",
            "max_fetch_s",
            rules.seconds,
            "5, at most a quarter of visibilityTimeoutSeconds",
            "Longest time that a partition goes on receiving. It begins anew with each receive that brings copies of "
            "committed messages, which are deleted, until another message has come.",
            0.1,
            MAX_VISIBILITY_S / 2,
        ),
        Option(
            "numPartitions",
            "num_partitions",
            rules.whole,
            "8",
            "Most partitions of one micro-batch; a short queue gets fewer.",
            1,
            1000,
        ),
        Option(
            "failOnDataLoss",
            "fail_on_data_loss",
            rules.boolean,
            "true",
            "Whether to stop when the journal no longer holds what the checkpoint refers to.",
        ),
    ),
    required=("queue_url", "journal_location"),
    added_by_spark=("path",),
)
SINK = OptionTable(
    "sink",
    (
        _QUEUE_URL,
        Option(
            "messageGroupId",
            "message_group_id",
            _message_group_id,
            "the column `messageGroupId`",
            "Message group of all rows.",
        ),
        Option(
            "deduplication",
            "deduplication",
            _deduplication,
            "`column`, if there is a column `messageDeduplicationId`",
            "By what SQS recognises a message that is sent again: `column`, its `messageDeduplicationId`, or "
            "`content`, its body (the queue must have `ContentBasedDeduplication`).",
        ),
        Option(
            "journalLocation",
            "journal_location",
            rules.journal_location,
            "none",
            "Where the sink records what it has sent, so that a micro-batch that runs again sends only what is "
            "missing, however late: an absolute path that driver and executors share, or `s3://`, `gs://`, `az://`. "
            "Without it, SQS recognises what is sent again within 5 minutes, and what is sent again later is sent "
            "twice.",
        ),
        Option(
            "txnAppId",
            "txn_app_id",
            _txn_app_id,
            "the query, in a micro-batch",
            "Batch writes only, together with `txnVersion`: a stable name that you choose for the writer. A write "
            "repeated with the same two values sends only what the journal does not have.",
        ),
        Option(
            "txnVersion",
            "txn_version",
            rules.whole,
            "the batch id, in a micro-batch",
            "Batch writes only, together with `txnAppId`: a number that rises with each write; in `foreachBatch`, the "
            "batch id.",
            0,
            MAX_TXN_VERSION,
        ),
        *_CONNECTION,
    ),
    required=("queue_url",),
    added_by_spark=("checkpointlocation", "queryname"),
)


def parse_source_options(given: Mapping[str, str]) -> SourceOptions:
    """Return the options of a source, complete with defaults; keys are compared without regard to case.

    Raises OptionError, or NotFifoQueueError for the URL of a standard queue, with one line that says what to change.
    """
    return _complete(SOURCE.parse(given, SINK))


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Return the options of a sink; keys are compared without regard to case. Raises as `parse_source_options`."""
    values = SINK.parse(given, SOURCE)
    region, endpoint = _region_and_endpoint(values)
    for one, other in (("txn_app_id", "txn_version"), ("txn_version", "txn_app_id")):
        if one in values and other not in values:
            raise OptionError(
                f"option '{SINK.by_field[one].name}' is given without '{SINK.by_field[other].name}'; together they say "
                "who writes what. Give both or neither."
            )
    if "txn_app_id" in values and "journal_location" not in values:
        raise OptionError(
            "options 'txnAppId' and 'txnVersion' are given without 'journalLocation', which knows what was sent for "
            "them, so they would have no effect. Give journalLocation, or leave them out."
        )
    return SinkOptions(
        queue_url=values["queue_url"],
        journal_location=values.get("journal_location"),
        region=region,
        endpoint_url=endpoint,
        role_arn=values.get("role_arn"),
        role_session_name=values.get("role_session_name", "sqs-fifo-spark"),
        external_id=values.get("external_id"),
        message_group_id=values.get("message_group_id"),
        deduplication=values.get("deduplication"),
        txn_app_id=values.get("txn_app_id"),
        txn_version=values.get("txn_version"),
    )


def _region_and_endpoint(values: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the region and the endpoint that are given, else those that follow from the queue's URL."""
    region, endpoint = rules.region_and_endpoint(values["queue_url"])
    if endpoint is not None and "endpoint_url" not in values:
        rules.endpoint(_QUEUE_URL, endpoint)
    return values.get("region", region), values.get("endpoint_url", endpoint)


def _complete(values: dict[str, Any]) -> SourceOptions:
    """Fill in the defaults, which follow from one another and so never conflict, and check the rest."""
    region, endpoint = _region_and_endpoint(values)
    visibility: int = values.setdefault("visibility_timeout_s", 120)
    options = SourceOptions(
        queue_url=values["queue_url"],
        journal_location=values["journal_location"],
        region=region,
        endpoint_url=endpoint,
        role_arn=values.get("role_arn"),
        role_session_name=values.get("role_session_name", "sqs-fifo-spark"),
        external_id=values.get("external_id"),
        visibility_timeout_s=visibility,
        heartbeat_s=values.get("heartbeat_s", visibility / 3),
        wait_time_s=values.get("wait_time_s", MAX_WAIT_S),
        max_messages_per_trigger=values.get("max_messages_per_trigger", 10_000),
        max_bytes_per_trigger=values.get("max_bytes_per_trigger", 64 << 20),
        max_fetch_s=values.get("max_fetch_s", min(5.0, visibility / 4)),
        num_partitions=values.get("num_partitions", 8),
        fail_on_data_loss=values.get("fail_on_data_loss", True),
    )
    _require_share(
        options.heartbeat_s,
        SOURCE.by_field["heartbeat_s"],
        visibility,
        3,
        "a third",
        "so that two failed renewals can be retried before SQS hands the messages to somebody else",
    )
    _require_share(
        options.max_fetch_s,
        SOURCE.by_field["max_fetch_s"],
        visibility,
        2,
        "half",
        "so that what was received can be written to the journal while it is still held",
    )
    return options


def _require_share(value: float, option: Option, visibility: int, parts: int, share: str, reason: str) -> None:
    if value > visibility / parts:
        needed = -(-value * parts // 1)
        remedy = f"Lower it, or raise visibilityTimeoutSeconds to {needed:g}."
        raise OptionError(
            f"option '{option.name}' is '{value:g}'; it must be at most {visibility / parts:g}, {share} of "
            f"'visibilityTimeoutSeconds' ({visibility}), {reason}. {remedy}"
        )
