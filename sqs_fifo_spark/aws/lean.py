"""The calls that are made for every ten messages, at a fourth of the CPU that boto3 takes; all else is boto3's.

boto3 says once what a call looks like: address, headers, what is signed. From then on a call is its arguments as JSON,
a signature by botocore's signer, and one exchange on a connection of the client's own pool: proxies aside, all that is
set for connections holds, and each asks in the last moment whether it may still send. Of an answer as SQS gives it only
the length is read; any other is http.client's matter, and a refusal is raised by boto3 itself. Nothing is tried again
here.

Answers are as boto3 gives them, but `ResponseMetadata` is not in them. What is no JSON, or ends early, is an error,
where boto3 takes it for an answer without messages.

The environment variable SQSFIFO_TRANSPORT=boto3, on driver and executors, leaves these calls to boto3, too.
"""

from __future__ import annotations

import base64
import errno
import functools
import hashlib
import hmac
import http.client
import io
import json
import logging
import os
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, NoReturn
from urllib.parse import urlsplit

import botocore
import botocore.exceptions
import botocore.parsers
import urllib3.exceptions
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest, HeadersDict
from botocore.credentials import Credentials

from sqs_fifo_spark.clock import SYSTEM_CLOCK

TRANSPORT_VARIABLE = "SQSFIFO_TRANSPORT"
OPERATIONS: Mapping[str, Mapping[str, Any]] = {
    "receive_message": {},
    "delete_message_batch": {"Entries": []},
    "change_message_visibility_batch": {"Entries": []},
    "send_message_batch": {"Entries": []},
}
"""The lean calls, each with as much of its arguments as boto3 asks for."""

_DATE, _TOKEN = "(date)", "(token)"
_LEAST_S = 0.001
"""How long an answer is waited for that is late already: it may be there."""
_ANSWER_BUFFER = 1 << 16
"""Bytes; most answers come in one piece."""
_log = logging.getLogger(__name__)


def with_lean_calls(client: Any, credentials: Any) -> Any:
    """Return boto3's `client` with the four calls made leanly, signed with `credentials`.

    Returns it as it is where that is not worth it: a proxy, an endpoint with a path, another signature than SigV4; if
    the environment says so; and, with a warning, for a botocore whose inside is another one.
    """
    if os.environ.get(TRANSPORT_VARIABLE) == "boto3":
        return client
    try:
        return LeanClient(client, credentials)
    except (_NotLeanError, botocore.exceptions.BotoCoreError):
        return client  # whose own calls tell what is wrong, if anything is
    except Exception as error:
        _warn_once(f"botocore {botocore.__version__} does not fit ({type(error).__name__})")
        return client


@functools.cache
def _warn_once(what: str) -> None:
    _log.warning("%s: calls to SQS work, but take several times the CPU. Another version of it may fit.", what)


class _NotLeanError(Exception):
    """Calls of this client are boto3's matter."""


_instead: ContextVar[Callable[..., Any] | None] = ContextVar("instead", default=None)


def _before_call(**event: Any) -> Any:
    """Answer a call of boto3's in place of SQS, if this thread has something `_instead`."""
    answer = _instead.get()
    return answer(**event) if answer else None


@contextmanager
def _answered_by(answer: Callable[..., Any]) -> Iterator[None]:
    token = _instead.set(answer)
    try:
        yield
    finally:
        _instead.reset(token)


