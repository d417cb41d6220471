"""The options of a source."""

from __future__ import annotations

from dataclasses import dataclass

from sqs_fifo_spark import option_rules as rules
from sqs_fifo_spark.errors import OptionError
from sqs_fifo_spark.option_rules import option
from sqs_fifo_spark.options.connection import (
    ConnectionOptions,
    QueueOptions,
    require_one,
    require_one_account,
    require_one_base,
    require_one_region,
    require_s3,
)
from sqs_fifo_spark.options.queues import queue_list
from sqs_fifo_spark.options.table import options_of

MAX_VISIBILITY_S = 43_200
"""SQS holds a message for at most 12 hours."""
MAX_PARTITION_BYTES = 1 << 30
"""Most bytes that a partition goes on receiving to: its bodies are one Arrow array, which ends at 2 GiB."""
_MAX_PAYLOAD = 512 << 20
"""One payload more than `MAX_PARTITION_BYTES` still fits into that array."""
_MAX_WAIT_S = 20
"""SQS's longest long poll."""
_MAX_IN_FLIGHT = 120_000
"""SQS's cap of messages in flight in one FIFO queue."""
_MAX_CALLS_PER_S = 1_000_000
"""Far above one queue's answers."""
_QUEUE_URL = options_of(QueueOptions)["queue_url"]


@dataclass(frozen=True, kw_only=True)
class SourceOptions(ConnectionOptions):
    """A user's choices for a source, checked and complete."""

    queue_url: str = option(
        _QUEUE_URL.rule,
        _QUEUE_URL.meaning,
        is_required=True,
        unless=("queueUrls", "queueNamePrefix"),
        default="",
    )
    """Empty if there are several queues."""
    journal_location: str = option(
        rules.journal_location,
        "Where received messages are kept until they are committed: an absolute path that driver and executors "
        "share, or `s3://`, `gs://`, `abfss://`. One location for each source.",
        is_required=True,
    )
    queue_urls: tuple[str, ...] = option(
        queue_list,
        "In place of `queueUrl`: several queues, separated by commas, each as `queueUrl` takes it. At most 1000.",
        default=(),
    )
    queue_name_prefix: str | None = option(
        rules.name_prefix,
        "In place of `queueUrl`: all FIFO queues of the account and the region whose names begin so, at most 1000. "
        "SQS is asked for them, which needs the permission `sqs:ListQueues`.",
    )
    queue_discovery_s: int = option(
        rules.whole,
        "How often SQS is asked for these queues again.",
        default=60,
        needs=("queueNamePrefix",),
        bounds=(1, 86_400),
    )
    visibility_timeout_s: int = option(
        rules.whole,
        "How long SQS hides a received message from others unless the hold is renewed. When the driver dies, its "
        "messages are free after this time. Below 30 one call without an answer may cost the hold on others.",
        default=120,
        bounds=(1, MAX_VISIBILITY_S),
    )
    heartbeat_s: float = option(
        rules.seconds,
        "How long after a receive or a renewal a held message is renewed.",
        default_from=lambda chosen: chosen["visibility_timeout_s"] / 3,
        default_text="a third of visibilityTimeoutSeconds",
        bounds=(0.1, MAX_VISIBILITY_S / 3),
    )
    wait_time_s: int = option(
        rules.whole,
        "How long the driver's long poll waits on an empty queue.",
        default=_MAX_WAIT_S,
        bounds=(1, _MAX_WAIT_S),
    )
    max_messages_per_trigger: int = option(
        rules.whole,
        "Maximum number of messages in one micro-batch. The default is lower with a short `heartbeatSeconds`, so that "
        "all of them can be renewed in time.",
        default_from=lambda chosen: min(20_000, int(1_600 * chosen["heartbeat_s"])),
        default_text="20000, at most 1600 for each second of heartbeatSeconds",
        bounds=(1, _MAX_IN_FLIGHT),
    )
    max_bytes_per_trigger: int = option(
        rules.size,
        "Bytes of message bodies and attributes after which a micro-batch takes no further receive; at most `1g` "
        "for each partition; with `deleteAfter=journal`, at most `1g` in all.",
        default=64 << 20,
    )
    max_fetch_s: float = option(
        rules.seconds,
        "Longest time that a partition goes on receiving. It begins anew with each receive that brings copies of "
        "committed messages, which are deleted, until another message has come.",
        default_from=lambda chosen: min(5.0, chosen["visibility_timeout_s"] / 4),
        default_text="5, at most a quarter of visibilityTimeoutSeconds",
        bounds=(0.1, MAX_VISIBILITY_S / 2),
    )
    num_partitions: int = option(
        rules.whole,
        "Maximum number of partitions of one micro-batch; a short queue gets fewer. With `deleteAfter=journal`, there "
        "are never more than the previous micro-batch had message groups, if it had any.",
        default=8,
        bounds=(1, 1000),
    )
    max_calls_per_s: int | None = option(
        rules.whole,
        "Maximum number of receives and deletes per second, of driver and tasks together, averaged over some seconds: "
        "for a queue that others need, too. Each task gets an equal share, used or not. Retries, renewals and releases "
        "come on top.",
        default_text="no limit",
        bounds=(1, _MAX_CALLS_PER_S),
    )
    link_bytes_per_s: int | None = option(
        rules.size,
        "Bytes per second that the network carries at least between SQS and all processes of the query together. It "
        "limits nothing: at the start, the log warns of settings that need more.",
        default_text="not known",
    )
    delete_after: str = option(
        rules.one_of("commit", "journal"),
        "When a message is deleted: once Spark has committed it (`commit`), or as soon as the journal has it "
        "(`journal`), which frees its group at once, and leaves the journal as the only copy.",
        default="commit",
    )
    unwrap: str = option(
        rules.one_of("none", "sns"),
        "`sns`: a body that is an SNS notification becomes its message, and the column `sns` has the rest. Any other "
        "body stays as it is.",
        default="none",
    )
    payloads: str = option(
        rules.one_of("none", "s3"),
        "`s3`: a message that is a pointer to S3, as AWS's extended clients send it, has the object's text as its "
        "body. Any other body stays as it is. `journalEndpointUrl` and `journalCredentials` hold for it, too.",
        default="none",
    )
    max_payload_bytes: int = option(
        rules.size,
        "Bytes that a payload on S3 may have, at most `512m`.",
        default=64 << 20,
        needs=("payloads",),
    )
    payload_errors: str = option(
        rules.one_of("fail", "null"),
        "What to do with a message whose payload is missing, refused by S3, too large, or no text. `fail`: stop, and "
        "serve nothing of the micro-batch. `null`, the word: the body is null, and the column `payloadError` says why.",
        default="fail",
        needs=("payloads",),
    )
    delete_payloads: bool = option(
        rules.boolean,
        "Whether to delete a payload from S3 once SQS has confirmed to have deleted its message.",
        default=False,
        needs=("payloads",),
    )
    fail_on_data_loss: bool = option(
        rules.boolean,
        "Whether to stop when the journal no longer holds what the checkpoint refers to.",
        default=True,
    )

    @property
    def has_many_queues(self) -> bool:
        """Return True if the source reads all queues of a list, though that may have a single one, or none yet."""
        return not self.queue_url

    @property
    def queue_name(self) -> str:
        """The queue's name, or a word for several."""
        if self.queue_name_prefix is not None:
            return f"{self.queue_name_prefix}*"
        if self.queue_urls:
            return f"{len(self.queue_urls)} queue{'s' * (len(self.queue_urls) > 1)}"
        return super().queue_name


