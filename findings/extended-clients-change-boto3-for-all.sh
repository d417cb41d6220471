#!/usr/bin/env bash
# amazon-sqs-extended-client 1.0.1 and amazon-sns-extended-client 1.0.1 (PyPI); moto 5.2.5 stands for SQS, SNS and S3
# Bet: only clients of the packages' own session classes are extended. What other code in the process makes with boto3
#   stays boto3's, as long as it does not ask for the others.
# Behaviour: the import puts their class in the place of boto3.Session. Each client of SQS or SNS that any library makes
#   afterwards with boto3.client or boto3.Session is an extended one; those made before it are not. No setting is asked for.
# Cost: a library that takes messages finds payloads where it had pointers, and handles that SQS does not know: a delete
#   in a batch has them in `Failed`, and they come back for ever. One that publishes Binary attributes fails. Which of
#   this happens depends on the order of imports. botocore's own session, with create_client, is not changed.
# Seen: boto3 before the imports: pointer, deleted, Binary sent
#       boto3 after the imports: 300000 bytes, ReceiptHandleIsInvalid, Binary TypeError
#       botocore after the imports: pointer, deleted, Binary sent
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check \
  amazon-sns-extended-client==1.0.1 amazon-sqs-extended-client==1.0.1 boto3==1.44.8 "moto[s3,sns,sqs]==5.2.5"
cat > "$place/run.py" <<'PY'
import json, sys

import boto3
import botocore.session
from moto import mock_aws

KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
BINARY = {"trace": {"DataType": "Binary", "BinaryValue": bytes(range(16))}}
POINTER = ["software.amazon.payloadoffloading.PayloadS3Pointer", {"s3BucketName": "payloads", "s3Key": "payload"}]
MARK = {"ExtendedPayloadSize": {"DataType": "Number", "StringValue": "300000"}}


def library(client):
    """What a library that knows nothing of extended clients meets, which makes its clients with `client`."""
    sqs, sns = client("sqs", **KEYS), client("sns", **KEYS)
    url = sqs.create_queue(QueueName="payments.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    sender.send_message(
        QueueUrl=url, MessageBody=json.dumps(POINTER), MessageAttributes=MARK, MessageGroupId="g",
        MessageDeduplicationId="1",
    )
    [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    body = "pointer" if message["Body"] == json.dumps(POINTER) else f"{len(message['Body'])} bytes"
    answer = sqs.delete_message_batch(QueueUrl=url, Entries=[{"Id": "1", "ReceiptHandle": message["ReceiptHandle"]}])
    deleted = "deleted" if answer.get("Successful") else answer["Failed"][0]["Code"]
    sqs.delete_queue(QueueUrl=url)
    topic = sns.create_topic(Name="payments")["TopicArn"]
    try:
        sns.publish(TopicArn=topic, Message="small", MessageAttributes=BINARY)
        sent = "sent"
    except Exception as error:
        sent = type(error).__name__
    return f"{body}, {deleted}, Binary {sent}"


def show(what, client):
    end = library(client)
    print(f"{what}: {end}")
    return end


with mock_aws():
    sender, s3 = boto3.client("sqs", **KEYS), boto3.client("s3", **KEYS)
    s3.create_bucket(Bucket="payloads")
    s3.put_object(Bucket="payloads", Key="payload", Body=b"x" * 300_000)
    seen = [show("boto3 before the imports", boto3.client)]
    import sns_extended_client
    import sqs_extended_client

    seen += [
        show("boto3 after the imports", boto3.client),
        show("botocore after the imports", botocore.session.get_session().create_client),
    ]

usual = "pointer, deleted, Binary sent"
sys.exit(seen != [usual, "300000 bytes, ReceiptHandleIsInvalid, Binary TypeError", usual])
PY
"$place/venv/bin/python" "$place/run.py"
