"""The paths below `/_local/`: how a test in another process, or language, looks into the server and steers it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqs_fifo_spark.local.errors import SqsError
from sqs_fifo_spark.local.faults import Faults
from sqs_fifo_spark.local.inspection import Inspector
from sqs_fifo_spark.local.requests import RequestLog

PREFIX = "/_local/"
_MESSAGE = f"{PREFIX}messages/"
_HELP = (
    "try GET /_local/requests, GET /_local/messages?queue=NAME, GET /_local/messages/MESSAGE-ID, "
    "POST /_local/faults or POST /_local/clock"
)


@dataclass(frozen=True, slots=True)
class Control:
    """What the paths lead to. Lives on the server's event loop.

    `advance` sets the queue's clock ahead by seconds and returns its time; it raises ValueError for what is no time.
    """

    requests: RequestLog
    inspector: Inspector
    faults: Callable[[], Faults]
    set_faults: Callable[[Faults], None]
    advance: Callable[[float], float]

    def answer(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        """The HTTP status and the content, for JSON, of a request to a path below `/_local/`."""
        try:
            if method == "GET":
                return self._get(path, query)
            if method == "POST" and path == f"{PREFIX}faults":
                changed = self.faults().changed(_map(body))
                self.set_faults(changed)
                return 200, changed.described()
            if method == "POST" and path == f"{PREFIX}clock":
                return 200, {"now": self.advance(_seconds(_map(body)))}
        except SqsError as error:
            return error.status, {"error": error.message}
        except (ValueError, RecursionError) as error:
            return 400, {"error": str(error)}
        return 404, {"error": _HELP}

    def _get(self, path: str, query: Mapping[str, str]) -> tuple[int, Any]:
        if path == f"{PREFIX}requests":
            return 200, self.requests.counts()
        if path == f"{PREFIX}messages":
            if "queue" not in query:
                raise ValueError("which queue? GET /_local/messages?queue=NAME, such as bids.fifo")
            return 200, self.inspector.messages(query["queue"])
        if path.startswith(_MESSAGE):
            message_id = path.removeprefix(_MESSAGE)
            history = self.inspector.history(message_id)
            return (200, history) if history else (404, {"error": f"nothing is known of a message '{message_id}'"})
        return 404, {"error": _HELP}


def _map(body: bytes) -> dict[str, Any]:
    given = json.loads(body or b"{}")
    if not isinstance(given, dict):
        raise ValueError(f"the request's body must be a JSON map, not a {type(given).__name__}")
    return given


def _seconds(given: Mapping[str, Any]) -> float:
    if set(given) != {"advanceSeconds"}:
        raise ValueError(f'the clock is advanced with {{"advanceSeconds": 31}}; the fields given are {sorted(given)}')
    seconds: float = given["advanceSeconds"]
    return seconds
