"""The pointer to a payload on S3 that a message carries as its body, as AWS's extended clients have it.

Sources: `sqs_extended_client/client.py` of amazon-sqs-extended-client 1.0.1, and "Managing large Amazon SQS messages
using Java and Amazon S3" in the SQS developer guide. The first class and name are today's, the others older.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from sqs_fifo_spark.option_rules import S3_PREFIXES

SIZE_ATTRIBUTE = "ExtendedPayloadSize"
SIZE_ATTRIBUTES = (SIZE_ATTRIBUTE, "SQSLargePayloadSize")
"""Names of the attribute that marks a pointer; its value is the payload's size in bytes."""
_LONGEST_BUCKET, _LONGEST_KEY = 255, 1_024
"""Bytes that S3 takes of either. What is longer leads nowhere, and an error would show all of it."""
_CLASS = "software.amazon.payloadoffloading.PayloadS3Pointer"
_CLASSES = (_CLASS, "com.amazon.sqs.javamessaging.MessageS3Pointer")


class Pointer(NamedTuple):
    """The place of a payload, and its size in bytes as the message states it; 0 if that is no number."""

    bucket: str
    key: str
    stated_size: int = 0

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


def pointer_in(body: str, attributes: Mapping[str, str | None]) -> Pointer | None:
    """Return the pointer that the message is; None for any other, a lookalike too.

    `attributes` are the values of its attributes that are strings or numbers, by name.
    """
    name = next((each for each in SIZE_ATTRIBUTES if each in attributes), None)
    if name is None or not body.lstrip().startswith("["):
        return None
    try:
        kind, place = json.loads(body)
        bucket, key = place["s3BucketName"], place["s3Key"]
        if kind not in _CLASSES or len(place) != 2 or "/" in bucket:
            return None
        if not _is_text(bucket, _LONGEST_BUCKET) or not _is_text(key, _LONGEST_KEY):
            return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    stated = attributes[name] or ""
    return Pointer(bucket, key, int(stated) if stated.isascii() and stated.isdigit() and len(stated) < 19 else 0)


def _is_text(value: Any, most: int) -> bool:
    # What JSON escapes may be half of a character, which has no bytes.
    return isinstance(value, str) and 0 < len(value.encode()) <= most


def body_of(pointer: Pointer) -> str:
    """Return the body of a message that carries this pointer."""
    return json.dumps([_CLASS, {"s3BucketName": pointer.bucket, "s3Key": pointer.key}])


def from_url(url: str) -> Pointer:
    """Return the pointer whose `url` this is, in either spelling of S3's scheme; the key may be empty."""
    scheme, _, place = url.partition("//")
    if scheme not in S3_PREFIXES:
        raise ValueError(url)
    bucket, _, key = place.partition("/")
    return Pointer(bucket, key)
