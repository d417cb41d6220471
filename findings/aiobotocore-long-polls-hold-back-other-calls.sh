#!/usr/bin/env bash
# aiobotocore 3.10.0, with botocore 1.43.117 below it
# Bet: while ten long polls are under way on one SQS client, a delete or a change of visibility goes out at once:
#   max_pool_connections, which is 10, is the number of connections that are kept, as botocore's is.
# Behaviour: botocore opens an eleventh connection for it, and throws that away. aiobotocore makes the call wait until one of
#   the ten polls has an answer, 20 s here. connect_timeout, 5 s here, does not end the wait, and nothing is logged.
# Cost: a consumer of ten or more quiet queues sends its heartbeats up to 20 s late, and its deletes as well: with a
#   visibility timeout of 30 s, renewed after 15 s, a message in the middle of its work is given to another consumer. Use a
#   client of its own for the heartbeats, or set max_pool_connections above the number of polls.
# Seen: botocore, 10 polls under way: deleted before a poll ends
#       aiobotocore, 9 polls under way: deleted before a poll ends
#       aiobotocore, 10 polls under way: deleted after a poll has ended
#       aiobotocore, 10 polls under way, max_pool_connections=11: deleted before a poll ends
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check aiobotocore==3.10.0 botocore==1.43.117
cat > "$place/run.py" <<'PY'
import asyncio
import contextlib
import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import botocore.session
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.config import Config

# A poll takes far longer than a delete, and longer than the time that a call may take to connect.
POLL_S, LIMIT_S = 20, {"connect_timeout": 5, "read_timeout": 60, "retries": {"total_max_attempts": 1}}
events = []


class Handler(BaseHTTPRequestHandler):
    """Holds each receive for POLL_S, as a queue without messages does, and answers all else at once."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        poll = self.headers["X-Amz-Target"].endswith("ReceiveMessage")
        events.append("poll" if poll else "delete")
        if poll:
            time.sleep(POLL_S)
            events.append("poll ends")
        content = json.dumps({}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(content)

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 64


server = Server(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_address[1]}"
identity = {
    "region_name": "us-east-1",
    "aws_access_key_id": "a",
    "aws_secret_access_key": "b",
    "endpoint_url": url,
}
queue = {"QueueUrl": f"{url}/123456789012/payments.fifo"}
poll, delete = {**queue, "WaitTimeSeconds": POLL_S}, {**queue, "ReceiptHandle": "r"}


def end(what):
    found = "before a poll ends" if events.index("delete") < events.index("poll ends") else "after a poll has ended"
    print(f"{what}: deleted {found}", flush=True)
    return found


def in_threads(polls):
    events.clear()
    client = botocore.session.get_session().create_client("sqs", config=Config(**LIMIT_S), **identity)
    with ThreadPoolExecutor(polls + 1) as pool:
        waiting = [pool.submit(client.receive_message, **poll) for _ in range(polls)]
        while events.count("poll") < polls:
            time.sleep(0.05)
        pool.submit(client.delete_message, **delete).result()
        for future in waiting:
            future.result()
    return end(f"botocore, {polls} polls under way")


async def in_tasks(polls, **more):
    events.clear()
    async with get_session().create_client("sqs", config=AioConfig(**LIMIT_S, **more), **identity) as client:
        waiting = [asyncio.create_task(client.receive_message(**poll)) for _ in range(polls)]
        while events.count("poll") < polls:
            await asyncio.sleep(0.05)
        await client.delete_message(**delete)
        await asyncio.gather(*waiting)
    return end(", ".join([f"aiobotocore, {polls} polls under way", *(f"{key}={value}" for key, value in more.items())]))


seen = [
    in_threads(10),
    asyncio.run(in_tasks(9)),
    asyncio.run(in_tasks(10)),
    asyncio.run(in_tasks(10, max_pool_connections=11)),
]
before = "before a poll ends"
sys.exit(seen != [before, before, "after a poll has ended", before])
PY
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py"
