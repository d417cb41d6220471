"""Rows of a group that may go ahead: several in a call with `order=batch`, several that the record lacks."""

from __future__ import annotations

import logging
import threading

import pytest

from sqs_fifo_spark.errors import DisorderError, JournalUnavailableError, OptionError, RowError, TransientQueueError
from sqs_fifo_spark.options import parse_sink_options
from sqs_fifo_spark.sink.crew import THREADS
from sqs_fifo_spark.sink.lanes import Stride
from sqs_fifo_spark.sink.outgoing import RefusedRowError
from sqs_fifo_spark.sink.record import Record
from sqs_fifo_spark.sink.recorder import DISORDER
from sqs_fifo_spark.sink.sender import Sender
from sqs_fifo_spark.sink.sink_queue import SinkQueue
from sqs_fifo_spark.sink.window import CONFIRM_BUDGET_S
from tests.helpers import wait_until
from tests.unit.sending import (
    LONG_S,
    THROTTLED,
    Noted,
    Sqs,
    batch,
    dealt,
    digests_of,
    finish,
    group_of,
    in_trouble,
    make,
    numbered,
    raising,
    refusal,
    rows,
    send,
    threads,
    waiting,
)
from tests.unit.sink.test_held_up import sending
from tests.unit.sink.test_write import planned, run

pytestmark = pytest.mark.law("sink-2", "sink-4")

BATCH = Stride(rows_in_call=10, max_unrecorded=10)
FAILS = Stride(rows_in_call=10, max_unrecorded=10, fails_on_disorder=True)


@pytest.fixture(autouse=True)
def may_batch(sqs: Sqs) -> None:
    """A group may have several rows under way, in one call."""
    sqs.may_batch = True


def figures(sender: Sender) -> tuple[int, int, int]:
    counts = sender.counts
    return counts.sent, counts.overtaking, counts.equal


