"""The page at `/`, on which a person sees the queues, and sends, sets the clock ahead, and lets calls fail."""

from __future__ import annotations

import math
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode

from sqs_fifo_spark.local import names, page_html
from sqs_fifo_spark.local.control import Control
from sqs_fifo_spark.local.errors import SqsError
from sqs_fifo_spark.local.faults import Injector
from sqs_fifo_spark.local.fifo import Glance
from sqs_fifo_spark.local.message_store import StoredMessage
from sqs_fifo_spark.local.model import ACTIONS, FifoModel
from sqs_fifo_spark.local.page_html import Html, moment, shortened, table
from sqs_fifo_spark.local.planned import KINDS, PlannedFault

# Messages of the queue, from the oldest, that the page looks at, so that no call waits for it long.
_WALKED = 5_000
_REFRESH_S = 2


@dataclass(frozen=True, slots=True)
class Page:
    """The page's answers. Lives on the server's event loop; to show it changes nothing in the model.

    `serve` gives messages that came to the long polls that wait for them.
    """

    model: FifoModel
    control: Control
    injector: Callable[[], Injector]
    serve: Callable[[], None]

    def answer(self, method: str, query: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], str]:
        """Status, headers and text for a GET, or for a POST of a form: the way back to the page, or what is wrong."""
        if method == "GET":
            return 200, page_html.HEADERS, self._page(query)
        form = defaultdict(str, parse_qsl(body.decode("ascii", errors="replace")))
        try:
            return 303, {"Location": f"/?{urlencode(self._do(form))}"}, ""
        except (SqsError, ValueError) as error:
            return 400, page_html.HEADERS, self._page(form, str(error))

    def _do(self, form: Mapping[str, str]) -> dict[str, str]:
        """Do what the form asks, and return the query of the page that shows it."""
        queue, do = form["queue"], form["do"]
        if do == "send":
            return {"queue": queue, "message": self._send(form)}
        if do == "advance":
            self.control.advance(float(form["seconds"]))
        elif do == "fail":
            fault = PlannedFault(form["fault"], form["action"], 1, int(form["times"]), form["of"] or None)
            self.injector().plan(fault)
        else:
            raise ValueError(f"the form asks for {do[:80]!r}; it must be send, advance or fail")
        return {"queue": queue}

    def _send(self, form: Mapping[str, str]) -> str:
        """Send the form's message, whatever the faults, and return its id."""
        settings = self.model.glance(form["queue"], 0).settings
        # Browsers end lines with CRLF.
        request = {"QueueUrl": form["queue"], "MessageBody": form["body"].replace("\r\n", "\n")}
        given = {"MessageGroupId": form["group"], "MessageDeduplicationId": form["dedup_id"]}
        if settings.is_fifo and not settings.content_based_deduplication:
            given["MessageDeduplicationId"] = form["dedup_id"] or str(uuid.uuid4())
        message_id = self.model.call("SendMessage", request | {name: value for name, value in given.items() if value})
        self.serve()
        return str(message_id["MessageId"])

    def _page(self, query: Mapping[str, str], problem: str = "") -> str:
        now, queues = self.control.now(), self.model.queue_names
        asked = {name: query.get(name, "") for name in ("queue", "message", "watch")}
        name = asked["queue"] = names.of_queue(asked["queue"]) or next(iter(queues), "")
        is_watched = bool(asked["watch"])
        links = [
            page_html.link("refresh", **asked),
            page_html.link("stop watching" if is_watched else "watch", **asked | {"watch": "" if is_watched else "1"}),
        ]
        if name not in queues:
            problem = problem or f"There is no queue '{name}'. Make one: --queue NAME.fifo, or CreateQueue."
        parts = [page_html.problem(problem)] if problem else []
        parts.append(self._queues(queues))
        if name in queues:
            glance = self.model.glance(name, _WALKED)
            if not is_watched:
                # While the page asks for itself again and again, half a text would be lost.
                group = "group-1" if glance.settings.is_fifo else ""
                actions = ["ReceiveMessage", *sorted(ACTIONS.keys() - {"ReceiveMessage"})]
                parts.append(page_html.forms(name, group, KINDS, actions))
            parts += [*self._pending(), *self._message(asked["message"], glance, now), *_queue(name, glance, now)]
        title = f"{name} - local SQS FIFO queue"
        return page_html.document(title, now, parts, links=links, refresh_s=_REFRESH_S if is_watched else 0)

    def _queues(self, queues: list[str]) -> Html:
        columns: dict[str, Callable[[tuple[str, Glance]], object]] = {
            "queue": lambda each: page_html.link(each[0], queue=each[0]),
            "depth": lambda each: each[1].depth,
            "waiting": lambda each: each[1].depth - each[1].in_flight - each[1].delayed,
            "in flight": lambda each: each[1].in_flight,
            "delayed": lambda each: each[1].delayed,
        }
        return table("Queues", columns, [(name, self.model.glance(name, 0)) for name in queues])

    def _pending(self) -> Iterator[Html]:
        columns: dict[str, Callable[[PlannedFault], object]] = {
            "fault": lambda fault: fault.fault,
            "action": lambda fault: fault.action,
            "queue": lambda fault: fault.queue or "any",
            "from call": lambda fault: fault.number,
            "calls": lambda fault: fault.times,
        }
        if pending := self.injector().pending:
            yield table("Failures to come", columns, pending)

    def _message(self, message_id: str, glance: Glance, now: float) -> Iterator[Html]:
        columns: dict[str, Callable[[dict[str, Any]], object]] = {
            "at": lambda event: moment(event["at"], now),
            "event": lambda event: event["event"],
            "queue": lambda event: event["queue"],
            "receives": lambda event: event["receiveCount"],
            "shows again": lambda event: moment(event["visibleAt"], now),
        }
        if not message_id:
            return
        # The latest first.
        yield table(f"Message {message_id}", columns, self.control.inspector.noticed(message_id)[::-1])
        for message in glance.oldest:
            if message.message_id == message_id:
                yield page_html.text(shortened(message.draft.body, 2_000))


