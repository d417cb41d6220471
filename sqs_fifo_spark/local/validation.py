"""Checks of a request's ids, bodies, attributes, batches and numbers, as SQS makes them."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, TypeVar

from sqs_fifo_spark.local import errors

T = TypeVar("T")

MAX_ENTRIES = 10
MAX_BATCH_BYTES = 1_048_576
MAX_VISIBILITY_TIMEOUT_S = 43_200

_MAX_ATTRIBUTES = 10
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Letters, digits and all ASCII punctuation: everything printable but the space.
_FIFO_ID = re.compile(r"[!-~]{1,128}")
_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
_QUEUE_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_FIFO_QUEUE_NAME = re.compile(r"(?=.{1,80}\Z)[A-Za-z0-9_-]+\.fifo")
_ATTRIBUTE_NAME = re.compile(r"(?!\.)(?!.*\.\.)[A-Za-z0-9_.-]{1,256}(?<!\.)")
_DATA_TYPE = re.compile(r"(String|Number|Binary)(\..+)?")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# As AWS documents the data type Number.
_MOST_DIGITS = 38
_SMALLEST, _LARGEST = Decimal("1e-128"), Decimal("1e126")


def _typed(request: Mapping[str, Any], name: str, kind: type[T], form: str) -> T | None:
    value = request.get(name)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise errors.malformed_request(f"{name} must be {form}.")
    return value


def optional_text(request: Mapping[str, Any], name: str) -> str | None:
    """The string under `name`, or None when it is absent."""
    return _typed(request, name, str, "a string")


def required_text(request: Mapping[str, Any], name: str) -> str:
    """The string under `name`; absent or empty is MissingParameter."""
    value = optional_text(request, name)
    if not value:
        raise errors.missing_parameter(name)
    return value


def whole_number(request: Mapping[str, Any], name: str) -> int | None:
    """The integer under `name`, or None when it is absent."""
    return _typed(request, name, int, "an integer")


def optional_number(
    request: Mapping[str, Any], name: str, smallest: int, largest: int, rule: str | None = None
) -> int | None:
    """The integer under `name`, or None when it is absent; out of bounds is InvalidParameterValue."""
    value = whole_number(request, name)
    if value is not None and not smallest <= value <= largest:
        reason = rule or f"Must be between {smallest} and {largest}, if provided."
        raise errors.invalid_value(value, name, reason)
    return value


def text_list(request: Mapping[str, Any], name: str) -> list[str]:
    """The list of strings under `name`; absent means empty."""
    value = _typed(request, name, list, "a list of strings") or []
    if not all(isinstance(item, str) for item in value):
        raise errors.malformed_request(f"{name} must be a list of strings.")
    return value


def mapping(request: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The map under `name`; absent means empty."""
    return _typed(request, name, dict, "a map") or {}


def queue_name(name: str, *, is_fifo: bool) -> None:
    """Raise unless `name` is one for this kind of queue."""
    if is_fifo and not _FIFO_QUEUE_NAME.fullmatch(name):
        raise errors.invalid_parameter(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
            "must end with .fifo suffix and be 1 to 80 in length."
        )
    if not is_fifo and not _QUEUE_NAME.fullmatch(name):
        raise errors.invalid_parameter(
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        )


def fifo_id(value: str, parameter: str) -> None:
    """Raise unless `value` serves as a group, deduplication or attempt id."""
    if not _FIFO_ID.fullmatch(value):
        raise errors.invalid_value(
            value,
            parameter,
            f"{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in length.",
        )


def entries(request: Mapping[str, Any], action: str) -> list[dict[str, Any]]:
    """The entries of a batch call, one to ten with distinct ids of the right form."""
    found = request.get("Entries")
    if found is not None and not (isinstance(found, list) and all(isinstance(entry, dict) for entry in found)):
        raise errors.malformed_request("Entries must be a list of maps.")
    if not found:
        raise errors.empty_batch(action)
    if len(found) > MAX_ENTRIES:
        raise errors.too_many_entries(MAX_ENTRIES, len(found))
    seen: set[str] = set()
    for entry in found:
        entry_id = entry.get("Id")
        if not isinstance(entry_id, str) or not _ENTRY_ID.fullmatch(entry_id):
            raise errors.invalid_entry_id()
        if entry_id in seen:
            raise errors.entry_ids_not_distinct(entry_id)
        seen.add(entry_id)
    return found


def body(request: Mapping[str, Any]) -> tuple[str, bytes]:
    """The message's body and its bytes in UTF-8."""
    text = required_text(request, "MessageBody")
    if _NOT_XML.search(text):
        raise errors.invalid_message_contents()
    return text, text.encode()


