"""A `journalLocation` as a `Store`: a directory, or a prefix on an object store."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.options import AWS_CHAIN, ConnectionOptions, Identity


@dataclass(frozen=True)
class S3Access:
    """The way to reach a bucket of S3. Travels to the executors; its repr has no secret."""

    queue_region: str | None = None
    """Region of a bucket if neither AWS_REGION nor the SDK's configuration says one."""
    identity: Identity = AWS_CHAIN
    endpoint_url: str | None = None
    """Without it AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, as the AWS SDKs have it, else AWS's own."""


BY_ENVIRONMENT = S3Access()
"""As the AWS SDKs would."""


def journal_access(options: ConnectionOptions) -> S3Access:
    """Return the access to the journal of these options, if it is on S3."""
    return S3Access(options.region, options.journal_identity, options.journal_endpoint_url)


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
    from sqs_fifo_spark.journal.object_store import ObjectStore  # with obstore, which a directory does not need

    return ObjectStore(location, access)


os.register_at_fork(after_in_child=open_store.cache_clear)


def anchored(store: Store, anchor: str) -> Store:
    """Return `store` for an executor, which reads and writes only where the object called `anchor` stands.

    A path may be a mount point, and its objects may be gone: an executor must not make folders in it anew, nor take
    missing objects for some that were never written. An object store is there or not.
    """
    return store.anchored(anchor) if isinstance(store, FileStore) else store
