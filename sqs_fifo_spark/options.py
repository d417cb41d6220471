"""The options of source and sink: each is declared once, as a field of a frozen dataclass.

The parser, its errors and the tables of `docs/options.md` follow from these fields. No call is made here, so all of it
is checked where the user names the format: a source's at `.load()`, a sink's before its first task. Durations end in
`_s` and are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlsplit

from sqs_fifo_spark import option_rules as rules
from sqs_fifo_spark.errors import OptionError
from sqs_fifo_spark.option_rules import Option, OptionTable, option

MAX_TXN_VERSION = 2**63 - 1
MAX_VISIBILITY_S = 43_200
"""SQS holds a message for at most 12 hours."""
MAX_WAIT_S = 20
"""SQS's longest long poll."""
MAX_UNRECORDED_ROWS = 80
"""All that the calls of one task have under way."""
MAX_PARTITION_BYTES = 1 << 30
"""Most bytes that a partition goes on receiving to: its bodies are one Arrow array, which ends at 2 GiB."""
MAX_IN_FLIGHT = 120_000
"""SQS's cap of messages in flight in one FIFO queue."""
MAX_CALLS_PER_S = 1_000_000
"""Far above one queue's answers."""


def _own_endpoint(chosen: Mapping[str, Any]) -> str | None:
    """Return the queue's own host, unless it is AWS's standard one; OptionError for one that cannot be called."""
    endpoint = rules.endpoint_of(chosen["queue_url"])
    return endpoint and rules.endpoint(SOURCE["queueUrl"], endpoint)


