#!/usr/bin/env bash
# @aws-sdk/client-sqs 3.1175.0 (npm) with its middleware-sdk-sqs, compared with boto3 1.44.8 (PyPI)
# Bet: AWS_ENDPOINT_URL_SQS, or AWS_ENDPOINT_URL, leads the calls for a queue to that endpoint, as it leads those of
#   boto3, and AWS_USE_FIPS_ENDPOINT leads them to a FIPS endpoint: the queue's URL is a name, and says what queue is
#   meant.
# Behaviour: a call that has a QueueUrl goes to the host of that URL, unless the client was given `endpoint` in its
#   code. Each of the three variables leads only the calls without a QueueUrl, such as GetQueueUrl. A line "using
#   QueueUrl host as endpoint" goes to the console, and nowhere where the client has a logger that drops warnings.
# Cost: in a subnet without a way out, whose variable names an interface endpoint, each receive and send waits for a
#   host that it cannot reach, while GetQueueUrl and all of boto3 work. Where FIPS is a rule, the rule is broken, and
#   with an emulator in the variable, a queue's URL out of production is a call to production. Set `endpoint` on the
#   client, or useQueueUrlAsEndpoint: false.
# Seen: AWS_ENDPOINT_URL_SQS: GetQueueUrl to endpoint.test, DeleteMessage to sqs.us-east-1.amazonaws.com
#       AWS_ENDPOINT_URL: GetQueueUrl to endpoint.test, DeleteMessage to sqs.us-east-1.amazonaws.com
#       AWS_USE_FIPS_ENDPOINT: GetQueueUrl to sqs-fips.us-east-1.amazonaws.com, DeleteMessage to
#         sqs.us-east-1.amazonaws.com
#       endpoint of the client: GetQueueUrl to endpoint.test, DeleteMessage to endpoint.test
#       AWS_ENDPOINT_URL_SQS, useQueueUrlAsEndpoint false: GetQueueUrl to endpoint.test, DeleteMessage to endpoint.test
#       boto3, AWS_ENDPOINT_URL_SQS: GetQueueUrl to endpoint.test, DeleteMessage to endpoint.test
#       boto3, AWS_ENDPOINT_URL: GetQueueUrl to endpoint.test, DeleteMessage to endpoint.test
#       boto3, AWS_USE_FIPS_ENDPOINT: GetQueueUrl to sqs-fips.us-east-1.amazonaws.com, DeleteMessage to
#         sqs-fips.us-east-1.amazonaws.com
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
npm install --silent --no-audit --no-fund @aws-sdk/client-sqs@3.1175.0 >/dev/null 2>&1
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check boto3==1.44.8 botocore==1.44.8
cat > run.mjs <<'JS'
// Nothing is sent: the handler of the requests notes their hosts and answers.
import { Readable } from "node:stream";
import { DeleteMessageCommand, GetQueueUrlCommand, SQSClient } from "@aws-sdk/client-sqs";

const hosts = [];
const requestHandler = {
  async handle(request) {
    hosts.push(request.hostname);
    const headers = { "content-type": "application/x-amz-json-1.0" };
    return { response: { statusCode: 200, headers, body: Readable.from([Buffer.from("{}")]) } };
  },
};
const credentials = { accessKeyId: "a", secretAccessKey: "b" };
const client = new SQSClient({ region: "us-east-1", credentials, requestHandler, ...JSON.parse(process.argv[2]) });
const QueueUrl = "https://sqs.us-east-1.amazonaws.com/123456789012/payments.fifo";
await client.send(new GetQueueUrlCommand({ QueueName: "payments.fifo" }));
await client.send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: "r" }));
console.log(`GetQueueUrl to ${hosts[0]}, DeleteMessage to ${hosts[1]}`);
JS
cat > call.py <<'PY'
# Nothing is sent: the handler of the requests notes their hosts and answers.
from urllib.parse import urlsplit

import boto3
from botocore.awsrequest import AWSResponse

hosts = []


def answer(request, **_):
    hosts.append(urlsplit(request.url).hostname)
    response = AWSResponse(request.url, 200, {"content-type": "application/x-amz-json-1.0"}, None)
    response._content = b"{}"
    return response


client = boto3.client("sqs", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
client.meta.events.register("before-send.sqs", answer)
client.get_queue_url(QueueName="payments.fifo")
client.delete_message(QueueUrl="https://sqs.us-east-1.amazonaws.com/123456789012/payments.fifo", ReceiptHandle="r")
print(f"GetQueueUrl to {hosts[0]}, DeleteMessage to {hosts[1]}")
PY
cat > run.py <<'PY'
import os
import subprocess
import sys

QUEUE, FIPS, OWN = "sqs.us-east-1.amazonaws.com", "sqs-fips.us-east-1.amazonaws.com", "endpoint.test"
kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("AWS_")}
kept["AWS_CONFIG_FILE"] = os.devnull


def run(what, command, environment):
    answer = subprocess.run(command, env={**kept, **environment}, capture_output=True, text=True, timeout=120)
    print(f"{what}: {answer.stdout.strip() or answer.stderr[-500:]}")
    return answer.stdout.strip()


def javascript(options):
    return ["node", "run.mjs", options]


of_sqs = {"AWS_ENDPOINT_URL_SQS": f"https://{OWN}"}
of_all = {"AWS_ENDPOINT_URL": f"https://{OWN}"}
fips = {"AWS_USE_FIPS_ENDPOINT": "true"}
boto3 = [sys.executable, "call.py"]
seen = [
    run("AWS_ENDPOINT_URL_SQS", javascript("{}"), of_sqs),
    run("AWS_ENDPOINT_URL", javascript("{}"), of_all),
    run("AWS_USE_FIPS_ENDPOINT", javascript("{}"), fips),
    run("endpoint of the client", javascript(f'{{"endpoint": "https://{OWN}"}}'), {}),
    run("AWS_ENDPOINT_URL_SQS, useQueueUrlAsEndpoint false", javascript('{"useQueueUrlAsEndpoint": false}'), of_sqs),
    run("boto3, AWS_ENDPOINT_URL_SQS", boto3, of_sqs),
    run("boto3, AWS_ENDPOINT_URL", boto3, of_all),
    run("boto3, AWS_USE_FIPS_ENDPOINT", boto3, fips),
]
to = [(OWN, QUEUE), (OWN, QUEUE), (FIPS, QUEUE), (OWN, OWN), (OWN, OWN), (OWN, OWN), (OWN, OWN), (FIPS, FIPS)]
sys.exit(seen != [f"GetQueueUrl to {first}, DeleteMessage to {second}" for first, second in to])
PY
venv/bin/python run.py
