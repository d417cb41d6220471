"""A store in a bucket, through obstore."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import obstore
import obstore.exceptions
import obstore.store

from sqs_fifo_spark.aws.credentials import S3Credentials, no_credentials
from sqs_fifo_spark.clock import SYSTEM_CLOCK, Clock
from sqs_fifo_spark.errors import JournalUnavailableError
from sqs_fifo_spark.journal.store import put_until_seen
from sqs_fifo_spark.option_rules import S3_PREFIXES
from sqs_fifo_spark.options import AWS_CHAIN, ConnectionOptions, Identity

T = TypeVar("T")

RETRY_TIMEOUT = timedelta(seconds=30)
"""How long obstore goes on trying what the store refuses for a while."""
REQUEST_TIMEOUT = "60 seconds"
"""After this a request without an answer is given up: a segment of 64 MiB takes as long at 1 MB/s."""
OPEN_EVERY_S = 5.0
"""The shortest time between two requests for new credentials, while they are refused."""
_REFUSALS = (obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError)
_REFUSAL = re.compile(r"status code: 40[013]\b")
"""What a GenericError says of a refused list, and of a token that has expired, which S3 calls a bad request."""

_DENIED = re.compile(r"status code: 403\b|AccessDenied")
_S3_PERMISSIONS = {
    "read": "'s3:GetObject' on the prefix and 's3:ListBucket' on the bucket",  # which tells what is not there
    "list": "'s3:ListBucket' on the bucket",
    "write": "'s3:PutObject' on the prefix",
    "delete": "'s3:DeleteObject' on the prefix",
}

_process: int | None = None
"""The process whose threads make obstore's calls, from the first one on. A fork would wait for them for ever."""


@dataclass(frozen=True)
class S3Access:
    """How a bucket of S3 is reached. Travels to the executors; its repr has no secret."""

    queue_region: str | None = None
    """Where a bucket is looked for if neither AWS_REGION nor the SDK's configuration says where."""
    identity: Identity = AWS_CHAIN
    endpoint_url: str | None = None
    """Without it AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, as the AWS SDKs have it, else AWS's own."""


BY_ENVIRONMENT = S3Access()
"""As the AWS SDKs would."""


def journal_access(options: ConnectionOptions) -> S3Access:
    """Return how the journal of these options is reached, if it is on S3."""
    return S3Access(options.region, options.journal_identity, options.journal_endpoint_url)


