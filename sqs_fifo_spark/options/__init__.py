"""The options of source and sink: each is declared once, as a field of a frozen dataclass.

The parser, its errors and the tables of `docs/options.md` follow from these fields. No call is made here, so all of it
is checked where the user names the format: a source's at `.load()`, a sink's before its first task. Durations end in
`_s` and are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqs_fifo_spark.errors import NotFifoQueueError, OptionError
from sqs_fifo_spark.options.connection import AWS_CHAIN, ConnectionOptions, Identity, base_of
from sqs_fifo_spark.options.queues import queue_key, with_journal_of_one, with_one_queue
from sqs_fifo_spark.options.sink import (
    SinkOptions,
    bad_records_in_queue,
    bad_records_queue,
    queue_of_row,
    require_sink,
)
from sqs_fifo_spark.options.source import MAX_PARTITION_BYTES, MAX_VISIBILITY_S, SourceOptions, require_source
from sqs_fifo_spark.options.table import OptionTable

__all__ = [
    "AWS_CHAIN",
    "MAX_PARTITION_BYTES",
    "MAX_VISIBILITY_S",
    "SINK",
    "SOURCE",
    "ConnectionOptions",
    "Identity",
    "SinkOptions",
    "SourceOptions",
    "bad_records_in_queue",
    "bad_records_queue",
    "base_of",
    "parse_queue",
    "parse_sink_options",
    "parse_source_options",
    "queue_key",
    "queue_of_row",
]

SOURCE = OptionTable("source", SourceOptions)
SINK = OptionTable("sink", SinkOptions, added_by_spark=("checkpointLocation", "queryName"))


def parse_source_options(given: Mapping[str, str], *, beside_missing: str = "") -> SourceOptions:
    """Return the options of a source, complete with defaults; keys are compared without regard to case.

    `beside_missing` is the text to add where a required option is missing. Raises OptionError, or NotFifoQueueError for
    the URL of a standard queue, with one line that says the remedy.
    """
    options: SourceOptions = SOURCE.parse(given, SINK, beside_missing=beside_missing)
    require_source(options)
    for each in options.queue_urls:
        _parse_one(with_one_queue(given, each), each)
    return options


def parse_queue(given: Mapping[str, str], url: str) -> SourceOptions:
    """Return the options of one queue of a source that reads several, with a journal of its own.

    `given` are the options of the source. Raises as `parse_source_options`, and names the queue.
    """
    return _parse_one(with_journal_of_one(given, url), url)


def _parse_one(given: Mapping[str, str], queue: str) -> SourceOptions:
    try:
        return parse_source_options(given)
    except (OptionError, NotFifoQueueError) as error:
        raise type(error)(f"for the queue {queue!r}: {error}") from None


def parse_sink_options(given: Mapping[str, str], *, beside_missing: str = "") -> SinkOptions:
    """Return the options of a sink; keys are compared without regard to case. Raises as `parse_source_options`."""
    options: SinkOptions = SINK.parse(given, SOURCE, beside_missing=beside_missing)
    require_sink(options)
    return options
