"""The calls that are made for every ten messages, at a fourth of the CPU that boto3 takes; all else is boto3's.

boto3 gives the form of a call once: address, headers, text to sign. From then on a call is its arguments as JSON, a
signature by botocore's signer, and one exchange on a connection of the client's own pool: proxies aside, all settings
of connections hold, and each asks in the last moment whether it may still send. A refusal is raised by boto3 itself.
Nothing is tried again here.

Answers are as boto3 gives them, but `ResponseMetadata` is not in them. An answer that is no JSON, or ends early, or has
a status that SQS never gives, is an error, and closes the connection, on which more may be to come.

The environment variable SQSFIFO_TRANSPORT=boto3, on driver and executors, leaves these calls to boto3, too.
"""

from __future__ import annotations

import base64
import errno
import functools
import http
import http.client
import json
import logging
import math
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn
from urllib.parse import urlsplit

import botocore
import botocore.exceptions
import botocore.parsers
import urllib3.exceptions
from botocore.awsrequest import HeadersDict

from sqs_fifo_spark.aws.answer import Arrival, arriving, parse_answer, read_answer
from sqs_fifo_spark.aws.form import Form, NotLeanError, before_call
from sqs_fifo_spark.aws.per_call import PerCall
from sqs_fifo_spark.clock import SYSTEM_CLOCK

TRANSPORT_VARIABLE = "SQSFIFO_TRANSPORT"
OPERATIONS: Mapping[str, Mapping[str, Any]] = {
    "receive_message": {},
    "delete_message_batch": {"Entries": []},
    "change_message_visibility_batch": {"Entries": []},
    "send_message_batch": {"Entries": []},
}
"""The lean calls, each with as much of its arguments as boto3 asks for."""

_LEAST_S = 0.25
"""Seconds for which an answer is waited for that nobody has waited for in time: it may be there."""
_log = logging.getLogger(__name__)
answered_within = PerCall[float]("answered_within")
"""Seconds after which a lean call ends, if given, connecting included."""


def with_lean_calls(client: Any, credentials: Any) -> Any:
    """Return boto3's `client` with the four calls made leanly, signed with `credentials`.

    Returns it as it is where that is not worth it: a proxy, an endpoint with a path, another signature than SigV4; if
    the environment says so; and, with a warning, for a botocore whose inside is another one.
    """
    if os.environ.get(TRANSPORT_VARIABLE) == "boto3":
        return client
    try:
        return LeanClient(client, credentials)
    except (NotLeanError, botocore.exceptions.BotoCoreError):
        return client  # its own calls say what is wrong, if anything is
    except Exception as error:
        _warn_once(f"botocore {botocore.__version__} does not fit ({type(error).__name__})")
        return client


@functools.cache
def _warn_once(what: str) -> None:
    _log.warning("%s: calls to SQS work, but take several times the CPU. Another version of it may fit.", what)


