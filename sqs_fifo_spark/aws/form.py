"""The form of a lean call and its signature, which boto3 gives once for each operation.

boto3 is asked to make a call that never leaves this process, since something answers it in place of SQS.
"""

from __future__ import annotations

import functools
import hmac
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, NamedTuple

import botocore.exceptions
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from sqs_fifo_spark.aws.per_call import PerCall
from sqs_fifo_spark.clock import SYSTEM_CLOCK

_DATE, _TOKEN = "(date)", "(token)"
_TIME = "%Y%m%dT%H%M%SZ"


class NotLeanError(Exception):
    """Calls of this client are boto3's matter."""


answered_by = PerCall[Callable[..., Any]]("answered_by")
"""The function that answers this thread's calls of boto3, instead of SQS; for a client with `before_call`."""


def before_call(**event: Any) -> Any:
    answer = answered_by.get()
    return answer(**event) if answer else None


class IllegalHeaderError(botocore.exceptions.BotoCoreError):  # type: ignore[misc]
    """A header would be two, or cannot be sent: a token from a file, as a rule. It does not show its content."""

    fmt = "a header has a character that no header may have; look at the credentials"


_ILLEGAL = re.compile(r"[^\t\x20-\x7e\x80-\xff]")


class _Moment(NamedTuple):
    """The part that is the same in all calls of one operation in one second with the same keys."""

    second: int
    credentials: Any
    head: str
    """Of the request, up to the length of its body."""
    canonical: str
    """The request's form, up to the body's hash, which ends it."""
    to_sign: str
    """Up to the hash of the whole form, which ends it."""
    authorization: str
    """Up to the signature."""
    key: bytes

    def head_for(self, body: bytes) -> bytes:
        canonical_hash = sha256(f"{self.canonical}\n{sha256(body).hexdigest()}".encode()).hexdigest()
        signature = hmac.digest(self.key, f"{self.to_sign}\n{canonical_hash}".encode(), "sha256").hex()
        return f"{self.head}{len(body)}\r\n{self.authorization}{signature}\r\n\r\n".encode("latin-1")


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
        self._signer = functools.partial(SigV4Auth, **names)
        self.url: str = request["url"]
        self._headers = dict(request["headers"].items())
        self._headers["Host"] = self._signer(None).headers_to_sign(AWSRequest("POST", self.url))["host"]
        self._plain = self._canonical({"X-Amz-Date": _DATE})
        self._with_token = self._canonical({"X-Amz-Date": _DATE, "X-Amz-Security-Token": _TOKEN})
        for credentials in (Credentials("id", "key"), Credentials("id", "key", "of  two words")):
            as_botocore = AWSRequest("POST", self.url, headers=dict(request["headers"].items()), data=b"{}")
            SigV4Auth(credentials, **names).add_auth(as_botocore)
            signed_at = datetime.strptime(as_botocore.headers["X-Amz-Date"], _TIME).replace(tzinfo=timezone.utc)
            ours = self._at(int(signed_at.timestamp()), credentials.get_frozen_credentials()).head_for(b"{}")
            if not ours.endswith(f"\r\nAuthorization: {as_botocore.headers['Authorization']}\r\n\r\n".encode()):
                raise LookupError
        self._moment: _Moment | None = None
        """The last one. Threads may make it at once; each uses its own."""

    def _canonical(self, marks: dict[str, str]) -> tuple[str, str]:
        """Return the text that botocore signs, with marks where calls differ, up to the body's hash, which ends it."""
        request = AWSRequest("POST", self.url, headers={**self._headers, **marks}, data=b"{}")
        signer = self._signer(None)
        canonical: str = signer.canonical_request(request)
        if any(canonical.count(mark) != 1 for mark in marks.values()):
            raise LookupError
        return canonical.rpartition("\n")[0], signer.signed_headers(signer.headers_to_sign(request))

    def head_for(self, body: bytes, credentials: Any) -> bytes:
        """Return the head of a call with this body that is made now. Raises IllegalHeaderError."""
        moment, second = self._moment, int(SYSTEM_CLOCK.now())
        if moment is None or moment.second != second or moment.credentials != credentials:
            moment = self._moment = self._at(second, credentials)
        return moment.head_for(body)

    def _at(self, second: int, credentials: Any) -> _Moment:
        date = datetime.fromtimestamp(second, timezone.utc).strftime(_TIME)
        headers = {**self._headers, "X-Amz-Date": date}
        canonical, names = self._plain
        if credentials.token:
            headers["X-Amz-Security-Token"] = credentials.token
            canonical, names = self._with_token
        values = "".join(headers.values())
        if not (values.isascii() and values.isprintable()) and _ILLEGAL.search(values):
            raise IllegalHeaderError
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        signer = self._signer(credentials)
        # As it wants to be asked: with a request, of which it takes the time.
        request = SimpleNamespace(context={"timestamp": date})
        return _Moment(
            second,
            credentials,
            f"POST / HTTP/1.1\r\nAccept-Encoding: identity\r\n{lines}Content-Length: ",
            canonical.replace(_DATE, date).replace(_TOKEN, " ".join((credentials.token or "").split())),
            signer.string_to_sign(request, "").rpartition("\n")[0],
            f"Authorization: AWS4-HMAC-SHA256 Credential={signer.scope(request)}, SignedHeaders={names}, Signature=",
            _key_of_day(credentials.secret_key, date[:8], signer._region_name, signer._service_name),
        )
