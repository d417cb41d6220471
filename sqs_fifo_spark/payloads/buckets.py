"""The objects that hold payloads, in whatever buckets pointers name.

A read goes through obstore, which takes a tenth of boto3's time. Whatever that does not bring is asked of boto3: it
says why, reaches buckets of other regions, and takes the keys that obstore cannot spell.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable

from sqs_fifo_spark.aws.s3 import CONCURRENT_CALLS, KEYS_OF_A_DELETE, S3
from sqs_fifo_spark.errors import AccessDeniedError, JournalUnavailableError, PayloadError
from sqs_fifo_spark.journal.location import open_store
from sqs_fifo_spark.journal.object_store import S3Access
from sqs_fifo_spark.payloads.pointer import Pointer

__all__ = ["CONCURRENT_CALLS", "Buckets"]


class Buckets:
    """This process's way to payloads. Thread-safe; not for a forked child. Errors are those of `aws.s3`."""

    def __init__(self, access: S3Access) -> None:
        self._access = access
        self._s3 = S3(access.identity, region=access.queue_region, endpoint_url=access.endpoint_url)
        self._not_by_obstore: set[str] = set()
        """Buckets that boto3 reaches and obstore does not, such as those of another region."""

    def read(self, pointer: Pointer, most: int) -> bytes:
        """Return the payload's first `most` bytes."""
        is_tried = _is_path(pointer.key) and pointer.bucket not in self._not_by_obstore
        if is_tried:
            try:
                store = open_store(f"s3://{pointer.bucket}/", self._access)
                found = store.get_range(pointer.key, 0, most)
            except JournalUnavailableError:
                found = None
            if found is not None:
                return found
        data = self._s3.read(pointer.bucket, pointer.key, most)
        if is_tried:
            self._not_by_obstore.add(pointer.bucket)
        return data

    def write(self, pointer: Pointer, data: bytes) -> None:
        """Write the payload, durably, over whatever is there."""
        self._s3.write(pointer.bucket, pointer.key, data)

    def delete(self, pointers: Iterable[Pointer]) -> dict[Pointer, PayloadError]:
        """Delete these payloads, if they are there; return those that may be there still, each with the reason."""
        by_bucket: dict[str, list[Pointer]] = {}
        for pointer in pointers:
            by_bucket.setdefault(pointer.bucket, []).append(pointer)
        left: dict[Pointer, PayloadError] = {}
        for bucket, same in by_bucket.items():
            for start in range(0, len(same), KEYS_OF_A_DELETE):
                part = {pointer.key: pointer for pointer in same[start : start + KEYS_OF_A_DELETE]}
                try:
                    failed = self._s3.delete(bucket, list(part))
                except AccessDeniedError as error:
                    failed = dict.fromkeys(part, PayloadError(str(error)))
                except PayloadError as error:
                    failed = dict.fromkeys(part, error)
                left.update((part[key], error) for key, error in failed.items())
        return left


@functools.cache
def open_buckets(access: S3Access) -> Buckets:
    """Return this process's buckets, which are made once, and never shared with a forked child."""
    return Buckets(access)


os.register_at_fork(after_in_child=open_buckets.cache_clear)


def _is_path(key: str) -> bool:
    """Return whether obstore spells the key as it is: it leaves out a slash at either end, and takes no odd part."""
    return key.isprintable() and all(part not in ("", ".", "..") for part in key.split("/"))
