"""How far a group's rows may go ahead: several in a call with `order=batch`, several that the record lacks."""

from __future__ import annotations

import logging
import threading

import pytest

from sqs_fifo_spark.aws.calls import MAX_CALL_BYTES
from sqs_fifo_spark.errors import (
    DisorderError,
    JournalUnavailableError,
    OptionError,
    RowError,
    TransientQueueError,
)
from sqs_fifo_spark.options import parse_sink_options
from sqs_fifo_spark.sink.crew import THREADS
from sqs_fifo_spark.sink.lanes import Stride
from sqs_fifo_spark.sink.message import RefusedRowError
from sqs_fifo_spark.sink.queue import SinkQueue
from sqs_fifo_spark.sink.record import NoRecord
from sqs_fifo_spark.sink.recorder import DISORDER
from sqs_fifo_spark.sink.sender import Sender
from sqs_fifo_spark.sink.window import CONFIRM_BUDGET_S
from tests.helpers import wait_until
from tests.unit.sending import (
    LONG_S,
    LOST,
    THROTTLED,
    Answer,
    Noted,
    Sqs,
    batch,
    dealt,
    finish,
    group_of,
    in_trouble,
    make,
    refusal,
    rows,
    rows_of,
    send,
    threads,
)
from tests.unit.sink.test_write import planned, run

pytestmark = pytest.mark.law("sink-2", "sink-4")

BATCH = Stride(rows_in_call=10, max_unrecorded=10)
FAILS = Stride(rows_in_call=10, max_unrecorded=10, fails_on_disorder=True)


@pytest.fixture(autouse=True)
def may_batch(sqs: Sqs) -> None:
    """A group may have several rows under way, in one call."""
    sqs.may_batch = True


def failing_once(sqs: Sqs, *bodies: str) -> None:
    sqs.failing = lambda body: ("InternalError", False) if body in bodies and sqs.tries(body) == 1 else None


# What is sent together


def test_a_group_goes_ten_by_ten(sqs: Sqs) -> None:
    """One call after the other."""
    bodies = dealt(1, 35)
    sender = send(sqs, rows(*bodies), stride=BATCH)
    assert sqs.calls == [bodies[:10], bodies[10:20], bodies[20:30], bodies[30:]]
    assert (sqs.most_calls, sqs.bodies()) == (1, bodies)
    assert (sender.counts.sent, sender.counts.overtaking, sender.counts.equal) == (35, 0, 0)


def test_groups_share_a_call(sqs: Sqs) -> None:
    """What one leaves of it is the next one's."""
    bodies = [*dealt(1, 7), *(f"b{number}" for number in range(7))]
    send(sqs, rows(*bodies), stride=BATCH)
    assert sqs.calls[0] == bodies[:10]
    assert sorted(sqs.bodies()) == sorted(bodies)


def test_a_call_of_one_group_is_no_larger_than_sqs_takes(sqs: Sqs) -> None:
    """What does not fit goes with the next one."""
    given = rows_of(("g", f"{number}{'x' * 300_000}") for number in range(7))
    send(sqs, given, stride=BATCH)
    assert [len(call) for call in sqs.calls] == [3, 3, 1]
    assert all(sum(map(len, call)) <= MAX_CALL_BYTES for call in sqs.calls)


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
    assert (sender.counts.sent, sender.counts.overtaking, sender.counts.equal) == (len(bodies), 0, 0)
    assert record.digests == {row.digest for row in rows(*bodies)}
    assert sqs.duplicates > 0


# What the record lacks


@pytest.mark.parametrize(("rows_in_call", "sent"), [(10, [[6]]), (7, [[6], [10, 11, 12, 13]])])
def test_a_row_that_the_record_lacks_before_others_is_recorded_before_its_group_goes_on(
    sqs: Sqs, rows_in_call: int, sent: list[list[int]]
) -> None:
    """Also if the others are found only when it is sent: its copy, if it becomes one, stands no further behind."""
    bodies = dealt(1, 30)
    record = Noted(rows(*(body for number, body in enumerate(bodies[:10]) if number != 6)))
    sender = make(sqs, record, Stride(rows_in_call, max_unrecorded=10))
    calls = [[bodies[number] for number in call] for call in sent]
    looked: list[tuple[list[list[str]], bool, int]] = []

    def look(digests: list[bytes]) -> None:
        (group,) = sender.progress.lanes._lanes.values()
        wait_until(lambda: len(sqs.calls) >= len(calls) and not group.under_way, LONG_S, "what may be sent is sent")
        if not looked:
            looked.append((list(sqs.calls), group.is_ready, len(group.waiting)))

    record.on_add = look
    finish(sender, *bodies)
    left = 30 - max(10, *(number + 1 for call in sent for number in call))
    assert looked == [(calls, False, left)]
    assert sorted(sqs.bodies()) == sorted([bodies[6], *bodies[10:]])
    assert max(map(len, sqs.calls)) == rows_in_call, "later it goes on as before"


