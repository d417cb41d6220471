"""One look at the queue before a query starts, so that `.load()` names a wrong one."""

from __future__ import annotations

import functools
import logging

from sqs_fifo_spark.aws.calls import QueueCalls
from sqs_fifo_spark.aws.named import NamedQueue
from sqs_fifo_spark.clock import SYSTEM_CLOCK, Clock
from sqs_fifo_spark.errors import AccessDeniedError, OptionError, TransientQueueError
from sqs_fifo_spark.option_rules import is_name
from sqs_fifo_spark.options import ConnectionOptions

_log = logging.getLogger(__name__)


@functools.lru_cache(maxsize=64)
def look_at_queue(options: ConnectionOptions, clock: Clock = SYSTEM_CLOCK) -> None:
    """Raise what SQS says of the queue for good: not there, no FIFO queue, in another region, credentials refused.

    Runs on the driver. Makes one call, once in a process for the same options, unless that raises: GetQueueUrl for a
    name, else GetQueueAttributes. It is not tried again. What may be otherwise when the query starts is only logged: no
    answer, throttling; no credentials, no region and no function that gives credentials, which the process that starts
    it may have. Errors are those of `aws.calls`.
    """
    try:
        if is_name(options.queue_url):
            NamedQueue(options, clock).url(budget_s=0.0)
        else:
            QueueCalls(options, clock).describe(budget_s=0.0)
    except (AccessDeniedError, OptionError, TransientQueueError) as error:
        if isinstance(error, AccessDeniedError) and not error.has_no_credentials:
            raise
        _log.warning("The queue was not looked at: %s The query asks again when it starts.", error)
