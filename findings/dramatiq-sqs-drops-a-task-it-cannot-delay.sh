#!/usr/bin/env bash
# dramatiq-sqs 0.4.4 with dramatiq 2.2.1 (for a retry that SQS refuses: Bogdanp/dramatiq pull request 545)
# Bet: a task that always raises is tried 21 times, for max_retries is 20, and then is in the dead-letter queue, with
#   dead_letter=True. A retry that is due later than the 15 minutes for which SQS can delay is sent with 15 minutes.
# Behaviour: the waits double, from 15 s on. After seven attempts at most, in about half an hour, the next wait is above
#   15 minutes. The broker refuses to delay the task so long; that is logged, and the task counts as done. It is
#   deleted, and is in neither queue. So it goes as well with a retry that SQS refuses once.
# Cost: with the defaults, an outage of half an hour loses each task that it met. The dead-letter queue, which is
#   watched, stays empty. Set max_backoff to 900000 at most, and watch the log for "Unexpected failure".
# Seen: defaults: 6 or 7 attempts, then queue 0, dead-letter queue 0
#       max_backoff=900000: 21 attempts, then queue 0, dead-letter queue 1
#       max_backoff=900000, the first retry refused by SQS: 1 attempt, then queue 0, dead-letter queue 0
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check dramatiq-sqs==0.4.4 dramatiq==2.2.1 boto3==1.44.8
cat > "$place/run.py" <<'PY'
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import dramatiq
from dramatiq.middleware import Retries
from dramatiq_sqs import SQSBroker


class Queues:
    """Two queues as SQS has them, but a delayed message is there at once."""

    def __init__(self, refusals):
        self.lock = threading.Lock()
        self.visible = {"tasks": [], "tasks_dlq": []}
        self.in_flight = {}
        self.sends = 0
        self.refusals = refusals  # The numbers of the sends that are refused.

    def answer(self, action, request):
        queue = request.get("QueueUrl", "").rpartition("/")[2]
        with self.lock:
            if action == "GetQueueUrl":
                return {"QueueUrl": f"{url}/1/{request['QueueName']}"}
            if action == "SendMessage":
                self.sends += 1
                if self.sends in self.refusals:
                    return None
                self.visible[queue].append(request["MessageBody"])
                return {"MessageId": "m"}
            if action == "ReceiveMessage":
                if not self.visible[queue]:
                    return {}
                handle = str(self.sends)
                self.in_flight[handle] = self.visible[queue].pop(0)
                return {"Messages": [{"MessageId": "m", "ReceiptHandle": handle, "Body": self.in_flight[handle]}]}
            if action == "DeleteMessage":
                del self.in_flight[request["ReceiptHandle"]]
            return {}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = queues.answer(self.headers["X-Amz-Target"].rpartition(".")[2], request)
        if answer == {}:
            time.sleep(0.02)
        body = json.dumps({"__type": "InvalidMessageContents"} if answer is None else answer).encode()
        self.send_response(400 if answer is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"


def run(refusals=(), **options):
    global queues
    queues, attempts = Queues(refusals), []
    broker = SQSBroker(
        middleware=[Retries(**options)],
        dead_letter=True,
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="k",
        aws_secret_access_key="s",
    )

    @dramatiq.actor(broker=broker, queue_name="tasks")
    def pay():
        attempts.append(1)
        raise OSError("the bank does not answer")

    pay.send()
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=1)
    worker.start()
    deadline = time.monotonic() + 120
    while not attempts or queues.visible["tasks"] or queues.in_flight:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    worker.stop()
    left = [len(queues.visible[queue]) for queue in ("tasks", "tasks_dlq")]
    return len(attempts), *left


cases = {
    "defaults": ({}, [(6, 0, 0), (7, 0, 0)]),
    "max_backoff=900000": ({"max_backoff": 900000}, [(21, 0, 1)]),
    "max_backoff=900000, the first retry refused by SQS": ({"max_backoff": 900000, "refusals": [2]}, [(1, 0, 0)]),
}
same = True
for case, (options, expected) in cases.items():
    seen = run(**options)
    same &= seen in expected
    print(f"{case}: {seen[0]} attempt{'s' * (seen[0] > 1)}, then queue {seen[1]}, dead-letter queue {seen[2]}")
sys.exit(not same)
PY
"$place/venv/bin/python" "$place/run.py" 2>"$place/log" || { tail -5 "$place/log"; exit 1; }
