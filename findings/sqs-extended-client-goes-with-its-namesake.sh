#!/usr/bin/env bash
# sqs-extended-client 0.0.11 and amazon-sqs-extended-client 1.0.1 (PyPI); moto 5.2.5 stands for SQS and S3
# Bet: whoever goes over from the first, older package to AWS's own installs the one and removes the other, and has AWS's
#   then, as with any two packages. If anything is missing, the import fails.
# Behaviour: both install into the folder sqs_extended_client, over each other, without a word from pip. Removing the first
#   takes the second one's __init__.py along. The import still succeeds, for the folder is a package without it, and
#   boto3's client is no longer extended: it takes `large_payload_support` as it takes any attribute, and ignores it.
# Cost: nothing fails at the start. A producer's large message is refused, or sent in full, by its size; a consumer gets
#   pointers for payloads. `pip check` finds nothing. Install AWS's package again, by force, or remove both first.
# Seen: AWS's alone: large_payload_support used, sends a pointer
#       beside the first: large_payload_support used, sends a pointer
#       after the first is removed: large_payload_support ignored, sends 300000 bytes
#       after that, installed again by force: large_payload_support used, sends a pointer
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv venv
pip() { venv/bin/pip "$@" --quiet --disable-pip-version-check; }
cat > run.py <<'PY'
import os, sys

os.environ.update(AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", AWS_DEFAULT_REGION="us-east-1")
from moto import mock_aws
import boto3
import botocore.session
import sqs_extended_client

with mock_aws():
    plain = botocore.session.get_session().create_client("sqs")
    sqs, s3 = boto3.client("sqs"), boto3.client("s3")
    s3.create_bucket(Bucket="payloads")
    sqs.large_payload_support = "payloads"
    url = sqs.create_queue(QueueName="payments.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x" * 300_000, MessageGroupId="g", MessageDeduplicationId="1")
    [message] = plain.receive_message(QueueUrl=url)["Messages"]

is_pointer = "s3BucketName" in message["Body"]
sent = "a pointer" if is_pointer else f"{len(message['Body'])} bytes"
print(f"{sys.argv[1]}: large_payload_support {'used' if is_pointer else 'ignored'}, sends {sent}")
PY
run() { venv/bin/python run.py "$1" | tee -a seen; }
pip install boto3==1.44.8 "moto[s3,sqs]==5.2.5" amazon-sqs-extended-client==1.0.1
run "AWS's alone"
pip uninstall --yes amazon-sqs-extended-client
pip install sqs-extended-client==0.0.11 botoinator==0.0.6
pip install amazon-sqs-extended-client==1.0.1
run "beside the first"
pip uninstall --yes sqs-extended-client
venv/bin/pip check --quiet
run "after the first is removed"
pip install --force-reinstall --no-deps amazon-sqs-extended-client==1.0.1
run "after that, installed again by force"
diff - seen <<'SEEN'
AWS's alone: large_payload_support used, sends a pointer
beside the first: large_payload_support used, sends a pointer
after the first is removed: large_payload_support ignored, sends 300000 bytes
after that, installed again by force: large_payload_support used, sends a pointer
SEEN
