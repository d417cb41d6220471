"""The form of a lean call and its signature, which boto3 gives once for each operation.

boto3 is asked to make a call that never leaves this process, since something answers it in place of SQS.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

_DATE, _TOKEN = "(date)", "(token)"


class NotLeanError(Exception):
    """Calls of this client are boto3's matter."""


_instead: ContextVar[Callable[..., Any] | None] = ContextVar("instead", default=None)


def before_call(**event: Any) -> Any:
    """Answer a call of boto3's in place of SQS, if this thread has something `_instead`."""
    answer = _instead.get()
    return answer(**event) if answer else None


@contextmanager
def answered_by(answer: Callable[..., Any]) -> Iterator[None]:
    """Let `answer` answer this thread's calls of boto3, instead of SQS; for a client with `before_call`."""
    token = _instead.set(answer)
    try:
        yield
    finally:
        _instead.reset(token)


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


class Form:
    """The part that is the same in all calls of one operation, as boto3 makes them: address, headers, text to sign."""

    def __init__(self, client: Any, operation: str, needed: Mapping[str, Any]) -> None:
        """`needed` is as much of the arguments as boto3 asks for, but for the URL."""
        arguments = {"QueueUrl": "https://any", **needed}
        events: list[dict[str, Any]] = []

        def take(**event: Any) -> tuple[Any, Any]:
            events.append(event)
            return SimpleNamespace(status_code=200), {}

        with answered_by(take):
            getattr(client, operation)(**arguments)
        ((request, signer, context),) = ((e["params"], e["request_signer"], e["context"]) for e in events)
        if signer.signature_version != "v4" or context.get("auth_type") not in (None, "v4"):
            raise NotLeanError
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
            ours = self.headers_for(b"{}", credentials.get_frozen_credentials(), as_botocore.headers["X-Amz-Date"])
            if ours["Authorization"] != as_botocore.headers["Authorization"]:
                raise LookupError

    def _canonical(self, marks: dict[str, str]) -> tuple[str, str]:
        """Return the text that botocore signs, with marks where calls differ, up to the body's hash, which ends it."""
        request = AWSRequest("POST", self.url, headers={**self._headers, **marks}, data=b"{}")
        signer = self._signer(None)
        canonical: str = signer.canonical_request(request)
        if any(canonical.count(mark) != 1 for mark in marks.values()):
            raise LookupError
        return canonical.rpartition("\n")[0], signer.signed_headers(signer.headers_to_sign(request))

    def headers_for(self, body: bytes, credentials: Any, date: str = "") -> dict[str, str]:
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
