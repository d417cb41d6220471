"""The paths below `/_local/`, by which a test in another process, or language, looks into the server and steers it."""

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
    "try GET /_local/messages, GET /_local/messages?queue=NAME, GET /_local/messages/MESSAGE-ID, "
    "GET /_local/requests, GET or POST /_local/clock, GET or POST /_local/faults"
)


@dataclass(frozen=True, slots=True)
class Control:
    """The answers to those paths. Lives on the server's event loop.

    `now` is the queue's time. `advance` sets its clock ahead by seconds; it raises ValueError for a bad number.
    """

    requests: RequestLog
    inspector: Inspector
    faults: Callable[[], Faults]
    set_faults: Callable[[Faults], None]
    now: Callable[[], float]
    advance: Callable[[float], None]

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
                self.advance(_seconds(_map(body)))
                return 200, {"now": self.now()}
        except SqsError as error:
            return error.status, {"error": error.message}
        except ValueError as error:
            return 400, {"error": str(error)}
        return 404, {"error": _HELP}

    def _get(self, path: str, query: Mapping[str, str]) -> tuple[int, Any]:
        shown: dict[str, Callable[[], Any]] = {
            f"{PREFIX}requests": self.requests.counts,
            f"{PREFIX}clock": lambda: {"now": self.now()},
            f"{PREFIX}faults": lambda: self.faults().described(),
            f"{PREFIX}messages": lambda: self.inspector.messages(_queue(query)),
        }
        if path in shown:
            return 200, shown[path]()
        if path.startswith(_MESSAGE):
            message_id = path.removeprefix(_MESSAGE)
            history = self.inspector.history(message_id)
            return (200, history) if history else (404, {"error": f"nothing is known of a message '{message_id}'"})
        return 404, {"error": _HELP}


def _map(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise ValueError(f"the request's body is {body[:80].decode(errors='replace')!r}; it must be JSON") from None
    if not isinstance(given, dict):
        raise ValueError(f"the request's body must be a JSON map, not a {type(given).__name__}")
    return given


def _queue(query: Mapping[str, str]) -> str | None:
    if len(query) > 1 or not {"queue", "queueUrl"}.issuperset(query):
        raise ValueError(
            f"messages are asked for with queue=NAME or queueUrl=URL, or, of all queues, with neither; "
            f"given are {list(query)}"
        )
    return next(iter(query.values()), None)


def _seconds(given: Mapping[str, Any]) -> float:
    if len(given) != 1 or not {"advanceSeconds", "seconds"}.issuperset(given):
        raise ValueError(f'the clock is advanced with {{"advanceSeconds": 31}}; the fields given are {sorted(given)}')
    seconds: float = next(iter(given.values()))
    return seconds
