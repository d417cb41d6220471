#!/usr/bin/env bash
# moto 5.2.5 (SNS and SQS)
# Bet: publish answers for the topic. A subscribed queue that cannot take the message, for it is gone or allows fewer bytes,
#   changes neither the answer nor the other queues; the message goes to the dead-letter queue of that subscription. An
#   entry of publish_batch is in `Successful` or in `Failed`.
# Behaviour: publish raises the error of the first queue that refuses. Queues that were subscribed before it have the
#   message, those after it never get it, and the RedrivePolicy of a subscription is stored and not obeyed. In a batch the
#   refused entry is in neither list.
# Cost: a test shows a publisher an error that SNS never gives; on its repeat the first queue drops the message and the last
#   one has a gap for good. Whoever looks in `Failed` alone takes a batch for sent, and no test can show that messages of
#   a lost queue land in the dead-letter queue.
# Seen: publish: InvalidParameterValue
#       queue before ['1'], small queue [], its dead-letter queue [], queue after []
#       publish_batch: successful ['2', '4'], failed []
#       queue before ['1', '2', '3', '4'], small queue ['2', '4'], its dead-letter queue [], queue after ['2', '4']
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check boto3==1.44.8 "moto[sns,sqs]==5.2.5"
cat > "$place/run.py" <<'PY'
import json
import sys

import boto3
from botocore.exceptions import ClientError
from moto import mock_aws

LARGE = 2000


def queue(name, **attributes):
    url = sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true", **attributes})["QueueUrl"]
    answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return url, answer["Attributes"]["QueueArn"]


def entry(number, size):
    """A message whose group is its own, so that each can be received."""
    body = str(number).ljust(size)
    return {"Message": body, "MessageGroupId": str(number), "MessageDeduplicationId": str(number)}


def kept(url):
    """The numbers of the messages in the queue, which all stay there."""
    received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0)
    return sorted(message["Body"].strip() for message in received.get("Messages", []))


def state():
    names = ["queue before", "small queue", "its dead-letter queue", "queue after"]
    return ", ".join(f"{name} {kept(url)}" for name, url in zip(names, urls, strict=True))


with mock_aws():
    identity = {"region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    sns, sqs = boto3.client("sns", **identity), boto3.client("sqs", **identity)
    topic = sns.create_topic(Name="topic.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]
    before, small, after = queue("before.fifo"), queue("small.fifo", MaximumMessageSize="1024"), queue("after.fifo")
    dead = queue("dead.fifo")
    urls = [before[0], small[0], dead[0], after[0]]
    for url, arn in (before, small, after):
        attributes = {"RawMessageDelivery": "true"}
        if url == small[0]:
            attributes["RedrivePolicy"] = json.dumps({"deadLetterTargetArn": dead[1]})
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes=attributes)
    seen = []
    try:
        sns.publish(TopicArn=topic, **entry(1, LARGE))
        seen.append("publish: accepted")
    except ClientError as error:
        seen.append(f"publish: {error.response['Error']['Code']}")
    seen.append(state())
    entries = [{"Id": str(number), **entry(number, size)} for number, size in ((2, 1), (3, LARGE), (4, 1))]
    answer = sns.publish_batch(TopicArn=topic, PublishBatchRequestEntries=entries)
    successful, failed = ([found["Id"] for found in answer[key]] for key in ("Successful", "Failed"))
    seen.append(f"publish_batch: successful {successful}, failed {failed}")
    seen.append(state())

print("\n".join(seen))
expected = [
    "publish: InvalidParameterValue",
    "queue before ['1'], small queue [], its dead-letter queue [], queue after []",
    "publish_batch: successful ['2', '4'], failed []",
    "queue before ['1', '2', '3', '4'], small queue ['2', '4'], its dead-letter queue [], queue after ['2', '4']",
]
sys.exit(seen != expected)
PY
"$place/venv/bin/python" "$place/run.py"
