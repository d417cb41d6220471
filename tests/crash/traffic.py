"""The messages of a run: a producer that keeps sending, and what the queue says happened to each message."""

from __future__ import annotations

import functools
import random
import threading
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.local import Event, LocalQueueServer
from tests.helpers import depth
from tests.spark.support import Sent

GROUPS = 48
ENTRIES = 10
PAUSE_S = 0.25
"""Between two calls: about 40 messages a second."""
RESENT = 0.05
"""The share of sendings that repeat one of the last hundred messages, with its deduplication id."""
_RECENT = 100


class Traffic:
    """A queue on `server`, and a thread that sends to it, in a `with` block; all of it goes round HTTP.

    So the faults, which are for the source, do not touch it.
    """

    def __init__(
        self, server: LocalQueueServer, name: str, *, seed: int, padding: int = 0, pause_s: float = PAUSE_S
    ) -> None:
        """Bodies get up to `padding` characters more than they need; `pause_s` is between two calls."""
        self._server = server
        self._padding = padding
        self._pause_s = pause_s
        self._dice = random.Random(f"{seed}/{name}/traffic")
        self.url: str = self._call("CreateQueue", QueueName=name, Attributes={"FifoQueue": "true"})["QueueUrl"]
        # Written by the producer's thread and the server's; read when both are done.
        self.sent: dict[str, Sent] = {}
        self.deleted_at: dict[str, float] = {}
        self.resent = 0
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="producer")
        self._result: Future[None] | None = None

        def listen(event: Event) -> None:
            if event.kind == "deleted" and event.queue == name:
                self.deleted_at[event.message_id] = event.at

        server.run(lambda model: model.on_event(listen))

    def __enter__(self) -> Traffic:
        self._result = self._pool.submit(self._send)
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        self._pool.shutdown()

    def check(self) -> None:
        """Raise what went wrong with the sending."""
        if self._result is not None and self._result.done():
            self._result.result()

    def stop(self) -> None:
        """Send no more, and return when the last message is sent."""
        self._stopping.set()
        if self._result is not None:
            self._result.result()

    def depth(self) -> tuple[int, int]:
        """Return how many messages are visible, and how many are in flight."""
        return depth(functools.partial(self._call, "GetQueueAttributes"), self.url)

    def _send(self) -> None:
        made: list[tuple[str, str]] = []
        while not SYSTEM_CLOCK.wait(self._stopping, self._pause_s):
            entries = []
            for _ in range(ENTRIES):
                if made and self._dice.random() < RESENT:
                    self.resent += 1
                    entries.append(self._dice.choice(made[-_RECENT:]))
                else:
                    made.append((f"group-{self._dice.randrange(GROUPS)}", f"message-{len(made)}"))
                    entries.append(made[-1])
            answer = self._call(
                "SendMessageBatch",
                QueueUrl=self.url,
                Entries=[
                    {
                        "Id": str(position),
                        "MessageBody": self._body(deduplication_id),
                        "MessageGroupId": group,
                        "MessageDeduplicationId": deduplication_id,
                    }
                    for position, (group, deduplication_id) in enumerate(entries)
                ],
            )
            for (group, _), done in zip(entries, answer["Successful"], strict=True):
                self.sent[done["MessageId"]] = Sent(group, int(done["SequenceNumber"]))

    def _body(self, deduplication_id: str) -> str:
        return deduplication_id.ljust(zlib.crc32(deduplication_id.encode()) % (self._padding + 1), "x")

    def _call(self, action: str, **request: Any) -> dict[str, Any]:
        return self._server.run(lambda model: model.call(action, request))
