"""Queue tags. Their limits are those of "Quotas related to queues" in the developer guide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqs_fifo_spark.local import errors, validation

Request = Mapping[str, Any]
Response = dict[str, Any]

MAX_TAGS = 50
_MAX_KEY = 128
_MAX_VALUE = 256
_RESERVED = "aws:"
_PUNCTUATION = frozenset("_.:/=+-@")


class QueueTags:
    """The tags of all queues. `queue_name` finds the name of the queue that a request is about."""

    def __init__(self, queue_name: Callable[[Request], str]) -> None:
        self._queue_name = queue_name
        self._tags: dict[str, dict[str, str]] = {}

    def begin(self, name: str, given: Mapping[str, object]) -> None:
        """Give a new queue its tags."""
        self._tags[name] = _added(name, {}, given)

    def forget(self, name: str) -> None:
        """Drop the tags of a queue that is deleted."""
        del self._tags[name]

    def listed(self, request: Request) -> Response:
        shown = self._tags[self._queue_name(request)]
        return {"Tags": dict(shown)} if shown else {}

    def tag(self, request: Request) -> Response:
        """Add tags to a queue, in place of those with the same keys."""
        name, given = self._queue_name(request), validation.mapping(request, "Tags")
        if not given:
            raise errors.missing_parameter("Tags")
        self._tags[name] = _added(name, self._tags[name], given)
        return {}

    def untag(self, request: Request) -> Response:
        """Take tags from a queue; a key that is not there is no error."""
        name, keys = self._queue_name(request), validation.text_list(request, "TagKeys")
        if not keys:
            raise errors.missing_parameter("TagKeys")
        for key in keys:
            _check("keys", key, 1, _MAX_KEY)
        self._tags[name] = {key: value for key, value in self._tags[name].items() if key not in keys}
        return {}


def _added(name: str, tags: Mapping[str, str], given: Mapping[str, object]) -> dict[str, str]:
    checked: dict[str, str] = {}
    for key, value in given.items():
        if not isinstance(value, str):
            raise errors.malformed_request("The value of a tag must be a string.")
        _check("keys", key, 1, _MAX_KEY)
        _check("values", value, 0, _MAX_VALUE)
        checked[key] = value
    changed = {**tags, **checked}
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
