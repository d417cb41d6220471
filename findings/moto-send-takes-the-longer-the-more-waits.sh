#!/usr/bin/env bash
# moto 5.2.5 (SQS)
# Bet: moto is slow, at some 100 messages a second, but a send takes the same time whether 50 or 500 messages wait.
# Behaviour: a batch of ten takes time in proportion to the messages in the queue, so to fill one takes the square: 500
#   cost about a hundred times what 50 cost. So it is with a standard queue.
# Cost: a load test that grows tenfold takes a hundred times as long. A sender with eight calls at once waits for more than
#   10 s for one of them from some 600 messages on, on two busy cores, and ends with a read timeout that its code does not
#   deserve. Drain while you fill, or test some hundred messages at most.
# Seen: FIFO queue: with 500 messages there, a batch takes at least 4 times as long as with 50
#       standard queue: with 500 messages there, a batch takes at least 4 times as long as with 50
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check boto3==1.44.8 "moto[sqs]==5.2.5"
cat > "$place/run.py" <<'PY'
import sys
import time

import boto3
from moto import mock_aws

LEAST = 4


def filled(name, attributes, ids):
    """Sends 550 messages, and returns the CPU time of a batch of ten with some 50, and with some 500, there."""
    url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    took = []
    for batch in range(55):
        entries = [{"Id": str(n), "MessageBody": "x", **ids(f"{batch}-{n}")} for n in range(10)]
        began = time.process_time()
        assert len(sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 10
        took.append(time.process_time() - began)
    return sorted(took[3:8])[2], sorted(took[48:53])[2]


def fifo_ids(number):
    return {"MessageGroupId": number[-1], "MessageDeduplicationId": number}


with mock_aws():
    sqs = boto3.client("sqs", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    seen = {
        "FIFO queue": filled("q.fifo", {"FifoQueue": "true"}, fifo_ids),
        "standard queue": filled("q", {}, lambda number: {}),
    }
holds = True
for name, (few, many) in seen.items():
    grows = many >= LEAST * few
    holds = holds and grows
    print(f"{name}: with 500 messages there, a batch takes {'at least' if grows else 'less than'} {LEAST} times as long as with 50")
sys.exit(not holds)
PY
"$place/venv/bin/python" "$place/run.py"
