"""A queue's attributes: their ranges and defaults, and the settings that a queue reads from them.

Ranges and defaults are those of the API text of `CreateQueue` and `SetQueueAttributes`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqs_fifo_spark.local import errors

_NUMBERS: dict[str, tuple[int, int, int]] = {
    # name: smallest, largest, default
    "VisibilityTimeout": (0, 43_200, 30),
    "MaximumMessageSize": (1_024, 1_048_576, 1_048_576),
    "MessageRetentionPeriod": (60, 1_209_600, 345_600),
    "DelaySeconds": (0, 900, 0),
    "ReceiveMessageWaitTimeSeconds": (0, 20, 0),
}
_FIFO_CHOICES: dict[str, tuple[str, ...]] = {
    # name: values, the default first
    "FifoQueue": ("true",),
    "ContentBasedDeduplication": ("false", "true"),
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
}
_KEPT_UNREAD = (
    "KmsDataKeyReusePeriodSeconds",
    "KmsMasterKeyId",
    "Policy",
    "RedriveAllowPolicy",
)
_BOOLEANS = ("ContentBasedDeduplication", "FifoQueue", "SqsManagedSseEnabled")
COMPUTED = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "QueueArn",
)
_KNOWN = frozenset((*_NUMBERS, *_KEPT_UNREAD, *COMPUTED, "All", "RedrivePolicy", "SqsManagedSseEnabled"))
_KNOWN_TO_FIFO = _KNOWN | _FIFO_CHOICES.keys()


@dataclass(frozen=True, slots=True)
class RedrivePolicy:
    """The target of a message that was received `max_receive_count` times from this queue."""

    target_arn: str
    max_receive_count: int


@dataclass(frozen=True, slots=True)
class Settings:
    """A queue's attributes, checked. `given` holds those that were set, as they are shown."""

    given: Mapping[str, str]
    is_fifo: bool
    visibility_timeout_s: int
    maximum_message_bytes: int
    retention_s: int
    delay_s: int
    wait_s: int
    content_based_deduplication: bool
    deduplicates_per_group: bool
    has_high_throughput: bool
    redrive: RedrivePolicy | None

    def described(self) -> dict[str, str]:
        """Every attribute that is not computed, as `GetQueueAttributes` shows it."""
        shown = {name: str(default) for name, (_, _, default) in _NUMBERS.items()}
        if self.is_fifo:
            shown |= {name: choices[0] for name, choices in _FIFO_CHOICES.items()}
        shown["SqsManagedSseEnabled"] = "true"
        return shown | {name: value for name, value in self.given.items() if value != ""}


def check_names(names: Iterable[str], *, is_fifo: bool) -> None:
    """Raise InvalidAttributeName unless all `names` can be asked of this kind of queue.

    AWS does not know `FifoQueue` on a standard queue: asking for it by name is an error there.
    """
    for name in names:
        if name not in (_KNOWN_TO_FIFO if is_fifo else _KNOWN):
            raise errors.invalid_attribute_name(name)


def parse(given: Mapping[str, str], *, is_fifo: bool) -> Settings:
    """Check attributes as given and make a queue's settings of them.

    Raises InvalidAttributeName, InvalidAttributeValue, or InvalidParameterValue for a redrive policy.
    """
    given = {name: _in_aws_case(name, value) for name, value in given.items()}
    numbers = {name: default for name, (_, _, default) in _NUMBERS.items()}
    choices = {name: values[0] for name, values in _FIFO_CHOICES.items()}
    possible = {"SqsManagedSseEnabled": ("true", "false"), **(_FIFO_CHOICES if is_fifo else {})}
    for name, value in given.items():
        if not isinstance(value, str):
            raise errors.malformed_request(f"The value of attribute {name} must be a string.")
        if name in _NUMBERS:
            numbers[name] = _number(name, value)
        elif name in possible:
            if name == "FifoQueue" and value == "false":
                raise errors.queue_type_is_fixed()
            if value not in possible[name]:
                raise errors.invalid_attribute_value(name)
            choices[name] = value
        elif name != "RedrivePolicy" and name not in _KEPT_UNREAD:
            raise errors.invalid_attribute_name(name)
    per_group = choices["DeduplicationScope"] == "messageGroup"
    if choices["FifoThroughputLimit"] == "perMessageGroupId" and not per_group:
        raise errors.high_throughput_needs_scope()
    return Settings(
        given=given,
        is_fifo=is_fifo,
        visibility_timeout_s=numbers["VisibilityTimeout"],
        maximum_message_bytes=numbers["MaximumMessageSize"],
        retention_s=numbers["MessageRetentionPeriod"],
        delay_s=numbers["DelaySeconds"],
        wait_s=numbers["ReceiveMessageWaitTimeSeconds"],
        content_based_deduplication=choices["ContentBasedDeduplication"] == "true",
        deduplicates_per_group=per_group,
        has_high_throughput=choices["FifoThroughputLimit"] == "perMessageGroupId",
        redrive=_redrive_policy(given.get("RedrivePolicy", "")),
    )


def is_true(given: Mapping[str, str], name: str) -> bool:
    """True if the boolean attribute `name` is given as true, in any case."""
    return _in_aws_case(name, given.get(name, "")) == "true"


def _in_aws_case(name: str, value: str) -> str:
    # AWS takes booleans in any case, and shows them in lower case. A value that is no string is refused later.
    return value.lower() if name in _BOOLEANS and isinstance(value, str) else value


_LONGEST_NUMBER = 20
"""Digits; Python itself refuses to read very long ones."""


def _number(name: str, value: str) -> int:
    smallest, largest, _ = _NUMBERS[name]
    is_number = value.isascii() and value.isdigit() and len(value) <= _LONGEST_NUMBER
    if not (is_number and smallest <= int(value) <= largest):
        raise errors.invalid_attribute_value(name)
    return int(value)


def _redrive_policy(text: str) -> RedrivePolicy | None:
    # An empty policy takes the policy away: that is how the API removes it.
    if text == "":
        return None

    def invalid(reason: str) -> errors.SqsError:
        return errors.invalid_value(text, "RedrivePolicy", reason)

    try:
        policy = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid("Redrive policy is not a valid JSON map.") from error
    if not isinstance(policy, dict):
        raise invalid("Redrive policy is not a valid JSON map.")
    for name in ("deadLetterTargetArn", "maxReceiveCount"):
        if name not in policy:
            raise invalid(f"Redrive policy does not contain mandatory attribute: {name}.")
    unknown = sorted(set(policy) - {"deadLetterTargetArn", "maxReceiveCount"})
    if unknown:
        raise invalid(f"Redrive policy has unknown attributes: {', '.join(unknown)}.")
    arn, count = policy["deadLetterTargetArn"], str(policy["maxReceiveCount"])
    if not isinstance(arn, str) or not arn.startswith("arn:aws:sqs:"):
        raise invalid("Invalid value for deadLetterTargetArn.")
    is_number = count.isascii() and count.isdigit() and len(count) <= _LONGEST_NUMBER
    if not (is_number and 1 <= int(count) <= 1_000):
        raise invalid("Invalid value for maxReceiveCount: must be an integer between 1 and 1000.")
    return RedrivePolicy(arn, int(count))
