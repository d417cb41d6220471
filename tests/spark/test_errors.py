"""A query that cannot go on says why, in one line that its user can find."""

from __future__ import annotations

import re
import shutil

import pytest
from pyspark.errors import AnalysisException

from tests.helpers import wait_until
from tests.spark.support import LONG_S, Rig, assert_each_once, failure, running


def _own_line(text: str) -> str:
    """Return what our error says, of all that Spark puts around it."""
    lines = re.findall(r"sqs_fifo_spark\.errors\.(\w+: .+)", text)
    assert lines, f"none of our errors stands in: {text}"
    return str(lines[-1])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"visibilityTimeout": "60"}, r"OptionError: unknown option '\w+'\. Did you mean 'visibilityTimeoutSeconds'\?"),
        (
            {"queueUrl": None},
            r"OptionError: option 'queueUrl' is missing\. URL of the FIFO queue, such as `https://.+/orders\.fifo`\.",
        ),
        ({"journalLocation": None}, r"OptionError: option 'journalLocation' is missing\. .+"),
        ({"numPartitions": "many"}, r"OptionError: option 'numPartitions' is 'many'; it must be a whole number .+"),
        ({"queueUrl": "https://sqs.eu-west-1.amazonaws.com/123456789012/bids"}, r"NotFifoQueueError: .+ '\.fifo'\. .+"),
    ],
)
def test_a_wrong_option_is_told_at_load(rig: Rig, changed: dict[str, str | None], message: str) -> None:
    """Where the user wrote it, in one line, before anything is asked of the queue."""
    options = {name: value for name, value in {**rig.options(), **changed}.items() if value is not None}
    with pytest.raises(AnalysisException) as raised:
        rig.spark.readStream.format("sqsfifo").options(**options).load()
    assert re.fullmatch(message, _own_line(str(raised.value)))
    assert not rig.server.requests.counts()


def test_a_wrong_option_beside_a_schema_of_the_user_is_told_by_the_query(rig: Rig) -> None:
    """Spark builds the source only then; the line is the same, and nothing was asked of the queue."""
    source = rig.spark.readStream.format("sqsfifo").schema("body STRING").options(**rig.options(), waitTime="3").load()
    with rig.to_function(source, lambda batch, _: None) as query:
        assert re.fullmatch(
            r"OptionError: unknown option '\w+'\. Did you mean 'waitTimeSeconds'\?", _own_line(failure(query))
        )
    assert not rig.server.requests.counts()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("text STRING", r"SchemaError: the schema names a column 'text', which this source does not have\. .+"),
        ("receiveCount STRING", r"SchemaError: the schema gives column 'receiveCount' the type string; it is int\. .+"),
    ],
)
def test_a_wrong_schema_stops_the_query_before_the_first_receive(rig: Rig, schema: str, message: str) -> None:
    """In one line of ours, which Spark's own errors do not bury."""
    rig.send(1, groups=1)
    source = rig.spark.readStream.format("sqsfifo").schema(schema).options(**rig.options()).load()
    with rig.to_function(source, lambda batch, _: None) as query:
        assert re.fullmatch(message, _own_line(failure(query)))
    assert not rig.server.requests.counts().get("ReceiveMessage")


def test_a_read_as_a_table_is_refused(rig: Rig) -> None:
    """A queue is a stream: the error names what to use."""
    with pytest.raises(Exception, match=r"UnsupportedReadError: 'sqsfifo' is a stream: use spark\.readStream"):
        rig.spark.read.format("sqsfifo").options(**rig.options()).load().collect()


