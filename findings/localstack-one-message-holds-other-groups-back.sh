#!/usr/bin/env bash
# localstack-core 2026.3.0 (SQS)
# Bet: a message of a FIFO queue whose visibility timeout is over is handed out again, whatever the other groups do: a lock
#   holds one group.
# Behaviour: LocalStack goes through what is in flight in the order of the receives, and stops at the first message that is
#   not due, of whatever group. What was received after that one stays back, although its own timeout is over, until the
#   earlier one is deleted or lapses. Given back with a timeout of 0, it comes at once.
# Cost: a handler at work, with a long timeout or a heartbeat, keeps the retries of all other groups back: a test of a retry
#   or of a dead consumer waits on its own time limit, and one that counts empty answers takes the queue for empty. On SQS
#   the message comes when its own timeout is over.
# Seen: nothing else in flight: ['b'] comes
#       a message of another group was received after it: ['b'] comes
#       a message of another group was received before it: [] comes, once that one is deleted ['b']
#       the same, given back: ['b'] comes
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
# This release of LocalStack needs Python 3.13.
for python in python3 python3.14 python3.13 "$(pyenv root 2>/dev/null || true)"/versions/3.1[3-9]*/bin/python; do
  if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 13))' 2>/dev/null; then break; fi
done
"$python" -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check "localstack-core[base-runtime]==2026.3.0" cbor2==5.8.0 \
  cryptography==46.0.7 pyopenssl==25.3.0 service_identity==24.2.0
cat > "$place/run.py" <<'PY'
import os
import socket
import subprocess
import sys

import boto3

LAPSE_S, POLL_S = 1, 15


def serve():
    """Starts LocalStack on a free port, waits until it says that it is ready, and returns its process and a client."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = "127.0.0.1:%d" % free.getsockname()[1]
    command = [sys.executable, "-m", "localstack.runtime.main"]
    environment = {**os.environ, "GATEWAY_LISTEN": address}
    log = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    next(line for line in log.stdout if line.startswith("Ready."))
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
    return log, boto3.client("sqs", region_name="us-east-1", endpoint_url=f"http://{address}", **keys)


def receive(url, seconds=600, poll=0):
    """The bodies of one receive, and the handle of the first."""
    answer = sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=seconds, WaitTimeSeconds=poll
    ).get("Messages", [])
    return [message["Body"] for message in answer], answer and answer[0]["ReceiptHandle"]


def queue(name):
    return sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]


def take(url, group, seconds):
    """Sends a message of the group, receives it, and returns its handle."""
    sqs.send_message(QueueUrl=url, MessageBody=group, MessageGroupId=group, MessageDeduplicationId=group)
    bodies, handle = receive(url, seconds)
    assert bodies == [group]
    return handle


def comes(url):
    bodies, _ = receive(url, poll=POLL_S)
    return f"{bodies} comes"


def alone():
    url = queue("alone")
    take(url, "b", LAPSE_S)
    return comes(url)


def after():
    url = queue("after")
    take(url, "b", LAPSE_S)
    take(url, "a", 600)
    return comes(url)


def before():
    url = queue("before")
    handle = take(url, "a", 600)
    take(url, "b", LAPSE_S)
    end = comes(url)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    bodies, _ = receive(url, poll=POLL_S)
    return f"{end}, once that one is deleted {bodies}"


def given_back():
    url = queue("back")
    take(url, "a", 600)
    handle = take(url, "b", 600)
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
    return comes(url)


localstack, sqs = serve()
try:
    seen = {
        "nothing else in flight": alone(),
        "a message of another group was received after it": after(),
        "a message of another group was received before it": before(),
        "the same, given back": given_back(),
    }
finally:
    localstack.kill()
    localstack.wait()
for what, end in seen.items():
    print(f"{what}: {end}")
expected = ["['b'] comes", "['b'] comes", "[] comes, once that one is deleted ['b']", "['b'] comes"]
sys.exit(list(seen.values()) != expected)
PY
export HOME="$place" TMPDIR="$place" DNS_ADDRESS=0 DISABLE_EVENTS=1 SKIP_SSL_CERT_DOWNLOAD=1 SERVICES=sqs
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py"
