"""Receipt handles: each names one delivery of one message, in a form nobody should take apart."""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass

_SEQUENCE_BYTES = 16
_COUNT_BYTES = 4
_TAG_BYTES = 8
_CHECK_BYTES = 4
_PAYLOAD_BYTES = _TAG_BYTES + _SEQUENCE_BYTES + _COUNT_BYTES


@dataclass(frozen=True, slots=True)
class HandleParts:
    """The `receive`-th delivery of the message `sequence`."""

    sequence: int
    receive: int


def encode(tag: int, sequence: int, receive: int) -> str:
    """The handle of a delivery by the queue `tag`."""
    payload = (
        tag.to_bytes(_TAG_BYTES, "big")
        + sequence.to_bytes(_SEQUENCE_BYTES, "big")
        + receive.to_bytes(_COUNT_BYTES, "big")
    )
    return base64.b64encode(payload + zlib.crc32(payload).to_bytes(_CHECK_BYTES, "big")).decode()


def decode(tag: int, handle: str) -> HandleParts | None:
    """The delivery that `handle` names, or None when the queue `tag` never gave out such a handle."""
    try:
        raw = base64.b64decode(handle.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        return None
    payload, check = raw[:_PAYLOAD_BYTES], raw[_PAYLOAD_BYTES:]
    if len(check) != _CHECK_BYTES or zlib.crc32(payload).to_bytes(_CHECK_BYTES, "big") != check:
        return None
    if int.from_bytes(payload[:_TAG_BYTES], "big") != tag:
        return None
    count_from = _TAG_BYTES + _SEQUENCE_BYTES
    return HandleParts(
        int.from_bytes(payload[_TAG_BYTES:count_from], "big"), int.from_bytes(payload[count_from:], "big")
    )
