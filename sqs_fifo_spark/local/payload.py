"""A message's size and its MD5s, counted the way SQS counts them.

Message attributes stand here in the wire form of AWS JSON 1.0, `{name: {"DataType": ..., "StringValue": ... or
"BinaryValue": base64}}`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

Attributes = Mapping[str, Mapping[str, Any]]

_STRING_TRANSPORT = b"\x01"
_BINARY_TRANSPORT = b"\x02"


def attribute_bytes(value: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """The transport tag and the bytes of one attribute's value."""
    binary = value.get("BinaryValue")
    if binary is not None:
        return _BINARY_TRANSPORT, base64.b64decode(binary, validate=True)
    return _STRING_TRANSPORT, str(value["StringValue"]).encode()


def message_bytes(body: bytes, attributes: Attributes) -> int:
    """The message's size in bytes: body, and names, types and values of its attributes."""
    return len(body) + sum(
        len(name.encode()) + len(value["DataType"].encode()) + len(attribute_bytes(value)[1])
        for name, value in attributes.items()
    )


def body_md5(body: bytes) -> str:
    """MD5 of the body, in hexadecimal: `MD5OfMessageBody` and `MD5OfBody`."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def attributes_md5(attributes: Attributes) -> str | None:
    """MD5 of attributes, in hexadecimal, or None when there are none, for SQS then omits the field.

    The digest runs over name, data type, transport tag and value of each attribute in the order of names; each piece
    but the tag is preceded by its length in 4 bytes, big-endian. Source: "Amazon SQS message metadata" in the developer
    guide.
    """
    if not attributes:
        return None
    digest = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes):
        value = attributes[name]
        tag, content = attribute_bytes(value)
        for piece in (name.encode(), value["DataType"].encode()):
            digest.update(len(piece).to_bytes(4, "big") + piece)
        digest.update(tag + len(content).to_bytes(4, "big") + content)
    return digest.hexdigest()


def content_deduplication_id(body: bytes) -> str:
    """The deduplication id of `ContentBasedDeduplication`: SHA-256 of the body alone."""
    return hashlib.sha256(body).hexdigest()


def select_attributes(attributes: Attributes, wanted: Sequence[str]) -> Attributes:
    """The attributes that `MessageAttributeNames` asks for: names, `prefix.*`, or `All`, `.*` or `*` for all.

    As recorded from AWS: a name that no attribute has, or could have, is no error and selects nothing.
    """
    if not wanted or not attributes:
        return {}
    if any(name in ("All", ".*", "*") for name in wanted):
        return attributes
    prefixes = tuple(name[:-2] for name in wanted if name.endswith(".*"))
    names = frozenset(wanted)
    return {
        name: value for name, value in attributes.items() if name in names or (prefixes and name.startswith(prefixes))
    }
