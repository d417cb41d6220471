"""Refused rows are kept elsewhere: each row is in the queue or there, and a replay finds it where it was."""

from __future__ import annotations

import base64
import json
import logging
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from sqs_fifo_spark.aws.credentials import CONNECT_TIMEOUT_S
from sqs_fifo_spark.errors import DisorderError, JournalCorruptError, JournalUnavailableError, OptionError, RowError
from sqs_fifo_spark.options import bad_records_queue, parse_sink_options
from sqs_fifo_spark.sink.keepers import PLACE, QueueKeeper
from sqs_fifo_spark.sink.record import SentRecord
from sqs_fifo_spark.sink.recorder import DISORDER
from sqs_fifo_spark.sink.sink_queue import SinkQueue, UnsentError
from sqs_fifo_spark.sink.summary import compare
from sqs_fifo_spark.sink.window import SEND_BUDGET_S
from sqs_fifo_spark.sink.write import Draft, Place, Sent, SinkPlan
from tests.helpers import wait_until
from tests.unit.sending import (
    LONG_S,
    THROTTLED,
    Hang,
    Noted,
    Sqs,
    Store,
    Task,
    batch,
    failure,
    numbered,
    patched,
    raising,
    refusal,
    rows,
    wait_for_threads,
)
from tests.unit.sink.test_outgoing import damaged
from tests.unit.sink.test_write import TEN_MINUTES_S, drafted, error, planned, run

pytestmark = pytest.mark.law("sink-1")

URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/bids.fifo"
US_QUEUE = "https://sqs.us-east-1.amazonaws.com/123456789012/bad.fifo"
VPC_ENDPOINT = "https://vpce-1-2.sqs.eu-west-1.vpce.amazonaws.com"
CONTINUE: dict[str, Any] = {"badRecordsGroup": "continue"}
IN_ORDER = ["a1", "a2", None, "b1", "x1", "x2", "a3", "b2"]
"""A row without body is one of group x."""


@pytest.fixture
def kept() -> Store:
    return Store()


def lines(kept: Store, below: str = "") -> list[dict[str, Any]]:
    """Kept lines, by row number."""
    return sorted(
        (json.loads(data) for name, data in rows_in(kept).items() if name.startswith(below)),
        key=lambda line: line["rowNumber"],
    )


def rows_in(kept: Store) -> dict[str, bytes]:
    """The objects that hold refused rows."""
    return {name: data for name, data in kept.objects.items() if name.endswith(".json")}


def numbers(kept: Store) -> list[int]:
    return [line["rowNumber"] for line in lines(kept)]


def plan_of(sqs: Sqs, kept: Store, *, store: Store | None = None, **options: Any) -> SinkPlan:
    return planned(sqs, store, refused=kept, badRecordsPath="/kept", **options)


def tasks(
    sqs: Sqs, kept: Store, *parts: Sequence[str | None], store: Store | None = None, **options: Any
) -> list[Sent]:
    """Run micro-batch 1, with a place for refused rows and a task for each part."""
    plan = plan_of(sqs, kept, store=store, **options)
    given = enumerate(batch(*part) for part in parts)
    return [run(sqs, store, rows, plan=plan, refused=kept, place=Place(at, "q", 1)) for at, rows in given]


def write(sqs: Sqs, kept: Store, *bodies: str | None, store: Store | None = None, **options: Any) -> Sent:
    """Run it with one task."""
    (sent,) = tasks(sqs, kept, bodies, store=store, **options)
    return sent


# Both kinds of refusal


@pytest.mark.parametrize(("group", "order"), [("hold", "strict"), ("continue", "strict"), ("continue", "batch")])
def test_a_row_that_we_refuse_is_kept_and_other_groups_go_on(sqs: Sqs, kept: Store, group: str, order: str) -> None:
    """With `hold` what stands behind it in its group is kept, too, and not what stands before it."""
    sqs.may_batch = True
    sent = write(sqs, kept, "x0", *IN_ORDER, badRecordsGroup=group, order=order)
    held = ["x1", "x2"] if group == "hold" else []
    assert sqs.bodies("x") == [body for body in ("x0", "x1", "x2") if body not in held]
    assert (sqs.bodies("a"), sqs.bodies("b")) == (["a1", "a2", "a3"], ["b1", "b2"])
    behind = "it stands behind row 4 of its message group, which is refused"
    assert [line["reason"] for line in lines(kept)] == ["its body is null", *[behind] * len(held)]
    assert (sent.rows, sent.counts.refused, sent.counts.known) == (9, 1 + len(held), 0)


