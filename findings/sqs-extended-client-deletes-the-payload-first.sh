#!/usr/bin/env bash
# amazon-sqs-extended-client 1.0.1 (PyPI); moto 5.2.5 stands for SQS and S3
# Bet: with `delete_payload_from_s3` a delete takes the message off the queue first, and its object once SQS has agreed:
#   a refused delete changes nothing. In a batch, the objects of the entries in `Failed` stay.
# Behaviour: the objects go first, one by one, and then SQS is asked. If it refuses, the message is on the queue and its
#   body is gone. Each later receive that gets it raises NoSuchKey, and returns none of the messages it has taken.
# Cost: a FIFO queue refuses the delete of a consumer that is late ("The receipt handle has expired"), although another
#   one now holds the message. If that one fails, nobody can read it, and its group stands still until it is moved to a
#   dead-letter queue, where its body is missing too. Let the bucket's lifecycle delete the objects instead.
# Seen: delete refused: 0 of 1 objects left, then NoSuchKey
#       batch with all entries in Failed: 0 of 2 objects left, then NoSuchKey
#       delete refused, without delete_payload_from_s3: 1 of 1 objects left, then 1 received
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check \
  amazon-sqs-extended-client==1.0.1 boto3==1.44.8 "moto[s3,sqs]==5.2.5"
cat > "$place/run.py" <<'PY'
import sys, time
from types import SimpleNamespace

from botocore.exceptions import ClientError
from moto import mock_aws
from sqs_extended_client import SQSExtendedClientSession


def refuse(**_):
    """SQS's answer to the handle of a late consumer, which moto does not give."""
    return SimpleNamespace(status_code=400), {
        "Error": {"Code": "InvalidParameterValue", "Message": "The receipt handle has expired."},
        "ResponseMetadata": {},
    }


def refuse_all(**_):
    failed = [{"Id": str(number), "Code": "ReceiptHandleIsInvalid", "SenderFault": True} for number in range(2)]
    return SimpleNamespace(status_code=200), {"Failed": failed, "ResponseMetadata": {}}


def receive(url):
    return sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=1).get("Messages", [])


def run(what, name, count, delete, clean=True):
    s3.create_bucket(Bucket=name)
    sqs.large_payload_support, sqs.delete_payload_from_s3 = name, clean
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    for number in range(count):
        sqs.send_message(
            QueueUrl=url, MessageBody="x" * 300_000, MessageGroupId="g", MessageDeduplicationId=str(number)
        )
    delete(url, [message["ReceiptHandle"] for message in receive(url)])
    left = s3.list_objects_v2(Bucket=name)["KeyCount"]
    time.sleep(1.5)
    try:
        end = f"{len(receive(url))} received"
    except ClientError as error:
        end = error.response["Error"]["Code"]
    seen = f"{left} of {count} objects left, then {end}"
    print(f"{what}: {seen}")
    return seen


def one(url, handles):
    try:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=handles[0])
    except ClientError as error:
        assert "expired" in str(error)
    else:
        raise AssertionError("not refused")


def batch(url, handles):
    entries = [{"Id": str(number), "ReceiptHandle": handle} for number, handle in enumerate(handles)]
    assert len(sqs.delete_message_batch(QueueUrl=url, Entries=entries)["Failed"]) == 2


with mock_aws():
    session = SQSExtendedClientSession(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
    sqs, s3 = session.client("sqs"), session.client("s3")
    sqs.meta.events.register("before-call.sqs.DeleteMessage", refuse)
    sqs.meta.events.register("before-call.sqs.DeleteMessageBatch", refuse_all)
    seen = [
        run("delete refused", "single", 1, one),
        run("batch with all entries in Failed", "batch", 2, batch),
        run("delete refused, without delete_payload_from_s3", "kept", 1, one, clean=False),
    ]

lost = ["0 of 1 objects left, then NoSuchKey", "0 of 2 objects left, then NoSuchKey"]
sys.exit(seen != [*lost, "1 of 1 objects left, then 1 received"])
PY
"$place/venv/bin/python" "$place/run.py"
