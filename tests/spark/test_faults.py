"""Faults of the queue while a query runs: it goes on, or stops with one line, and nothing is lost or doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sqs_fifo_spark.local import Faults, LocalQueueServer
from tests.spark.support import Rig, assert_each_once, assert_in_order

FAULTY = Faults(seed=7, throttle=0.1, server_error=0.05, drop_answer=0.05, fail_entry=0.05)


@pytest.fixture
def make_rig(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[str], Rig]]:
    """Make rigs with a server and a directory of their own. All queries end with the test."""
    servers: list[LocalQueueServer] = []

    def make(name: str) -> Rig:
        home = tmp_path / name
        home.mkdir()
        servers.append(LocalQueueServer())
        servers[-1].start()
        return Rig(spark, servers[-1], home)

    yield make
    for query in spark.streams.active:
        query.stop()
    for server in servers:
        server.stop()


def test_a_faulty_queue_drains_once_and_in_order_with_at_most_twice_the_requests(
    make_rig: Callable[[str], Rig],
) -> None:
    """A tenth of all calls throttled; of calls, answers and entries each twentieth lost: 20,000 messages of 500 groups.

    An answer that is lost is asked for again with its attempt id, so nothing waits for its visibility timeout.
    """
    requests: dict[str, int] = {}
    for name, faults in (("sound", Faults()), ("faulty", FAULTY)):
        rig = make_rig(name)
        events: Counter[str] = Counter()
        rig.server.run(lambda model, events=events: model.on_event(lambda event: events.update([event.kind])))  # type: ignore[misc]
        sent = rig.send(20_000, groups=500)
        rig.server.faults = faults
        with rig.to_parquet(rig.source()) as query:
            rig.drain(query, timeout_s=200)
            counts = rig.server.requests.counts()
        requests[name] = sum(counts.values())
        outcomes = Counter(each.outcome for each in rig.server.requests.recent())
        print(f"20,000 messages, {name}: {counts}, {dict(outcomes)}")
        rows = rig.rows()
        assert_each_once((row.message_id for row in rows), sent)
        assert_in_order(rows)
        assert events["received"] == len(sent)
        assert bool(events["replayed"]) is (name == "faulty")
    assert requests["faulty"] <= 2 * requests["sound"]
