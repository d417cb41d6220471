#!/usr/bin/env bash
# celery 5.7.0 with kombu 5.7.0 (SQS transport), compared with 5.6.2 of both
# Bet: a receive that SQS answers with 503, or with RequestThrottled, costs a worker of celery one poll: it polls again, as
#   it does after an empty answer. Its source has a case for 503, so that no worker hangs.
# Behaviour: kombu makes an empty list of a 5xx and of a broken connection, and 5.7 then asks that list for its
#   "Messages" by a method that a list has not. A throttled call raises, in both versions. Nobody catches either, and no
#   poll follows. By chance the worker ends ("Unrecoverable error"), or it lives on and never polls again ("Error in timer").
# Cost: one bad second of SQS, and all workers of a queue are gone or stand idle until somebody starts them again. Those that
#   live look well: they have logged one error. A quota, or the first consumers of a new service at the same queue, do it
#   too. Restart workers that end, and watch the age of the oldest message.
# Seen: 5.7.0, empty answer: runs the next task
#       5.7.0, 503: polls no more
#       5.7.0, connection closed: polls no more
#       5.7.0, RequestThrottled: polls no more
#       5.6.2, 503: runs the next task
#       5.6.2, connection closed: runs the next task
#       5.6.2, RequestThrottled: polls no more
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
for version in 5.7.0 5.6.2; do
  python3 -m venv "$place/$version"
  "$place/$version/bin/pip" install --quiet --disable-pip-version-check "celery==$version" "kombu==$version" boto3==1.44.8 \
    pycurl==7.49.0 urllib3==2.8.0
done
cat > "$place/tasks.py" <<'PY'
import os

from celery import Celery

url = f"http://127.0.0.1:{os.environ['PORT']}/1/payments.fifo"
app = Celery("payments", broker=f"sqs://a:b@127.0.0.1:{os.environ['PORT']}")
app.conf.update(
    task_default_queue="payments.fifo",
    task_ignore_result=True,
    broker_transport_options={
        "region": "us-east-1",
        "is_secure": False,
        "wait_time_seconds": 1,
        "predefined_queues": {"payments.fifo": {"url": url, "access_key_id": "a", "secret_access_key": "b"}},
    },
)


@app.task
def pay():
    pass
PY
cat > "$place/run.py" <<'PY'
import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STILL_S = 15

bodies, deleted, faults, changed = [], [], [], threading.Condition()


class Handler(BaseHTTPRequestHandler):
    """Gives the polls a body, then what is in `faults`, then the next body. A fault is a status and an answer, or None: the
    connection is closed."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        operation = self.headers["X-Amz-Target"].partition(".")[2]
        with changed:
            outcome = self.outcome(operation, request)
            changed.notify_all()
        if outcome is None:
            self.close_connection = True
            return
        status, answer = outcome
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def outcome(self, operation, request):
        if operation == "SendMessage":
            bodies.append(request["MessageBody"])
            return 200, {"MessageId": "m"}
        if operation == "DeleteMessage":
            deleted.append(request["ReceiptHandle"])
        if operation != "ReceiveMessage":
            return 200, {"Attributes": {"ApproximateNumberOfMessages": "0"}}
        if len(bodies) == 1 and faults:
            return faults.pop(0)
        if not bodies:
            changed.wait(request["WaitTimeSeconds"])
            return 200, {}
        handle = f"h{len(bodies)}"
        attributes = {"ApproximateReceiveCount": "1"}
        return 200, {
            "Messages": [{"MessageId": "m", "ReceiptHandle": handle, "Body": bodies.pop(0), "Attributes": attributes}]
        }

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
server.handle_error = lambda *arguments: None  # a worker that ends leaves its connections
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ["PORT"] = str(server.server_address[1])

from tasks import pay  # noqa: E402  it asks for the port


def run(*answers):
    """Runs a worker that gets a task, then `answers` to its polls, and then, if it polls again, the second task."""
    bodies.clear()
    deleted.clear()
    faults[:] = answers
    pay.delay()
    pay.delay()
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "-P", "solo", "--loglevel", "ERROR"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    worker = subprocess.Popen(command + quiet, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with changed:
            assert changed.wait_for(lambda: not faults, 60)
            deadline = time.monotonic() + STILL_S
            while len(deleted) < 2 and worker.poll() is None and time.monotonic() < deadline:
                changed.wait(0.1)
            return "runs the next task" if len(deleted) == 2 else "polls no more"
    finally:
        worker.kill()
        worker.wait()


throttled = 400, {"__type": "com.amazonaws.sqs#RequestThrottled", "message": "Request is throttled."}
# curl itself tries a connection that it has used once more, so the second one is closed as well.
cases = {"503": [(503, {})], "connection closed": [None, None], "RequestThrottled": [throttled]}
version, *expected = sys.argv[1:]
if version == "5.7.0":
    cases = {"empty answer": [(200, {})], **cases}
seen = [run(*answers) for answers in cases.values()]
for what, end in zip(cases, seen, strict=True):
    print(f"{version}, {what}: {end}")
sys.exit(seen != expected)
PY
cd "$place"
on="runs the next task" off="polls no more"
unset HTTP_PROXY http_proxy ALL_PROXY all_proxy
"$place/5.7.0/bin/python" run.py 5.7.0 "$on" "$off" "$off" "$off"
"$place/5.6.2/bin/python" run.py 5.6.2 "$on" "$on" "$off"
