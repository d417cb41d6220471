#!/usr/bin/env bash
# aws-sdk-sqs 0.12.0 (PyPI, AWS's own SDK, which calls itself experimental), as it comes
# Bet: its retry strategy, "standard" with three attempts, tries a DeleteMessage again after a 503, a RequestThrottled or a
#   connection that closed without an answer, as boto3 does.
# Behaviour: it tries again after status 408 and 429, while SQS answers 400 to a throttled call. The other faults below are
#   raised after one request, also with more attempts. A 503 whose body is "{}" comes as DiscriminatorError, without the
#   status.
# Cost: each fault of a second fails the call. The messages of a failed delete come again, those of a failed renewal are
#   handed out while they are at work, and a failed poll ends a loop which was safe with boto3. Retry in your own code
#   until the package does, and take any exception for a reason to.
# Seen: 429: deleted after 2 requests
#       408: deleted after 2 requests
#       503 ServiceUnavailable: CallError after 1 request
#       500 InternalError: CallError after 1 request
#       503, body {}: DiscriminatorError after 1 request
#       400 RequestThrottled: RequestThrottled after 1 request
#       400 ThrottlingException: CallError after 1 request
#       connection closed: SmithyError after 1 request
#       503 ServiceUnavailable, max_attempts 10: CallError after 1 request
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
# The SDK needs Python 3.12.
for python in python3 python3.14 python3.13 python3.12 "$(pyenv root 2>/dev/null || true)"/versions/3.1[2-9]*/bin/python; do
  if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then break; fi
done
"$python" -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check \
  aws-sdk-sqs==0.12.0 smithy-http==0.6.0 smithy-core==0.9.0 smithy-aws-core==0.12.0
cat > "$place/run.py" <<'PY'
import asyncio
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from aws_sdk_sqs.client import AsyncSQSClient
from aws_sdk_sqs.config import AsyncSQSConfig
from aws_sdk_sqs.models import DeleteMessageInput
from smithy_core.retries import RetryStrategyOptions

faults, requests = [], []


class Handler(BaseHTTPRequestHandler):
    """Answers the next request with the fault that is set, and others as SQS does."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        requests.append(self.headers["X-Amz-Target"])
        status, body = faults.pop() if faults else (200, {})
        if status is None:
            self.close_connection = True
            return
        content = json.dumps(body).encode()
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


async def delete(status, code=None, **options):
    """The end of a delete whose first request meets the fault."""
    requests.clear()
    faults[:] = [(status, {"__type": f"com.amazonaws.sqs#{code}", "message": "for a second"} if code else {})]
    sqs = AsyncSQSClient(config=await AsyncSQSConfig.resolve(endpoint_uri=url, region="us-east-1", **options))
    try:
        await sqs.delete_message(DeleteMessageInput(queue_url=f"{url}/123456789012/payments.fifo", receipt_handle="h"))
        end = "deleted"
    except Exception as error:
        end = type(error).__name__
    return f"{end} after {len(requests)} request" + "s" * (len(requests) > 1)


async def main():
    ten = RetryStrategyOptions(max_attempts=10)
    return {
        "429": await delete(429, "Slow"),
        "408": await delete(408, "Slow"),
        "503 ServiceUnavailable": await delete(503, "ServiceUnavailable"),
        "500 InternalError": await delete(500, "InternalError"),
        "503, body {}": await delete(503),
        "400 RequestThrottled": await delete(400, "RequestThrottled"),
        "400 ThrottlingException": await delete(400, "ThrottlingException"),
        "connection closed": await delete(None),
        "503 ServiceUnavailable, max_attempts 10": await delete(503, "ServiceUnavailable", retry_strategy=ten),
    }


seen = asyncio.run(main())
for fault, end in seen.items():
    print(f"{fault}: {end}")
failed = ["CallError", "CallError", "DiscriminatorError", "RequestThrottled", "CallError", "SmithyError", "CallError"]
expected = ["deleted after 2 requests"] * 2 + [f"{name} after 1 request" for name in failed]
sys.exit(list(seen.values()) != expected)
PY
# Keys come from the environment, and no proxy stands before the local server.
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b \
  "$place/venv/bin/python" "$place/run.py" 2>"$place/log" || {
  cat "$place/log" >&2
  exit 1
}
