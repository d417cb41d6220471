"""A sender that something fails for good, or that is stopped: no row is sent afterwards, and all is told."""

from __future__ import annotations

import threading

import pytest

from sqs_fifo_spark.errors import AccessDeniedError, JournalUnavailableError, TransientQueueError
from sqs_fifo_spark.local.fifo import DEDUPLICATION_S
from sqs_fifo_spark.sink.message import RefusedRowError
from sqs_fifo_spark.sink.window import SEND_BUDGET_S
from tests.helpers import wait_until
from tests.unit.sending import (
    LONG_S,
    LOST,
    THROTTLED,
    Answer,
    Noted,
    Panic,
    Sqs,
    dealt,
    finish,
    group_of,
    make,
    rows,
    threads,
    wait_for_threads,
)

pytestmark = pytest.mark.law("sink-1", "sink-4")


def test_a_refused_row_ends_it_with_nothing_of_its_group_after_it(sqs: Sqs, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the calls beside it send is confirmed and recorded before the error is raised, and nothing is sent then."""
    bodies = dealt(60, 20)
    refused, record = "aa3", Noted()
    sender = make(sqs, record)
    sqs.failing = lambda body: ("InvalidMessageContents", True) if body == refused else None

    is_waiting, is_raised = threading.Event(), threading.Event()
    real = sender.stop

    def stop() -> None:
        is_waiting.set()
        real()

    def hold(called: list[str], answer: Answer) -> None:
        if refused not in called and sqs.tries(refused):
            wait_until(lambda: is_waiting.is_set() or is_raised.is_set(), LONG_S, "the sender waits or has raised")

    sqs.after = hold
    monkeypatch.setattr(sender, "stop", stop)
    with pytest.raises(RefusedRowError) as told:
        finish(sender, *bodies)
    sent = sender.counts.sent
    is_raised.set()
    sender.stop()
    assert sender.counts.sent == sent
    assert told.value.row == 1 + bodies.index(refused)
    assert sqs.bodies(group_of(refused)) == ["aa1", "aa2"]
    assert sender.counts.sent == len(sqs.bodies())
    assert record.digests == {row.digest for row in rows(*sqs.bodies())}
    assert record.closed == 0
    assert threads() == []
    assert len(sqs.calls) < 120


def test_a_failure_ends_all_sending_while_its_caller_is_busy_elsewhere(sqs: Sqs) -> None:
    """The rows' own source may take its time: the error is told with the next rows, and nothing is sent until then."""
    is_added = threading.Event()

    def hold(called: list[str]) -> None:
        assert is_added.wait(LONG_S)

    sqs.before, sqs.failing = hold, {"a1": ("InvalidMessageContents", True)}.get
    sender = make(sqs)
    sender.add(rows("a1"))
    is_added.set()
    wait_for_threads()
    with pytest.raises(RefusedRowError):
        sender.add(rows("b1"))
    assert sqs.calls == [["a1"]]


@pytest.mark.parametrize("way", ["add", "look", "denied", "defect"])
def test_what_any_thread_meets_is_raised_by_add_and_finish(sqs: Sqs, way: str) -> None:
    """Nothing of the group follows, and no thread is left; `sent` is what SQS has confirmed."""
    record = Noted()
    error: Exception = JournalUnavailableError("cannot write")

    def fail(*_: object) -> None:
        if sqs.tries("a3" if way != "look" else "a2"):
            raise error

    if way == "denied":
        error = AccessDeniedError("no")
        sqs.before = fail
    elif way == "defect":
        error = ZeroDivisionError("ours")
        sqs.before = fail
    elif way == "add":
        record.on_add = fail
    else:
        record.on_look = fail
    sender = make(sqs, record)
    with pytest.raises(type(error)) as told:
        finish(sender, "a1", "a2", "a3", "a4", "a5")
    assert told.value is error
    assert sqs.bodies() == {"add": ["a1", "a2", "a3"]}.get(way, ["a1", "a2"])
    assert sender.counts.sent == len(sqs.bodies())
    assert threads() == []
    with pytest.raises(type(error)):
        sender.finish()
    assert record.closed == 0


@pytest.mark.parametrize("way", ["look", "send", "add"])
def test_whatever_ends_a_thread_reaches_the_caller(sqs: Sqs, way: str) -> None:
    """Also what is no Exception: a caller that waits for a thread that is gone would wait for ever."""
    record = Noted()

    def fail(*_: object) -> None:
        raise Panic

    if way == "look":
        record.on_look = fail
    elif way == "send":
        sqs.before = fail
    else:
        record.on_add = fail
    sender = make(sqs, record)
    ended: list[BaseException] = []

    def wait_for_the_end() -> None:
        try:
            finish(sender, "a1", "a2", "b1")
        except BaseException as error:
            ended.append(error)

    caller = threading.Thread(target=wait_for_the_end, daemon=True)
    caller.start()
    caller.join(LONG_S)
    assert [type(error) for error in ended] == [Panic], "the caller waits for ever"
    assert threads() == []
    assert record.closed == 0


def test_a_thread_that_cannot_start_is_told_as_that(sqs: Sqs, monkeypatch: pytest.MonkeyPatch) -> None:
    """And those that have started are ended."""
    starts: list[threading.Thread] = []
    start = threading.Thread.start

    def few(thread: threading.Thread) -> None:
        starts.append(thread)
        if len(starts) > 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", few)
    sender = make(sqs)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        sender.add(rows("a1"))
    sender.stop()
    assert threads() == []


def test_stop_waits_for_the_call_under_way_and_makes_no_other(sqs: Sqs) -> None:
    """What that call sends is recorded."""
    record = Noted()
    sender = make(sqs, record)
    calling = threading.Event()

    def hold(called: list[str]) -> None:
        calling.set()
        assert sender._crew.stopped.wait(LONG_S)

    sqs.before = hold
    sender.add(rows("a1", "a2"))
    assert calling.wait(LONG_S)
    sender.stop()
    assert sqs.calls == [["a1"]]
    assert record.digests == {row.digest for row in rows("a1")}
    assert (sender.counts.sent, record.closed, threads()) == (1, 0, [])


def test_what_is_confirmed_after_a_row_has_failed_is_recorded(sqs: Sqs) -> None:
    """Else the next attempt would send it again, however late."""
    record = Noted()
    sender = make(sqs, record)
    is_answering = threading.Event()

    def hold(called: list[str], answer: Answer) -> None:
        if "a1" in called:
            is_answering.set()
            wait_until(lambda: sender._crew.failure is not None, LONG_S, "the other row has failed")

    sqs.after = hold
    sqs.failing = lambda body: ("InvalidMessageContents", True) if body == "b1" else None
    sender.add(rows("a1"))
    assert is_answering.wait(LONG_S)
    with pytest.raises(RefusedRowError):
        finish(sender, "b1")
    assert sqs.bodies() == ["a1"]
    assert record.digests == {row.digest for row in rows("a1")}
    assert sender.counts.sent == 1


@pytest.mark.parametrize("error", [JournalUnavailableError, Panic])
@pytest.mark.parametrize("failures", [1, 3])
def test_a_task_that_waits_for_its_next_rows_goes_on_recording_what_it_sent(
    sqs: Sqs, failures: int, error: type[BaseException]
) -> None:
    """It cannot fail before they come, and another attempt may look at the record long before."""
    record, errors = Noted(), [error(f"put {number} failed") for number in range(failures)]
    first, is_added = errors[0], threading.Event()

    def fail(digests: list[bytes]) -> None:
        assert is_added.wait(LONG_S)
        if errors:
            raise errors.pop(0)

    record.on_add = fail
    sender = make(sqs, record)
    sender.add(rows("a1", "a2"))
    is_added.set()
    sqs.clock.turn_until(lambda: bool(record.digests))
    with pytest.raises(error) as told:
        sender.add(rows("b1"))
    assert told.value is first
    assert sqs.bodies() == ["a1"]
    assert record.digests == {row.digest for row in rows("a1")}
    assert threads() == []


@pytest.mark.parametrize("is_back", [False, True])
def test_what_could_not_be_recorded_is_tried_once_more_when_the_caller_stops(sqs: Sqs, is_back: bool) -> None:
    """At once: Spark may not yet see that the task fails, and nobody else knows what it has sent."""
    record, tries = Noted(), list[list[bytes]]()

    def fail(digests: list[bytes]) -> None:
        tries.append(digests)
        if not is_back or len(tries) == 1:
            raise JournalUnavailableError(f"the store is away for try {len(tries)}")

    record.on_add = fail
    sender = make(sqs, record)
    with pytest.raises(JournalUnavailableError, match="away for try 1"):
        finish(sender, "a1", "a2")
    assert len(tries) == 2
    assert sqs.bodies() == ["a1"]
    assert record.digests == ({row.digest for row in rows("a1")} if is_back else set())
    assert threads() == []


def test_no_more_rows_are_taken_once_a_row_is_refused(sqs: Sqs) -> None:
    """What was sent in the same call is being recorded still: whoever adds waits for that, and is told."""
    record, is_refused, may_end = Noted(), threading.Event(), threading.Event()

    def hold(digests: list[bytes]) -> None:
        is_refused.set()
        assert may_end.wait(LONG_S)

    record.on_add = hold
    sqs.failing = lambda body: ("InvalidMessageContents", True) if body == "b1" else None
    sender = make(sqs, record)
    ended: list[BaseException] = []

    def add() -> None:
        try:
            sender.add(rows("a1", "b1"))
            assert is_refused.wait(LONG_S)
            sender.add(rows("c1"))
        except RefusedRowError as error:
            ended.append(error)

    caller = threading.Thread(target=add, daemon=True)
    caller.start()
    assert is_refused.wait(LONG_S)
    may_end.set()
    caller.join(LONG_S)
    assert [type(error) for error in ended] == [RefusedRowError]
    assert "c1" not in sqs.bodies()
    assert threads() == []


def test_stop_while_a_retry_pauses_ends_the_retry(sqs: Sqs) -> None:
    """Nothing is tried again once somebody has failed elsewhere."""
    sender = make(sqs)
    pausing = threading.Event()

    def throttle(called: list[str]) -> None:
        raise THROTTLED

    def pause() -> None:
        pausing.set()
        assert sender._crew.stopped.wait(LONG_S)

    sqs.before, sqs.clock.on_sleep = throttle, pause
    sender.add(rows("a1"))
    assert pausing.wait(LONG_S)
    sender.stop()
    assert sqs.calls == [["a1"]]
    assert (sender.counts.sent, threads()) == (0, [])


def test_a_row_is_not_tried_long_after_the_look_at_the_record(sqs: Sqs) -> None:
    """Another attempt may have sent it since then; SQS must know it still."""
    assert SEND_BUDGET_S <= DEDUPLICATION_S - 60
    looked_at = sqs.clock.monotonic()
    sqs.clock.advance(SEND_BUDGET_S)
    sender = make(sqs, Noted(looked_at=looked_at))
    finish(sender, "a1")
    assert sqs.bodies() == ["a1"]

    sqs.clock.advance(0.001)
    sender = make(sqs, Noted(looked_at=looked_at))
    with pytest.raises(TransientQueueError, match="was not made in time"):
        finish(sender, "a2")
    assert (sqs.bodies(), threads()) == (["a1"], [])


def test_a_row_is_tried_until_then_and_not_longer(sqs: Sqs) -> None:
    """Pauses and all, counted from the look and not from the first try."""
    looked_at = sqs.clock.monotonic()
    sqs.clock.advance(SEND_BUDGET_S - 20)

    def lose(called: list[str], answer: Answer) -> None:
        raise LOST

    sqs.after = lose
    with pytest.raises(TransientQueueError):
        finish(make(sqs, Noted(looked_at=looked_at)), "a1", "a2")
    assert sqs.clock.monotonic() <= looked_at + SEND_BUDGET_S
    assert len(sqs.calls) > 4
    assert sqs.tries("a2") == 0
