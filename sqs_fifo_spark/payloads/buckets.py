"""The objects that hold payloads, in whatever buckets pointers name.

A read goes through obstore, which takes a tenth of boto3's time. Whatever that does not bring is asked of boto3: it
says why, reaches buckets of other regions, and takes the keys that obstore cannot spell.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from sqs_fifo_spark.aws.s3 import KEYS_OF_A_DELETE, S3
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import AccessDeniedError, JournalUnavailableError, PayloadError
from sqs_fifo_spark.journal.location import S3Access
from sqs_fifo_spark.journal.object_store import ObjectStore
from sqs_fifo_spark.payloads.pointer import Pointer

WRITE_S = 60.0
"""Seconds for which a write that S3 does not answer is tried again."""
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,254}")
"""A sender chooses the name. So anything else, an ARN or a URL's parts, is no bucket's."""
_MOST_STORES = 16
"""Buckets whose clients are kept: each takes about a megabyte."""
_AVOIDED_S = 600.0
"""Seconds for which boto3 alone reads from a bucket that it reaches and obstore does not."""


class _Bucket:
    """obstore's way to one bucket."""

    def __init__(self, name: str, access: S3Access) -> None:
        self._store = ObjectStore(f"s3://{name}/", access)
        self._avoided_until = 0.0

    def read(self, key: str, most: int) -> bytes | None:
        """Return the object's first `most` bytes; None if they are to be asked of boto3."""
        if not _is_path(key) or SYSTEM_CLOCK.monotonic() < self._avoided_until:
            return None
        try:
            return self._store.get_range(key, 0, most)
        except JournalUnavailableError:
            return None

    def avoid(self) -> None:
        self._avoided_until = SYSTEM_CLOCK.monotonic() + _AVOIDED_S


class Buckets:
    """This process's way to payloads. Thread-safe; not for a forked child. Errors are those of `aws.s3`."""

    def __init__(self, access: S3Access) -> None:
        s3 = functools.partial(S3, access.identity, region=access.queue_region, endpoint_url=access.endpoint_url)
        self._s3 = s3()
        self._writing = s3(tries=1, read_timeout_s=WRITE_S)
        self._deleting = s3(tries=2, read_timeout_s=10)  # a task that ends waits for it; what is left is tried again
        self._bucket = functools.lru_cache(_MOST_STORES)(lambda name: _Bucket(name, access))

    def read(self, pointer: Pointer, most: int) -> bytes:
        """Return the payload's first `most` bytes."""
        if not _BUCKET.fullmatch(pointer.bucket):
            raise PayloadError("S3 has no bucket of such a name", is_final=True)
        try:
            bucket = self._bucket(pointer.bucket)
            found = bucket.read(pointer.key, most)
        except JournalUnavailableError:  # there are no credentials, say: boto3 says so
            return self._s3.read(pointer.bucket, pointer.key, most)
        if found is not None:
            return found
        data = self._s3.read(pointer.bucket, pointer.key, most)
        if _is_path(pointer.key):
            bucket.avoid()
        return data

    def write(self, pointer: Pointer, data: bytes) -> None:
        """Write the payload, durably, over whatever is there; without an answer, again for a minute or two."""
        for attempt in Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, PayloadError) and not error.is_final),
            stop=stop_after_delay(WRITE_S),
            wait=wait_random_exponential(max=5),
            reraise=True,
        ):
            with attempt:
                self._writing.write(pointer.bucket, pointer.key, data)

    def delete(self, pointers: Iterable[Pointer]) -> dict[Pointer, PayloadError]:
        """Delete these payloads, if they are there; return those that may be there still, each with the reason.

        The first call that fails is the last: S3 is down, or its answers are.
        """
        by_bucket: dict[str, list[Pointer]] = {}
        for pointer in pointers:
            by_bucket.setdefault(pointer.bucket, []).append(pointer)
        parts = [
            same[start : start + KEYS_OF_A_DELETE]
            for same in by_bucket.values()
            for start in range(0, len(same), KEYS_OF_A_DELETE)
        ]
        left: dict[Pointer, PayloadError] = {}
        outage: PayloadError | None = None
        for part in parts:
            if outage is not None:
                left.update(dict.fromkeys(part, outage))
                continue
            error = self._delete(part, left)
            if error is not None:
                left.update(dict.fromkeys(part, error))
                outage = None if error.is_final else error
        return left

    def _delete(self, part: list[Pointer], left: dict[Pointer, PayloadError]) -> PayloadError | None:
        """Delete some of one bucket, and note those that are `left`; return the error of all of them, if they fail."""
        keys = {pointer.key: pointer for pointer in part}
        try:
            failed = self._deleting.delete(part[0].bucket, list(keys))
        except AccessDeniedError as error:
            return PayloadError(str(error))
        except PayloadError as error:
            return error
        if failed.keys() - keys.keys():
            return PayloadError("S3's answer names other objects than it was asked for")
        left.update((keys[key], error) for key, error in failed.items())
        return None


@functools.cache
def open_buckets(access: S3Access) -> Buckets:
    """Return this process's buckets, which are made once, and never shared with a forked child."""
    return Buckets(access)


os.register_at_fork(after_in_child=open_buckets.cache_clear)


def _is_path(key: str) -> bool:
    """Return whether obstore spells the key as it is: it leaves out a slash at either end, and takes no odd part."""
    return key.isprintable() and all(part not in ("", ".", "..") for part in key.split("/"))
