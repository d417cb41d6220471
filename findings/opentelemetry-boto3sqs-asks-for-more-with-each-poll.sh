#!/usr/bin/env bash
# opentelemetry-instrumentation-boto3sqs 0.66b1, with opentelemetry-api 1.45.1; boto3 1.44.8
# Bet: tracing asks for the attributes of the trace beside those of the caller, so each poll asks for the same names, and the
#   caller's list stays as it is, as it does under opentelemetry-instrumentation-botocore.
# Behaviour: it appends the names to the very list that the caller has given. A consumer that keeps its list in a constant or
#   a field asks for three names more with each poll, so the request grows by 40 bytes each time, without end. The list of
#   other calls that share it grows as well.
# Cost: a consumer that polls ten times in a second sends 1.4 MB with each poll after an hour, and 35 MB after a day, if SQS
#   takes that; one that is refused receives nothing more until it is started again, which hides the cause. Give each
#   call a list of its own: MessageAttributeNames=list(NAMES).
# Seen: no tracing: 1 name in the first poll, 1 in the 100th
#       botocore: 1 name in the first poll, 1 in the 100th
#       boto3sqs: 4 names in the first poll, 301 in the 100th, and 301 in the caller's list
#       boto3sqs, a list for each call: 4 names in the first poll, 4 in the 100th
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check boto3==1.44.8 opentelemetry-api==1.45.1 \
  opentelemetry-instrumentation-boto3sqs==0.66b1 opentelemetry-instrumentation-botocore==0.66b1
cat > "$place/run.py" <<'PY'
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
from opentelemetry.instrumentation.boto3sqs import Boto3SQSInstrumentor
from opentelemetry.instrumentation.botocore import BotocoreInstrumentor

POLLS = 100
asked = []


class Handler(BaseHTTPRequestHandler):
    """Answers as SQS does when it has nothing, and counts the attributes that it was asked for."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked.append(len(request["MessageAttributeNames"]))
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
keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
seen = {}


def run(what, copy=lambda names: names):
    names = ["currency"]
    sqs = boto3.client("sqs", region_name="us-east-1", endpoint_url=url, **keys)
    asked.clear()
    for _ in range(POLLS):
        sqs.receive_message(QueueUrl=f"{url}/123456789012/payments.fifo", MessageAttributeNames=copy(names))
    first = f"{asked[0]} name" + "s" * (asked[0] > 1)
    seen[what] = f"{first} in the first poll, {asked[-1]} in the {POLLS}th"
    if len(names) > 1:
        seen[what] += f", and {len(names)} in the caller's list"


run("no tracing")
BotocoreInstrumentor().instrument()
run("botocore")
BotocoreInstrumentor().uninstrument()
Boto3SQSInstrumentor().instrument()
run("boto3sqs")
run("boto3sqs, a list for each call", list)

for what, end in seen.items():
    print(f"{what}: {end}")
expected = [
    "1 name in the first poll, 1 in the 100th",
    "1 name in the first poll, 1 in the 100th",
    "4 names in the first poll, 301 in the 100th, and 301 in the caller's list",
    "4 names in the first poll, 4 in the 100th",
]
sys.exit(list(seen.values()) != expected)
PY
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py"
