"""A sender that something fails for good, or that is stopped: no row is sent afterwards, and all is told."""

from __future__ import annotations

import threading

import pytest

from sqs_fifo_spark.errors import AccessDeniedError, JournalUnavailableError, TransientQueueError
from sqs_fifo_spark.local.fifo import DEDUPLICATION_S
from sqs_fifo_spark.sink.outgoing import RefusedRowError
from sqs_fifo_spark.sink.window import SEND_BUDGET_S
from tests.helpers import wait_until
from tests.unit.sending import (
    LONG_S,
    Answer,
    Hang,
    Noted,
    Panic,
    Sqs,
    Task,
    dealt,
    digests_of,
    finish,
    group_of,
    make,
    numbered,
    raising,
    rows,
    threads,
    wait_for_threads,
    waiting,
)

pytestmark = pytest.mark.law("sink-1", "sink-4")


def test_a_refused_row_ends_it_with_nothing_of_its_group_after_it(sqs: Sqs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the calls beside it are confirmed and recorded before the error is raised, and none is sent after it."""
    bodies = dealt(60, 20)
    refused, record = "aa3", Noted()
    sender = make(sqs, record)
    sqs.refuse(refused)
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
    assert record.digests == digests_of(*sqs.bodies())
    assert (record.closed, threads()) == (0, [])
    assert len(sqs.calls) < 120


def test_a_failure_ends_all_sending_while_its_caller_is_busy_elsewhere(sqs: Sqs) -> None:
    """The rows' own source may take its time: the error is told with the next rows, and nothing is sent until then."""
    is_added = threading.Event()
    sqs.before = waiting(is_added)
    sqs.refuse("a1")
    sender = make(sqs)
    sender.add(rows("a1"))
    is_added.set()
    wait_for_threads()
    with pytest.raises(RefusedRowError):
        sender.add(rows("b1"))
    assert sqs.calls == [["a1"]]


@pytest.mark.parametrize("kind", [JournalUnavailableError, AccessDeniedError, ZeroDivisionError, Panic])
@pytest.mark.parametrize("way", ["look", "send", "add"])
def test_what_any_thread_meets_is_raised_by_add_and_finish(sqs: Sqs, way: str, kind: type[BaseException]) -> None:
    """Also what is no Exception, else it would wait for ever. Nothing of the group follows, and no thread is left;
    `sent` is what SQS has confirmed.
    """
    record, error = Noted(), kind("no")
    fail = raising(error, lambda *_: sqs.tries("a2" if way == "look" else "a3") > 0)
    if way == "look":
        record.on_look = fail
    elif way == "send":
        sqs.before = fail
    else:
        record.on_add = fail
    sender = make(sqs, record)
    assert Task(lambda: finish(sender, *numbered("a", 5))).end() is error
    assert sqs.bodies() == numbered("a", 3 if way == "add" else 2)
    assert (sender.counts.sent, threads()) == (len(sqs.bodies()), [])
    with pytest.raises(kind):
        sender.finish()
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
    """That call's rows are recorded."""
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
    assert record.digests == digests_of("a1")
    assert (sender.counts.sent, record.closed, threads()) == (1, 0, [])


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
    assert (sqs.bodies(), threads()) == (["a1"], [])
    assert record.digests == digests_of("a1")


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
    assert (sqs.bodies(), threads()) == (["a1"], [])
    assert record.digests == (digests_of("a1") if is_back else set())


def test_no_more_rows_are_taken_once_a_row_is_refused(sqs: Sqs, hang: Hang) -> None:
    """Rows of the same call are being recorded still: the next `add` waits for that, and raises."""
    record = Noted()
    record.on_add = hang
    sqs.refuse("b1")
    sender = make(sqs, record)

    def add() -> None:
        sender.add(rows("a1", "b1"))
        hang.wait()
        sender.add(rows("c1"))

    caller = Task(add)
    hang.wait()
    hang.end()
    assert isinstance(caller.end(), RefusedRowError)
    assert "c1" not in sqs.bodies()
    assert threads() == []


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