@pytest.mark.parametrize("group", ["hold", "continue"])
@pytest.mark.parametrize("is_whole_call", [False, True])
def test_a_row_that_sqs_refuses_is_kept_and_other_groups_go_on(
    sqs: Sqs, kept: Store, group: str, is_whole_call: bool
) -> None:
    """SQS refuses the entry, or the whole call; nothing is sent twice for it."""
    sqs.refuse("a2")
    whole = refusal("InvalidMessageContents", message="Invalid characters found.")
    sqs.before = raising(whole, lambda bodies: is_whole_call and "a2" in bodies)
    sent = write(sqs, kept, "a1", "b1", "a2", "a3", "b2", "c1", badRecordsGroup=group)
    assert sqs.bodies("a") == (["a1"] if group == "hold" else ["a1", "a3"])
    assert (sqs.bodies("b"), sqs.bodies("c")) == (["b1", "b2"], ["c1"])
    assert numbers(kept) == ([3, 4] if group == "hold" else [3])
    said = "Invalid characters found" if is_whole_call else "no"
    assert lines(kept)[0]["reason"] == (f"it has characters that SQS does not take (InvalidMessageContents: {said})")
    assert sent.rows == 6 == len(sqs.bodies()) + sent.counts.refused
    assert sqs.duplicates == 0


def test_a_refused_row_is_durable_before_its_group_goes_on(sqs: Sqs, kept: Store, hang: Hang) -> None:
    """Its group waits for it; other groups do not."""
    kept.on_step = lambda event: hang() if event.startswith("before put q/") else None
    sqs.refuse("a2")
    task = Task(lambda: write(sqs, kept, "a1", "a2", "a3", *numbered("b", 9), **CONTINUE))
    wait_until(lambda: len(sqs.bodies("b")) == 9, LONG_S, "the other group is sent")
    assert (sqs.bodies("a"), lines(kept)) == (["a1"], [])
    hang.end()
    assert task.end() is None
    assert (sqs.bodies("a"), numbers(kept)) == (["a1", "a3"], [2])


def test_what_cannot_be_kept_fails_the_task(sqs: Sqs, kept: Store) -> None:
    """Its group does not go on, and the row is not dropped."""
    plan = plan_of(sqs, kept, **CONTINUE)
    kept.lies_about = lambda name: "refuse"
    said = error(JournalUnavailableError, sqs, None, batch("x1", None, "x2"), plan=plan, refused=kept)
    assert said.startswith("row 2 of partition 0 is refused, and cannot be kept in 'memory': cannot write 'q/")
    assert sqs.bodies() == ["x1"]


# Replays


@pytest.mark.parametrize("has_journal", [False, True])
@pytest.mark.parametrize("group", ["hold", "continue"])
def test_a_replay_keeps_each_refused_row_once(
    sqs: Sqs, store: Store, kept: Store, group: str, has_journal: bool
) -> None:
    """However often it runs, in other partitions, later, with another verdict: sent and refused are what came in."""
    sqs.refuse("a2")
    given = ["a1", "b1", "a2", None, "a3", "x1", "b2"]

    def once(*parts: list[str | None]) -> int:
        all_sent = tasks(sqs, kept, *parts, store=store if has_journal else None, badRecordsGroup=group)
        assert sum(each.rows for each in all_sent) == len(given)
        return sum(each.counts.refused for each in all_sent)

    refused = once(given)
    before = rows_in(kept)
    sqs.failing = lambda body: None
    sqs.clock.advance(TEN_MINUTES_S if has_journal else 60)
    assert once([each for each in given if each and each[0] in "ab"], [None, "x1"]) == refused
    assert once(given) == refused
    assert rows_in(kept) == before, "a replay writes the same objects, and says nothing else in them"
    assert refused == len(lines(kept)) == len(given) - len(sqs.bodies())
    assert set(sqs.bodies()).isdisjoint(line["row"]["body"] for line in lines(kept))


@pytest.mark.parametrize("order", ["strict", "batch"])
def test_no_row_is_left_out_for_an_equal_one_that_is_refused(sqs: Sqs, store: Store, kept: Store, order: str) -> None:
    """But for one that is sent; a replay delivers the same, and the figures are those of all rows."""
    sqs.may_batch = True
    sqs.refuse("a1")
    given = batch("a1", "a2", "a3")
    ids = pa.array(["i"] * 3, pa.string())
    given = given.set_column(given.schema.names.index("messageDeduplicationId"), "messageDeduplicationId", ids)
    plan = plan_of(sqs, kept, store=store, order=order, **CONTINUE)
    sent = run(sqs, store, given, plan=plan, refused=kept)
    assert (sqs.bodies(), [line["row"]["body"] for line in lines(kept)]) == (["a2"], ["a1"])
    assert (sent.rows, sent.counts.known, sent.counts.equal, sent.counts.refused) == (3, 0, 1, 1)
    sqs.clock.advance(TEN_MINUTES_S)
    again = run(sqs, store, given, plan=plan, refused=kept)
    assert (sqs.bodies(), numbers(kept)) == (["a2"], [1])
    assert again.rows == again.counts.known + again.counts.equal + again.counts.refused == 3


