"""The four calls that are made all the time, past most of boto3: it takes more of a processor than all else together.

    first call of an operation      boto3's own; the request that it sends becomes the model of those that follow
    calls after it                  the model's headers, the new body, signed by botocore's signer, sent by its session
    an answer that is no success    handed to boto3, which makes its error of it

So endpoint, proxies, certificates, timeouts, credentials and errors are boto3's. A request that is not as expected, as
with a version of botocore that signs in another way, is no model: that operation then stays with boto3.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest

_log = logging.getLogger(__name__)

TRANSPORT = "SQS_FIFO_SPARK_TRANSPORT"
"""The environment variable that leaves all calls to boto3 if it is `boto3`, on driver and workers."""
_CONSTANT = frozenset({"content-type", "user-agent", "x-amz-target", "x-amzn-query-mode"})
"""Headers that are the same for all calls of an operation."""
_DROPPED = frozenset(
    {"amz-sdk-invocation-id", "amz-sdk-request", "content-length", "x-amzn-trace-id"}  # they tell of one call
)
_SIGNATURE = frozenset({"authorization", "x-amz-date", "x-amz-security-token"})
_UNSIGNED = frozenset({"content-length", "expect", "transfer-encoding", "user-agent", "x-amzn-trace-id"})
_SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=[^/]+/[0-9]{8}/([^/]+)/([^/]+)/aws4_request, SignedHeaders=([^,]+),")
_TIMESTAMP = "%Y%m%dT%H%M%SZ"

_instead: ContextVar[Callable[[Any], Any] | None] = ContextVar("instead", default=None)
"""What boto3 does in the call that is being made instead of sending its request; None of it lets it send."""


class UnexpectedRequestError(Exception):
    """boto3's request is not one that a model can be made of."""


@dataclass(frozen=True)
class _Model:
    """What all requests of one operation have in common."""

    url: str
    headers: Mapping[str, str]
    host: str
    canonical_path: str
    service: str
    region: str

    def signed(self, body: bytes, credentials: Any, timestamp: str) -> dict[str, str]:
        """Return the headers of a request with this body; `credentials` are frozen ones."""
        auth = SigV4Auth(credentials, self.service, self.region)
        request = SimpleNamespace(context={"timestamp": timestamp})
        headers = {**self.headers, "x-amz-date": timestamp}
        if credentials.token:
            headers["x-amz-security-token"] = credentials.token
        signed = {name: value for name, value in headers.items() if name not in _UNSIGNED}
        signed["host"] = self.host
        names = sorted(signed)
        lines = ["POST", self.canonical_path, "", *(f"{name}:{' '.join(signed[name].split())}" for name in names), ""]
        canonical = "\n".join([*lines, ";".join(names), hashlib.sha256(body).hexdigest()])
        signature = auth.signature(auth.string_to_sign(request, canonical), request)
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={auth.scope(request)}, SignedHeaders={';'.join(names)}, Signature={signature}"
        )
        return headers


def _model_of(request: Any, credentials: Any) -> _Model:
    """Return the model of a request that boto3 has signed. Raises UnexpectedRequestError unless we sign it alike."""
    headers = {name.lower(): _text(value) for name, value in request.headers.items()}
    scope = _SCOPE.match(headers.get("authorization", ""))
    if request.method != "POST" or not isinstance(request.body, bytes) or scope is None:
        raise UnexpectedRequestError("its signature, method or body")
    unknown = headers.keys() - _CONSTANT - _DROPPED - _SIGNATURE
    if unknown:
        raise UnexpectedRequestError(f"its headers {', '.join(sorted(unknown))}")
    region, service, names = scope.groups()
    auth, bare = SigV4Auth(credentials, service, region), AWSRequest("POST", request.url)
    canonical_path = auth.canonical_request(bare).split("\n")[1]
    host = auth.headers_to_sign(bare)["host"]
    # With all that boto3 has signed in this call, we have to come to its signature.
    per_call = {name: headers[name] for name in names.split(";") if name in _DROPPED}
    constant = {name: headers[name] for name in headers.keys() & _CONSTANT}
    probe = _Model(request.url, {**constant, **per_call}, host, canonical_path, service, region)
    if probe.signed(request.body, credentials, headers["x-amz-date"])["authorization"] != headers["authorization"]:
        raise UnexpectedRequestError("its signature")
    return _Model(request.url, constant, host, canonical_path, service, region)


