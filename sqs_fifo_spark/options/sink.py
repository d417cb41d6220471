"""The options of a sink."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from sqs_fifo_spark import option_rules as rules
from sqs_fifo_spark.errors import OptionError
from sqs_fifo_spark.option_rules import option
from sqs_fifo_spark.options.connection import (
    ConnectionOptions,
    require_one,
    require_one_account,
    require_one_base,
    require_one_region,
    require_s3,
)
from sqs_fifo_spark.options.table import options_of

_MAX_UNRECORDED_ROWS = 80
"""All that the calls of one task have under way."""
_MAX_CALLS_PER_S = 1_000_000
"""Far above one queue's answers."""
_MAX_MESSAGE_BYTES = 1 << 20
"""The most that any queue takes."""


@dataclass(frozen=True, kw_only=True)
class SendOptions:
    """The messages for the queue, and the memory of sent ones."""

    message_group_id: str | None = option(
        rules.fifo_id,
        "Message group of all rows.",
        default_text="the column `messageGroupId`",
    )
    deduplication: str | None = option(
        rules.one_of("column", "content"),
        "By what SQS recognises a message that is sent again: `column`, its `messageDeduplicationId`, or `content`, "
        "its body (the queue must have `ContentBasedDeduplication`).",
        default_text="`column`, if there is a column `messageDeduplicationId`",
    )
    journal_location: str | None = option(
        rules.journal_location,
        "Where the sink records what it has sent, so that a micro-batch that runs again sends only what is missing, "
        "however late: an absolute path that driver and executors share, or `s3://`, `gs://`, `abfss://`. Without it, "
        "SQS recognises what is sent again within 5 minutes, and what is sent again later is sent twice.",
    )
    order: str = option(
        rules.one_of("strict", "batch"),
        "`strict`: a group's next row is sent only after SQS has confirmed the one before. `batch`: up to ten rows of "
        "a group go in one call, which is much faster where few groups have many rows; they arrive in order unless "
        "SQS fails one row of a call and accepts a later one.",
        default="strict",
    )
    on_disorder: str = option(
        rules.one_of("log", "fail"),
        "What to do when a group stands in several partitions of a write, so that its rows are in no order, or when, "
        "with `order=batch`, SQS accepts a row before an earlier one of its group. `log`: count and log that, and go "
        "on. `fail`: fail the write, and each repeat of it, until you set `log`, or until each group stands in one "
        "partition; this needs `journalLocation`, and for a batch write outside of `foreachBatch` `txnAppId`, too.",
        default="log",
    )
    max_unrecorded_rows: int = option(
        rules.whole,
        "With a journal: how many rows of a group may be sent that the journal has not recorded yet, 1 to 80. If a "
        "task dies and its rows are sent again after more than 5 minutes, up to this many rows of each group stand in "
        "the queue twice.",
        default_from=lambda chosen: 1 if chosen["order"] == "strict" else 10,
        default_text="1, or 10 with `order=batch`",
        needs=("journalLocation",),
        bounds=(1, _MAX_UNRECORDED_ROWS),
    )
    bad_records_path: str | None = option(
        rules.journal_location,
        "Where refused rows are kept, those that SQS does not take, each as a JSON line in an object of its own, so "
        "that the write goes on without them: a path or URL such as `journalLocation` takes, reached in the same way. "
        "Their bodies stand there.",
        default_text="none: a refused row fails its task",
    )
    bad_records_queue_url: str | None = option(
        rules.queue_url,
        "In place of `badRecordsPath`: URL of a FIFO queue to which refused rows are sent, each as a JSON line, in "
        "their own groups.",
    )
    bad_records_group: str = option(
        rules.one_of("continue", "hold"),
        "`hold`: what follows a refused row in its group, in the same micro-batch, is refused, too. `continue`: it is "
        "sent. With `order=batch` only `continue` is possible.",
        default_from=lambda chosen: "hold" if chosen["order"] == "strict" else "continue",
        default_text="`hold`, or `continue` with `order=batch`",
        needs=("badRecordsPath", "badRecordsQueueUrl"),
    )
    bad_records_max: int = option(
        rules.whole,
        "How many rows one task of a micro-batch may refuse, those held with their group included; one more fails it.",
        default=1_000,
        needs=("badRecordsPath", "badRecordsQueueUrl"),
        bounds=(1, 1_000_000),
    )
    payload_location: str | None = option(
        rules.payload_location,
        "Where bodies that are too large for the queue go, as `s3://bucket/prefix`: each in an object of its own, to "
        "which its message points as AWS's extended clients have it. See [Large bodies](bodies.md#large-bodies).",
        default_text="none: a row that is too large is refused",
    )
    payload_threshold_bytes: int | None = option(
        rules.size,
        "Bytes of body and attributes above which a row's body goes to `payloadLocation`, at most `1m`. What is more "
        "than the queue takes goes there in any case.",
        default_text="the queue's `MaximumMessageSize`",
        needs=("payloadLocation",),
        bounds=(1, _MAX_MESSAGE_BYTES),
    )
    txn_app_id: str | None = option(
        rules.txn_app_id,
        "Batch writes only, together with `txnVersion`: a stable name that you choose for the writer. A write "
        "repeated with the same two values sends only what the journal does not have.",
        default_text="the query, in a micro-batch",
    )
    txn_version: int | None = option(
        rules.whole,
        "Batch writes only, together with `txnAppId`: a number that rises with each write; in `foreachBatch`, the "
        "batch id.",
        default_text="the batch id, in a micro-batch",
        bounds=(0, 2**63 - 1),
    )

    max_calls_per_s: int | None = option(
        rules.whole,
        "Maximum number of calls per second that send rows, of all tasks of a write together, averaged over some "
        "seconds: for a queue that others need, too. Each task gets an equal share, used or not. Retries come on top. "
        "Spark's configuration must say how many tasks run at once: see [Pace](sink.md#pace).",
        default_text="no limit",
        bounds=(1, _MAX_CALLS_PER_S),
    )


