"""A queue that is given by its name: SQS is asked for its URL, and all that follows has that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sqs_fifo_spark.aws.calls import CALL_BUDGET_S, QueueCalls
from sqs_fifo_spark.clock import SYSTEM_CLOCK, Clock
from sqs_fifo_spark.option_rules import is_name
from sqs_fifo_spark.options import ConnectionOptions

OptionsT = TypeVar("OptionsT", bound=ConnectionOptions)
_NAMED_BY = ("queueurl", "queueowneraccountid")


class NamedQueue(QueueCalls):
    """A queue of which only the name is known."""

    def __init__(self, options: ConnectionOptions, clock: Clock) -> None:
        super().__init__(options, clock)
        owner = options.queue_owner_account_id
        self._queue = {"QueueName": self._url, **({"QueueOwnerAWSAccountId": owner} if owner else {})}

    def url(self, *, budget_s: float = CALL_BUDGET_S) -> str:
        """Return the queue's URL. Raises as `QueueCalls.describe` does."""
        return str(self._retrying("get_queue_url", budget_s)["QueueUrl"])


def with_url(parse: Callable[..., OptionsT], given: Mapping[str, str], **more: Any) -> OptionsT:
    """Return `parse(given, **more)`, in which a queue that is given by its name has the URL that SQS says.

    Runs on the driver. Makes one call, GetQueueUrl, if it is given so; else none. Raises as `parse` does, and as
    `QueueCalls.describe`: QueueNotFoundError if there is no such queue in the region and the account.
    """
    options = parse(given, **more)
    if not is_name(options.queue_url):
        return options
    others = {key: value for key, value in given.items() if key.lower() not in _NAMED_BY}
    return parse({**others, "queueUrl": NamedQueue(options, SYSTEM_CLOCK).url()}, **more)
