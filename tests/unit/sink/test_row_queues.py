"""Rows that name their queues: each queue is in order and recorded by itself, and a wrong one refuses its rows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import StringType, StructField, StructType

from sqs_fifo_spark.errors import (
    AccessDeniedError,
    NotFifoQueueError,
    OptionError,
    QueueRequestError,
    RowError,
    TransientQueueError,
)
from sqs_fifo_spark.options import SinkOptions, bad_records_queue, parse_sink_options, queue_of_row
from sqs_fifo_spark.sink.lanes import Lanes, Stride
from sqs_fifo_spark.sink.offload import PayloadForm
from sqs_fifo_spark.sink.outgoing import OutgoingRow, RowForm, outgoing, queues_of
from sqs_fifo_spark.sink.row_queues import RowQueues
from sqs_fifo_spark.sink.rows import rows_to_arrow, sink_schema, uses_deduplication_column, with_known_names
from sqs_fifo_spark.sink.sink_queue import SinkQueue
from sqs_fifo_spark.sink.summary import compare, finding
from sqs_fifo_spark.sink.window import CONFIRM_BUDGET_S, SEND_BUDGET_S
from sqs_fifo_spark.sink.write import Place, Sent, send_partition
from tests.helpers import wait_until
from tests.unit.sending import LONG_S, LOST, Hang, Sqs, Store, Task, failure, group_of, refusal
from tests.unit.sink.test_outgoing import damaged
from tests.unit.sink.test_write import TEN_MINUTES_S, error, planned, run

pytestmark = pytest.mark.law("sink-1", "sink-2", "sink-3")

ARN = "arn:aws:sqs:us-east-1:000000000000:q.fifo"
URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/q.fifo"
VPC = "https://vpce-1-2.sqs.eu-west-1.vpce.amazonaws.com"
GONE = "http://127.0.0.1:9324/000000000000/gone.fifo"
Given = tuple[str | None, str | None]
"""A row's queue and its body."""


@pytest.fixture(autouse=True)
def other(sqs: Sqs) -> str:
    """A second queue, r.fifo."""
    return sqs.create("r.fifo")


def named(*rows: Given) -> pa.RecordBatch:
    """Return Spark's rows: the group is the letters of the body, the id all of it."""
    queues, bodies = zip(*rows, strict=True)
    groups = [group_of(body or "x") for body in bodies]
    columns = {
        "body": bodies,
        "messageGroupId": groups,
        "messageDeduplicationId": [body or "x" for body in bodies],
        "queueUrl": queues,
    }
    return pa.RecordBatch.from_pydict({name: pa.array(values, pa.string()) for name, values in columns.items()})


def to(queue: str | None, *bodies: str | None) -> list[Given]:
    return [(queue, body) for body in bodies]


def write(sqs: Sqs, *rows: Given, store: Store | None = None, kept: Store | None = None, **options: Any) -> Sent:
    """Run one task of micro-batch 1."""
    if kept is not None:
        options["badRecordsPath"] = "/kept"
    plan = planned(sqs, store, refused=kept, by_column=options.get("deduplication") != "content", **options)
    return run(sqs, store, named(*rows), plan=plan, refused=kept, place=Place(0, "q", 1))


def refused(kept: Store) -> list[dict[str, Any]]:
    found = (json.loads(data) for name, data in kept.objects.items() if name.endswith(".json"))
    return sorted(found, key=lambda line: line["rowNumber"])


# Where rows go


@pytest.mark.parametrize("order", ["strict", "batch"])
def test_each_row_goes_to_its_own_queue_in_the_order_of_its_group_there(sqs: Sqs, order: str) -> None:
    """A row that names none goes to the option's queue. All rows of a call are of one queue."""
    sqs.may_batch = order == "batch"
    bodies = [f"{group}{number}" for number in range(30) for group in "abc"]
    rows = [(("r.fifo", None, "q.fifo")[at % 3 if at % 2 else 0], body) for at, body in enumerate(bodies)]
    sent = write(sqs, *rows, order=order)
    assert sent.rows == 90
    for group in "abc":
        for queue, names in (("r.fifo", ("r.fifo",)), ("q.fifo", (None, "q.fifo"))):
            expected = [body for name, body in rows if name in names and group_of(body) == group]
            assert sqs.bodies(group, queue) == expected
    queue_of = {body: name or "q.fifo" for name, body in rows}
    for url, call in zip(sqs.urls, sqs.calls, strict=True):
        assert {queue_of[body] for body in call} == {url.rpartition("/")[2]}


