"""The calls that are made for every ten messages, at a fourth of the CPU that boto3 takes; all else is boto3's.

boto3 says once what a call looks like: address, headers, what is signed. From then on a call is its arguments as JSON,
a signature by botocore's signer, and one exchange on a connection of the client's own pool: proxies aside, all that is
set for connections holds, and each asks in the last moment whether it may still send. Of an answer as SQS gives it only
the length is read; any other is http.client's matter, and a refusal is raised by boto3 itself. Nothing is tried again
here.

Answers are as boto3 gives them, but `ResponseMetadata` is not in them. What is no JSON, or ends early, or has a status
that SQS never gives, is an error, and closes the connection, on which more may be to come.

The environment variable SQSFIFO_TRANSPORT=boto3, on driver and executors, leaves these calls to boto3, too.
"""

from __future__ import annotations

import base64
import errno
import functools
import hashlib
import hmac
import http
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
_LEAST_S = 0.25
"""How long an answer is waited for that nobody has waited for in time: it may be there."""
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
        connection = self._sent(_head(headers) + body)
        latest = SYSTEM_CLOCK.monotonic() + self._read_timeout
        return lambda: self._answer(operation, arguments, connection, latest)

    def _call(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self.begin(operation, **arguments)()

    def _answer(self, operation: str, arguments: dict[str, Any], connection: Any, latest: float) -> dict[str, Any]:
        """Return the answer. Raises what boto3 raises, and ResponseParserError for what cannot be read."""
        with self._closed_on_error(connection):
            refusal, content = _received(connection, max(latest, SYSTEM_CLOCK.monotonic() + _LEAST_S))
            answer = {} if refusal is not None else _parsed(operation, content)
        self._pool._put_conn(connection)
        if refusal is not None:
            self._refuse(operation, arguments, refusal, content)
        return answer

    def _sent(self, request: bytes) -> Any:
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
                connection.send(request)
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.EPROTOTYPE):
                    raise  # else SQS may have refused the head of a long request, and says so
        return connection

    @contextmanager
    def _closed_on_error(self, connection: Any) -> Iterator[None]:
        """Whatever is still to come on a connection that has failed belongs to no later call."""
        try:
            yield
        except BaseException as error:
            connection.close()
            self._pool._put_conn(None)
            if not isinstance(error, Exception) or isinstance(error, botocore.parsers.ResponseParserError):
                raise
            raise _as_botocore_tells(error, self._url) from None

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


class IllegalHeaderError(botocore.exceptions.BotoCoreError):  # type: ignore[misc]
    """A header would be two, or cannot be sent: a token from a file, as a rule. It does not say what it holds."""

    fmt = "a header has a character that no header may have; look at the credentials"


_ILLEGAL = re.compile(r"[^\t\x20-\x7e\x80-\xff]")


def _head(headers: Mapping[str, str]) -> bytes:
    """Return what stands before the body. Raises IllegalHeaderError."""
    if any(map(_ILLEGAL.search, headers.values())):
        raise IllegalHeaderError
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    return "".join(["POST / HTTP/1.1\r\nAccept-Encoding: identity\r\n", *lines, "\r\n"]).encode("latin-1")


class _AnswerUntil(io.RawIOBase):
    """What a connection's socket brings until a time on the monotonic clock; then TimeoutError."""

    def __init__(self, connection: Any, until: float) -> None:
        self._socket = connection.sock
        self._until = until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._until - SYSTEM_CLOCK.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._socket.settimeout(left_s)
        count: int = self._socket.recv_into(buffer)
        return count


