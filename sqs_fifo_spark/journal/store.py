"""Durable bytes under a name, on a local path or an object store: get, list, put-if-absent, delete.

Names are relative paths with `/`. What the journal builds on, for every store here:

- an object appears whole or not at all, and never changes afterwards;
- of several `put_if_absent` for one name at most one returns True, unless the object was deleted in between;
- one that returns False has seen the object;
- a list made after a put has returned shows the object.

Error semantics: anything that keeps the store from a definite answer is JournalUnavailableError, also after a
put that may have happened. A `put_if_absent` that returns False may have been beaten by its own earlier attempt
whose answer was lost: the caller recognises its own content.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

import obstore
import obstore.exceptions
import obstore.store

from sqs_fifo_spark.aws.client import S3Credentials
from sqs_fifo_spark.clock import SYSTEM_CLOCK, Clock
from sqs_fifo_spark.errors import JournalUnavailableError

T = TypeVar("T")

RETRY_BUDGET = timedelta(seconds=30)
_PAUSES_S = (0.05, 0.2, 0.5)
_PASSING = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,
        errno.EIO,
        errno.ENOENT,  # of a put: somebody has removed the folder, which was empty, in between
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)
"""Errors of network file systems, above all, that are over when the call is made again."""
_MOST_DURABLE = 1_000


class Store(Protocol):
    """What the journal needs of the place where it lives."""

    location: str

    def get(self, name: str) -> bytes | None:
        """Return the object's bytes, or None if there is none."""

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        """Return up to `length` bytes from `start`, fewer at the object's end, or None if there is no object."""

    def list(self, prefix: str) -> list[str]:
        """Return the names of all objects below the folder `prefix`, sorted."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Create the object durably and return True, or return False if the name is taken: the object was seen."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove the objects; one that is not there is as good as removed."""


@functools.cache
def open_store(location: str, region: str | None = None) -> Store:
    """Return this process's store at `location`, a checked `journalLocation`; no object is read or written.

    `region` is that of the queue: an S3 bucket is looked for there if neither AWS_REGION nor the AWS chain says where.
    The store is made once, as an S3 client takes tens of milliseconds, and never shared with a forked child.
    """
    if "://" not in location:
        return FileStore(Path(location))
    parts = urlsplit(location)
    if parts.scheme == "file":
        return FileStore(Path(url2pathname(parts.path)))
    return ObjectStore(location, region)


os.register_at_fork(after_in_child=open_store.cache_clear)


def anchored(store: Store, anchor: str) -> Store:
    """Return `store` for an executor, which reads and writes only where the object called `anchor` stands.

    A path may be a mount point, and what it held may be gone: an executor must not make folders in it anew, nor take
    what it does not find for what was never written. An object store is there or not.
    """
    return store.anchored(anchor) if isinstance(store, FileStore) else store


def put_until_seen(
    create: Callable[[], bool], is_there: Callable[[], bool], *, clock: Clock, name: str, location: str
) -> bool:
    """Return `create()`, which puts if absent; a False is believed only when the object is there.

    S3 answers one of several racing puts with a conflict that asks for another try. Obstore reports that as a name that
    is taken, though the other put may have failed. Raises JournalUnavailableError when that does not end.
    """
    deadline = clock.monotonic() + RETRY_BUDGET.total_seconds()
    for pause_s in itertools.chain(_PAUSES_S, itertools.repeat(1.0)):
        if create():
            return True
        if is_there():
            return False
        if clock.monotonic() + pause_s > deadline:
            break
        clock.sleep(pause_s)
    raise JournalUnavailableError(
        f"cannot write '{name}' in the journal at '{location}': the store says that it is there, and does not find it."
    )


