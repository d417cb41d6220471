"""The first query that a newcomer sees."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.support import Rig, assert_each_once
from tests.unit.test_readme import README, snippets


def test_first_query_of_the_readme_reads_a_queue(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands there, but for queue and place, and that it ends when the queue is empty."""
    code = next(snippets(README))
    for there, here in (
        ("https://sqs.eu-west-1.amazonaws.com/123456789012/bids.fifo", rig.url),
        ("/data/bids", str(rig.home)),
    ):
        assert there in code
        code = code.replace(there, here)
    sent = rig.send(20, groups=2)
    monkeypatch.setattr(StreamingQuery, "awaitTermination", lambda query: rig.drain(query))
    exec(code, {})
    assert_each_once([row.message_id for row in rig.rows()], sent)
