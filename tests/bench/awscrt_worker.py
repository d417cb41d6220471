"""A bare loop on AWS's C runtime, `awscrt`: its HTTP client and its signer, several connections in one process."""

from __future__ import annotations

import importlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

from tests.bench.boto3_worker import NAMES, RECEIVE
from tests.bench.worker import Work, serve

CONNECTIONS = 4


class Caller:
    """One connection; one call at a time."""

    def __init__(self, endpoint: str, runtime: Any, credentials: Any) -> None:
        # Not imported by name: it is in the extra `bench` only, and mypy runs without it.
        self._http = importlib.import_module("awscrt.http")
        self._auth = importlib.import_module("awscrt.auth")
        where = urlsplit(endpoint)
        self._host = where.netloc
        self._credentials = credentials
        connect = self._http.HttpClientConnection.new
        self._connection = connect(host_name=where.hostname, port=where.port, bootstrap=runtime).result()

    def call(self, action: str, content: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps(content).encode()
        headers = [
            ("Host", self._host),
            ("Content-Type", "application/x-amz-json-1.0"),
            ("X-Amz-Target", f"AmazonSQS.{action}"),
            ("Content-Length", str(len(body))),
        ]
        request = self._http.HttpRequest("POST", "/", self._http.HttpHeaders(headers), BytesIO(body))
        config = self._auth.AwsSigningConfig(
            algorithm=self._auth.AwsSigningAlgorithm.V4,
            signature_type=self._auth.AwsSignatureType.HTTP_REQUEST_HEADERS,
            credentials_provider=self._credentials,
            region="us-east-1",
            service="sqs",
        )
        signed = self._auth.aws_sign_request(request, config).result()
        chunks: list[bytes] = []
        stream = self._connection.request(signed, on_body=lambda http_stream, chunk, **_: chunks.append(bytes(chunk)))
        stream.activate()
        status = stream.completion_future.result()
        answer: dict[str, Any] = json.loads(b"".join(chunks))
        if status != 200 or answer.get("Failed"):
            raise RuntimeError(f"{action}: {status} {answer}")
        return answer


def prepare(job: dict[str, Any]) -> Work:
    """Connect; the work is to receive ten and delete ten on each connection until the queue is drained."""
    auth, io = importlib.import_module("awscrt.auth"), importlib.import_module("awscrt.io")
    loop = io.EventLoopGroup(1)
    runtime = io.ClientBootstrap(loop, io.DefaultHostResolver(loop))
    credentials = auth.AwsCredentialsProvider.new_static("any", "any")
    callers = [Caller(job["endpoint"], runtime, credentials) for _ in range(CONNECTIONS)]
    url = job["url"]
    # Guards counted.
    lock = threading.Lock()
    counted = {"count": 0, "finished": time.monotonic()}

    def drain(caller: Caller) -> None:
        while True:
            receive = {"QueueUrl": url, "WaitTimeSeconds": 1, **RECEIVE}
            messages = caller.call("ReceiveMessage", receive).get("Messages")
            if messages:
                entries = [{"Id": str(i), "ReceiptHandle": each["ReceiptHandle"]} for i, each in enumerate(messages)]
                caller.call("DeleteMessageBatch", {"QueueUrl": url, "Entries": entries})
                with lock:
                    counted["count"] += len(messages)
                    counted["finished"] = max(counted["finished"], time.monotonic())
                continue
            held = caller.call("GetQueueAttributes", {"QueueUrl": url, "AttributeNames": NAMES})["Attributes"]
            if not any(int(held[name]) for name in NAMES):
                return

    def work() -> dict[str, Any]:
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            list(threads.map(drain, callers))
        return counted

    return work


if __name__ == "__main__":
    serve(prepare)
