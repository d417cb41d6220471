"""One FIFO queue's calls: made, tried again, and refused in our own words, by the table in `codes`.

Error semantics, for source and sink: throttling, server errors, timeouts and lost connections are TransientQueueError,
tried again within a budget; a refused credential or permission is AccessDeniedError; a missing queue is
QueueNotFoundError; everything else that SQS refuses is QueueRequestError.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import botocore.exceptions
import botocore.parsers

from sqs_fifo_spark.aws import client as aws
from sqs_fifo_spark.aws.codes import STALE, error_from_aws, is_signed_too_early, is_wrong_clock, left_out
from sqs_fifo_spark.aws.credentials import ASSUME_ROLE, ChainError, safe_text
from sqs_fifo_spark.aws.form import IllegalHeaderError
from sqs_fifo_spark.aws.sdk_logs import without_sdk_logs
from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import (
    AccessDeniedError,
    NotFifoQueueError,
    OptionError,
    QueueRequestError,
    TransientQueueError,
)
from sqs_fifo_spark.options import ConnectionOptions, base_of
from sqs_fifo_spark.retry import retry_transient

T = TypeVar("T")
_log = logging.getLogger(__name__)

MAX_ENTRIES = 10
MAX_CALL_BYTES = 1_048_576
"""Bytes that the messages of one call may have together, and one message, unless its queue allows less."""
CALL_BUDGET_S = 30.0
"""Seconds for which a call is tried again when its caller has no closer deadline."""
NOTICE_AFTER_S = 3.0
"""Seconds after which the log says that a call is tried again: a wrong host gives no answer either."""


_UNUSABLE = (
    ChainError,
    IllegalHeaderError,
    botocore.exceptions.NoCredentialsError,
    botocore.exceptions.CredentialRetrievalError,
)
"""Errors of credentials that a new client may find otherwise."""
_INCOMPLETE = (
    botocore.exceptions.PartialCredentialsError,
    botocore.exceptions.TokenRetrievalError,
    botocore.exceptions.UnauthorizedSSOTokenError,
    botocore.exceptions.ProfileNotFound,
)
Ask = Callable[[], Mapping[str, Any]]
Beside = Callable[[Ask], Ask]
"""Begins a call while its caller goes on, and returns a function that waits for it."""


def named_apart(entries: Iterable[T]) -> dict[str, T]:
    """Return the entries of one batch call by ids that no other call has.

    So an answer that belongs to another call, as a proxy may give it, confirms nothing of this one.
    """
    call = os.urandom(6).hex()
    return {f"{call}-{place}": entry for place, entry in enumerate(entries)}


class _Attributes(dict[str, str]):
    """The queue's attributes, by the names that were asked for. `[]` is for one that SQS always gives."""

    def __init__(self, given: Mapping[str, str], url: str) -> None:
        super().__init__(given)
        self._url = url

    def __missing__(self, name: str) -> str:
        raise left_out("get_queue_attributes", self._url, [name])


@dataclass(frozen=True)
class QueueFacts:
    """The queue's own facts."""

    arn: str
    retention_s: int
    max_receive_count: int | None
    """None without a redrive policy."""
    has_content_based_deduplication: bool
    deduplicates_across_groups: bool
    """True if rows of two groups can be equal: its DeduplicationScope."""
    max_message_bytes: int


class CallCounts(NamedTuple):
    """Numbers of calls made."""

    receives: int = 0
    failed: int = 0
    """Of all kinds, those that SQS throttled, failed or did not answer: all but the last of each are tried again."""

    def plus(self, other: CallCounts) -> CallCounts:
        return CallCounts(self.receives + other.receives, self.failed + other.failed)

    def minus(self, other: CallCounts) -> CallCounts:
        return CallCounts(self.receives - other.receives, self.failed - other.failed)


NO_CALLS = CallCounts()
_RECEIVE, _FAILURE = CallCounts(receives=1), CallCounts(failed=1)