def test_equal_groups_of_two_queues_do_not_wait_for_each_other(sqs: Sqs, hang: Hang) -> None:
    sqs.before = lambda bodies: hang() if "a0" in bodies else None
    task = Task(lambda: write(sqs, *to(None, "a0", "a1"), *to("r.fifo", "a2", "a3")))
    hang.wait()
    wait_until(lambda: sqs.bodies("a", "r.fifo") == ["a2", "a3"], LONG_S, "the other queue has its rows")
    assert sqs.bodies("a") == []
    hang.end()
    assert task.end() is None
    assert sqs.bodies("a") == ["a0", "a1"]


def test_queues_have_turns(sqs: Sqs) -> None:
    """Of two queues with many groups, none waits for all of the other."""
    lanes = Lanes(Stride(), lambda digest: False)
    given = [
        OutgoingRow(at, f"{queue}\ng{at}", {}, 1, b"%d" % at, queue=queue)
        for at, queue in enumerate([*["x"] * 25, *["y"] * 25])
    ]
    lanes.add(given)
    calls = []
    while rows := lanes.take():
        (queue,) = {row.queue for row in rows}
        calls.append((queue, len(rows)))
    assert calls == [("x", 10), ("y", 10), ("x", 10), ("y", 10), ("x", 5), ("y", 5)]


@pytest.mark.parametrize(
    "spelling", ["r.fifo", "arn:aws:sqs:us-east-1:000000000000:r.fifo", "http://127.0.0.1:9324/000000000000/r.fifo"]
)
def test_a_queue_is_one_however_rows_name_it(sqs: Sqs, store: Store, other: str, spelling: str) -> None:
    """It is asked once for its settings, its groups are in one order, and its rows are known in any spelling."""
    sent = write(sqs, (other, "a1"), (spelling, "a2"), (other, "a3"), (spelling, "a4"), store=store)
    assert (sqs.bodies("a", "r.fifo"), sent.counts.known) == (["a1", "a2", "a3", "a4"], 0)
    assert len(sqs.described) == 2  # that of the option, too
    sqs.clock.advance(TEN_MINUTES_S)
    assert write(sqs, *to(spelling, "a1", "a2", "a3", "a4"), store=store).counts.known == 4


@pytest.mark.parametrize("spelling", [None, "q.fifo", ARN])
def test_the_options_queue_is_one_however_rows_name_it(sqs: Sqs, store: Store, spelling: str | None) -> None:
    """It is not asked again."""
    write(sqs, *to(None, "a1", "b1"), store=store)
    sqs.clock.advance(TEN_MINUTES_S)
    assert write(sqs, *to(spelling, "a1", "b1", "a2"), store=store).counts.known == 2
    assert sqs.bodies() == ["a1", "b1", "a2"]
    assert len(sqs.described) == 2


# What is known


def test_rows_without_the_column_have_the_digests_that_they_always_had() -> None:
    """Else the record of what was sent before would be worth nothing. Those of another queue have others."""
    columns: list[list[Any]] = [["x"], ["g"], ["d"], [None], [None]]
    form = RowForm(None, True, 1_000)
    (plain,) = outgoing(columns, form, first_row=1)
    assert plain.digest.hex() == "8c9370b3a928c7e79eeea792f39877b82a80a14de8cc3f22"
    digests = {plain.digest}
    for queue in ("us-east-1/1/r.fifo", "us-east-1/2/r.fifo"):
        (row,) = outgoing(columns, [dataclasses.replace(form, queue=queue, queue_url=queue)], first_row=1)
        assert (row.digest[:2], row.queue) == (plain.digest[:2], queue)  # the same shard
        digests.add(row.digest)
    assert len(digests) == 3