def test_a_row_that_sqs_failed_is_recorded_before_its_group_goes_on(sqs: Sqs) -> None:
    """The record has those behind it by then: the same as above, without another attempt."""
    bodies = dealt(1, 25)
    failing_once(sqs, bodies[2])
    record = Noted()
    sender = make(sqs, record, BATCH)
    of_digest = {row.digest: row.entry["MessageBody"] for row in rows(*bodies)}
    seen: list[tuple[int, bool, int]] = []

    def look(digests: list[bytes]) -> None:
        (group,) = sender.progress.lanes._lanes.values()
        if bodies[2] in map(of_digest.get, digests):
            seen.append((len(sqs.calls), group.is_ready, len(group.waiting)))

    record.on_add = look
    finish(sender, *bodies)
    assert seen[0] == (2, False, 15)
    assert sqs.calls == [bodies[:10], [bodies[2]], bodies[10:20], bodies[20:]]


# Disorder


def test_what_sqs_takes_behind_a_row_that_it_fails_is_counted(sqs: Sqs, caplog: pytest.LogCaptureFixture) -> None:
    """Once, however often that row fails; and what follows waits for it."""
    bodies = dealt(1, 12)
    sqs.failing = lambda body: ("InternalError", False) if body == bodies[2] and sqs.tries(body) < 3 else None
    with caplog.at_level(logging.WARNING):
        sender = send(sqs, rows(*bodies), stride=BATCH)
    assert sqs.bodies() == [*bodies[:2], *bodies[3:10], bodies[2], *bodies[10:]]
    assert sqs.calls == [bodies[:10], [bodies[2]], [bodies[2]], bodies[10:]]
    assert (sender.counts.sent, sender.counts.overtaking, sender.counts.equal) == (12, 7, 0)
    said = "row 4 and 6 others stand before an earlier row of the same message group"
    assert caplog.messages == [f"rows are out of order: {said}, or may do so"]


def test_the_last_rows_of_a_group_overtake_nothing(sqs: Sqs) -> None:
    """If SQS fails the last ones of a call, nothing stands before them that should not."""
    bodies = dealt(1, 15)
    failing_once(sqs, bodies[8], bodies[9])
    sender = send(sqs, rows(*bodies), stride=BATCH)
    assert sqs.bodies() == bodies
    assert sender.counts.overtaking == 0


def test_other_groups_of_the_call_are_in_order(sqs: Sqs) -> None:
    """A row that fails is overtaken by none of another group."""
    failing_once(sqs, "a2")
    sender = send(sqs, rows("a1", "a2", "b1", "b2"), stride=BATCH)
    assert (sqs.bodies("a"), sqs.bodies("b")) == (["a1", "a2"], ["b1", "b2"])
    assert sender.counts.overtaking == 0


@pytest.mark.parametrize("later", [[], ["a3"]])
def test_sequence_numbers_tell_what_a_lost_answer_did_not(sqs: Sqs, later: list[str]) -> None:
    """Also where the second answer leaves something open again."""
    bodies = dealt(1, 4)
    first, second, third, fourth = bodies

    def fail(body: str) -> tuple[str, bool] | None:
        in_first, in_second = body == second and sqs.tries(body) == 1, body == third and sqs.tries(body) == 2
        return ("InternalError", False) if in_first or (later and in_second) else None

    def lose(called: list[str], answer: Answer) -> None:
        if len(sqs.calls) == 1:
            raise LOST

    sqs.failing, sqs.after = fail, lose
    sender = send(sqs, rows(*bodies), stride=BATCH)
    assert sqs.bodies() == [first, third, fourth, second]
    assert (sender.counts.sent, sender.counts.overtaking, sender.counts.equal) == (4, 2, 0)


def test_an_answer_that_leaves_a_row_out_is_settled_by_numbers(sqs: Sqs) -> None:
    """It stands behind one that SQS said it had failed."""

    def leave_out(called: list[str], answer: Answer) -> None:
        answer["Successful"] = [
            each for each in answer["Successful"] if len(called) < 3 or not each["Id"].endswith("-2")
        ]

    failing_once(sqs, "a2")
    sqs.after = leave_out
    sender = send(sqs, rows("a1", "a2", "a3"), stride=BATCH)
    assert sqs.bodies() == ["a1", "a3", "a2"]
    assert (sender.counts.sent, sender.counts.overtaking, sender.counts.equal) == (3, 1, 0)