# What is sent together


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("groups", [1, 3, 25])
def test_calls_that_fail_as_a_whole_change_no_order(sqs: Sqs, seed: int, groups: int) -> None:
    """SQS takes all of a call, or nothing, and its answer may be lost."""
    in_trouble(sqs, seed)
    bodies = dealt(groups, 300 // groups)
    record = Noted()
    sender = send(sqs, rows(*bodies), record, BATCH)
    for group in {group_of(body) for body in bodies}:
        assert sqs.bodies(group) == [body for body in bodies if group_of(body) == group]
    assert figures(sender) == (len(bodies), 0, 0)
    assert record.digests == digests_of(*bodies)
    assert sqs.duplicates > 0


# What the record lacks


@pytest.mark.parametrize("most", [1, 3, THREADS])
def test_a_group_goes_on_while_the_record_lacks_few_rows(sqs: Sqs, most: int) -> None:
    """The first put waits until nothing more can be sent: then so many are, and not one more."""
    record, first, is_put = Noted(), threading.Lock(), threading.Event()
    bodies = dealt(1, 20)
    sender = make(sqs, record, Stride(1, most, False))

    def hold(digests: list[bytes]) -> None:
        if not first.acquire(blocking=False):
            assert is_put.wait(LONG_S)
        elif not is_put.is_set():
            wait_until(lambda: len(sqs.bodies()) == most, LONG_S, "as many are sent as may be")
            assert len(sender.progress.lanes[group_of(bodies[0])].unrecorded) == most
            is_put.set()

    record.on_add = hold
    finish(sender, *bodies)
    assert sqs.bodies() == bodies
    assert len(sqs.calls) == 20
    assert record.digests == digests_of(*bodies)


def test_nothing_is_tried_behind_a_row_whose_record_is_overdue(sqs: Sqs) -> None:
    """That row may soon be sent again, and would then stand behind what follows it."""
    record, is_free = Noted(), threading.Event()
    first, second = rows("a1", "a2")
    record.on_add = waiting(is_free, lambda digests: digests == [first.digest])
    record._looked_at = sqs.clock.monotonic()
    sender = make(sqs, record, Stride(1, 2, False))
    sender.add([first])
    wait_until(lambda: sqs.bodies() == ["a1"], LONG_S, "the first row is sent")
    record._looked_at += CONFIRM_BUDGET_S + 1
    sender.add([second])

    def is_taken() -> bool:
        idle = len(sender._crew.changed._waiters)  # type: ignore[attr-defined]
        return sender.progress.lanes["a"].under_way == 1 and idle == THREADS - 1

    wait_until(is_taken, LONG_S, "the second row is taken, and its thread waits")
    assert sqs.calls == [["a1"]]
    is_free.set()
    sender.finish()
    assert sqs.bodies() == ["a1", "a2"]


# Disorder


def test_what_sqs_takes_behind_a_row_that_it_fails_is_counted(sqs: Sqs, caplog: pytest.LogCaptureFixture) -> None:
    """Once, however often that row fails; and what follows waits for it."""
    bodies = dealt(1, 12)
    sqs.failing = lambda body: ("InternalError", False) if body == bodies[2] and sqs.tries(body) < 3 else None
    with caplog.at_level(logging.WARNING):
        sender = send(sqs, rows(*bodies), stride=BATCH)
    assert sqs.bodies() == [*bodies[:2], *bodies[3:10], bodies[2], *bodies[10:]]
    assert sqs.calls == [bodies[:10], [bodies[2]], [bodies[2]], bodies[10:]]
    assert figures(sender) == (12, 7, 0)
    said = "row 4 and 6 others stand before an earlier row of the same message group"
    assert caplog.messages == [f"rows are out of order: {said}, or may do so"]


@pytest.mark.parametrize(
    ("given", "hidden", "fails", "queue", "overtaking"),
    [
        ("a1 a2 a3 a4", "all", {("a2", 1)}, "a1 a3 a4 a2", 2),
        ("a1 a2 a3 a4", "all", {("a2", 1), ("a3", 2)}, "a1 a3 a4 a2", 2),
        ("a1 a2 a3", "-2", {("a2", 1)}, "a1 a3 a2", 1),
        # A call that is refused as a whole tells nothing of the one before.
        ("a1 a2 a3", "all, then refused", {("a1", 1)}, "a2 a3 a1", 2),
        # The first try added all, and the second one fails a row that it would only have recognised.
        ("a1 a2 a3 a4 a5", "all", {("a2", 2)}, "a1 a2 a3 a4 a5", 0),
        ("a1 a2 a3", "-1", set(), "a1 a2 a3", 0),
        ("a1 a2 b1 b2", "", {("a2", 1)}, "a1 b1 b2 a2", 0),
        ("a1 a2 a3 a4", "", {("a3", 1), ("a4", 1)}, "a1 a2 a3 a4", 0),
    ],
)
def test_sequence_numbers_tell_which_rows_have_overtaken_others(
    sqs: Sqs, given: str, hidden: str, fails: set[tuple[str, int]], queue: str, overtaking: int
) -> None:
    """An answer may be lost, or leave a row out. The last rows of a group overtake none."""
    if hidden.startswith("all"):
        sqs.lose()
    elif hidden:
        sqs.leave_out(hidden)
    if hidden.endswith("refused"):
        sqs.before = raising(refusal("InvalidParameterValue"), lambda bodies: len(sqs.calls) == 2)
    sqs.failing = lambda body: ("InternalError", False) if (body, sqs.tries(body)) in fails else None
    sender = send(sqs, rows(*given.split()), stride=BATCH)
    assert sqs.bodies() == queue.split()
    assert figures(sender) == (len(given.split()), overtaking, 0)


def test_equal_rows_overtake_nothing(sqs: Sqs) -> None:
    """They are no messages of their own: not equal to one of this task, and not to an older one."""
    send(sqs, rows("a0"), stride=BATCH)
    sqs.fail_once("a3")
    sender = send(sqs, rows("a0", "a1", "a2", "a1", "a3", "a3"), Record(sqs.clock), stride=BATCH)
    assert sqs.bodies() == ["a0", "a1", "a2", "a3"]
    assert figures(sender) == (6, 0, 2)


def test_a_refused_row_may_be_overtaken_in_its_call_alone(sqs: Sqs) -> None:
    """The error says so."""
    sqs.refuse("a2")
    with pytest.raises(RowError, match="none of its group after it but in the same call, if SQS took those"):
        run(sqs, None, batch(*numbered("a", 15)), plan=planned(sqs, order="batch"))
    assert sqs.bodies() == ["a1", *numbered("a", 10)[2:]]


@pytest.mark.parametrize("fails", [False, True])
def test_the_next_attempt_is_told_by_numbers(sqs: Sqs, fails: bool) -> None:
    """Of what the first one sent and had no answer for; without a journal, too."""
    bodies = numbered("a", 10)
    sqs.fail_once("a3")
    sqs.lose()
    sqs.before = raising(THROTTLED, lambda called: len(sqs.calls) > 1)
    with pytest.raises(TransientQueueError):
        finish(make(sqs, Noted(looked_at=sqs.clock.monotonic()), FAILS), *bodies)
    assert len(sqs.bodies()) == 9
    sqs.before = lambda called: None
    queue, stride = SinkQueue(sqs.options(), sqs.clock), FAILS if fails else BATCH
    second = Sender(queue, Noted(), sqs.clock, stride, may_be_older=True)
    if fails:
        with pytest.raises(DisorderError):
            finish(second, *bodies)
        return
    assert figures(finish(second, *bodies))[1:] == (7, 0)


def test_what_an_attempt_gives_up_may_have_been_overtaken(sqs: Sqs) -> None:
    """It records that: the next attempt sends that row alone, whose number tells nothing."""
    record = Noted(looked_at=sqs.clock.monotonic())
    sqs.lose()
    sqs.failing = lambda body: ("InternalError", False) if body == "a2" else None
    with pytest.raises(TransientQueueError):
        finish(make(sqs, record, BATCH), "a1", "a2", "a3")
    assert DISORDER in record.digests
    sqs.failing = lambda body: None
    record._looked_at = sqs.clock.monotonic()
    second = send(sqs, rows("a1", "a2", "a3"), record, BATCH)
    assert (second.counts.known, second.counts.follows_disorder) == (2, True)


def test_an_attempt_that_dies_leaves_no_overtaking_row_without_a_word(sqs: Sqs) -> None:
    """A failed row may stand behind others: the put that records those says so, too."""
    record, added = Noted(), list[list[bytes]]()
    record.on_add = added.append
    sqs.fail_once("a2")
    sender = send(sqs, rows("a1", "a2", "a3"), record, BATCH)
    assert {*added[0]} == {DISORDER, *digests_of("a1", "a3")}
    assert sender.counts.overtaking == 1


@pytest.mark.parametrize("refused", [["a3"], ["a3", "a4"], ["a1", "a3"]])
def test_what_is_given_up_for_a_refused_row_may_have_been_overtaken(sqs: Sqs, refused: list[str]) -> None:
    """The refused one, and others that SQS refuses with it, are the user's to correct; not what it failed besides."""
    record = Noted(looked_at=sqs.clock.monotonic())
    answers = {"a1": ("InternalError", False)} | dict.fromkeys(refused, ("InvalidMessageContents", True))
    sqs.failing = answers.get
    with pytest.raises(RefusedRowError):
        finish(make(sqs, record, FAILS), "a1", "a2", "a3", "a4")
    assert "a2" in sqs.bodies()
    assert (DISORDER in record.digests) is ("a1" not in refused)


# To fail for it


def test_disorder_fails_the_task_and_each_later_attempt(sqs: Sqs) -> None:
    """The first one records the rows that it has sent, and the disorder; with `log` the next one goes on."""
    bodies = numbered("a", 25)
    record = Noted()
    sqs.fail_once("a3")
    sender = make(sqs, record, FAILS)
    with pytest.raises(DisorderError, match=r"^row 4 and 6 others stand .* with onDisorder set to log"):
        finish(sender, *bodies)
    sent = ["a1", "a2", *bodies[3:10]]
    assert sqs.bodies() == sent
    assert record.digests == {DISORDER, *digests_of(*sent)}
    assert threads() == []

    calls = len(sqs.calls)
    again = make(sqs, record, FAILS)
    with pytest.raises(DisorderError, match="an earlier attempt found rows"):
        finish(again, *bodies)
    assert (len(sqs.calls), again.counts.sent) == (calls, 0)

    last = send(sqs, rows(*bodies), record, BATCH)
    assert last.counts.follows_disorder
    assert sqs.bodies() == [*sent, "a3", *bodies[10:]]
    assert (last.counts.sent, last.counts.known) == (16, 9)


@pytest.mark.parametrize("is_lost", [False, True])
def test_disorder_has_not_failed_the_task_until_it_was_tried_to_record_it(sqs: Sqs, is_lost: bool) -> None:
    """Else a task may end for it while the thread that is to record it stands still.

    And it is disorder that the user learns of, though the first put failed.
    """
    record, seen = Noted(), list[str]()
    sender = make(sqs, record, FAILS)

    def note(digests: list[bytes]) -> None:
        seen.append(repr(sender))
        if is_lost and len(seen) == 1:
            raise JournalUnavailableError("cannot put")

    record.on_add = note
    sqs.fail_once("a1")
    with pytest.raises(DisorderError):
        finish(sender, "a1", "a2")
    assert "is_stopped=True failure=None" in seen[0]
    assert record.digests == {DISORDER, *digests_of("a2")}


@pytest.mark.parametrize("is_lost", [False, True])
def test_disorder_is_the_error_though_another_put_fails_before_its_own(sqs: Sqs, is_lost: bool) -> None:
    """The store is away: what another thread records fails first, and then perhaps disorder, too."""
    record, is_putting, has_failed = Noted(), threading.Event(), threading.Event()
    sender = make(sqs, record, FAILS)

    def fail(digests: list[bytes]) -> None:
        if DISORDER in digests:
            is_putting.set()
            assert has_failed.wait(LONG_S)
            if is_lost and DISORDER not in record.digests:
                raise JournalUnavailableError("cannot put b2")
        elif not has_failed.is_set():
            assert is_putting.wait(LONG_S)
            raise JournalUnavailableError("cannot put c1")

    record.on_add = fail
    sender.add(rows("c1"))
    wait_until(lambda: sqs.bodies() == ["c1"], LONG_S, "c1 is sent")
    sqs.fail_once("b1")
    task = sending(sender, "b1", "b2")
    wait_until(lambda: "failure=None" not in repr(sender), LONG_S, "the task has failed")
    has_failed.set()
    assert isinstance(task.end(), DisorderError)


def test_disorder_has_failed_the_task_before_its_last_rows_are_released(
    sqs: Sqs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With none left, the task would end well."""
    sqs.fail_once("a1")
    sqs.lose()
    sender, left = make(sqs, stride=FAILS), list[int]()
    fail = sender._crew.fail

    def note(error: BaseException) -> None:
        left.append(len(sender.progress.lanes))
        fail(error)

    monkeypatch.setattr(sender._crew, "fail", note)
    with pytest.raises(DisorderError):
        finish(sender, "a1", "a2", "a3")
    assert sqs.bodies() == ["a2", "a3", "a1"]
    assert left[0] > 0


def test_what_a_lost_answer_hid_fails_the_task(sqs: Sqs) -> None:
    """Nothing of the group follows."""
    sqs.fail_once("a1")
    sqs.lose()
    with pytest.raises(DisorderError):
        finish(make(sqs, stride=FAILS), *numbered("a", 11))
    assert sqs.bodies()[-1] == "a1"
    assert "a11" not in sqs.bodies()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"onDisorder": "fail"}, "there is no 'journalLocation'"),
        ({"onDisorder": "fail", "order": "batch"}, "there is no 'journalLocation'"),
        ({"maxUnrecordedRows": "2"}, "'maxUnrecordedRows' is given without 'journalLocation'"),
    ],
)
def test_options_without_effect_are_refused(sqs: Sqs, options: dict[str, str], said: str) -> None:
    """Each with what to do."""
    with pytest.raises(OptionError, match=said):
        sqs.options(**options)


@pytest.mark.parametrize(
    ("options", "stride"),
    [
        ({}, Stride(1, 1, False)),
        ({"order": "batch"}, Stride(10, 10, False)),
        ({"onDisorder": "fail"}, Stride(1, 1, True)),
        ({"order": "batch", "onDisorder": "fail"}, Stride(10, 10, True)),
        ({"order": "batch", "maxUnrecordedRows": "1"}, Stride(10, 1, False)),
        ({"maxUnrecordedRows": "20"}, Stride(1, 20, False)),
    ],
)
def test_the_options_set_the_stride(options: dict[str, str], stride: Stride) -> None:
    """As the table in `docs/sink-order.md` says."""
    url = "https://sqs.eu-west-1.amazonaws.com/123456789012/bids.fifo"
    assert Stride.of(parse_sink_options({"queueUrl": url, "journalLocation": "/j", **options})) == stride