class FileStore:
    """A directory on a file system that driver and executors share and that has hard links.

    Directories are made 0700 and files 0600, because bodies are somebody's data. A put is on disk (fsync) before
    it returns. Hard links give put-if-absent: linking to a taken name fails, also on NFS.

    With an `anchor`, the name of an object, nothing is written, or said to be missing, unless that object is there: see
    `anchored`.
    """

    def __init__(self, root: Path, clock: Clock = SYSTEM_CLOCK, *, anchor: str | None = None) -> None:
        self.location = str(root)
        self._root = root
        self._clock = clock
        self._anchor = anchor
        # Folders whose names this process has made durable. Only ever added to, and emptied when it is long.
        self._durable: set[Path] = set()

    def anchored(self, anchor: str) -> FileStore:
        return FileStore(self._root, self._clock, anchor=anchor)

    def get(self, name: str) -> bytes | None:
        return self._call("read", name, lambda: self._or_none((self._root / name).read_bytes))

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        def read() -> bytes:
            with (self._root / name).open("rb") as file:
                file.seek(start)
                # Python reserves what it is asked for; a damaged header may ask for anything.
                return file.read(max(0, min(length, os.fstat(file.fileno()).st_size - start)))

        return self._call("read", name, lambda: self._or_none(read))

    def list(self, prefix: str) -> list[str]:
        def walk() -> list[str]:
            found = sorted(
                str(Path(folder, file).relative_to(self._root))
                for folder, _, files in os.walk(self._root / prefix, onerror=_raise_unless_missing)
                for file in files
                if not file.startswith(".")
            )
            self._require_anchor()  # afterwards: what is not there must not be missing because all is gone
            return found

        return self._call("list", prefix, walk)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        path = self._root / name
        return put_until_seen(
            lambda: self._call("write", name, lambda: self._put(path, data)),
            lambda: self._call("read", name, path.exists),
            clock=self._clock,
            name=name,
            location=self.location,
        )

    def delete(self, names: Iterable[str]) -> None:
        folders = set()
        for name in names:
            path = self._root / name
            self._call("delete", name, functools.partial(path.unlink, missing_ok=True))
            folders.add(path.parent)
        for folder in folders - {self._root}:
            self._remove_if_empty(folder)

    def _put(self, path: Path, data: bytes) -> bool:
        self._make_folder(path.parent)
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(draft, path)
                is_new = True
            except FileExistsError:
                is_new = False
        finally:
            _remove_draft(draft)
        _sync_folder(path.parent)  # also another writer's name, who may have died before this
        self._require_anchor()  # the file system may have gone in between
        return is_new

    def _make_folder(self, folder: Path) -> None:
        """Make the folder and what is missing above it; make the names down to it durable, whoever made them."""
        self._require_anchor()
        if folder in self._durable and folder.exists():
            return
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        ours = [each for each in (folder, *folder.parents) if self._root in each.parents]
        for each in reversed(missing):
            each.mkdir(mode=0o700, exist_ok=True)
        for each in reversed([*ours, *(each for each in missing if each not in ours)]):
            _sync_folder(each.parent)
        if len(self._durable) >= _MOST_DURABLE:
            self._durable.clear()
        self._durable.add(folder)

    def _or_none(self, read: Callable[[], bytes]) -> bytes | None:
        try:
            return read()
        except FileNotFoundError:
            self._require_anchor()
            return None

    def _require_anchor(self) -> None:
        if self._anchor is not None and not (self._root / self._anchor).exists():
            raise OSError(errno.ENODEV, "no journal stands there; is the file system mounted that held it?")

    def _remove_if_empty(self, folder: Path) -> None:
        """Remove a folder of a dropped epoch, with the drafts of writers that died in it."""
        try:
            entries = list(os.scandir(folder))
            if all(entry.name.startswith(".") for entry in entries):
                for entry in entries:
                    Path(entry.path).unlink(missing_ok=True)
                folder.rmdir()
        except OSError:
            # Somebody is writing there, or was faster: the folder is empty some other time, or stays.
            return

    def _call(self, action: str, name: str, call: Callable[[], T]) -> T:
        """Return `call()`, tried again after an error that may pass by itself: a put then writes a draft of its own."""
        for pause_s in (*_PAUSES_S, None):
            try:
                return call()
            except OSError as error:
                if pause_s is None or error.errno not in _PASSING:
                    reason = error.strerror or repr(error)
                    raise JournalUnavailableError(
                        f"cannot {action} '{name}' in the journal at '{self.location}': {reason}. "
                        "The location must be writable by driver and executors, have room, and support hard links."
                    ) from None
                self._clock.sleep(pause_s)
        raise AssertionError("the last try returns or raises")


