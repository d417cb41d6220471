"""A store in a bucket of S3, Google Cloud Storage or Azure, through obstore."""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import obstore
import obstore.exceptions
import obstore.store

from sqs_fifo_spark.aws.credentials import S3Credentials, no_credentials
from sqs_fifo_spark.clock import SYSTEM_CLOCK, Clock
from sqs_fifo_spark.errors import JournalUnavailableError
from sqs_fifo_spark.journal.location import BY_ENVIRONMENT, S3Access
from sqs_fifo_spark.journal.store import put_until_seen
from sqs_fifo_spark.option_rules import S3_PREFIXES
from sqs_fifo_spark.options import AWS_CHAIN

T = TypeVar("T")

RETRY_TIMEOUT = timedelta(seconds=25)
"""obstore tries again for so long where it does not reach the store, or the store refuses for a while."""
_RETRY_PAUSE = timedelta(seconds=3)  # at the most: so that its error is said before the 30 s of `doctor` are over
REQUEST_TIMEOUT_S = 60.0
"""After this a request is given up. A read goes on where it broke off, a large write is given longer."""
SLOWEST_LINK = 128 * 1024
"""Bytes a second at which any object can be written: a link of 1 MiB/s that eight tasks share."""
READ_CHUNK = 256 * 1024
"""Bytes that a request must bring for a read to go on after it."""
OPEN_EVERY_S = 5.0
"""The shortest time between two requests for new credentials, while they are refused."""
_REFUSALS = (obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError)
_REFUSAL = re.compile(r"status code: 40[013]\b")
"""The text of a GenericError for a refused list, and for a token that has expired, which S3 calls a bad request."""

_PAST_END = re.compile(r"status code: 416\b")
_DENIED = re.compile(r"status code: 403\b|AccessDenied")
_TIMEOUT = "kind: Timeout"
_CHECK_NETWORK = (
    "Check the network, the endpoint (on S3, the region, too), and the proxy settings HTTPS_PROXY, HTTP_PROXY and "
    "NO_PROXY."
)
_UNTRUSTED = re.compile(r"InvalidCertificate\(\s*(\w+)")
_S3_PERMISSIONS = {
    "read": "'s3:GetObject' on the prefix and 's3:ListBucket' on the bucket",  # which shows that an object is missing
    "list": "'s3:ListBucket' on the bucket",
    "write": "'s3:PutObject' on the prefix",
    "delete": "'s3:DeleteObject' on the prefix",
}

_process: int | None = None
"""The process whose threads make obstore's calls, from the first one on. A fork would wait for them for ever."""


class _Clients:
    """obstore's clients for a location, with the credentials that were found at one time.

    A client has one time-out for all its requests, so there is one for each limit, opened when it is first needed.
    """

    def __init__(self, location: str, access: S3Access) -> None:
        self._location = location
        self._arguments: dict[str, Any] = {"client_options": {}}
        if location.startswith(S3_PREFIXES):
            _add_s3_arguments(self._arguments, access)
        self._by_limit: dict[float, Any] = {}
        self.of_size(0)

    def of_size(self, size: int) -> Any:
        """Return a client whose requests may take as long as the slowest link needs for `size` bytes."""
        limit_s = REQUEST_TIMEOUT_S
        while limit_s < REQUEST_TIMEOUT_S / 2 + size / SLOWEST_LINK:
            limit_s *= 2
        if limit_s not in self._by_limit:
            self._by_limit[limit_s] = self._open(timedelta(seconds=limit_s))
        return self._by_limit[limit_s]

    def _open(self, timeout: timedelta) -> Any:
        options = {**self._arguments["client_options"], "timeout": timeout}
        retries = {"max_retries": 1_000, "retry_timeout": RETRY_TIMEOUT, "backoff": {"max_backoff": _RETRY_PAUSE}}
        arguments = {**self._arguments, "client_options": options, "retry_config": retries}
        try:
            return obstore.store.from_url(self._location, **arguments)
        except (ValueError, obstore.exceptions.GenericError):
            # obstore takes none before 0.11, and none that it cannot read. A connection that needs it fails by TLS.
            if options.pop("root_certificate", None) is None:
                raise
            return obstore.store.from_url(self._location, **arguments)


