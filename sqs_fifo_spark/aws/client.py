"""Where credentials come from and how clients are made: sessions, assumed roles, one client per process.

A client takes tens of milliseconds to build, so each process builds one per configuration and keeps it. Clients
are never pickled and never survive a fork: Spark's worker daemon forks its workers.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

import boto3
import botocore.exceptions
import botocore.parsers
import botocore.session
from botocore.awsrequest import AWSHTTPConnection, AWSHTTPConnectionPool, AWSHTTPSConnection, AWSHTTPSConnectionPool
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    Credentials,
    DeferredRefreshableCredentials,
    RefreshableCredentials,
)

from sqs_fifo_spark.aws.lean import with_lean_calls
from sqs_fifo_spark.errors import (
    AccessDeniedError,
    JournalUnavailableError,
    MissingPackageError,
    TransientQueueError,
)

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 10
"""How long an answer may take beyond the time that SQS is asked to wait."""
_CREDENTIAL_TTL = timedelta(minutes=10)


@dataclass(frozen=True)
class ClientConfig:
    """All that tells one SQS client from another."""

    region: str | None
    endpoint_url: str | None
    role_arn: str | None
    role_session_name: str
    external_id: str | None = field(repr=False)


_building = threading.Lock()


def sqs_client(config: ClientConfig, wait_time_s: int = 0) -> Any:
    """Return this process's client for `config`, whose long polls last up to `wait_time_s` seconds.

    Thread-safe to use. Retries are off: `retry` has the only policy. Raises MissingPackageError for a botocore that
    does not fit.
    """
    with _building:  # threads that begin together build one
        return _build_client(config, wait_time_s)


@functools.cache
def _build_client(config: ClientConfig, wait_time_s: int) -> Any:
    session = botocore.session.get_session()
    credentials = _from_chain(session.get_credentials)
    if credentials is None:
        raise botocore.exceptions.NoCredentialsError
    if config.role_arn:
        credentials = _assumed_role(session, credentials, config)
    if "get_frozen_credentials" not in vars(credentials):
        credentials.get_frozen_credentials = functools.partial(_keys, credentials, credentials.get_frozen_credentials)
    session._credentials = credentials
    client = boto3.session.Session(botocore_session=session).client(
        "sqs",
        region_name=config.region or _default_region(session, config),
        endpoint_url=config.endpoint_url,
        config=Config(
            retries={"total_max_attempts": 1},
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=wait_time_s + READ_TIMEOUT_S,
            max_pool_connections=96,
            user_agent_extra="sqs-fifo-spark",
        ),
    )
    try:
        client._endpoint.http_session._pool_classes_by_scheme.update(http=_HttpPool, https=_HttpsPool)
    except (AttributeError, TypeError) as error:
        raise MissingPackageError(
            f"botocore {botocore.__version__} does not fit: its connections cannot be watched, so rows could be sent "
            f"too late ({error}). Install another version of it with pip, on driver and workers, such as 1.44.5."
        ) from None
    return with_lean_calls(client, credentials)


def cloudwatch_client(region: str | None, endpoint_url: str | None) -> Any:
    """Return a new client of CloudWatch, with credentials of the AWS chain, which tries each call once."""
    config = Config(
        retries={"total_max_attempts": 1},
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        user_agent_extra="sqs-fifo-spark",
    )
    return boto3.session.Session().client("cloudwatch", region_name=region, endpoint_url=endpoint_url, config=config)


def caller_arn(config: ClientConfig) -> str:
    """Return the ARN of who makes the calls of the client for `config`: STS is asked, which needs no permission.

    Raises AccessDeniedError if there are no credentials or AWS refuses them, TransientQueueError without an answer.
    """
    with without_sdk_logs():
        try:
            client = sqs_client(config)
            session = botocore.session.get_session()
            session._credentials = client._request_signer._credentials
            once = Config(
                retries={"total_max_attempts": 1}, connect_timeout=CONNECT_TIMEOUT_S, read_timeout=READ_TIMEOUT_S
            )
            sts = session.create_client("sts", region_name=client.meta.region_name, config=once)
            arn: str = sts.get_caller_identity()["Arn"]
        except botocore.exceptions.ClientError as error:
            code = error.response.get("Error", {}).get("Code")
            raise AccessDeniedError(f"STS refuses to say who the caller is ({code}).") from None
        except (ChainError, botocore.exceptions.NoCredentialsError) as error:
            raise AccessDeniedError(f"there are no usable AWS credentials ({type(error).__name__}).") from None
        except (botocore.exceptions.BotoCoreError, botocore.parsers.ResponseParserError) as error:
            raise TransientQueueError(f"STS does not say who the caller is ({type(error).__name__}).") from None
    return arn


_RESET_ON_CLOSE = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
_check: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def checked_before_sending(check: Callable[[], None]) -> Iterator[None]:
    """Let calls that are made inside send nothing once `check` raises.

    A call has no limit of its own until it sends: credentials are fetched, names looked up, addresses tried in turn.
    """
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def require_in_time() -> None:
    """Raise what the check of the call that is being made raises, if it has one."""
    check = _check.get()
    if check is not None:
        check()


class _Watched:
    """A connection that asks in the last moment, before each piece of a request.

    A server that gets no whole request takes nothing of it. So what is given up is revoked: to close the connection
    resets it, where else the kernel would go on for minutes to deliver what it has taken of the last piece.
    """

    sock: Any
    socket_options: Any
    connect: Callable[[], None]

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.socket_options = [*(self.socket_options or ()), _RESET_ON_CLOSE]

    def send(self, data: Any) -> None:
        require_in_time()
        if self.sock is None:
            self.connect()  # which may take long
            require_in_time()
        super().send(data)  # type: ignore[misc]


class _HttpConnection(_Watched, AWSHTTPConnection):  # type: ignore[misc]
    pass


class _HttpsConnection(_Watched, AWSHTTPSConnection):  # type: ignore[misc]
    pass


class _HttpPool(AWSHTTPConnectionPool):  # type: ignore[misc]
    ConnectionCls = _HttpConnection


class _HttpsPool(AWSHTTPSConnectionPool):  # type: ignore[misc]
    ConnectionCls = _HttpsConnection


def _default_region(session: botocore.session.Session, config: ClientConfig) -> str | None:
    """An endpoint outside AWS has no region, but a signature needs one."""
    region: str | None = session.get_config_variable("region")
    return region or ("us-east-1" if config.endpoint_url else None)


class ChainError(Exception):
    """The AWS chain failed in a way of its own. Its text is the type of the error: the error's own may hold secrets."""


