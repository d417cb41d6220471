"""The first queries that a newcomer sees."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.support import Rig, assert_each_once
from tests.unit.test_readme import README, snippets


@pytest.fixture
def ends_when_drained(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def drain(query: StreamingQuery, timeout: float | None = None) -> bool:
        rig.drain(query)
        query.stop()
        return True

    monkeypatch.setattr(StreamingQuery, "awaitTermination", drain)


def run(code: str, places: dict[str, str]) -> None:
    for there, here in places.items():
        assert there in code
        code = code.replace(there, here)
    exec(code, {})


def test_first_query_of_the_readme_reads_a_queue(rig: Rig, ends_when_drained: None) -> None:
    """As it stands there, but for queue and place, and that it ends when the queue is empty."""
    sent = rig.send(20, groups=2)
    there = "https://sqs.eu-west-1.amazonaws.com/123456789012/bids.fifo"
    run(next(snippets(README)), {there: rig.url, "/data/bids": str(rig.home)})
    assert_each_once([row.message_id for row in rig.rows()], sent)


def test_query_of_the_readme_for_a_local_queue_shows_a_message(rig: Rig, ends_when_drained: None) -> None:
    """The second one, in the same way; what Spark prints stands in a table here."""
    rig.send(1, groups=1)
    here = {
        "http://127.0.0.1:9324/000000000000/bids.fifo": rig.url,
        "/tmp/local": str(rig.home),
        '.format("console")': '.format("memory").queryName("printed")',
    }
    run(list(snippets(README))[1], here)
    assert [tuple(row) for row in rig.spark.table("printed").collect()] == [("group-0", "body 0")]