@dataclass(frozen=True, kw_only=True)
class QueueOptions:
    """The queue, and the host on which it is called."""

    queue_url: str = option(
        "queueUrl",
        rules.queue_url,
        "URL of the FIFO queue, such as `https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo`.",
    )
    region: str | None = option(
        "region",
        rules.text,
        "AWS region of the queue. It must be the one that `queueUrl` and `endpointUrl` name, if they do.",
        default_from=lambda chosen: (
            rules.region_of(chosen["queue_url"]) or rules.region_of(chosen.get("endpoint_url") or "")
        ),
        default_text="from `queueUrl`, else from `endpointUrl`, else the AWS chain",
    )
    endpoint_url: str | None = option(
        "endpointUrl",
        rules.endpoint,
        "Endpoint of SQS.",
        default_from=_own_endpoint,
        default_text="AWS's for the region, or `queueUrl`'s own host, if it is not AWS's standard one",
    )

    @property
    def queue_name(self) -> str:
        """The last part of the queue's URL."""
        return urlsplit(self.queue_url).path.rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The identity that signs calls to AWS. Travels to the executors; its repr has no secret.

    At most one of service credential, provider, profile and keys is given; else the AWS chain of each process is asked.
    A role is assumed with those credentials.
    """

    service_credential: str | None = option(
        "serviceCredential",
        rules.text,
        "On Databricks: name of a service credential of Unity Catalog whose credentials are used.",
        default=None,
    )
    credentials_provider: str | None = option(
        "credentialsProvider",
        rules.function_path,
        "A function of yours, as `module:function`, that returns credentials. It is called without arguments in each "
        "process of driver and executors.",
        default=None,
    )
    profile: str | None = option(
        "profile",
        rules.text,
        "Profile of the AWS configuration files, which driver and executors must have.",
        default=None,
    )
    access_key_id: str | None = option(
        "awsAccessKeyId",
        rules.secret,
        "Access key. Prefer a way that renews itself and leaves no key in the query.",
        default=None,
        needs="awsSecretAccessKey",
        repr=False,
    )
    secret_access_key: str | None = option(
        "awsSecretAccessKey",
        rules.secret,
        "Secret of `awsAccessKeyId`.",
        default=None,
        needs="awsAccessKeyId",
        repr=False,
    )
    session_token: str | None = option(
        "awsSessionToken",
        rules.secret,
        "Session token of `awsAccessKeyId`, if that is a temporary one. Nothing renews it.",
        default=None,
        needs="awsAccessKeyId",
        repr=False,
    )
    role_arn: str | None = option(
        "roleArn",
        rules.role_arn,
        "Role to assume for all calls to AWS: those to SQS, and those to S3 for the journal.",
        default=None,
    )
    role_session_name: str = option(
        "roleSessionName",
        rules.session_name,
        "Session name of the assumed role.",
        default="sqs-fifo-spark",
        needs="roleArn",
    )
    role_external_id: str | None = option(
        "roleExternalId",
        rules.external_id,
        "External id that the role's trust policy asks for.",
        default=None,
        needs="roleArn",
        repr=False,
    )
    sts_endpoint: str | None = option(
        "stsEndpoint",
        rules.endpoint,
        "Endpoint of STS, where the role is assumed.",
        default=None,
        default_text="AWS's for the region",
        needs="roleArn",
    )


AWS_CHAIN = Identity(**{each.name: each.metadata["option"].default for each in fields(Identity)})
"""The identity of a query that names none."""
_BASES = {
    "service_credential": "serviceCredential",
    "credentials_provider": "credentialsProvider",
    "profile": "profile",
    "access_key_id": "awsAccessKeyId",
}
"""The fields of an identity that exclude each other, and their options."""


def base_of(identity: Identity) -> str | None:
    """Return the name of the option that gives the credentials; None for the AWS chain."""
    return next((name for each, name in _BASES.items() if getattr(identity, each) is not None), None)


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions(Identity, QueueOptions):
    """The queue and the credentials, those for S3 included: the same on both sides."""

    journal_credentials: str = option(
        "journalCredentials",
        rules.one_of("queue", "chain"),
        "Whose credentials reach a journal on S3, or a sink's `badRecordsPath` there: `queue`, those of the calls to "
        "SQS, or `chain`, those that the AWS chain of each process gives.",
        default="queue",
    )
    journal_endpoint_url: str | None = option(
        "journalEndpointUrl",
        rules.endpoint,
        "Endpoint of S3 for the journal, and for a sink's `badRecordsPath`.",
        default=None,
        default_text="`AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL` of each process, else AWS's for the region",
    )

    @property
    def identity(self) -> Identity:
        """The identity that signs the calls to SQS."""
        return Identity(**{each.name: getattr(self, each.name) for each in fields(Identity)})

    @property
    def journal_identity(self) -> Identity:
        """The identity that signs the calls to S3."""
        return AWS_CHAIN if self.journal_credentials == "chain" else self.identity


@dataclass(frozen=True, kw_only=True)
class SourceOptions(ConnectionOptions):
    """A user's choices for a source, checked and complete."""

    journal_location: str = option(
        "journalLocation",
        rules.journal_location,
        "Where received messages are kept until they are committed: an absolute path that driver and executors "
        "share, or `s3://`, `gs://`, `abfss://`. One location for each source.",
    )
    visibility_timeout_s: int = option(
        "visibilityTimeoutSeconds",
        rules.whole,
        "How long SQS hides a received message from others unless the hold is renewed. When the driver dies, its "
        "messages are free after this time. Below 30 one call without an answer may cost the hold on others.",
        default=120,
        low=1,
        high=MAX_VISIBILITY_S,
    )
    heartbeat_s: float = option(
        "heartbeatSeconds",
        rules.seconds,
        "How long after a receive or a renewal a held message is renewed.",
        default_from=lambda chosen: chosen["visibility_timeout_s"] / 3,
        default_text="a third of visibilityTimeoutSeconds",
        low=0.1,
        high=MAX_VISIBILITY_S / 3,
    )
    wait_time_s: int = option(
        "waitTimeSeconds",
        rules.whole,
        "How long the driver's long poll waits on an empty queue.",
        default=MAX_WAIT_S,
        low=1,
        high=MAX_WAIT_S,
    )
    max_messages_per_trigger: int = option(
        "maxMessagesPerTrigger",
        rules.whole,
        "Maximum number of messages in one micro-batch. The default is lower with a short `heartbeatSeconds`, so that "
        "all of them can be renewed in time.",
        default_from=lambda chosen: min(20_000, int(1_600 * chosen["heartbeat_s"])),
        default_text="20000, at most 1600 for each second of heartbeatSeconds",
        low=1,
        high=MAX_IN_FLIGHT,
    )
    max_bytes_per_trigger: int = option(
        "maxBytesPerTrigger",
        rules.size,
        "Bytes of message bodies and attributes after which a micro-batch takes no further receive; at most `1g` "
        "for each partition; with `deleteAfter=journal`, at most `1g` in all.",
        default=64 << 20,
    )
    max_fetch_s: float = option(
        "maxFetchSeconds",
        rules.seconds,
        "Longest time that a partition goes on receiving. It begins anew with each receive that brings copies of "
        "committed messages, which are deleted, until another message has come.",
        default_from=lambda chosen: min(5.0, chosen["visibility_timeout_s"] / 4),
        default_text="5, at most a quarter of visibilityTimeoutSeconds",
        low=0.1,
        high=MAX_VISIBILITY_S / 2,
    )
    num_partitions: int = option(
        "numPartitions",
        rules.whole,
        "Maximum number of partitions of one micro-batch; a short queue gets fewer. With `deleteAfter=journal`, there "
        "are never more than the previous micro-batch had message groups, if it had any.",
        default=8,
        low=1,
        high=1000,
    )
    max_calls_per_s: int | None = option(
        "maxCallsPerSecond",
        rules.whole,
        "Maximum number of receives and deletes per second, of driver and tasks together, averaged over some seconds: "
        "for a queue that others need, too. Each task gets an equal share, used or not. Retries, renewals and releases "
        "come on top.",
        default=None,
        default_text="no limit",
        low=1,
        high=MAX_CALLS_PER_S,
    )
    link_bytes_per_s: int | None = option(
        "linkBytesPerSecond",
        rules.size,
        "Bytes per second that the network carries at least between SQS and all processes of the query together. It "
        "limits nothing: at the start, the log warns of settings that need more.",
        default=None,
        default_text="not known",
    )
    delete_after: str = option(
        "deleteAfter",
        rules.one_of("commit", "journal"),
        "When a message is deleted: once Spark has committed it (`commit`), or as soon as the journal has it "
        "(`journal`), which frees its group at once, and leaves the journal as the only copy.",
        default="commit",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        rules.boolean,
        "Whether to stop when the journal no longer holds what the checkpoint refers to.",
        default=True,
    )