class _Read:
    """A read of an object from `start` to `end`, which goes on where it broke off when it is called again."""

    def __init__(self, name: str, start: int, end: int | None) -> None:
        self._name = name
        self._start = start
        self._end = end
        self._tag: str | None = None
        self._data = io.BytesIO()  # gives its bytes away without another copy

    def __len__(self) -> int:
        return self._data.tell()

    def __call__(self, client: Any) -> bytes | None:
        at = self._start + len(self)
        options: obstore.GetOptions = {}
        if self._end is not None:
            # Options rather than get_range, which refuses a range past the end on some stores.
            options["range"] = (at, self._end)
        if self._tag is not None:
            options["if_match"] = self._tag  # the rest of the same object
        if at != self._end:
            try:
                answer = obstore.get(client, self._name, options=options)
            except (FileNotFoundError, obstore.exceptions.NotFoundError):
                return None
            except obstore.exceptions.GenericError as error:
                if len(self) or not _PAST_END.search(str(error)):
                    raise
                return b""
            self._end, self._tag = answer.range[1], answer.meta["e_tag"]
            whole = self._end - at <= READ_CHUNK  # one chunk in either way, and this one takes less time
            for chunk in [answer.bytes()] if whole else answer.stream(min_chunk_size=READ_CHUNK):
                self._data.write(chunk)
        return self._data.getvalue()


