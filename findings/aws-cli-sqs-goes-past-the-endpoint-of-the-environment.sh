#!/usr/bin/env bash
# aws-cli 1.45.11 (with botocore 1.43.11)
# Bet: AWS_ENDPOINT_URL, or AWS_ENDPOINT_URL_SQS, leads the commands of the AWS CLI to an emulator, as it leads boto3.
# Behaviour: it leads aws sns there, but not aws sqs: in the regions of an old list, the CLI puts the queue service's older
#   host name in its place, as if --endpoint-url had been given. In a region that is not on the list, it counts.
# Cost: a script that makes or purges queues "on the emulator" does so on AWS, with whatever credentials there are, while
#   the program under test, on boto3, asks the emulator and finds no queue. Give --endpoint-url with each aws sqs.
# Seen: aws sns, eu-west-1: the endpoint of the environment
#       aws sqs, eu-west-1: eu-west-1.queue.amazonaws.com:443
#       aws sqs, eu-west-1, endpoint of sqs alone: eu-west-1.queue.amazonaws.com:443
#       aws sqs, il-central-1: the endpoint of the environment
#       boto3's sqs, eu-west-1: the endpoint of the environment
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check awscli==1.45.11 botocore==1.43.11 boto3==1.43.11
cat > "$place/run.py" <<'PY'
import os, subprocess, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

calls = []


class Handler(BaseHTTPRequestHandler):
    """The endpoint of the environment, and a proxy that lets nothing out of this machine."""

    def do_POST(self):
        calls.append("the endpoint of the environment")
        self.send_error(400)

    def do_CONNECT(self):
        calls.append(self.path)
        self.send_error(502)

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
here = f"http://127.0.0.1:{server.server_address[1]}"
kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(("AWS_", "NO_PROXY"))}
identity = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_CONFIG_FILE": os.devnull}
environment = {**kept, **identity, "HTTPS_PROXY": here, "https_proxy": here, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
programs = os.path.dirname(sys.executable)
AWS, BOTO3 = [f"{programs}/python", f"{programs}/aws"], [sys.executable, "-c", "import boto3; boto3.client('sqs').list_queues()"]


def run(what, command, region="eu-west-1", name="AWS_ENDPOINT_URL"):
    calls.clear()
    given = {**environment, "AWS_DEFAULT_REGION": region, "AWS_MAX_ATTEMPTS": "1", name: here}
    subprocess.run(command, env=given, capture_output=True, timeout=120)
    print(f"{what}: {', '.join(sorted(set(calls)))}")
    return sorted(set(calls))


LIST = [*AWS, "sqs", "list-queues"]
old, own = ["eu-west-1.queue.amazonaws.com:443"], ["the endpoint of the environment"]
seen = [
    run("aws sns, eu-west-1", [*AWS, "sns", "list-topics"]),
    run("aws sqs, eu-west-1", LIST),
    run("aws sqs, eu-west-1, endpoint of sqs alone", LIST, name="AWS_ENDPOINT_URL_SQS"),
    run("aws sqs, il-central-1", LIST, "il-central-1"),
    run("boto3's sqs, eu-west-1", BOTO3),
]
sys.exit(seen != [own, old, old, own, own])
PY
"$place/venv/bin/python" "$place/run.py"
