"""The long polls of the local queue: those that wait for each queue, in the order in which they are served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.local.errors import SqsError
from sqs_fifo_spark.local.model import FifoModel

# How long a turn of a clock that is turned by hand may go unnoticed, in real seconds.
_TICK_S = 0.01


@dataclass(slots=True, eq=False)
class Waiter:
    """A receive that found nothing, until it finds something or `deadline` (wall clock, seconds) passes.

    Waiters of a queue with the same `attempt_id` are one client that asked again: they get the same answer.
    """

    queue_url: str
    receive: Callable[[], dict[str, Any]]
    is_gone: Callable[[], bool]
    deadline: float
    attempt_id: str | None = None
    answer: asyncio.Future[dict[str, Any]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def is_over(self) -> bool:
        """True if nobody waits for the answer any more."""
        return self.answer.done() or self.is_gone()


class WaitingRoom:
    """The waiters of all queues, first come first served. Lives on one event loop.

    Call `serve` after anything that may have made a message available; lapses of visibility timeouts and deadlines are
    noticed by themselves.
    """

    def __init__(self, model: FifoModel, clock: Clock) -> None:
        self._model = model
        self._clock = clock
        self._waiters: dict[str, deque[Waiter]] = {}
        self._timer: asyncio.TimerHandle | None = None
        # Written on the loop, read by any thread.
        self.count = 0

    async def wait(self, waiter: Waiter) -> dict[str, Any]:
        """Return the first answer that is not empty, or the empty one at the deadline.

        A caller that is cancelled leaves the room, and nothing is received on its behalf afterwards.
        """
        self._waiters.setdefault(waiter.queue_url, deque()).append(waiter)
        self._set_timer()
        self.count += 1
        try:
            return await waiter.answer
        finally:
            self.count -= 1
            queue = self._waiters.get(waiter.queue_url)
            if queue is not None and waiter in queue:
                queue.remove(waiter)

    def serve(self) -> None:
        """Give available messages to those that have waited longest, and end the polls whose time is up."""
        now = self._clock.now()
        for queue_url, queue in list(self._waiters.items()):
            try:
                self._serve_queue(queue_url, queue)
            except SqsError as error:
                # The queue was deleted under its waiters.
                for waiter in queue:
                    _refuse(waiter, error)
                queue.clear()
            for waiter in [waiter for waiter in queue if waiter.deadline <= now]:
                queue.remove(waiter)
                _answer(waiter, {})
            if not queue:
                del self._waiters[queue_url]
        self._set_timer()

    def close(self) -> None:
        """Answer everybody with nothing."""
        for queue in self._waiters.values():
            for waiter in queue:
                _answer(waiter, {})
        self._waiters.clear()
        self._set_timer()

    def _serve_queue(self, queue_url: str, queue: deque[Waiter]) -> None:
        while queue and self._model.has_deliverable(queue_url):
            waiter = queue[0]
            if waiter.is_over:
                queue.popleft()
            elif _receive_for(waiter):
                queue.popleft()
                self._serve_twins(waiter, queue)

    def _serve_twins(self, served: Waiter, queue: deque[Waiter]) -> None:
        if served.attempt_id is None:
            return
        for waiter in [waiter for waiter in queue if waiter.attempt_id == served.attempt_id]:
            if waiter.is_over or _receive_for(waiter):
                queue.remove(waiter)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiters:
            self._timer = asyncio.get_running_loop().call_later(_TICK_S, self.serve)


def _receive_for(waiter: Waiter) -> bool:
    """Receive for `waiter`, and return whether its wait is over."""
    try:
        response = waiter.receive()
    except Exception as error:
        # Raised where this one waits, so that the others are still served.
        _refuse(waiter, error)
        return True
    # Empty although something was there: its redrive policy took it away. Then it waits on.
    if response:
        _answer(waiter, response)
    return bool(response)


def _answer(waiter: Waiter, response: dict[str, Any]) -> None:
    if not waiter.answer.done():
        waiter.answer.set_result(response)


def _refuse(waiter: Waiter, error: Exception) -> None:
    if not waiter.answer.done():
        waiter.answer.set_exception(error)