class LeanClient:
    """boto3's client, with four calls of its own; safe for several threads, as boto3's is."""

    def __init__(self, client: Any, credentials: Any) -> None:
        self._client = client
        self._credentials = credentials
        self._connect_timeout = client.meta.config.connect_timeout
        self._read_timeout = client.meta.config.read_timeout
        client.meta.events.register_last("before-call.sqs", _before_call)
        self._forms = {operation: _Form(client, operation) for operation in OPERATIONS}
        (url,) = {form.url for form in self._forms.values()}
        session = client._endpoint.http_session
        if session._proxy_config.proxy_url_for(url) or urlsplit(url)._replace(scheme="", netloc="").geturl() != "/":
            raise _NotLeanError
        self._url = url
        self._pool = session._manager.connection_from_url(url)
        session._setup_ssl_cert(self._pool, url, session._verify)
        for name in ("_get_conn", "_put_conn", "_validate_conn"):
            getattr(self._pool, name)  # an AttributeError now rather than in a call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def receive_message(self, **arguments: Any) -> dict[str, Any]:
        return self._call("receive_message", arguments)

    def delete_message_batch(self, **arguments: Any) -> dict[str, Any]:
        return self._call("delete_message_batch", arguments)

    def change_message_visibility_batch(self, **arguments: Any) -> dict[str, Any]:
        return self._call("change_message_visibility_batch", arguments)

    def send_message_batch(self, **arguments: Any) -> dict[str, Any]:
        return self._call("send_message_batch", arguments)

    def begin(self, operation: str, **arguments: Any) -> Callable[[], dict[str, Any]]:
        """Send one of the lean calls, and return what waits for its answer: to be called once, by the same thread.

        Both raise what boto3 raises.
        """
        body = _encode(arguments).encode()
        headers = self._forms[operation].signed(body, self._credentials.get_frozen_credentials())
        connection = self._sent(body, headers)
        latest = SYSTEM_CLOCK.monotonic() + self._read_timeout
        return lambda: self._answer(operation, arguments, connection, latest)

    def _call(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self.begin(operation, **arguments)()

    def _answer(self, operation: str, arguments: dict[str, Any], connection: Any, latest: float) -> dict[str, Any]:
        """Return the answer. Raises what boto3 raises, and ResponseParserError for what cannot be read."""
        refusal, content = self._received(connection, latest)
        if refusal is not None:
            self._refuse(operation, arguments, refusal, content)
        try:
            is_plain = b"null" not in content and b"BinaryValue" not in content
            answer = json.loads(content.decode() or "{}", object_hook=None if is_plain else _as_boto3_has_it)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise botocore.parsers.ResponseParserError(f"the answer to {operation} is no JSON object")
        return answer

    def _sent(self, body: bytes, headers: Mapping[str, str]) -> Any:
        """Return a connection of the pool's on which the call was sent, head and body in one piece."""
        try:
            connection = self._pool._get_conn()  # which finds a kept one that the server has closed
        except Exception as error:
            raise _as_botocore_tells(error, self._url) from None
        with self._closed_on_error(connection):
            connection.timeout = self._connect_timeout
            self._pool._validate_conn(connection)
            if connection.sock is not None:
                connection.sock.settimeout(self._connect_timeout)
            try:
                connection.send(_head(headers) + body)
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.EPROTOTYPE):
                    raise  # else SQS may have refused the head of a long request, and says so
        return connection

    def _received(self, connection: Any, latest: float) -> tuple[http.client.HTTPResponse | None, bytes]:
        """Return the answer on that connection, which goes back to the pool: the response if it is a refusal, the body.

        Waits for each piece of it until `latest`, on the monotonic clock.
        """
        with self._closed_on_error(connection):
            connection.sock.settimeout(max(_LEAST_S, latest - SYSTEM_CLOCK.monotonic()))
            refusal = None
            with connection.sock.makefile("rb", _ANSWER_BUFFER) as file:
                content = _plain_content(file)
                if content is None:
                    response = http.client.HTTPResponse(SimpleNamespace(makefile=lambda mode: file), method="POST")  # type: ignore[arg-type]
                    response.begin()
                    content = response.read()
                    if not content and response.length is None and not response.chunked:
                        raise http.client.IncompleteRead(b"")  # http.client takes an end within the headers for theirs
                    if response.will_close:
                        connection.close()
                    if response.status >= 300:
                        refusal = response
        self._pool._put_conn(connection)
        return refusal, content

    @contextmanager
    def _closed_on_error(self, connection: Any) -> Iterator[None]:
        """Whatever is still to come on a connection that has failed belongs to no later call."""
        try:
            yield
        except BaseException as error:
            connection.close()
            self._pool._put_conn(None)
            if isinstance(error, Exception):
                raise _as_botocore_tells(error, self._url) from None
            raise

    def _refuse(
        self, operation: str, arguments: dict[str, Any], response: http.client.HTTPResponse, content: bytes
    ) -> NoReturn:
        """Raise what boto3 raises for this answer, by letting it believe that it has asked."""

        def answer(*, model: Any, **event: Any) -> tuple[Any, Any]:
            told = {
                "status_code": response.status,
                "headers": HeadersDict(response.headers.items()),
                "body": content,
                "context": {},
            }
            parser = botocore.parsers.create_parser("json")
            return SimpleNamespace(status_code=response.status), parser.parse(told, model.output_shape)

        try:
            with _answered_by(answer):
                getattr(self._client, operation)(**arguments)
        except (ValueError, AttributeError, TypeError) as error:
            kind = type(error).__name__
        else:
            kind = "no error"
        raise botocore.parsers.ResponseParserError(f"{operation}: status {response.status}, {kind}")


_ILLEGAL = re.compile(r"[\r\n]")


def _head(headers: Mapping[str, str]) -> bytes:
    """Return what stands before the body. ValueError for a header that would be two."""
    if any(map(_ILLEGAL.search, headers.values())):
        raise ValueError("a header has more than one line")  # a token from a file, as a rule; not what it says
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    return "".join(["POST / HTTP/1.1\r\nAccept-Encoding: identity\r\n", *lines, "\r\n"]).encode("latin-1")


def _plain_content(file: io.BufferedReader) -> bytes | None:
    """Return the body of an answer as SQS gives it: 200, of a told length, on a connection that stays.

    Returns None for any other, and leaves that to http.client, of which nothing is read then. That takes a large part
    of a call's time for headers that nobody asks for.
    """
    there = file.peek()
    end = there.find(b"\r\n\r\n")
    if end < 0 or not there.startswith(b"HTTP/1.1 200 "):
        return None
    lengths = []
    for line in there[:end].split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        name = name.lower()
        if name == b"content-length":
            lengths.append(value.strip())
        elif name in (b"connection", b"transfer-encoding") or line[:1] in b" \t":
            return None
    if len(lengths) != 1 or not lengths[0].isdigit():
        return None
    file.read(end + 4)
    content = file.read(int(lengths[0]))
    if len(content) < int(lengths[0]):
        raise http.client.IncompleteRead(content)
    return content