def test_rows_that_were_kept_stay_so_when_the_one_before_them_is_mended(sqs: Sqs, store: Store, kept: Store) -> None:
    """They are there already, and what follows them is held behind them; what is new is sent."""
    write(sqs, kept, None, "x1", "x2", store=store)
    assert numbers(kept) == [1, 2, 3]
    sent = write(sqs, kept, "x0", "x1", "x2", "x3", store=store)
    assert sqs.bodies() == ["x0"]
    assert {line["row"]["body"] for line in lines(kept)} == {None, "x1", "x2", "x3"}
    assert sent.counts.refused == 3


def test_a_row_that_is_known_as_sent_is_not_refused(monkeypatch: pytest.MonkeyPatch, store: Store, kept: Store) -> None:
    """The queue takes less than it did; nor does a group that is held now change what was sent before."""
    sqs = patched(monkeypatch)
    long = "a" + "1" * 2_000
    write(sqs, kept, long, "a2", store=store)
    assert sqs.bodies() == [long, "a2"]
    sqs.model.call("SetQueueAttributes", {"QueueUrl": sqs.url, "Attributes": {"MaximumMessageSize": "1024"}})
    sent = write(sqs, kept, long, "a2", store=store)
    assert (sent.counts.known, sent.counts.refused, lines(kept)) == (2, 0, [])
    with_new = write(sqs, kept, long, "a2", "a" + "2" * 2_000, "a4", store=store)
    assert (with_new.counts.known, with_new.counts.refused, numbers(kept)) == (2, 2, [3, 4])


def test_a_row_that_was_sent_is_not_taken_for_an_equal_one_that_was_held(sqs: Sqs, kept: Store) -> None:
    """Without a journal, too: the one behind the refused row is its second copy whenever the task runs."""
    sqs.refuse("a3")
    for _ in range(2):
        assert write(sqs, kept, "a1", "a2", "a3", "a1", badRecordsGroup="hold").counts.refused == 2
        assert (sqs.bodies(), numbers(kept)) == (["a1", "a2"], [3, 4])


@pytest.mark.parametrize("dies", [False, True])
def test_equal_rows_of_two_tasks_are_kept_as_often_as_they_are_there(sqs: Sqs, kept: Store, dies: bool) -> None:
    """In one run, in one that goes on where another has died, and in one in which other tasks have them."""

    def once(*parts: list[str | None]) -> int:
        plan = plan_of(sqs, kept, **CONTINUE)
        given = [(Place(at, "q", 1), batch(*bodies)) for at, bodies in enumerate(parts) for _ in range(2)]
        return (
            sum(run(sqs, None, rows, plan=plan, refused=kept, place=place).counts.refused for place, rows in given) // 2
        )

    if dies:
        once([None, None])
    assert once([None, None], [], [None]) == len(lines(kept)) == 3
    assert once([None], [None, None]) == len(lines(kept)) == 3


def test_equal_rows_of_many_tasks_cost_few_calls(sqs: Sqs, kept: Store) -> None:
    """Each looks once at the places that others have filled, also in a later run."""
    parts, count = 4, 30
    for _ in range(2):
        plan = plan_of(sqs, kept, **CONTINUE)
        for partition in range(parts):
            kept.steps.clear()
            run(sqs, None, batch(*[None] * count), plan=plan, refused=kept, place=Place(partition, "q", 1))
            assert kept.count("before ") <= 4 * parts * count + 10
    assert len(lines(kept)) == parts * count


def test_a_task_that_only_refuses_rows_looks_for_disorder_too(sqs: Sqs, store: Store, kept: Store) -> None:
    """With `onDisorder=fail` it ends no better than one that sends."""
    plan = plan_of(sqs, kept, store=store, onDisorder="fail", journalLocation="/j", **CONTINUE)
    before = SentRecord(store, sqs.clock, query="q", batch="1", run="018bcfe568007f11", partition=3)
    before.add([DISORDER], by=math.inf)
    said = error(DisorderError, sqs, store, batch(None), plan=plan, refused=kept)
    assert "an earlier attempt found rows of this micro-batch" in said
    assert lines(kept) == []


def test_a_foreign_object_among_the_refused_rows_is_one_clear_line(sqs: Sqs, kept: Store) -> None:
    write(sqs, kept, None, **CONTINUE)
    (name,) = rows_in(kept)
    kept.objects[name] = b"\xff"
    plan = plan_of(sqs, kept, **CONTINUE)
    said = error(JournalCorruptError, sqs, None, batch(None), plan=plan, refused=kept)
    assert f"'{name}' below badRecordsPath, 'memory', is not what the sink has put there" in said


