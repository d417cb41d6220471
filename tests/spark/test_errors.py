"""A query that cannot go on says why, in one line that its user can find."""

from __future__ import annotations

import re

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from tests.helpers import wait_until
from tests.spark.support import LONG_S, Rig, assert_each_once, failure, own_line, running


def test_a_wrong_option_is_told_at_load(rig: Rig) -> None:
    """Where the user wrote it, in one line, before anything is asked of the queue."""
    with pytest.raises(AnalysisException) as raised:
        rig.spark.readStream.format("sqsfifo").options(**rig.options(), visibilityTimeout="60").load()
    assert re.fullmatch(
        r"OptionError: unknown option '\w+'\. Did you mean 'visibilityTimeoutSeconds'\?", own_line(str(raised.value))
    )
    assert not rig.server.requests.counts()


def test_a_wrong_queue_is_told_at_load(rig: Rig) -> None:
    """After one call. A right one takes one, too, and none when the frame is looked at; nor has a new load another."""
    with pytest.raises(AnalysisException) as raised:
        rig.source(queueUrl=rig.server.queue_url("tests.fifo"))
    line = own_line(str(raised.value))
    assert re.fullmatch(r"QueueNotFoundError: the queue '.+/tests\.fifo' does not exist .+ Correct 'queueUrl'\.", line)
    assert rig.server.requests.counts() == {"GetQueueAttributes": 1}
    for _ in range(2):
        rig.source().select("body").explain()
    assert rig.server.requests.counts() == {"GetQueueAttributes": 2}
    with pytest.raises(Exception, match=r"UnsupportedReadError: 'sqsfifo' is a stream: use spark\.readStream"):
        rig.spark.read.format("sqsfifo").options(**rig.options()).load().collect()


@pytest.mark.parametrize(
    ("schema", "wrong", "said"),
    [
        ("body STRING", {"waitTime": "3"}, r"OptionError: unknown option '\w+'\. Did you mean 'waitTimeSeconds'\?"),
        ("text STRING", {}, r"SchemaError: the schema names a column 'text', which this source does not have\. .+"),
    ],
)
def test_what_is_wrong_beside_or_in_a_schema_of_the_user_is_told_by_the_query(
    rig: Rig, schema: str, wrong: dict[str, str], said: str
) -> None:
    """Spark builds the source only then; the line is the same, before the first receive."""
    rig.send(1)
    source = rig.spark.readStream.format("sqsfifo").schema(schema).options(**rig.options(), **wrong).load()
    with rig.to_function(source, lambda batch, _: None) as query:
        assert re.fullmatch(said, own_line(failure(query)))
    assert not rig.server.requests.counts().get("ReceiveMessage")


def test_a_second_query_takes_the_journal_over(rig: Rig) -> None:
    """The older one stops, and is refused for good; a third one does the same under AvailableNow, in its first run."""
    rows: list[str] = []

    def collect(batch: DataFrame, _: int) -> None:
        rows.extend(row.messageId for row in batch.collect())

    sent = rig.send(20, groups=10)
    with rig.to_function(rig.source(), collect, checkpoint="old") as old:
        rig.drain(old)
        with rig.to_function(rig.source(), collect, checkpoint="new") as new:
            line = own_line(failure(old))
            assert re.fullmatch(
                r"FencedError: another query or an operator took over the journal at "
                rf"'{re.escape(str(rig.journal))}' .+ "
                r"give the other one its own journalLocation\.",
                line,
            )
            sent |= rig.send(20, groups=10)
            rig.drain(new)
    assert_each_once(rows, sent)
    rig.send(1)
    with rig.to_function(rig.source(), collect, checkpoint="third", availableNow=True) as third:
        assert third.awaitTermination(int(LONG_S))
    for checkpoint in ("old", "new"):
        with rig.to_function(rig.source(), collect, checkpoint=checkpoint) as query:
            assert own_line(failure(query)).startswith("DataLossError: the journal at ")


def test_asynchronous_progress_tracking_is_refused(rig: Rig) -> None:
    """It commits late and skips epochs: the query stops with its second micro-batch, and nothing is deleted."""
    rig.send(30)
    writer = rig.source().writeStream.format("noop").option("checkpointLocation", str(rig.home / "async"))
    writer = writer.option("asyncProgressTrackingEnabled", "true")
    with running(writer.start()) as query:
        # Spark commits once more as it ends; where the source's process is gone by then, it never says that it ended.
        wait_until(lambda: query.exception() is not None, LONG_S, "the query fails")
        line = own_line(str(query.exception()))
    assert re.fullmatch(r"OptionError: Spark plans epoch 2 .+ 'asyncProgressTrackingEnabled'\. .+", line)
    assert sum(rig.depth()) == 30
