#!/usr/bin/env bash
# moto 5.2.5 (EventBridge and SQS)
# Bet: a rule whose target is a FIFO queue with ContentBasedDeduplication, and has the InputPath "$.detail", sends the
#   detail alone. So an event that is put twice, and has another id each time, arrives once. A disabled rule sends
#   nothing.
# Behaviour: InputPath and Input are stored and not obeyed: the queue gets the envelope, and both of the two events.
#   Only an InputTransformer changes what is sent. A rule that is disabled sends like any other.
# Cost: a test of the consumer fails in the parser that is right on AWS, or, with one that takes both, shows doubles
#   that EventBridge and SQS would have dropped; one that counts on a constant Input tests nothing. A test of a pause,
#   by disable_rule, shows that events go on. Write the InputPath as an InputTransformer: here that means the same.
# Seen: InputPath $.detail: 2 received, the envelope
#       Input, a constant text: 2 received, the envelope
#       InputTransformer of the detail: 1 received, the detail
#       rule disabled: 2 received, the envelope
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check boto3==1.44.8 "moto[events,sqs]==5.2.5"
cat > "$place/run.py" <<'PY'
import json
import sys

import boto3
from moto import mock_aws

INVOICE = {"invoice": 4711, "state": "paid"}


def run(name, disabled=False, **target):
    """Puts one event twice, and says what of it a FIFO queue with deduplication by content gives."""
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes=attributes)["QueueUrl"]
    answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    target = {"Id": "queue", "SqsParameters": {"MessageGroupId": "invoices"}, **target}
    bus.put_rule(Name=name, EventPattern=json.dumps({"source": [name]}))
    bus.put_targets(Rule=name, Targets=[{"Arn": answer["Attributes"]["QueueArn"], **target}])
    if disabled:
        bus.disable_rule(Name=name)
    for _ in range(2):
        entry = {"Source": name, "DetailType": "invoice", "Detail": json.dumps(INVOICE)}
        assert bus.put_events(Entries=[entry])["FailedEntryCount"] == 0
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    bodies = [json.loads(message["Body"]) for message in messages]
    return f"{len(bodies)} received" + "".join(
        f", the {'envelope' if 'detail' in body else 'detail' if body == INVOICE else 'text'}" for body in bodies[:1]
    )


with mock_aws():
    identity = {"region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    sqs, bus = (boto3.client(name, **identity) for name in ("sqs", "events"))
    transformer = {"InputPathsMap": {"detail": "$.detail"}, "InputTemplate": "<detail>"}
    seen = {
        "InputPath $.detail": run("path", InputPath="$.detail"),
        "Input, a constant text": run("input", Input='{"run": "now"}'),
        "InputTransformer of the detail": run("transformer", InputTransformer=transformer),
        "rule disabled": run("disabled", disabled=True),
    }
for what, end in seen.items():
    print(f"{what}: {end}")
envelope = "2 received, the envelope"
sys.exit(list(seen.values()) != [envelope, envelope, "1 received, the detail", envelope])
PY
"$place/venv/bin/python" "$place/run.py"
