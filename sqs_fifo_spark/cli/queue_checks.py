"""The checks of `doctor` on the queue: the caller, its permissions, and the queue's settings.

No call here takes, hides, deletes or adds a message. Reading attributes is asked for real. For every other action SQS
gets a request that it has to refuse. This is known of the order in which it judges one:

- A batch call that is answered, with its entry failed, was allowed: SQS judges entries after the permission.
- A call that is refused with AccessDenied is not allowed.
- A call that is refused as a whole, for its arguments, may be allowed or not: AWS does not document whether it looks
  at the permission first. So that is a warning, not an ok.

After a call that had no answer in time, or for which there were no credentials, no other one is made: it would fare
alike.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqs_fifo_spark.aws.calls import CALL_BUDGET_S, QueueCalls
from sqs_fifo_spark.aws.codes import LostHoldError, error_from_aws
from sqs_fifo_spark.cli.finding import FAILURE, Finding, failure, not_checked, ok, warning
from sqs_fifo_spark.cli.slow_calls import NoAnswerError, answer
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import (
    AccessDeniedError,
    QueueNotFoundError,
    QueueRequestError,
    SqsFifoError,
    TransientQueueError,
)
from sqs_fifo_spark.option_rules import region_of
from sqs_fifo_spark.options import ConnectionOptions, SourceOptions
from sqs_fifo_spark.source.driver.startup import FEWEST_RECEIVES, SHORT_RETENTION_S
from sqs_fifo_spark.source.queue import NO_HANDLE

GOOD_RECEIVES = 10
"""From this maxReceiveCount on, crashes alone do not bring a message to the dead-letter queue."""
_AWS_KEY = "alias/aws/sqs"
_READS = "sqs:GetQueueAttributes"
_SILENT = "a call before had no usable answer"
_NO_STS = "A network without a way to STS is enough for this, and harmless"
_POLICY = (
    "conf/iam-source.json and conf/iam-sink.json are policies that grant what is needed; a queue in another account "
    "needs one of its own"
)


@dataclass(frozen=True)
class _Probe:
    """A request of one action that cannot have an effect."""

    action: str
    operation: str
    arguments: Mapping[str, Any]
    without: str
    """The only call that shows for certain that the action is allowed."""
    remedy: str


_PEEK = "'sqs-fifo-spark peek -n 1' receives one, and releases it"
_PROBES = {
    "source": (
        _Probe(
            "sqs:ReceiveMessage",
            "receive_message",
            # More than SQS gives at once. A stand-in for it may take 0 for 1.
            {"MaxNumberOfMessages": 11, "WaitTimeSeconds": 0, "VisibilityTimeout": 0},
            "receiving a message",
            _PEEK,
        ),
        _Probe(
            "sqs:DeleteMessage",
            "delete_message_batch",
            {"Entries": [{"Id": "0", "ReceiptHandle": NO_HANDLE}]},
            "deleting a message",
            "Start the query: it says so before it receives anything",
        ),
        _Probe(
            "sqs:ChangeMessageVisibility",
            "change_message_visibility_batch",
            {"Entries": [{"Id": "0", "ReceiptHandle": NO_HANDLE, "VisibilityTimeout": 0}]},
            "receiving a message",
            _PEEK,
        ),
    ),
    "sink": (
        _Probe(
            "sqs:SendMessage",
            "send_message_batch",
            {"Entries": [{"Id": "0", "MessageBody": ""}]},  # no body, no group: nothing takes it
            "sending a message",
            "'sqs-fifo-spark send' sends one",
        ),
    ),
}


class CheckedQueue(QueueCalls):
    """A queue that is asked for its settings, and for the caller's permissions."""

    is_silent = False
    """True if a call has had no answer, in all the time that a call has."""

    def __init__(self, options: ConnectionOptions, patience_s: float) -> None:
        """`patience_s` is the time that each call may take, with all that it needs: names, credentials, other tries."""
        super().__init__(options, SYSTEM_CLOCK)
        self.patience_s = patience_s

    def attributes(self) -> Mapping[str, str]:
        """Return all attributes of the queue. Raises the errors of `aws.calls`."""
        return self._attributes("All")

    def _retrying(self, operation: str, budget_s: float, **arguments: Any) -> Mapping[str, Any]:
        limit_s = min(budget_s, self.patience_s)
        call = functools.partial(super()._retrying, operation, limit_s / 2, **arguments)  # its error says more
        try:
            return answer(call, "the queue", limit_s)
        except NoAnswerError:
            self.is_silent = True
            raise TransientQueueError(
                f"{operation} on '{self._url}' had no answer within {limit_s:g} s. Check the network, 'region' and "
                "'endpointUrl', and the source of the credentials."
            ) from None
        except TransientQueueError:
            self.is_silent = True
            raise

    def has_judged(self, operation: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether SQS has looked into the call, so that the caller may make such calls.

        Raises AccessDeniedError if not, and the other errors of `aws.calls` but QueueRequestError.
        """
        try:
            response = self._retrying(operation, CALL_BUDGET_S, **arguments)
        except QueueRequestError as error:
            return isinstance(error, LostHoldError)
        for failed in response.get("Failed") or ():
            error_found = error_from_aws(operation, self._url, str(failed.get("Code")), str(failed.get("Message")))
            if isinstance(error_found, AccessDeniedError):
                raise error_found
        return True


def require_sending(options: ConnectionOptions) -> None:
    """Raise AccessDeniedError if SQS says, without a message, that the caller may not send to the queue."""
    (probe,) = _PROBES["sink"]
    CheckedQueue(options, CALL_BUDGET_S).has_judged(probe.operation, probe.arguments)


def check_queue(
    options: SourceOptions, roles: tuple[str, ...], patience_s: float
) -> Generator[Finding, None, str | None]:
    """Yield the findings on the queue, and return its ARN if the queue gives it.

    `roles` are those in which it is to be used: source, sink or both. Each answer may take `patience_s`, and a service
    that gives none is asked no more.
    """
    queue = CheckedQueue(options, patience_s)
    probes = [probe for role in roles for probe in _PROBES[role]]
    failed: SqsFifoError | None = None
    try:
        attributes = queue.attributes()
    except SqsFifoError as error:
        failed = error
    credentials = _credentials(queue, options, failed)
    yield credentials
    if isinstance(failed, AccessDeniedError) and credentials.level == FAILURE:
        why = "there are no usable credentials"
        yield not_checked(_READS, why) if failed.has_no_credentials else failure(_READS, str(failed))
        for probe in probes:
            yield not_checked(probe.action, why)
        return None
    if failed:
        yield failure(_READS, str(failed), _POLICY if isinstance(failed, AccessDeniedError) else "")
    else:
        yield ok(_READS, "allowed")
    for probe in probes:
        yield _permission(queue, probe)
    if failed:
        return None
    yield from _settings(attributes, roles)
    yield from _redrive(attributes, options, queue)
    return attributes.get("QueueArn")


def _credentials(queue: CheckedQueue, options: SourceOptions, failed: SqsFifoError | None) -> Finding:
    """Return the finding on the caller. `failed` is the queue's error, which may have shown that there is none."""
    if isinstance(failed, AccessDeniedError) and failed.has_no_credentials:
        return failure("credentials", str(failed))
    if region_of(options.endpoint_url or options.queue_url) is None:
        return ok("credentials", "not asked: the endpoint is not AWS's, so AWS's STS does not know who calls it")
    if queue.is_silent:
        return not_checked("credentials", "the queue had no usable answer, and STS is likely to fare alike")
    try:
        return ok("credentials", answer(queue.caller, "STS", queue.patience_s))
    except NoAnswerError:
        return warning("credentials", f"STS gave no answer within {queue.patience_s:g} s", _NO_STS)
    except AccessDeniedError as error:
        return failure("credentials", str(error), "Credentials come from environment, profile or instance role")
    except SqsFifoError as error:
        return warning("credentials", str(error), _NO_STS)


def _permission(queue: CheckedQueue, probe: _Probe) -> Finding:
    if queue.is_silent:
        return not_checked(probe.action, _SILENT)
    try:
        is_certain = queue.has_judged(probe.operation, probe.arguments)
    except AccessDeniedError as error:
        if error.has_no_credentials:
            return failure(probe.action, str(error))
        return failure(probe.action, "denied", f"Grant {probe.action} on the queue: {_POLICY}")
    except SqsFifoError as error:
        return failure(probe.action, str(error))
    if is_certain:
        return ok(probe.action, "allowed")
    return warning(probe.action, f"not denied; only {probe.without} would show that it is allowed", probe.remedy)


def _settings(attributes: Mapping[str, str], roles: tuple[str, ...]) -> Iterator[Finding]:
    if attributes.get("FifoQueue") != "true":
        yield failure("FIFO", "this is a standard queue: it has no message groups, and no order", "Use a FIFO queue")
        return
    yield ok("FIFO", "a FIFO queue")
    yield _throughput(attributes)
    if "source" in roles:
        seconds = attributes.get("VisibilityTimeout", "30")
        yield ok(
            "VisibilityTimeout", f"{seconds} s, for other consumers: a source sets visibilityTimeoutSeconds itself"
        )
    yield _retention(int(attributes.get("MessageRetentionPeriod", 345_600)))
    if "sink" in roles:
        is_on = attributes.get("ContentBasedDeduplication") == "true"
        on = "ContentBasedDeduplication is on: deduplication=content works, and ids do too"
        off = "ContentBasedDeduplication is off: rows need the column messageDeduplicationId"
        yield ok("deduplication", on if is_on else off)
    yield _encryption(attributes, roles)


def _throughput(attributes: Mapping[str, str]) -> Finding:
    scope = attributes.get("DeduplicationScope", "queue")
    limit = attributes.get("FifoThroughputLimit", "perQueue")
    both = f"DeduplicationScope {scope}, FifoThroughputLimit {limit}"
    if limit == "perMessageGroupId" and scope == "messageGroup":
        return ok("throughput", f"high throughput: {both}")
    says = f"300 calls a second for each action: {both}"
    if scope == "messageGroup":
        return warning("throughput", says, "Half of high throughput is set: set FifoThroughputLimit=perMessageGroupId")
    return ok("throughput", f"{says}; for more, set messageGroup and perMessageGroupId")


def _retention(seconds: int) -> Finding:
    if seconds < SHORT_RETENTION_S:
        return warning(
            "retention",
            f"SQS drops a message that has waited {seconds} s, also while a query is down",
            f"Set MessageRetentionPeriod to {SHORT_RETENTION_S} or more, up to 1209600",
        )
    return ok("retention", f"SQS keeps messages for {seconds} s")


def _encryption(attributes: Mapping[str, str], roles: tuple[str, ...]) -> Finding:
    key = attributes.get("KmsMasterKeyId")
    if key and key != _AWS_KEY:
        needed = "kms:Decrypt and kms:GenerateDataKey" if "sink" in roles else "kms:Decrypt"
        return warning(
            "encryption",
            f"with the key {key}, so callers need {needed} on it, which only a message can show",
            f"Grant {needed}, in the key's policy or the caller's",
        )
    if key:
        return ok("encryption", f"with AWS's own key, {key}")
    is_on = attributes.get("SqsManagedSseEnabled") == "true"
    return ok("encryption", "by SQS itself" if is_on else "none")


def _redrive(attributes: Mapping[str, str], options: SourceOptions, queue: CheckedQueue) -> Iterator[Finding]:
    policy = attributes.get("RedrivePolicy")
    if not policy:
        yield ok("redrive policy", "none: a message is delivered until it is deleted or expires")
        return
    try:
        document = json.loads(policy)
        most, arn = int(document["maxReceiveCount"]), str(document["deadLetterTargetArn"])
    except (ValueError, KeyError, TypeError):
        yield failure("redrive policy", "it cannot be read", "Set RedrivePolicy anew")
        return
    says = f"a message goes to the dead-letter queue after {most} receives"
    if most < GOOD_RECEIVES:
        judge = failure if most < FEWEST_RECEIVES else warning
        remedy = f"Set maxReceiveCount to {FEWEST_RECEIVES} at the least, better to {GOOD_RECEIVES}"
        yield judge("maxReceiveCount", f"{says}; each crash of a query costs one", remedy)
    else:
        yield ok("maxReceiveCount", says)
    yield (
        not_checked("dead-letter queue", _SILENT) if queue.is_silent else _dead_letters(arn, options, queue.patience_s)
    )


def _dead_letters(arn: str, options: SourceOptions, patience_s: float) -> Finding:
    name = arn.rpartition(":")[2]
    check, remedy = "dead-letter queue", "Correct deadLetterTargetArn, or make that queue: a FIFO queue"
    if not name.endswith(".fifo"):
        return failure(check, f"{arn} is not a FIFO queue", remedy)
    # It is in the same account and region.
    url = f"{options.queue_url.rstrip('/').rpartition('/')[0]}/{name}"
    other = CheckedQueue(replace(options, queue_url=url), patience_s)
    try:
        attributes = other.attributes()
    except QueueNotFoundError:
        return failure(check, f"{arn} does not exist, so messages that reach maxReceiveCount stay", remedy)
    except AccessDeniedError:
        return warning(check, f"{arn}: its existence cannot be checked without sqs:GetQueueAttributes on it")
    except SqsFifoError as error:
        return failure(check, str(error))
    if attributes.get("FifoQueue") != "true":
        return failure(check, f"{arn} is not a FIFO queue", remedy)
    return ok(check, arn)
