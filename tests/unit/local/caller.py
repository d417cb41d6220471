"""A server's queue, called over bare HTTP: no retries hide anything."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from sqs_fifo_spark.local import LocalQueueServer


def exchange(
    endpoint_url: str, path: str, content: object = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    """Status and content of a GET, or of a POST with `content`, bytes or as JSON, on a connection of its own."""
    with closing(http.client.HTTPConnection(urlsplit(endpoint_url).netloc, timeout=10)) as connection:
        if content is None:
            connection.request("GET", path)
        else:
            body = content if isinstance(content, bytes) else json.dumps(content)
            connection.request("POST", path, body, dict(headers or {}))
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def call(endpoint_url: str, action: str, **request: Any) -> tuple[int, Any]:
    return exchange(endpoint_url, "/", request, {"X-Amz-Target": f"AmazonSQS.{action}"})


class Caller:
    """The queue `q.fifo` of a server."""

    def __init__(self, server: LocalQueueServer) -> None:
        self.server = server
        self.url = server.queue_url("q.fifo")

    def call(self, action: str, *, access_key: str = "any", **request: Any) -> tuple[int, Any]:
        headers = {
            "X-Amz-Target": f"AmazonSQS.{action}",
            "Content-Type": "application/x-amz-json-1.0",
            "Authorization": f"AWS4-HMAC-SHA256 Credential={access_key}/20250101/us-east-1/sqs/aws4_request",
        }
        return exchange(self.server.endpoint_url, "/", {"QueueUrl": self.url, **request}, headers)

    def local(self, path: str, content: object = None) -> tuple[int, Any]:
        """Get or post what is the local queue's own."""
        return exchange(self.server.endpoint_url, f"/_local/{path}", content)

    def send(self, body: str, group: str = "g", **request: Any) -> str:
        """Return the message's id."""
        given = {"MessageBody": body, "MessageGroupId": group, "MessageDeduplicationId": body, **request}
        return str(self.call("SendMessage", **given)[1]["MessageId"])

    def send_batch(self, *bodies: str) -> Any:
        entries = [
            {"Id": str(i), "MessageBody": body, "MessageGroupId": "g", "MessageDeduplicationId": body}
            for i, body in enumerate(bodies)
        ]
        return self.call("SendMessageBatch", Entries=entries)[1]

    def receive(self, **request: Any) -> list[dict[str, Any]]:
        answer = self.call("ReceiveMessage", **{"MaxNumberOfMessages": 10, **request})[1]
        found: list[dict[str, Any]] = answer.get("Messages", [])
        return found

    def bodies(self, **request: Any) -> list[str]:
        return [message["Body"] for message in self.receive(**request)]

    def held(self) -> list[str]:
        return [message["body"] for message in self.server.messages("q.fifo")]

    def kinds(self, message_id: str) -> list[str]:
        return [event["event"] for event in self.server.history(message_id)]
