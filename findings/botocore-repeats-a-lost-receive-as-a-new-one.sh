#!/usr/bin/env bash
# boto3 1.44.8 with botocore 1.44.8 (PyPI), and @aws-sdk/client-sqs 3.1175.0 (npm)
# Bet: when the answer to a receive of a FIFO queue is lost and the SDK asks again by itself, it asks as the same
#   attempt: ReceiveRequestAttemptId is there for that ("it is possible to retry the same action with an identical
#   ReceiveRequestAttemptId to retrieve the same set of messages"), and who has to repeat it is the SDK.
# Behaviour: neither SDK makes such an id. The repeat has the same content and no id, so SQS takes it for another
#   receive. The id that both send with each attempt, in the header amz-sdk-invocation-id, is none that SQS knows. An
#   id of the caller's is repeated. It has to be a new one for each receive, as one within five minutes is a repeat.
# Cost: up to ten messages of the lost answer stay in flight, and with them their groups: nothing behind them is
#   handed out until the visibility timeout is over, be it 12 hours. Their receive count has risen by one, so with
#   maxReceiveCount 1 they go to the dead-letter queue, and no consumer has seen them. The call succeeds, perhaps with
#   no message, and nothing is logged. Give each receive of a FIFO queue a UUID.
# Seen: boto3: 2 requests, attempt ids: none, none
#       boto3, the caller's id: 2 requests, attempt ids: one, one
#       @aws-sdk/client-sqs: 2 requests, attempt ids: none, none
#       @aws-sdk/client-sqs, the caller's id: 2 requests, attempt ids: one, one
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
npm install --silent --no-audit --no-fund @aws-sdk/client-sqs@3.1175.0 >/dev/null 2>&1
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check boto3==1.44.8 botocore==1.44.8
cat > receive.mjs <<'JS'
import { ReceiveMessageCommand, SQSClient } from "@aws-sdk/client-sqs";

const [, , endpoint, asked] = process.argv;
const credentials = { accessKeyId: "a", secretAccessKey: "b" };
const client = new SQSClient({ region: "us-east-1", endpoint, credentials });
await client.send(new ReceiveMessageCommand(JSON.parse(asked)));
JS
cat > receive.py <<'PY'
import json
import sys

import boto3

_, endpoint, asked = sys.argv
identity = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
boto3.client("sqs", region_name="us-east-1", endpoint_url=endpoint, **identity).receive_message(**json.loads(asked))
PY
cat > run.py <<'PY'
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

requests = []


class Handler(BaseHTTPRequestHandler):
    """Ends the connection in place of the first answer."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.close_connection = len(requests) == 1
        if not self.close_connection:
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
environment = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")}


def run(what, command, **given):
    requests.clear()
    asked = {"QueueUrl": f"{url}/123456789012/payments.fifo", "MaxNumberOfMessages": 10, **given}
    subprocess.run([*command, url, json.dumps(asked)], env=environment, check=True, capture_output=True, timeout=120)
    ids = ", ".join(request.pop("ReceiveRequestAttemptId", "none") for request in requests)
    assert all(request == requests[0] for request in requests)
    seen = f"{len(requests)} requests, attempt ids: {ids}"
    print(f"{what}: {seen}")
    return seen


ends = []
for name, command in (("boto3", [sys.executable, "receive.py"]), ("@aws-sdk/client-sqs", ["node", "receive.mjs"])):
    ends.append(run(name, command))
    ends.append(run(f"{name}, the caller's id", command, ReceiveRequestAttemptId="one"))
sys.exit(ends != ["2 requests, attempt ids: none, none", "2 requests, attempt ids: one, one"] * 2)
PY
venv/bin/python run.py
