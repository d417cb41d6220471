#!/usr/bin/env bash
# localstack-core 2026.3.0 (SQS)
# Bet: messages 1 to 3 of a group are in flight, 4 and 5 wait. When one of the three is given back, or its timeout is over,
#   nothing that stands behind the other two is handed out: holding 2 and 3, SQS gives 1 alone, and holding 1, nothing.
# Behaviour: one message that comes back frees the whole group: it is handed out together with all that was never received,
#   past those which are in flight before them. Only what lapses behind a message in flight is kept back, as on SQS.
# Cost: a consumer that fails at 1 gives 1, 2 and 3 back, with a call for each. After the first call a second consumer has
#   1, 4 and 5, and works on 4 before 2: a test of order fails, now and then, for a consumer that is right on SQS. To give
#   3 back first, which SQS keeps in order, lets 4 out before all of them.
# Seen: all given back: [1, 2, 3, 4, 5]
#       1 given back: [1, 4, 5]
#       2 given back: [2, 4, 5]
#       3 given back: [3, 4, 5]
#       1 lapsed: [1, 4, 5]
#       2 and 3 lapsed: []
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


def receive(url, **more):
    return sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, **more).get("Messages", [])


def run(name, seconds, poll=0):
    """Five messages of one group, of which three are in flight for 600 s. Changes the timeout of those in `seconds` to what
    stands there, in that order, and returns what the next receive gets."""
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    for body in "12345":
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g", MessageDeduplicationId=body)
    held = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=3, VisibilityTimeout=600)["Messages"]
    handles = {int(message["Body"]): message["ReceiptHandle"] for message in held}
    assert sorted(handles) == [1, 2, 3]
    for number, timeout in seconds.items():
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handles[number], VisibilityTimeout=timeout)
    return [int(message["Body"]) for message in receive(url, WaitTimeSeconds=poll)]


localstack, sqs = serve()
try:
    seen = {
        "all given back": run("all", {1: 0, 2: 0, 3: 0}),
        "1 given back": run("first", {1: 0}),
        "2 given back": run("second", {2: 0}),
        "3 given back": run("third", {3: 0}),
        "1 lapsed": run("lapsed", {1: LAPSE_S}, poll=POLL_S),
        "2 and 3 lapsed": run("behind", {2: LAPSE_S, 3: LAPSE_S}, poll=POLL_S),
    }
finally:
    localstack.kill()
    localstack.wait()
for what, end in seen.items():
    print(f"{what}: {end}")
sys.exit(list(seen.values()) != [[1, 2, 3, 4, 5], [1, 4, 5], [2, 4, 5], [3, 4, 5], [1, 4, 5], []])
PY
export HOME="$place" TMPDIR="$place" DNS_ADDRESS=0 DISABLE_EVENTS=1 SKIP_SSL_CERT_DOWNLOAD=1 SERVICES=sqs
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py"
