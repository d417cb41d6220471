"""Faults of the queue while a query runs: it goes on, or stops with one line, and nothing is lost or doubled."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from sqs_fifo_spark.local import Event, Faults, LocalQueueServer
from tests.helpers import wait_until
from tests.spark.support import (
    LONG_S,
    Gate,
    Rig,
    assert_each_once,
    assert_in_order,
    failure,
    in_both_modes,
    in_both_modes_if_long,
    require_alive,
    start_app,
)
from tests.spark.table import read_table, write_once

pytestmark = pytest.mark.law("source-1", "source-5")

VISIBILITY_S = 4
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


def own_line(text: str) -> str:
    """Return what our error says, of all that Spark puts around it."""
    return str(re.findall(r"sqs_fifo_spark\.errors\.(\w+: .+)", text)[-1])


def write_again(rig: Rig) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that only writes."""
    return lambda frame, batch_id: write_once(rig.home / "table", frame, batch_id)


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


@pytest.mark.long
def test_a_faulty_queue_drains_once_and_in_order_with_at_most_twice_the_requests(
    make_rig: Callable[[str], Rig],
) -> None:
    """A tenth of all calls throttled; of calls, answers and entries each twentieth lost: 20,000 messages of 500 groups.

    An answer that is lost is asked for again with its attempt id, so nothing waits for its visibility timeout.
    """
    requests: dict[str, int] = {}
    for name, faults in (("sound", Faults()), ("faulty", FAULTY)):
        rig = make_rig(name)
        events = watch(rig)
        sent = rig.send(20_000, groups=500)
        rig.server.faults = faults
        with rig.to_parquet(rig.source()) as query:
            rig.drain(query, timeout_s=DEADLINE_S)
            counts = rig.server.requests.counts()
        requests[name] = sum(counts.values())
        outcomes = Counter(each.outcome for each in rig.server.requests.recent())
        print(f"20,000 messages, {name}: {counts}, {dict(outcomes)}")
        rows = rig.rows()
        assert_each_once((row.message_id for row in rows), sent)
        assert_in_order(rows)
        kinds = Counter(each.kind for each in events)
        assert kinds["received"] == len(sent)
        assert bool(kinds["replayed"]) is (name == "faulty")
    assert requests["faulty"] <= 2 * requests["sound"]


@in_both_modes
@pytest.mark.long
def test_copies_of_what_the_sink_had_before_the_driver_died_are_deleted_and_not_emitted(
    rig: Rig, tmp_path: Path
) -> None:
    """Killed between the sink's commit and Spark's commit log, and down for longer than the visibility timeout.

    Somebody else receives the copies meanwhile. The replayed micro-batch has the same rows, its deletes are refused
    because the handles are old, and when the copies come they are deleted by what the ledger remembers. Where tasks
    delete, there are no copies.
    """
    sent = rig.send(300, groups=30)
    events = watch(rig)
    options = {"visibilityTimeoutSeconds": VISIBILITY_S, "maxMessagesPerTrigger": 100}
    arguments = (tmp_path, 1, *(f"{name}={value}" for name, value in rig.options(**options).items()))
    killed = start_app("killed_after_sink.py", *arguments, log=tmp_path / "log.txt")
    try:
        status = killed.wait(DEADLINE_S)
    finally:
        killed.kill()
    assert status == -signal.SIGKILL, (tmp_path / "log.txt").read_text(errors="replace")[-4000:]
    checkpoint = tmp_path / "checkpoint"
    assert (tmp_path / "table" / "batch-1" / "_SUCCESS").exists()
    assert (checkpoint / "offsets" / "1").exists()
    assert not (checkpoint / "commits" / "1").exists()
    in_sink = {row.message_id for row in read_table(tmp_path / "table") if row.batch_id == 1}

    def copies() -> set[str]:
        counts = Counter(each.message_id for each in events if each.kind == "received")
        return {message_id for message_id in in_sink if counts[message_id] > 1}

    wait_until(lambda: rig.depth()[1] == 0, LONG_S, "all that the dead driver held has lapsed")

    def take() -> set[str]:
        # What it gives back goes behind the groups that are free already, so it gets to all of them.
        rig.call("ReceiveMessage", QueueUrl=rig.url, MaxNumberOfMessages=10, VisibilityTimeout=0)
        return copies()

    if rig.delete_after == "commit":
        wait_until(take, LONG_S, "somebody else receives a copy")
    with rig.to_function(rig.source(**options), write_again(rig)) as query:
        rig.drain(query, timeout_s=DEADLINE_S)
        # What the last commits deleted leaves the ledger with one more.
        sent |= rig.send(1, groups=1)
        rig.drain(query, timeout_s=DEADLINE_S)
        wait_until(lambda: not rig.journal_epochs(), LONG_S, "the journal holds no epoch")
        assert ledger(rig)["unconfirmed"] == {}
    assert copies() == (in_sink if rig.delete_after == "commit" else set())
    deleted = [each for each in events if each.kind == "deleted"]
    assert_each_once((each.message_id for each in deleted), sent)
    if rig.delete_after == "commit":
        assert all(each.receive_count > 1 for each in deleted if each.message_id in in_sink)
    rows = read_table(tmp_path / "table")
    assert_each_once((row.message_id for row in rows), sent)
    assert_in_order(rows, may_split=rig.may_split)