class LeanClient:
    """A boto3 client of SQS, whose four calls that are made all the time take a third of its time.

    Those have the arguments and the answers of the boto3 client's, but for `ResponseMetadata`, and raise its errors.
    All else is the boto3 client's. Thread-safe.
    """

    def __init__(self, client: Any, credentials: Any) -> None:
        """`credentials` are those that `client` signs with."""
        self._client = client
        self._credentials = credentials
        self._send = client._endpoint.http_session.send
        self._models: dict[str, _Model | None] = {}
        """By operation. None for one that stays with boto3."""
        client.meta.events.register_first("before-send.sqs", _do_instead)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def receive_message(self, **arguments: Any) -> Mapping[str, Any]:
        answer = self._call("receive_message", arguments)
        for message in answer.get("Messages") or ():
            for value in (message.get("MessageAttributes") or {}).values():
                if isinstance(value.get("BinaryValue"), str):
                    value["BinaryValue"] = base64.b64decode(value["BinaryValue"])
        return answer

    def delete_message_batch(self, **arguments: Any) -> Mapping[str, Any]:
        return self._call("delete_message_batch", arguments)

    def change_message_visibility_batch(self, **arguments: Any) -> Mapping[str, Any]:
        return self._call("change_message_visibility_batch", arguments)

    def send_message_batch(self, **arguments: Any) -> Mapping[str, Any]:
        return self._call("send_message_batch", arguments)

    def _call(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if operation not in self._models:
            return self._call_first(operation, arguments)
        model = self._models[operation]
        if model is None:
            return self._by_boto3(operation, arguments)
        body = json.dumps(arguments, default=_base64).encode()
        frozen = self._credentials.get_frozen_credentials()
        headers = model.signed(body, frozen, datetime.now(timezone.utc).strftime(_TIMESTAMP))
        response = self._send(AWSPreparedRequest("POST", model.url, headers, body, False))
        if response.status_code == 200:
            try:
                answer = json.loads(response.content)
            except ValueError:
                answer = None
            if isinstance(answer, dict):
                return answer
        with _instead_of_sending(lambda request: response):
            return self._by_boto3(operation, arguments)

    def _call_first(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Let boto3 make the call, and keep its request as a model."""
        sent: list[Any] = []
        with _instead_of_sending(sent.append):
            try:
                return self._by_boto3(operation, arguments)
            finally:
                if sent:
                    self._learn(operation, sent[0])

    def _learn(self, operation: str, request: Any) -> None:
        credentials = self._credentials.get_frozen_credentials()
        if f"Credential={credentials.access_key}/" not in _text(request.headers.get("Authorization", "")):
            return  # renewed since it was signed: the next call is the first one
        try:
            self._models[operation] = _model_of(request, credentials)
        except Exception as error:  # whatever it is, boto3 can go on
            self._models[operation] = None
            kind = error if isinstance(error, UnexpectedRequestError) else type(error).__name__
            _log.warning(
                "%s is left to boto3, which takes more time: its request is not as expected (%s).", operation, kind
            )

    def _by_boto3(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = getattr(self._client, operation)(**arguments)
        return answer


def lean(client: Any, credentials: Any) -> Any:
    """Return `client`, which signs with `credentials`, with its calls made lean, unless TRANSPORT says otherwise."""
    return client if os.environ.get(TRANSPORT) == "boto3" else LeanClient(client, credentials)


@contextmanager
def _instead_of_sending(do: Callable[[Any], Any]) -> Iterator[None]:
    token = _instead.set(do)
    try:
        yield
    finally:
        _instead.reset(token)


def _do_instead(request: Any, **_: Any) -> Any:
    do = _instead.get()
    return None if do is None else do(request)


def _base64(value: Any) -> str:
    """Return how JSON has bytes. Raises TypeError for all that is no JSON."""
    return base64.b64encode(value).decode()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
