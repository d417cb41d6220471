#!/usr/bin/env bash
# botocore 1.44.8 (below boto3; urllib3 2.8.0 below it)
# Bet: when the connection ends before the whole of an SQS answer has come, the call is sent again or raises an error, as
#   it is when no answer comes: the answer has a Content-Length, and is no JSON any more.
# Behaviour: botocore turns off urllib3's check of the length, and reads what is no JSON as an answer without members. The
#   call succeeds after one request, with status 200 and none of the members that its answer always has. The body of an
#   object from S3 is checked: there the same cut is an error.
# Cost: a receive that is cut looks like an empty queue, and its messages stay in flight, with their groups, until their
#   time is over. A batch that is cut has no `Failed`, so all its entries look sent; the ones that SQS has refused are
#   never sent again. Count the entries of `Successful`, and ask for the MessageId of a single send.
# Seen: send, no answer: ['MessageId'] after 2 requests
#       send, cut: [] after 1 request
#       receive, cut: [] after 1 request
#       batch with a refused entry, whole: ['Failed', 'Successful'] after 1 request
#       batch with a refused entry, cut: [] after 1 request
#       object from S3, cut: ResponseStreamingError
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check boto3==1.44.8 botocore==1.44.8 urllib3==2.8.0
cat > "$place/run.py" <<'PY'
import json, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
from botocore.exceptions import ResponseStreamingError

SENT = {"MessageId": "1", "MD5OfMessageBody": "0cc175b9c0f1b6a831c399e269772661"}
MESSAGES = {"Messages": [{"MessageId": "1", "ReceiptHandle": "r", "Body": "a"}]}
BATCH = {
    "Successful": [{"Id": "0", **SENT}],
    "Failed": [{"Id": "1", "Code": "InternalError", "SenderFault": False}],
}
requests, plan = [], []


class Handler(BaseHTTPRequestHandler):
    """One answer of `plan` for each request: a document, and the share of it that comes before the connection ends."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        requests.append(self.path)
        document, share = plan.pop(0)
        content = json.dumps(document).encode()
        if share > 0:
            self.send_response(200)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: int(len(content) * share)])
        self.close_connection = share < 1

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_address[1]}"
identity = {"region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "b", "endpoint_url": url}
sqs, s3 = boto3.client("sqs", **identity), boto3.client("s3", **identity)
queue = {"QueueUrl": f"{url}/123456789012/payments.fifo"}
identified = {"MessageGroupId": "g", "MessageDeduplicationId": "1"}


def run(what, call, *answers):
    plan[:] = answers
    requests.clear()
    try:
        answer = call()
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
        members = sorted(member for member in answer if member in ("MessageId", "Messages", "Successful", "Failed"))
        end = f"{members} after {len(requests)} request" + "s" * (len(requests) > 1)
    except ResponseStreamingError as error:
        end = type(error).__name__
    print(f"{what}: {end}")
    return end


def send():
    return sqs.send_message(**queue, MessageBody="a", **identified)


def send_batch():
    return sqs.send_message_batch(**queue, Entries=[{"Id": i, "MessageBody": "a", **identified} for i in "01"])


def receive():
    return sqs.receive_message(**queue)


def get():
    answer = s3.get_object(Bucket="payloads", Key="1")
    answer["Body"].read()
    return answer


seen = [
    run("send, no answer", send, (SENT, 0), (SENT, 1)),
    run("send, cut", send, (SENT, 0.5), (SENT, 1)),
    run("receive, cut", receive, (MESSAGES, 0.5), (MESSAGES, 1)),
    run("batch with a refused entry, whole", send_batch, (BATCH, 1)),
    run("batch with a refused entry, cut", send_batch, (BATCH, 0.5), (BATCH, 1)),
    run("object from S3, cut", get, ("a" * 100, 0.5)),
]
empty, whole = "[] after 1 request", "['Failed', 'Successful'] after 1 request"
sys.exit(seen != ["['MessageId'] after 2 requests", empty, empty, whole, empty, "ResponseStreamingError"])
PY
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py"