class QueueCalls:
    """One FIFO queue, for one process. Built without any call; all methods may be used by several threads."""

    def __init__(self, options: ConnectionOptions, clock: Clock) -> None:
        self._url = options.queue_url
        self._queue = {"QueueUrl": self._url}
        """The parameters by which SQS knows the queue."""
        self._clock = clock
        self._counting = threading.Lock()
        self._counts = NO_CALLS
        """Guarded by `_counting`."""
        self._config = aws.ClientConfig(options.region, options.endpoint_url, options.identity)

    @property
    def call_counts(self) -> CallCounts:
        """Numbers of calls that it has made so far."""
        return self._counts

    def _count(self, calls: CallCounts) -> None:
        with self._counting:
            self._counts = self._counts.plus(calls)

    def describe(self, *, budget_s: float = CALL_BUDGET_S) -> QueueFacts:
        """Return the queue's own facts.

        Raises NotFifoQueueError, and the errors above, with one line for the user; TransientQueueError after
        `budget_s`.
        """
        attributes = self._attributes("All", budget_s=budget_s)
        if attributes.get("FifoQueue") != "true":
            raise NotFifoQueueError(
                f"'{self._url}' is a standard queue: it has no message groups, and no order. Use a FIFO queue."
            )
        policy = attributes.get("RedrivePolicy")
        return QueueFacts(
            arn=attributes["QueueArn"],
            retention_s=int(attributes.get("MessageRetentionPeriod", 345_600)),
            max_receive_count=_max_receive_count(policy) if policy else None,
            has_content_based_deduplication=attributes.get("ContentBasedDeduplication") == "true",
            deduplicates_across_groups=attributes.get("DeduplicationScope") != "messageGroup",
            max_message_bytes=int(attributes.get("MaximumMessageSize", MAX_CALL_BYTES)),
        )

    def caller(self) -> str:
        """Return the ARN of our caller identity. Raises AccessDeniedError, and TransientQueueError after one try."""
        return aws.caller_arn(self._config)

    def _attributes(self, *names: str, budget_s: float = CALL_BUDGET_S) -> Mapping[str, str]:
        answer = self._retrying("get_queue_attributes", budget_s, AttributeNames=list(names))
        return _Attributes(answer.get("Attributes") or {}, self._url)

    def _retrying(self, operation: str, budget_s: float, **arguments: Any) -> Mapping[str, Any]:
        began_at, is_logged = self._clock.monotonic(), False

        def call() -> Mapping[str, Any]:
            nonlocal is_logged
            try:
                return self._call(operation, **arguments)
            except TransientQueueError as error:
                took_s = self._clock.monotonic() - began_at
                if not is_logged and NOTICE_AFTER_S <= took_s < budget_s:
                    is_logged = True
                    _log.warning("%s It is tried again for up to %.0f s.", error, budget_s - took_s)
                raise

        return retry_transient(call, clock=self._clock, budget_s=budget_s)

    def _begin(self, operation: str, wait_time_s: int, beside: Beside, **arguments: Any) -> Ask:
        """Send a call now, and return a function that waits for its answer, or raises: `_call` gets it as `pending`.

        A client that cannot do the one without the other does both `beside` the caller.
        """
        try:
            with without_sdk_logs():
                client = aws.sqs_client(self._config, wait_time_s)
                begin = getattr(client, "begin", None)
                if begin is not None:
                    pending: Ask = begin(operation, **self._queue, **arguments)
                    return pending

            def ask() -> Mapping[str, Any]:
                with without_sdk_logs():
                    answer: Mapping[str, Any] = getattr(client, operation)(**self._queue, **arguments)
                    return answer

            return beside(ask)
        except Exception as error:
            failure = error

        def fail() -> Mapping[str, Any]:
            raise failure

        return fail

    def _ask(
        self,
        operation: str,
        wait_time_s: int,
        arguments: Mapping[str, Any],
        pending: Ask | None,
    ) -> Mapping[str, Any]:
        def ask() -> Mapping[str, Any]:
            client = aws.sqs_client(self._config, wait_time_s)
            answer: Mapping[str, Any] = getattr(client, operation)(**self._queue, **arguments)
            return answer

        try:
            return pending() if pending else ask()
        except botocore.exceptions.ClientError as error:
            what, text = _code_and_text(error)
            # They may have been renewed; or this machine stood still between signing and sending.
            if what not in STALE and not is_signed_too_early(what, text):
                raise
        except _UNUSABLE as error:
            # A client is built with the chain's credentials; it may have had no answer in time.
            what = type(error).__name__
        aws.forget_clients(self._config)
        if pending:
            # The answers to others, begun beside it, wait to be read: a second call is made like any other try.
            raise TransientQueueError(f"{operation} on '{self._url}' was refused for its signature ({what}).")
        return ask()

    def _call(
        self,
        operation: str,
        wait_time_s: int = 0,
        *,
        latest: float | None = None,
        stopped: threading.Event | None = None,
        pending: Ask | None = None,
        **arguments: Any,
    ) -> Mapping[str, Any]:
        """Make one call, or wait for the `pending` one; and make a second one if its signature was too old.

        Nothing is sent after `latest`, if given, or once `stopped` is set: that is TransientQueueError.
        """

        def check() -> None:
            if stopped is not None and stopped.is_set():
                raise TransientQueueError(f"{operation} on '{self._url}' was not made: its task has ended meanwhile.")
            if latest is not None and self._clock.monotonic() > latest:
                raise TransientQueueError(
                    f"{operation} on '{self._url}' was not made in time: to connect took too long, or this process "
                    "stood still."
                )

        if operation == "receive_message":
            self._count(_RECEIVE)
        sent_in_time = nullcontext() if pending else aws.checked_before_sending(check)
        try:
            with without_sdk_logs(), sent_in_time, self._our_errors(operation):
                return self._ask(operation, wait_time_s, arguments, pending)
        except TransientQueueError:
            self._count(_FAILURE)
            raise

    @contextmanager
    def _our_errors(self, operation: str) -> Iterator[None]:
        try:
            yield
        except botocore.exceptions.ClientError as error:
            code, text = _code_and_text(error)
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            refused_operation = str(error.operation_name)  # a role may have to be assumed first
            ours = error_from_aws(
                refused_operation if refused_operation.startswith(ASSUME_ROLE) else operation,
                self._url,
                code,
                text,
                status=status,
            )
            has_role = self._config.identity.role_arn is not None  # else it is one of the profile's
            is_about_role = not isinstance(ours, TransientQueueError) and not is_wrong_clock(code, text)
            if refused_operation == ASSUME_ROLE and has_role and is_about_role:
                ours = self._no_role(code)
            raise ours from None
        except botocore.exceptions.NoRegionError:
            raise OptionError(
                "option 'region' is missing, the queue's URL names none, and the AWS chain has none. "
                "Give region, such as eu-west-1."
            ) from None
        except (*_UNUSABLE, *_INCOMPLETE) as error:
            raise self._no_credentials(safe_text(error)) from None
        except (
            botocore.exceptions.HTTPClientError,
            botocore.exceptions.ConnectionError,
            botocore.parsers.ResponseParserError,
        ) as error:
            cause = getattr(error, "kwargs", {}).get("error")
            if isinstance(cause, TransientQueueError):  # the check's, as botocore hands it on
                raise cause from None
            has_role = self._config.identity.role_arn is not None  # perhaps it was STS that gave none
            names = "'region', 'endpointUrl' and 'stsEndpoint'" if has_role else "'region' and 'endpointUrl'"
            raise TransientQueueError(
                f"{operation} on '{self._url}' had no usable answer ({type(error).__name__}). Check the network, "
                f"{names}."
            ) from None
        except botocore.exceptions.BotoCoreError as error:
            raise QueueRequestError(
                f"{operation} on '{self._url}' could not be made ({type(error).__name__})."
            ) from None

    def _no_credentials(self, kind: str) -> AccessDeniedError:
        base = base_of(self._config.identity)
        if base is None:
            denied = AccessDeniedError(
                f"no usable AWS credentials for '{self._url}' ({kind}). Give the driver and the "
                "executors credentials by environment, profile, instance role or 'roleArn'."
            )
        else:
            denied = AccessDeniedError(
                f"no usable AWS credentials for '{self._url}' from option '{base}' ({kind}). Its profile, module or "
                "credential must be there on driver and executors."
            )
        denied.has_no_credentials = True
        return denied

    def _no_role(self, code: str) -> AccessDeniedError:
        return AccessDeniedError(
            f"AWS did not give the role '{self._config.identity.role_arn}' for '{self._url}' (AssumeRole: {code}). The "
            "caller's own identity needs 'sts:AssumeRole' for it, and the role's trust policy must name that identity; "
            "if the policy asks for an external id, give roleExternalId."
        )


def _code_and_text(error: botocore.exceptions.ClientError) -> tuple[str, str]:
    details = error.response.get("Error", {})
    return str(details.get("Code", "")), str(details.get("Message", ""))


def _max_receive_count(redrive_policy: str) -> int | None:
    try:
        return int(json.loads(redrive_policy)["maxReceiveCount"])
    except (ValueError, KeyError, TypeError):
        return None