@dataclass(frozen=True, kw_only=True)
class SendOptions:
    """The messages for the queue, and the memory of sent ones."""

    message_group_id: str | None = option(
        "messageGroupId",
        rules.fifo_id,
        "Message group of all rows.",
        default=None,
        default_text="the column `messageGroupId`",
    )
    deduplication: str | None = option(
        "deduplication",
        rules.one_of("column", "content"),
        "By what SQS recognises a message that is sent again: `column`, its `messageDeduplicationId`, or `content`, "
        "its body (the queue must have `ContentBasedDeduplication`).",
        default=None,
        default_text="`column`, if there is a column `messageDeduplicationId`",
    )
    journal_location: str | None = option(
        "journalLocation",
        rules.journal_location,
        "Where the sink records what it has sent, so that a micro-batch that runs again sends only what is missing, "
        "however late: an absolute path that driver and executors share, or `s3://`, `gs://`, `abfss://`. Without it, "
        "SQS recognises what is sent again within 5 minutes, and what is sent again later is sent twice.",
        default=None,
    )
    order: str = option(
        "order",
        rules.one_of("strict", "batch"),
        "`strict`: a group's next row is sent only after SQS has confirmed the one before. `batch`: up to ten rows of "
        "a group go in one call, which is much faster where few groups have many rows; they arrive in order unless "
        "SQS fails one row of a call and accepts a later one.",
        default="strict",
    )
    on_disorder: str = option(
        "onDisorder",
        rules.one_of("log", "fail"),
        "What to do when a group stands in several partitions of a write, so that its rows are in no order, or when, "
        "with `order=batch`, SQS accepts a row before an earlier one of its group. `log`: count and log that, and go "
        "on. `fail`: fail the write, and each repeat of it, until you set `log`, or until each group stands in one "
        "partition; this needs `journalLocation`, and for a batch write outside of `foreachBatch` `txnAppId`, too.",
        default="log",
    )
    max_unrecorded_rows: int = option(
        "maxUnrecordedRows",
        rules.whole,
        "With a journal: how many rows of a group may be sent that the journal has not recorded yet, 1 to 80. If a "
        "task dies and its rows are sent again after more than 5 minutes, up to this many rows of each group stand in "
        "the queue twice.",
        default_from=lambda chosen: 1 if chosen["order"] == "strict" else 10,
        default_text="1, or 10 with `order=batch`",
        needs="journalLocation",
        low=1,
        high=MAX_UNRECORDED_ROWS,
    )
    bad_records_path: str | None = option(
        "badRecordsPath",
        rules.journal_location,
        "Where refused rows are kept, those that SQS does not take, each as a JSON line in an object of its own, so "
        "that the write goes on without them: a path or URL such as `journalLocation` takes, reached in the same way. "
        "Their bodies stand there.",
        default=None,
        default_text="none: a refused row fails its task",
    )
    bad_records_queue_url: str | None = option(
        "badRecordsQueueUrl",
        rules.queue_url,
        "In place of `badRecordsPath`: URL of a FIFO queue to which refused rows are sent, each as a JSON line, in "
        "their own groups.",
        default=None,
    )
    bad_records_group: str = option(
        "badRecordsGroup",
        rules.one_of("continue", "hold"),
        "`hold`: what follows a refused row in its group, in the same micro-batch, is refused, too. `continue`: it is "
        "sent. With `order=batch` only `continue` is possible.",
        default_from=lambda chosen: "hold" if chosen["order"] == "strict" else "continue",
        default_text="`hold`, or `continue` with `order=batch`",
    )
    bad_records_max: int = option(
        "badRecordsMax",
        rules.whole,
        "How many rows one task of a micro-batch may refuse, those held with their group included; one more fails it.",
        default=1_000,
        low=1,
        high=1_000_000,
    )
    txn_app_id: str | None = option(
        "txnAppId",
        rules.txn_app_id,
        "Batch writes only, together with `txnVersion`: a stable name that you choose for the writer. A write "
        "repeated with the same two values sends only what the journal does not have.",
        default=None,
        default_text="the query, in a micro-batch",
    )
    txn_version: int | None = option(
        "txnVersion",
        rules.whole,
        "Batch writes only, together with `txnAppId`: a number that rises with each write; in `foreachBatch`, the "
        "batch id.",
        default=None,
        default_text="the batch id, in a micro-batch",
        low=0,
        high=MAX_TXN_VERSION,
    )

    max_calls_per_s: int | None = option(
        "maxCallsPerSecond",
        rules.whole,
        "Maximum number of calls per second that send rows, of all tasks of a write together, averaged over some "
        "seconds: for a queue that others need, too. Each task gets an equal share, used or not. Retries come on top. "
        "Spark's configuration must say how many tasks run at once: see [Pace](sink.md#pace).",
        default=None,
        default_text="no limit",
        low=1,
        high=MAX_CALLS_PER_S,
    )


