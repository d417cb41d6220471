"""A write that cannot go on says why, in a line without content, and sends nothing of the bad row's group after it."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sqs_fifo_spark.local import Faults
from tests.spark.sink import held_in
from tests.spark.support import Rig, failure, own_line, running
from tests.spark.test_logs import ATTRIBUTE, BODY, CONTROL, require_no_secret, run_at_debug_level

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.law("sink-1")

SCHEMA = "body STRING, messageGroupId STRING, messageDeduplicationId STRING"
TEN_MINUTES_S = 600


def raised(call: Callable[[], object]) -> str:
    with pytest.raises(Exception, match="sqs_fifo_spark") as told:
        call()
    return str(told.value)


def rows(*bodies: str, bad: int = -1, padding: int = 0) -> list[dict[str, Any]]:
    """Rows whose group is the letters of the body; the one at the position `bad` has an empty one instead."""
    return [
        {
            "body": "" if number == bad else f"{BODY} {body} {'x' * padding}",
            "messageGroupId": body.rstrip("0123456789"),
            "messageDeduplicationId": body,
        }
        for number, body in enumerate(bodies)
    ]


def write_file(folder: Path, name: str, given: Iterable[dict[str, Any]]) -> None:
    """Write the rows as one partition: Spark does not split what is compressed."""
    folder.mkdir(exist_ok=True)
    draft = folder / f".{name}"
    draft.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in given).encode(), 1))
    draft.rename(folder / f"{name}.gz")


def in_queue(rig: Rig) -> dict[str, list[str]]:
    """Return the queue's messages by group, oldest first, without what begins and ends each body."""
    return by_group(message.body.split(" ")[1] for message in held_in(rig.server, rig.url))


def table(rig: Rig, given: list[dict[str, Any]]) -> DataFrame:
    return rig.spark.createDataFrame(given, SCHEMA).coalesce(1)


def save(frame: DataFrame, mode: str = "append", **options: Any) -> None:
    frame.write.format("sqsfifo").mode(mode).options(**{name: str(value) for name, value in options.items()}).save()


def start(rig: Rig, frame: DataFrame, mode: str = "append", **options: Any) -> AbstractContextManager[StreamingQuery]:
    writer = frame.writeStream.format("sqsfifo").outputMode(mode)
    options = {"checkpointLocation": rig.home / "checkpoint", **options}
    return running(writer.options(**{name: str(value) for name, value in options.items()}).start())


def files(rig: Rig) -> DataFrame:
    return rig.spark.readStream.schema(SCHEMA).json(str(rig.home / "files"))


def test_a_wrong_option_is_told_before_the_first_row(rig: Rig) -> None:
    """In one line of ours: of a table what is no option, of a stream what the queue does not do; nothing is sent."""
    said = own_line(raised(lambda: save(table(rig, rows("a1")), queueUrl=rig.url, messageGroup="a")))
    assert re.fullmatch(r"OptionError: unknown option '\w+'\. Did you mean 'messageGroupId'\?", said)
    write_file(rig.home / "files", "1.json", rows("a1"))
    with start(rig, files(rig), queueUrl=rig.url, deduplication="content") as query:
        said = own_line(failure(query))
    assert re.fullmatch(r"OptionError: .+ has no ContentBasedDeduplication, so SQS would refuse .+", said)
    assert set(rig.server.requests.counts()) <= {"GetQueueAttributes"}


def test_what_would_replace_the_queues_content_is_refused(rig: Rig) -> None:
    """A table's overwrite, and a stream's complete mode, each with what to use."""
    said = own_line(raised(lambda: save(table(rig, rows("a1")), "overwrite", queueUrl=rig.url)))
    assert said == "UnsupportedWriteError: messages can only be added to a queue: use mode('append')."
    write_file(rig.home / "files", "1.json", rows("a1"))
    counted = files(rig).groupBy("messageGroupId").count().selectExpr("messageGroupId", "string(count) AS body")
    with start(rig, counted, "complete", queueUrl=rig.url, deduplication="content") as query:
        assert own_line(failure(query)).startswith("UnsupportedWriteError: output mode 'complete' writes the whole ")
    assert not rig.server.requests.counts()


BODIES = [f"g{chr(97 + number % 20)}{number}" for number in range(220)]
PADDING = 350_000
BAD = 215
"""More than a task holds stands before it, so that some rows are sent before it is seen."""