def test_a_good_row_is_not_refused_for_an_equal_one_of_another_task(sqs: Sqs, kept: Store) -> None:
    """Its equal is held behind a refused row, in the same run."""
    tasks(sqs, kept, [None, "x1"], ["x1"])
    assert (sqs.bodies(), len(lines(kept))) == (["x1"], 2)


def test_a_row_beside_an_equal_one_of_another_task_stays_refused(sqs: Sqs, kept: Store) -> None:
    """It has the second place, where its task finds it when it is tried again, though the queue takes it by now."""
    sqs.refuse("a1")
    plan = plan_of(sqs, kept, **CONTINUE)
    for partition in 0, 1, 1:
        sent = run(sqs, None, batch("a1", "a1"), plan=plan, refused=kept, place=Place(partition, "q", 1))
        assert (sqs.bodies(), sent.counts.refused) == ([], 2)
        if partition:
            sqs.failing = lambda body: None
    assert len(lines(kept)) == 4


def test_what_one_queue_refuses_another_takes(sqs: Sqs, kept: Store) -> None:
    """Both writes of a function for `foreachBatch` may have one place for refused rows."""
    sqs.refuse("a1")
    assert write(sqs, kept, "a1", "a2", badRecordsGroup="hold").counts.refused == 2
    other = sqs.model.call("CreateQueue", {"QueueName": "other.fifo", "Attributes": {"FifoQueue": "true"}})["QueueUrl"]
    sqs.failing = lambda body: None
    sent = write(sqs, kept, "a1", "a2", queueUrl=other)
    assert (sent.counts.refused, [each.draft.body for each in sqs.model.messages("other.fifo")]) == (0, ["a1", "a2"])
    assert {line["queue"].rpartition(":")[2] for line in lines(kept)} == {"q.fifo"}


def test_a_refused_row_counts_as_one_of_its_group(sqs: Sqs, kept: Store) -> None:
    """So the driver sees that a group stands in two partitions, of which one has nothing of it to send."""
    sent = tasks(sqs, kept, [None, "x2"], ["x3"])
    assert compare([(each.place.partition, each.summary) for each in sent]).groups == 1


def test_a_refused_row_whose_put_hangs_fails_the_task_in_time(sqs: Sqs, kept: Store, hang: Hang) -> None:
    """It is not waited for; its group does not go on."""
    kept.on_step = lambda event: hang() if event.startswith("before put q/") else None
    plan = plan_of(sqs, kept, **CONTINUE)
    task = Task(lambda: run(sqs, None, batch("a1", None, "x2"), plan=plan, refused=kept))
    sqs.clock.turn_until(task.is_over)
    hang.end()
    wait_for_threads()
    assert isinstance(task.error, JournalUnavailableError)
    assert "a refused row is held up: it is not kept 175 s after that began." in str(task.error)
    assert "x2" not in sqs.bodies()


def test_an_attempt_whose_answer_is_lost_keeps_nothing_that_was_sent(sqs: Sqs, kept: Store) -> None:
    """SQS's word on a row counts; its silence on others does not."""
    sqs.lose()
    sqs.refuse("b1")
    sent = write(sqs, kept, "a1", "b1", "c1")
    assert (sorted(sqs.bodies()), numbers(kept), sent.counts.refused) == (["a1", "c1"], [2], 1)


# What stands there


def test_a_line_says_all_of_the_row(sqs: Sqs, kept: Store) -> None:
    """Bytes stand in base64 under a name of their own; attributes as they were, twice or not UTF-8."""
    offsets = pa.array([0, 2, 3], pa.int32())
    given = pa.RecordBatch.from_arrays(
        [
            pa.array([b"\xff\x00", "é".encode()], pa.binary()),
            pa.array(["g", "g"]),
            pa.array(["d", "e"]),
            pa.MapArray.from_arrays(offsets, pa.array(["k", "k", "n"]), damaged(b"1", b"2", b"\xfe")),
            pa.array(["Root=1", None]),
            pa.array([1, 2]),
        ],
        ["body", "messageGroupId", "messageDeduplicationId", "messageAttributes", "awsTraceHeader", "receiveCount"],
    )
    plan = plan_of(sqs, kept, **CONTINUE)
    run(sqs, None, given, plan=plan, refused=kept, place=Place(4, "q", 9))
    first, second = lines(kept, "q/00000000000000000009/")
    ids = {"messageGroupId": "g", "messageDeduplicationId": "d"}
    assert first["row"] == {
        **ids,
        "bodyBase64": base64.b64encode(b"\xff\x00").decode(),
        "messageAttributes": [{"name": "k", "stringValue": "1"}, {"name": "k", "stringValue": "2"}],
        "awsTraceHeader": "Root=1",
    }
    assert {name: value for name, value in first.items() if name not in ("row", "time")} == {
        "queue": "arn:aws:sqs:us-east-1:000000000000:q.fifo",
        "run": plan.draft.run,
        "copy": 1,
        "reason": "its body is not UTF-8 (byte 0)",
        "query": "q",
        "batch": 9,
        "partition": 4,
        "rowNumber": 1,
    }
    assert first["time"].endswith("+00:00")
    attribute = {"name": "n", "stringValueBase64": base64.b64encode(b"\xfe").decode()}
    assert (second["row"]["body"], second["row"]["messageAttributes"]) == ("é", [attribute])
    assert all(data.count(b"\n") == 1 for name, data in kept.objects.items() if name != PLACE)


