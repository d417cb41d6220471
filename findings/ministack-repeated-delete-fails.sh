#!/usr/bin/env bash
# ministack 1.5.33 (SQS), with boto3 1.44.8
# Bet: a delete that is made twice with one handle succeeds both times, as on SQS, and the delete of a message whose
#   visibility timeout is over is refused on a FIFO queue.
# Behaviour: the other way round. The second delete of what is deleted is refused with ReceiptHandleIsInvalid, alone and in
#   a batch; the late delete is taken.
# Cost: an SDK repeats a delete whose answer was lost. A consumer that counts refused deletes as messages that come again
#   sees some in a test that never do on SQS, and none of those that do. A test of either passes for the wrong consumer.
# Seen: deleted, and once more: ReceiptHandleIsInvalid
#       deleted, and once more in a batch: ReceiptHandleIsInvalid
#       lapsed, then deleted: accepted
set -euo pipefail
place=$(mktemp -d)
server=
trap 'if [ -n "$server" ]; then kill "$server"; fi; rm -rf "$place"' EXIT
cd "$place"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check ministack==1.5.33
python3 -m venv venv-client
venv-client/bin/pip install --quiet --disable-pip-version-check boto3==1.44.8
cat > run.py <<'PY'
import sys
import time

import boto3
from botocore.exceptions import BotoCoreError, ClientError

KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
sqs = boto3.client("sqs", endpoint_url=f"http://127.0.0.1:{sys.argv[1]}", **KEYS)
deadline = time.monotonic() + 60
while True:
    try:
        sqs.list_queues()
        break
    except BotoCoreError:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def received(name, seconds):
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="1", MessageGroupId="g", MessageDeduplicationId="1")
    [message] = sqs.receive_message(QueueUrl=url, VisibilityTimeout=seconds)["Messages"]
    return {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}


def delete(handle):
    try:
        sqs.delete_message(**handle)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return "accepted"


def delete_in_batch(handle):
    entries = [{"Id": "0", "ReceiptHandle": handle["ReceiptHandle"]}]
    failed = sqs.delete_message_batch(QueueUrl=handle["QueueUrl"], Entries=entries).get("Failed")
    return failed[0]["Code"] if failed else "accepted"


twice = received("twice", 60)
assert delete(twice) == "accepted"
late = received("late", 1)
time.sleep(1.5)
seen = {
    "deleted, and once more": delete(twice),
    "deleted, and once more in a batch": delete_in_batch(twice),
    "lapsed, then deleted": delete(late),
}
for what, end in seen.items():
    print(f"{what}: {end}")
sys.exit(list(seen.values()) != ["ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", "accepted"])
PY
port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b TMPDIR="$place"
unset HTTP_PROXY http_proxy ALL_PROXY all_proxy
GATEWAY_PORT=$port BIND_HOST=127.0.0.1 SERVICES=sqs venv/bin/ministack > server.log 2>&1 &
server=$!
venv-client/bin/python run.py "$port"
