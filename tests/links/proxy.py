"""A link with physics, in front of servers of HTTP/1.1 on this machine: the local queue, moto's S3.

All connections of a `Link`, to whichever server, share its bandwidth in each direction. Each request is late, or comes
to grief, as the troubles of its action say, which may be set at any time, from any thread. What it does to requests
follows from the seed; which request is which follows from the order in which they come.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

CHUNK = 16 * 1024
"""A connection carries so many bytes before it is the next one's turn."""
FOLDERS = ("epochs", "ledger", "drivers", "skipped")
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """The delay of requests, half of it on each way, and the probability that each comes to grief."""

    delay_s: float = 0.0
    hang: float = 0.0
    """The request goes into a black hole: it does not come to the server, and the connection stays open."""
    reset: float = 0.0
    """The connection is reset before the request comes to the server."""
    lose: float = 0.0
    """The server has answered, and the connection is closed in the answer's place."""
    cut: float = 0.0
    """The connection is reset in the midst of the answer."""

    def draw(self, dice: random.Random) -> str:
        """Return the name of the grief that the next request comes to, or nothing."""
        drawn = dice.random()
        for each in fields(self)[1:]:
            drawn -= getattr(self, each.name)
            if drawn < 0:
                return each.name
        return ""


class _Head(NamedTuple):
    """The lines of a request or an answer before its body."""

    raw: bytes
    start: list[str]
    fields: dict[str, str]

    @property
    def action(self) -> str:
        """Return the action of a request: SQS's name of it, or method and folder, such as `PUT epochs`."""
        if named := self.fields.get("x-amz-target"):
            return named.rpartition(".")[2]
        method, target = self.start[:2]
        if "list-type=" in target:
            return f"{method} list"
        return f"{method} {next((each for each in FOLDERS if f'/{each}/' in target), 'object')}"


async def _read_head(reader: asyncio.StreamReader) -> _Head:
    raw = await reader.readuntil(b"\r\n\r\n")
    start, *lines = raw.decode("latin-1").strip().split("\r\n")
    named = (line.partition(":") for line in lines)
    return _Head(raw, start.split(" ", 2), {name.lower(): value.strip() for name, _, value in named})


class _Way:
    """One direction. Who carries a chunk waits until those before it are through."""

    def __init__(self, bytes_per_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self.carried = 0
        self._free_at = 0.0

    async def carry(self, data: bytes, writer: asyncio.StreamWriter | None) -> None:
        """Write `data` when it is through; without a writer it is lost on the way."""
        self.carried += len(data)
        now = asyncio.get_running_loop().time()
        self._free_at = max(now, self._free_at) + len(data) / self.bytes_per_s
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)
        if writer is not None:
            writer.write(data)
            await writer.drain()

    async def carry_from(self, reader: asyncio.StreamReader, size: float, writer: asyncio.StreamWriter | None) -> None:
        """Carry `size` bytes, or all that come if it is infinite."""
        while size > 0:
            data = await reader.read(int(min(CHUNK, size)))
            if not data:
                if size == math.inf:
                    return
                raise ConnectionResetError("the other side has ended within a body")
            await self.carry(data, writer)
            size -= len(data)

    async def carry_body(self, head: _Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None) -> None:
        """Carry what follows the `head`, which says how long it is."""
        if head.fields.get("transfer-encoding", "").lower() != "chunked":
            is_answer = head.start[0].startswith("HTTP/")
            await self.carry_from(
                reader, float(head.fields.get("content-length", math.inf if is_answer else 0)), writer
            )
            return
        while size := int((line := await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            await self.carry(line, writer)
            await self.carry_from(reader, size + 2, writer)
        while line.strip():
            await self.carry(line, writer)
            line = await reader.readuntil(b"\r\n")
        await self.carry(line, writer)


class Link:
    """A link, in a `with` block, on a thread of its own; `front` puts it before a server."""

    def __init__(
        self,
        *,
        up_bytes_per_s: float = math.inf,
        down_bytes_per_s: float = math.inf,
        troubles: Mapping[str, Trouble] | None = None,
        seed: int = 0,
    ) -> None:
        self.up, self.down = _Way(up_bytes_per_s), _Way(down_bytes_per_s)
        """To the servers, and from them. `bytes_per_s` may be set at any time."""
        self.troubles: Mapping[str, Trouble] = troubles or {}
        """By action; that of "" is of all other actions. Replaced as a whole, never changed in place."""
        self.requests: Counter[str] = Counter()
        """The number of requests by action, and of each kind of grief."""
        self.griefs: Counter[str] = Counter()
        self._dice = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="link", daemon=True)
        self._servers: list[asyncio.Server] = []

    def __enter__(self) -> Link:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def front(self, url: str) -> str:
        """Return the URL, with the same path, at which the server of `url` is reached over this link."""
        there = urlsplit(url)
        port = self._run(self._listen(str(there.hostname), int(there.port or 80)))
        return there._replace(netloc=f"127.0.0.1:{port}").geturl()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _listen(self, host: str, port: int) -> int:
        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # Pythons 3.11 and 3.12 report a connection's task that was cancelled as an error of a callback.
            with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.CancelledError):
                await self._connect(reader, writer, *await asyncio.open_connection(host, port))

        self._servers.append(await asyncio.start_server(connect, "127.0.0.1", 0))
        return int(self._servers[-1].sockets[0].getsockname()[1])

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _connect(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> None:
        """Serve one connection until either side, or a grief, ends it: then both ends are closed at once."""
        asked: asyncio.Queue[tuple[_Head, Trouble, str]] = asyncio.Queue()

        async def carry_requests() -> None:
            while True:
                head = await _read_head(reader)
                trouble = self.troubles.get(head.action) or self.troubles.get("") or Trouble()
                grief = trouble.draw(self._dice)
                self.requests[head.action] += 1
                self.griefs.update([grief] if grief else [])
                await asyncio.sleep(trouble.delay_s / 2)
                if grief == "reset":
                    _reset(writer)
                    return
                if "expect" in head.fields:
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                if grief == "hang":
                    await self.up.carry_from(reader, math.inf, None)
                    return
                await self.up.carry(head.raw, back)
                await self.up.carry_body(head, reader, back)
                asked.put_nowait((head, trouble, grief))

        async def carry_answers() -> None:
            while True:
                request, trouble, grief = await asked.get()
                while (head := await _read_head(there)).start[1] == "100":
                    pass  # we have said so
                await asyncio.sleep(trouble.delay_s / 2)
                taker = None if grief == "lose" else writer
                await self.down.carry(head.raw, taker)
                if grief == "cut":
                    await self.down.carry_from(there, int(head.fields.get("content-length", 0)) // 2, writer)
                    _reset(writer)
                    return
                if request.start[0] != "HEAD" and head.start[1] not in ("204", "304"):
                    await self.down.carry_body(head, there, taker)
                if taker is None or head.fields.get("connection", "").lower() == "close":
                    return

        for each in (writer, back):
            each.transport.set_write_buffer_limits(CHUNK)
        ways = [asyncio.create_task(way()) for way in (carry_requests, carry_answers)]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for each in (writer, back):
                each.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