class _Signer(SigV4Auth):  # type: ignore[misc]
    """botocore's, whose steps take one call of OpenSSL each, not an object of Python's."""

    def _sign(self, key: bytes, msg: str, hex: bool = False) -> Any:
        digest = hmac.digest(key, msg.encode("utf-8"), "sha256")
        return digest.hex() if hex else digest


class _Form:
    """What is the same in all calls of one operation, as boto3 makes them: address, headers, what is signed."""

    def __init__(self, client: Any, operation: str) -> None:
        arguments = {"QueueUrl": "https://any", **OPERATIONS[operation]}
        events: list[dict[str, Any]] = []

        def take(**event: Any) -> tuple[Any, Any]:
            events.append(event)
            return SimpleNamespace(status_code=200), {}

        with _answered_by(take):
            getattr(client, operation)(**arguments)
        ((request, signer, context),) = ((e["params"], e["request_signer"], e["context"]) for e in events)
        if signer.signature_version != "v4" or context.get("auth_type") not in (None, "v4"):
            raise _NotLeanError
        if request["method"] != "POST" or json.loads(request["body"]) != arguments:
            raise LookupError
        signing = context.get("signing") or {}
        names = {
            "service_name": signing.get("signing_name") or signer.signing_name,
            "region_name": signing.get("region") or signer.region_name,
        }
        self._signer = functools.partial(_Signer, **names)
        check = SimpleNamespace(context={"timestamp": "20000101T000000Z"})
        ours, theirs = (make(Credentials("id", "key"), **names) for make in (_Signer, SigV4Auth))
        if ours.signature("text", check) != theirs.signature("text", check):
            raise LookupError
        self.url: str = request["url"]
        self._headers = dict(request["headers"].items())
        self._headers["Host"] = self._signer(None).headers_to_sign(AWSRequest("POST", self.url))["host"]
        self._plain = self._canonical({"X-Amz-Date": _DATE})
        self._with_token = self._canonical({"X-Amz-Date": _DATE, "X-Amz-Security-Token": _TOKEN})

    def _canonical(self, marks: dict[str, str]) -> tuple[str, str]:
        """Return what botocore signs, with marks where calls differ and without the body's hash, which is its end."""
        request = AWSRequest("POST", self.url, headers={**self._headers, **marks}, data=b"{}")
        signer = self._signer(None)
        canonical: str = signer.canonical_request(request)
        if any(canonical.count(mark) != 1 for mark in marks.values()):
            raise LookupError
        return canonical.rpartition("\n")[0], signer.signed_headers(signer.headers_to_sign(request))

    def signed(self, body: bytes, credentials: Any) -> dict[str, str]:
        """Return the headers of a call with this body, made now."""
        date = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        headers = {**self._headers, "X-Amz-Date": date}
        canonical, names = self._plain
        if credentials.token:
            headers["X-Amz-Security-Token"] = credentials.token
            canonical, names = self._with_token
        signer = self._signer(credentials)
        canonical = canonical.replace(_DATE, date).replace(_TOKEN, credentials.token or "")
        # As it wants to be asked: with a request, of which it takes the time.
        request = SimpleNamespace(context={"timestamp": date})
        text = signer.string_to_sign(request, f"{canonical}\n{hashlib.sha256(body).hexdigest()}")
        headers["Content-Length"] = str(len(body))
        headers["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={signer.scope(request)}, SignedHeaders={names}, "
            f"Signature={signer.signature(text, request)}"
        )
        return headers


def _blob(value: Any) -> str:
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    raise TypeError(f"no JSON for {type(value).__name__}")


_encode = json.JSONEncoder(default=_blob).encode


def _as_boto3_has_it(found: dict[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in found.items() if value is not None}
    blob = found.get("BinaryValue")  # an attribute of this name is an object
    if isinstance(blob, str):
        found["BinaryValue"] = base64.b64decode(blob)
    return found


_TOLD_AS: tuple[tuple[tuple[type[Exception], ...], Callable[..., Any]], ...] = (
    ((ssl.SSLError, ssl.CertificateError, urllib3.exceptions.SSLError), botocore.exceptions.SSLError),
    ((urllib3.exceptions.NewConnectionError, socket.gaierror), botocore.exceptions.EndpointConnectionError),
    ((urllib3.exceptions.ConnectTimeoutError,), botocore.exceptions.ConnectTimeoutError),
    ((TimeoutError, urllib3.exceptions.ReadTimeoutError), botocore.exceptions.ReadTimeoutError),
    ((OSError, http.client.HTTPException), botocore.exceptions.ConnectionClosedError),
    ((Exception,), botocore.exceptions.HTTPClientError),
)
"""What a connection raises and what botocore makes of it, the first that fits. The last holds what a check raises."""


def _as_botocore_tells(error: Exception, url: str) -> Exception:
    told: Exception = next(make for kinds, make in _TOLD_AS if isinstance(error, kinds))(endpoint_url=url, error=error)
    return told
