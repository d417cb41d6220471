"""The answers to HTTP requests, as SQS gives them, with the failures that were asked for."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

from aiohttp import web

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.local import errors, guard, names, query
from sqs_fifo_spark.local.control import PREFIX, Control
from sqs_fifo_spark.local.errors import SqsError
from sqs_fifo_spark.local.faults import Decision, Injector
from sqs_fifo_spark.local.model import ACCOUNT, FifoModel
from sqs_fifo_spark.local.page import Page
from sqs_fifo_spark.local.policy import Policies
from sqs_fifo_spark.local.requests import RequestLog, RequestRecord
from sqs_fifo_spark.local.waiting import Waiter, WaitingRoom

_CONTENT_TYPE = "application/x-amz-json-1.0"
_TARGET_PREFIX = "AmazonSQS."
# SO_LINGER with a linger time of 0: closing sends a reset instead of an orderly end.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Endpoint:
    """Handles the requests of one server, all of them on its event loop.

    `injector` and `policies` are replaced as a whole, never changed in place, so that any thread may set new ones.
    """

    model: FifoModel
    room: WaitingRoom
    control: Control
    page: Page
    requests: RequestLog
    clock: Clock
    host: str
    injector: Injector
    policies: Policies
    failure: BaseException | None = None
    """The last defect of the server itself that made a request fail."""
    _request_number: int = 0

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        # Errors here are the client's or the connection's doing, and aiohttp deals with them.
        body = await http.read()
        try:
            is_browser, is_own = _is_browser(http), http.path.startswith(PREFIX)
            if is_browser or is_own or "Origin" in http.headers:
                refusal = guard.refusal(http.headers, self.host)
                if refusal is not None:
                    return web.json_response({"error": refusal}, status=403)
            if is_browser:
                status, headers, text = self.page.answer(http.method, http.query, body)
                return web.Response(status=status, headers=headers, body=text.encode(errors="replace"))
            if is_own:
                status, content = self.control.answer(http.method, http.path, http.query, body)
                return web.json_response(content, status=status)
            return await self._sqs(http, body)
        except Exception as error:
            self.failure = error
            return self._refusal(http, errors.internal_failure())

    async def _sqs(self, http: web.BaseRequest, body: bytes) -> web.StreamResponse:
        target = http.headers.get("X-Amz-Target", "")
        action = target.removeprefix(_TARGET_PREFIX)
        try:
            if _is_query(http):
                action, request = query.read(body, http.path)
            else:
                request = _read_json(target, body)
        except SqsError as error:
            self._record(action, 1, error.query_code)
            return self._refusal(http, error)
        return await self._act(http, action, request)

    async def _act(self, http: web.BaseRequest, action: str, request: dict[str, Any]) -> web.StreamResponse:
        name = names.of_request(request)
        resource = name if name == "*" else f"arn:aws:sqs:{self.model.region}:{ACCOUNT}:{name}"
        # As a Signature Version 4 header names it.
        access_key = http.headers.get("Authorization", "").partition("Credential=")[2].partition("/")[0]
        verdict = self.injector.decide(action, resource, access_key)
        batch = request.get("Entries")
        entries = len(batch) if isinstance(batch, list) else 1
        try:
            if verdict.delay_s:
                await asyncio.sleep(verdict.delay_s)
            if verdict.reset:
                self._record(action, entries, "reset")
                return self._hang_up(http, reset=True)
            if verdict.error is not None:
                raise verdict.error
            self.policies.require(access_key, action, resource)
            if self.model.has_quota(name) and not self.injector.admits(action, name, self.clock.monotonic()):
                raise errors.throttled()
            if action == "ReceiveMessage":
                response = await self._receive(http, request, verdict)
                entries = len(response.get("Messages", ()))
            else:
                host = http.headers.get("Host")
                response = self.model.call(
                    action,
                    request,
                    base_url=f"http://{host}" if host else None,
                    failing_entries=verdict.failing_entries,
                )
                self.room.serve()
        except SqsError as error:
            self._record(action, entries, error.query_code)
            return self._refusal(http, error)
        except asyncio.CancelledError:
            self._record(action, entries, "gone")
            raise
        if verdict.drop_answer:
            self._record(action, entries, "dropped")
            return self._hang_up(http, reset=False)
        self._record(action, entries, "ok")
        return self._respond(http, action, response)

    async def _receive(self, http: web.BaseRequest, request: dict[str, Any], verdict: Decision) -> dict[str, Any]:
        def receive() -> dict[str, Any]:
            return self.model.call("ReceiveMessage", request, receive_share=verdict.receive_share)

        # Waiting polls come first, also for messages that lapsed just now.
        self.room.serve()
        response = receive()
        # A receive can move messages to a dead-letter queue on which somebody waits.
        self.room.serve()
        wait_s = self.model.wait_s(request)
        if response or wait_s == 0 or verdict.receive_share < 1:
            return response
        return await self.room.wait(
            Waiter(
                queue_url=self.model.queue_url(self.model.queue_name(request)),
                receive=receive,
                is_gone=lambda: http.transport is None or http.transport.is_closing(),
                deadline=self.clock.now() + wait_s,
                attempt_id=request.get("ReceiveRequestAttemptId"),
            )
        )

    def _respond(self, http: web.BaseRequest, action: str, content: dict[str, Any]) -> web.Response:
        request_id, headers = self._headers()
        if _is_query(http):
            return _response(200, headers, query.answer(action, request_id, content), "text/xml")
        return _response(200, headers, json.dumps(content, separators=(",", ":")))

    def _refusal(self, http: web.BaseRequest, error: SqsError) -> web.Response:
        request_id, headers = self._headers()
        if _is_query(http):
            return _response(error.status, headers, query.refusal(request_id, error), "text/xml")
        fault = "Sender" if error.sender_fault else "Receiver"
        headers["x-amzn-query-error"] = f"{error.query_code};{fault}"
        content = {"__type": f"com.amazonaws.sqs#{error.shape}", "message": error.message}
        return _response(error.status, headers, json.dumps(content, separators=(",", ":")))

    def _headers(self) -> tuple[str, dict[str, str]]:
        """Return a new request id, and the headers of its answer."""
        self._request_number += 1
        request_id = f"00000000-0000-4000-8000-{self._request_number:012x}"
        # Of the same clock as the times of sending, which a client compares with it.
        return request_id, {"Date": formatdate(self.clock.now(), usegmt=True), "x-amzn-RequestId": request_id}

    def _hang_up(self, http: web.BaseRequest, *, reset: bool) -> web.Response:
        transport = http.transport
        if transport is not None:
            if reset:
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            transport.abort()
        # Goes nowhere: the connection is closed.
        return web.Response()

    def _record(self, action: str, entries: int, outcome: str) -> None:
        self.requests.add(RequestRecord(self.clock.now(), action, entries, outcome))


def _is_query(http: web.BaseRequest) -> bool:
    return http.content_type == query.CONTENT_TYPE and "X-Amz-Target" not in http.headers


def _read_json(target: str, body: bytes) -> dict[str, Any]:
    """Return a request in AWS JSON 1.0. Raises SerializationException."""
    if not target.startswith(_TARGET_PREFIX):
        raise errors.malformed_request(query.HINT)
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise errors.malformed_request("The request's body is not JSON.") from error
    if not isinstance(request, dict):
        raise errors.malformed_request("The request's body must be a JSON map.")
    return request


def _response(status: int, headers: dict[str, str], text: str, content_type: str = _CONTENT_TYPE) -> web.Response:
    return web.Response(status=status, body=text.encode(), headers=headers, content_type=content_type)


def _is_browser(http: web.BaseRequest) -> bool:
    """Return whether a person asks for the page, or sends one of its forms: old SDKs post forms, too, but no origin."""
    if http.path != "/":
        return False
    if http.method == "POST":
        return "Origin" in http.headers and http.content_type == "application/x-www-form-urlencoded"
    return http.method == "GET" and "text/html" in http.headers.get("Accept", "")