def _queue(name: str, glance: Glance, now: float) -> Iterator[Html]:
    """The queue's groups and messages, those that are hidden before the others."""
    hidden = {message: until for message in glance.oldest if (until := message.hidden_until or 0) > now}
    sizes = Counter(message.group for message in glance.oldest)
    firsts = {message.group: message for message in reversed(glance.oldest)}
    blockers = {message.group: message for message in reversed(glance.oldest) if message in hidden}
    link = partial(page_html.message_link, name)

    def held_by(first: StoredMessage) -> Html | str:
        if first not in hidden:
            return "nobody"
        return Html((f"receive {first.receive_count} of " if first.in_flight else "delay of ") + link(first.message_id))

    def state(message: StoredMessage) -> Html | str:
        if message in hidden:
            return "in flight" if message.in_flight else "delayed"
        blocker = blockers.get(message.group)
        if blocker is None or blocker.sequence > message.sequence:
            return "free"
        return Html("behind " + link(blocker.message_id))

    columns: dict[str, Callable[[StoredMessage], object]] = {
        "group": lambda first: first.draft.group_id,
        "messages": lambda first: sizes[first.group],
        "held by": held_by,
        "until": lambda message: moment(hidden.get(message), now),
    }
    where = f" (among the {_WALKED:,} oldest)" if glance.depth > _WALKED else ""
    if glance.settings.is_fifo:
        yield table(f"Groups of {name}{where}", columns, sorted(firsts.values(), key=lambda first: first.sequence))
    columns = {
        "message": lambda message: link(message.message_id),
        "group": lambda message: message.draft.group_id or "",
        "state": state,
        "until": lambda message: moment(hidden.get(message), now),
        "receives": lambda message: message.receive_count,
        "body": lambda message: shortened(message.draft.body, 60),
        "sent": lambda message: moment(message.sent_at, now),
        "deduplication id": lambda message: message.draft.deduplication_id or "",
    }
    messages = sorted(glance.oldest, key=lambda message: hidden.get(message, math.inf))
    yield table(f"Messages of {name}: in flight or delayed, then the others{where}", columns, messages)