def draft_of(sqs: Sqs, kept: Store) -> Draft:
    """Return what the driver pickles to the tasks while SQS throttles it."""
    sqs.not_described = THROTTLED
    plan = drafted(sqs, refused=kept, badRecordsPath="/kept")
    sqs.not_described = None
    assert isinstance(plan, Draft)
    return plan


@pytest.mark.parametrize("make_plan", [plan_of, draft_of])
def test_a_task_takes_only_the_drivers_place(sqs: Sqs, kept: Store, make_plan: Callable[[Sqs, Store], Any]) -> None:
    """Elsewhere it would keep rows where nobody finds them, in what an earlier query left there too."""
    plan, elsewhere = make_plan(sqs, kept), Store()
    plan_of(sqs, elsewhere)
    for other in (Store(), elsewhere):
        said = error(JournalUnavailableError, sqs, None, batch("a1", None), plan=plan, refused=other)
        assert said.startswith("this executor does not find the driver's badRecordsPath at 'memory'")
        assert numbers(other) == []
    assert sqs.calls == []


def test_a_task_that_looks_for_itself_makes_no_place(sqs: Sqs, kept: Store) -> None:
    """It says why the driver, which makes it, could not."""
    kept.fails = lambda call: True
    plan = draft_of(sqs, kept)
    kept.fails = lambda call: False
    assert error(JournalUnavailableError, sqs, None, batch("a1"), plan=plan, refused=kept) == (
        f"cannot get '{PLACE}' So the driver, which makes the badRecordsPath at 'memory', could not, and this task "
        "does not."
    )
    assert (kept.objects, sqs.calls) == ({}, [])


def test_the_first_refused_row_is_logged(sqs: Sqs, kept: Store, caplog: pytest.LogCaptureFixture) -> None:
    """By its task, once, with its reason; the driver logs how many there were."""
    with caplog.at_level(logging.WARNING):
        write(sqs, kept, "a1", None, None, "x2")
    assert caplog.messages == [
        "row 2 of partition 0 is refused, and kept in 'memory': its body is null. How many there are is logged when "
        "the write ends."
    ]


# Limits


@pytest.mark.parametrize("most", [1, 2, 3])
def test_more_refused_rows_than_allowed_end_the_write(sqs: Sqs, kept: Store, most: int) -> None:
    """Each attempt counts all of its partition, those that were kept before, too."""
    plan = planned(sqs, refused=kept, badRecordsPath="/kept", badRecordsMax=str(most))
    for _ in range(2):
        said = error(RowError, sqs, None, batch(None, "x1", "x2", "x3"), plan=plan, refused=kept)
        assert said.startswith(
            f"row {most + 1} of partition 0 cannot be sent: it stands behind row 1 of its message group, which is "
            f"refused. It is one refused row more than the {most} that badRecordsMax allows each task; those are in "
            "'memory'."
        )
        assert len(lines(kept)) == most
    assert sqs.bodies() == []
    assert write(sqs, kept, None, "x1", "x2", "x3", badRecordsMax="4").counts.refused == 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"badRecordsPath": "/b", "badRecordsQueueUrl": f"{URL[:-5]}2.fifo"}, "are both given"),
        ({"badRecordsGroup": "hold"}, "'badRecordsGroup' is given without 'badRecordsPath'"),
        ({"badRecordsMax": "3"}, "'badRecordsMax' is given without 'badRecordsPath'"),
        ({"badRecordsPath": "/b", "badRecordsGroup": "hold", "order": "batch"}, "may send a row in one call with"),
        ({"badRecordsQueueUrl": URL}, "is the queue that is written to"),
        ({"badRecordsPath": "/j", "journalLocation": "/j"}, "are the same place"),
        ({"badRecordsQueueUrl": US_QUEUE, "endpointUrl": VPC_ENDPOINT}, "'endpointUrl' and 'badRecordsQueueUrl' name"),
        ({"badRecordsPath": "b"}, "a path must be absolute"),
        ({"badRecordsPath": "/b", "badRecordsGroup": "skip"}, "it must be continue or hold"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str], said: str) -> None:
    """In one line that says what to do."""
    assert said in failure(OptionError, parse_sink_options, {"queueUrl": URL, **options})


