#!/usr/bin/env bash
# moto 5.2.5 (SQS)
# Bet: a long poll of a FIFO queue returns as soon as there is a message to give, as on SQS: also when the group of that
#   message becomes free during the poll, for the one before it is deleted or given back.
# Behaviour: moto looks once, when the poll begins, which groups are in flight, and does not look again. It waits to the end
#   and returns nothing, although a second poll beside it would get the message at once. What is sent during the poll, to
#   a group that is free, is given at once, and so is a message whose visibility timeout lapses.
# Cost: two consumers of one group hand over at the pace of WaitTimeSeconds: each message can be 20 s late in a test, which
#   then fails on its time limit, and a test that counts empty answers to end takes a full queue for an empty one.
# Seen: a message is sent: ['1'] during the poll
#       the first one's timeout lapses: ['1', '2'] during the poll
#       the first one is deleted: [] at its end, and ['2'] to the next poll
#       the first one is given back: [] at its end, and ['1', '2'] to the next poll
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check boto3==1.44.8 "moto[sqs]==5.2.5"
cat > "$place/run.py" <<'PY'
import sys
import threading
import time

import boto3
from moto import mock_aws

POLL_S, PAUSE_S = 8, 2


def receive(url, **more):
    return sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, **more).get("Messages", [])


def bodies(messages):
    return [message["Body"] for message in messages]


def send(url, body):
    sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g", MessageDeduplicationId=body)


def queue(name):
    return sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]


def first_in_flight(name, seconds=60):
    """A queue of two messages of one group, and the handle of the first, which is in flight."""
    url = queue(name)
    send(url, "1")
    send(url, "2")
    received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=1, VisibilityTimeout=seconds)
    return url, received["Messages"][0]["ReceiptHandle"]


def run(url, act):
    """Polls, lets `act` happen during the poll, and polls once more where the poll gave nothing."""
    acting = threading.Timer(PAUSE_S, act)
    acting.start()
    began = time.monotonic()
    received = bodies(receive(url, WaitTimeSeconds=POLL_S))
    end = "during the poll" if time.monotonic() - began < POLL_S else "at its end"
    acting.join()
    return f"{received} {end}" + ("" if received else f", and {bodies(receive(url))} to the next poll")


def sent():
    url = queue("sent")
    return run(url, lambda: send(url, "1"))


def lapsed():
    url, _ = first_in_flight("lapsed", seconds=PAUSE_S)
    return run(url, lambda: None)


def deleted():
    url, handle = first_in_flight("deleted")
    return run(url, lambda: sqs.delete_message(QueueUrl=url, ReceiptHandle=handle))


def given_back():
    url, handle = first_in_flight("back")
    back = {"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": 0}
    return run(url, lambda: sqs.change_message_visibility(**back))


with mock_aws():
    sqs = boto3.client("sqs", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    seen = {
        "a message is sent": sent(),
        "the first one's timeout lapses": lapsed(),
        "the first one is deleted": deleted(),
        "the first one is given back": given_back(),
    }

for what, end in seen.items():
    print(f"{what}: {end}")
expected = [
    "['1'] during the poll",
    "['1', '2'] during the poll",
    "[] at its end, and ['2'] to the next poll",
    "[] at its end, and ['1', '2'] to the next poll",
]
sys.exit(list(seen.values()) != expected)
PY
"$place/venv/bin/python" "$place/run.py"
