#!/usr/bin/env bash
# botocore 1.44.8 (below boto3)
# Bet: the digests that SQS puts in its answers (MD5OfBody, MD5OfMessageAttributes, MD5OfMessageBody) are compared with what
#   was received or sent, as AWS's clients for Java and JavaScript do: a message that is not the one of the digest is
#   received again or raises an error.
# Behaviour: botocore compares none of them. A body with another digest, an attribute with another digest, and the answer
#   to a send that SQS has read differently are returned as they are, after one request. An object from S3 whose checksum
#   does not match its body is an error.
# Cost: whatever changes a body on its way, such as a proxy that rewrites answers or a local double that keeps bodies badly,
#   is handled as if the producer had sent it, and deleted: nothing else in the answer shows it. Compute hashlib.md5 of
#   `Body` and compare.
# Seen: receive, body of another digest: ['paid 10'] after 1 request
#       receive, attributes of another digest: ['paid 19'] after 1 request
#       send, answered with another digest: accepted after 1 request
#       object from S3 of another checksum: FlexibleChecksumError
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check boto3==1.44.8 botocore==1.44.8
cat > "$place/run.py" <<'PY'
import base64, hashlib, json, sys, threading, zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
from botocore.exceptions import FlexibleChecksumError

SENT, ARRIVED = "paid 19", "paid 10"
DIGEST = hashlib.md5(SENT.encode()).hexdigest()
CHECKSUM = base64.b64encode(zlib.crc32(SENT.encode()).to_bytes(4, "big")).decode()
ATTRIBUTE = {"currency": {"DataType": "String", "StringValue": "EUR"}}
MESSAGE = {"MessageId": "1", "ReceiptHandle": "r", "MD5OfBody": DIGEST}
requests, plan = [], {}


class Handler(BaseHTTPRequestHandler):
    """Answers a POST as SQS with `plan`, and a GET as S3 with an object that is not the one of its checksum."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(json.dumps(plan).encode(), {"Content-Type": "application/x-amz-json-1.0"})

    def do_GET(self):
        self.answer(ARRIVED.encode(), {"x-amz-checksum-crc32": CHECKSUM})

    def answer(self, content, headers):
        requests.append(self.path)
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_address[1]}"
identity = {"region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "b", "endpoint_url": url}
sqs, s3 = boto3.client("sqs", **identity), boto3.client("s3", **identity)
queue = {"QueueUrl": f"{url}/123456789012/payments.fifo"}


def run(what, call, **answer):
    plan.clear()
    plan.update(answer)
    requests.clear()
    try:
        end = f"{call()} after {len(requests)} request" + "s" * (len(requests) > 1)
    except FlexibleChecksumError as error:
        end = type(error).__name__
    print(f"{what}: {end}")
    return end


def receive():
    return [message["Body"] for message in sqs.receive_message(**queue, MessageAttributeNames=["All"])["Messages"]]


def send():
    sqs.send_message(**queue, MessageBody=ARRIVED, MessageGroupId="g", MessageDeduplicationId="1")
    return "accepted"


def get():
    return s3.get_object(Bucket="payloads", Key="1")["Body"].read()


spoilt = {**MESSAGE, "Body": ARRIVED}
other = {**MESSAGE, "Body": SENT, "MessageAttributes": ATTRIBUTE, "MD5OfMessageAttributes": "0" * 32}
seen = [
    run("receive, body of another digest", receive, Messages=[spoilt]),
    run("receive, attributes of another digest", receive, Messages=[other]),
    run("send, answered with another digest", send, MessageId="1", MD5OfMessageBody=DIGEST),
    run("object from S3 of another checksum", get),
]
expected = [f"['{ARRIVED}'] after 1 request", f"['{SENT}'] after 1 request", "accepted after 1 request"]
sys.exit(seen != [*expected, "FlexibleChecksumError"])
PY
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py"
