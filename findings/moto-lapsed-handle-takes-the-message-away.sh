#!/usr/bin/env bash
# moto 5.2.5 (SQS)
# Bet: a consumer of a FIFO queue is late: its visibility timeout is over, and another one holds the message. Its receipt
#   handle does nothing any more: moto refuses it, as SQS does ("The receipt handle has expired").
# Behaviour: moto takes each handle that a message ever had. The late delete succeeds: the message is gone from the one
#   that holds it, and the next of its group is given out. The late change to 0 s gives it to a third one at once.
# Cost: a test of a slow consumer passes, with one message, one delete and no error. On SQS the delete fails, and the
#   message comes again. A test with two consumers shows a message held twice, or its group out of order, as SQS never
#   does.
# Seen: late delete: status 200, then received ['b']
#       holder's extension: ReceiptHandleIsInvalid
#       late release: status 200, then received ['a']
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check boto3==1.44.8 "moto[sqs]==5.2.5"
cat > "$place/run.py" <<'PY'
import sys, time

import boto3
from botocore.exceptions import ClientError
from moto import mock_aws


def receive(url, timeout_s):
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=1, VisibilityTimeout=timeout_s)
    return answer.get("Messages", [])


def scene(name):
    """A queue of one group, its first message given to a late consumer and then to the one that holds it."""
    url = sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})["QueueUrl"]
    for body in "ab":
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g", MessageDeduplicationId=body)
    [late] = receive(url, timeout_s=1)
    time.sleep(1.5)
    [held] = receive(url, timeout_s=600)
    assert late["Body"] == held["Body"] == "a" and late["ReceiptHandle"] != held["ReceiptHandle"]
    return {"QueueUrl": url}, late["ReceiptHandle"], held["ReceiptHandle"]


def run(what, call, queue, **arguments):
    try:
        end = f"status {call(**queue, **arguments)['ResponseMetadata']['HTTPStatusCode']}"
        if what.startswith("late"):
            end += f", then received {[message['Body'] for message in receive(queue['QueueUrl'], 600)]}"
    except ClientError as error:
        end = error.response["Error"]["Code"]
    print(f"{what}: {end}")
    return end


with mock_aws():
    sqs = boto3.client("sqs", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    queue, late, held = scene("delete.fifo")
    seen = [run("late delete", sqs.delete_message, queue, ReceiptHandle=late)]
    change = sqs.change_message_visibility
    seen.append(run("holder's extension", change, queue, ReceiptHandle=held, VisibilityTimeout=600))
    queue, late, held = scene("release.fifo")
    seen.append(run("late release", change, queue, ReceiptHandle=late, VisibilityTimeout=0))

sys.exit(seen != ["status 200, then received ['b']", "ReceiptHandleIsInvalid", "status 200, then received ['a']"])
PY
"$place/venv/bin/python" "$place/run.py"
