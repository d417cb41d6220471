"""Reads what SQS answers to a lean call, from the connection's own socket and to a deadline.

Of an answer as SQS gives it only the length is read; any other is http.client's matter.
"""

from __future__ import annotations

import base64
import http
import http.client
import io
import json
from types import SimpleNamespace
from typing import Any

import botocore.parsers

from sqs_fifo_spark.clock import SYSTEM_CLOCK

_BUFFER = 1 << 16
"""Bytes; most answers come in one piece."""


class _Until(io.RawIOBase):
    """What a connection's socket brings until a time on the monotonic clock; then TimeoutError."""

    def __init__(self, connection: Any, until: float) -> None:
        self._socket = connection.sock
        self._until = until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._until - SYSTEM_CLOCK.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._socket.settimeout(left_s)
        count: int = self._socket.recv_into(buffer)
        return count


def received(connection: Any, until: float) -> tuple[http.client.HTTPResponse | None, bytes]:
    """Return the answer on that connection, which may be used again if it is open: the response if a refusal, the body.

    Raises what a socket raises, or HTTPException for what SQS never answers; then more may be to come.
    """
    file = io.BufferedReader(_Until(connection, until), _BUFFER)
    content = _plain_content(file)
    if content is not None:
        return None, content
    response = http.client.HTTPResponse(SimpleNamespace(makefile=lambda mode: file), method="POST")  # type: ignore[arg-type]
    response.begin()
    content = response.read()
    if not content and response.length is None and not response.chunked:
        raise http.client.IncompleteRead(b"")  # http.client takes an end within the headers for theirs
    is_refusal = response.status >= 300
    if not is_refusal and (response.status != 200 or (response.chunked and not content)):
        raise http.client.HTTPException(f"status {response.status}")  # a second answer may follow
    # A server may say that it waited too long, and have got the call meanwhile.
    if response.will_close or not content or response.status == http.HTTPStatus.REQUEST_TIMEOUT:
        connection.close()
    return response if is_refusal else None, content


def parsed(operation: str, content: bytes) -> dict[str, Any]:
    try:
        is_plain = b"null" not in content and b"BinaryValue" not in content
        answer = json.loads(content.decode() or "{}", object_hook=None if is_plain else _as_boto3_has_it)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise botocore.parsers.ResponseParserError(f"the answer to {operation} is no JSON object")
    return answer


def _plain_content(file: io.BufferedReader[Any]) -> bytes | None:
    """Return the body of an answer as SQS gives it: 200, of a told length, on a connection that stays.

    Returns None for any other, and leaves that to http.client, of which nothing is read then. That takes a large part
    of a call's time for headers that nobody asks for.
    """
    there = file.peek()
    end = there.find(b"\r\n\r\n")
    if end < 0 or not there.startswith(b"HTTP/1.1 200 "):
        return None
    lengths = []
    for line in there[:end].split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip()
        if name == b"content-length":
            lengths.append(value)
        is_other = name == b"connection" and value.lower() != b"keep-alive"
        if is_other or name == b"transfer-encoding" or line[:1] in b" \t" or b"\n" in line:
            return None
    if len(lengths) != 1 or not lengths[0].isdigit():
        return None
    file.read(end + 4)
    content = file.read(int(lengths[0]))
    if len(content) < int(lengths[0]):
        raise http.client.IncompleteRead(content)
    return content


def _as_boto3_has_it(found: dict[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in found.items() if value is not None}
    blob = found.get("BinaryValue")  # an attribute of this name is an object
    if isinstance(blob, str):
        found["BinaryValue"] = base64.b64decode(blob)
    return found
