"""Makes the SDK's clients: one per process and configuration, with connections that are watched.

A client takes tens of milliseconds to build, so each process builds one per configuration and keeps it. Clients are
never pickled and never survive a fork: Spark's worker daemon forks its workers.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import botocore.exceptions
import botocore.session
from botocore.awsrequest import AWSHTTPConnection, AWSHTTPConnectionPool, AWSHTTPSConnection, AWSHTTPSConnectionPool

from sqs_fifo_spark.aws.credentials import (
    ChainError,
    Keys,
    find_credentials,
    open_session,
    safe_text,
    sdk_config,
    sts_region,
)
from sqs_fifo_spark.aws.lean import LeanClient, with_lean_calls
from sqs_fifo_spark.aws.per_call import PerCall
from sqs_fifo_spark.aws.sdk_logs import without_sdk_logs
from sqs_fifo_spark.errors import AccessDeniedError, MissingPackageError, TransientQueueError
from sqs_fifo_spark.options import AWS_CHAIN, Identity

READ_TIMEOUT_S = 10
"""An answer may take so much longer than SQS is asked to wait; of a receive's, the beginning and each piece may."""


@dataclass(frozen=True)
class ClientConfig:
    """All that sets one SQS client apart from another."""

    region: str | None
    endpoint_url: str | None
    identity: Identity = AWS_CHAIN


_clients: dict[tuple[ClientConfig, int], Any] = {}
_building: dict[tuple[ClientConfig, int], threading.Lock] = {}
"""Lock of each client while it is built: that may call a function of the user's, which may take long."""


def sqs_client(config: ClientConfig, wait_time_s: int = 0) -> Any:
    """Return this process's client for `config`, whose long polls last up to `wait_time_s` seconds.

    Thread-safe to use. Retries are off: `retry` has the only policy. Raises MissingPackageError for a botocore that
    does not fit.
    """
    key = config, wait_time_s
    client = _clients.get(key)
    if client is None:
        with _building.setdefault(key, threading.Lock()):  # threads that begin together build one
            client = _clients.get(key)
            if client is None:
                client = _clients[key] = _build_client(config, wait_time_s)
    return client


def _build_client(config: ClientConfig, wait_time_s: int) -> Any:
    if wait_time_s and isinstance(impatient := sqs_client(config), LeanClient):
        return impatient.patient(wait_time_s)
    session = open_session(config.identity)
    credentials = find_credentials(config.identity, session, config.region)
    if credentials is None:
        raise botocore.exceptions.NoCredentialsError
    if not isinstance(credentials.get_frozen_credentials, Keys):
        credentials.get_frozen_credentials = Keys(credentials)
    session._credentials = credentials
    # Not by boto3's session: AWS's extended client puts its own there, which opens pointers and alters handles.
    client = session.create_client(
        "sqs",
        # An endpoint outside AWS has no region, but a signature needs one.
        region_name=config.region
        or session.get_config_variable("region")
        or ("us-east-1" if config.endpoint_url else None),
        endpoint_url=config.endpoint_url,
        config=sdk_config(wait_time_s + READ_TIMEOUT_S, max_pool_connections=96),
    )
    try:
        client._endpoint.http_session._pool_classes_by_scheme.update(http=_HttpPool, https=_HttpsPool)
    except (AttributeError, TypeError) as error:
        raise MissingPackageError(
            f"botocore {botocore.__version__} does not fit: its connections cannot be watched, so rows could be sent "
            f"too late ({error}). Install another version of it with pip, on driver and workers, such as 1.44.5."
        ) from None
    return with_lean_calls(client, credentials)


def read_sdk_data() -> None:
    """Have botocore read its data on SQS, for the clients of this process, and of those forked from it. Asks nobody."""
    session = open_session(AWS_CHAIN)
    session.create_client("sqs", region_name="us-east-1", aws_access_key_id="none", aws_secret_access_key="none")


def cloudwatch_client(region: str | None, endpoint_url: str | None) -> Any:
    """Return a new client of CloudWatch, with credentials of the AWS chain, which tries each call once."""
    config = sdk_config(READ_TIMEOUT_S)
    return open_session(AWS_CHAIN).create_client(
        "cloudwatch", region_name=region, endpoint_url=endpoint_url, config=config
    )


def caller_arn(config: ClientConfig) -> str:
    """Return the ARN of the identity of the client for `config`: STS is asked, which needs no permission.

    Raises AccessDeniedError if there are no credentials or AWS refuses them, TransientQueueError without an answer.
    """
    with without_sdk_logs():
        try:
            client = sqs_client(config)
            session = open_session(config.identity)
            session._credentials = client._request_signer._credentials
            endpoint = config.identity.sts_endpoint
            region = sts_region(endpoint) or client.meta.region_name
            config = sdk_config(READ_TIMEOUT_S)
            sts = session.create_client("sts", region_name=region, endpoint_url=endpoint, config=config)
            arn: str = sts.get_caller_identity()["Arn"]
        except botocore.exceptions.ClientError as error:
            raise AccessDeniedError(f"STS refuses to say who the caller is ({safe_text(error)}).") from None
        except (ChainError, botocore.exceptions.NoCredentialsError) as error:
            raise AccessDeniedError(f"there are no usable AWS credentials ({type(error).__name__}).") from None
        except (botocore.exceptions.BotoCoreError, botocore.parsers.ResponseParserError) as error:
            raise TransientQueueError(f"STS does not say who the caller is ({type(error).__name__}).") from None
    return arn


_RESET_ON_CLOSE = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
checked_before_sending = PerCall[Callable[[], None]]("checked_before_sending")
"""Calls send nothing once this raises.

They have no limit of their own until they send: credentials are fetched, names looked up, addresses tried in turn.
"""


def require_in_time() -> None:
    """Raise the error of the check of the call that is being made, if it has one."""
    check = checked_before_sending.get()
    if check is not None:
        check()


class _WatchedConnection:
    """A connection that asks in the last moment, before each piece of a request.

    A server that gets no whole request takes nothing of it. So a request that is given up is revoked: to close the
    connection resets it, where else the kernel would go on for minutes to deliver the last piece.
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


class _HttpConnection(_WatchedConnection, AWSHTTPConnection):  # type: ignore[misc]
    pass


class _HttpsConnection(_WatchedConnection, AWSHTTPSConnection):  # type: ignore[misc]
    pass


class _HttpPool(AWSHTTPConnectionPool):  # type: ignore[misc]
    ConnectionCls = _HttpConnection


class _HttpsPool(AWSHTTPSConnectionPool):  # type: ignore[misc]
    ConnectionCls = _HttpsConnection


def forget_clients(config: ClientConfig | None = None) -> None:
    """Let the next call build its client anew, with the credentials that are found then; all clients, or `config`'s.

    A provider that expires renews them by itself; a file of credentials is read once for each client, and Spark's
    workers live longer than its content.
    """
    for key in list(_clients):
        if config is None or key[0] == config:
            _clients.pop(key, None)


def _begin_process() -> None:
    _building.clear()  # some thread of the parent may hold one
    _clients.clear()


os.register_at_fork(after_in_child=_begin_process)
