#!/usr/bin/env bash
# moto 5.2.5 (SNS and SQS)
# Bet: a FIFO topic with ContentBasedDeduplication gives each message the SHA-256 of its content as deduplication id, drops
#   the second of two equal ones, and passes the id on, so that the queue needs no ContentBasedDeduplication of its own.
# Behaviour: the topic makes no id. A queue without ContentBasedDeduplication refuses, and publish raises that error. A
#   queue with it takes the digest of what arrives: of the envelope, which has a time and an id of its own, so both of two
#   equal messages are delivered. Only with raw delivery to such a queue is the second dropped, and the id the digest.
# Cost: a test shows a consumer duplicates that SNS would have dropped, under ids which a later run cannot know, or it makes
#   one turn on ContentBasedDeduplication on the queue. There it does more: a direct send without an id is no error then.
# Seen: plain queue: InvalidParameterValue, received 0
#       content queue: 2 published, received 2, id is the digest: False
#       content queue, raw delivery: 2 published, received 1, id is the digest: True
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check boto3==1.44.8 "moto[sns,sqs]==5.2.5"
cat > "$place/run.py" <<'PY'
import hashlib
import sys

import boto3
from botocore.exceptions import ClientError
from moto import mock_aws

BODY = "invoice 4711 is paid"


def queue(name, **attributes):
    url = sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true", **attributes})["QueueUrl"]
    answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return url, answer["Attributes"]["QueueArn"]


def run(name, raw="false", **attributes):
    fifo = {"FifoTopic": "true", "ContentBasedDeduplication": "true"}
    topic = sns.create_topic(Name=f"{name}.fifo", Attributes=fifo)["TopicArn"]
    url, arn = queue(f"{name}.fifo", **attributes)
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes={"RawMessageDelivery": raw})
    try:
        for _ in range(2):
            sns.publish(TopicArn=topic, Message=BODY, MessageGroupId="g")
        end = "2 published"
    except ClientError as error:
        end = error.response["Error"]["Code"]
    names = ["MessageDeduplicationId"]
    received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=names)
    messages = received.get("Messages", [])
    end += f", received {len(messages)}"
    if messages:
        digest = hashlib.sha256(BODY.encode()).hexdigest()
        end += f", id is the digest: {messages[0]['Attributes'][names[0]] == digest}"
    return end


with mock_aws():
    identity = {"region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    sns, sqs = boto3.client("sns", **identity), boto3.client("sqs", **identity)
    content = {"ContentBasedDeduplication": "true"}
    seen = {
        "plain queue": run("plain"),
        "content queue": run("content", **content),
        "content queue, raw delivery": run("raw", raw="true", **content),
    }

for what, end in seen.items():
    print(f"{what}: {end}")
expected = ["InvalidParameterValue, received 0", "2 published, received 2, id is the digest: False"]
sys.exit(list(seen.values()) != [*expected, "2 published, received 1, id is the digest: True"])
PY
"$place/venv/bin/python" "$place/run.py"
