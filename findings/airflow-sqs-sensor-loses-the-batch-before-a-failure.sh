#!/usr/bin/env bash
# apache-airflow-providers-amazon 9.39.0, SqsSensor, with apache-airflow-core 3.3.2 and task-sdk 1.3.2; boto3 1.44.8
# Bet: what a poke has received is handed on, or comes again in the task's next try, with num_batches=2 as well. A
#   delete that fails raises, as the documentation has it.
# Behaviour: each batch is deleted as soon as it is received, and all are handed on at the end of the poke. When a later call
#   fails, the poke raises, and what it has deleted is gone: it is in no XCom and no queue. A refused delete throws nothing,
#   for the answer has a list `Successful`, be it empty; these messages are handed on, and come again. (That last part is
#   known: apache/airflow pull request 73423.)
# Cost: one throttled receive in the second round loses up to ten messages, with an error that names none of them, and the
#   retry is green. Leave num_batches at 1, or set delete_message_on_reception=False and delete in the task that has done
#   the work, which reads `Failed`.
# Seen: num_batches=1, first receive throttled: KmsThrottled, then handed on [1, 2, 3], left at SQS [4, 5, 6]
#       num_batches=2: handed on [1, 2, 3, 4, 5, 6], left at SQS []
#       num_batches=2, first receive throttled: KmsThrottled, then handed on [1, 2, 3, 4, 5, 6], left at SQS []
#       num_batches=2, second receive throttled: KmsThrottled, then handed on [4, 5, 6], left at SQS []
#       one delete refused: handed on [1, 2, 3], left at SQS [2, 4, 5, 6]
#       all deletes refused: handed on [1, 2, 3], left at SQS [1, 2, 3, 4, 5, 6]
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check apache-airflow-task-sdk==1.3.2 boto3==1.44.8 \
  jsonpath_ng==1.8.0
# Without what the sensor does not use, which is a hundred packages more.
"$place/venv/bin/pip" install --quiet --no-compile --no-deps --disable-pip-version-check apache-airflow-core==3.3.2 \
  apache-airflow-providers-common-compat==1.23.0 apache-airflow-providers-amazon==9.39.0
cat > "$place/run.py" <<'PY'
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

queue, refused, receives = [], set(), []


class Handler(BaseHTTPRequestHandler):
    """A queue of numbers. Throttles the receives for which `receives` has a true value, and refuses to delete `refused`."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        operation = self.headers["X-Amz-Target"].partition(".")[2]
        status, answer = self.receive(request) if operation == "ReceiveMessage" else self.delete(request)
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def receive(self, request):
        if receives and receives.pop(0):
            return 400, {"__type": "com.amazonaws.sqs#KmsThrottled", "message": "Throttled."}
        numbers = queue[: request["MaxNumberOfMessages"]]
        return 200, {"Messages": [{"MessageId": f"m{n}", "ReceiptHandle": str(n), "Body": str(n)} for n in numbers]}

    def delete(self, request):
        successful, failed = [], []
        for entry in request["Entries"]:
            number = int(entry["ReceiptHandle"])
            if number in refused:
                failed.append({"Id": entry["Id"], "Code": "InternalError", "SenderFault": False})
            else:
                queue.remove(number)
                successful.append({"Id": entry["Id"]})
        return 200, {"Successful": successful, "Failed": failed}

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_address[1]}"
os.environ |= {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}

from airflow.providers.amazon.aws.sensors.sqs import SqsSensor  # noqa: E402  it reads the environment


class TaskInstance:
    """Keeps what a try of the task hands on."""

    def __init__(self):
        self.numbers = []

    def xcom_push(self, key, value):
        self.numbers += [int(message["Body"]) for message in value]


def run(batches, throttle=(), refuse=()):
    """Tries the task, which has one retry, as Airflow does, and returns how its tries ended."""
    queue[:] = range(1, 7)
    receives[:] = throttle
    refused.clear()
    refused.update(refuse)
    ends = []
    for _ in range(2):
        instance = TaskInstance()
        sensor = SqsSensor(
            task_id="payments",
            sqs_queue=f"{url}/1/payments.fifo",
            aws_conn_id=None,
            region_name="us-east-1",
            max_messages=3,
            num_batches=batches,
        )
        try:
            done = sensor.poke({"ti": instance})
        except Exception as error:
            ends.append(f"{type(error).__name__}" + f", handed on {instance.numbers}" * bool(instance.numbers))
        else:
            ends.append(f"handed on {instance.numbers}" if done else "nothing")
            break
    return f"{', then '.join(ends)}, left at SQS {queue}"


seen = {
    "num_batches=1, first receive throttled": run(1, throttle=[True]),
    "num_batches=2": run(2),
    "num_batches=2, first receive throttled": run(2, throttle=[True]),
    "num_batches=2, second receive throttled": run(2, throttle=[False, True]),
    "one delete refused": run(1, refuse={2}),
    "all deletes refused": run(1, refuse={1, 2, 3}),
}
for what, end in seen.items():
    print(f"{what}: {end}")
expected = [
    "KmsThrottled, then handed on [1, 2, 3], left at SQS [4, 5, 6]",
    "handed on [1, 2, 3, 4, 5, 6], left at SQS []",
    "KmsThrottled, then handed on [1, 2, 3, 4, 5, 6], left at SQS []",
    "KmsThrottled, then handed on [4, 5, 6], left at SQS []",
    "handed on [1, 2, 3], left at SQS [2, 4, 5, 6]",
    "handed on [1, 2, 3], left at SQS [1, 2, 3, 4, 5, 6]",
]
sys.exit(list(seen.values()) != expected)
PY
export AIRFLOW_HOME="$place" AIRFLOW__LOGGING__LOGGING_LEVEL=ERROR
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py"