def message_attributes(request: Mapping[str, Any]) -> dict[str, Any]:
    """The message attributes, each reduced to its data type and its one value."""
    given = mapping(request, "MessageAttributes")
    if len(given) > _MAX_ATTRIBUTES:
        raise errors.invalid_parameter(
            f"Number of message attributes [{len(given)}] exceeds the allowed maximum [{_MAX_ATTRIBUTES}]."
        )
    return {name: _attribute(name, value) for name, value in given.items()}


def trace_header(request: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The X-Ray trace header, and the system attributes as sent, of which it is the only one there is."""
    given = mapping(request, "MessageSystemAttributes")
    for name in given:
        if name != "AWSTraceHeader":
            raise errors.invalid_parameter(f"Message system attribute name '{name}' is invalid.")
    checked = {name: _attribute(name, value) for name, value in given.items()}
    if not checked:
        return None, {}
    header = checked["AWSTraceHeader"]
    if header["DataType"] != "String":
        raise errors.invalid_parameter("Message system attribute 'AWSTraceHeader' must be of type String.")
    return header["StringValue"], checked


def _attribute(name: str, value: object) -> dict[str, Any]:
    if not _ATTRIBUTE_NAME.fullmatch(name) or name.lower().startswith(("aws.", "amazon.")):
        raise errors.invalid_parameter(f"Message (user) attribute name '{name}' is invalid.")
    if not isinstance(value, dict):
        raise errors.malformed_request(f"The message attribute '{name}' must be a map.")
    data_type = value.get("DataType")
    if not isinstance(data_type, str) or not data_type:
        raise errors.invalid_parameter(f"The message attribute '{name}' must contain a non-empty type.")
    kind = _DATA_TYPE.fullmatch(data_type)
    if kind is None or len(data_type) > 256 or _NOT_XML.search(data_type):
        raise errors.invalid_parameter(
            f"The type of message (user) attribute '{name}' is invalid. You must use only the following "
            "supported type prefixes: Binary, Number, String."
        )
    field = "BinaryValue" if kind[1] == "Binary" else "StringValue"
    content = value.get(field)
    if not isinstance(content, str) or not content:
        raise errors.invalid_parameter(
            f"The message (user) attribute '{name}' must contain a non-empty value of type '{kind[1]}'."
        )
    if field == "StringValue" and _NOT_XML.search(content):
        raise errors.invalid_message_contents()
    if kind[1] == "Number" and not _NUMBER.fullmatch(content):
        raise errors.invalid_parameter(f"Can't cast the value of message (user) attribute '{name}' to a number.")
    if kind[1] == "Number" and not _is_in_range(content):
        raise errors.invalid_parameter(
            f"The value of message (user) attribute '{name}' is out of range: a number has at most {_MOST_DIGITS} "
            f"digits and lies between 10**-128 and 10**126."
        )
    if field == "BinaryValue":
        try:
            base64.b64decode(content, validate=True)
        except (binascii.Error, ValueError) as error:
            raise errors.malformed_request(f"The message attribute '{name}' is not valid base64.") from error
    return {"DataType": data_type, field: content}


def _is_in_range(number: str) -> bool:
    try:
        value = Decimal(number)
    except ArithmeticError:  # of its exponent
        return False
    digits = "".join(map(str, value.as_tuple().digits)).strip("0")
    return not value or (len(digits) <= _MOST_DIGITS and _SMALLEST <= value.copy_abs() <= _LARGEST)


def batch_size(batch: list[dict[str, Any]]) -> None:
    """Raise BatchRequestTooLong when the entries together exceed the limit.

    Weighs all entries that have a weight: one that is malformed fails by itself when its turn comes.
    """
    total = sum(_weight(entry) for entry in batch)
    if total > MAX_BATCH_BYTES:
        raise errors.batch_too_long(MAX_BATCH_BYTES, total)


def _weight(entry: Mapping[str, Any]) -> int:
    texts = [entry.get("MessageBody")]
    binary_bytes = 0
    attributes = entry.get("MessageAttributes")
    if isinstance(attributes, dict):
        for name, value in attributes.items():
            if isinstance(value, dict):
                texts += [name, value.get("DataType"), value.get("StringValue")]
                # Four characters of base64 carry three bytes; padding carries none.
                binary_bytes += len(str(value.get("BinaryValue") or "").rstrip("=")) * 3 // 4
    return binary_bytes + sum(len(text.encode(errors="surrogatepass")) for text in texts if isinstance(text, str))
