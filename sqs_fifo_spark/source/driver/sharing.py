"""The shares of several queues in one micro-batch. Pure: no call, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqs_fifo_spark.source.driver.epochs import Limits


def share_partitions(count: int, own: int, others: Iterable[int]) -> int:
    """Return a queue's share of `count` partitions, at least one, where `own` messages wait in it.

    And so many in each of the `others`.
    """
    return max(1, count * max(1, own) // (max(1, own) + sum(max(1, each) for each in others)))


def share_limits(limits: Limits, expected: Mapping[str, int]) -> dict[str, Limits]:
    """Return the part of `limits` that each queue has, by its key.

    A queue gets as much as is `expected` of it, unless that is more than an even part of what is left; and an even part
    of the rest. Each gets at least one message, so that none waits for the others.
    """
    messages: dict[str, int] = {}
    left = limits.messages
    for place, (key, wanted) in enumerate(sorted(expected.items(), key=lambda each: (each[1], each[0]))):
        messages[key] = min(max(1, wanted), left // (len(expected) - place))
        left -= messages[key]
    messages = {key: max(1, count + left // len(expected)) for key, count in messages.items()}
    total = sum(messages.values())
    return {key: Limits(count, max(1, limits.size * count // total)) for key, count in messages.items()}
