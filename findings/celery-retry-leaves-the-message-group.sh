#!/usr/bin/env bash
# celery 5.7.0, with kombu 5.7.0; the queue is that of moto 5.2.5
# Bet: a task that was sent with a MessageGroupId is sent with the same one when it is retried: a retry keeps the task's id,
#   its queue, its headers and its priority.
# Behaviour: it keeps none of the properties of SQS. The retry goes to the group "default", with a deduplication id made for
#   it, whatever group the task came from, and whether self.retry or autoretry_for asked for it. Nothing is logged.
# Cost: the queue no longer keeps the tasks of an account apart: one worker retries a payment while another runs the next
#   one, which is what the group was for. The retries of all groups stand in one line. Pass MessageGroupId to self.retry:
#   the retry then is in its group again, although behind what the group has by then.
# Seen: sent by the caller: account-7, id p1
#       self.retry: default, id made anew
#       autoretry_for: default, id made anew
#       self.retry(MessageGroupId=...): account-7, id made anew
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check celery==5.7.0 kombu==5.7.0 boto3==1.44.8 pycurl==7.49.0 \
  "moto[sqs,server]==5.2.5"
cat > "$place/run.py" <<'PY'
import logging
import sys
import threading

import boto3
from botocore.client import BaseClient
from celery import Celery
from celery.contrib.testing.worker import start_worker
from moto.server import ThreadedMotoServer

GROUP = "account-7"
sent, runs, done = {}, [], threading.Event()
call = BaseClient._make_api_call


class Refusal(Exception):
    """The bank's answer to the first try."""


def recorded(client, operation, parameters):
    """Notes the group and the id of what is sent: for each way to retry, the first send and that of the retry."""
    if operation == "SendMessage":
        way = parameters["MessageAttributes"]["way"]["StringValue"] if "MessageAttributes" in parameters else runs[-1]
        sent.setdefault(way, []).append((parameters["MessageGroupId"], parameters["MessageDeduplicationId"]))
    return call(client, operation, parameters)


BaseClient._make_api_call = recorded
logging.getLogger("werkzeug").disabled = True
moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
moto.start()
host, port = moto.get_host_and_port()
keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
sqs = boto3.client("sqs", region_name="us-east-1", endpoint_url=f"http://{host}:{port}", **keys)
url = sqs.create_queue(QueueName="payments.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]

app = Celery("payments", broker=f"sqs://a:b@{host}:{port}")
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


def begin(task, way):
    """True in the run that is to fail, which is the first."""
    runs.append(way)
    if len(runs) == 6:
        done.set()
    return task.request.retries == 0


@app.task(bind=True)
def retried(self):
    if begin(self, "self.retry"):
        raise self.retry(countdown=0)


@app.task(bind=True, autoretry_for=(Refusal,), default_retry_delay=0)
def retried_for(self):
    if begin(self, "autoretry_for"):
        raise Refusal


@app.task(bind=True)
def retried_in_group(self):
    if begin(self, "self.retry(MessageGroupId=...)"):
        raise self.retry(countdown=0, MessageGroupId=self.request.properties["MessageGroupId"])


ways = {"self.retry": retried, "autoretry_for": retried_for, "self.retry(MessageGroupId=...)": retried_in_group}
for number, (way, task) in enumerate(ways.items(), 1):
    attributes = {"way": {"DataType": "String", "StringValue": way}}
    task.apply_async(message_attributes=attributes, MessageGroupId=GROUP, MessageDeduplicationId=f"p{number}")
with start_worker(app, perform_ping_check=False, pool="solo", loglevel="ERROR"):
    done.wait(120)
moto.stop()


def say(group, name):
    return f"{group}, id {name if name.startswith('p') else 'made anew'}"


seen = {"sent by the caller": say(*sent["self.retry"][0])}
seen |= {way: say(*sends[1]) for way, sends in sent.items()}
for way, end in seen.items():
    print(f"{way}: {end}")
lost = "default, id made anew"
sys.exit(list(seen.values()) != [f"{GROUP}, id p1", lost, lost, f"{GROUP}, id made anew"])
PY
env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy "$place/venv/bin/python" "$place/run.py" 2>"$place/log" || {
  cat "$place/log" >&2
  exit 1
}
