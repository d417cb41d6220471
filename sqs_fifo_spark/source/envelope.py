"""SNS's envelope: the JSON around a message that a topic sends to a queue without raw message delivery.

Source: "HTTP/HTTPS notification JSON format" and "Message attributes" in the SNS developer guide. What a FIFO topic
sends has a `SequenceNumber`, and no signature.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

Attributes = Mapping[str, Mapping[str, Any]]
"""Message attributes as SQS gives them: by name, `DataType` and `StringValue` or `BinaryValue`."""

_DROPPED = {"Type", "Signature", "SignatureVersion", "SigningCertURL", "UnsubscribeURL"}
_KNOWN = _DROPPED | {"Message", "MessageAttributes", "MessageId", "SequenceNumber", "Subject", "Timestamp", "TopicArn"}
# Of no other century, so that no reader's time zone makes a year of it that it does not have.
_TIME = re.compile(r"(20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Notification(NamedTuple):
    """The contents of an envelope."""

    body: str
    attributes: Attributes
    sns: dict[str, Any]
    """The value of the column `sns`; its `timestamp` is in microseconds since the Unix epoch."""


def open_envelope(body: str) -> Notification | None:
    """Return the contents of a body that is an SNS notification; None for any other, which is to be left as it is.

    A body is one only if all of it has the form that SNS gives it, and nothing else is in there: so nothing of a
    lookalike is lost. An envelope inside the message is part of that.
    """
    if '"TopicArn"' not in body:
        return None
    try:
        envelope = json.loads(body, object_pairs_hook=_without_doubles)
        if envelope["Type"] != "Notification" or not envelope.keys() <= _KNOWN:
            return None
        return Notification(
            body=_text(envelope["Message"]),
            attributes={name: _attribute(each) for name, each in envelope.get("MessageAttributes", {}).items()},
            sns={
                "topicArn": _text(envelope["TopicArn"]),
                "messageId": _text(envelope["MessageId"]),
                "sequenceNumber": _text_or_none(envelope.get("SequenceNumber")),
                "subject": _text_or_none(envelope.get("Subject")),
                "timestamp": _micros(_text(envelope["Timestamp"])),
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _attribute(given: Mapping[str, Any]) -> dict[str, Any]:
    kind, value = _text(given["Type"]), _text(given["Value"])
    if given.keys() != {"Type", "Value"}:
        raise ValueError(given)
    if kind != "Binary":
        return {"DataType": kind, "StringValue": value}
    data = base64.b64decode(value, validate=True)
    if base64.b64encode(data).decode() != value:
        raise ValueError(value)
    return {"DataType": kind, "BinaryValue": data}


def _micros(text: str) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(text)
    at = datetime.fromisoformat(f"{found[1]}+00:00")
    return (at - _EPOCH) // timedelta(microseconds=1) + int((found[2] or "").ljust(6, "0"))


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = {_text(name): value for name, value in pairs}
    if len(found) < len(pairs):
        raise ValueError(pairs)
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    value.encode()  # what JSON escapes may be half of a character, which no column takes
    return value


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)
