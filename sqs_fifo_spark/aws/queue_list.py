"""The queues of a source that reads several: those of a list, or all whose names begin so, as SQS knows them now."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from sqs_fifo_spark.aws.calls import CALL_BUDGET_S, QueueCalls
from sqs_fifo_spark.aws.codes import LIST
from sqs_fifo_spark.aws.named import NamedQueue
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import OptionError
from sqs_fifo_spark.option_rules import is_name
from sqs_fifo_spark.options import SourceOptions
from sqs_fifo_spark.options.queues import MOST_QUEUES, require_different

_PAGE = 1_000
"""Queues in one answer, at most. Without a number SQS gives no more than these, and no token for the rest."""
_AT_ONCE = 16
"""Names for whose URLs SQS is asked at once."""


class QueueList(QueueCalls):
    """The FIFO queues of an account and a region whose names begin with `queueNamePrefix`."""

    def __init__(self, options: SourceOptions, clock: Clock) -> None:
        super().__init__(options, clock)
        self._queue = {"QueueNamePrefix": options.queue_name_prefix or ""}
        self._url = options.queue_name  # for its errors: 'orders-*'

    def urls(self, *, budget_s: float = CALL_BUDGET_S) -> list[str]:
        """Return their URLs, sorted. One call for each thousand queues; each is tried again for `budget_s`.

        Raises the errors of `aws.calls`.
        """
        found = list[str]()
        more: dict[str, str] = {}
        while True:
            answer = self._retrying(LIST, budget_s, MaxResults=_PAGE, **more)
            found += [url for url in answer.get("QueueUrls") or () if url.endswith(".fifo")]
            token = answer.get("NextToken")
            if not token:
                return sorted(found)
            more = {"NextToken": token}


def require_readable(options: SourceOptions, urls: Sequence[str]) -> None:
    """Raise OptionError if these are more queues than a source can read, or if two of them are one."""
    if len(urls) > MOST_QUEUES:
        raise OptionError(
            f"option 'queueNamePrefix' is {options.queue_name_prefix!r}, and the names of {len(urls)} FIFO queues "
            f"begin so; a source reads at most {MOST_QUEUES}. Give longer prefixes to several queries."
        )
    is_list = options.queue_name_prefix is None
    require_different(urls, "option 'queueUrls'" if is_list else f"SQS's list of {options.queue_name!r}")


def queue_urls(options: SourceOptions, clock: Clock, *, budget_s: float = CALL_BUDGET_S) -> list[str]:
    """Return the URLs of a source's queues as they are now: a list's in its order, a prefix's sorted, perhaps none.

    Runs on the driver. Makes one call for each queue that is given by its name, or, for a prefix, one for each thousand
    queues; each is tried again for `budget_s`. Raises the errors of `aws.calls`, QueueNotFoundError for a name that no
    queue has, and OptionError for too many queues, or for a name and a URL that are one queue.
    """

    def url_of(queue: str) -> str:
        if not is_name(queue):
            return queue
        return NamedQueue(replace(options, queue_url=queue), clock).url(budget_s=budget_s)

    if options.queue_name_prefix is not None:
        urls = QueueList(options, clock).urls(budget_s=budget_s)
    elif any(map(is_name, options.queue_urls)):
        with ThreadPoolExecutor(_AT_ONCE, "queue-name") as pool:
            urls = list(pool.map(url_of, options.queue_urls))
    else:
        urls = list(options.queue_urls)
    require_readable(options, urls)
    return urls
