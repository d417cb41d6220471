"""Payloads whose messages are gone, until they are deleted, too: of driver and tasks.

A message and its payload cannot be deleted in one step. The message goes first, so that a crash between leaves an
object that nobody needs, and never a pointer to nothing. Until S3 has confirmed the delete, links and ledgers name the
payload.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from sqs_fifo_spark.errors import PayloadError
from sqs_fifo_spark.payloads.pointer import Pointer, from_url
from sqs_fifo_spark.source.pool import IN_CALLING_THREAD, Answer, Pool

_log = logging.getLogger(__name__)
MOST_LEFT = 10_000
"""Payloads that are named: if S3 deletes none for so long that there are more, the oldest ones stay there."""

Delete = Callable[[Sequence[Pointer]], Mapping[Pointer, PayloadError]]
"""Deletes payloads; returns those that may be there still, each with the reason."""


class PayloadDeletes:
    """The payloads that one driver, or one attempt of a task, has to delete. Any thread may call it."""

    def __init__(self, delete: Delete | None, pool: Pool = IN_CALLING_THREAD) -> None:
        """Without `delete` they are only named, for a query that deletes payloads."""
        self._delete = delete
        self._pool = pool
        # `_lock` guards the rest; no I/O while it is held.
        self._lock = threading.Lock()
        self._left: dict[str, None] = {}
        self._is_busy = False
        self._last: Answer[None] | None = None

    @property
    def left(self) -> tuple[str, ...]:
        """The URLs of those that may be there still."""
        with self._lock:
            return tuple(self._left)

    def add(self, urls: Iterable[str]) -> None:
        """Take over these, of messages that SQS has confirmed to have deleted, or that are gone by other proof."""
        with self._lock:
            self._left.update(dict.fromkeys(urls))
            excess = list(self._left)[: max(0, len(self._left) - MOST_LEFT)]
            for url in excess:
                del self._left[url]
        if excess:
            _log.warning("%d payload(s) on S3 are not deleted any more, such as %r", len(excess), excess[0])

    def begin(self) -> None:
        """Begin to delete those that are left, unless that is under way."""
        with self._lock:
            doomed = list(self._left)
            if self._delete is None or self._is_busy or not doomed:
                return
            last, self._last = self._last, None
            delete, self._is_busy = self._delete, True
        try:
            if last is not None:
                last.result()  # it is over, so this only raises its error
            self._last = self._pool.submit(lambda: self._run(delete, doomed))
        except BaseException:
            self._is_busy = False
            raise

    def _run(self, delete: Delete, doomed: Sequence[str]) -> None:
        try:
            by_pointer = {from_url(url): url for url in doomed}
            failed = delete(list(by_pointer))
            kept = {by_pointer[pointer] for pointer, error in failed.items() if not error.is_final}
            with self._lock:
                for url in doomed:
                    if url not in kept:
                        self._left.pop(url, None)
        finally:
            self._is_busy = False
        for is_final in (True, False):
            reasons = {by_pointer[each]: error for each, error in failed.items() if error.is_final is is_final}
            if reasons:
                url, error = next(iter(reasons.items()))
                _log.warning(
                    "%d payload(s) on S3 %s, such as %r (%s)",
                    len(reasons),
                    "cannot be deleted, and stay" if is_final else "are not deleted yet",
                    url,
                    error,
                )