def _from_chain(find: Callable[[], Any]) -> Any:
    """Return `find()`, which may run a program of the user's, read files and ask services.

    Raises ChainError for what none of the SDK's own errors tells: a token file or a program that is not there, an
    answer that cannot be read, credentials that are renewed to expired ones.
    """
    try:
        return find()
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError, botocore.parsers.ResponseParserError):
        raise
    except Exception as error:
        raise ChainError(type(error).__name__) from None


def _keys(credentials: Any, renew: Callable[[], Any]) -> Any:
    """Return what to sign with: `renew()`, or if that fails, the keys of `credentials` for as long as they are valid.

    botocore keeps them itself where a provider raises, until ten minutes before they expire. But a metadata service
    that does not answer within a second gives it an empty answer, which it takes for a refusal.
    """
    try:
        return _from_chain(renew)
    except Exception:
        keys = getattr(credentials, "_frozen_credentials", None)
        if keys is None or credentials._is_expired():
            raise
        return keys


def _assumed_role(
    session: botocore.session.Session, own: Credentials, config: ClientConfig
) -> DeferredRefreshableCredentials:
    extra = {"RoleSessionName": config.role_session_name}
    if config.external_id:
        extra["ExternalId"] = config.external_id
    region = session.get_config_variable("region") or config.region or _default_region(session, config)
    create_client = functools.partial(session.create_client, region_name=region)
    fetcher = AssumeRoleCredentialFetcher(create_client, own, config.role_arn, extra_args=extra)
    return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")


def forget_clients() -> None:
    """Let the next call build its client anew, with the credentials that the AWS chain gives then.

    A provider that expires renews them by itself; a file of credentials is read once for each client, and Spark's
    workers live longer than what stands in it.
    """
    _build_client.cache_clear()


class S3Credentials:
    """AWS credentials from the same chain that boto3 uses, in the form in which obstore asks for them."""

    def __init__(self) -> None:
        with without_sdk_logs():
            session = botocore.session.get_session()
            try:
                self.region: str | None = session.get_config_variable("region")
                self._credentials = session.get_credentials()
            except Exception as error:  # not its text, as below
                raise JournalUnavailableError(
                    f"the AWS chain gives no credentials for the journal on S3 ({type(error).__name__}). They come "
                    "from environment, profile or instance role."
                ) from None

    def __bool__(self) -> bool:
        return self._credentials is not None

    def __call__(self) -> dict[str, Any]:
        with without_sdk_logs():
            try:
                if not isinstance(self._credentials, RefreshableCredentials):
                    # A file's content may have been renewed since; what stood in it first is better than nothing.
                    self._credentials = botocore.session.get_session().get_credentials() or self._credentials
                frozen = _keys(self._credentials, self._credentials.get_frozen_credentials)
            except ChainError as error:
                raise RuntimeError(str(error)) from None
            except Exception as error:  # obstore tells its text: that of a credential process holds anything
                raise RuntimeError(type(error).__name__) from None
        asked_again_at = datetime.now(timezone.utc) + _CREDENTIAL_TTL
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": min(asked_again_at, getattr(self._credentials, "_expiry_time", None) or asked_again_at),
        }


class _InOurCalls(logging.Filter):
    """Drops the SDK's own DEBUG and INFO records while this thread makes one of our calls, and tracebacks of others.

    At DEBUG, botocore and urllib3 log whole requests and answers: bodies of messages, signatures and tokens. The
    traceback of credentials that were not renewed holds what a credential process has said.
    """

    active = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        if not getattr(self.active, "depth", 0):
            return True
        if record.exc_info and record.exc_info[0]:
            record.msg = f"{record.msg} ({record.exc_info[0].__name__})"
        record.exc_info = record.exc_text = record.stack_info = None
        return record.levelno >= logging.WARNING


_FILTER = _InOurCalls()
_CHATTY = ("botocore", "boto3", "urllib3", "s3transfer")
_muted: set[str] = set()
"""Loggers that have been looked at. Two threads may add one twice, which is adding it once."""


@contextmanager
def without_sdk_logs() -> Iterator[None]:
    """Keep message bodies and credentials out of all logs, at any level, during the calls made inside."""
    names = logging.root.manager.loggerDict
    if not _muted.issuperset(names):
        for name in names.keys() - _muted:
            if name.startswith(_CHATTY):
                logging.getLogger(name).addFilter(_FILTER)
            _muted.add(name)
    _FILTER.active.depth = getattr(_FILTER.active, "depth", 0) + 1
    try:
        yield
    finally:
        _FILTER.active.depth -= 1


def _begin_process() -> None:
    global _building
    _building = threading.Lock()  # some thread of the parent may hold the old one
    _build_client.cache_clear()


os.register_at_fork(after_in_child=_begin_process)