def test_a_replay_sends_only_what_each_queue_lacks(sqs: Sqs, store: Store) -> None:
    """Rows with the same group and id are two where their queues are."""
    write(sqs, *to(None, "a1", "b1"), *to("r.fifo", "a1"), store=store)
    sqs.clock.advance(TEN_MINUTES_S)
    sent = write(sqs, *to(None, "a1", "b1"), *to("r.fifo", "a1", "b1"), store=store)
    assert (sent.counts.known, sent.counts.equal) == (3, 0)
    assert sorted(sqs.bodies()) == ["a1", "b1"]
    assert sorted(sqs.bodies(queue="r.fifo")) == ["a1", "b1"]


def test_equal_rows_are_equal_in_one_queue_only(sqs: Sqs, store: Store) -> None:
    sent = write(sqs, *to(None, "a1", "a1"), *to("r.fifo", "a1", "a1", "a1"), store=store)
    assert sent.counts.equal == 3
    assert (sqs.bodies(), sqs.bodies(queue="r.fifo")) == (["a1"], ["a1"])


def test_the_driver_compares_groups_by_queue(sqs: Sqs) -> None:
    """A group of one queue that stands in two partitions is told with its queue; equal names of two are not."""
    plan = planned(sqs)
    parts = [to(None, "a1") + to("r.fifo", "b1"), to("r.fifo", "a2", "b2")]
    sent = [run(sqs, None, named(*rows), plan=plan, place=Place(at, "q", 1)) for at, rows in enumerate(parts)]
    overlap = compare([(each.place.partition, each.summary) for each in sent])
    assert overlap.groups == 1
    line = finding(overlap, "micro-batch 1", sqs.options())
    assert "such as 'b' of 'us-east-1/000000000000/r.fifo' in partitions 0 and 1." in line


# Wrong queues


@pytest.mark.parametrize(
    ("queue", "reason"),
    [
        ("nothing here", "its queueUrl is 'nothing here'; it must be a queue's URL, ARN, or name, such as bids.fifo"),
        ("", "its queueUrl is ''; it must be a queue's URL, ARN, or name, such as bids.fifo"),
        (
            "plain",
            "its queueUrl is 'plain', a standard queue: the name of a FIFO queue ends in '.fifo'. A standard queue "
            "has no message groups, and no order",
        ),
        (
            "https://me:secret@sqs.eu-west-1.amazonaws.com/1/r.fifo",
            "its queueUrl holds a password; credentials come from the AWS chain (environment, profile, instance role) "
            "or from options of their own, such as 'roleArn', never from a URL",
        ),
        ("x" * 1_025, "its queueUrl has 1,025 characters"),
        (
            "gone.fifo",
            f"its queueUrl is wrong: the queue '{GONE}' does not exist (get_queue_attributes: "
            "AWS.SimpleQueueService.NonExistentQueue). Correct 'queueUrl'",
        ),
    ],
)
def test_a_row_for_a_wrong_queue_is_refused_as_a_wrong_row_is(sqs: Sqs, queue: str, reason: str) -> None:
    """It is kept elsewhere, or fails the task; the rest of its group of that queue stands behind it, and no other."""
    kept = Store()
    rows = [*to(None, "a1", "b1"), *to(queue, "a2", "a3"), *to("r.fifo", "a4"), *to(None, "a5")]
    sent = write(sqs, *rows, kept=kept)
    assert (sent.rows, sent.counts.refused) == (6, 2)
    assert (sqs.bodies("a"), sqs.bodies("b"), sqs.bodies("a", "r.fifo")) == (["a1", "a5"], ["b1"], ["a4"])
    first, second = refused(kept)
    assert (first["reason"], second["reason"]) == (reason, reason)
    assert {line["row"]["queueUrl"] for line in (first, second)} == {queue}
    said = error(RowError, sqs, None, named(*rows))
    assert f"row 3 of partition 0 cannot be sent: {reason}. 0 rows of the partition were sent" in said
    assert "secret" not in said


def test_a_queue_url_that_is_not_utf_8_is_refused(sqs: Sqs) -> None:
    batch = named(("r.fifo", "a1"))
    batch = batch.set_column(batch.schema.get_field_index("queueUrl"), "queueUrl", damaged(b"\xffr.fifo"))
    assert "row 1 of partition 0 cannot be sent: its queueUrl is not UTF-8." in error(RowError, sqs, None, batch)


