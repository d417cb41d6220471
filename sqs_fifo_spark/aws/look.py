"""One look at the queue, or at several, before a query starts, so that `.load()` names a wrong one."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping

from sqs_fifo_spark.aws.calls import QueueCalls
from sqs_fifo_spark.aws.named import NamedQueue
from sqs_fifo_spark.aws.queue_list import QueueList, require_readable
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import AccessDeniedError, OptionError, TransientQueueError
from sqs_fifo_spark.option_rules import is_name
from sqs_fifo_spark.options import ConnectionOptions, SourceOptions, parse_source_options
from sqs_fifo_spark.options.queues import with_one_queue

_log = logging.getLogger(__name__)
_MOST_LOOKS = 20
"""Of a list of queues, so many are looked at, one after another."""


def look_at_queues(options: SourceOptions, given: Mapping[str, str]) -> None:
    """Raise what SQS says for good of the queue or the queues of a source, whose `options` were made of `given`.

    Runs on the driver. Of a list, the first queues are looked at, up to one that does not answer. For a prefix the
    names are asked for, and that there are none is only logged.
    """
    if options.queue_name_prefix is not None:
        _look_at_list(options)
    elif options.queue_urls:
        each = (parse_source_options(with_one_queue(given, queue)) for queue in options.queue_urls[:_MOST_LOOKS])
        all(map(look_at_queue, each))
    else:
        look_at_queue(options)


@functools.lru_cache(maxsize=64)
def look_at_queue(options: ConnectionOptions) -> bool:
    """Raise what SQS says of the queue for good: not there, no FIFO queue, in another region, credentials refused.

    Runs on the driver. Makes one call, once in a process for the same options, unless that raises: GetQueueUrl for a
    name, else GetQueueAttributes. It is not tried again. What may be otherwise when the query starts is only logged,
    and False returned: no answer, throttling; no credentials, no region and no function that gives credentials, which
    the process that starts it may have. Errors are those of `aws.calls`.
    """
    if is_name(options.queue_url):
        return _is_answered(lambda: NamedQueue(options, SYSTEM_CLOCK).url(budget_s=0.0))
    return _is_answered(lambda: QueueCalls(options, SYSTEM_CLOCK).describe(budget_s=0.0))


@functools.lru_cache(maxsize=64)
def _look_at_list(options: SourceOptions) -> None:
    found = list[str]()
    if not _is_answered(lambda: found.extend(QueueList(options, SYSTEM_CLOCK).urls(budget_s=0.0))):
        return
    require_readable(options, found)
    if not found:
        _log.warning(
            "No FIFO queue has a name that begins with '%s', in this region and account. The query asks again every "
            "%d s.",
            options.queue_name_prefix,
            options.queue_discovery_s,
        )


def _is_answered(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except (AccessDeniedError, OptionError, TransientQueueError) as error:
        if isinstance(error, AccessDeniedError) and not error.has_no_credentials:
            raise
        _log.warning("The queue was not looked at: %s The query asks again when it starts.", error)
        return False
    return True