class ObjectStore:
    """A prefix in S3, Google Cloud Storage or Azure, through obstore and its conditional put.

    S3 is reached by `access`; the others take what they need from their usual environment variables.
    """

    def __init__(self, location: str, access: S3Access = BY_ENVIRONMENT, clock: Clock = SYSTEM_CLOCK) -> None:
        self.location = location
        self._access = access
        self._clock = clock
        self._store = self._open()  # replaced by whoever is refused; a call that is under way keeps its own
        self._opened_at = -math.inf

    def _open(self) -> Any:
        arguments: dict[str, Any] = {"client_options": {"timeout": REQUEST_TIMEOUT}}
        with self._errors("open", ""):
            if self.location.startswith(S3_PREFIXES):
                _add_s3_arguments(arguments, self._access)
            return obstore.store.from_url(
                self.location,
                retry_config={"max_retries": 1_000, "retry_timeout": RETRY_TIMEOUT},
                **arguments,
            )

    def get(self, name: str) -> bytes | None:
        return self._call("read", name, lambda: _or_none(lambda: obstore.get(self._store, name).bytes()))

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        # Options rather than get_range, which refuses a range past the end on some stores.
        options: Any = {"range": (start, start + length)}

        def read() -> Any:
            return obstore.get(self._store, name, options=options).bytes()

        return self._call("read", name, lambda: _or_none(read))

    def list(self, prefix: str) -> list[str]:
        def walk() -> list[str]:
            return sorted(str(each["path"]) for each in obstore.list(self._store, prefix).collect())

        return self._call("list", prefix, walk)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return put_until_seen(
            lambda: self._call("write", name, lambda: self._create(name, data)),
            lambda: self._call("read", name, lambda: self._is_there(name)),
            clock=self._clock,
            name=name,
            location=self.location,
        )

    def _create(self, name: str, data: bytes) -> bool:
        try:
            obstore.put(self._store, name, data, mode="create")
        except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
            return False
        return True

    def _is_there(self, name: str) -> bool:
        try:
            obstore.head(self._store, name)
        except (FileNotFoundError, obstore.exceptions.NotFoundError):
            return False
        return True

    def delete(self, names: Iterable[str]) -> None:
        doomed = list(names)
        if doomed:
            self._call("delete", doomed[0], lambda: self._delete(doomed))

    def _delete(self, names: Sequence[str]) -> None:
        try:
            obstore.delete(self._store, names)
        except (FileNotFoundError, obstore.exceptions.NotFoundError):
            # Some stores stop at the first that is gone. With one left, that one is gone.
            for name in names if len(names) > 1 else ():
                self._delete([name])

    def _call(self, action: str, name: str, call: Callable[[], T]) -> T:
        """Return `call()`, made once more after a request that had no answer: obstore itself never repeats a put.

        Also after a refusal, with the credentials that are found then: obstore keeps for minutes what it was given.
        """
        self._require_same_process()
        refused = self._store
        with self._errors(action, name):
            try:
                return call()
            except (*_REFUSALS, obstore.exceptions.GenericError) as error:
                if isinstance(error, _REFUSALS) or _REFUSAL.search(str(error)):
                    self._open_anew(refused)
                return call()

    def _open_anew(self, refused: Any) -> None:
        """Take the credentials that are found now, unless that was done: a permission may be what is missing."""
        now = self._clock.monotonic()
        if self._store is refused and now >= self._opened_at + OPEN_EVERY_S:
            self._store, self._opened_at = self._open(), now

    def _require_same_process(self) -> None:
        global _process
        _process = _process or os.getpid()
        if _process != os.getpid():
            raise JournalUnavailableError(
                f"this process cannot use the journal at '{self.location}': it was forked from one that has used a "
                "journal on an object store, and obstore's threads were not forked with it. Start it anew instead."
            )

    @contextmanager
    def _errors(self, action: str, name: str) -> Iterator[None]:
        try:
            yield
        except (obstore.exceptions.BaseError, OSError, ValueError) as error:
            reason = str(error).partition("\n")[0].partition("<Token")[0][:200]  # S3 quotes an expired one
            permission = _S3_PERMISSIONS.get(action) if self.location.startswith("s3") else None
            raise JournalUnavailableError(
                f"cannot {action} '{name}' in the journal at '{self.location}' ({type(error).__name__}: {reason}). "
                + (
                    f"Grant the permission {permission} to {self._who}, or correct the credentials."
                    if permission and _DENIED.search(str(error))
                    else "Check that the bucket exists (on S3, in the region of AWS_REGION, else the AWS chain's, else "
                    f"the queue's), and that {self._who} may read, list, write and delete there."
                )
            ) from None

    @property
    def _who(self) -> str:
        role = self._access.identity.role_arn
        if role is None or not self.location.startswith(S3_PREFIXES):
            return "driver and executors"
        return f"the role {role} (or set journalCredentials to chain, and driver and executors themselves)"


def _or_none(read: Callable[[], Any]) -> bytes | None:
    try:
        return bytes(read())
    except (FileNotFoundError, obstore.exceptions.NotFoundError):
        return None


def _add_s3_arguments(arguments: dict[str, Any], access: S3Access) -> None:
    credentials = S3Credentials(access.identity, access.queue_region)
    is_unsigned = os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in ("1", "true", "yes", "on")
    if credentials:
        arguments["credential_provider"] = credentials
    elif access.identity != AWS_CHAIN or not is_unsigned:
        # Not kept: the chain may have had no answer in time, and obstore would go on without it.
        raise no_credentials(access.identity)
    region = os.environ.get("AWS_REGION") or credentials.region or access.queue_region
    if region:
        arguments["region"] = region
    environment = os.environ
    endpoint = access.endpoint_url or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    if endpoint:
        arguments["endpoint"] = endpoint
        arguments["client_options"]["allow_http"] = endpoint.startswith("http://")
