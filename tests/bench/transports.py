"""`python -m tests.bench.transports`: what receiving and deleting ten messages costs with each transport.

One process, one thread, one call after the other, to a local queue in a process of its own. The ways take turns, so
that a busy machine slows all of them alike; CPU seconds are this process's own.

    boto3     all calls by boto3, as with SQSFIFO_TRANSPORT=boto3
    lean      the calls as this package makes them
    send      boto3's connections and plain signer, its call path left out
    bare      http.client by itself, unsigned: what no client of Python's goes below
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest

from sqs_fifo_spark.aws import client as aws
from sqs_fifo_spark.aws.lean import TRANSPORT_VARIABLE
from sqs_fifo_spark.options import AWS_CHAIN
from sqs_fifo_spark.source.message import SYSTEM_ATTRIBUTES

Call = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
_ACTIONS = {"receive_message": "ReceiveMessage", "delete_message_batch": "DeleteMessageBatch"}
_numbers = itertools.count(1)


def _client(url: str, transport: str) -> Any:
    os.environ[TRANSPORT_VARIABLE] = transport
    return aws.sqs_client(aws.ClientConfig("us-east-1", url, replace(AWS_CHAIN, role_session_name=transport)))


def _boto3(url: str) -> Call:
    client = _client(url, "boto3")
    return lambda operation, request: getattr(client, operation)(**request)


def _lean(url: str) -> Call:
    client = _client(url, "lean")
    return lambda operation, request: getattr(client, operation)(**request)


def _headers(operation: str) -> dict[str, str]:
    return {"X-Amz-Target": f"AmazonSQS.{_ACTIONS[operation]}", "Content-Type": "application/x-amz-json-1.0"}


def _send(url: str) -> Call:
    client = _client(url, "boto3")
    credentials = client._request_signer._credentials

    def call(operation: str, request: Mapping[str, Any]) -> Any:
        asked = AWSRequest("POST", f"{url}/", headers=_headers(operation), data=json.dumps(request).encode())
        SigV4Auth(credentials.get_frozen_credentials(), "sqs", "us-east-1").add_auth(asked)
        return json.loads(client._endpoint.http_session.send(asked.prepare()).content)

    return call


def _bare(url: str) -> Call:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)

    def call(operation: str, request: Mapping[str, Any]) -> Any:
        connection.request("POST", "/", json.dumps(request), _headers(operation))
        return json.loads(connection.getresponse().read())

    return call


_WAYS = {"boto3": _boto3, "lean": _lean, "send": _send, "bare": _bare}


def _fill(client: Any, queue_url: str, messages: int, body: str) -> None:
    for _ in range(0, messages, 10):
        entries = [
            {"Id": str(index), "MessageBody": body, "MessageGroupId": str(index), "MessageDeduplicationId": f"{number}"}
            for index, number in enumerate(itertools.islice(_numbers, 10))
        ]
        assert len(client.send_message_batch(QueueUrl=queue_url, Entries=entries)["Successful"]) == 10


def _drain(call: Call, queue_url: str, messages: int) -> None:
    left = messages
    while left:
        request = {
            "QueueUrl": queue_url,
            "MaxNumberOfMessages": 10,
            "WaitTimeSeconds": 0,
            "VisibilityTimeout": 120,
            "ReceiveRequestAttemptId": f"attempt-{next(_numbers)}",
            "MessageSystemAttributeNames": SYSTEM_ATTRIBUTES,
            "MessageAttributeNames": ["All"],
        }
        received = call("receive_message", request)["Messages"]
        entries = [{"Id": str(index), "ReceiptHandle": m["ReceiptHandle"]} for index, m in enumerate(received)]
        left -= len(call("delete_message_batch", {"QueueUrl": queue_url, "Entries": entries})["Successful"])


def _measure(url: str, args: argparse.Namespace) -> None:
    names = args.ways.split(",")
    ways = {name: _WAYS[name](url) for name in names}
    client = _client(url, "boto3")
    queue_url = client.create_queue(QueueName="bench.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    cpu: dict[str, list[float]] = {name: [] for name in names}
    wall: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(args.rounds):
        for name, call in ways.items():
            _fill(client, queue_url, args.messages, "x" * args.bytes)
            begun, spent = time.perf_counter(), time.process_time()
            _drain(call, queue_url, args.messages)
            cpu[name].append((time.process_time() - spent) / args.messages * 1_000)
            wall[name].append(args.messages / (time.perf_counter() - begun))
    print(f"{args.messages:,} messages of {args.bytes} B, {args.rounds} rounds; medians")
    print(f"{'way':<8} {'messages/s':>11} {'CPU s/1000':>11} {'ratio':>6}")
    for name in names:
        ratio = statistics.median(first / own for first, own in zip(cpu[names[0]], cpu[name], strict=True))
        print(f"{name:<8} {statistics.median(wall[name]):>11.0f} {statistics.median(cpu[name]):>11.4f} {ratio:>6.2f}")


def main() -> int:
    """Print messages per second and CPU seconds for a thousand, each way, and return 0."""
    parser = argparse.ArgumentParser(description="measure what a message costs with each transport")
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--bytes", type=int, default=500, help="of a message's body")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", default=",".join(_WAYS))
    args = parser.parse_args()
    os.environ.update(AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any")  # the local queue takes all
    command = [sys.executable, "-m", "sqs_fifo_spark", "local-queue", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            _measure(server.stdout.readline().split()[-1], args)
        finally:
            server.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
