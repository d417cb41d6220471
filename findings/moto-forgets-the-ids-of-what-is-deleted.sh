#!/usr/bin/env bash
# moto 5.2.5 (SQS)
# Bet: a FIFO queue knows a deduplication id for 5 minutes, also once its message is received and deleted, as on SQS; and
#   with DeduplicationScope=messageGroup it knows it for each group.
# Behaviour: moto compares with the messages that are in the queue now. Once the first one is deleted, the same id is
#   delivered again. The scope is stored and not obeyed: the id of another group is dropped. All sends look accepted.
# Cost: a producer that repeats a send whose answer was lost doubles the message in a test whose consumer is quick, and
#   never on SQS. One that numbers each group from 1 loses all groups but the first in a test, and none on SQS.
# Seen: again while in the queue: received ['a']
#       again after the delete: received ['b']
#       in another group, scope messageGroup: received ['a']
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check boto3==1.44.8 "moto[sqs]==5.2.5"
cat > "$place/run.py" <<'PY'
import sys

import boto3
from moto import mock_aws


def queue(name, **attributes):
    return sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true", **attributes})["QueueUrl"]


def send(url, body, group="g"):
    sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group, MessageDeduplicationId="1")


def delete(url):
    [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def run(what, url):
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    bodies = [message["Body"] for message in messages]
    print(f"{what}: received {bodies}")
    return bodies


with mock_aws():
    sqs = boto3.client("sqs", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    url = queue("kept.fifo")
    send(url, "a")
    send(url, "b")
    seen = [run("again while in the queue", url)]

    url = queue("deleted.fifo")
    send(url, "a")
    delete(url)
    send(url, "b")
    seen.append(run("again after the delete", url))

    scope = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    url = queue("scope.fifo", **scope)
    assert sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(scope))["Attributes"] == scope
    send(url, "a", "g")
    send(url, "b", "h")
    seen.append(run("in another group, scope messageGroup", url))

sys.exit(seen != [["a"], ["b"], ["a"]])
PY
"$place/venv/bin/python" "$place/run.py"
