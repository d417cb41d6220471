#!/usr/bin/env bash
# localstack-core 2026.3.0 (SQS)
# Bet: StartMessageMoveTask takes a message of a FIFO dead-letter queue back to its source, and a dead message of each of two
#   queues lies in the dead-letter queue they share. SQS replaces the deduplication id of a dead message by its message id,
#   so neither is taken for a duplicate.
# Behaviour: the id stays the sender's. For 5 minutes after the send the source takes what is moved back for a duplicate of
#   itself: the message is in no queue any more, and the task is COMPLETED, with one message moved. A dead message whose id
#   another source's message had is dropped too. In a standard queue, or to a queue that never had the id, it arrives.
# Cost: a test that lets a message die, redrives it and waits for it waits for good, with nothing in a log, and a redrive of
#   a local setup loses the messages it was to save. Two producers that number from 1 leave one of two failures in the
#   dead-letter queue. Redrive in tests to a queue of its own.
# Seen: standard, moved back: COMPLETED, 1 moved, source ['p'], dead-letter queue []
#       FIFO, moved back: COMPLETED, 1 moved, source [], dead-letter queue []
#       FIFO, moved to a new queue: COMPLETED, 1 moved, new queue ['p'], dead-letter queue []
#       FIFO, two sources, other ids: dead-letter queue ['a', 'b']
#       FIFO, two sources, equal ids: dead-letter queue ['a']
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
import json
import os
import socket
import subprocess
import sys
import time

import boto3


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


def queue(name, source_of=None, fifo=True):
    attributes = {"FifoQueue": "true"} if fifo else {}
    if source_of:
        attributes["RedrivePolicy"] = json.dumps({"deadLetterTargetArn": arn(source_of), "maxReceiveCount": "1"})
    return sqs.create_queue(QueueName=name + ".fifo" * fifo, Attributes=attributes)["QueueUrl"]


def arn(url):
    return sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]


def receive(url):
    """The bodies of one receive, which leaves the messages where they are."""
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0, WaitTimeSeconds=2)
    return [message["Body"] for message in answer.get("Messages", [])]


def die(url, body, number, fifo=True):
    """Sends a message, and receives it once more than its queue allows."""
    more = {"MessageGroupId": body, "MessageDeduplicationId": number} if fifo else {}
    sqs.send_message(QueueUrl=url, MessageBody=body, **more)
    assert receive(url) == [body] and receive(url) == []


def moved(name, fifo=True, to=None):
    """Lets a message die, moves it, and returns where it is once the task is over."""
    dead = queue(name + "-dead", fifo=fifo)
    source = queue(name, source_of=dead, fifo=fifo)
    die(source, "p", "1", fifo)
    target = queue(to) if to else source
    sqs.start_message_move_task(SourceArn=arn(dead), **({"DestinationArn": arn(target)} if to else {}))
    deadline = time.monotonic() + 30
    while (task := sqs.list_message_move_tasks(SourceArn=arn(dead))["Results"][0])["Status"] == "RUNNING":
        assert time.monotonic() < deadline, task
        time.sleep(0.1)
    end = f"{task['Status']}, {task['ApproximateNumberOfMessagesMoved']} moved"
    return f"{end}, {'new queue' if to else 'source'} {receive(target)}, dead-letter queue {receive(dead)}"


def shared(name, number_of_b):
    dead = queue(name + "-dead")
    die(queue(name + "-a", source_of=dead), "a", "1")
    die(queue(name + "-b", source_of=dead), "b", number_of_b)
    return f"dead-letter queue {receive(dead)}"


localstack, sqs = serve()
try:
    seen = {
        "standard, moved back": moved("standard", fifo=False),
        "FIFO, moved back": moved("back"),
        "FIFO, moved to a new queue": moved("away", to="new"),
        "FIFO, two sources, other ids": shared("other", "2"),
        "FIFO, two sources, equal ids": shared("equal", "1"),
    }
finally:
    localstack.kill()
    localstack.wait()
for what, end in seen.items():
    print(f"{what}: {end}")
expected = [
    "COMPLETED, 1 moved, source ['p'], dead-letter queue []",
    "COMPLETED, 1 moved, source [], dead-letter queue []",
    "COMPLETED, 1 moved, new queue ['p'], dead-letter queue []",
    "dead-letter queue ['a', 'b']",
    "dead-letter queue ['a']",
]
sys.exit(list(seen.values()) != expected)
PY
export HOME="$place" TMPDIR="$place" DNS_ADDRESS=0 DISABLE_EVENTS=1 SKIP_SSL_CERT_DOWNLOAD=1 SERVICES=sqs
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py"