def test_a_wrong_queue_that_is_mended_refuses_what_is_kept_and_takes_the_rest(sqs: Sqs, store: Store) -> None:
    """Each row is in the queue or there; what the record knows of a queue that is gone since is not refused."""
    kept = Store()
    write(sqs, *to("new.fifo", "a1", "b1"), *to("r.fifo", "a1"), store=store, kept=kept)
    sqs.create("new.fifo")
    sqs.model.call("DeleteQueue", {"QueueUrl": GONE.replace("gone", "r")})
    again = [*to("new.fifo", "a1", "b1", "c1"), *to("r.fifo", "a1")]
    sent = write(sqs, *again, store=store, kept=kept)
    assert (sent.counts.refused, sent.counts.known, sqs.bodies(queue="new.fifo")) == (2, 1, ["c1"])
    assert len(refused(kept)) == 2


def test_kept_rows_without_the_column_have_the_lines_that_they_always_had(sqs: Sqs) -> None:
    """So a replay finds what an earlier version has kept."""
    kept = Store()
    write(sqs, *to(None, None), *to("q.fifo", None), kept=kept)
    plain, explicit = refused(kept)
    assert "queueUrl" not in plain["row"]
    assert explicit["row"]["queueUrl"] == "q.fifo"


def test_a_queue_without_content_based_deduplication_refuses_its_rows(sqs: Sqs) -> None:
    """Where the option's has it, and another one lacks it."""
    sqs.model.call("SetQueueAttributes", {"QueueUrl": sqs.url, "Attributes": {"ContentBasedDeduplication": "true"}})
    sqs.create("s.fifo", ContentBasedDeduplication="true")
    kept = Store()
    rows = [*to(None, "a1"), *to("r.fifo", "a2"), *to("s.fifo", "a3")]
    assert write(sqs, *rows, kept=kept, deduplication="content").counts.refused == 1
    assert refused(kept)[0]["reason"] == (
        "its queue 'http://127.0.0.1:9324/000000000000/r.fifo' has no ContentBasedDeduplication, and option "
        "'deduplication' is 'content'"
    )
    assert (sqs.bodies(), sqs.bodies(queue="s.fifo"), sqs.bodies(queue="r.fifo")) == (["a1"], ["a3"], [])


def test_a_queue_takes_what_is_small_enough_for_itself(sqs: Sqs) -> None:
    sqs.create("small.fifo", MaximumMessageSize="1024")
    kept = Store()
    rows = [*to("small.fifo", f"a{'1' * 1_100}"), *to(None, f"b{'1' * 120}")]
    columns = named(*rows).set_column(2, "messageDeduplicationId", pa.array(["1", "2"]))
    sent = run(sqs, None, columns, plan=planned(sqs, refused=kept, badRecordsPath="/kept"), refused=kept)
    assert sent.counts.refused == 1
    assert "the queue takes at most 1,024" in refused(kept)[0]["reason"]


def test_the_queue_of_refused_rows_takes_no_others(sqs: Sqs) -> None:
    """Its consumers would take them for refused ones: a row that names it is wrong."""
    options = sqs.options(badRecordsQueueUrl=GONE.replace("gone", "r"))
    bad = bad_records_queue(options)
    assert bad is not None
    queue = SinkQueue(bad, sqs.clock)
    plan = planned(sqs, refused=queue, badRecordsQueueUrl=GONE.replace("gone", "r"))
    sent = run(sqs, None, named(("r.fifo", "a1"), (None, "a2")), plan=plan, refused=queue)
    assert (sent.counts.refused, sqs.bodies()) == (1, ["a2"])
    (line,) = map(json.loads, sqs.bodies("a", "r.fifo"))
    assert line["reason"].startswith("its queueUrl, 'http://127.0.0.1:9324/000000000000/r.fifo', is the queue to which")
    assert line["row"]["queueUrl"] == "r.fifo"


