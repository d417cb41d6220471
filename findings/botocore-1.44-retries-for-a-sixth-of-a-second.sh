#!/usr/bin/env bash
# botocore 1.44.8 (below boto3), compared with 1.43.127
# Bet: with the settings that a client has by default, a delete or a heartbeat rides out a second in which SQS answers 503,
#   in both versions: one makes five attempts, the other three, with waits that double.
# Behaviour: since 1.44 the default is the retry mode "standard", and there the two waits before the last attempt are at most
#   50 and 100 ms, save for throttling. After a sixth of a second the error is raised. 1.43, whose default is "legacy",
#   waits for up to 1, 2, 4 and 8 s.
# Cost: an upgrade turns what nobody has ever seen into errors: a renewal that is not repeated by hand is lost, the message is
#   given to another consumer in the middle of its work, and a delete that failed lets it come again. Retry in the
#   caller, or set retries={"mode": "legacy"}.
# Seen: 1.43.127, default: deleted
#       1.44.8, default: 503 after 3 requests, within half a second
#       1.44.8, legacy: deleted
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
for version in 1.43.127 1.44.8; do
  python3 -m venv "$place/$version"
  "$place/$version/bin/pip" install --quiet --disable-pip-version-check "botocore==$version"
done
cat > "$place/run.py" <<'PY'
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import botocore
import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError

OUTAGE_S = 1
times = []


class Handler(BaseHTTPRequestHandler):
    """Answers with 503 for a second from the first request on, and then as SQS does."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        times.append(time.monotonic())
        status, content = (200, b"{}") if times[-1] - times[0] > OUTAGE_S else (503, b"")
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
keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}


def run(mode):
    retries = {} if mode == "default" else {"retries": {"mode": mode}}
    session = botocore.session.get_session()
    sqs = session.create_client("sqs", "us-east-1", endpoint_url=url, config=Config(**retries), **keys)
    times.clear()
    try:
        sqs.delete_message(QueueUrl=f"{url}/123456789012/payments.fifo", ReceiptHandle="h")
    except ClientError as error:
        within = "half a second" if times[-1] - times[0] < 0.5 else "more"
        return f"{error.response['Error']['Code']} after {len(times)} requests, within {within}"
    return "deleted"


for mode in sys.argv[1:]:
    print(f"{botocore.__version__}, {mode}: {run(mode)}")
PY
run() { env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/$1/bin/python" "$place/run.py" "${@:2}"; }
seen=$(run 1.43.127 default && run 1.44.8 default legacy)
echo "$seen"
[ "$seen" = "1.43.127, default: deleted
1.44.8, default: 503 after 3 requests, within half a second
1.44.8, legacy: deleted" ]