@pytest.mark.parametrize(
    ("path", "journal"),
    [
        ("/j/", "/j"),
        ("//j", "/j"),
        ("/a//j", "/a/j"),
        ("file:///j", "/j"),
        ("file:///my%20j", "/my j"),
        ("/j/sent", "/j"),
        ("/j", "/"),
        ("/data", "file:///data/j"),
        ("s3a://b/j/", "s3://b/j"),
        ("s3://b", "s3://b/j"),
        ("S3://b/j/bad", "s3://b/j"),
        ("abfss://c@a.dfs.core.windows.net/j/bad", "abfs://c@a.dfs.core.windows.net/j"),
    ],
)
def test_refused_rows_and_journal_are_apart_however_their_places_are_spelt(path: str, journal: str) -> None:
    """Neither inside the other: the sink would take a refused row for a damaged object of the journal."""
    for one, other in ((path, journal), (journal, path)):
        given = {"queueUrl": URL, "badRecordsPath": one, "journalLocation": other}
        said = failure(OptionError, parse_sink_options, given)
        assert "are the same place, or one is inside the other" in said


@pytest.mark.parametrize(
    ("path", "journal"),
    [
        ("/j2", "/j"),
        ("/a/j", "/j"),
        ("/J", "/j"),
        ("s3://b/j2", "s3://b/j"),
        ("s3://b2/j", "s3://b/j"),
        ("s3://b", "/b"),
    ],
)
def test_places_beside_each_other_are_apart(path: str, journal: str) -> None:
    """Names are compared whole."""
    assert parse_sink_options({"queueUrl": URL, "badRecordsPath": path, "journalLocation": journal})


@pytest.mark.parametrize(
    ("option", "value"), [("journalCredentials", "chain"), ("journalEndpointUrl", "http://127.0.0.1:1")]
)
def test_what_is_said_of_s3_holds_for_refused_rows_too(option: str, value: str) -> None:
    """They are reached as the journal is, with one or without; where neither is on S3, it would have no effect."""
    for others in ({}, {"journalLocation": "/j"}):
        assert parse_sink_options({"queueUrl": URL, "badRecordsPath": "s3://b/k", option: value, **others})
    for others, told in (
        ({}, "neither 'journalLocation' nor 'badRecordsPath' nor 'payloadLocation' is given"),
        ({"journalLocation": "/j"}, "'journalLocation' is '/j', which is not on S3"),
        ({"badRecordsPath": "gs://b/k"}, "'badRecordsPath' is 'gs://b/k', which is not on S3"),
        (
            {"badRecordsPath": "/k", "journalLocation": "/j"},
            "'journalLocation' is '/j', which is not on S3, and 'badRecordsPath' is '/k', which is not on S3",
        ),
    ):
        given = {"queueUrl": URL, option: value, **others}
        said = f"option '{option}' is given, and {told}, so it would have no effect. Leave {option} out."
        assert failure(OptionError, parse_sink_options, given) == said


@pytest.mark.parametrize(
    ("given", "url", "region", "endpoint"),
    [
        ({}, "https://sqs.us-east-2.amazonaws.com/1/bad.fifo", "us-east-2", None),
        ({}, "http://127.0.0.1:1/0/bad.fifo", "eu-west-1", "http://127.0.0.1:1"),
        ({"endpointUrl": "http://h:2"}, "http://127.0.0.1:1/0/bad.fifo", "eu-west-1", "http://h:2"),
    ],
)
def test_the_other_queue_is_called_where_its_url_says(
    given: dict[str, str], url: str, region: str, endpoint: str | None
) -> None:
    """The user's choice holds for both."""
    options = bad_records_queue(parse_sink_options({"queueUrl": URL, "badRecordsQueueUrl": url, **given}))
    assert options is not None
    assert (options.queue_url, options.region, options.endpoint_url) == (url, region, endpoint)


# To a queue


class Both:
    """A queue, and one for refused rows beside it in the same account."""

    def __init__(self, sqs: Sqs) -> None:
        self._sqs = sqs
        request = {"QueueName": "bad.fifo", "Attributes": {"FifoQueue": "true"}}
        self.url: str = sqs.model.call("CreateQueue", request)["QueueUrl"]
        options = bad_records_queue(sqs.options(badRecordsQueueUrl=self.url))
        assert options is not None
        self.queue = SinkQueue(options, sqs.clock)

    def write(
        self,
        *bodies: str | None,
        store: Store | None = None,
        places: Sequence[Place] = (Place(0, "q", 1),),
        **options: Any,
    ) -> Sent:
        """Run a write whose tasks all have these rows, and return what the last one sent."""
        plan = planned(self._sqs, store, refused=self.queue, badRecordsQueueUrl=self.url, **options)
        for place in places:
            sent = run(self._sqs, store, batch(*bodies), plan=plan, refused=self.queue, place=place)
        return sent

    def refused(self) -> list[tuple[str | None, int]]:
        found = self._sqs.model.messages("bad.fifo")
        return [(each.draft.group_id, json.loads(each.draft.body)["rowNumber"]) for each in found]


