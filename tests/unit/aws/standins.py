"""Stand-ins of AWS: a token service whose keys expire, and a bucket that refuses those that have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs

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


class Bucket:
    """S3, as much of it as a put-if-absent and a get need; an expired key of `sts` is refused as S3 does it."""

    def __init__(self, sts: TokenService) -> None:
        self.sts = sts
        self.objects: dict[str, bytes] = {}
        self.keys: list[str] = []
        """Access keys of all requests."""
        self.refused = 0
        self.url = ""


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


def _bucket_handler(bucket: Bucket) -> type[BaseHTTPRequestHandler]:
    class _Own(Handler):
        def is_refused(self) -> bool:
            key = access_key(self.headers["authorization"])
            bucket.keys.append(key)
            if key not in bucket.sts.expired:
                return False
            bucket.refused += 1
            self.tell(400, b"<Error><Code>ExpiredToken</Code><Message>Expired.</Message></Error>")
            return True

        def do_PUT(self) -> None:
            content = self.content()
            if not self.is_refused():
                is_new = bucket.objects.setdefault(self.path, content) is content
                self.tell(200 if is_new else 412, etag='"1"')

        def do_GET(self) -> None:
            if not self.is_refused():
                found = bucket.objects.get(self.path)
                modified = "Thu, 26 Nov 2026 00:00:00 GMT"
                self.tell(404 if found is None else 200, found or b"", etag='"1"', last_modified=modified)

        do_HEAD = do_GET

    return _Own


@contextmanager
def token_service() -> Iterator[TokenService]:
    sts = TokenService()
    with serving(_token_handler(sts)) as sts.url:
        yield sts


@contextmanager
def bucket_of(sts: TokenService) -> Iterator[Bucket]:
    bucket = Bucket(sts)
    with serving(_bucket_handler(bucket)) as bucket.url:
        yield bucket