def _remove_draft(draft: Path) -> None:
    """Remove what nobody sees. If that fails too, the draft goes with its folder, and the first error is told."""
    with suppress(OSError):
        draft.unlink(missing_ok=True)


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable: a file's own fsync does not."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ObjectStore:
    """A prefix in S3, Google Cloud Storage or Azure, through obstore and its conditional put.

    S3 takes credentials and region from the chain that boto3 uses, and the endpoint from AWS_ENDPOINT_URL_S3 or
    AWS_ENDPOINT_URL as the AWS SDKs do; the others from their usual environment variables.
    """

    def __init__(self, location: str, region: str | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.location = location
        self._clock = clock
        with self._errors("open", ""):
            self._store: Any = obstore.store.from_url(
                location,
                retry_config={"max_retries": 1_000, "retry_timeout": RETRY_BUDGET},
                **(_s3_arguments(region) if location.startswith(("s3:", "s3a:")) else {}),
            )

    def get(self, name: str) -> bytes | None:
        with self._errors("read", name):
            try:
                return bytes(obstore.get(self._store, name).bytes())
            except (FileNotFoundError, obstore.exceptions.NotFoundError):
                return None

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        with self._errors("read", name):
            try:
                # Options rather than get_range, which refuses a range past the end on some stores.
                answer = obstore.get(self._store, name, options={"range": (start, start + length)})
                return bytes(answer.bytes())
            except (FileNotFoundError, obstore.exceptions.NotFoundError):
                return None

    def list(self, prefix: str) -> list[str]:
        with self._errors("list", prefix):
            return sorted(str(each["path"]) for each in obstore.list(self._store, prefix).collect())

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return put_until_seen(
            lambda: self._create(name, data),
            lambda: self._is_there(name),
            clock=self._clock,
            name=name,
            location=self.location,
        )

    def _create(self, name: str, data: bytes) -> bool:
        with self._errors("write", name):
            try:
                obstore.put(self._store, name, data, mode="create")
            except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
                return False
            return True

    def _is_there(self, name: str) -> bool:
        with self._errors("read", name):
            try:
                obstore.head(self._store, name)
            except (FileNotFoundError, obstore.exceptions.NotFoundError):
                return False
            return True

    def delete(self, names: Iterable[str]) -> None:
        doomed = list(names)
        if not doomed:
            return
        with self._errors("delete", doomed[0]):
            try:
                obstore.delete(self._store, doomed)
            except (FileNotFoundError, obstore.exceptions.NotFoundError):
                # Some stores stop at the first that is gone. With one left, that one is gone.
                for name in doomed if len(doomed) > 1 else ():
                    self.delete([name])

    @contextmanager
    def _errors(self, action: str, name: str) -> Iterator[None]:
        try:
            yield
        except (obstore.exceptions.BaseError, OSError, ValueError) as error:
            reason = str(error).partition("\n")[0][:200]
            raise JournalUnavailableError(
                f"cannot {action} '{name}' in the journal at '{self.location}' ({type(error).__name__}: {reason}). "
                "Check that the bucket exists (on S3, in the region of AWS_REGION, else the AWS chain's, else the "
                "queue's), and that driver and executors may read, list, write and delete there."
            ) from None


def _s3_arguments(queue_region: str | None) -> dict[str, Any]:
    credentials = S3Credentials()
    arguments: dict[str, Any] = {"client_options": {}}
    if credentials:
        arguments["credential_provider"] = credentials
    region = os.environ.get("AWS_REGION") or credentials.region or queue_region
    if region:
        arguments["region"] = region
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        arguments["endpoint"] = endpoint
        arguments["client_options"]["allow_http"] = endpoint.startswith("http://")
    return arguments
