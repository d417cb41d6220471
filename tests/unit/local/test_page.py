"""The page at `/`: it shows the queues, changes nothing by it, does what its forms ask, and heeds no other page."""

from __future__ import annotations

import http.client
import logging
import re
from collections.abc import Mapping
from contextlib import closing
from html import unescape
from urllib.parse import urlencode, urlsplit

import pytest

from sqs_fifo_spark.local import Event, Faults, PlannedFault, guard, page, page_html
from tests.manual_clock import ManualClock
from tests.unit.local.caller import Caller

MARKUP = "<i>&amp;\"'"


class Browser:
    """Asks for the page as a browser does, from the page's own origin."""

    def __init__(self, caller: Caller) -> None:
        self.netloc = urlsplit(caller.server.endpoint_url).netloc
        self.location = ""

    def ask(self, path: str = "/", form: Mapping[str, object] | None = None, **headers: str) -> tuple[int, str]:
        """Status and text; a form is posted. `headers` stand in place of a browser's; empty ones are not sent."""
        given = {"Accept": "text/html,*/*;q=0.8"}
        if form is not None:
            given |= {"Origin": f"http://{self.netloc}", "Content-Type": "application/x-www-form-urlencoded"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in given.items() if value}
        with closing(http.client.HTTPConnection(self.netloc, timeout=10)) as connection:
            connection.request("GET" if form is None else "POST", path, urlencode(form or {}) or None, sent)
            response = connection.getresponse()
            self.location = response.headers.get("Location", "")
            return response.status, response.read().decode()

    def rows(self, path: str = "/") -> list[list[str]]:
        """The text of the page's tables, row by row, without heads."""
        rows = re.findall(r"<tr>(<td>.*?)</tr>", self.ask(path)[1])
        return [[unescape(re.sub("<.*?>", "", cell)) for cell in re.findall("<td>(.*?)</td>", row)] for row in rows]


@pytest.fixture
def browser(caller: Caller) -> Browser:
    return Browser(caller)


@pytest.fixture
def events(caller: Caller) -> list[Event]:
    """Events from now on."""
    found: list[Event] = []
    caller.server.run(lambda model: model.on_event(found.append))
    return found


def test_page_shows_queues_and_who_holds_their_groups(caller: Caller, browser: Browser) -> None:
    """The receive that holds a group, until when, and what stands behind it."""
    first, second, third = (caller.send("1", "a"), caller.send("2", "a"), caller.send("3", "b"))
    caller.receive(MaxNumberOfMessages=1, VisibilityTimeout=30)
    until = "22:13:50 (in 0:00:30)"
    sent = "22:13:20 (0:00:00 ago)"
    assert browser.rows() == [
        ["q.fifo", "3", "2", "1", "0"],
        ["other.fifo", "0", "0", "0", "0"],
        ["a", "2", f"receive 1 of {first[:8]}", until],
        ["b", "1", "nobody", ""],
        [first[:8], "a", "in flight", until, "1", "1", sent, "1"],
        [second[:8], "a", f"behind {first[:8]}", "", "0", "2", sent, "2"],
        [third[:8], "b", "free", "", "0", "3", sent, "3"],
    ]
    assert browser.rows("/?queue=other.fifo")[2:] == []


def test_page_shows_the_history_of_a_message_and_the_beginning_of_its_body(caller: Caller, browser: Browser) -> None:
    """The latest event first, also when the message is gone."""
    message_id = caller.send("x" * 5_000, MessageDeduplicationId="1")
    [message] = caller.receive(VisibilityTimeout=30)
    path = f"/?queue=q.fifo&message={message_id}"
    assert [row[1] for row in browser.rows(path)[2:4]] == ["received", "sent"]
    text = browser.ask(path)[1]
    assert (text.count("x" * 2_000), text.count("x" * 2_001)) == (1, 0)
    assert "x… (5,000 characters)" in text
    caller.call("DeleteMessage", ReceiptHandle=message["ReceiptHandle"])
    assert [row[1] for row in browser.rows(path)[2:]] == ["deleted", "received", "sent"]


