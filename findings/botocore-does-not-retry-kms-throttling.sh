#!/usr/bin/env bash
# botocore 1.44.8 (below boto3)
# Bet: a call to an encrypted queue that SQS answers with KmsThrottled ("The request was denied due to request
#   throttling") is sent again after a wait, as one that is answered with RequestThrottled is.
# Behaviour: RequestThrottled is tried again in both retry modes. KmsThrottled is not, in either, whatever number of
#   attempts is set: the first one is raised, under the name of the header as under the one of the body.
# Cost: a burst that meets the quota of the key, which other services share, ends a send or a receive at once, where the
#   same burst at the quota of the queue passes unseen. Retry KmsThrottled in the caller.
# Seen: legacy, RequestThrottled: sent after 2 requests
#       legacy, KmsThrottled: KmsThrottled after 1 request
#       legacy, KMS.ThrottlingException: KmsThrottled after 1 request
#       standard, RequestThrottled: sent after 2 requests
#       standard, KmsThrottled: KmsThrottled after 1 request
#       standard, KMS.ThrottlingException: KmsThrottled after 1 request
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check boto3==1.44.8 botocore==1.44.8
cat > "$place/run.py" <<'PY'
import json, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

requests, errors = [], []


class Handler(BaseHTTPRequestHandler):
    """SQS with a queue at its quota for one request: the error's name in the body, and in the header its old name."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        requests.append(self.rfile.read(int(self.headers["Content-Length"])))
        if errors:
            status, name, old_name = errors.pop()
            document = {"__type": f"com.amazonaws.sqs#{name}", "message": "The request was denied."}
            self.answer(status, document, {"x-amzn-query-error": f"{old_name};Sender"} if old_name else {})
        else:
            self.answer(200, {"MessageId": "1"}, {})

    def answer(self, status, document, headers):
        content = json.dumps(document).encode()
        self.send_response(status)
        for name, header in headers.items():
            self.send_header(name, header)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_address[1]}"


def run(mode, status, name, old_name):
    sqs = boto3.client(
        "sqs", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b", endpoint_url=url,
        config=Config(retries={"mode": mode, "total_max_attempts": 5}),
    )
    errors[:] = [(status, name, old_name)]
    requests.clear()
    try:
        sqs.send_message(
            QueueUrl=f"{url}/123456789012/payments.fifo", MessageBody="a", MessageGroupId="g", MessageDeduplicationId="1"
        )
        end = "sent"
    except ClientError as error:
        end = type(error).__name__
    end += f" after {len(requests)} request" + "s" * (len(requests) > 1)
    print(f"{mode}, {old_name or name}: {end}")
    return end


seen = [
    run(mode, *error)
    for mode in ("legacy", "standard")
    for error in (
        (403, "RequestThrottled", "RequestThrottled"),
        (400, "KmsThrottled", None),
        (400, "KmsThrottled", "KMS.ThrottlingException"),
    )
]
sys.exit(seen != ["sent after 2 requests", *["KmsThrottled after 1 request"] * 2] * 2)
PY
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py"