@dataclass(frozen=True, kw_only=True)
class SinkOptions(ConnectionOptions, SendOptions):
    """A user's choices for a sink, checked as far as options alone can be. Its table begins with SendOptions."""


SOURCE = OptionTable("source", SourceOptions, added_by_spark=("path",))
SINK = OptionTable("sink", SinkOptions, added_by_spark=("checkpointLocation", "queryName"))


def parse_source_options(given: Mapping[str, str], *, beside_missing: str = "") -> SourceOptions:
    """Return the options of a source, complete with defaults; keys are compared without regard to case.

    `beside_missing` is the text to add where a required option is missing. Raises OptionError, or NotFifoQueueError for
    the URL of a standard queue, with one line that says the remedy.
    """
    options: SourceOptions = SOURCE.parse(given, SINK, beside_missing=beside_missing)
    _require_one_region(options)
    _require_one_base(options)
    _require_s3(options, journalLocation=options.journal_location)
    _require_share(
        SOURCE["heartbeatSeconds"],
        options.heartbeat_s,
        options.visibility_timeout_s,
        3,
        "a third",
        "so that two failed renewals can be retried before SQS hands the messages to somebody else",
    )
    _require_share(
        SOURCE["maxFetchSeconds"],
        options.max_fetch_s,
        options.visibility_timeout_s,
        2,
        "half",
        "so that what was received can be written to the journal while it is still held",
    )
    if options.delete_after == "journal" and options.max_bytes_per_trigger > MAX_PARTITION_BYTES:
        raise OptionError(
            f"option 'maxBytesPerTrigger' is '{options.max_bytes_per_trigger}'; with deleteAfter=journal it must be "
            f"at most {MAX_PARTITION_BYTES} (1g), so that one partition can take over what a query has left that died: "
            "all of it may be of one group. Lower it."
        )
    return options


