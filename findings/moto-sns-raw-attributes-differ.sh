#!/usr/bin/env bash
# moto 5.2.5 (SNS and SQS)
# Bet: with raw delivery the attributes of a message that is published to a FIFO topic become those of the message in the
#   queue, binary ones as well, and as SNS documents it, a message with more than ten of them is not delivered.
# Behaviour: a binary attribute is delivered in a form that the queue cannot read. Each receive that asks for attributes
#   raises TypeError, and returns none of the messages it has taken, of other groups as well: they are in flight. The same
#   attribute sent to the queue itself, or a receive that asks for no attributes, works. Eleven attributes arrive.
# Cost: a test of a topic with binary attributes, such as a trace context, ends in an error that no consumer could have
#   caused, with each group in that receive held back; and one with eleven attributes passes, while SNS drops the message.
# Seen: sent to the queue: received ['a']
#       published: TypeError, then []
#       published, no attributes asked for: received ['a', 'b']
#       published with 11 attributes: received ['a']
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check boto3==1.44.8 "moto[sns,sqs]==5.2.5"
cat > "$place/run.py" <<'PY'
import sys

import boto3
from moto import mock_aws

TRACE = {"trace": {"DataType": "Binary", "BinaryValue": bytes(range(16))}}
ELEVEN = {f"name{number}": {"DataType": "String", "StringValue": "v"} for number in range(11)}


def subscribed(name):
    topic = sns.create_topic(Name=f"{name}.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes={"RawMessageDelivery": "true"})
    return topic, url


def publish(topic, body, attributes):
    identified = {"MessageGroupId": body, "MessageDeduplicationId": body}
    sns.publish(TopicArn=topic, Message=body, MessageAttributes=attributes, **identified)


def receive(url, asked):
    received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=asked)
    return [message["Body"] for message in received.get("Messages", [])]


def sent():
    _, url = subscribed("sent")
    identified = {"MessageGroupId": "a", "MessageDeduplicationId": "a"}
    sqs.send_message(QueueUrl=url, MessageBody="a", MessageAttributes=TRACE, **identified)
    return f"received {receive(url, ['All'])}"


def published():
    topic, url = subscribed("published")
    publish(topic, "a", TRACE)
    publish(topic, "b", {})
    try:
        return f"received {receive(url, ['All'])}"
    except TypeError as error:
        return f"{type(error).__name__}, then {receive(url, [])}"


def not_asked_for():
    topic, url = subscribed("not-asked-for")
    publish(topic, "a", TRACE)
    publish(topic, "b", {})
    return f"received {receive(url, [])}"


def eleven():
    topic, url = subscribed("eleven")
    publish(topic, "a", ELEVEN)
    return f"received {receive(url, ['All'])}"


with mock_aws():
    identity = {"region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    sns, sqs = boto3.client("sns", **identity), boto3.client("sqs", **identity)
    seen = {
        "sent to the queue": sent(),
        "published": published(),
        "published, no attributes asked for": not_asked_for(),
        "published with 11 attributes": eleven(),
    }

for what, end in seen.items():
    print(f"{what}: {end}")
one, both = "received ['a']", "received ['a', 'b']"
sys.exit(list(seen.values()) != [one, "TypeError, then []", both, one])
PY
"$place/venv/bin/python" "$place/run.py"
