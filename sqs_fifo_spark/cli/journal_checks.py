"""What `doctor` tries on the journal's place: to write, to write only what is absent, to list, to read, to delete.

The object that it writes is below `check/`, where neither source nor sink reads anything, and has a name of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sqs_fifo_spark.cli.finding import Finding, failure, ok, warning
from sqs_fifo_spark.errors import JournalUnavailableError, SqsFifoError
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.journal.location import open_store
from sqs_fifo_spark.journal.object_store import S3Access
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.source.journal import Journal

_STORES = "Use a local path with hard links, S3, Google Cloud Storage or Azure"


def check_journal(location: str, access: S3Access, queue_arn: str | None) -> Iterator[Finding]:
    """Yield what is found of the journal at `location`; with `queue_arn`, whether it is that queue's."""
    try:
        store = open_store(location, access)
    except JournalUnavailableError as error:
        yield failure("journal", str(error))
        return
    made = _missing_folders(store)
    yield from _check_store(store)
    for folder in made:
        with suppress(OSError):  # somebody has put something there since
            folder.rmdir()
    yield _owner(store, queue_arn)


def _missing_folders(store: Store) -> list[Path]:
    """Return the folders that a check makes on a path, innermost first: another user's query could not write there."""
    if not isinstance(store, FileStore):
        return []
    root = Path(store.location)
    return [folder for folder in (root / "check", root, *root.parents) if not folder.exists()]


def _check_store(store: Store) -> Iterator[Finding]:
    token = uuid.uuid4().hex
    folder, first = f"check/{token}", token.encode()
    name = f"{folder}/doctor"
    step = "journal: write"
    try:
        store.put_if_absent(name, first)  # its answer may be lost, so what counts is what stands there
        yield ok(step, f"an object was written to {store.location}")
        step = "journal: put if absent"
        was_put_again = store.put_if_absent(name, b"second")
        step = "journal: read"
        kept = store.get(name)
        yield ok(step, "it was read") if kept else failure(step, "what was written is not found", _STORES)
        if was_put_again or kept not in (first, None):
            says = "a second object of the same name was taken, so two attempts at one partition are not kept apart"
            yield failure("journal: put if absent", says, _STORES)
        else:
            yield ok("journal: put if absent", "a second object of the same name was refused")
        step = "journal: list"
        is_listed = store.list(folder) == [name]
        yield ok(step, "it was listed") if is_listed else failure(step, "what was written is not listed", _STORES)
    except JournalUnavailableError as error:
        yield failure(step, str(error))
    yield _delete(store, folder, name)  # also what was written without an answer


def _delete(store: Store, folder: str, name: str) -> Finding:
    step = "journal: delete"
    try:
        store.delete([name])
        is_left = bool(store.list(folder))
    except JournalUnavailableError as error:
        return failure(step, str(error))
    return failure(step, f"'{name}' is still listed", _STORES) if is_left else ok(step, "it was deleted")


def _owner(store: Store, queue_arn: str | None) -> Finding:
    check = "journal: queue"
    try:
        journal = Journal.look(store)
        if journal is None:
            return ok(check, "there is no journal yet: a query makes it when it starts")
        if queue_arn is None:
            return warning(check, f"it belongs to {journal.queue_arn}; this queue's ARN is not known, as said above")
        Journal.find(store, queue_arn)
    except SqsFifoError as error:
        return failure(check, str(error))
    claims = journal.claims()
    return ok(check, f"it is this queue's; {len(claims)} claims stand" if claims else "it is this queue's")
