#!/usr/bin/env bash
# aws-lambda-powertools 3.37.0 (Python), its classes for S3's events; moto 5.2.5 stands for S3, EventBridge and SQS
# Bet: `object.key` of an event is the key of the object, whichever way the event came.
# Behaviour: S3's own notifications have the key encoded as in a form, and there get_object.key gives it as it stands in
#   the event. EventBridge's events have the key itself, and there object.key decodes it, as a form is decoded: it is
#   the other way round than it should be. Only S3Event.object_key, of the first record, is right.
# Cost: EventBridge is S3's way to a FIFO queue. A key with a plus sign, such as that of a file with a time zone in its
#   name, becomes another one: the handler fails, or it reads, moves or deletes the wrong object, where there is one.
#   Take event["detail"]["object"]["key"] as it is, and unquote_plus() the other.
# Seen: from S3, 'a+b.csv': event has 'a%2Bb.csv', object.key 'a%2Bb.csv', which fetches 'NoSuchKey'
#       from S3, 'a b.csv': event has 'a+b.csv', object.key 'a+b.csv', which fetches 'a+b.csv'
#       by EventBridge, 'a+b.csv': event has 'a+b.csv', object.key 'a b.csv', which fetches 'a b.csv'
#       by EventBridge, 'a b.csv': event has 'a b.csv', object.key 'a b.csv', which fetches 'a b.csv'
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check aws-lambda-powertools==3.37.0 boto3==1.44.8 \
    "moto[events,s3,sqs]==5.2.5"
cat > "$place/run.py" <<'PY'
import json
import sys

import boto3
from aws_lambda_powertools.utilities.data_classes import S3Event, S3EventBridgeNotificationEvent
from botocore.exceptions import ClientError
from moto import mock_aws

KEYS = ["a+b.csv", "a b.csv"]


def queue(name, **attributes):
    url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return url, answer["Attributes"]["QueueArn"]


def events(url, **notification):
    """Puts both objects, and gives the events that come into the queue."""
    s3.put_bucket_notification_configuration(Bucket="bucket", NotificationConfiguration=notification)
    sqs.purge_queue(QueueUrl=url)
    for key in KEYS:
        s3.put_object(Bucket="bucket", Key=key, Body=key)
    found = []
    while messages := sqs.receive_message(QueueUrl=url).get("Messages"):
        for message in messages:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            found.append(json.loads(message["Body"]))
    return found


def fetched(key):
    try:
        return s3.get_object(Bucket="bucket", Key=key)["Body"].read().decode()
    except ClientError as error:
        return error.response["Error"]["Code"]


with mock_aws():
    identity = {"region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    s3, sqs, bus = (boto3.client(name, **identity) for name in ("s3", "sqs", "events"))
    s3.create_bucket(Bucket="bucket")
    direct, direct_arn = queue("direct")
    bridge, bridge_arn = queue("bridge.fifo", FifoQueue="true", ContentBasedDeduplication="true")
    target = {"Id": "queue", "Arn": bridge_arn, "SqsParameters": {"MessageGroupId": "bucket"}}
    bus.put_rule(Name="puts", EventPattern=json.dumps({"detail-type": ["Object Created"]}))
    bus.put_targets(Rule="puts", Targets=[target])
    seen = {}
    to_queue = {"QueueArn": direct_arn, "Events": ["s3:ObjectCreated:*"]}
    for key, event in zip(KEYS, events(direct, QueueConfigurations=[to_queue]), strict=True):
        value = event["Records"][0]["s3"]["object"]["key"]
        name = S3Event(event).record.s3.get_object.key
        seen[f"from S3, {key!r}: event has {value!r}, object.key {name!r}"] = fetched(name)
    for key, event in zip(KEYS, events(bridge, EventBridgeConfiguration={}), strict=True):
        value = event["detail"]["object"]["key"]
        name = S3EventBridgeNotificationEvent(event).detail.object.key
        seen[f"by EventBridge, {key!r}: event has {value!r}, object.key {name!r}"] = fetched(name)
for what, end in seen.items():
    print(f"{what}, which fetches {end!r}")
sys.exit(list(seen.values()) != ["NoSuchKey", "a+b.csv", "a b.csv", "a b.csv"])
PY
"$place/venv/bin/python" "$place/run.py"