def by_group(bodies: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for body in bodies:
        found.setdefault(body[:2], []).append(body)
    return found


def _assert_told(rig: Rig, text: str) -> None:
    """The error names the row and how many were sent; the queue holds as many, each group up to the bad row."""
    said = re.fullmatch(
        r"RowError: row (\d+) of partition 0 cannot be sent: its body is empty\. (\d+) rows of the partition "
        r"were sent, none of its group after it\. Correct such rows, filter them out .+",
        own_line(text),
    )
    assert said, text
    assert int(said[1]) == BAD + 1
    found = in_queue(rig)
    assert 0 < sum(map(len, found.values())) == int(said[2])
    for group, sent in found.items():
        end = BAD if BODIES[BAD].startswith(group) else None
        assert sent == [body for body in BODIES[:end] if body.startswith(group)][: len(sent)]
    assert BODY not in text


def test_bad_rows_are_kept_elsewhere_and_everything_else_is_sent(rig: Rig) -> None:
    """Of a table and of a stream, which Spark's JSON reader finds as they were; their groups are held, no other one."""
    given = rows(*BODIES, bad=BAD)
    kept = str(rig.home / "refused")
    write_file(rig.home / "files", "1.json", given)
    options: dict[str, Any] = {"queueUrl": rig.url, "badRecordsPath": kept, "journalLocation": rig.home / "journal"}
    with start(rig, files(rig), **options) as query:
        query.processAllAvailable()
        query_id = query.id
    held = [number for number in range(BAD, len(BODIES)) if BODIES[number][:2] == BODIES[BAD][:2]]
    assert in_queue(rig) == by_group(body for number, body in enumerate(BODIES) if number not in held)
    found = rig.spark.read.option("recursiveFileLookup", "true").json(kept).orderBy("rowNumber").collect()
    assert [line["rowNumber"] for line in found] == [number + 1 for number in held]
    assert (found[0]["reason"], found[0]["row"]["body"], found[0]["query"]) == ("its body is empty", "", query_id)
    save(table(rig, given[BAD:]), txnAppId="again", txnVersion=1, **options)
    assert len(list(Path(kept).glob("again/*/*.json"))) == len(held)


def test_what_an_aborted_micro_batch_sent_is_recognised_at_the_restart(rig: Rig) -> None:
    """However late: without the bad row the micro-batch runs again, and each row stands in the queue once, in order.

    The bad row has ended the write with its number, and with how many rows were sent.
    """
    write_file(rig.home / "files", "1.json", rows(*BODIES, bad=BAD, padding=PADDING))
    options: dict[str, Any] = {"queueUrl": rig.url, "journalLocation": rig.home / "journal"}
    with start(rig, files(rig), **options) as query:
        _assert_told(rig, failure(query))
    rig.server.advance(TEN_MINUTES_S)
    with start(rig, files(rig).where("body != ''"), **options) as query:
        query.processAllAvailable()
    assert in_queue(rig) == by_group(BODIES[:BAD] + BODIES[BAD + 1 :])


@pytest.mark.long
def test_no_log_and_no_error_of_a_sink_holds_a_body_or_a_credential(rig: Rig, tmp_path: Path) -> None:
    """Driver and workers log everything, through faults and bad rows; an aborted batch says how much stays sent.

    The control: plain boto3 calls in the same processes, beside ours, show bodies and tokens of their own.
    """
    control = rig.create_queue("control.fifo")
    rig.call("SendMessage", QueueUrl=control, MessageBody=CONTROL, MessageGroupId="g", MessageDeduplicationId="d")
    given = [{**row, "messageAttributes": {"a": ATTRIBUTE}} for row in rows(*(f"g{n % 9}x{n}" for n in range(40)))]
    bad = [{**row, "messageDeduplicationId": row["messageDeduplicationId"] + "-bad"} for row in given]
    write_file(tmp_path / "rows", "1.json", given)
    write_file(tmp_path / "bad", "1.json", bad[:20])
    write_file(tmp_path / "bad", "2.json", [*bad[20:], {**bad[0], "body": f"{BODY}\x00"}])
    rig.server.faults = Faults(seed=1, throttle=0.1, drop_answer=0.05, fail_entry=0.1)
    log = run_at_debug_level("sink_logs.py", rig, control)
    places = [f"{what} of a {kind}" for kind in ("table", "stream") for what in ("plan", "worker", "commit")]
    for where in places:
        assert f"control call in the {where}" in log
    for failed in ("the table", "the stream", "the option"):
        assert f"{failed} failed: " in log
    assert "its body has a character that SQS does not take, U+0000" in log
    for what in ("the batch write", "micro-batch 0"):
        assert re.search(rf"WARNING sqs_fifo_spark\.sink\.writer .*{what} was aborted\. Its finished partitions, ", log)
    require_no_secret(log, "OPTION-5e0a44")
