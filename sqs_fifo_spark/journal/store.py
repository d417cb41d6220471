"""Durable bytes under a name, on a local path or an object store: get, list, put-if-absent, delete.

Names are relative paths with `/`. The journal relies on this, of every store here:

- an object appears whole or not at all, and never changes afterwards;
- of several `put_if_absent` for one name at most one returns True, unless the object was deleted in between;
- one that returns False has seen the object;
- a list made after a put has returned shows the object.

Error semantics: anything that keeps the store from a definite answer is JournalUnavailableError, also after a put that
may have happened. A `put_if_absent` that returns False may have been beaten by its own earlier try, whose answer was
lost: the caller recognises its own content.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Protocol

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import JournalUnavailableError

RETRY_BUDGET = timedelta(seconds=30)
PAUSES_S = (0.05, 0.2, 0.5)


class Store(Protocol):
    """The journal's needs of the place where it lives."""

    location: str

    def get(self, name: str) -> bytes | None:
        """Return the object's bytes, or None if there is none. They are durable, so they may be acted upon.

        Its writer may have died before that was so: objects that a list or a range shows may be gone after a loss of
        power.
        """

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        """Return up to `length` bytes from `start`, fewer at the object's end, or None if there is no object."""

    def list(self, prefix: str) -> list[str]:
        """Return the names of all objects below the folder `prefix`, sorted."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Create the object durably and return True, or return False if the name is taken: the object was seen."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove the objects; one that is not there is as good as removed."""


def put_until_seen(
    create: Callable[[], bool], is_there: Callable[[], bool], *, clock: Clock, name: str, location: str
) -> bool:
    """Return `create()`, which puts if absent; a False is believed only when the object is there.

    S3 answers one of several racing puts with a conflict that asks for another try. Obstore reports that as a name that
    is taken, though the other put may have failed. Raises JournalUnavailableError when that does not end.
    """
    deadline = None
    for pause_s in itertools.chain(PAUSES_S, itertools.repeat(1.0)):
        if create():
            return True
        if is_there():
            return False
        # Counted from the first conflict: a large object may take longer to send.
        deadline = deadline or clock.monotonic() + RETRY_BUDGET.total_seconds()
        if clock.monotonic() + pause_s > deadline:
            break
        clock.sleep(pause_s)
    raise JournalUnavailableError(
        f"cannot write '{name}' in the journal at '{location}': the store says that it exists, but does not find it."
    )