def test_equal_rows_overtake_nothing(sqs: Sqs) -> None:
    """They are no messages of their own: not equal to one of this task, and not to an older one."""
    send(sqs, rows("a0"), stride=BATCH)
    failing_once(sqs, "a3")
    given = rows("a0", "a1", "a2", "a1", "a3", "a3")
    sender = send(sqs, given, NoRecord(sqs.clock), stride=BATCH)
    assert sqs.bodies() == ["a0", "a1", "a2", "a3"]
    assert (sender.counts.sent, sender.counts.overtaking) == (6, 0)
    assert sender.counts.equal == 2


def test_a_refused_row_may_be_overtaken_in_its_call_alone(sqs: Sqs) -> None:
    """The error says so."""
    sqs.failing = {"a2": ("InvalidMessageContents", True)}.get
    with pytest.raises(RowError, match="none of its group after it but in the same call, if SQS took those"):
        run(sqs, None, batch(*dealt_in("a", 15)), plan=planned(sqs, order="batch"))
    assert sqs.bodies() == ["a1", *(f"a{number}" for number in range(3, 11))]


def dealt_in(group: str, count: int) -> list[str]:
    return [f"{group}{number}" for number in range(1, count + 1)]


def lose_first(sqs: Sqs) -> None:
    """Let the answer of the first call be lost."""
    calls = len(sqs.calls)

    def lose(called: list[str], answer: Answer) -> None:
        if len(sqs.calls) == calls + 1:
            raise LOST

    sqs.after = lose


def test_a_row_that_is_told_late_and_stands_in_order_is_overtaken_by_none(sqs: Sqs) -> None:
    """The first try added all, and the second one fails a row that it would only have recognised."""
    lose_first(sqs)
    sqs.failing = lambda body: ("InternalError", False) if body == "a2" and sqs.tries(body) == 2 else None
    sender = send(sqs, rows(*dealt_in("a", 5)), stride=BATCH)
    assert (sqs.bodies(), sender.counts.overtaking, sender.counts.equal) == (dealt_in("a", 5), 0, 0)


def test_a_row_that_an_answer_leaves_out_may_stand_in_order(sqs: Sqs) -> None:
    """Only its number tells."""

    def leave_out(called: list[str], answer: Answer) -> None:
        answer["Successful"] = [
            each for each in answer["Successful"] if len(called) < 3 or not each["Id"].endswith("-1")
        ]

    sqs.after = leave_out
    sender = send(sqs, rows("a1", "a2", "a3"), stride=BATCH)
    assert (sqs.bodies(), sender.counts.overtaking, sender.counts.equal) == (["a1", "a2", "a3"], 0, 0)


def test_rows_that_are_sent_one_by_one_are_judged_alike(sqs: Sqs) -> None:
    """A call that is refused as a whole tells nothing of the one before, whose answer was lost."""

    def before(bodies: list[str]) -> None:
        if len(sqs.calls) == 2:
            raise refusal("InvalidParameterValue")

    failing_once(sqs, "a1")
    lose_first(sqs)
    sqs.before = before
    sender = send(sqs, rows("a1", "a2", "a3"), stride=BATCH)
    assert (sqs.bodies(), sender.counts.overtaking, sender.counts.equal) == (["a2", "a3", "a1"], 2, 0)


@pytest.mark.parametrize("fails", [False, True])
def test_the_next_attempt_is_told_by_numbers(sqs: Sqs, fails: bool) -> None:
    """Of what the first one sent and had no answer for; without a journal, too."""
    failing_once(sqs, "a3")
    lose_first(sqs)

    def throttle(called: list[str]) -> None:
        if len(sqs.calls) > 1:
            raise THROTTLED

    sqs.before = throttle
    with pytest.raises(TransientQueueError):
        finish(make(sqs, Noted(looked_at=sqs.clock.monotonic()), FAILS), *dealt_in("a", 10))
    assert len(sqs.bodies()) == 9
    sqs.before = lambda called: None
    queue, stride = SinkQueue(sqs.options(), sqs.clock), FAILS if fails else BATCH
    second = Sender(queue, Noted(), sqs.clock, stride, may_be_older=True)
    if fails:
        with pytest.raises(DisorderError):
            finish(second, *dealt_in("a", 10))
        return
    finish(second, *dealt_in("a", 10))
    assert (second.counts.overtaking, second.counts.equal) == (7, 0)


def test_what_an_attempt_gives_up_may_have_been_overtaken(sqs: Sqs) -> None:
    """It records that: the next attempt sends that row alone, whose number tells nothing."""
    record = Noted(looked_at=sqs.clock.monotonic())
    lose_first(sqs)
    sqs.failing = lambda body: ("InternalError", False) if body == "a2" else None
    with pytest.raises(TransientQueueError):
        finish(make(sqs, record, BATCH), "a1", "a2", "a3")
    assert DISORDER in record.digests
    sqs.failing = lambda body: None
    record._looked_at = sqs.clock.monotonic()
    second = send(sqs, rows("a1", "a2", "a3"), record, BATCH)
    assert (second.counts.known, second.counts.follows_disorder) == (2, True)


