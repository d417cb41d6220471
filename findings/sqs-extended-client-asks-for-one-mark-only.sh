#!/usr/bin/env bash
# amazon-sqs-extended-client 1.0.1 (PyPI); moto 5.2.5 stands for SQS and S3
# Bet: a consumer reads what any of AWS's extended clients has sent, older ones too: it knows both attributes that mark a
#   pointer, ExtendedPayloadSize and SQSLargePayloadSize. `use_legacy_attribute` says what is published, says its README.
# Behaviour: of the two it asks SQS for the one that it would send itself, so it never sees the other. The pointer comes
#   as the body of an ordinary message, with no error; a delete leaves the object behind. Only a receive that asks for
#   "All" brings the payload. The caller's own list of attribute names has one more name afterwards.
# Cost: while producers move from the old attribute to the new one, or when one of them is in another language, each large
#   message reaches the handler as some hundred bytes of JSON. A handler that takes any text loses the payload, for the
#   message is deleted. Ask for "All" in each receive.
# Seen: sent with ExtendedPayloadSize, no names: 300000 bytes, 0 objects after the delete
#       sent with SQSLargePayloadSize, no names: pointer, 1 object after the delete
#       sent with SQSLargePayloadSize, ['trace']: pointer, 1 object after the delete, names ['trace', 'ExtendedPayloadSize']
#       sent with SQSLargePayloadSize, ['All']: 300000 bytes, 0 objects after the delete
#       sent with ExtendedPayloadSize, no names, use_legacy_attribute: pointer, 1 object after the delete
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check \
  amazon-sqs-extended-client==1.0.1 boto3==1.44.8 "moto[s3,sqs]==5.2.5"
cat > "$place/run.py" <<'PY'
import json, sys

from moto import mock_aws
from sqs_extended_client import SQSExtendedClientSession

LARGE = "x" * 300_000
TODAY, OLD = "ExtendedPayloadSize", "SQSLargePayloadSize"


def client(mark, bucket):
    made = session.client("sqs")
    made.large_payload_support, made.use_legacy_attribute, made.delete_payload_from_s3 = bucket, mark == OLD, True
    return made


def run(bucket, sent, own, names=None):
    """What a consumer whose own mark is `own` gets of a large message, and leaves of it."""
    s3.create_bucket(Bucket=bucket)
    producer, consumer = client(sent, bucket), client(own, bucket)
    url = producer.create_queue(QueueName=f"{bucket}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    trace = {"trace": {"DataType": "String", "StringValue": "1"}}
    producer.send_message(
        QueueUrl=url, MessageBody=LARGE, MessageGroupId="g", MessageDeduplicationId="1", MessageAttributes=trace
    )
    what = f"sent with {sent}, {names or 'no names'}" + (", use_legacy_attribute" if own == OLD else "")
    asked = {} if names is None else {"MessageAttributeNames": names}
    [message] = consumer.receive_message(QueueUrl=url, **asked)["Messages"]
    if message["Body"] == LARGE:
        got = f"{len(LARGE)} bytes"
    else:
        _, place = json.loads(message["Body"])
        assert place["s3BucketName"] == bucket and place["s3Key"]
        got = "pointer"
    consumer.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    left = s3.list_objects_v2(Bucket=bucket)["KeyCount"]
    end = f"{got}, {left} object{'' if left == 1 else 's'} after the delete"
    if names and len(names) > 1:
        end += f", names {names}"
    print(f"{what}: {end}")
    return end


with mock_aws():
    session = SQSExtendedClientSession(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
    s3 = session.client("s3")
    seen = [
        run("same", TODAY, TODAY),
        run("older", OLD, TODAY),
        run("older-with-names", OLD, TODAY, ["trace"]),
        run("older-with-all", OLD, TODAY, ["All"]),
        run("newer", TODAY, OLD),
    ]

read, missed = "300000 bytes, 0 objects after the delete", "pointer, 1 object after the delete"
sys.exit(seen != [read, missed, f"{missed}, names ['trace', 'ExtendedPayloadSize']", read, missed])
PY
"$place/venv/bin/python" "$place/run.py"