def parse_sink_options(given: Mapping[str, str], *, beside_missing: str = "") -> SinkOptions:
    """Return the options of a sink; keys are compared without regard to case. Raises as `parse_source_options`."""
    options: SinkOptions = SINK.parse(given, SOURCE, beside_missing=beside_missing)
    _require_one_region(options)
    refused = bad_records_queue(options)
    if refused is not None:
        _require_one_region(refused, "badRecordsQueueUrl")
    _require_one_base(options)
    _require_s3(options, journalLocation=options.journal_location, badRecordsPath=options.bad_records_path)
    if (options.txn_app_id is None) != (options.txn_version is None):
        one, other = ("txnAppId", "txnVersion") if options.txn_version is None else ("txnVersion", "txnAppId")
        raise OptionError(
            f"option '{one}' is given without '{other}'; together they say who writes what. Give both or neither."
        )
    if options.txn_app_id is not None and options.journal_location is None:
        raise OptionError(
            "options 'txnAppId' and 'txnVersion' are given without 'journalLocation', which knows what was sent for "
            "them, so they would have no effect. Give journalLocation, or leave them out."
        )
    if options.on_disorder == "fail" and options.journal_location is None:
        raise OptionError(
            "option 'onDisorder' is 'fail', and there is no 'journalLocation'. Without a journal, what runs again "
            "after it has failed does not know of the disorder, and may send its rows twice. Give journalLocation, or "
            "set onDisorder to log."
        )
    _require_bad_records(options, {key.lower() for key in given})
    return options


def _require_one_region(options: QueueOptions, queue_url: str = "queueUrl") -> None:
    """Require one region of hosts that are called as SQS's own: any other may sign for another than its name says."""
    in_url = rules.region_of(options.queue_url)
    for name, url in ((queue_url, options.queue_url), ("endpointUrl", options.endpoint_url or "")):
        region = rules.region_of(url) if rules.is_sqs(url) else None
        if region not in (None, options.region):
            other = queue_url if in_url == options.region else "region"
            raise OptionError(
                f"options '{name}' and '{other}' name two regions, {region!r} and {options.region!r}; a queue is "
                "called in its own only, and calls are signed for it. Correct one of them; 'region' may be left out "
                "where a URL names it."
            )


