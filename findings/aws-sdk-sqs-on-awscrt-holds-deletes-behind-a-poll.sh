#!/usr/bin/env bash
# aws-sdk-sqs 0.12.0 (PyPI, AWS's own SDK, which calls itself experimental), its extra "awscrt" with awscrt 0.32.2
# Bet: a delete beside a long poll has a connection of its own, or waits for a free one, as with the transport for aiohttp.
# Behaviour: AWSCRTHTTPClient keeps one connection for each host, and awscrt sends the next request into it before the last
#   one is answered. HTTP/1.1 answers in order: the delete has its answer after the poll's, up to 20 s later.
# Cost: with a poll always open, each delete, renewal and send waits until the next message comes or the poll ends. A
#   renewal due in the last 20 s of the visibility timeout may come late. Take a client with a transport of its own for
#   the polls, or the transport for aiohttp.
# Seen: aiohttp: the delete was answered before the poll: True, connections 2
#       awscrt: the delete was answered before the poll: False, connections 1
#       awscrt, two clients: the delete was answered before the poll: True, connections 2
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
# The SDK needs Python 3.12.
for python in python3 python3.14 python3.13 python3.12 "$(pyenv root 2>/dev/null || true)"/versions/3.1[2-9]*/bin/python; do
  if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then break; fi
done
"$python" -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check \
  "aws-sdk-sqs[awscrt]==0.12.0" smithy-http==0.6.0 smithy-core==0.9.0 smithy-aws-core==0.12.0 awscrt==0.32.2
cat > "$place/run.py" <<'PY'
import asyncio
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from aws_sdk_sqs.client import AsyncSQSClient
from aws_sdk_sqs.config import AsyncSQSConfig
from aws_sdk_sqs.models import DeleteMessageInput, ReceiveMessageInput
from smithy_http.aio.aiohttp import AIOHTTPClient
from smithy_http.aio.crt import AWSCRTHTTPClient

polled, quiet, connections = threading.Event(), threading.Event(), set()


class Handler(BaseHTTPRequestHandler):
    """Answers a poll when `quiet` is set, and any other request at once."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        connections.add(self.client_address)
        if self.headers["X-Amz-Target"].endswith(".ReceiveMessage"):
            polled.set()
            quiet.wait()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_address[1]}"
queue = f"{url}/123456789012/payments.fifo"


async def client(transport):
    return AsyncSQSClient(config=await AsyncSQSConfig.resolve(endpoint_uri=url, region="us-east-1", transport=transport))


async def run(what, polls, deletes):
    """Begin a poll, then a delete, and let the poll end when the delete has, or five seconds have gone by."""
    polled.clear()
    quiet.clear()
    connections.clear()
    poll = asyncio.create_task(polls.receive_message(ReceiveMessageInput(queue_url=queue, wait_time_seconds=20)))
    await asyncio.to_thread(polled.wait)
    delete = asyncio.create_task(deletes.delete_message(DeleteMessageInput(queue_url=queue, receipt_handle="h")))
    await asyncio.wait([delete], timeout=5)
    first = delete.done()
    quiet.set()
    await asyncio.gather(poll, delete)
    print(f"{what}: the delete was answered before the poll: {first}, connections {len(connections)}")
    return first, len(connections)


async def main():
    aiohttp, awscrt, other = [await client(t) for t in (AIOHTTPClient(), AWSCRTHTTPClient(), AWSCRTHTTPClient())]
    return [
        await run("aiohttp", aiohttp, aiohttp),
        await run("awscrt", awscrt, awscrt),
        await run("awscrt, two clients", awscrt, other),
    ]


sys.exit(asyncio.run(main()) != [(True, 2), (False, 1), (True, 2)])
PY
# Keys come from the environment, and no proxy stands before the local server.
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b \
  "$place/venv/bin/python" "$place/run.py" 2>"$place/log" || {
  cat "$place/log" >&2
  exit 1
}
