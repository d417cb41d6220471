#!/usr/bin/env bash
# moto 5.2.5 (SQS)
# Bet: when the visibility timeout of three messages of one group lapses, a FIFO queue gives the first of them next, as it
#   does after a lapse of one message, and when each was given back with a visibility timeout of 0.
# Behaviour: the next receive gives the third and the fourth message. The first two stay back until these are deleted. It
#   looks whether a group is in flight message by message, and forgets a lapsed one only when it comes past it.
# Cost: a consumer that dies with a batch in its hands finds its successor out of order in a test, and never on SQS. With
#   a dead-letter queue the third message is dead before the first, and the fourth is delivered while two still wait.
# Seen: one lapsed: received ['1', '2', '3', '4']
#       three given back: received ['1', '2', '3', '4']
#       three lapsed: received ['3', '4'], then [], after their delete ['1', '2']
#       three lapsed for good: received ['4'], dead-letter queue ['3']
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check boto3==1.44.8 "moto[sqs]==5.2.5"
cat > "$place/run.py" <<'PY'
import json
import sys
import time

import boto3
from moto import mock_aws


def queue(name, **attributes):
    return sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true", **attributes})["QueueUrl"]


def receive(url, most=10, seconds=60):
    received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=most, VisibilityTimeout=seconds)
    return received.get("Messages", [])


def bodies(messages):
    return [message["Body"] for message in messages]


def filled(name, **attributes):
    url = queue(name, **attributes)
    for body in "1234":
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g", MessageDeduplicationId=body)
    return url


def lapse(url, most):
    receive(url, most, seconds=1)
    time.sleep(1.5)


def one_lapsed():
    lapse(url := filled("one.fifo"), 1)
    return f"received {bodies(receive(url))}"


def three_given_back():
    for message in receive(url := filled("back.fifo"), 3):
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    return f"received {bodies(receive(url))}"


def three_lapsed():
    lapse(url := filled("three.fifo"), 3)
    first, second = receive(url), receive(url)
    for message in first:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return f"received {bodies(first)}, then {bodies(second)}, after their delete {bodies(receive(url))}"


def three_lapsed_for_good():
    dead = queue("dead.fifo")
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    lapse(url := filled("policy.fifo", RedrivePolicy=policy), 3)
    return f"received {bodies(receive(url))}, dead-letter queue {bodies(receive(dead))}"


with mock_aws():
    sqs = boto3.client("sqs", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    seen = [one_lapsed(), three_given_back(), three_lapsed(), three_lapsed_for_good()]

names = ["one lapsed", "three given back", "three lapsed", "three lapsed for good"]
for name, end in zip(names, seen, strict=True):
    print(f"{name}: {end}")
in_order = "received ['1', '2', '3', '4']"
of_three = "received ['3', '4'], then [], after their delete ['1', '2']"
sys.exit(seen != [in_order, in_order, of_three, "received ['4'], dead-letter queue ['3']"])
PY
"$place/venv/bin/python" "$place/run.py"