def test_markup_of_users_is_text(caller: Caller, browser: Browser) -> None:
    """Bodies, ids, and what a link or a form brings along."""
    message_id = caller.send(MARKUP, MARKUP)
    wrong = browser.ask("/", {"queue": MARKUP, "do": MARKUP, "message": MARKUP})
    for status, text in (
        browser.ask(f"/?message={message_id}"),
        browser.ask(f"/?{urlencode({'queue': MARKUP})}"),
        wrong,
    ):
        assert status in (200, 400)
        assert "&lt;i&gt;&amp;amp;" in text
        assert "<i>" not in text


def test_looking_leaves_no_trace(caller: Caller, browser: Browser, clock: ManualClock, events: list[Event]) -> None:
    """The page shows lapses that time alone has brought, and yet no queue notices them: the next call does."""
    message_id = caller.send("1")
    caller.receive(VisibilityTimeout=10)
    counts = caller.server.requests.counts()
    clock.advance(10)
    for _ in range(2):
        assert [row[2] for row in browser.rows(f"/?message={message_id}") if row[0] == message_id[:8]] == ["free"]
    assert browser.rows()[0] == ["q.fifo", "1", "1", "0", "0"]
    clock.advance(345_600)
    assert browser.rows()[0] == ["q.fifo", "0", "0", "0", "0"]
    assert [event.kind for event in events] == ["sent", "received"]
    assert caller.server.requests.counts() == counts
    assert caller.kinds(message_id) == ["sent", "received", "lapsed", "expired"]


