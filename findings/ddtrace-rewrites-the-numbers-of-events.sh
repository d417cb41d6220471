#!/usr/bin/env bash
# ddtrace 4.16.0, which patches botocore; boto3 1.44.8
# Bet: tracing of PutEvents adds its field to the Detail of an event and leaves the rest as the caller has written it, as it
#   leaves the body of a message to SQS.
# Behaviour: Detail is parsed and written anew. Each number with a point becomes a double: zeros at its end go, as do digits
#   beyond the sixteenth or so, and an amount of 16 digits can change by a cent. Nothing is logged.
# Cost: an event that a rule of EventBridge puts into a FIFO queue has another amount than its producer wrote, and one that is
#   put again has another Detail, because of the ids of its trace: a queue that deduplicates by content and is given the
#   Detail alone keeps both. Write amounts as strings, or set DD_BOTOCORE_DISTRIBUTED_TRACING=false.
# Seen: PutEvents, no tracing: {"price": 19.90, "total": 90071992547409.93, "rate": 0.12345678901234567890}
#       PutEvents, traced: {"price": 19.9, "total": 90071992547409.94, "rate": 0.12345678901234568, "_datadog": ...}
#       PutEvents, traced, the same again: another text
#       SendMessage, traced: {"price": 19.90, "total": 90071992547409.93, "rate": 0.12345678901234567890}
#       PutEvents, traced, DD_BOTOCORE_DISTRIBUTED_TRACING=false: as with no tracing
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check ddtrace==4.16.0 boto3==1.44.8 botocore==1.44.8
cat > "$place/run.py" <<'PY'
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# No agent of Datadog is asked: only what goes to AWS counts.
os.environ |= {"DD_TRACE_AGENT_URL": "http://127.0.0.1:9", "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false"}
os.environ |= {"DD_REMOTE_CONFIGURATION_ENABLED": "false", "DD_BOTOCORE_DISTRIBUTED_TRACING": sys.argv[1]}

import boto3
import ddtrace

PAYMENT = '{"price": 19.90, "total": 90071992547409.93, "rate": 0.12345678901234567890}'
REWRITTEN = '{"price": 19.9, "total": 90071992547409.94, "rate": 0.12345678901234568'
requests = []


class Handler(BaseHTTPRequestHandler):
    """Takes an event or a message, as EventBridge and SQS do."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        content = b'{"FailedEntryCount": 0, "Entries": [{"EventId": "1"}], "MessageId": "1"}'
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_address[1]}"
keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1", "endpoint_url": url}


def put():
    event = {"Source": "shop", "DetailType": "paid", "Detail": PAYMENT}
    boto3.client("events", **keys).put_events(Entries=[event])
    return requests[-1]["Entries"][0]["Detail"]


def send():
    queue = {"QueueUrl": f"{url}/123456789012/payments.fifo", "MessageGroupId": "g", "MessageDeduplicationId": "1"}
    boto3.client("sqs", **keys).send_message(MessageBody=PAYMENT, **queue)
    return requests[-1]["MessageBody"]


if sys.argv[1] == "true":
    untraced = put()
    print(f"PutEvents, no tracing: {untraced}")
    ddtrace.patch(botocore=True)
    traced, again, sent = put(), put(), send()
    kept, field, _ = traced.partition(', "_datadog": ')
    print(f"PutEvents, traced: {kept}{field}...}}")
    print(f"PutEvents, traced, the same again: {'another' if again != traced else 'the same'} text")
    print(f"SendMessage, traced: {sent}")
    sys.exit((untraced, kept, bool(field), again == traced, sent) != (PAYMENT, REWRITTEN, True, False, PAYMENT))
ddtrace.patch(botocore=True)
off = put()
print(f"PutEvents, traced, DD_BOTOCORE_DISTRIBUTED_TRACING=false: {'as with no tracing' if off == PAYMENT else off}")
sys.exit(off != PAYMENT)
PY
for tracing in true false; do
  env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py" "$tracing" 2>"$place/log" || {
    cat "$place/log" >&2
    exit 1
  }
done
