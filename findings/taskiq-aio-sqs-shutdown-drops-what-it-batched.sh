#!/usr/bin/env bash
# taskiq-aio-sqs 2.1.1, its broker with enable_batching=True and a FIFO queue
# Bet: shutdown() sends what kiq() has taken, as its own comment says, and an entry which SQS names in `Failed` is sent
#   again or logged.
# Behaviour: kiq() puts the task into the process's memory and is done. A worker collects up to ten of them, for up to
#   batch_timeout. shutdown() cancels that worker, and what it has in hand goes with it; a worker that had no turn yet
#   takes all. The answer of SendMessageBatch is not read.
# Cost: a script that starts the broker, kicks tasks and shuts it down sends none of them, and each restart of a service
#   loses up to nine. A refused entry is lost too. Each kiq() has given back a task as if it were sent, and no log
#   has a line. Leave enable_batching off, or give the tasks that count the label skip_batching.
# Seen: no batching: 25 kicked, 25 at SQS, logged 0
#       batching, shutdown at once: 25 kicked, 0 at SQS, logged 0
#       batching, shutdown after two batches: 25 kicked, 20 at SQS, logged 0
#       batching, one entry refused: 10 kicked, 9 at SQS, logged 0
#       batching, skip_batching: 25 kicked, 25 at SQS, logged 0
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check taskiq-aio-sqs==2.1.1 taskiq==0.13.0 aiobotocore==3.10.0
cat > "$place/run.py" <<'PY'
import asyncio
import json
import logging
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from taskiq_aio_sqs import SQSBroker

sent, refused, records = [], set(), []


class Handler(BaseHTTPRequestHandler):
    """Answers as SQS does; it refuses the entries whose Id is in `refused`."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        operation = self.headers["X-Amz-Target"].partition(".")[2]
        if operation == "GetQueueUrl":
            answer = {"QueueUrl": f"{url}/123456789012/payments.fifo"}
        elif operation == "SendMessage":
            sent.append(request["MessageDeduplicationId"])
            answer = {"MessageId": "m"}
        else:
            taken = [entry for entry in request["Entries"] if entry["Id"] not in refused]
            sent.extend(entry["MessageDeduplicationId"] for entry in taken)
            answer = {
                "Successful": [{"Id": entry["Id"], "MessageId": "m"} for entry in taken],
                "Failed": [{"Id": key, "Code": "InternalError", "SenderFault": False} for key in sorted(refused)],
            }
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_address[1]}"
log = logging.Handler(logging.WARNING)
log.emit = records.append
logging.getLogger().addHandler(log)


async def run(kicked, wait_for=0, refuse=(), batching=True, **labels):
    """Kick tasks of one group, wait until `wait_for` are at SQS, shut the broker down, and return how many came."""
    sent.clear()
    records.clear()
    refused.clear()
    refused.update(refuse)
    broker = SQSBroker(
        "payments.fifo",
        endpoint_url=url,
        aws_access_key_id="a",
        aws_secret_access_key="b",
        use_task_id_for_deduplication=True,
        enable_batching=batching,
        batch_timeout=60,
    )

    @broker.task(task_name="pay", group_id="customer", **labels)
    async def pay(number):
        pass

    await broker.startup()
    for number in range(kicked):
        await pay.kiq(number)
    async with asyncio.timeout(30):
        # The last, not full batch is in the worker's hands as soon as the broker's own queue is empty.
        while wait_for and (len(sent) < wait_for or not broker._batch_queue.empty()):
            await asyncio.sleep(0.01)
    await broker.shutdown()
    return f"{kicked} kicked, {len(set(sent))} at SQS, logged {len(records)}"


async def main():
    return {
        "no batching": await run(25, batching=False),
        "batching, shutdown at once": await run(25),
        "batching, shutdown after two batches": await run(25, wait_for=20),
        "batching, one entry refused": await run(10, wait_for=9, refuse={"3"}),
        "batching, skip_batching": await run(25, skip_batching=True),
    }


seen = asyncio.run(main())
for case, end in seen.items():
    print(f"{case}: {end}")
numbers = [(25, 25), (25, 0), (25, 20), (10, 9), (25, 25)]
sys.exit(list(seen.values()) != [f"{kicked} kicked, {came} at SQS, logged 0" for kicked, came in numbers])
PY
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py"
