#!/usr/bin/env bash
# amazon-sqs-extended-client 1.0.1 (PyPI); moto 5.2.5 stands for SQS and S3
# Bet: on a FIFO queue with ContentBasedDeduplication a body that is sent twice is one message, however large it is: the
#   client takes the place of boto3's and changes where the body is kept, not what is a duplicate.
# Behaviour: what SQS takes the digest of is the pointer, and the key in it is a new UUID for each send. A small body sent
#   twice is one message, a large one two. With a MessageDeduplicationId of one's own the second is dropped, and its
#   object stays in the bucket, with no message that points to it.
# Cost: a producer that repeats a send whose answer was lost relies on the content. It is right for all payments but the
#   large ones, which are made twice. Send an id with each message, such as the digest of the whole body.
# Seen: small body twice, by content: received [5] bytes, 0 objects
#       large body twice, by content: received [300000, 300000] bytes, 2 objects
#       large body twice, by an id: received [300000] bytes, 2 objects
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check \
  amazon-sqs-extended-client==1.0.1 boto3==1.44.8 "moto[s3,sqs]==5.2.5"
cat > "$place/run.py" <<'PY'
import sys

from moto import mock_aws
from sqs_extended_client import SQSExtendedClientSession

LARGE, SMALL = "x" * 300_000, "small"


def run(what, name, body, **identity):
    s3.create_bucket(Bucket=name)
    sqs.large_payload_support = name
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes=attributes)["QueueUrl"]
    for _ in range(2):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g", **identity)
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    sizes, objects = [len(message["Body"]) for message in messages], s3.list_objects_v2(Bucket=name)["KeyCount"]
    print(f"{what}: received {sizes} bytes, {objects} objects")
    return sizes, objects


with mock_aws():
    session = SQSExtendedClientSession(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
    sqs, s3 = session.client("sqs"), session.client("s3")
    seen = [
        run("small body twice, by content", "small", SMALL),
        run("large body twice, by content", "large", LARGE),
        run("large body twice, by an id", "large-by-id", LARGE, MessageDeduplicationId="1"),
    ]

sys.exit(seen != [([5], 0), ([300_000] * 2, 2), ([300_000], 2)])
PY
"$place/venv/bin/python" "$place/run.py"
