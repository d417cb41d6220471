"""A store in a bucket, through obstore."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import obstore
import obstore.exceptions
import obstore.store

from sqs_fifo_spark.aws.client import S3Credentials
from sqs_fifo_spark.clock import SYSTEM_CLOCK, Clock
from sqs_fifo_spark.errors import JournalUnavailableError
from sqs_fifo_spark.journal.store import RETRY_BUDGET, put_until_seen


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
