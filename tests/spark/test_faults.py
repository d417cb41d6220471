"""Faults of the queue while a query runs: it goes on, or stops with one line, and nothing is lost or doubled."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sqs_fifo_spark.local import Event, Faults, LocalQueueServer
from tests.helpers import wait_until
from tests.spark.sink import forget_commit
from tests.spark.support import LONG_S, Rig, assert_each_once, assert_in_order, failure, own_line, require_alive
from tests.spark.table import read_table, write_once

pytestmark = pytest.mark.law("source-1", "source-5")

VISIBILITY_S = 120
"""The source's own default."""
DEADLINE_S = 4 * LONG_S
"""For what takes a Spark of its own, or a minute on a quiet machine."""
FAULTY = Faults(seed=7, throttle=0.1, server_error=0.05, drop_answer=0.05, fail_entry=0.05)


def watch(rig: Rig) -> list[Event]:
    """Return the list to which all that happens to messages is added."""
    events: list[Event] = []
    rig.server.run(lambda model: model.on_event(events.append))
    return events


def ledger(rig: Rig) -> dict[str, Any]:
    """Return the content of the journal's newest ledger."""
    newest = max((rig.journal / "ledger").glob("*.json"))
    content: dict[str, Any] = json.loads(newest.read_text())
    return content


@pytest.mark.long
def test_a_faulty_queue_drains_once_and_in_order_with_at_most_twice_the_requests(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A tenth of all calls throttled; of calls, answers and entries each twentieth lost: 5,000 messages of 500 groups.

    An answer that is lost is asked for again with its attempt id, so nothing waits for its visibility timeout.
    """
    requests: dict[str, int] = {}
    for name, faults in (("sound", Faults()), ("faulty", FAULTY)):
        with LocalQueueServer() as server:
            rig = Rig(spark, server, tmp_path / name)
            events = watch(rig)
            rig.send(5_000, groups=500)
            server.faults = faults
            with rig.to_parquet(rig.source()) as query:
                rig.drain(query, timeout_s=DEADLINE_S)
                counts = server.requests.counts()
            outcomes = Counter(each.outcome for each in server.requests.recent())
        requests[name] = sum(counts.values())
        print(f"5,000 messages, {name}: {counts}, {dict(outcomes)}")
        rig.require_each_once_in_order()
        kinds = Counter(each.kind for each in events)
        assert kinds["received"] == len(rig.sent)
        assert bool(kinds["replayed"]) is (name == "faulty")
    assert requests["faulty"] <= 2 * requests["sound"]


def test_a_file_sink_that_skips_a_replayed_batch_gets_its_copies_deleted(rig: Rig) -> None:
    """The sink's own log has the micro-batch and Spark's commit log has not, so Spark never asks for its rows again."""
    rig.send(40, groups=2)
    events = watch(rig)
    # One micro-batch and no other: what follows its commit log comes an hour later.
    with rig.to_parquet(rig.source(), processingTime="1 hour") as query:
        commits = rig.home / "checkpoint" / "commits"
        wait_until((commits / "0").exists, LONG_S, "the first micro-batch is over")
        require_alive(query)
    assert not (rig.home / "checkpoint" / "offsets" / "1").exists()
    forget_commit(rig.home / "checkpoint", 0)
    in_sink = {row.message_id for row in rig.rows()}
    assert in_sink
    rig.server.advance(VISIBILITY_S)
    assert rig.depth() == (40, 0), "all that the dead driver held has lapsed"
    with rig.to_parquet(rig.source()) as query:
        rig.drain(query, timeout_s=DEADLINE_S)
        rig.send(1, groups=1)
        rig.drain(query, timeout_s=DEADLINE_S)
        wait_until(lambda: not rig.journal_epochs(), LONG_S, "the journal holds no epoch")
        assert ledger(rig)["unconfirmed"] == {}
    counts = Counter(each.message_id for each in events if each.kind == "received")
    assert all(counts[message_id] > 1 for message_id in in_sink)
    rig.require_each_once_in_order()


@pytest.mark.long
def test_a_permission_lost_in_mid_run_stops_the_query_with_one_line_and_costs_nothing(rig: Rig) -> None:
    """In a task. Granted again, the query that is started again goes on."""
    sent = rig.send(100, groups=10)
    source = rig.source(maxMessagesPerTrigger=50)

    def write(frame: DataFrame, batch_id: int) -> None:
        write_once(rig.home / "table", frame, batch_id)

    def write_and_deny(frame: DataFrame, batch_id: int) -> None:
        write(frame, batch_id)
        rig.server.faults = Faults(deny=frozenset({"ReceiveMessage"}))

    with rig.to_function(source, write_and_deny) as query:
        line = own_line(failure(query))
    assert line == (
        f"AccessDeniedError: AWS denied receive_message on '{rig.url}': AccessDenied. Grant the permission "
        "'sqs:ReceiveMessage' on the queue, or correct the credentials."
    )
    rig.server.faults = Faults()
    with rig.to_function(source, write) as query:
        rig.drain(query, timeout_s=DEADLINE_S)
    rows = read_table(rig.home / "table")
    assert_each_once((row.message_id for row in rows), sent)
    assert_in_order(rows)
