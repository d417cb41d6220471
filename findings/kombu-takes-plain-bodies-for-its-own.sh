#!/usr/bin/env bash
# kombu 5.7.0 (SQS transport); the queue is that of moto 5.2.5
# Bet: what another producer has put into the queue arrives as message.body as it was sent, as kombu's transport does it for
#   text and for JSON that is no message of kombu's.
# Behaviour: a body of JSON with a field "properties" is taken for a message of kombu's, whose "body" it then reads: there
#   is none, and message.body is None. A body of four, eight, ... letters and digits is decoded as base64 if the
#   outcome happens to be UTF-8: "PAID" arrives as three other bytes, while "VOID" arrives as it is.
# Cost: events of Segment and features of GeoJSON have that field. Each is received, handled as empty, acknowledged and
#   deleted, with nothing in a log. Short codes depend on their letters. No option turns it off: read
#   message.properties["delivery_info"]["sqs_message"]["Body"], or wrap the body in JSON of another form.
# Seen: 'VOID' arrives as b'VOID'
#       'PAID' arrives as b'<\x02\x03'
#       '{"event": "paid", "amount": 19}' arrives as b'{"event": "paid", "amount": 19}'
#       '{"event": "paid", "properties": {"amount": 19}}' arrives as None
#       delivery_info has each body as it was sent: True
#       left in the queue: 0
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check kombu==5.7.0 boto3==1.44.8 "moto[sqs,server]==5.2.5"
cat > "$place/run.py" <<'PY'
import logging
import sys

import boto3
from kombu import Connection
from moto.server import ThreadedMotoServer

BODIES = ["VOID", "PAID", '{"event": "paid", "amount": 19}', '{"event": "paid", "properties": {"amount": 19}}']
COUNTS = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]

logging.getLogger("werkzeug").disabled = True
moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
moto.start()
host, port = moto.get_host_and_port()
keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
sqs = boto3.client("sqs", region_name="us-east-1", endpoint_url=f"http://{host}:{port}", **keys)
url = sqs.create_queue(QueueName="payments.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
for number, body in enumerate(BODIES):
    sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g", MessageDeduplicationId=str(number))

queue = {"url": url, "access_key_id": "a", "secret_access_key": "b"}
options = {"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1, "predefined_queues": {"payments.fifo": queue}}
arrived, raw = [], []
with Connection(f"sqs://a:b@{host}:{port}", transport_options=options) as connection:
    channel = connection.channel()
    for body in BODIES:
        message = channel.basic_get("payments.fifo")
        arrived.append(message.body)
        raw.append(message.properties["delivery_info"]["sqs_message"]["Body"])
        message.ack()
        print(f"{body!r} arrives as {message.body!r}")
left = sum(map(int, sqs.get_queue_attributes(QueueUrl=url, AttributeNames=COUNTS)["Attributes"].values()))
moto.stop()
print(f"delivery_info has each body as it was sent: {raw == BODIES}")
print(f"left in the queue: {left}")
sys.exit(arrived != [b"VOID", b"<\x02\x03", BODIES[2].encode(), None] or raw != BODIES or left != 0)
PY
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py" 2>"$place/log" || {
  cat "$place/log" >&2
  exit 1
}
