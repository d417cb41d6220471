#!/usr/bin/env bash
# amazon-sqs-extended-client 1.0.1 and amazon-sns-extended-client 1.0.1 (PyPI); moto 5.2.5 stands for SQS, SNS and S3
# Bet: these clients take the place of boto3's: a small message is sent by them as by boto3, with each of the three types
#   of attributes; a large one goes to S3 and keeps its attributes.
# Behaviour: a Binary attribute, such as a trace context, cannot be sent. From the moment that a bucket is set, SQS's client
#   raises AttributeError for each message with one, small ones too, alone or in a batch; SNS's raises TypeError, whether
#   a bucket is set or not. Both take the value for text. A value of type str passes, and is sent as its UTF-8 bytes.
# Cost: a producer that is given the client for its few large messages sends no message with a Binary attribute any more,
#   at the first one. In a batch one such entry keeps all others back; what goes before it on S3 has no message.
# Seen: boto3: sqs sent, sns sent
#       no bucket set: sqs sent, sns TypeError
#       bucket set: sqs AttributeError, sns TypeError
#       bucket set, two entries, the second one with it: sqs AttributeError, 0 at SQS, 1 object
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check \
  amazon-sns-extended-client==1.0.1 amazon-sqs-extended-client==1.0.1 boto3==1.44.8 "moto[s3,sns,sqs]==5.2.5"
cat > "$place/run.py" <<'PY'
import sys

import boto3
from moto import mock_aws

KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
plain = boto3.Session(**KEYS)  # before the imports, which put their own sessions in the place of boto3's

from sns_extended_client import SNSExtendedClientSession
from sqs_extended_client import SQSExtendedClientSession

BINARY = {"trace": {"DataType": "Binary", "BinaryValue": bytes(range(16))}}


def tried(call, **arguments):
    try:
        call(**arguments)
    except Exception as error:
        return type(error).__name__
    return "sent"


def run(what, sqs, sns):
    identity = {"MessageGroupId": "g", "MessageDeduplicationId": what, "MessageAttributes": BINARY}
    end = (
        f"sqs {tried(sqs.send_message, QueueUrl=url, MessageBody='small', **identity)}, "
        f"sns {tried(sns.publish, TopicArn=topic, Message='small', **identity)}"
    )
    print(f"{what}: {end}")
    return end


def batch(what):
    start = counts()
    entries = [
        {"Id": str(number), "MessageBody": body, "MessageGroupId": "g", "MessageDeduplicationId": f"batch {number}",
         "MessageAttributes": attributes}
        for number, (body, attributes) in enumerate([("x" * 300_000, {}), ("small", BINARY)])
    ]
    end = f"sqs {tried(sqs.send_message_batch, QueueUrl=url, Entries=entries)}"
    messages, objects = (after - before for after, before in zip(counts(), start))
    end += f", {messages} at SQS, {objects} object"
    print(f"{what}: {end}")
    return end


def counts():
    name = "ApproximateNumberOfMessages"
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"]
    return int(attributes[name]), s3.list_objects_v2(Bucket="payloads")["KeyCount"]


with mock_aws():
    s3 = plain.client("s3")
    s3.create_bucket(Bucket="payloads")
    sqs, sns = SQSExtendedClientSession(**KEYS).client("sqs"), SNSExtendedClientSession(**KEYS).client("sns")
    url = sqs.create_queue(QueueName="payments.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    topic = sns.create_topic(Name="payments.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]

    seen = [run("boto3", plain.client("sqs"), plain.client("sns")), run("no bucket set", sqs, sns)]
    sqs.large_payload_support = sns.large_payload_support = "payloads"
    seen += [run("bucket set", sqs, sns), batch("bucket set, two entries, the second one with it")]

sys.exit(seen != [
    "sqs sent, sns sent",
    "sqs sent, sns TypeError",
    "sqs AttributeError, sns TypeError",
    "sqs AttributeError, 0 at SQS, 1 object",
])
PY
"$place/venv/bin/python" "$place/run.py"
