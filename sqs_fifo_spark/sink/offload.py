"""A large body's way out of its message: the object that takes it, and the entry that points there.

Contract. The key of an object is made of the write, the queue, the row's group and deduplication id, and the SHA-256 of
the body. So an attempt that writes a row again writes the same bytes under the same key, a row with the same id and
another body has a key of its own, and a message that a reader has done with takes no payload away from an equal row of
another micro-batch. The object is there before any call that sends the row.

With deduplication by content, the entry has the id that SQS would have made of the body itself, its SHA-256: so SQS
takes equal bodies for equal whether they stand in the message or on S3. Source: `MessageDeduplicationId` of
`SendMessage` in the SQS API.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from sqs_fifo_spark.payloads.pointer import SIZE_ATTRIBUTE, Pointer, body_of, from_url

MAX_PAYLOAD_BYTES = 2**31 - 1
"""Neither Spark's strings nor the readers of AWS's clients hold more."""


@dataclass(frozen=True)
class Payload:
    """A body on its way to S3."""

    pointer: Pointer
    data: bytes

    def __repr__(self) -> str:
        return f"<Payload {self.pointer.url} bytes={len(self.data)}>"


@dataclass(frozen=True)
class PayloadForm:
    """The place of a write's payloads, and the rows that have one."""

    location: str
    """The checked `payloadLocation`."""
    threshold_bytes: int
    """Bytes of body and attributes above which the body goes to S3, unless the queue takes less."""
    write: str
    """The queue, and the micro-batch or batch write: its payloads have keys that no other has."""

    def offload(self, data: bytes, entry: dict[str, Any], *, by_column: bool) -> Payload:
        """Have the entry point to its body, which is `data`; return that with its place."""
        sha = hashlib.sha256(data).hexdigest()
        name = _name([self.write, entry["MessageGroupId"], entry["MessageDeduplicationId"] if by_column else "", sha])
        bucket, prefix, _ = from_url(self.location.rstrip("/"))
        pointer = Pointer(bucket, f"{prefix}/{name}" if prefix else name, len(data))
        entry["MessageBody"] = body_of(pointer)
        size = {"DataType": "Number", "StringValue": str(len(data))}
        entry["MessageAttributes"] = {**entry.get("MessageAttributes", {}), SIZE_ATTRIBUTE: size}
        entry.setdefault("MessageDeduplicationId", sha)
        return Payload(pointer, data)


def _name(parts: list[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
