"""Reads SQS's answer to a lean call, from the connection's own socket and to a deadline.

Of an answer as SQS gives it only the length is read; any other is http.client's matter.

The deadline of a receive moves while bytes come, because its messages may need longer than any other answer, and are
hidden meanwhile. When they are worth nothing any more, the answer is cut off: the messages that are whole count.
"""

from __future__ import annotations

import base64
import codecs
import http
import http.client
import io
import json
import math
import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import botocore.parsers

from sqs_fifo_spark.aws.per_call import PerCall
from sqs_fifo_spark.clock import SYSTEM_CLOCK

_BUFFER = 1 << 16
"""Bytes; most answers come in one piece."""
_FIRST_MESSAGE = re.compile(r'\s*\{\s*"Messages"\s*:\s*\[\s*')
_NEXT_MESSAGE = re.compile(r"\s*,\s*")


@dataclass
class Arrival:
    """The time that the answer to one receive may take and, once it has begun, the way it comes."""

    wait_s: float
    """SQS waits so long for a message before it answers."""
    within_s: float
    """After this time from when SQS has taken the messages, they are worth nothing."""
    waited_s: float | None = None
    """Time from the call until its first byte was read, if one was."""
    is_cut: bool = False
    """True if it was still coming when its time was over."""
    _sent_at: float = 0.0
    _idle_s: float = math.inf

    def begin(self, read_timeout_s: float) -> None:
        """Note that the call is sent now, on a connection that waits so long for the first byte."""
        self._sent_at, self._idle_s = SYSTEM_CLOCK.monotonic(), read_timeout_s - self.wait_s
        self.waited_s, self.is_cut = None, False

    def limits(self) -> tuple[float, float]:
        """Note the first byte. Return the time by which the last must come, and the time that each piece may take."""
        self.waited_s = SYSTEM_CLOCK.monotonic() - self._sent_at
        return self._sent_at + min(self.waited_s, self.wait_s) + self.within_s, self._idle_s


arriving = PerCall[Arrival]("arriving")
"""Lets a lean receive come so. Other clients pay no regard to it."""


class _Until(io.RawIOBase):
    """Reads a socket until a time on the monotonic clock, which `arrival` moves; then raises TimeoutError."""

    def __init__(self, connection: Any, until: float, arrival: Arrival | None) -> None:
        self._socket = connection.sock
        self._until = until
        self._idle_s = math.inf
        self._arrival = arrival

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._until - SYSTEM_CLOCK.monotonic()
        try:
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(min(left_s, self._idle_s))
            count: int = self._socket.recv_into(buffer)
        except TimeoutError:
            if self._arrival and self._arrival.waited_s is not None:
                self._arrival.is_cut = SYSTEM_CLOCK.monotonic() >= self._until
            raise
        if self._arrival and self._arrival.waited_s is None:
            self._until, self._idle_s = self._arrival.limits()
        return count


def read_answer(
    connection: Any, until: float, arrival: Arrival | None = None
) -> tuple[http.client.HTTPResponse | None, bytes]:
    """Return the answer on that connection, which may be used again if it is open: the response if a refusal, the body.

    If there is an `arrival`, only the first byte must come by `until`. Of an answer that is cut the body has the
    messages that are whole, if there is one.

    Raises the socket's errors, or HTTPException for an answer that SQS never gives; then more may be to come.
    """
    file = io.BufferedReader(_Until(connection, until, arrival), _BUFFER)
    content = _plain_content(file, arrival)
    if content is not None:
        if arrival and arrival.is_cut:
            connection.close()
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


def parse_answer(operation: str, content: bytes) -> dict[str, Any]:
    try:
        is_plain = b"null" not in content and b"BinaryValue" not in content
        answer = json.loads(content.decode() or "{}", object_hook=None if is_plain else _as_boto3_has_it)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise botocore.parsers.ResponseParserError(f"the answer to {operation} is no JSON object")
    return answer


def _plain_content(file: io.BufferedReader[Any], arrival: Arrival | None) -> bytes | None:
    """Return the body of an answer as SQS gives it: 200, of a given length, on a connection that stays.

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
    pieces, left = list[bytes](), int(lengths[0])
    try:
        while left and (piece := file.read1(min(left, _BUFFER))):
            pieces.append(piece)
            left -= len(piece)
    except TimeoutError:
        whole = _whole_messages(b"".join(pieces)) if arrival and arrival.is_cut else None
        if whole is None:
            raise
        return whole
    if left:
        raise http.client.IncompleteRead(b"".join(pieces))
    return b"".join(pieces)


def _whole_messages(content: bytes) -> bytes | None:
    """Return the answer to a receive, cut after the last whole message; None if it has none."""
    text = codecs.getincrementaldecoder("utf-8")().decode(content)  # the last character may be cut, too
    decoder, end = json.JSONDecoder(), None
    separator = _FIRST_MESSAGE.match(text)
    while separator:
        try:
            end = decoder.raw_decode(text, separator.end())[1]
        except (ValueError, RecursionError):
            break
        separator = _NEXT_MESSAGE.match(text, end)
    return None if end is None else f"{text[:end]}]}}".encode()


def _as_boto3_has_it(found: dict[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in found.items() if value is not None}
    blob = found.get("BinaryValue")  # an attribute of this name is an object
    if isinstance(blob, str):
        found["BinaryValue"] = base64.b64decode(blob)
    return found
