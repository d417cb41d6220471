"""The checks of `doctor` on the journal's place: to write, to write only absent objects, to list, to read, to delete.

The object that it writes is below `check/`, where neither source nor sink reads anything, and has a name of its own.
Where the place gives no answer, that is waited for once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from sqs_fifo_spark.cli.finding import FAILURE, Finding, failure, not_checked, ok, warning
from sqs_fifo_spark.cli.slow_calls import NoAnswerError, answer
from sqs_fifo_spark.errors import JournalUnavailableError, SqsFifoError
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.journal.location import S3Access, open_store
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.source.journal_objects import Journal

T = TypeVar("T")

_WRITE, _PUT, _READ, _LIST, _DELETE = (
    f"journal: {step}" for step in ("write", "put if absent", "read", "list", "delete")
)
_STEPS = (_WRITE, _PUT, _READ, _LIST, _DELETE)
_STORES = "Use a local path with hard links, S3, Google Cloud Storage or Azure"


class _NotAskedError(JournalUnavailableError):
    """The store gave no answer before, so it was not asked again."""


class _PatientStore:
    """A store that has `patience_s` for each answer, opening included, and is asked no more once one has not come."""

    def __init__(self, location: str, access: S3Access, patience_s: float) -> None:
        self.location = location
        self._patience_s = patience_s
        self._is_silent = False
        self.store = self.answer(lambda: open_store(location, access))
        self.location = self.store.location

    def __getattr__(self, name: str) -> Any:
        """Return this method of the store, whose answers are waited for."""
        method = getattr(self.store, name)
        return lambda *given: self.answer(lambda: method(*given))

    def answer(self, call: Callable[[], T]) -> T:
        if self._is_silent:
            raise _NotAskedError(f"'{self.location}' was not asked")
        try:
            return answer(call, f"the journal's place, '{self.location}'", self._patience_s)
        except NoAnswerError:
            self._is_silent = True
            raise JournalUnavailableError(
                f"'{self.location}' gave no answer within {self._patience_s:g} s. Check the network and the location. "
                "An object that was written without an answer may stay below check/, where nothing reads it"
            ) from None


def check_journal(
    location: str | None, access: S3Access, queue_arn: Callable[[], str | None], patience_s: float
) -> Iterator[Finding]:
    """Yield the findings on the journal at `location`, if there is one to check, and on its queue.

    A step that is not got to, because one before it failed, is not said to be well. An answer is waited for
    `patience_s`, and a place that gives none is asked no more.
    """
    if location is None:
        return
    try:
        store = _PatientStore(location, access, patience_s)
        made = store.answer(lambda: _missing_folders(store.store))  # a file server's mount may hang
    except JournalUnavailableError as error:
        yield failure("journal", str(error))
        return
    left = dict.fromkeys(_STEPS)
    for finding in _check_store(store):
        left.pop(finding.check)
        yield finding
    for step in left:
        yield not_checked(step, "a step before it failed")
    for folder in made:
        with suppress(OSError, JournalUnavailableError):  # somebody has put something there since
            store.answer(folder.rmdir)
    yield _owner(store, queue_arn())


def _missing_folders(store: Store) -> list[Path]:
    """Return the folders that a check makes on a path, innermost first: another user's query could not write there."""
    if not isinstance(store, FileStore):
        return []
    root = Path(store.location)
    return [folder for folder in (root / "check", root, *root.parents) if not folder.exists()]


def _check_store(store: Store) -> Iterator[Finding]:
    """Yield the finding of each of _STEPS, up to the one that fails; written objects are deleted in any case."""
    token = uuid.uuid4().hex
    folder, first = f"check/{token}", token.encode()
    name = f"{folder}/doctor"
    is_written = False
    step = _WRITE
    try:
        store.put_if_absent(name, first)  # its answer may be lost, so the object that stands there counts
        is_written = True
        yield ok(step, f"an object was written to {store.location}")
        step = _PUT
        was_put_again = store.put_if_absent(name, b"second")
        step = _READ
        kept = store.get(name)
        yield ok(step, "it was read") if kept else failure(step, "what was written is not found", _STORES)
        if was_put_again or kept not in (first, None):
            says = "a second object of the same name was taken, so two attempts at one partition are not kept apart"
            yield failure(_PUT, says, _STORES)
        else:
            yield ok(_PUT, "a second object of the same name was refused")
        step = _LIST
        is_listed = store.list(folder) == [name]
        yield ok(step, "it was listed") if is_listed else failure(step, "what was written is not listed", _STORES)
    except JournalUnavailableError as error:
        yield failure(step, str(error))
    with suppress(_NotAskedError):
        deleted = _delete(store, folder, name)  # also an object whose write had no answer
        if is_written or deleted.level == FAILURE:
            yield deleted


def _delete(store: Store, folder: str, name: str) -> Finding:
    try:
        store.delete([name])
        is_left = bool(store.list(folder))
    except _NotAskedError:
        raise
    except JournalUnavailableError as error:
        return failure(_DELETE, str(error))
    return failure(_DELETE, f"'{name}' is still listed", _STORES) if is_left else ok(_DELETE, "it was deleted")


def _owner(store: Store, queue_arn: str | None) -> Finding:
    check = "journal: queue"
    try:
        journal = Journal.look(store)
        if journal is None:
            return ok(check, "there is no journal yet: a query makes it when it starts")
        if queue_arn is None:
            return warning(check, f"it belongs to {journal.queue_arn}; this queue's ARN is not known, as said above")
        Journal.find(store, queue_arn)
        claims = journal.claims()
    except _NotAskedError:
        return not_checked(check, "the journal's place gave no answer")
    except SqsFifoError as error:
        return failure(check, str(error))
    used = ", and has been used" if claims else ""
    return ok(check, f"it is this queue's{used}")