@in_both_modes
def test_a_file_sink_that_skips_a_replayed_batch_gets_its_copies_deleted(rig: Rig) -> None:
    """The sink's own log has the micro-batch and Spark's commit log has not, so Spark never asks for its rows again.

    Where tasks delete, there are no copies.
    """
    sent = rig.send(200, groups=20)
    events = watch(rig)
    options = {"visibilityTimeoutSeconds": VISIBILITY_S}
    # One micro-batch and no other: what follows its commit log comes an hour later.
    with rig.to_parquet(rig.source(**options), processingTime="1 hour") as query:
        commits = rig.home / "checkpoint" / "commits"
        wait_until((commits / "0").exists, LONG_S, "the first micro-batch is over")
        require_alive(query)
    assert not (rig.home / "checkpoint" / "offsets" / "1").exists()
    for name in ("0", ".0.crc"):
        (commits / name).unlink()
    in_sink = {row.message_id for row in rig.rows()}
    assert in_sink
    wait_until(lambda: rig.depth()[1] == 0, LONG_S, "all that the dead driver held has lapsed")
    with rig.to_parquet(rig.source(**options)) as query:
        rig.drain(query, timeout_s=DEADLINE_S)
        sent |= rig.send(1, groups=1)
        rig.drain(query, timeout_s=DEADLINE_S)
        wait_until(lambda: not rig.journal_epochs(), LONG_S, "the journal holds no epoch")
        assert ledger(rig)["unconfirmed"] == {}
    counts = Counter(each.message_id for each in events if each.kind == "received")
    assert all((counts[message_id] > 1) is (rig.delete_after == "commit") for message_id in in_sink)
    rows = rig.rows()
    assert_each_once((row.message_id for row in rows), sent)
    assert_in_order(rows, may_split=rig.may_split)


@pytest.mark.long
def test_heartbeats_that_fail_for_a_visibility_timeout_are_told_once_for_each_group(rig: Rig, tmp_path: Path) -> None:
    """The query goes on, the copies that SQS delivers are deleted, and the sink has everything once."""
    groups = 6
    sent = rig.send(60, groups=groups)
    events = watch(rig)
    gate = Gate(tmp_path / "gate")
    options = rig.options(visibilityTimeoutSeconds=VISIBILITY_S)
    log = tmp_path / "log.txt"
    process = start_app("to_parquet.py", tmp_path, *(f"{key}={value}" for key, value in options.items()), log=log)

    def losses() -> Counter[str]:
        return Counter(re.findall(r"lost the lease on messages of group '(group-\d)'", log.read_text(errors="replace")))

    try:

        def is_in_mid_batch() -> bool:
            assert process.poll() is None, log.read_text(errors="replace")[-4000:]
            return gate.waiting > 0

        wait_until(is_in_mid_batch, DEADLINE_S, "a task is in mid-batch")
        rig.server.faults = Faults(server_error=1.0, actions=frozenset({"ChangeMessageVisibilityBatch"}))
        wait_until(lambda: len(losses()) == groups, LONG_S, "the lost leases are told")
        for _ in range(2):
            # Two more timeouts; somebody else receives the copies.
            taken = rig.call("ReceiveMessage", QueueUrl=rig.url, MaxNumberOfMessages=10, VisibilityTimeout=VISIBILITY_S)
            assert taken["Messages"]
            wait_until(lambda: rig.depth()[1] == 0, LONG_S, "they have lapsed again")
        refused = [each for each in rig.server.requests.recent("ChangeMessageVisibilityBatch") if each.outcome != "ok"]
        assert len(refused) > 3
        rig.server.faults = Faults()
        gate.open()

        def is_empty() -> bool:
            assert process.poll() is None, log.read_text(errors="replace")[-4000:]
            return rig.depth() == (0, 0)

        wait_until(is_empty, LONG_S, "the queue is empty")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert losses() == {f"group-{number}": 1 for number in range(groups)}
    received = Counter(each.message_id for each in events if each.kind == "received")
    assert set(received) == set(sent)
    assert min(received.values()) > 1
    rows = rig.rows()
    assert_each_once((row.message_id for row in rows), sent)
    assert_in_order(rows)


