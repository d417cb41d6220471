#!/usr/bin/env bash
# amazon-sqs-extended-client 1.0.1 (PyPI); moto 5.2.5 stands for SQS and S3
# Bet: a consumer that only receives needs no `large_payload_support`: the pointer names the bucket. What can be received
#   without it can be deleted without it, alone or in a batch.
# Behaviour: without it the client fetches the body and hands out a handle of its own making, and delete_message takes
#   that handle back. delete_message_batch passes it on to SQS as it is, which does not know it. The call succeeds; the
#   large messages are in its `Failed`, the small ones are deleted. change_message_visibility_batch does take it back.
# Cost: a consumer that does not look into `Failed` handles each large message again after each visibility timeout, and
#   behind it its FIFO group waits, while small ones pass. Set the bucket in the consumer too.
# Seen: delete_message: deleted
#       change_message_visibility_batch: ['large', 'small'] changed
#       delete_message_batch: ['small'] deleted, ReceiptHandleIsInvalid for ['large']
#       delete_message_batch with the bucket set: ['large', 'small'] deleted
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

BODIES = {"large": "x" * 300_000, "small": "x"}


def receive(name, *bodies):
    """The handles of messages that `producer` has sent, by what they are, as `consumer` got them with their bodies."""
    url = producer.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    for body in bodies:
        producer.send_message(
            QueueUrl=url, MessageBody=BODIES[body], MessageGroupId=body, MessageDeduplicationId=body
        )
    messages = consumer.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [message["Body"] for message in messages] == [BODIES[body] for body in bodies]
    return url, [{"Id": b, "ReceiptHandle": m["ReceiptHandle"]} for b, m in zip(bodies, messages)]


def run(what, done, answer):
    end = f"{[entry['Id'] for entry in answer.get('Successful', [])]} {done}"
    for entry in answer.get("Failed", []):
        end += f", {entry['Code']} for {[entry['Id']]}"
    print(f"{what}: {end}")
    return end


with mock_aws():
    session = SQSExtendedClientSession(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
    session.client("s3").create_bucket(Bucket="payloads")
    producer, consumer = session.client("sqs"), session.client("sqs")
    producer.large_payload_support = "payloads"

    url, [large] = receive("single", "large")
    consumer.delete_message(QueueUrl=url, ReceiptHandle=large["ReceiptHandle"])
    left = consumer.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessagesNotVisible"])
    deleted = left["Attributes"]["ApproximateNumberOfMessagesNotVisible"] == "0"
    print("delete_message:", "deleted" if deleted else "not deleted")

    url, entries = receive("changed", "large", "small")
    later = [{**entry, "VisibilityTimeout": 60} for entry in entries]
    seen = [
        run("change_message_visibility_batch", "changed",
            consumer.change_message_visibility_batch(QueueUrl=url, Entries=later)),
    ]
    url, entries = receive("deleted", "large", "small")
    seen.append(run("delete_message_batch", "deleted", consumer.delete_message_batch(QueueUrl=url, Entries=entries)))

    consumer.large_payload_support = "payloads"
    url, entries = receive("told", "large", "small")
    answer = consumer.delete_message_batch(QueueUrl=url, Entries=entries)
    seen.append(run("delete_message_batch with the bucket set", "deleted", answer))

both = "['large', 'small']"
expected = [f"{both} changed", "['small'] deleted, ReceiptHandleIsInvalid for ['large']", f"{both} deleted"]
sys.exit(not deleted or seen != expected)
PY
"$place/venv/bin/python" "$place/run.py"
