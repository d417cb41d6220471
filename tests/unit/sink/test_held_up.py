"""A task does not wait for what hangs: it fails while SQS knows what it has sent, and what is left sends nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sqs_fifo_spark.errors import DisorderError, JournalUnavailableError, SqsFifoError, TransientQueueError
from sqs_fifo_spark.local.fifo import DEDUPLICATION_S
from sqs_fifo_spark.sink.crew import GRACE_S
from sqs_fifo_spark.sink.lanes import Stride
from sqs_fifo_spark.sink.record import Record, SentRecord
from sqs_fifo_spark.sink.recorder import DISORDER
from sqs_fifo_spark.sink.sender import Sender
from sqs_fifo_spark.sink.window import CONFIRM_BUDGET_S, SEND_BUDGET_S
from tests.helpers import wait_until
from tests.unit.sending import (
    LONG_S,
    LOST,
    Hang,
    SharedClock,
    Sqs,
    Store,
    Task,
    finish,
    make,
    numbered,
    raising,
    rows,
    send,
    wait_for_threads,
)

pytestmark = pytest.mark.law("sink-4")

LIMIT_S = SEND_BUDGET_S + CONFIRM_BUDGET_S
BEGAN_AT = SharedClock().monotonic()
CALL_HELD_UP = "a call to SQS is held up: 175 s after the time to try its rows began"
RECORD_HELD_UP = "the record of what was sent is held up: the journal does not have it 175 s"


def sending(sender: Sender, *bodies: str) -> Task:
    return Task(lambda: finish(sender, *bodies))


@pytest.fixture
def young(hang: Hang) -> Iterator[Hang]:
    """A place for a second thread, which ends before the first one."""
    young = Hang()
    yield young
    young.end()


def record(store: Store, sqs: Sqs, *, has_journal: bool = True) -> Record:
    if not has_journal:
        return Record(sqs.clock)
    return SentRecord(store, sqs.clock, query="q", batch="1", run="018bcfe56800r1", partition=0)


def hang_in(where: str, sqs: Sqs, store: Store, hang: Hang) -> None:
    """Let SQS take a row, and then let the repeat of its call hang, or a put or drop of the record."""
    if where != "connect":
        store.on_step = lambda event: hang() if event.startswith(f"before {where} ") else None
        return

    def lose(bodies: list[str], answer: dict[str, object]) -> None:
        sqs.connect = hang
        sqs.after = lambda bodies, answer: None
        raise LOST

    sqs.after = lose


def fails(task: Task, sqs: Sqs, kind: type[SqsFifoError], *, moments: int = 2) -> str:
    """Turn the clock until the task fails, at the limit and so many moments after it; return what it says."""
    sqs.clock.turn_until(task.is_over)
    assert sqs.clock.monotonic() == BEGAN_AT + LIMIT_S + moments * GRACE_S
    assert type(task.error) is kind
    return str(task.error)


@pytest.mark.parametrize(
    ("where", "has_journal", "kind", "text"),
    [
        ("connect", True, TransientQueueError, CALL_HELD_UP),
        ("connect", False, TransientQueueError, CALL_HELD_UP),
        ("put", True, JournalUnavailableError, RECORD_HELD_UP),
    ],
)
def test_a_task_fails_though_what_it_waits_for_hangs_and_the_next_attempt_doubles_nothing(
    sqs: Sqs, store: Store, hang: Hang, where: str, has_journal: bool, kind: type[SqsFifoError], text: str
) -> None:
    """That one sends the row again while SQS knows it, and what follows behind it, in order; also if the hang ends
    later.
    """
    hang_in(where, sqs, store, hang)
    given = ["a1", "b1", "a2", "b2", "a3"]
    task = sending(make(sqs, record(store, sqs, has_journal=has_journal)), *given)
    hang.wait()
    said = fails(task, sqs, kind)
    assert said.startswith(text)
    assert "\n" not in said
    send(sqs, rows(*given), record(store, sqs, has_journal=has_journal))
    assert (sqs.bodies("a"), sqs.bodies("b")) == (["a1", "a2", "a3"], ["b1", "b2"])
    calls = len(sqs.calls)
    sqs.clock.advance(DEDUPLICATION_S)
    hang.end()
    wait_for_threads()
    if has_journal:
        assert send(sqs, rows(*given), record(store, sqs)).counts.known == len(given)
    assert len(sqs.calls) == calls
    assert (sqs.bodies("a"), sqs.bodies("b")) == (["a1", "a2", "a3"], ["b1", "b2"])


def test_disorder_is_recorded_though_another_put_hangs(sqs: Sqs, store: Store, hang: Hang) -> None:
    """A put that hangs keeps the next attempt from learning what was sent, but not of what was sent out of order."""
    hang_in("put", sqs, store, hang)
    sqs.may_batch = True
    sender = make(sqs, record(store, sqs), Stride(rows_in_call=10, max_unrecorded=10, fails_on_disorder=True))
    sender.add(rows("a1"))
    hang.wait()
    sqs.fail_once("b1")
    task = sending(sender, "b1", "b2")
    wait_until(lambda: "failure=DisorderError" in repr(sender), LONG_S, "b2 has overtaken b1")
    sqs.clock.turn_until(task.is_over)
    assert isinstance(task.error, DisorderError)
    later = record(store, sqs)
    later.refresh([DISORDER])
    assert later.is_sent(DISORDER)


def test_disorder_is_the_error_though_its_own_put_hangs(sqs: Sqs, store: Store, hang: Hang) -> None:
    """Whoever starts the write again at once would meet nothing of it: SQS takes b1, and still knows b2."""
    hang_in("put", sqs, store, hang)
    sqs.may_batch = True
    sqs.fail_once("b1")
    sender = make(sqs, record(store, sqs), Stride(rows_in_call=10, max_unrecorded=10, fails_on_disorder=True))
    task = sending(sender, "b1", "b2")
    hang.wait()
    sqs.clock.turn_until(task.is_over)
    assert isinstance(task.error, DisorderError)


@pytest.mark.parametrize("has_journal", [True, False])
def test_a_thread_that_was_abandoned_sends_nothing(
    sqs: Sqs, store: Store, hang: Hang, young: Hang, has_journal: bool
) -> None:
    """Nor does one whose own time is not over yet: its task is, and the next attempt may be ahead of it."""
    hang_in("put" if has_journal else "connect", sqs, store, hang)
    sender = make(sqs, record(store, sqs, has_journal=has_journal))
    sender.add(rows("a1"))
    hang.wait()
    sqs.clock.advance(LIMIT_S - 10)
    sqs.connect = lambda bodies: young() if "b1" in bodies else None
    sender.add(rows("b1", "b2"))
    young.wait()
    fails(sending(sender), sqs, JournalUnavailableError if has_journal else TransientQueueError)
    assert sqs.bodies() == ["a1"]
    young.end()
    hang.end()
    wait_for_threads()
    assert sqs.bodies() == ["a1"]
    assert sqs.tries("b2") == 0


def test_a_put_that_may_still_come_is_not_blamed(sqs: Sqs, store: Store, hang: Hang, young: Hang) -> None:
    """It began later than the call that is late by now."""
    hang_in("connect", sqs, store, hang)
    sender = make(sqs, record(store, sqs))
    sender.add(rows("a1"))
    hang.wait()
    sqs.clock.advance(LIMIT_S - 10)
    hang_in("put", sqs, store, young)
    sender.add(rows("b1"))
    young.wait()
    assert fails(sending(sender), sqs, TransientQueueError).startswith(CALL_HELD_UP)


def test_rows_that_come_later_learn_of_it(sqs: Sqs, store: Store, hang: Hang) -> None:
    """Their source may be slow: the task fails with the next ones, though there is room for many more."""
    hang_in("connect", sqs, store, hang)
    sender = make(sqs, record(store, sqs))
    sender.add(rows("a1"))
    hang.wait()
    sqs.clock.advance(2 * LIMIT_S)
    task = Task(lambda: sender.add(rows("b1")))
    sqs.clock.turn_until(task.is_over)
    assert isinstance(task.error, TransientQueueError)


def test_a_row_that_fails_is_told_though_another_thread_hangs(
    sqs: Sqs, store: Store, monkeypatch: pytest.MonkeyPatch, hang: Hang
) -> None:
    """The thread that tidies up has recorded its rows and may take its time; the row that has failed may not."""
    monkeypatch.setattr("sqs_fifo_spark.sink.record.MERGE_AT", 2)
    hang_in("drop", sqs, store, hang)
    sender = make(sqs, record(store, sqs))
    sender.add(rows("a1", "a2"))
    hang.wait()
    sqs.after = raising(LOST)
    task = sending(sender, "b1")
    wait_until(lambda: sender._crew.failure is not None, LONG_S, "the row has failed")
    fails(task, sqs, TransientQueueError, moments=1)


def test_no_row_waits_while_the_journal_is_being_tidied(
    sqs: Sqs, store: Store, monkeypatch: pytest.MonkeyPatch, hang: Hang
) -> None:
    """Not even one of the same call: it is tried again before that, and what follows is sent by others."""
    monkeypatch.setattr("sqs_fifo_spark.sink.record.MERGE_AT", 2)
    hang_in("drop", sqs, store, hang)
    sqs.fail_once("b1")
    sender = make(sqs, record(store, sqs))
    sender.add(rows("a1"))
    wait_until(lambda: len(store.puts()) == 1, LONG_S, "the first row is recorded")
    task = sending(sender, "a2", "b1", "a3", "b2")
    hang.wait()
    wait_until(lambda: len(sqs.bodies()) == 5, LONG_S, "all rows are sent")
    assert not task.is_over()
    hang.end()
    assert task.end() is None


def test_a_process_that_stood_still_gets_a_moment(sqs: Sqs, hang: Hang) -> None:
    """A call may still end: the limit alone fails nobody."""
    sqs.after = hang
    task = sending(make(sqs, Record(sqs.clock)), "a1", "a2")
    hang.wait()
    sqs.clock.advance(2 * LIMIT_S)
    hang.end()
    assert task.end() is None
    assert sqs.bodies() == ["a1", "a2"]


def test_records_of_one_thread_do_not_hold_back_the_limit_of_another(sqs: Sqs, store: Store, hang: Hang) -> None:
    """Rows come and go: what counts is the one that was sent first and is not over."""
    hang_in("connect", sqs, store, hang)
    sender = make(sqs, Record(sqs.clock))
    sender.add(rows("a1"))
    hang.wait()
    for body in numbered("b", 7):
        sqs.clock.advance(LIMIT_S / 8)
        sender.add(rows(body))
        wait_until(lambda body=body: sqs.tries(body) == 1, LONG_S, "it is sent")  # type: ignore[misc]
    wait_until(lambda: len(sqs.bodies("b")) == 7, LONG_S, "all are sent")
    fails(sending(sender), sqs, TransientQueueError)
    assert sender.counts.sent == 7