@pytest.mark.parametrize("later_s", [60, TEN_MINUTES_S])
def test_refused_rows_go_to_a_queue_once_in_order_and_in_their_groups(sqs: Sqs, store: Store, later_s: int) -> None:
    """SQS knows a row that is sent again for 5 minutes; the record knows it later, too."""
    both = Both(sqs)
    sqs.refuse("a2")
    for _ in range(2):
        sent = both.write("a1", "a2", "b1", None, "a3", "x1", store=store)
        assert (sent.rows, sent.counts.refused) == (6, 4)
        sqs.clock.advance(later_s)
        sqs.failing = lambda body: None
    assert sorted(sqs.bodies()) == ["a1", "b1"]
    found = both.refused()
    assert [each for each in found if each[0] == "a"] == [("a", 2), ("a", 5)]
    assert [each for each in found if each[0] == "x"] == [("x", 4), ("x", 6)]
    assert len(found) == 4


def test_equal_refused_rows_of_two_writes_or_two_tasks_are_messages_of_their_own(sqs: Sqs) -> None:
    """Within the 5 minutes of SQS's memory, too."""
    both = Both(sqs)
    for place in Place(0, "q", 1), Place(0, "q", 2), Place(0, "other", 2), Place(1, "q", 1):
        both.write(None, places=[place] * 2)
    assert both.refused() == [("x", 1)] * 4


def test_an_equal_row_of_a_task_that_did_not_end_is_not_lost(sqs: Sqs, store: Store) -> None:
    """The record's mark of a refused row says whose it is. In other partitions it may come twice, to one place."""
    both, first, second, third = Both(sqs), *(Place(partition, "q", 1) for partition in range(3))
    both.write(None, store=store, places=[first])
    both.write(None, store=store, places=[first, second])
    assert both.refused() == [("x", 1)] * 2
    both.write(None, store=store, places=[second, third])
    assert (both.refused(), sqs.bodies()) == ([("x", 1)] * 3, [])


def test_what_was_refused_stays_so_in_another_partition(sqs: Sqs, store: Store) -> None:
    """Even if the queue would take it by now."""
    both = Both(sqs)
    sqs.refuse("a1")
    for partition in 0, 1:
        both.write("a1", "b1", store=store, places=[Place(partition, "q", 1)])
        sqs.failing = lambda body: None
    assert sqs.bodies() == ["b1"]


def test_a_refused_row_that_its_queue_throttles_waits(sqs: Sqs) -> None:
    """No task fails for throttling alone."""
    both, until = Both(sqs), sqs.clock.monotonic() + 250
    sqs.before = raising(THROTTLED, lambda bodies: bodies[0].startswith("{") and sqs.clock.monotonic() < until)
    assert both.write("a1", None, "x2", badRecordsGroup="continue").counts.refused == 1
    assert (sorted(sqs.bodies()), both.refused()) == (["a1", "x2"], [("x", 2)])


def test_a_row_that_the_other_queue_has_is_never_sent(sqs: Sqs, store: Store) -> None:
    """The task ends between that queue's answer and the journal's; and then the first queue would take the row."""
    both, limits = Both(sqs), {"QueueUrl": sqs.url, "Attributes": {"MaximumMessageSize": "1024"}}
    sqs.model.call("SetQueueAttributes", limits)
    long = "a" + "1" * 2_000
    plan = planned(sqs, store, refused=both.queue, badRecordsQueueUrl=both.url)
    sqs.after = lambda bodies, answer: store.fail_at("before put sent/") if bodies[0].startswith("{") else None
    error(JournalUnavailableError, sqs, store, batch(long), plan=plan, refused=both.queue, place=Place(0, "q", 1))
    store.calm()
    sqs.after = lambda bodies, answer: None
    assert (both.refused(), sqs.bodies()) == ([("a", 1)], [])
    sqs.model.call("SetQueueAttributes", {**limits, "Attributes": {"MaximumMessageSize": "1048576"}})
    sqs.clock.advance(TEN_MINUTES_S)
    both.write(long, store=store)
    assert sqs.bodies() == []


def test_a_line_that_is_too_large_for_the_other_queue_leaves_no_mark(sqs: Sqs, store: Store) -> None:
    """Else the row would stay refused, and be nowhere, once the first queue takes it."""
    both = Both(sqs)
    small, large = ({"MaximumMessageSize": size} for size in ("1024", "1048576"))
    for url in sqs.url, both.url:
        sqs.model.call("SetQueueAttributes", {"QueueUrl": url, "Attributes": small})
    long = "a" + "1" * 2_000
    plan = planned(sqs, store, refused=both.queue, badRecordsQueueUrl=both.url)
    said = error(RowError, sqs, store, batch(long), plan=plan, refused=both.queue, place=Place(0, "q", 1))
    assert "larger than the 1,024 of a message there" in said
    sqs.model.call("SetQueueAttributes", {"QueueUrl": sqs.url, "Attributes": large})
    both.write(long, store=store)
    assert (sqs.bodies(), both.refused()) == ([long], [])


