#!/usr/bin/env bash
# amazon-sqs-extended-client 1.0.1 (PyPI); moto 5.2.5 stands for SQS and S3
# Bet: `MessageAttributes` is the caller's: after a send whose large body went to S3 it is as it was before, and can be
#   used for the next message, as with boto3.
# Behaviour: the client adds its own attribute, ExtendedPayloadSize, to the caller's dictionary. The next small body sent
#   with that dictionary is marked as a pointer, and the send succeeds; the next large one is refused. A receive that gets
#   the small one raises JSONDecodeError, so the caller gets none of the messages in that answer.
# Cost: a loop that sends with one dictionary of attributes, such as a trace id, works until the first large body. After
#   that no receive gets past the small message in its FIFO group. Give each send a copy of the dictionary.
# Seen: large: sent, attributes ['trace', 'ExtendedPayloadSize']
#       small: sent, attributes ['trace', 'ExtendedPayloadSize']
#       large again: SQSExtendedClientException
#       receive: JSONDecodeError
#       large and small, each with a copy: received 300000 and 5 bytes
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


def queue(name):
    return sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})["QueueUrl"]


def send(url, body, id, attributes):
    sqs.send_message(
        QueueUrl=url, MessageBody=body, MessageGroupId="g", MessageDeduplicationId=id, MessageAttributes=attributes
    )
    return f"sent, attributes {list(attributes)}"


def receive(url):
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
    return "received " + " and ".join(str(len(message["Body"])) for message in answer["Messages"]) + " bytes"


def run(what, call, *arguments):
    try:
        end = call(*arguments)
    except Exception as error:
        end = type(error).__name__
    print(f"{what}: {end}")
    return end


def trace():
    return {"trace": {"DataType": "String", "StringValue": "1"}}


with mock_aws():
    session = SQSExtendedClientSession(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
    sqs = session.client("sqs")
    session.client("s3").create_bucket(Bucket="payloads")
    sqs.large_payload_support = "payloads"

    shared, url = trace(), queue("shared.fifo")
    seen = [
        run("large", send, url, LARGE, "1", shared),
        run("small", send, url, SMALL, "2", shared),
        run("large again", send, url, LARGE, "3", shared),
        run("receive", receive, url),
    ]
    url = queue("copied.fifo")
    send(url, LARGE, "1", trace())
    send(url, SMALL, "2", trace())
    seen.append(run("large and small, each with a copy", receive, url))

marked = "sent, attributes ['trace', 'ExtendedPayloadSize']"
refused = "SQSExtendedClientException"
sys.exit(seen != [marked, marked, refused, "JSONDecodeError", "received 300000 and 5 bytes"])
PY
"$place/venv/bin/python" "$place/run.py"