def test_a_queue_that_the_credentials_may_not_see_refuses_its_rows(sqs: Sqs) -> None:
    plan, kept = planned(sqs, refused=(kept := Store()), badRecordsPath="/kept"), kept
    sqs.not_described = refusal("AccessDenied", 403)
    assert run(sqs, None, named(("r.fifo", "a1"), (None, "a2")), plan=plan, refused=kept).counts.refused == 1
    reason = refused(kept)[0]["reason"]
    assert reason.startswith("its queueUrl is wrong: AWS denied get_queue_attributes on 'http://127.0.0.1:9324/")
    assert "Grant the permission 'sqs:GetQueueAttributes' on the queue" in reason


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (LOST, TransientQueueError),
        (refusal("ThrottlingException"), TransientQueueError),
        (refusal("InternalFailure", 500), TransientQueueError),
        (refusal("ExpiredToken", 403), AccessDeniedError),
        (refusal("SignatureDoesNotMatch", 403), AccessDeniedError),
    ],
)
def test_a_queue_that_does_not_answer_refuses_no_row(
    sqs: Sqs, fault: BaseException, kind: type[TransientQueueError]
) -> None:
    """Nor do credentials that AWS does not take at all: the task fails, and what it has sent is counted."""
    kept = Store()
    plan = planned(sqs, refused=kept, badRecordsPath="/kept")
    sqs.not_described = fault

    def batches() -> Iterator[pa.RecordBatch]:
        yield named((None, "a1"))
        wait_until(lambda: sqs.bodies("a"), LONG_S, "the first row is in its queue")
        yield named(("r.fifo", "a2"))

    given = {"open_journal": lambda: None, "open_bad_records": lambda: kept, "clock": sqs.clock}
    queue = SinkQueue(plan.draft.options, sqs.clock)
    said = failure(kind, send_partition, plan, batches(), Place(0, "q", 1), queue=queue, **given)
    assert "1 rows of partition 0 were sent." in said
    assert not refused(kept)


def test_no_queue_is_looked_at_while_a_call_is_late(sqs: Sqs, hang: Hang) -> None:
    """The task fails in time, rather than after as many answers as there are new queues."""
    plan = planned(sqs)
    sqs.connect = lambda bodies: hang() if "a1" in bodies else None

    def batches() -> Iterator[pa.RecordBatch]:
        yield named((None, "a1"))
        hang.wait()
        sqs.clock.advance(SEND_BUDGET_S + CONFIRM_BUDGET_S)
        yield named(("r.fifo", "a2"))

    queue = SinkQueue(plan.draft.options, sqs.clock)
    place = Place(0, "q", 1)
    task = Task(lambda: send_partition(plan, batches(), place, queue=queue, open_journal=lambda: None, clock=sqs.clock))
    sqs.clock.turn_until(task.is_over)
    assert isinstance(task.error, TransientQueueError)
    assert "a call to SQS is held up" in str(task.error)
    assert len(sqs.described) == 1


@pytest.mark.parametrize("name", ["queueUrl", "QUEUEURL", "queueurl"])
def test_the_column_may_be_in_any_case(name: str) -> None:
    """As rows of Spark 4.0, and as Arrow batches of later ones."""
    given = StructType([StructField(each, StringType()) for each in ("body", "messageGroupId", name)])
    own = sink_schema(given)
    assert own.fieldNames() == ["body", "messageGroupId", "queueUrl"]
    assert not uses_deduplication_column(own, parse_sink_options({"queueUrl": URL, "deduplication": "content"}))
    as_arrow = rows_to_arrow([Row(body="x", group="g", queue=queue) for queue in ("r.fifo", None)], own)
    assert queues_of(as_arrow) == ["r.fifo", None]
    assert queues_of(with_known_names(as_arrow.rename_columns(["body", "messageGroupId", name]))) == ["r.fifo", None]
    assert queues_of(as_arrow.select(["body"])) is None


# The options of a row's queue


def named_by(given: str, **options: str) -> SinkOptions:
    return queue_of_row(parse_sink_options({"queueUrl": URL, **options}), given)


