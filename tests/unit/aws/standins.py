"""Stand-ins of AWS: a token service whose keys expire, and an S3 that refuses those that have."""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from tests.unit.aws.answering import serving

SECRET, TOKEN = "TEMPSECRET-55cc", "TEMPTOKEN-55cc"


def now() -> datetime:
    return datetime.now(timezone.utc)


class TokenService:
    """STS: each time it is asked to assume a role it gives the next key, AKID1, AKID2 and so on."""

    def __init__(self, lasts_s: float = 3600) -> None:
        self.lasts_s = lasts_s
        self.refusal = ""
        """The code with which every request is refused, if any."""
        self.asked: list[dict[str, list[str]]] = []
        self.callers: list[str] = []
        """Access keys that asked."""
        self.expires_at: dict[str, datetime] = {}
        self.url = ""

    @property
    def expired(self) -> frozenset[str]:
        return frozenset(key for key, expires_at in self.expires_at.items() if expires_at <= now())

    def revoke(self) -> None:
        """Let no key be good any more that was given so far, though each was to last longer."""
        self.expires_at = dict.fromkeys(self.expires_at, now())

    def answer(self, authorization: str, request: str) -> tuple[int, str]:
        asked = parse_qs(request)
        self.asked.append(asked)
        self.callers.append(access_key(authorization))
        if self.refusal:
            error = f"<Error><Code>{self.refusal}</Code><Message>{SECRET}</Message></Error>"
            return 403, f"<ErrorResponse>{error}</ErrorResponse>"
        key, expires_at = f"AKID{len(self.asked)}", now() + timedelta(seconds=self.lasts_s)
        self.expires_at[key] = expires_at
        (action,) = asked["Action"]
        return 200, (
            f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result><Credentials>'
            f"<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>"
            f"<SessionToken>{TOKEN}</SessionToken><Expiration>{expires_at.isoformat()}</Expiration></Credentials>"
            "<AssumedRoleUser><AssumedRoleId>a:b</AssumedRoleId><Arn>arn:aws:sts::123456789012:assumed-role/r/s</Arn>"
            f"</AssumedRoleUser></{action}Result></{action}Response>"
        )


def access_key(authorization: str) -> str:
    return authorization.partition("Credential=")[2].partition("/")[0]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def content(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def tell(self, status: int, content: bytes = b"", share: int | None = None, **headers: str) -> None:
        """Answer, but for what is behind the first `share` bytes."""
        self.send_response(status)
        for name, value in {"content-length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:share])

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: pytest shows what a test prints."""


def _token_handler(sts: TokenService) -> type[BaseHTTPRequestHandler]:
    class _Own(Handler):
        def do_POST(self) -> None:
            status, text = sts.answer(self.headers.get("authorization", ""), self.content().decode())
            self.tell(status, text.encode(), content_type="text/xml")

    return _Own


SHARE = 60_000
"""Bytes that come of an answer that breaks off."""


class S3:
    """Objects in memory, at the end of a link that may break."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.is_expired: Callable[[str], bool] = lambda key: False
        """Told an access key."""
        self.keys: list[str] = []
        """Access keys of all requests."""
        self.refused = 0
        """Number of requests that had an expired one."""
        self.breaks = 0
        """So many more answers end after SHARE bytes."""
        self.on_break: Callable[[], object] = lambda: None
        self.puts_take_s = 0.0
        self.is_silent = False
        """True if nothing is answered."""
        self.answers: list[tuple[int, str]] = []
        """Statuses, with a code, for the next requests."""
        self.seen: list[str] = []
        self.url = ""


class _S3Handler(Handler):
    s3: S3

    def do_PUT(self) -> None:
        body = self.content()
        SYSTEM_CLOCK.sleep(self.s3.puts_take_s)
        if self._begin():
            is_new = self.s3.objects.setdefault(self.path, body) is body
            self.tell(200 if is_new else 412, etag=_tag(body))

    def do_GET(self) -> None:
        if not self._begin():
            return
        data = self.s3.objects.get(self.path)
        if data is None:
            self._refuse(404, "NoSuchKey")
        elif self.headers.get("If-Match") not in (None, _tag(data)):
            self._refuse(412, "PreconditionFailed")
        else:
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            start, end = (int(asked[1]), min(int(asked[2]) + 1, len(data))) if asked else (0, len(data))
            headers = {"etag": _tag(data), "last_modified": formatdate(usegmt=True)}
            if asked:
                headers["content_range"] = f"bytes {start}-{end - 1}/{len(data)}"
            self.close_connection = self.s3.breaks > 0 and end - start > SHARE
            if self.close_connection:
                self.s3.breaks -= 1
                self.s3.on_break()
            self.tell(206 if asked else 200, data[start:end], SHARE if self.close_connection else None, **headers)

    do_HEAD = do_GET

    def _begin(self) -> bool:
        key = access_key(self.headers.get("authorization", ""))
        self.s3.keys.append(key)
        self.s3.seen.append(f"{self.command} {self.headers.get('Range', '')}".strip())
        if self.s3.is_silent:
            self.connection.recv(1)  # until the client goes
            self.close_connection = True
        elif self.s3.is_expired(key):
            self.s3.refused += 1
            self._refuse(400, "ExpiredToken")
        elif self.s3.answers:
            self._refuse(*self.s3.answers.pop(0))
        else:
            return True
        return False

    def _refuse(self, status: int, code: str) -> None:
        self.tell(status, f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode())


def _tag(data: bytes) -> str:
    return f'"{hashlib.sha256(data).hexdigest()}"'


@contextmanager
def token_service() -> Iterator[TokenService]:
    sts = TokenService()
    with serving(_token_handler(sts)) as sts.url:
        yield sts


@contextmanager
def s3_server(tls: ssl.SSLContext | None = None) -> Iterator[S3]:
    s3 = S3()
    with serving(type("_Own", (_S3Handler,), {"s3": s3}), tls) as s3.url:
        yield s3
