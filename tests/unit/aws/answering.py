"""A server that answers as a test says, and keeps what it was sent."""

from __future__ import annotations

import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.options import SourceOptions, parse_source_options
from sqs_fifo_spark.source.queue import Queue


@dataclass
class Answer:
    """One answer. `status` 0: none, and the connection is closed.

    `content` may be made of the request, which it gets.
    """

    content: Any = field(default_factory=dict)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    is_cut: bool = False
    """The end of it does not come."""
    has_cut_head: bool = False
    """Not even the end of its headers comes."""
    closes: bool = False
    """The connection is closed behind it, without a word of that in the headers."""

    def bytes(self, request: bytes) -> bytes:
        content = self.content(json.loads(request)) if callable(self.content) else self.content
        return content if isinstance(content, bytes) else json.dumps(content).encode()


@dataclass
class Asked:
    """One request."""

    path: str
    headers: Mapping[str, str]
    content: bytes
    connection: int

    @property
    def access_key(self) -> str:
        return self.headers["authorization"].partition("Credential=")[2].partition("/")[0]


class Answering:
    """`answer` is given to all, until the test sets another one; `hold` is waited for before it."""

    def __init__(self) -> None:
        self.answer = Answer()
        self.asked: list[Asked] = []
        self.connections = 0
        self.hold = threading.Event()
        self.hold.set()
        self.url = ""

    def request_handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                server.connections += 1
                self.number = server.connections

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                server.asked.append(Asked(self.path, headers, content, self.number))
                server.hold.wait(60)
                answer, body = server.answer, server.answer.bytes(content)
                self.close_connection = answer.closes or answer.is_cut or answer.has_cut_head or not answer.status
                if not answer.status:
                    return
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if answer.has_cut_head:
                    self.flush_headers()
                    return
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if answer.is_cut else body)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing: pytest shows what a test prints."""

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client may be gone."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve on this machine, at the URL that is returned."""
    server = _Server(("127.0.0.1", 0), handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def answering(tls: ssl.SSLContext | None = None) -> Iterator[Answering]:
    made = Answering()
    with serving(made.request_handler(), tls) as made.url:
        try:
            yield made
        finally:
            made.hold.set()


def make_authority(home: Path) -> ssl.SSLContext:
    """Write a private CA to `ca.pem`; return what serves on this machine with a certificate of it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    now, keys = datetime.now(timezone.utc), {name: ec.generate_private_key(ec.SECP256R1()) for name in ("ca", "server")}
    for number, (name, key) in enumerate(keys.items(), 1):
        built = x509.CertificateBuilder(
            issuer_name=x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ca")]),
            subject_name=x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]),
            public_key=key.public_key(),
            serial_number=number,
            not_valid_before=now - timedelta(days=1),
            not_valid_after=now + timedelta(days=1),
        )
        built = built.add_extension(x509.BasicConstraints(ca=name == "ca", path_length=None), critical=True)
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        built = built.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        (home / f"{name}.pem").write_bytes(built.sign(keys["ca"], hashes.SHA256()).public_bytes(Encoding.PEM))
    (home / "key.pem").write_bytes(keys["server"].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(home / "server.pem", home / "key.pem")
    return context


def source_options(url: str, **given: str) -> SourceOptions:
    return parse_source_options({"queueUrl": url, "journalLocation": "/journal", **given})


def source_queue(url: str, **given: str) -> Queue:
    return Queue(source_options(url, **given), SYSTEM_CLOCK)


def sqs_message(number: int, body: str = "b") -> dict[str, Any]:
    """A message of one group, as SQS gives it."""
    names = ("ApproximateReceiveCount", "SentTimestamp", "SenderId", "ApproximateFirstReceiveTimestamp")
    attributes = {"MessageGroupId": "g", "MessageDeduplicationId": str(number), "SequenceNumber": str(number)}
    attributes.update(dict.fromkeys(names, "1"))
    return {"MessageId": str(number), "ReceiptHandle": f"h{number}", "Body": body, "Attributes": attributes}
