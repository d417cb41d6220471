"""The queues that a task's rows name: each is looked at once, when the first row names it.

A queue that is wrong refuses its rows, as if each of them were wrong: its name is none of a FIFO queue, it does not
exist, the credentials lack a permission on it, it has no ContentBasedDeduplication where that is needed, or refused
rows go there. If it only does not answer, or AWS does not take the credentials at all, the task fails.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from sqs_fifo_spark import option_rules as rules
from sqs_fifo_spark.aws.calls import MAX_CALL_BYTES
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import AccessDeniedError, NotFifoQueueError, OptionError, QueueNotFoundError
from sqs_fifo_spark.options import SinkOptions, bad_records_queue, queue_of_row
from sqs_fifo_spark.sink.outgoing import QUEUE_COLUMN, RowForm
from sqs_fifo_spark.sink.sink_queue import SinkQueue

_LONGEST = 1_024
"""Characters; a longer value is most likely something else than a queue, and is not shown."""


class RowQueues:
    """The queues of one task. One thread asks for forms; others may read `others` meanwhile."""

    def __init__(self, options: SinkOptions, arn: str, form: RowForm, clock: Clock) -> None:
        """`options`, `arn` and `form` are those of the option's queue, to which rows go that name none."""
        self.others: dict[str, SinkQueue] = {}
        """Those that are not the option's, by their keys; there before any of their rows."""
        self._options = options
        self._region = options.region or arn.split(":")[3]
        self._clock = clock
        self._forms: dict[Any, RowForm] = {None: form}  # by the values of the column
        self._forms_of_queues = {self._key(options): form, _key_of(arn): form}
        refused = bad_records_queue(options)
        self._key_of_refused = None if refused is None else self._key(refused)

    def __contains__(self, given: Any) -> bool:
        """Return whether the form of rows with this value is known without a call."""
        return given in self._forms

    def form(self, given: Any) -> RowForm:
        """Return the form of rows with this value of QUEUE_COLUMN.

        Raises TransientQueueError if the queue does not answer, and the errors of `QueueCalls.describe` that say
        nothing of the queue.
        """
        form = self._forms.get(given)
        if form is None:
            form = self._forms[given] = replace(self._form(given), queue_url=given)
        return form

    def _form(self, given: Any) -> RowForm:
        if not isinstance(given, str):
            return self._no_queue(given, f"its {QUEUE_COLUMN} is not UTF-8")
        if len(given) > _LONGEST:
            return self._no_queue(given, f"its {QUEUE_COLUMN} has {len(given):,} characters")
        try:
            options = queue_of_row(self._options, given)
        except (OptionError, NotFifoQueueError) as error:
            why = str(error).replace(f"option '{QUEUE_COLUMN}'", f"its {QUEUE_COLUMN}", 1)
            return self._no_queue(given, why.rstrip("."))
        key = self._key(options)
        found = self._forms_of_queues.get(key)
        if found is None:
            found = self._looked_at(key, options)
            if not found.refusal:  # another spelling of it may be right
                self._forms_of_queues[key] = found
        return found

    def _looked_at(self, key: str, options: SinkOptions) -> RowForm:
        queue, url = SinkQueue(options, self._clock), options.queue_url
        if key == self._key_of_refused:
            return self._refused(key, f"its {QUEUE_COLUMN}, '{url}', is the queue to which refused rows go")
        try:
            facts = queue.describe()
        except (QueueNotFoundError, NotFifoQueueError, AccessDeniedError) as error:
            if isinstance(error, AccessDeniedError) and not error.is_of_queue:
                raise
            return self._refused(key, f"its {QUEUE_COLUMN} is wrong: {error}".rstrip("."))
        key = _key_of(facts.arn)  # however it is spelled, it is one
        if key in self._forms_of_queues:
            return self._forms_of_queues[key]
        if key == self._key_of_refused:
            return self._refused(key, f"its {QUEUE_COLUMN}, '{url}', is the queue to which refused rows go")
        form = self._forms[None]
        if not form.by_column and not facts.has_content_based_deduplication:
            return self._refused(
                key, f"its queue '{url}' has no ContentBasedDeduplication, and option 'deduplication' is 'content'"
            )
        self.others[key] = queue
        most, payloads = min(facts.max_message_bytes, MAX_CALL_BYTES), form.payloads
        if payloads is not None:
            threshold = self._options.payload_threshold_bytes or most
            payloads = replace(payloads, threshold_bytes=threshold, write=f"{key}\n{payloads.write}")
        found = replace(form, queue=key, max_message_bytes=most, payloads=payloads)
        self._forms_of_queues[key] = found
        return found

    def _no_queue(self, given: Any, why: str) -> RowForm:
        # By a hash, for it may be anything, a password too; and its rows are a group of their own.
        return self._refused(f"no queue {hashlib.sha256(ascii(given).encode()).hexdigest()[:16]}", why)

    def _refused(self, key: str, why: str) -> RowForm:
        return replace(self._forms[None], queue=key, refusal=why)

    def _key(self, options: SinkOptions) -> str:
        """Return region, account and name of a queue, in whatever spelling it is given."""
        account_and_name = urlsplit(options.queue_url).path.rstrip("/").split("/")[-2:]
        return "/".join([rules.region_of(options.queue_url) or self._region, *account_and_name])


def _key_of(arn: str) -> str:
    return "/".join(arn.split(":")[3:6])