@pytest.mark.parametrize(
    ("given", "options", "expected"),
    [
        ("r.fifo", {}, (URL.replace("q.fifo", "r.fifo"), "eu-west-1", None)),
        ("r.fifo", {"queueUrl": f"{VPC}/1/q.fifo"}, (f"{VPC}/1/r.fifo", "eu-west-1", VPC)),
        (URL.replace("eu", "us"), {}, (URL.replace("eu", "us"), "us-west-1", None)),
        (URL, {"queueUrl": f"{VPC}/1/q.fifo"}, (URL, "eu-west-1", VPC)),
        (
            "arn:aws:sqs:us-east-1:123456789012:r.fifo",
            {},
            ("https://sqs.us-east-1.amazonaws.com/123456789012/r.fifo", "us-east-1", None),
        ),
    ],
)
def test_a_rows_queue_is_called_in_its_region_and_at_the_options_endpoint(
    given: str, options: dict[str, str], expected: tuple[str, str, str | None]
) -> None:
    """The credentials are the same."""
    found = named_by(given, **options, profile="p")
    assert (found.queue_url, found.region, found.endpoint_url) == expected
    assert found.profile == "p"


@pytest.mark.parametrize(
    ("given", "options", "why"),
    [
        ("https://example.com/1/r.fifo", {}, "its host is not AWS's standard one, and no row makes the sink call it."),
        (
            URL.replace("eu", "us"),
            {"queueUrl": f"{VPC}/1/q.fifo"},
            "it is in another region than eu-west-1, whose endpoint is called.",
        ),
    ],
)
def test_no_row_makes_the_sink_call_a_host_of_its_own(given: str, options: dict[str, str], why: str) -> None:
    """Its calls are signed, and hold the credentials' session token and the rows."""
    assert failure(OptionError, named_by, given, **options) == f"option 'queueUrl' is {given!r}; {why}"
    assert "standard queue" in failure(NotFifoQueueError, named_by, "r")


def test_large_bodies_of_two_queues_have_two_places(sqs: Sqs, other: str) -> None:
    """A reader of one queue deletes its own."""
    payloads = PayloadForm("s3://b/p", 10, "the write")
    options = sqs.options(payloadLocation="s3://b/p", payloadThresholdBytes="10")
    queues = RowQueues(options, ARN, RowForm(None, True, 1_000, payloads=payloads), sqs.clock)
    columns: list[list[Any]] = [["x" * 50] * 3, ["g"] * 3, ["d"] * 3, [None] * 3, [None] * 3]
    rows = outgoing(columns, map(queues.form, (None, "q.fifo", other)), first_row=1)
    urls = [row.payload.pointer.url for row in rows if row.payload is not None]
    assert (len(urls), urls[0], len(set(urls))) == (3, urls[1], 2)


R = "http://127.0.0.1:9324/000000000000/r.fifo"


def test_a_wrong_spelling_refuses_no_row_that_spells_its_queue_rightly(sqs: Sqs, store: Store) -> None:
    """A tab in a URL is one: some readers drop it."""
    kept = Store()
    wrong = R.replace("r.f", "r\t.f")
    sent = write(sqs, *to(wrong, "a1"), *to(R, "b1", "c1"), *to("r.fifo", "d1"), store=store, kept=kept)
    assert sent.counts.refused == 1
    assert [each["row"]["body"] for each in refused(kept)] == ["a1"]
    assert sorted(sqs.bodies(queue="r.fifo")) == ["b1", "c1", "d1"]


@pytest.mark.parametrize("path", ["000000000000//q.fifo", "x/queue/q.fifo"])
def test_a_queue_is_known_by_its_arn_however_it_is_spelled(sqs: Sqs, store: Store, path: str) -> None:
    """Else the record would not know rows that were sent there before."""
    write(sqs, *to(None, "a1", "b1"), store=store)
    sqs.clock.advance(TEN_MINUTES_S)
    sent = write(sqs, *to(f"http://127.0.0.1:9324/{path}", "a1", "b1"), store=store)
    assert sent.counts.known == 2
    assert sqs.bodies() == ["a1", "b1"]


@pytest.mark.parametrize("fault", [("404", 404), ("413", 413), ("SomethingNew", 400)])
def test_an_answer_that_says_nothing_of_the_queue_refuses_no_row(sqs: Sqs, fault: tuple[str, int]) -> None:
    """It may be a proxy's. The task fails, and nothing is lost."""
    kept = Store()
    plan = planned(sqs, refused=kept, badRecordsPath="/kept")
    sqs.not_described = refusal(*fault)
    with pytest.raises(QueueRequestError):
        run(sqs, None, named(("r.fifo", "a1"), (None, "a2")), plan=plan, refused=kept)
    assert not refused(kept)
