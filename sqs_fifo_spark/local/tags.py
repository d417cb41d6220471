"""Queue tags. Their limits are those of "Quotas related to queues" in the developer guide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqs_fifo_spark.local import errors, validation
from sqs_fifo_spark.local.fifo import FifoQueue

Request = Mapping[str, Any]
Response = dict[str, Any]

MAX_TAGS = 50
_MAX_KEY = 128
_MAX_VALUE = 256
_RESERVED = "aws:"
_PUNCTUATION = frozenset("_.:/=+-@")


def listed(queue: FifoQueue) -> Response:
    return {"Tags": dict(queue.tags)} if queue.tags else {}


def tag(queue: FifoQueue, request: Request) -> Response:
    """Add tags to a queue, in place of those with the same keys."""
    given = validation.mapping(request, "Tags")
    if not given:
        raise errors.missing_parameter("Tags")
    queue.tags = added(queue.name, queue.tags, given)
    return {}


def untag(queue: FifoQueue, request: Request) -> Response:
    """Take tags from a queue; a key that is not there is no error."""
    keys = validation.text_list(request, "TagKeys")
    if not keys:
        raise errors.missing_parameter("TagKeys")
    for key in keys:
        _check("keys", key, 1, _MAX_KEY)
    queue.tags = {key: value for key, value in queue.tags.items() if key not in keys}
    return {}


def added(name: str, tags: Mapping[str, str], given: Mapping[str, object]) -> dict[str, str]:
    """The tags of the queue `name` with those given, which are checked."""
    changed = dict(tags)
    for key, value in given.items():
        if not isinstance(value, str):
            raise errors.malformed_request("The value of a tag must be a string.")
        _check("keys", key, 1, _MAX_KEY)
        _check("values", value, 0, _MAX_VALUE)
        changed[key] = value
    if len(changed) > MAX_TAGS:
        raise errors.invalid_parameter(f"Too many tags added for queue {name}.")
    return changed


def _check(what: str, text: str, shortest: int, longest: int) -> None:
    if not shortest <= len(text) <= longest:
        raise errors.invalid_parameter(f"Tag {what} must be between {shortest} and {longest} characters in length.")
    if not all(character.isalnum() or character.isspace() or character in _PUNCTUATION for character in text):
        raise errors.invalid_parameter(
            f"Tag {what} can only include Unicode letters, digits, whitespace, or the characters _.:/=+-@"
        )
    if text.lower().startswith(_RESERVED):
        raise errors.invalid_parameter(f"Tag {what} cannot start with the reserved prefix {_RESERVED}")
