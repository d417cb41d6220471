#!/usr/bin/env bash
# ministack 1.5.33 and moto 5.2.5 (SQS)
# Bet: a consumer that fails at a message gives it back with a visibility timeout of 0, and meets the other groups meanwhile:
#   on SQS a group that was given back, or has lapsed, comes behind those that are free already.
# Behaviour: both look through the queue from its beginning at each receive. The oldest group that is free comes first, so
#   one that is given back again and again is all that ever comes.
# Cost: with one message that always fails, a test of "the other groups go on" waits for good, or until a redrive policy
#   moves that message; and a test of a retry passes that relies on the same message coming next, which SQS does not do.
# Seen: MiniStack, 6 receives of one message, each given back: a a a a a a
#       moto, 6 receives of one message, each given back: a a a a a a
#       MiniStack, 2 receives, none given back: a b
#       moto, 2 receives, none given back: a b
set -euo pipefail
place=$(mktemp -d)
server=
trap 'if [ -n "$server" ]; then kill "$server"; fi; rm -rf "$place"' EXIT
cd "$place"
# The two do not go into one environment.
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check ministack==1.5.33
python3 -m venv venv-moto
venv-moto/bin/pip install --quiet --disable-pip-version-check boto3==1.44.8 "moto[sqs]==5.2.5"
cat > run.py <<'PY'
import sys
import time

import boto3
from botocore.exceptions import BotoCoreError
from moto import mock_aws

KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}


def received(sqs, name, count, gives_back):
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    for group in "ab":
        sqs.send_message(QueueUrl=url, MessageBody=group, MessageGroupId=group, MessageDeduplicationId=group)
    bodies = []
    for _ in range(count):
        [message] = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=1, VisibilityTimeout=60)["Messages"]
        bodies.append(message["Body"])
        if gives_back:
            sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    return " ".join(bodies)


def ready(sqs):
    deadline = time.monotonic() + 60
    while True:
        try:
            return sqs.list_queues()
        except BotoCoreError:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def show(what, end):
    print(f"{what}: {end}")
    return end


ministack = boto3.client("sqs", endpoint_url=f"http://127.0.0.1:{sys.argv[1]}", **KEYS)
ready(ministack)
with mock_aws():
    moto = boto3.client("sqs", **KEYS)
    moto_seen = [received(moto, "back", 6, True), received(moto, "kept", 2, False)]
seen = [received(ministack, "back", 6, True), received(ministack, "kept", 2, False)]
what = "6 receives of one message, each given back", "2 receives, none given back"
ends = [
    show(f"MiniStack, {what[0]}", seen[0]),
    show(f"moto, {what[0]}", moto_seen[0]),
    show(f"MiniStack, {what[1]}", seen[1]),
    show(f"moto, {what[1]}", moto_seen[1]),
]
sys.exit(ends != ["a a a a a a", "a a a a a a", "a b", "a b"])
PY
port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b TMPDIR="$place"
unset HTTP_PROXY http_proxy ALL_PROXY all_proxy
GATEWAY_PORT=$port BIND_HOST=127.0.0.1 SERVICES=sqs venv/bin/ministack > server.log 2>&1 &
server=$!
venv-moto/bin/python run.py "$port"