def test_an_attempt_that_dies_leaves_no_overtaking_row_without_a_word(sqs: Sqs) -> None:
    """What SQS has failed may stand behind others: the put that records those says so, too."""
    record, added = Noted(), list[list[bytes]]()
    record.on_add = added.append
    failing_once(sqs, "a2")
    given = rows("a1", "a2", "a3")
    sender = send(sqs, given, record, BATCH)
    first, *_ = added
    assert (given[2].digest in first, DISORDER in first) == (True, True)
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
    """What the first one knew to be sent is recorded, and that it is out of order; with `log` the next one goes on."""
    bodies = dealt_in("a", 25)
    record = Noted()
    failing_once(sqs, "a3")
    sender = make(sqs, record, FAILS)
    with pytest.raises(DisorderError, match=r"^row 4 and 6 others stand .* with onDisorder set to log"):
        finish(sender, *bodies)
    sent = ["a1", "a2", *bodies[3:10]]
    assert sqs.bodies() == sent
    assert record.digests == {DISORDER, *(row.digest for row in rows(*sent))}
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


def test_what_a_lost_answer_hid_fails_the_task(sqs: Sqs) -> None:
    """Nothing of the group follows."""

    def lose(called: list[str], answer: Answer) -> None:
        if len(sqs.calls) == 1:
            raise LOST

    failing_once(sqs, "a1")
    sqs.after = lose
    with pytest.raises(DisorderError):
        finish(make(sqs, stride=FAILS), *dealt_in("a", 11))
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
    """As the table in `docs/sink.md` says."""
    url = "https://sqs.eu-west-1.amazonaws.com/123456789012/bids.fifo"
    assert Stride.of(parse_sink_options({"queueUrl": url, "journalLocation": "/j", **options})) == stride


def test_a_refused_row_is_told_as_such(sqs: Sqs) -> None:
    """By each attempt: it is not disorder that fails the write."""
    sqs.failing = {"a2": ("InvalidMessageContents", True)}.get
    record = Noted()
    for _ in range(2):
        with pytest.raises(RefusedRowError):
            finish(make(sqs, record, FAILS), *dealt_in("a", 12))
    assert DISORDER not in record.digests


# What the record lacks


def test_the_record_never_lacks_a_row_before_one_that_it_has(sqs: Sqs) -> None:
    """If a put fails, what others put has those rows, too."""
    record, second = Noted(), threading.Event()
    first = rows("a1")[0].digest

    def fail(digests: list[bytes]) -> None:
        if digests == [first]:
            assert second.wait(LONG_S)
            raise JournalUnavailableError("no")
        second.set()

    record.on_add = fail
    with pytest.raises(JournalUnavailableError):
        finish(make(sqs, record, Stride(1, 2, False)), "a1", "a2")
    assert sqs.bodies() == ["a1", "a2"]
    assert record.digests == {row.digest for row in rows("a1", "a2")}


def test_nothing_is_tried_behind_a_row_whose_record_is_overdue(sqs: Sqs) -> None:
    """That row may soon be sent again, and would then stand behind what follows it."""
    record, is_free = Noted(), threading.Event()
    first, second = rows("a1", "a2")

    def hold(digests: list[bytes]) -> None:
        if digests == [first.digest]:
            assert is_free.wait(LONG_S)

    record.on_add = hold
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
    assert record.digests == {row.digest for row in rows(*bodies)}


def test_a_call_holds_no_more_than_may_be_unrecorded(sqs: Sqs) -> None:
    """With `order=batch`, too."""
    send(sqs, rows(*dealt(1, 9)), stride=Stride(10, 4, False))
    assert [len(call) for call in sqs.calls] == [4, 4, 1]


def test_known_rows_between_others_hold_up_nothing(sqs: Sqs) -> None:
    """What the record lacks of a call is sent, and then what follows."""
    bodies = dealt(1, 23)
    known = [bodies[0], bodies[4], bodies[9], *bodies[12:20]]
    sender = send(sqs, rows(*bodies), Noted(rows(*known)), BATCH)
    assert sqs.bodies() == [body for body in bodies if body not in known]
    assert (sender.counts.sent, sender.counts.known) == (12, 11)


def test_a_row_that_is_refused_for_the_whole_call_is_found_in_order(sqs: Sqs) -> None:
    """SQS does not say which one it is: each is tried alone, and nothing behind the refused one."""

    def refuse(bodies: list[str]) -> None:
        if "a3" in bodies:
            raise refusal("InvalidMessageContents")

    sqs.before = refuse
    with pytest.raises(RefusedRowError):
        finish(make(sqs, stride=BATCH), *dealt_in("a", 12))
    assert sqs.bodies() == ["a1", "a2"]
