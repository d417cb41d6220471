#!/usr/bin/env bash
# botocore 1.44.8 (below boto3), retries={"mode": "adaptive"}, compared with its default, "standard"
# Bet: the adaptive mode slows a client down while SQS throttles it. A minute after one throttled call, with no other
#   failure since, a burst of deletes runs as fast as before.
# Behaviour: from the first throttled call on, all calls of the client share a rate, for as long as the client lives. It
#   may be no more than twice what was measured last, and half a call in a second where that is next to nothing. So what
#   slows a burst is the quiet before it, and each burst begins again at the bottom: its calls sleep before they are sent.
# Cost: a consumer that waits in long polls measures next to nothing. One throttled call in its life, and each time that
#   messages come after a quiet minute, its deletes and renewals, of all threads, wait for seconds, with no line in a log.
#   Leases lapse behind that. Use "standard" for a client that deletes or renews.
# Seen: 100 deletes, adaptive beside standard:
#         before: as fast
#         a minute after one throttled poll: 1.5 s or more slower
#         another minute later: 1.5 s or more slower
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check boto3==1.44.8 botocore==1.44.8 urllib3==2.8.0
cat > "$place/run.py" <<'PY'
import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
from botocore.config import Config

POLL_S, QUIET_S, BURST, SLOW_S = 20, 60, 100, 1.5
# The names of the queues whose next call is throttled.
throttled = set()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, answer = 200, {}
        if request["QueueUrl"] in throttled:
            throttled.remove(request["QueueUrl"])
            status, answer = 400, {"__type": "com.amazonaws.sqs#RequestThrottled", "message": "Request is throttled."}
        time.sleep(request.get("WaitTimeSeconds", 0))
        content = json.dumps(answer).encode()
        self.send_response(status)
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


class Consumer:
    def __init__(self, mode):
        self.queue = f"{url}/1/{mode}.fifo"
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
        config = Config(retries={"mode": mode})
        self.client = boto3.client("sqs", region_name="us-east-1", endpoint_url=url, config=config, **keys)

    def poll(self, wait_s):
        self.client.receive_message(QueueUrl=self.queue, WaitTimeSeconds=wait_s)

    def burst(self):
        """Deletes a hundred messages, one after the other, and gives the seconds that it took."""
        begin = time.monotonic()
        for number in range(BURST):
            self.client.delete_message(QueueUrl=self.queue, ReceiptHandle=str(number))
        return time.monotonic() - begin


def run(mode):
    consumer = Consumer(mode)
    consumer.poll(0)  # it makes the connection
    seen = [consumer.burst()]
    throttled.add(consumer.queue)
    consumer.poll(0)
    assert not throttled & {consumer.queue}
    for _ in range(2):
        for _ in range(QUIET_S // POLL_S):
            consumer.poll(POLL_S)
        seen.append(consumer.burst())
    return seen


# Both at the same time, so that a busy machine slows both.
with ThreadPoolExecutor(2) as pool:
    standard, adaptive = pool.map(run, ("standard", "adaptive"))
print("standard", standard, "adaptive", adaptive, file=sys.stderr)
more = [other - one for one, other in zip(standard, adaptive, strict=True)]
seen = [f"{SLOW_S} s or more slower" if late >= SLOW_S else "as fast" for late in more]
print("100 deletes, adaptive beside standard:")
times = ("before", "a minute after one throttled poll", "another minute later")
print(*(f"  {when}: {end}" for when, end in zip(times, seen, strict=True)), sep="\n")
sys.exit(seen != ["as fast"] + 2 * [f"{SLOW_S} s or more slower"])
PY
unset HTTP_PROXY http_proxy ALL_PROXY all_proxy
"$place/venv/bin/python" "$place/run.py" 2>"$place/log" || { cat "$place/log" >&2; exit 1; }