@dataclass(frozen=True, kw_only=True)
class SinkOptions(ConnectionOptions, SendOptions):
    """A user's choices for a sink, checked as far as options alone can be. Its table begins with SendOptions."""


def require_sink(options: SinkOptions) -> None:
    """Raise OptionError for options that do not go together."""
    require_one_account(options)
    require_one_region(options)
    refused = bad_records_queue(options)
    if refused is not None:
        require_one_region(refused, "badRecordsQueueUrl")
    require_one_base(options)
    require_s3(
        options,
        journalLocation=options.journal_location,
        badRecordsPath=options.bad_records_path,
        payloadLocation=options.payload_location,
    )
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
            "option 'onDisorder' is 'fail', and there is no 'journalLocation'. Without a journal, a write that "
            "runs again after this failure does not know of the disorder, and may send its rows twice. Give "
            "journalLocation, or set onDisorder to log."
        )
    _require_bad_records(options)


def _require_bad_records(options: SinkOptions) -> None:
    path, queue = options.bad_records_path, options.bad_records_queue_url
    ways = {"badRecordsPath": path, "badRecordsQueueUrl": queue}
    require_one([name for name, way in ways.items() if way is not None], "a refused row goes to one place")
    if options.bad_records_group == "hold" and options.order == "batch":
        raise OptionError(
            "option 'badRecordsGroup' is 'hold', and 'order' is 'batch', which may send a row in one call with a "
            "refused one before it. Set badRecordsGroup to continue, or order to strict."
        )
    if queue == options.queue_url:
        raise bad_records_in_queue()
    places = {
        "payloadLocation": options.payload_location,
        "badRecordsPath": path,
        "journalLocation": options.journal_location,
    }
    for (name, place), (other, another) in itertools.combinations(places.items(), 2):
        if place is not None and another is not None and rules.overlap(place, another):
            raise OptionError(
                f"options '{name}' ({place!r}) and '{other}' ({another!r}) are the same place, or one is inside the "
                "other, so that objects of one would be taken for the other's. Give each a folder of its own."
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


def queue_of_row(options: SinkOptions, given: str) -> SinkOptions:
    """Return the options of the queue that a row names: the same, but for those that its URL or ARN gives.

    A name alone is that of a queue beside the option's. Raises OptionError or NotFifoQueueError. Rows are data, so no
    host that only they name is ever called: the credentials would go there.
    """
    declared = options_of(SinkOptions)["queue_url"]
    url = rules.queue(declared, given)
    if rules.is_name(url):
        url = f"{options.queue_url.rstrip('/').rpartition('/')[0]}/{url}"
    if options.endpoint_url is None and rules.endpoint_of(url) is not None:
        raise rules.refuse(declared, given, "its host is not AWS's standard one, and no row makes the sink call it.")
    region, called_in = rules.region_of(url) or options.region, rules.region_of(options.endpoint_url or "")
    if called_in not in (None, region):
        raise rules.refuse(declared, given, f"it is in another region than {called_in}, whose endpoint is called.")
    return replace(options, queue_url=url, region=region)