class LeanClient:
    """boto3's client, with four calls of its own; safe for several threads, as boto3's is."""

    def __init__(self, client: Any, credentials: Any) -> None:
        self._client = client
        self._credentials = credentials
        self._connect_timeout = client.meta.config.connect_timeout
        self._read_timeout = client.meta.config.read_timeout
        self._came_at = -math.inf
        """Monotonic time at which the end of an answer came last."""
        client.meta.events.register_last("before-call.sqs", before_call)
        self._forms = {operation: Form(client, operation, needed) for operation, needed in OPERATIONS.items()}
        (url,) = {form.url for form in self._forms.values()}
        session = client._endpoint.http_session
        if session._proxy_config.proxy_url_for(url) or urlsplit(url)._replace(scheme="", netloc="").geturl() != "/":
            raise NotLeanError
        self._url = url
        self._pool = session._manager.connection_from_url(url)
        session._setup_ssl_cert(self._pool, url, session._verify)
        for name in ("_get_conn", "_put_conn", "_validate_conn"):
            getattr(self._pool, name)  # an AttributeError now rather than in a call

    def __getattr__(self, name: str) -> Any:
        return functools.partial(self._call, name) if name in OPERATIONS else getattr(self._client, name)

    def patient(self, wait_time_s: int) -> LeanClient:
        """Return this client, with its connections and keys, for lean calls that may take so many seconds longer."""
        other = object.__new__(LeanClient)
        vars(other).update(vars(self), _read_timeout=self._read_timeout + wait_time_s)
        return other

    def begin(self, operation: str, **arguments: Any) -> Callable[[], dict[str, Any]]:
        """Send a lean call, and return a function that waits for its answer: call it once, in the same thread.

        Both raise boto3's errors.
        """
        body = _encode(arguments).encode()
        head = self._forms[operation].head_for(body, self._credentials.get_frozen_credentials())
        began, limit_s = SYSTEM_CLOCK.monotonic(), answered_within.get()
        connection = self._send(head + body)
        latest = SYSTEM_CLOCK.monotonic() + self._read_timeout if limit_s is None else began + limit_s
        arrival = arriving.get()
        if arrival:
            arrival.begin(self._read_timeout)
        return lambda: self._answer(operation, connection, latest, arrival)

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        return self.begin(operation, **arguments)()

    def _answer(self, operation: str, connection: Any, latest: float, arrival: Arrival | None) -> dict[str, Any]:
        """Return the answer. Raises boto3's errors, and ResponseParserError for an answer that cannot be read."""
        latest = max(latest, SYSTEM_CLOCK.monotonic() + _LEAST_S)
        with self._closed_on_error(connection):
            if arrival:  # it may wait behind others that this link has just brought
                latest = max(latest, self._came_at + self._read_timeout)
            refusal, content = read_answer(connection, latest, arrival)
            self._came_at = SYSTEM_CLOCK.monotonic()
            answer = {} if refusal is not None else parse_answer(operation, content)
        self._pool._put_conn(connection)
        if refusal is not None:
            self._refuse(operation, refusal, content)
        return answer

    def _send(self, request: bytes) -> Any:
        """Send the call, head and body in one piece, and return its connection, which is the pool's."""
        try:
            connection = self._pool._get_conn()  # which finds a kept one that the server has closed
        except Exception as error:
            raise _botocore_error(error, self._url) from None
        with self._closed_on_error(connection):
            limit_s = answered_within.get()
            connect_s = self._connect_timeout if limit_s is None else min(self._connect_timeout, limit_s)
            connection.timeout = connect_s
            self._pool._validate_conn(connection)
            if connection.sock is not None:
                connection.sock.settimeout(connect_s)
            try:
                connection.send(request)
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.EPROTOTYPE):
                    raise  # else SQS may have refused the head of a long request, and says so
        return connection

    @contextmanager
    def _closed_on_error(self, connection: Any) -> Iterator[None]:
        """Close a connection that has failed: an answer still to come on it belongs to no later call."""
        try:
            yield
        except BaseException as error:
            connection.close()
            self._pool._put_conn(None)
            if not isinstance(error, Exception) or isinstance(error, botocore.parsers.ResponseParserError):
                raise
            raise _botocore_error(error, self._url) from None

    def _refuse(self, operation: str, response: http.client.HTTPResponse, content: bytes) -> NoReturn:
        """Raise boto3's error for this answer."""
        name = self._client.meta.method_to_api_mapping[operation]
        headers = HeadersDict(response.headers.items())
        answer = {"status_code": response.status, "headers": headers, "body": content, "context": {}}
        try:
            shape = self._client.meta.service_model.operation_model(name).output_shape
            parsed = botocore.parsers.create_parser("json").parse(answer, shape)
            found = parsed.get("Error", {})
            kind = self._client.exceptions.from_code(found.get("QueryErrorCode") or found.get("Code"))
            refusal = kind(parsed, name)
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            refusal = botocore.parsers.ResponseParserError(
                f"{operation}: status {response.status}, {type(error).__name__}"
            )
        raise refusal


def _blob(value: Any) -> str:
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    raise TypeError(f"no JSON for {type(value).__name__}")


_encode = json.JSONEncoder(default=_blob).encode


_BOTOCORE_ERRORS: tuple[tuple[tuple[type[Exception], ...], Callable[..., Exception]], ...] = (
    ((ssl.SSLError, ssl.CertificateError, urllib3.exceptions.SSLError), botocore.exceptions.SSLError),
    ((urllib3.exceptions.NewConnectionError, socket.gaierror), botocore.exceptions.EndpointConnectionError),
    ((urllib3.exceptions.ConnectTimeoutError,), botocore.exceptions.ConnectTimeoutError),
    ((TimeoutError, urllib3.exceptions.ReadTimeoutError), botocore.exceptions.ReadTimeoutError),
    ((OSError, http.client.HTTPException), botocore.exceptions.ConnectionClosedError),
    ((Exception,), botocore.exceptions.HTTPClientError),
)
"""Errors of a connection and botocore's errors for them, the first that fits. The last holds those of a check."""


def _botocore_error(error: Exception, url: str) -> Exception:
    make = next(make for kinds, make in _BOTOCORE_ERRORS if isinstance(error, kinds))
    return make(endpoint_url=url, error=error)
