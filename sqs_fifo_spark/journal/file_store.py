"""A store in a directory: each file is written under a draft's name, then linked to its own."""

from __future__ import annotations

import errno
import functools
import itertools
import os
import re
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_chain, wait_fixed

from sqs_fifo_spark.clock import SYSTEM_CLOCK, Clock
from sqs_fifo_spark.errors import JournalUnavailableError
from sqs_fifo_spark.journal.store import PAUSES_S, put_until_seen
from sqs_fifo_spark.retry import retried

T = TypeVar("T")

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
_DOUBTFUL = ".doubtful"
_DRAFT = re.compile(r"\.(.+)\.[0-9a-f]{32}")
_STANDING = "drivers", "ledger", "plans", "skipped"
"""The journal's folders that hardly ever go; others have theirs beside these."""
_DEAD_AFTER_S = 600.0
"""No write of a draft takes so long; one that did would be made again."""
_MOST_DURABLE = 1_000
_TICK_S = 2.0
"""Longer than one tick of a file system's clock."""


class FileStore:
    """A directory on a file system that driver and executors share and that has hard links.

    Directories are made 0700 and files 0600, because bodies are somebody's data. A put is on disk (fsync) before
    it returns. Hard links give put-if-absent: linking to a taken name fails, also on NFS.

    Linux reports once that it could not write a folder: the next fsync may succeed though names there are on no disk.
    So a failed one leaves a mark in the folder, and no process that finds it acts upon a name there. The mark need not
    outlast the machine: after a loss of power only names on the disk show.

    With an `anchor`, the name of an object, nothing is written, or said to be missing, unless that object is there: see
    `anchored`.
    """

    def __init__(self, root: Path, clock: Clock = SYSTEM_CLOCK, *, anchor: str | None = None) -> None:
        self.location = str(root)
        self._root = root
        self._clock = clock
        self._anchor = None if anchor is None else root / anchor
        # Folders whose names this process has made durable, and the state in which it saw them then.
        # Both are emptied when they are long.
        self._durable: set[Path] = set()
        self._synced: dict[Path, tuple[int, int]] = {}
        self._is_swept = anchor is not None  # an executor leaves that to the driver

    def anchored(self, anchor: str) -> FileStore:
        return FileStore(self._root, self._clock, anchor=anchor)

    def get(self, name: str) -> bytes | None:
        path = self._root / name

        def read() -> bytes:
            data = path.read_bytes()
            self._sync_once(path.parent)  # its writer may have died before it did
            return data

        return self._call("read", name, lambda: self._or_none(read))

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        def read() -> bytes:
            with (self._root / name).open("rb") as file:
                file.seek(start)
                # Python reserves all bytes that it is asked for; a damaged header may ask for any number.
                return file.read(max(0, min(length, os.fstat(file.fileno()).st_size - start)))

        return self._call("read", name, lambda: self._or_none(read))

    def list(self, prefix: str) -> list[str]:
        cut = len(self.location) + 1

        def walk() -> list[str]:
            found = sorted(
                f"{folder[cut:]}/{file}"
                for folder, _, files in os.walk(f"{self.location}/{prefix}", onerror=_raise_unless_missing)
                for file in files
                if not file.startswith(".")
            )
            self._require_anchor()  # afterwards: an object must not seem missing because the whole file system is gone
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
        """Remove the objects, and folders that are empty then: their own, and lower-numbered ones beside those.

        A leftover may have made such an older folder again. If it was killed there, it left a draft that no list shows.
        A driver's first call removes the dead drafts from folders that are never empty, too.
        """
        by_folder: dict[Path, list[Path]] = {}
        for name in names:
            path = self._root / name
            by_folder.setdefault(path.parent, []).append(path)
        for folder, paths in by_folder.items():
            self._call("delete", folder.name, functools.partial(_unlink, paths))
        gone = {folder for folder in by_folder.keys() - {self._root} if self._remove_if_empty(folder)}
        for parent in {folder.parent for folder in gone} - {self._root}:
            newest = max(folder for folder in gone if folder.parent == parent)
            for folder in _folders_in(parent):
                if folder < newest:
                    self._remove_if_empty(folder)
        if not self._is_swept:
            self._is_swept = True
            _remove_dead_drafts(self._root)

    def _put(self, path: Path, data: bytes) -> bool:
        self._make_folder(path.parent)
        draft = f"{path.parent}/.{path.name}.{uuid.uuid4().hex}"
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(descriptor, left) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            try:
                os.link(draft, path)
                is_new = True
            except FileExistsError:
                is_new = False
        finally:
            with suppress(OSError):  # nobody lists it, and it goes with its folder; the write's own error is raised
                Path(draft).unlink()
        self._sync(path.parent)  # also another writer's name, which may have died before this
        self._require_anchor()  # the file system may have gone in between
        return is_new

    def _make_folder(self, folder: Path) -> None:
        """Make the folder and missing ones above it; make the names down to it durable, whoever made them."""
        self._require_anchor()
        if folder in self._durable and folder.exists():
            return
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        for each in reversed(missing):
            each.mkdir(mode=0o700, exist_ok=True)
        for each in reversed(missing):
            if self._root not in each.parents:
                self._sync(each.parent)
        self._durable.discard(folder)
        self._make_durable(folder)

    def _sync_once(self, folder: Path) -> None:
        """Make the names in the folder durable, unless nothing has changed there since this process did so."""
        status = folder.stat()
        seen = status.st_ino, status.st_mtime_ns
        if self._synced.get(folder) == seen:
            return
        self._make_durable(folder)
        self._sync(folder)
        if len(self._synced) >= _MOST_DURABLE:
            self._synced.clear()
        if self._clock.now() - status.st_mtime > _TICK_S:
            self._synced[folder] = seen  # else another change may have the same time

    def _make_durable(self, folder: Path) -> None:
        """Make the names from the root down to `folder` durable, whoever made them."""
        if folder in self._durable:
            return
        for each in reversed([each for each in (folder, *folder.parents) if self._root in each.parents]):
            self._sync(each.parent)
        if len(self._durable) >= _MOST_DURABLE:
            self._durable.clear()
        self._durable.add(folder)

    def _sync(self, folder: Path) -> None:
        """Make the names in `folder` durable. Raises _DoubtfulError once that has failed, in whichever process."""
        is_inside = folder == self._root or self._root in folder.parents
        mark = (folder if is_inside else self._root) / _DOUBTFUL
        failed = errno.EIO
        if not mark.exists():
            try:
                return _sync_folder(folder)
            except _DoubtfulError as error:
                failed = error.errno or failed
                with suppress(OSError):  # a file system that has turned read-only fails every fsync
                    mark.touch(0o600)
        raise _DoubtfulError(
            failed,
            f"{os.strerror(failed)}: files that were written to '{mark.parent}' may not be on the disk, and another "
            "try would not show that. Stop the query, check the disk and mount it anew, so that only files on it show; "
            f"then remove '{mark}'",
        )

    def _or_none(self, read: Callable[[], bytes]) -> bytes | None:
        try:
            return read()
        except FileNotFoundError:
            self._require_anchor()
            return None

    def _require_anchor(self) -> None:
        if self._anchor is not None and not self._anchor.exists():
            raise OSError(errno.ENODEV, "no journal stands there; the file system that held it may not be mounted")

    def _remove_if_empty(self, folder: Path) -> bool:
        """Remove a folder without objects, and drafts of dead writers: a living one writes again. True if it went."""
        self._durable.discard(folder)
        try:
            entries = list(os.scandir(folder))
            if not all(entry.name.startswith(".") for entry in entries):
                return False
            for entry in entries:
                Path(entry.path).unlink(missing_ok=True)
            folder.rmdir()
        except OSError:
            # Somebody is writing there, or was faster: the folder is empty some other time, or stays.
            return False
        return True

    def _call(self, action: str, name: str, call: Callable[[], T]) -> T:
        """Return `call()`, tried again after an error that may pass by itself: a put then writes a draft of its own."""

        def retrying() -> Retrying:
            return Retrying(
                retry=retry_if_exception(_may_pass),
                wait=wait_chain(*map(wait_fixed, PAUSES_S)),
                stop=stop_after_attempt(1 + len(PAUSES_S)),
                sleep=self._clock.sleep,
                reraise=True,
            )

        try:
            return retried(call, OSError, retrying)
        except OSError as error:
            reason = error.strerror or repr(error)
            raise JournalUnavailableError(
                f"cannot {action} '{name}' in the journal at '{self.location}': {reason}. "
                "The location must be writable by driver and executors, have room, and support hard links."
            ) from None


