"""S3 with the payloads of all messages and a time for each request: as little work as an answer takes.

`python -m tests.bench.payload_store 20` serves GET of `/BUCKET/SIZE/NUMBER`, each after 20 ms. moto takes a core for a
few hundred requests a second, so a drain would measure that.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqs_fifo_spark.payloads.pointer import SIZE_ATTRIBUTE, Pointer
from sqs_fifo_spark.payloads.pointer import body_of as body_of_pointer
from tests.bench.queue_process import body_of, started

BUCKET = "payloads"
_ASKED = re.compile(rb"GET /[^/]+/(\d+)/(\d+)[ ?]")
_RANGE = re.compile(rb"\r\nrange: bytes=(\d+)-(\d+)\r\n", re.IGNORECASE)


def pointer_message(number: int, size: int) -> dict[str, Any]:
    """Return a message that points to the body of `size` bytes of this number."""
    attribute = {"DataType": "Number", "StringValue": str(size)}
    body = body_of_pointer(Pointer(BUCKET, f"{size}/{number}"))
    return {"MessageBody": body, "MessageAttributes": {SIZE_ATTRIBUTE: attribute}}


def _answer(head: bytes) -> bytes:
    asked, part = _ASKED.match(head), _RANGE.search(head)
    if asked is None:
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    body = body_of(int(asked[2]), int(asked[1])).encode()
    status, place = b"200 OK", b""
    if part is not None:
        last = min(int(part[2]), len(body) - 1)
        status, place = b"206 Partial Content", b"Content-Range: bytes %s-%d/%d\r\n" % (part[1], last, len(body))
        body = body[int(part[1]) : last + 1]
    stamp = b'ETag: "one"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n'
    return b"HTTP/1.1 %s\r\n%s%sContent-Length: %d\r\n\r\n" % (status, place, stamp, len(body)) + body


class _Answers(asyncio.Protocol):
    """One connection, whose client waits for each answer before it asks again."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._asked = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._asked += data
        if self._asked.endswith(b"\r\n\r\n"):
            asyncio.get_running_loop().call_later(self._delay_s, self._transport.write, _answer(self._asked))
            self._asked = b""


async def _serve(delay_s: float) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Answers(delay_s), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


@contextmanager
def payload_store(delay_ms: float) -> Iterator[tuple[str, int]]:
    """Run it, and yield its endpoint and its process."""
    with started(["-m", "tests.bench.payload_store", str(delay_ms)]) as found:
        yield found


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1]) / 1000))