def require_source(options: SourceOptions) -> None:
    """Raise OptionError for options that do not go together."""
    _require_one_way_to_queues(options)
    if not options.has_many_queues:
        require_one_account(options)
    require_one_region(options)
    require_one_base(options)
    if options.payloads == "none":
        or_else = ", or set payloads to s3 if it is for payloads"
        require_s3(options, or_else=or_else, journalLocation=options.journal_location)
    if options.max_payload_bytes > _MAX_PAYLOAD:
        raise OptionError(
            f"option 'maxPayloadBytes' is '{options.max_payload_bytes}'; it must be at most {_MAX_PAYLOAD} (512m), so "
            "that a partition's bodies fit into one array of Arrow. Lower it."
        )
    why = "so that two failed renewals can be retried before SQS hands the messages to somebody else"
    _require_share("heartbeatSeconds", options.heartbeat_s, options.visibility_timeout_s, 3, "a third", why)
    why = "so that what was received can be written to the journal while it is still held"
    _require_share("maxFetchSeconds", options.max_fetch_s, options.visibility_timeout_s, 2, "half", why)
    if options.delete_after == "journal" and options.max_bytes_per_trigger > MAX_PARTITION_BYTES:
        raise OptionError(
            f"option 'maxBytesPerTrigger' is '{options.max_bytes_per_trigger}'; with deleteAfter=journal it must be "
            f"at most {MAX_PARTITION_BYTES} (1g), so that one partition can take over what a query has left that died: "
            "all of it may be of one group. Lower it."
        )


def _require_one_way_to_queues(options: SourceOptions) -> None:
    ways = {
        "queueUrl": options.queue_url,
        "queueUrls": options.queue_urls,
        "queueNamePrefix": options.queue_name_prefix,
    }
    require_one([name for name, value in ways.items() if value], "each says which queues are read")
    if options.queue_name_prefix is not None and options.queue_owner_account_id is not None:
        raise OptionError(
            "options 'queueNamePrefix' and 'queueOwnerAccountId' are both given, but SQS lists the queues of the "
            "credentials' own account alone. Leave queueOwnerAccountId out, and give 'roleArn' for a role in that "
            "account, or 'queueUrls'."
        )


def _require_share(name: str, value: float, visibility: int, parts: int, share: str, reason: str) -> None:
    if value > visibility / parts:
        needed = -(-value * parts // 1)
        remedy = f"Lower it, or raise visibilityTimeoutSeconds to {needed:g}."
        raise OptionError(
            f"option '{name}' is '{value:g}'; it must be at most {visibility / parts:g}, {share} of "
            f"'visibilityTimeoutSeconds' ({visibility}), {reason}. {remedy}"
        )
