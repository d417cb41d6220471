#!/usr/bin/env bash
# On PyPI: amazon-sqs-extended-client 1.0.1, sqs-extended-client 0.0.11, aws-sqs-ext-client 0.0.7 and
#   pysqs-extended-client 0.0.1, each as it comes; moto 5.2.5 stands for SQS and S3
# Bet: all four call themselves the extended client of SQS for Python, after the Java library. So what one of them sends,
#   each of the others reads.
# Behaviour: each writes a form of its own: with a class name before the place or without one, and with the old attribute
#   or the new one. Of the twelve pairs one works. In nine the pointer is handed out as the body, without an error; in two
#   the receive raises, and returns none of the messages that it has taken.
# Cost: whoever changes the package, or has another one at the other end of a queue, gets some hundred bytes of JSON in
#   the place of each large payload; after its delete nothing leads to the object. Let one release read both forms first.
# Seen: amazon-sqs-extended-client sends [today's class, place] with ExtendedPayloadSize
#       sqs-extended-client sends [old class, place] with SQSLargePayloadSize
#       aws-sqs-ext-client sends place with ExtendedPayloadSize
#       pysqs-extended-client sends place with SQSLargePayloadSize
#       amazon-sqs-extended-client receives payload, pointer, SQSExtendedClientException, pointer
#       sqs-extended-client receives pointer, payload, pointer, pointer
#       aws-sqs-ext-client receives payload, pointer, payload, pointer
#       pysqs-extended-client receives pointer, ValueError, pointer, payload
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv venv
pip() { venv/bin/pip install --quiet --disable-pip-version-check "$@"; }
pip boto3==1.44.8 "moto[s3,sqs]==5.2.5"
pip --no-deps --target amazon-sqs-extended-client amazon-sqs-extended-client==1.0.1
pip --no-deps --target sqs-extended-client sqs-extended-client==0.0.11 botoinator==0.0.6
pip --no-deps --target aws-sqs-ext-client aws-sqs-ext-client==0.0.7
pip --no-deps --target pysqs-extended-client pysqs-extended-client==0.0.1
cat > run.py <<'PY'
"""Usage: run.py NAME sends | run.py NAME receives MESSAGE..."""
import json, os, sys

os.environ.update(AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", AWS_DEFAULT_REGION="us-east-1")
from moto import mock_aws
import boto3

LARGE = "x" * 300_000
CLASSES = {
    "software.amazon.payloadoffloading.PayloadS3Pointer": "today's class",
    "com.amazon.sqs.javamessaging.MessageS3Pointer": "old class",
}


def client(name):
    """The package's own functions that send a body to a queue and receive its messages."""
    if name == "aws-sqs-ext-client":
        from aws_sqs_ext_client import SQSExtendedSession

        session = SQSExtendedSession()
        session.extend_sqs("payloads", s3_bucket_params=None)
        sqs = session.client("sqs")
        send, receive = sqs.send_message_extended, sqs.receive_message_extended
    elif name == "pysqs-extended-client":
        from pysqs_extended_client.SQSClientExtended import SQSClientExtended

        sqs = SQSClientExtended("a", "b", "us-east-1", "payloads")
        return sqs.send_message, lambda url: sqs.receive_message(url, 10, 0)
    else:
        from sqs_extended_client import SQSExtendedClientSession

        sqs = SQSExtendedClientSession().client("sqs")
        sqs.large_payload_support = "payloads"
        send, receive = sqs.send_message, sqs.receive_message
    return (
        lambda url, body: send(QueueUrl=url, MessageBody=body),
        lambda url: receive(QueueUrl=url, MaxNumberOfMessages=10)["Messages"],
    )


def queue(name):
    return plain.create_queue(QueueName=name)["QueueUrl"]


def sends():
    url = queue("sent")
    send(url, LARGE)
    [message] = plain.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
    [attribute] = message["MessageAttributes"]
    body = json.loads(message["Body"])
    given, place = body if isinstance(body, list) else (None, body)
    assert place.keys() == {"s3BucketName", "s3Key"}
    form = f"[{CLASSES[given]}, place]" if given else "place"
    print(f"{name} sends {form} with {attribute}", file=sys.stderr)
    print(json.dumps([given, attribute]))


def received(number, given, attribute):
    url, place = queue(f"received-{number}"), {"s3BucketName": "payloads", "s3Key": "payload"}
    body = json.dumps([given, place] if given else place)
    plain.send_message(
        QueueUrl=url, MessageBody=body, MessageAttributes={attribute: {"DataType": "Number", "StringValue": "300000"}}
    )
    try:
        [message] = receive(url)
    except Exception as error:
        return type(error).__name__
    return {LARGE: "payload", body: "pointer"}[message["Body"]]


name, what, *forms = sys.argv[1:]
with mock_aws():
    plain, s3 = boto3.client("sqs"), boto3.client("s3")
    s3.create_bucket(Bucket="payloads")
    s3.put_object(Bucket="payloads", Key="payload", Body=LARGE.encode())
    send, receive = client(name)
    if what == "sends":
        sends()
    else:
        ends = (received(number, *json.loads(form)) for number, form in enumerate(forms))
        print(f"{name} receives {', '.join(ends)}")
PY
names=(amazon-sqs-extended-client sqs-extended-client aws-sqs-ext-client pysqs-extended-client)
run() { PYTHONPATH=$1 venv/bin/python run.py "$@"; }
for name in "${names[@]}"; do forms+=("$(run "$name" sends 2>> seen)"); done
for name in "${names[@]}"; do run "$name" receives "${forms[@]}" >> seen; done
cat seen
diff - seen <<'SEEN'
amazon-sqs-extended-client sends [today's class, place] with ExtendedPayloadSize
sqs-extended-client sends [old class, place] with SQSLargePayloadSize
aws-sqs-ext-client sends place with ExtendedPayloadSize
pysqs-extended-client sends place with SQSLargePayloadSize
amazon-sqs-extended-client receives payload, pointer, SQSExtendedClientException, pointer
sqs-extended-client receives pointer, payload, pointer, pointer
aws-sqs-ext-client receives payload, pointer, payload, pointer
pysqs-extended-client receives pointer, ValueError, pointer, payload
SEEN