@in_both_modes_if_long
def test_a_row_that_makes_every_micro_batch_fail_is_named_by_its_epoch_and_costs_nothing(rig: Rig) -> None:
    """Each start fails on the same rows, and nothing is lost; with the function corrected all goes on."""
    sent = rig.send(60, groups=12)
    source = rig.source(maxMessagesPerTrigger=20)
    gate = rig.home / "corrected"
    seen: dict[int, list[list[str]]] = defaultdict(list)

    def parse(frame: DataFrame, batch_id: int) -> None:
        rows = frame.collect()
        seen[batch_id].append([row.messageId for row in rows])
        if not gate.exists() and any(row.body == "body 30" for row in rows):
            raise ValueError("this row cannot be parsed")
        write_once(rig.home / "table", frame, batch_id)

    raised = []
    for start in range(3):
        with rig.to_function(source, parse) as query:
            text = failure(query)
            with pytest.raises(StreamingQueryException) as told:
                query.awaitTermination()
            raised.append((text, str(told.value)))
        poisoned = max(seen)
        assert poisoned > 0
        assert len(seen[poisoned]) == start + 1, f"it failed somewhere else: {text}"
        left = rig.depth()
    epochs = sorted(int(path.name) for path in (rig.journal / "epochs").iterdir())
    # Spark's own words, in both forms of its error.
    for texts in raised:
        for text in texts:
            assert "this row cannot be parsed" in text
            assert re.search(rf'Current Available Offsets: .+"epoch": {epochs[-1]}, ', text), text
    assert seen[poisoned][0] == seen[poisoned][1] == seen[poisoned][2]
    before = sum(len(runs[0]) for batch_id, runs in seen.items() if batch_id < poisoned)
    # Where tasks delete, the queue has no more what the journal has.
    assert sum(left) == len(sent) - before - (len(seen[poisoned][0]) if rig.delete_after == "journal" else 0)
    gate.touch()
    with rig.to_function(source, parse) as query:
        rig.drain(query, timeout_s=DEADLINE_S)
    assert seen[poisoned][3] == seen[poisoned][0]
    rows = read_table(rig.home / "table")
    assert_each_once((row.message_id for row in rows), sent)
    assert_in_order(rows, may_split=rig.may_split)