def test_a_second_query_on_one_journal_fences_the_first(rig: Rig) -> None:
    """The older query stops and says what happened; the newer one goes on and delivers what comes."""
    old_rows: list[str] = []
    new_rows: list[str] = []
    sent = rig.send(50, groups=10)
    source = rig.source()
    with rig.to_function(
        source, lambda batch, _: old_rows.extend(row.messageId for row in batch.collect()), checkpoint="old"
    ) as old:
        rig.drain(old)
        with rig.to_function(
            rig.source(), lambda batch, _: new_rows.extend(row.messageId for row in batch.collect()), checkpoint="new"
        ) as new:
            line = _own_line(failure(old))
            assert re.fullmatch(
                r"FencedError: another query or an operator took over the journal at "
                rf"'{re.escape(str(rig.journal))}' .+ "
                r"give the other one its own journalLocation\.",
                line,
            )
            sent |= rig.send(50, groups=10)
            rig.drain(new)
    assert_each_once(old_rows + new_rows, sent)


def test_asynchronous_progress_tracking_is_refused(rig: Rig) -> None:
    """It commits late and skips epochs: the query stops with its second micro-batch, and nothing is deleted."""
    rig.send(30)
    writer = rig.source().writeStream.format("noop").option("checkpointLocation", str(rig.home / "async"))
    writer = writer.option("asyncProgressTrackingEnabled", "true")
    with running(writer.start()) as query:
        # Spark commits once more as it ends; where the source's process is gone by then, it never says that it ended.
        wait_until(lambda: query.exception() is not None, LONG_S, "the query fails")
        line = _own_line(str(query.exception()))
    assert re.fullmatch(r"OptionError: Spark plans epoch 2 .+ 'asyncProgressTrackingEnabled'\. .+", line)
    assert sum(rig.depth()) == 30


def test_a_journal_of_another_queue_is_refused(rig: Rig) -> None:
    """Nothing is received, and the line names both queues."""
    with rig.to_parquet(rig.source()):
        wait_until((rig.journal / "journal.json").exists, LONG_S, "the journal is made")
        wait_until(lambda: rig.server.waiting, LONG_S, "the query polls")
    other = rig.create_queue("other.fifo")
    rig.send(10, url=other)
    rig.server.requests.clear()
    with rig.to_function(rig.source(queueUrl=other), lambda batch, _: None, checkpoint="other") as query:
        line = _own_line(failure(query))
    assert re.fullmatch(r"JournalMismatchError: .+:test\.fifo', not to '.+:other\.fifo'\. .+", line)
    assert not [each for each in rig.server.requests.recent("ReceiveMessage") if each.outcome == "ok"]


def test_a_replay_whose_journal_is_gone_fails_and_says_so(rig: Rig) -> None:
    """The checkpoint refers to epochs that only the journal held."""
    rig.send(50, groups=5)
    with rig.to_parquet(rig.source()) as query:
        rig.drain(query)
    shutil.rmtree(rig.journal)
    with rig.to_parquet(rig.source()) as query:
        line = _own_line(failure(query))
    assert re.fullmatch(
        rf"DataLossError: '{re.escape(str(rig.journal))}' holds no journal, .+ set failOnDataLoss to false; .+", line
    )


def test_a_replay_without_journal_goes_on_if_the_user_says_so(rig: Rig) -> None:
    """`failOnDataLoss=false` takes what the queue still holds."""
    rig.send(50, groups=5)
    with rig.to_parquet(rig.source()) as query:
        rig.drain(query)
    shutil.rmtree(rig.journal)
    rig.send(50, groups=5)
    with rig.to_parquet(rig.source(failOnDataLoss="false")) as query:
        rig.drain(query)
    assert_each_once((row.message_id for row in rig.rows()), rig.sent)


def test_a_queue_that_does_not_exist_stops_the_query_with_one_line(rig: Rig) -> None:
    """At the first call, before any message is received."""
    missing = rig.url.replace("test.fifo", "missing.fifo")
    with rig.to_parquet(rig.source(queueUrl=missing)) as query:
        line = _own_line(failure(query))
    assert re.fullmatch(rf"QueueNotFoundError: the queue '{re.escape(missing)}' does not exist .+", line)