class _DoubtfulError(OSError):
    """Names in a folder may not be durable. Another try would prove nothing."""


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _PASSING and not isinstance(error, _DoubtfulError)


def _folders_in(folder: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []  # they are looked for with the next delete


def _remove_dead_drafts(root: Path) -> None:
    """Remove the drafts of writers that were killed, in `root` and its standing folders.

    Their age is by the file system's own time: one of the folders has just changed. A living writer that stood still
    for so long misses its draft, and writes another. The root may be somebody else's, too: there a draft is one of an
    object that stands beside it.
    """
    with suppress(OSError):
        folders = _folders_in(root)
        now = max(folder.stat().st_mtime for folder in (root, *folders))
        for entry in itertools.chain.from_iterable(
            os.scandir(each) for each in (root, *folders) if each == root or each.name in _STANDING
        ):
            draft = _DRAFT.fullmatch(entry.name)
            with suppress(FileNotFoundError):  # a living one goes meanwhile
                is_ours = draft and (Path(entry.path).parent != root or (root / draft[1]).is_file())
                if is_ours and now - entry.stat().st_mtime > _DEAD_AFTER_S:
                    Path(entry.path).unlink()


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable: a file's own fsync does not. Raises _DoubtfulError if they may not be."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise _DoubtfulError(*error.args) from None
    finally:
        os.close(descriptor)
