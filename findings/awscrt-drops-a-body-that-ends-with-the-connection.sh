#!/usr/bin/env bash
# awscrt 0.38.0, its HTTP/1.1 client; compared with botocore 1.44.8
# Bet: an answer without Content-Length, whose body ends where the server closes the connection, is given to on_body to its
#   end, as HTTP has it (RFC 9112, 6.3) and as botocore does it.
# Behaviour: on_body is not called, and the stream ends well, with status 200, with and without "Connection: close". It is as
#   if the answer had no body. A body that is shorter than its Content-Length is an error, as it should be.
# Cost: behind a proxy or a double of AWS that answers in that way, as one of HTTP/1.0 does, a receive gives no messages
#   while SQS has them in flight: their groups stand still, and after some receives they go to the dead-letter queue. An
#   object that is there reads as an empty one. Take an answer of 200 without a body for a failed one.
# Seen: body with a length: awscrt 4 bytes, botocore 4 bytes
#       body to the end, Connection: close: awscrt 0 bytes, botocore 4 bytes
#       body to the end: awscrt 0 bytes, botocore 4 bytes
#       body to the end, HTTP/1.0: awscrt 0 bytes, botocore 4 bytes
#       body shorter than its length: awscrt AWS_IO_SOCKET_CLOSED
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check awscrt==0.38.0 botocore==1.44.8
cat > "$place/run.py" <<'PY'
import socket
import sys
import threading

from awscrt import http
from awscrt.exceptions import AwsCrtError
from awscrt.io import ClientBootstrap, DefaultHostResolver, EventLoopGroup
from botocore.awsrequest import AWSRequest
from botocore.httpsession import URLLib3Session

LIMIT_S = 20
loops = EventLoopGroup(1)
bootstrap = ClientBootstrap(loops, DefaultHostResolver(loops))


def serve(head):
    """Answers one request with the head and four bytes, and closes the connection. Returns its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer():
        connection, _ = listener.accept()
        with listener, connection:
            received = b""
            while b"\r\n\r\n" not in received:
                received += connection.recv(65536)
            connection.sendall("\r\n".join([*head, "", "paid"]).encode())

    threading.Thread(target=answer, daemon=True).start()
    return listener.getsockname()[1]


def with_awscrt(head):
    port, chunks, statuses = serve(head), [], []
    connection = http.HttpClientConnection.new("127.0.0.1", port, bootstrap).result(LIMIT_S)
    request = http.HttpRequest("GET", "/")
    request.headers.add("Host", "127.0.0.1")

    def on_response(http_stream, status_code, headers, **more):
        statuses.append(status_code)

    def on_body(http_stream, chunk, **more):
        chunks.append(bytes(chunk))

    stream = connection.request(request, on_response, on_body)
    stream.activate()
    try:
        status = stream.completion_future.result(LIMIT_S)
    except AwsCrtError as error:
        return error.name
    assert [status] == statuses == [200]
    return f"{len(b''.join(chunks))} bytes"


def with_botocore(head):
    request = AWSRequest("GET", f"http://127.0.0.1:{serve(head)}/").prepare()
    return f"{len(URLLib3Session(timeout=LIMIT_S).send(request).content)} bytes"


cases = {
    "body with a length": ["HTTP/1.1 200 OK", "Content-Length: 4"],
    "body to the end, Connection: close": ["HTTP/1.1 200 OK", "Connection: close"],
    "body to the end": ["HTTP/1.1 200 OK"],
    "body to the end, HTTP/1.0": ["HTTP/1.0 200 OK"],
}
seen = {what: f"awscrt {with_awscrt(head)}, botocore {with_botocore(head)}" for what, head in cases.items()}
seen["body shorter than its length"] = f"awscrt {with_awscrt(['HTTP/1.1 200 OK', 'Content-Length: 9'])}"
for what, end in seen.items():
    print(f"{what}: {end}")
dropped = "awscrt 0 bytes, botocore 4 bytes"
expected = ["awscrt 4 bytes, botocore 4 bytes", dropped, dropped, dropped, "awscrt AWS_IO_SOCKET_CLOSED"]
sys.exit(list(seen.values()) != expected)
PY
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py"
