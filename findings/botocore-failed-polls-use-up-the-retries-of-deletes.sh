#!/usr/bin/env bash
# botocore 1.44.8 (below boto3), in its default retry mode, "standard"
# Bet: a delete that SQS answers with 503 is tried again, whatever other calls of the client have failed before: each call
#   has its three attempts.
# Behaviour: the retries of all calls of a client come out of one budget of 500, of which each takes 14, and a call that
#   succeeds at first gives 1 back. Eighteen polls that fail empty it, within seconds, for botocore waits for 0.15 s at
#   most in each. Then no call of the client is tried again until four polls have succeeded, and then one call, once.
# Cost: a short outage, and a consumer's deletes and renewals fail at their first 503 for minutes after its end: a quiet
#   queue gives a successful poll each 20 s. The messages come again, or while they are at work. Use one client for the
#   polls and another for deletes and renewals, or retries={"mode": "legacy"}, which has no such budget.
# Seen: one 503: deleted after 2 requests
#       18 failed polls, then one 503: 503 after 1 request
#       4 polls that succeed, then one 503: deleted after 2 requests
#       legacy, 18 failed polls, then one 503: deleted after 2 requests
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check botocore==1.44.8
cat > "$place/run.py" <<'PY'
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError

requests, refusals = [], {}


class Handler(BaseHTTPRequestHandler):
    """Answers as SQS does when it has nothing, or with 503 as often as `refusals` says for the operation."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        operation = self.headers["X-Amz-Target"].partition(".")[2]
        requests.append(operation)
        refused = refusals.get(operation, 0) > 0
        if refused:
            refusals[operation] -= 1
        content = b"" if refused else b"{}"
        self.send_response(503 if refused else 200)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_address[1]}"
queue = {"QueueUrl": f"{url}/123456789012/payments.fifo"}
keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}


def client(**config):
    session = botocore.session.get_session()
    return session.create_client("sqs", "us-east-1", endpoint_url=url, config=Config(**config), **keys)


def poll(sqs, times, fail):
    refusals["ReceiveMessage"] = 100 if fail else 0
    for _ in range(times):
        try:
            sqs.receive_message(**queue)
        except ClientError:
            pass


def delete(sqs):
    """The end of a delete whose first request is answered with 503."""
    refusals["DeleteMessage"] = 1
    requests.clear()
    try:
        sqs.delete_message(**queue, ReceiptHandle="h")
        end = "deleted"
    except ClientError as error:
        end = error.response["Error"]["Code"]
    return f"{end} after {len(requests)} request" + "s" * (len(requests) > 1)


sqs = client()
seen = {"one 503": delete(sqs)}
poll(sqs, 18, fail=True)
seen["18 failed polls, then one 503"] = delete(sqs)
poll(sqs, 4, fail=False)
seen["4 polls that succeed, then one 503"] = delete(sqs)
# One wait in place of four, to save time.
legacy = client(retries={"mode": "legacy", "max_attempts": 1})
poll(legacy, 18, fail=True)
seen["legacy, 18 failed polls, then one 503"] = delete(legacy)

for when, end in seen.items():
    print(f"{when}: {end}")
retried = "deleted after 2 requests"
sys.exit(list(seen.values()) != [retried, "503 after 1 request", retried, retried])
PY
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py"
