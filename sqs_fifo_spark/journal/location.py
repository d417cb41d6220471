"""A `journalLocation` as a `Store`: a directory, or a prefix on an object store."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.journal.object_store import BY_ENVIRONMENT, ObjectStore, S3Access
from sqs_fifo_spark.journal.store import Store


@functools.cache
def open_store(location: str, access: S3Access = BY_ENVIRONMENT) -> Store:
    """Return this process's store at `location`, a checked `journalLocation`; no object is read or written.

    `access` says how it is reached if it is on S3. The store is made once, as an S3 client takes tens of milliseconds,
    and never shared with a forked child.
    """
    if "://" not in location:
        return FileStore(Path(location))
    parts = urlsplit(location)
    if parts.scheme == "file":
        return FileStore(Path(url2pathname(parts.path)))
    return ObjectStore(location, access)


os.register_at_fork(after_in_child=open_store.cache_clear)


def anchored(store: Store, anchor: str) -> Store:
    """Return `store` for an executor, which reads and writes only where the object called `anchor` stands.

    A path may be a mount point, and its objects may be gone: an executor must not make folders in it anew, nor take
    missing objects for some that were never written. An object store is there or not.
    """
    return store.anchored(anchor) if isinstance(store, FileStore) else store