@pytest.mark.parametrize("after_s", [0.0, 29.0, 65.0])
def test_a_refused_row_is_tried_no_longer_after_the_look_than_others(sqs: Sqs, after_s: float) -> None:
    """Another attempt may have sent it there since, and recorded it."""
    both, tries = Both(sqs), list[float]()
    record = Noted(looked_at=sqs.clock.monotonic())
    latest = sqs.clock.monotonic() + SEND_BUDGET_S + CONNECT_TIMEOUT_S

    def throttle(bodies: list[str]) -> None:
        tries.append(sqs.clock.monotonic())
        raise THROTTLED

    sqs.before = throttle
    keeper = QueueKeeper(both.queue, both.url, record, "q/1/0")
    sqs.clock.advance(after_s)
    with pytest.raises(UnsentError):
        keeper.keep(rows("a1")[0], "content", b"{}", threading.Event())
    assert tries
    assert max(tries) <= latest


def test_a_refused_row_that_does_not_go_to_the_queue_either_fails_its_task(sqs: Sqs) -> None:
    """Without a group, larger than a message, or refused there: one error for both reasons."""
    both = Both(sqs)
    plan = planned(sqs, refused=both.queue, badRecordsQueueUrl=both.url)
    ungrouped = batch("a1").set_column(1, "messageGroupId", pa.array([None], pa.string()))
    said = error(RowError, sqs, None, ungrouped, plan=plan, refused=both.queue)
    assert said.startswith(
        "row 1 cannot be sent (its messageGroupId is null), nor to 'badRecordsQueueUrl': it has no message group to be "
        "sent in. Correct such rows, or filter them out before the sink."
    )
    said = error(RowError, sqs, None, batch("a" + "1" * 1_048_576), plan=plan, refused=both.queue)
    assert "nor to 'badRecordsQueueUrl': its line of 1,04" in said
    sqs.failing = lambda body: ("InvalidMessageContents", True) if body.startswith("{") else None
    said = error(RowError, sqs, None, batch(None), plan=plan, refused=both.queue)
    assert "(its body is null), nor to 'badRecordsQueueUrl': it has characters" in said
    assert both.refused() == []


@pytest.mark.parametrize(("part", "spelling"), [("q.fifo", "q.fifo/"), ("127.0.0.1", "LOCALHOST"), (":9324", "")])
def test_no_spelling_of_the_queues_own_url_takes_refused_rows(sqs: Sqs, part: str, spelling: str) -> None:
    """Its consumers would take them for messages: the two are compared by their ARNs, before the first row."""
    url = sqs.url.replace(part, spelling)
    options = bad_records_queue(sqs.options(badRecordsQueueUrl=url))
    assert options is not None
    with pytest.raises(OptionError, match="option 'badRecordsQueueUrl' is the queue that is written to"):
        planned(sqs, refused=SinkQueue(options, sqs.clock), badRecordsQueueUrl=url)


# What is the queue's fault, not a row's


@pytest.mark.parametrize("shows", [True, False], ids=["at once", "later"])
@pytest.mark.parametrize("keeps", [False, True])
def test_content_based_deduplication_switched_off_meanwhile_blames_no_row(
    monkeypatch: pytest.MonkeyPatch, kept: Store, keeps: bool, shows: bool
) -> None:
    """The queue is asked again, which may show it a minute later than SQS acts upon it; nothing is kept as refused."""
    sqs = patched(monkeypatch, ContentBasedDeduplication="true")
    place = kept if keeps else None
    options: dict[str, Any] = {"badRecordsPath": "/kept"} if keeps else {}
    plan = planned(sqs, by_column=False, refused=place, **options)
    before = sqs.get_queue_attributes(QueueUrl=sqs.url, AttributeNames=["All"])
    off = {"QueueUrl": sqs.url, "Attributes": {"ContentBasedDeduplication": "false"}}
    sqs.model.call("SetQueueAttributes", off)
    if not shows:
        monkeypatch.setattr(sqs, "get_queue_attributes", lambda **_: before)
    said = error(OptionError, sqs, None, batch("a1", "b1", "c1", "a2"), plan=plan, refused=place)
    assert "was switched off during the write, so SQS refuses each row. Turn it on again. 0 rows" in str(said)
    assert "messageDeduplicationId" not in str(said), "with ids, what was sent without would be sent again"
    assert (sqs.bodies(), lines(kept)) == ([], [])