def _received(connection: Any, until: float) -> tuple[http.client.HTTPResponse | None, bytes]:
    """Return the answer on that connection, which may be used again if it is open: the response if a refusal, the body.

    Raises what a socket raises, or HTTPException for what SQS never answers; then more may be to come.
    """
    file = io.BufferedReader(_AnswerUntil(connection, until), _ANSWER_BUFFER)
    content = _plain_content(file)
    if content is not None:
        return None, content
    response = http.client.HTTPResponse(SimpleNamespace(makefile=lambda mode: file), method="POST")  # type: ignore[arg-type]
    response.begin()
    content = response.read()
    if not content and response.length is None and not response.chunked:
        raise http.client.IncompleteRead(b"")  # http.client takes an end within the headers for theirs
    is_refusal = response.status >= 300
    if not is_refusal and (response.status != 200 or (response.chunked and not content)):
        raise http.client.HTTPException(f"status {response.status}")  # a second answer may follow
    # A server may say that it waited too long, and have got the call meanwhile.
    if response.will_close or not content or response.status == http.HTTPStatus.REQUEST_TIMEOUT:
        connection.close()
    return response if is_refusal else None, content


def _parsed(operation: str, content: bytes) -> dict[str, Any]:
    try:
        is_plain = b"null" not in content and b"BinaryValue" not in content
        answer = json.loads(content.decode() or "{}", object_hook=None if is_plain else _as_boto3_has_it)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise botocore.parsers.ResponseParserError(f"the answer to {operation} is no JSON object")
    return answer


def _plain_content(file: io.BufferedReader[Any]) -> bytes | None:
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
        name, value = name.lower(), value.strip()
        if name == b"content-length":
            lengths.append(value)
        is_other = name == b"connection" and value.lower() != b"keep-alive"
        if is_other or name == b"transfer-encoding" or line[:1] in b" \t" or b"\n" in line:
            return None
    if len(lengths) != 1 or not lengths[0].isdigit():
        return None
    file.read(end + 4)
    content = file.read(int(lengths[0]))
    if len(content) < int(lengths[0]):
        raise http.client.IncompleteRead(content)
    return content


class _Signer(SigV4Auth):  # type: ignore[misc]
    """botocore's, which derives a day's key once."""

    def signature(self, string_to_sign: str, request: Any) -> str:
        day = request.context["timestamp"][:8]
        key = _key_of_day(self.credentials.secret_key, day, self._region_name, self._service_name)
        return hmac.digest(key, string_to_sign.encode(), "sha256").hex()


@functools.lru_cache(maxsize=8)
def _key_of_day(secret: str, *scope: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (*scope, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


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
        self.url: str = request["url"]
        self._headers = dict(request["headers"].items())
        self._headers["Host"] = self._signer(None).headers_to_sign(AWSRequest("POST", self.url))["host"]
        self._plain = self._canonical({"X-Amz-Date": _DATE})
        self._with_token = self._canonical({"X-Amz-Date": _DATE, "X-Amz-Security-Token": _TOKEN})
        for credentials in (Credentials("id", "key"), Credentials("id", "key", "of  two words")):
            as_botocore = AWSRequest("POST", self.url, headers=dict(request["headers"].items()), data=b"{}")
            SigV4Auth(credentials, **names).add_auth(as_botocore)
            ours = self.signed(b"{}", credentials.get_frozen_credentials(), as_botocore.headers["X-Amz-Date"])
            if ours["Authorization"] != as_botocore.headers["Authorization"]:
                raise LookupError

    def _canonical(self, marks: dict[str, str]) -> tuple[str, str]:
        """Return what botocore signs, with marks where calls differ and without the body's hash, which is its end."""
        request = AWSRequest("POST", self.url, headers={**self._headers, **marks}, data=b"{}")
        signer = self._signer(None)
        canonical: str = signer.canonical_request(request)
        if any(canonical.count(mark) != 1 for mark in marks.values()):
            raise LookupError
        return canonical.rpartition("\n")[0], signer.signed_headers(signer.headers_to_sign(request))

    def signed(self, body: bytes, credentials: Any, date: str = "") -> dict[str, str]:
        """Return the headers of a call with this body, made now, or at another `date`."""
        date = date or datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        headers = {**self._headers, "X-Amz-Date": date}
        canonical, names = self._plain
        if credentials.token:
            headers["X-Amz-Security-Token"] = credentials.token
            canonical, names = self._with_token
        signer = self._signer(credentials)
        canonical = canonical.replace(_DATE, date).replace(_TOKEN, " ".join((credentials.token or "").split()))
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