class ObjectStore:
    """A prefix in S3, Google Cloud Storage or Azure, through obstore and its conditional put.

    S3 is reached by `access`; the others use their usual environment variables.
    """

    def __init__(self, location: str, access: S3Access = BY_ENVIRONMENT, clock: Clock = SYSTEM_CLOCK) -> None:
        self.location = location
        self._access = access
        self._clock = clock
        self._clients = self._open()  # replaced by a call that is refused; one that is under way keeps its own
        self._opened_at = -math.inf

    def _open(self) -> _Clients:
        with self._errors("open", ""):
            return _Clients(self.location, self._access)

    def get(self, name: str) -> bytes | None:
        return self._read(_Read(name, 0, None), name)

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        return self._read(_Read(name, start, start + length), name)

    def _read(self, read: _Read, name: str) -> bytes | None:
        return self._call("read", name, read, moved=lambda: len(read))

    def list(self, prefix: str) -> list[str]:
        def walk(client: Any) -> list[str]:
            return sorted(str(each["path"]) for each in obstore.list(client, prefix).collect())

        return self._call("list", prefix, walk)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        def create(client: Any) -> bool:
            try:
                obstore.put(client, name, data, mode="create")
            except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
                return False
            return True

        return put_until_seen(
            lambda: self._call("write", name, create, size=len(data)),
            lambda: self._call("read", name, lambda client: self._is_there(client, name)),
            clock=self._clock,
            name=name,
            location=self.location,
        )

    def _is_there(self, client: Any, name: str) -> bool:
        try:
            obstore.head(client, name)
        except (FileNotFoundError, obstore.exceptions.NotFoundError):
            return False
        return True

    def delete(self, names: Iterable[str]) -> None:
        doomed = list(names)
        if doomed:
            self._call("delete", doomed[0], lambda client: self._delete(client, doomed))

    def _delete(self, client: Any, names: Sequence[str]) -> None:
        try:
            obstore.delete(client, names)
        except (FileNotFoundError, obstore.exceptions.NotFoundError):
            # Some stores stop at the first that is gone. With one left, that one is gone.
            for name in names if len(names) > 1 else ():
                self._delete(client, [name])

    def _call(
        self, action: str, name: str, call: Callable[[Any], T], *, size: int = 0, moved: Callable[[], int] = lambda: 0
    ) -> T:
        """Return `call(client)`, made once more after a request that had no answer: obstore itself never repeats a put.

        Also after a refusal, with the credentials that are found then: obstore keeps its own for minutes. A call that
        has `moved` something is made again as often as it does so. `size` bytes are written. A certificate that is not
        accepted is an error at once: obstore has then tried for long.
        """
        self._require_same_process()
        idle = last_moved = 0
        with self._errors(action, name, size, moved):
            while True:
                clients = self._clients
                try:
                    return call(clients.of_size(size))
                except (*_REFUSALS, obstore.exceptions.GenericError) as error:
                    idle, last_moved = 0 if moved() > last_moved else idle + 1, moved()
                    if idle > 1 or _UNTRUSTED.search(str(error)):
                        raise
                    if isinstance(error, _REFUSALS) or _REFUSAL.search(str(error)):
                        self._open_anew(clients)

    def _open_anew(self, refused: _Clients) -> None:
        """Take the credentials that are found now, unless that was done: a permission may be missing instead."""
        now = self._clock.monotonic()
        if self._clients is refused and now >= self._opened_at + OPEN_EVERY_S:
            self._clients, self._opened_at = self._open(), now

    def _require_same_process(self) -> None:
        global _process
        _process = _process or os.getpid()
        if _process != os.getpid():
            raise JournalUnavailableError(
                f"this process cannot use the journal at '{self.location}': it was forked from one that has used a "
                "journal on an object store, and obstore's threads were not forked with it. Start a new process "
                "without a fork."
            )

    @contextmanager
    def _errors(self, action: str, name: str, size: int = 0, moved: Callable[[], int] = lambda: 0) -> Iterator[None]:
        started = self._clock.monotonic()
        try:
            yield
        except (obstore.exceptions.BaseError, OSError, ValueError) as error:
            text = str(error)
            reason = f"{type(error).__name__}: " + text.partition("\n")[0].partition("<Token")[0][:200]  # S3 quotes it
            if _TIMEOUT in text:
                bytes_moved = f", with {moved():,} bytes read" if moved() else f" for {size:,} bytes" if size else ""
                reason = f"no answer within {self._clock.monotonic() - started:.0f} s{bytes_moved}"
            raise JournalUnavailableError(
                f"cannot {action} '{name}' in the journal at '{self.location}' ({reason}). {self._remedy(action, text)}"
            ) from None

    def _remedy(self, action: str, text: str) -> str:
        if _TIMEOUT in text:
            need = f"Each transfer needs {SLOWEST_LINK // 1024} KiB/s: on a slow link, run fewer tasks at once."
            return f"{need} {_CHECK_NETWORK}"
        if untrusted := _UNTRUSTED.search(text):
            return (
                f"TLS: the certificate of the store, or of a proxy before it, is not accepted ({untrusted[1]}). If its "
                "CA is a private one, name a PEM file with it in AWS_CA_BUNDLE, on driver and executors; with obstore "
                "before 0.11, or on another cloud, in SSL_CERT_FILE."
            )
        if "kind: Connect" in text:
            return f"There is no connection. {_CHECK_NETWORK}"
        if "RequestTimeTooSkewed" in text:
            return "The clock of this machine is wrong by more than 15 minutes, or S3's is. Set it by a time server."
        permission = _S3_PERMISSIONS.get(action) if self.location.startswith("s3") else None
        if permission and _DENIED.search(text):
            return f"Grant the permission {permission} to {self._who}, or correct the credentials."
        return (
            "Check that the bucket exists (on S3, in the region of AWS_REGION, else the AWS chain's, else the "
            f"queue's), and that {self._who} may read, list, write and delete there."
        )

    @property
    def _who(self) -> str:
        role = self._access.identity.role_arn
        if role is None or not self.location.startswith(S3_PREFIXES):
            return "driver and executors"
        return f"the role {role} (or set journalCredentials to chain, and driver and executors themselves)"


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
    bundle = credentials.ca_bundle or environment.get("REQUESTS_CA_BUNDLE")  # as botocore has it
    if bundle:
        try:
            arguments["client_options"]["root_certificate"] = Path(bundle).read_bytes()
        except OSError as error:
            raise JournalUnavailableError(
                f"the file of CA certificates '{bundle}' cannot be read ({error.strerror}). Correct AWS_CA_BUNDLE, the "
                "profile's ca_bundle, or REQUESTS_CA_BUNDLE."
            ) from None
