"""The sink's one call: each row of it is confirmed, or is tried again, or is named as the one that SQS refuses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from sqs_fifo_spark.errors import (
    AccessDeniedError,
    QueueNotFoundError,
    QueueRequestError,
    SqsFifoError,
    TransientQueueError,
)
from sqs_fifo_spark.sink.outcome import ConfirmedRow
from sqs_fifo_spark.sink.outgoing import OutgoingRow, RefusedRowError, RowForm
from sqs_fifo_spark.sink.sink_queue import SinkQueue, StoppedError, UnsentError
from tests.unit.sending import FORM, LOST, THROTTLED, Sqs, failure, patched, raising, refusal, rows

pytestmark = pytest.mark.law("sink-1")

BUDGET_S = 120.0
TEN = [f"{group}1" for group in "abcdefghij"]


Confirm = Callable[[list[ConfirmedRow], list[OutgoingRow]], None]


class Noted:
    """The confirmed bodies, and at each confirmation the number of calls so far."""

    def __init__(self, sqs: Sqs) -> None:
        self._sqs = sqs
        self.bodies: list[str] = []
        self.after_calls: list[int] = []

    def __call__(self, confirmed: list[ConfirmedRow], pending: list[OutgoingRow]) -> None:
        self.bodies += [each.row.entry["MessageBody"] for each in confirmed]
        self.after_calls.append(len(self._sqs.calls))


@pytest.fixture
def confirmed(sqs: Sqs) -> Noted:
    return Noted(sqs)


def send(
    sqs: Sqs,
    confirm: Confirm,
    *bodies: str,
    queue: SinkQueue | None = None,
    form: RowForm = FORM,
    within_s: float = BUDGET_S,
    stopped: threading.Event | None = None,
) -> None:
    """Send the rows in a task of their own, unless there is a `queue`."""
    queue, deadline = queue or SinkQueue(sqs.options(), sqs.clock), sqs.clock.monotonic() + within_s
    queue.send(rows(*bodies, form=form), confirm, stopped=stopped or threading.Event(), deadline=deadline)


def refused(call: Callable[[], object]) -> RefusedRowError:
    with pytest.raises(RefusedRowError) as told:
        call()
    assert "1" not in told.value.reason.replace("127.0.0.1", ""), "a body shows"
    return told.value


# What is sent


def test_entries_that_failed_are_tried_again_alone(sqs: Sqs, confirmed: Noted) -> None:
    """Sent rows are confirmed at once, before the next try, which holds only the others."""
    sqs.failing = lambda body: ("InternalError", False) if sqs.tries(body) < 3 and body in ("b1", "d1") else None
    send(sqs, confirmed, "a1", "b1", "c1", "d1")
    assert sqs.calls == [["a1", "b1", "c1", "d1"], ["b1", "d1"], ["b1", "d1"]]
    assert confirmed.bodies == ["a1", "c1", "b1", "d1"]
    assert confirmed.after_calls == [1, 3]
    assert sqs.duplicates == 0


@pytest.mark.parametrize(
    "error",
    [
        THROTTLED,
        refusal("RequestThrottled"),
        refusal("KmsThrottled"),
        refusal("OverLimit"),
        refusal("InternalFailure", 500),
        refusal("ServiceUnavailable", 503),
        refusal("", 502),
        refusal("", 408),
        refusal("429", 429),
        LOST,
    ],
    ids=str,
)
def test_a_call_that_fails_for_now_is_made_again(sqs: Sqs, confirmed: Noted, error: Exception) -> None:
    """With all its rows, after a pause, until it is answered."""
    sqs.before = raising(error, lambda bodies: len(sqs.calls) < 4)
    send(sqs, confirmed, "a1", "b1")
    assert sqs.calls == [["a1", "b1"]] * 4
    assert sqs.clock.pauses >= 3
    assert confirmed.bodies == sqs.bodies() == ["a1", "b1"]


@pytest.mark.parametrize("by_column", [True, False])
def test_a_lost_answer_doubles_nothing(monkeypatch: pytest.MonkeyPatch, by_column: bool) -> None:
    """The call is made again with the same ids, or the same bodies, and SQS recognises the rows."""
    sqs = patched(monkeypatch, ContentBasedDeduplication="true")
    confirmed = Noted(sqs)
    sqs.lose(2)
    send(sqs, confirmed, "a1", "b1", form=RowForm(None, by_column, 1_048_576))
    assert confirmed.bodies == sqs.bodies() == ["a1", "b1"]
    assert sqs.duplicates == 4


# What SQS refuses


def test_an_entry_by_the_senders_fault_is_named_at_once(sqs: Sqs, confirmed: Noted) -> None:
    """The rows that the same answer confirms are confirmed first; nothing is tried again."""
    faults = {"b1": ("InternalError", False), "c1": ("InvalidMessageContents", True)}
    sqs.failing = faults.get
    told = refused(lambda: send(sqs, confirmed, "a1", "b1", "c1", "d1"))
    reason = "it has characters that SQS does not take (InvalidMessageContents: no)"
    assert (told.row, told.reason) == (3, reason)
    assert sqs.calls == [["a1", "b1", "c1", "d1"]]
    assert confirmed.bodies == sqs.bodies() == ["a1", "d1"]


@pytest.mark.parametrize("culprit", range(10))
def test_a_call_that_sqs_refuses_as_a_whole_names_its_culprit(sqs: Sqs, confirmed: Noted, culprit: int) -> None:
    """Each row is tried by itself; those before it are sent, and it is found."""
    sqs.before = raising(refusal("InvalidParameterValue"), lambda bodies: TEN[culprit] in bodies)
    told = refused(lambda: send(sqs, confirmed, *TEN))
    assert told.row == culprit + 1
    assert "InvalidParameterValue" in told.reason
    assert confirmed.bodies == sqs.bodies() == TEN[:culprit]
    assert sqs.calls == [TEN, *([body] for body in TEN[: culprit + 1])]


def test_a_call_without_a_culprit_is_sent_row_by_row(sqs: Sqs, confirmed: Noted) -> None:
    """Rows that SQS refuses only together are still sent."""
    sqs.before = raising(refusal("AWS.SimpleQueueService.BatchRequestTooLong"), lambda bodies: len(bodies) > 1)
    send(sqs, confirmed, "a1", "b1", "c1")
    assert confirmed.bodies == sqs.bodies() == ["a1", "b1", "c1"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("AccessDenied", AccessDeniedError),
        ("KmsAccessDenied", AccessDeniedError),
        ("SignatureDoesNotMatch", AccessDeniedError),
        ("ExpiredToken", AccessDeniedError),
        ("KmsDisabled", AccessDeniedError),
        ("KMS.InvalidStateException", AccessDeniedError),
        ("InvalidSignatureException", AccessDeniedError),
        ("AWS.SimpleQueueService.NonExistentQueue", QueueNotFoundError),
        ("UnsupportedOperation", QueueRequestError),
    ],
)
def test_what_is_no_rows_fault_is_raised_as_what_it_is(
    sqs: Sqs, confirmed: Noted, code: str, kind: type[SqsFifoError]
) -> None:
    """Of a call and of an entry: whoever filtered such a row out would lose a good one. It is not tried again, but for
    credentials that may have been renewed.
    """
    sqs.failing = {"b1": (code, True)}.get
    failure(kind, send, sqs, confirmed, "a1", "b1")
    assert confirmed.bodies == ["a1"]
    assert len(sqs.calls) == 1
    sqs.before = raising(refusal(code))
    assert code in failure(kind, send, sqs, confirmed, "c1", "d1")
    assert len(sqs.calls) == (3 if code == "ExpiredToken" else 2)
    assert sqs.clock.pauses == 0


# How long


@pytest.mark.parametrize("way", ["throttled", "lost", "failed"])
def test_no_try_begins_after_the_budget(sqs: Sqs, confirmed: Noted, way: str) -> None:
    """The last failure is raised; what was sent in time is confirmed."""
    began, at = sqs.clock.monotonic(), []

    def look(bodies: list[str]) -> None:
        at.append(sqs.clock.monotonic())
        if way == "throttled" and len(at) > 1:
            raise THROTTLED
        if way == "lost" and len(at) > 1:
            raise LOST

    sqs.before = look
    sqs.failing = lambda body: ("InternalError", False) if body == "b1" else None
    said = failure(TransientQueueError, send, sqs, confirmed, "a1", "b1")
    assert sqs.url in said
    assert BUDGET_S - 10 < at[-1] - began <= BUDGET_S
    assert confirmed.bodies == ["a1"]
    assert len(sqs.calls) > 10


def test_a_budget_is_that_of_all_tries_together(sqs: Sqs, confirmed: Noted) -> None:
    """A call that is throttled, then refused, then tried row by row, does not begin to count anew."""
    began = sqs.clock.monotonic()

    def look(bodies: list[str]) -> None:
        if len(bodies) > 1 and sqs.clock.monotonic() - began > BUDGET_S / 2:
            raise refusal("InvalidParameterValue")
        raise THROTTLED

    sqs.before = look
    with pytest.raises(UnsentError) as told:
        send(sqs, confirmed, "a1", "b1")
    assert [row.entry["MessageBody"] for row in told.value.rows] == ["a1", "b1"]
    assert sqs.calls[-1] == ["a1"]
    assert sqs.clock.monotonic() - began <= BUDGET_S


def test_a_process_that_stood_still_makes_no_call_after_its_deadline(sqs: Sqs, confirmed: Noted) -> None:
    """Neither the first nor a later one: others may have sent the row since, and SQS may have forgotten it."""
    said = failure(TransientQueueError, send, sqs, confirmed, "a1", within_s=-0.001)
    assert said == f"send_message_batch on '{sqs.url}' was not made in time: this process stood still."
    assert sqs.calls == []

    def stand_still(bodies: list[str]) -> None:
        sqs.clock.on_sleep = lambda: sqs.clock.advance(BUDGET_S)
        raise LOST

    sqs.before = stand_still
    failure(TransientQueueError, send, sqs, confirmed, "a1")
    assert sqs.calls == [["a1"]]


# Throttled


@pytest.mark.parametrize("throttled", [THROTTLED, refusal("429", 429)], ids=["by SQS", "by a gateway"])
def test_when_one_call_is_throttled_the_others_of_its_task_wait_too(
    sqs: Sqs, confirmed: Noted, throttled: Exception
) -> None:
    """They would be throttled as well, and each one counts; the pause grows, and ends with a call that is answered."""
    queue = SinkQueue(sqs.options(), sqs.clock)

    def send_one(body: str, queue: SinkQueue = queue, within_s: float = BUDGET_S) -> float:
        began = sqs.clock.monotonic()
        with suppress(UnsentError):
            send(sqs, confirmed, body, queue=queue, within_s=within_s)
        return sqs.clock.monotonic() - began

    assert send_one("a1") == 0.0
    sqs.before = raising(throttled)
    send_one("b1", within_s=0)  # one try
    sqs.before = lambda bodies: None
    assert send_one("c1", SinkQueue(sqs.options(), sqs.clock)) == 0.0, "another task's calls go on"
    assert 0.1 <= send_one("c2") <= 0.15
    assert send_one("c3") == 0.0, "a clear queue is not delayed"

    sqs.before = raising(throttled)
    for _ in range(20):
        sqs.clock.advance(10)
        send_one("d1", within_s=0)
    sqs.before = lambda bodies: None
    assert 5.0 <= send_one("e1") <= 7.5


def test_an_entry_that_is_throttled_lets_the_others_wait_too(sqs: Sqs, confirmed: Noted) -> None:
    """It is one call too many, whichever way SQS says so; a lost answer or an entry that fails is none."""
    queue = SinkQueue(sqs.options(), sqs.clock)
    for code, waits in (("InternalError", False), ("ThrottlingException", True)):
        sqs.failing = {"a1": (code, False)}.get
        with pytest.raises(UnsentError if waits else TransientQueueError):
            send(sqs, confirmed, "a1", queue=queue, within_s=0)
        sqs.failing = lambda body: None
        began = sqs.clock.monotonic()
        send(sqs, confirmed, f"b{waits:d}", queue=queue)
        assert (sqs.clock.monotonic() > began) is waits


# Stopped


@pytest.mark.parametrize("way", ["throttled", "failed", "refused", "another was throttled"])
def test_a_stop_while_a_retry_pauses_ends_it(sqs: Sqs, confirmed: Noted, way: str) -> None:
    """At once. What was confirmed before stays confirmed; nothing is tried again, nor row by row."""
    queue, stopped, began = SinkQueue(sqs.options(), sqs.clock), threading.Event(), sqs.clock.monotonic()
    if way == "another was throttled":
        sqs.before = raising(THROTTLED)
        with pytest.raises(UnsentError):
            send(sqs, confirmed, "a1", "b1", queue=queue, within_s=0)
    sqs.failing = {"b1": ("InternalError", False)}.get if way == "failed" else sqs.failing

    def fail(bodies: list[str]) -> None:
        if way == "refused":
            stopped.set()
            raise refusal("InvalidParameterValue")
        if way == "throttled":
            raise THROTTLED

    sqs.before = fail
    sqs.clock.on_sleep = stopped.set
    with pytest.raises(StoppedError):
        send(sqs, confirmed, "a1", "b1", queue=queue, stopped=stopped)
    assert sqs.calls == [["a1", "b1"]]
    assert confirmed.bodies == (["a1"] if way == "failed" else [])
    assert sqs.clock.monotonic() == began


def test_a_refused_row_stops_the_task_before_its_neighbours_are_recorded(sqs: Sqs) -> None:
    """A record may take a while, and until then other groups would go on in a task that has failed."""
    sqs.refuse("b1")
    stopped, told = threading.Event(), []

    def confirm(confirmed: list[ConfirmedRow], pending: list[OutgoingRow]) -> None:
        told.append(([each.row.row for each in confirmed], stopped.is_set()))

    with pytest.raises(RefusedRowError):
        send(sqs, confirm, "a1", "b1", stopped=stopped)
    assert told == [([1], True)]