@pytest.mark.long
@pytest.mark.parametrize("action", ["ReceiveMessage", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"])
def test_a_permission_lost_in_mid_run_stops_the_query_with_one_line_and_costs_nothing(rig: Rig, action: str) -> None:
    """In a task, in the driver's commit, in the heartbeat. Granted again, the query that is started again goes on."""
    sent = rig.send(100, groups=10)
    options = {"visibilityTimeoutSeconds": VISIBILITY_S, "maxMessagesPerTrigger": 50}

    def refusals() -> int:
        return sum(each.outcome == "AccessDenied" for each in rig.server.requests.recent(action))

    def write(frame: DataFrame, batch_id: int) -> None:
        write_once(rig.home / "table", frame, batch_id)
        if batch_id == 0:
            rig.server.faults = Faults(deny=frozenset({action}))
            if action == "ChangeMessageVisibilityBatch":
                wait_until(lambda: refusals() >= 2, LONG_S, "the heartbeat is refused")

    with rig.to_function(rig.source(**options), write) as query:
        line = own_line(failure(query))
    operation = {"ReceiveMessage": "receive_message", "DeleteMessageBatch": "delete_message_batch"}
    assert line == (
        f"AccessDeniedError: AWS denied {operation.get(action, 'change_message_visibility_batch')} on '{rig.url}': "
        f"AccessDenied. Grant the permission 'sqs:{action.removesuffix('Batch')}' on the queue, or correct the "
        "credentials."
    )
    rig.server.faults = Faults()
    with rig.to_function(rig.source(**options), write_again(rig)) as query:
        rig.drain(query, timeout_s=DEADLINE_S)
    rows = read_table(rig.home / "table")
    assert_each_once((row.message_id for row in rows), sent)
    assert_in_order(rows)


@pytest.mark.long
def test_credentials_that_expire_in_mid_run_are_taken_anew_from_their_file(rig: Rig, tmp_path: Path) -> None:
    """The query does not stop: driver and worker, each refused once, find what was written there meanwhile."""
    credentials = tmp_path / "credentials"

    def write(key: str) -> None:
        made = tmp_path / "made"
        made.write_text(f"[default]\naws_access_key_id={key}\naws_secret_access_key=any\n")
        made.replace(credentials)

    write("old")
    Gate(tmp_path / "gate").open()
    sent = rig.send(100, groups=10)
    log = tmp_path / "log.txt"
    options = (f"{name}={value}" for name, value in rig.options().items())
    chain = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SHARED_CREDENTIALS_FILE": str(credentials)}
    process = start_app("to_parquet.py", tmp_path, *options, log=log, **chain)

    def is_empty() -> bool:
        assert process.poll() is None, log.read_text(errors="replace")[-4000:]
        return rig.depth() == (0, 0)

    try:
        wait_until(is_empty, DEADLINE_S, "the queue is empty")
        write("new")
        rig.server.faults = Faults(expired_keys=frozenset({"old"}))
        sent |= rig.send(100, groups=10)
        wait_until(is_empty, DEADLINE_S, "the queue is empty again")
        wait_until(lambda: rig.server.waiting, LONG_S, "the query polls")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    refused = [each for each in rig.server.requests.recent() if each.outcome == "ExpiredToken"]
    assert len(refused) >= 2
    assert_each_once((row.message_id for row in rig.rows()), sent)


@pytest.mark.long
def test_a_queue_deleted_in_mid_run_stops_the_query_and_one_of_its_name_goes_on(rig: Rig) -> None:
    """One line. Started again it serves what it had received, and then what the new queue holds; nothing twice."""
    old = rig.send(100, groups=10)

    def write(frame: DataFrame, batch_id: int) -> None:
        if batch_id == 1:
            frame.count()
            rig.call("DeleteQueue", QueueUrl=rig.url)
            raise RuntimeError("stopped with an epoch in its hands")
        write_once(rig.home / "table", frame, batch_id)

    source = rig.source(maxMessagesPerTrigger=50)
    with rig.to_function(source, write) as query:
        failure(query)
    sealed = rig.journal_epochs()
    assert sealed
    with rig.to_function(source, write_again(rig)) as query:
        line = own_line(failure(query))
    assert re.fullmatch(
        rf"QueueNotFoundError: the queue '{re.escape(rig.url)}' does not exist \(get_queue_attributes: .+\)\. .+", line
    )
    assert rig.journal_epochs() == sealed
    rig.create_queue("test.fifo")
    new = rig.send(50, groups=10)
    with rig.to_function(source, write_again(rig)) as query:
        rig.drain(query, timeout_s=DEADLINE_S)
    rows = read_table(rig.home / "table")
    in_sink = {row.message_id for row in rows}
    assert {row.message_id for row in rows if row.batch_id == 1} <= old.keys()
    assert_each_once((row.message_id for row in rows), {each: rig.sent[each] for each in in_sink})
    assert new.keys() <= in_sink
    assert len(in_sink & old.keys()) > 50


@pytest.mark.long
def test_a_queue_that_breaks_all_connections_and_then_answers_slowly_stops_nothing(rig: Rig) -> None:
    """The query waits, and goes on by itself; renewals, deletes and receives are late and nothing else."""
    sent = rig.send(150, groups=15)

    def write(frame: DataFrame, batch_id: int) -> None:
        write_once(rig.home / "table", frame, batch_id)
        if batch_id == 0:
            rig.server.faults = Faults(reset=1.0)

    with rig.to_function(rig.source(maxMessagesPerTrigger=50), write) as query:

        def resets() -> int:
            require_alive(query)
            return sum(each.outcome == "reset" for each in rig.server.requests.recent())

        wait_until(lambda: resets() >= 10, LONG_S, "the connections break")
        rig.server.faults = Faults(seed=3, delay_s=0.2, reset=0.2)
        rig.drain(query, timeout_s=DEADLINE_S)
    rows = read_table(rig.home / "table")
    assert_each_once((row.message_id for row in rows), sent)
    assert_in_order(rows)
