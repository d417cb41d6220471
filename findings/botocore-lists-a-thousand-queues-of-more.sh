#!/usr/bin/env bash
# boto3 1.44.8 and @aws-sdk/client-sqs 3.1169.0 (npm), against the SQS of moto 5.2.5
# Bet: a paginator is there to list all, so get_paginator("list_queues") does, and so does sqs.queues.all().
# Behaviour: SQS gives a NextToken only where the request has a MaxResults, and no paginator sends one unless a page size
#   is asked for. The first page has 1,000 queues and no token, and the paginator ends, as at the end of the list.
# Cost: an account with a queue for each customer passes the thousand without a sign: what subscribes to, watches, drains
#   or pays for "all queues" leaves the others out, and no call has failed. Ask for pages of 1,000.
# Seen: boto3, paginator: 1000 of 1003
#       boto3, paginator with PageSize 1000: 1003 of 1003
#       boto3, sqs.queues.all(): 1000 of 1003
#       boto3, sqs.queues.page_size(1000): 1003 of 1003
#       JavaScript, paginateListQueues: 1000 of 1003
#       JavaScript, paginateListQueues with pageSize 1000: 1003 of 1003
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check boto3==1.44.8 botocore==1.44.8 'moto[server,sqs]==5.2.5'
cd "$place"
npm install --silent --no-audit --no-fund @aws-sdk/client-sqs@3.1169.0 >/dev/null 2>&1
cat > list.mjs <<'JS'
import { paginateListQueues, SQSClient } from "@aws-sdk/client-sqs";

const credentials = { accessKeyId: "a", secretAccessKey: "b" };
const client = new SQSClient({ region: "us-east-1", endpoint: process.argv[2], credentials });
const counts = [];
for (const more of [{}, { pageSize: 1000 }]) {
  let count = 0;
  for await (const page of paginateListQueues({ client, ...more }, {})) count += page.QueueUrls?.length ?? 0;
  counts.push(count);
}
console.log(JSON.stringify(counts));
JS
cat > run.py <<'PY'
import json
import subprocess
import sys

import boto3
from moto.server import ThreadedMotoServer

QUEUES = 1003

server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
url = "http://{}:{}".format(*server.get_host_and_port())
keys = {"region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "b", "endpoint_url": url}
client, resource = boto3.client("sqs", **keys), boto3.resource("sqs", **keys)
for number in range(QUEUES):
    client.create_queue(QueueName=f"customer-{number}.fifo", Attributes={"FifoQueue": "true"})


def paged(**more):
    return sum(len(page.get("QueueUrls", ())) for page in client.get_paginator("list_queues").paginate(**more))


javascript = json.loads(subprocess.run(["node", "list.mjs", url], stdout=subprocess.PIPE, check=True).stdout)
seen = {
    "boto3, paginator": paged(),
    "boto3, paginator with PageSize 1000": paged(PaginationConfig={"PageSize": 1000}),
    "boto3, sqs.queues.all()": len(list(resource.queues.all())),
    "boto3, sqs.queues.page_size(1000)": len(list(resource.queues.page_size(1000))),
    "JavaScript, paginateListQueues": javascript[0],
    "JavaScript, paginateListQueues with pageSize 1000": javascript[1],
}
server.stop()
for way, count in seen.items():
    print(f"{way}: {count} of {QUEUES}")
sys.exit(list(seen.values()) != [1000, QUEUES] * 3)
PY
unset HTTP_PROXY http_proxy ALL_PROXY all_proxy
"$place/venv/bin/python" run.py 2>log || { tail -5 log >&2; exit 1; }