def test_long_tables_end_and_say_so(caller: Caller, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long queue makes neither a long page nor a long look."""
    monkeypatch.setattr(page_html, "_ROWS", 2)
    monkeypatch.setattr(page, "_WALKED", 3)
    caller.send_batch(*"abcd")
    text = browser.ask()[1]
    assert browser.rows()[0] == ["q.fifo", "4", "4", "0", "0"]
    assert "Messages of q.fifo: in flight or delayed, then the others (among the 3 oldest)" in text
    assert "<p>and 1 more</p>" in text


def test_page_that_watches_asks_again_and_has_no_form(browser: Browser) -> None:
    """A text that is half written is not lost."""
    texts = [browser.ask(path)[1] for path in ("/", "/?watch=1")]
    assert [("<form" in text, 'http-equiv="refresh"' in text) for text in texts] == [(True, False), (False, True)]


# The forms


def test_form_sends_a_message(caller: Caller, browser: Browser, caplog: pytest.LogCaptureFixture) -> None:
    """The page then shows its history. Without a deduplication id it has one of its own; no log has its body."""
    caplog.set_level(logging.DEBUG)
    form = {"do": "send", "queue": "q.fifo", "body": "one\r\ntwo ü", "group": "a", "dedup_id": ""}
    for _ in range(2):
        assert browser.ask("/", form) == (303, "")
    first, second = caller.server.messages("q.fifo")
    assert (first["body"], first["messageGroupId"]) == ("one\ntwo ü", "a")
    assert first["messageDeduplicationId"] != second["messageDeduplicationId"]
    assert browser.location == f"/?queue=q.fifo&message={second['messageId']}"
    assert "two" not in caplog.text


def test_form_sets_the_clock_ahead(caller: Caller, browser: Browser) -> None:
    """For all queues, as `advance` does."""
    message_id = caller.send("1")
    caller.receive(VisibilityTimeout=30)
    assert browser.ask("/", {"do": "advance", "queue": "q.fifo", "seconds": 30})[0] == 303
    assert caller.kinds(message_id) == ["sent", "received", "lapsed"]


def test_form_lets_the_next_calls_fail(caller: Caller, browser: Browser) -> None:
    """The page shows what is still to come. Faults that were planned before go on counting."""
    caller.server.faults = Faults(planned=(PlannedFault("server_error", "ReceiveMessage", 3),))
    assert caller.call("ReceiveMessage")[0] == 200
    form = {"do": "fail", "fault": "throttle", "action": "ReceiveMessage", "of": "q.fifo", "times": 1}
    assert browser.ask("/", form)[0] == 303
    assert [row[0] for row in browser.rows() if "ReceiveMessage" in row] == ["server_error", "throttle"]
    assert [caller.call("ReceiveMessage")[0] for _ in range(3)] == [400, 500, 200]
    assert "Failures to come" not in browser.ask()[1]


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ({"do": "send", "queue": "q.fifo", "group": "a"}, "MissingParameter"),
        ({"do": "send", "queue": "no.fifo", "body": "1"}, "The specified queue does not exist"),
        ({"do": "advance", "queue": "q.fifo", "seconds": "-1"}, "the clock cannot be advanced by -1.0"),
        ({"do": "advance", "queue": "q.fifo", "seconds": "1e10"}, "it takes 0 to 1000000000 seconds"),
        ({"do": "advance", "queue": "q.fifo", "seconds": "soon"}, "could not convert string to float: 'soon'"),
        ({"do": "fail", "fault": "throttle", "action": "Receive", "times": "1"}, "unknown action 'Receive'"),
        ({"queue": "q.fifo"}, "it must be send, advance or fail"),
    ],
)
def test_form_that_is_wrong_is_answered_with_the_page_and_a_line(
    browser: Browser, events: list[Event], form: dict[str, str], line: str
) -> None:
    """Nothing is done, and the server lives on."""
    status, text = browser.ask("/", form)
    assert (status, events) == (400, [])
    assert line in unescape(text)


# The guard

ADVANCE = {"do": "advance", "seconds": "1"}


@pytest.mark.parametrize(
    ("path", "form", "headers", "status"),
    [
        ("/", None, {"Host": "evil.example"}, 403),
        ("/_local/messages", None, {"Host": "evil.example:9324"}, 403),
        ("/_local/messages", None, {"Host": "local.evil.example."}, 403),
        ("/_local/messages", None, {"Host": "127.0.0.1.evil.example"}, 403),
        ("/_local/messages", None, {"Host": "[::1"}, 200),
        *[
            ("/_local/messages", None, {"Host": host}, 200)
            for host in (
                "localhost:9324",
                "127.0.0.1",
                "[::1]:9324",
                "sqs:9324",
                "host.docker.internal",
                "192.168.1.5:1",
            )
        ],
        ("/", ADVANCE, {}, 303),
        ("/", ADVANCE, {"Origin": "http://evil.example"}, 403),
        ("/", ADVANCE, {"Origin": "null"}, 403),
        # Another port is another origin.
        ("/", ADVANCE, {"Origin": "http://127.0.0.1:1"}, 403),
        ("/", ADVANCE, {"Origin": "http://evil.example", "Host": "evil.example"}, 403),
        # A form of the query protocol.
        ("/0/q.fifo", {"Action": "PurgeQueue"}, {"Origin": "http://evil.example"}, 403),
        ("/_local/faults", {}, {"Origin": "http://evil.example", "Content_Type": "text/plain"}, 403),
        ("/", {}, {"Origin": "http://evil.example", "X_Amz_Target": "AmazonSQS.ListQueues"}, 403),
        # No form of the page's: another type, and one without an origin, as old SDKs send them.
        ("/", ADVANCE, {"Content_Type": "text/plain"}, 400),
        ("/", ADVANCE, {"Origin": ""}, 400),
        ("/", None, {"Accept": "*/*"}, 400),
    ],
)
def test_pages_elsewhere_reach_nothing(
    browser: Browser, path: str, form: dict[str, str] | None, headers: dict[str, str], status: int
) -> None:
    """A browser's other pages neither read nor steer, by whatever name; programs get what they always got."""
    given, text = browser.ask(path, form, **headers)
    assert (given, "speaks AWS JSON 1.0" in text) == (status, status == 400)


def test_name_to_listen_on_is_its_own() -> None:
    """A queue that is started with `--host` and a name may be called by that name."""
    assert guard.refusal({"Host": "SQS.example:9324"}, "sqs.example") is None
    assert "start it with --host" in str(guard.refusal({"Host": "sqs.example:9324"}, "127.0.0.1"))