def _require_bad_records(options: SinkOptions, given: set[str]) -> None:
    path, queue = options.bad_records_path, options.bad_records_queue_url
    if path is not None and queue is not None:
        raise OptionError(
            "options 'badRecordsPath' and 'badRecordsQueueUrl' are both given, and a refused row goes to one place. "
            "Give one of them."
        )
    for name in ("badRecordsGroup", "badRecordsMax"):
        if path is queue is None and name.lower() in given:
            raise OptionError(
                f"option '{name}' is given without 'badRecordsPath' or 'badRecordsQueueUrl', so it would have no "
                f"effect. Give one of these, or leave {name} out."
            )
    if options.bad_records_group == "hold" and options.order == "batch":
        raise OptionError(
            "option 'badRecordsGroup' is 'hold', and 'order' is 'batch', which may send a row in one call with a "
            "refused one before it. Set badRecordsGroup to continue, or order to strict."
        )
    if queue == options.queue_url:
        raise bad_records_in_queue()
    journal = options.journal_location
    if path is not None and journal is not None and rules.overlap(path, journal):
        raise OptionError(
            f"options 'badRecordsPath' ({path!r}) and 'journalLocation' ({journal!r}) are the same place, or one is "
            "inside the other, so that what stands in one would be taken for the other's. Give each a folder of its "
            "own."
        )


def bad_records_in_queue() -> OptionError:
    """Return the error for a `badRecordsQueueUrl` that is the queue itself, in whatever spelling."""
    return OptionError(
        "option 'badRecordsQueueUrl' is the queue that is written to, whose consumers would take refused rows for "
        "messages. Give another FIFO queue, or badRecordsPath."
    )


def bad_records_queue(options: SinkOptions) -> SinkOptions | None:
    """Return the options of the queue for refused rows: the same, but for those that its own URL gives."""
    url = options.bad_records_queue_url
    if url is None:
        return None
    region, endpoint = rules.region_of(url) or options.region, options.endpoint_url
    if endpoint == rules.endpoint_of(options.queue_url):
        endpoint = rules.endpoint_of(url)
    return replace(options, queue_url=url, region=region, endpoint_url=endpoint)


def _require_one_base(identity: Identity) -> None:
    given = [name for each, name in _BASES.items() if getattr(identity, each) is not None]
    if len(given) > 1:
        raise OptionError(
            f"options '{given[0]}' and '{given[1]}' are both given, and each says whose credentials are used. Give one "
            "of them."
        )


def _require_s3(options: ConnectionOptions, **locations: str | None) -> None:
    """Require options for S3 only with a location there."""
    given = {name: location for name, location in locations.items() if location is not None}
    if any(location.startswith(rules.S3_PREFIXES) for location in given.values()):
        return
    why = ", and ".join(f"'{name}' is {location!r}, which is not on S3" for name, location in given.items())
    why = why or "neither 'journalLocation' nor 'badRecordsPath' is given"
    for name, is_given in (
        ("journalEndpointUrl", options.journal_endpoint_url is not None),
        ("journalCredentials", options.journal_credentials == "chain"),
    ):
        if is_given:
            raise OptionError(f"option '{name}' is given, and {why}, so it would have no effect. Leave {name} out.")


def _require_share(option: Option, value: float, visibility: int, parts: int, share: str, reason: str) -> None:
    if value > visibility / parts:
        needed = -(-value * parts // 1)
        remedy = f"Lower it, or raise visibilityTimeoutSeconds to {needed:g}."
        raise OptionError(
            f"option '{option.name}' is '{value:g}'; it must be at most {visibility / parts:g}, {share} of "
            f"'visibilityTimeoutSeconds' ({visibility}), {reason}. {remedy}"
        )
