"""`journal skip`, `release` and `forget`: they change what they are to change, nothing else, and may be repeated."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from sqs_fifo_spark.cli import repair_commands
from sqs_fifo_spark.cli.output import Status
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.journal.identity import JournalIdentity
from sqs_fifo_spark.journal.location import open_store
from sqs_fifo_spark.local import Faults
from sqs_fifo_spark.source import owner as owners
from sqs_fifo_spark.source.journal_objects import Journal
from tests.helpers import wait_until
from tests.unit.cli.conftest import Rig, error_of, lines, one_error, output_of, record_rows
from tests.unit.sending import Store

BINARY = {"key": {"DataType": "Binary", "BinaryValue": b"\x00"}}
Rows = list[dict[str, Any]]
TRACE = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}


@pytest.fixture
def rows(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rows:
    """The rows, in order, of a query that has read three messages, and has not committed them."""
    rig.send("a1", "a2", "a3", group="a", MessageAttributes=BINARY, MessageSystemAttributes=TRACE)
    return rig.read_and_die(monkeypatch)


def read_again(rig: Rig) -> list[str]:
    """Let the query start again, and read and commit the epoch; return the bodies."""
    driver, end, rows = rig.read_again()
    driver.commit(end)
    return [row["body"] for row in rows]


def skip(rig: Rig, row: dict[str, Any], *place: str) -> Result:
    """Move a message of the epoch to this place."""
    named = ("--epoch", "1", "--message-id", row["messageId"])
    return rig.on_journal("skip", *named, "--region", "us-east-1", *place)


def test_a_message_is_moved_to_a_file_and_the_query_goes_on_without_it(rig: Rig, rows: Rows, tmp_path: Path) -> None:
    file, message_id = tmp_path / "aside.jsonl", rows[1]["messageId"]
    result = skip(rig, rows[1], "--to-file", str(file))
    assert (result.exit_code, result.stderr) == (Status.OK, "")
    assert f"message {message_id} of epoch 1 is in '{file}'" in result.stdout
    (aside,) = map(json.loads, file.read_text().splitlines())
    assert (aside["messageId"], aside["body"], aside["messageGroupId"]) == (message_id, "a2", "a")
    assert aside["messageAttributes"] == {"key": {"dataType": "Binary", "binaryValue": "AA=="}}
    assert file.stat().st_mode & 0o777 == 0o600
    (shown,) = lines(rig.on_journal("show", "--json"))
    assert (shown["skippedMessages"], shown["owner"]["isCommand"]) == ([message_id], True)
    text = output_of(rig.on_journal("show"))
    assert re.search(rf"^skipped +{message_id}$", text, re.MULTILINE)
    assert re.search("^owner +claim .* of a command on ", text, re.MULTILINE)
    # Again, also with another place: nothing happens.
    before = rig.stored()
    assert f"was moved to '{file}' before" in output_of(skip(rig, rows[1], "--to-file", str(tmp_path / "other.jsonl")))
    (told,) = lines(skip(rig, rows[1], "--to-file", str(file), "--json"))
    assert (told["messageId"], told["to"], told["wasMovedBefore"]) == (message_id, str(file), True)
    assert rig.stored() == before
    assert not (tmp_path / "other.jsonl").exists()
    assert read_again(rig) == ["a1", "a3"]
    assert rig.receive() == []  # deleted, with the others


@pytest.mark.slow
def test_a_message_is_moved_to_another_queue(rig: Rig, rows: Rows) -> None:
    """Whole, and with its id as deduplication id: so a command that died before its mark sends it only once."""
    other, message_id = rig.create("aside"), rows[0]["messageId"]
    (told,) = lines(skip(rig, rows[0], "--to-queue", other, "--json"))
    assert (told["epoch"], told["messageId"], told["to"], told["wasMovedBefore"]) == (1, message_id, other, False)
    assert told["at"]
    (rig.journal / "skipped" / message_id).unlink()
    assert skip(rig, rows[0], "--to-queue", other).exit_code == Status.OK
    answer = rig.sqs.receive_message(
        QueueUrl=other, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"], MessageAttributeNames=["All"]
    )
    (message,) = answer["Messages"]
    assert (message["Body"], message["Attributes"]["MessageGroupId"]) == ("a1", "a")
    assert message["Attributes"]["MessageDeduplicationId"] == message_id
    assert message["MessageAttributes"] == BINARY
    assert message["Attributes"]["AWSTraceHeader"] == "Root=1"
    assert read_again(rig) == ["a2", "a3"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "status", "text"),
    [
        (["--to-file", "{aside}", "--to-queue", "{other}"], Status.USAGE, "give either --to-file or --to-queue"),
        ([], Status.USAGE, "give either --to-file or --to-queue"),
        (["--to-file", "{aside}", "--epoch", "7"], Status.PROBLEM, "epoch 7 of the journal .* has no message"),
        (["--to-file", "{aside}", "--message-id", "no"], Status.PROBLEM, "has no message 'no'"),
        (["--to-file", "{aside}", "--message-id", "../x"], Status.USAGE, "'../x' is no id of a message"),
        (["--to-file", "{aside}/none/x"], Status.REFUSED, "cannot write '.*/none/x'"),
        (["--to-queue", "{own}"], Status.USAGE, "is the queue that the journal's query reads"),
        (["--to-file", "{folder}/" + "x" * 300], Status.REFUSED, "cannot write '.*/xxx.*': File name too long"),
        (["--to-queue", "{missing}"], Status.REFUSED, "missing"),
        (["--to-queue", ""], Status.USAGE, "option 'queueUrl' is empty"),
    ],
)
def test_what_cannot_be_moved_is_told_in_one_line_and_stays(
    rig: Rig, rows: Rows, tmp_path: Path, given: list[str], status: Status, text: str
) -> None:
    places = {"aside": tmp_path / "aside", "own": rig.url, "missing": rig.url.replace("bids", "missing")}
    places["folder"] = tmp_path
    places["other"] = rig.create("aside")
    before = rig.stored()
    result = skip(rig, rows[0], "--force", *(each.format(**places) for each in given))
    assert re.search(text, error_of(result, status))
    assert rig.stored() == before  # so a query that runs goes on
    assert read_again(rig) == ["a1", "a2", "a3"]


def test_a_message_that_is_too_large_for_the_other_queue_stays(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the status that `send` has for such a message."""
    rig.send("x" * 1_025)
    (row,) = rig.read_and_die(monkeypatch)
    small = rig.create("small")
    rig.sqs.set_queue_attributes(QueueUrl=small, Attributes={"MaximumMessageSize": "1024"})
    before = rig.stored()
    told = error_of(skip(rig, row, "--to-queue", small), Status.PROBLEM)
    assert f"'{small}' does not take the message: it has 1,025 bytes" in told
    assert rig.stored() == before


def test_a_queue_that_one_may_not_send_to_is_known_before_the_journal_is_taken(rig: Rig, rows: Rows) -> None:
    other, before = rig.create("aside"), rig.stored()
    rig.server.faults = Faults(deny=frozenset({"SendMessageBatch"}))
    assert "sqs:SendMessage" in error_of(skip(rig, rows[0], "--to-queue", other, "--force"), Status.REFUSED)
    assert rig.stored() == before


def test_a_torn_line_in_the_file_is_left_and_no_line_is_added_again(rig: Rig, rows: Rows, tmp_path: Path) -> None:
    """A command that was killed in the middle of its write leaves a part of a line."""
    file, message_id = tmp_path / "aside.jsonl", rows[2]["messageId"]
    file.write_text("[" * 100_000 + '\n{"messageId": "torn')
    for _ in range(2):
        assert skip(rig, rows[2], "--to-file", str(file)).exit_code == Status.OK
        (rig.journal / "skipped" / message_id).unlink()
    _, torn, line = file.read_text().splitlines()
    assert torn == '{"messageId": "torn'
    assert json.loads(line)["messageId"] == message_id


def test_two_commands_at_once_add_a_message_to_the_file_once(rig: Rig, rows: Rows, tmp_path: Path) -> None:
    """The second one waits for the first one to close the file, before it takes the journal from it."""
    file, message_id = tmp_path / "aside.jsonl", rows[0]["messageId"]
    arguments = ["--epoch", "1", "--message-id", message_id, "--to-file", str(file), "--force"]
    line = [sys.executable, "-m", "sqs_fifo_spark", "journal", "skip", "--journal-location", rig.location, *arguments]
    before = rig.stored()
    with file.open("ab") as ours:
        fcntl.flock(ours, fcntl.LOCK_EX)
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            wait_until(lambda: is_waiting_for_lock(process.pid), 60, "the lock is waited for")
            assert rig.stored() == before
            ours.write(json.dumps({"messageId": message_id}).encode())
            ours.close()
            told, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (Status.OK, "")
    assert f"is in '{file}'" in told
    assert file.read_text().count(message_id) == 1


def is_waiting_for_lock(pid: int) -> bool:
    return any(" -> FLOCK " in line and f" {pid} " in line for line in Path("/proc/locks").read_text().splitlines())


def test_released_messages_can_be_received_at_once(rig: Rig, rows: Rows) -> None:
    result = rig.on_journal("release", "--queue-url", rig.url, "--json")
    told = [{"messages": 3, "released": 3, "notHeld": 0, "notAnswered": 0}]
    assert (result.exit_code, lines(result)) == (Status.OK, told)
    assert "of 3 messages were released" in output_of(rig.on_journal("release", "--queue-url", rig.url))
    assert [(body, group) for body, group, _ in rig.receive()] == [("a1", "a"), ("a2", "a"), ("a3", "a")]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["skip", "release"])
def test_a_query_that_runs_keeps_its_journal_unless_it_is_forced(rig: Rig, tmp_path: Path, command: str) -> None:
    """Without --force nothing is changed; with it the query is fenced."""
    rig.send("a1")
    _, _, (row,) = rig.read_epoch()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        journal = Journal.look(open_store(str(rig.journal)))
        assert journal is not None
        about = {**owners.this_process(looks_every_s=1, now=0), "pid": process.pid}
        claim = journal.claim({**about, "began": owners._began(process.pid)})
        before = rig.stored()
        given = {
            "skip": ["--epoch", "1", "--message-id", row["messageId"], "--to-file", str(tmp_path / "aside")],
            "release": ["--queue-url", rig.url],
        }[command]
        told = error_of(rig.on_journal(command, *given), Status.PROBLEM)
        assert f"a query runs on the journal at '{rig.journal}' (claim {claim}, process {process.pid} on" in told
        assert rig.stored() == before
        assert not (tmp_path / "aside").exists()
        (shown,) = lines(rig.on_journal("show", "--json"))
        assert (shown["owner"]["pid"], shown["owner"]["isRunning"]) == (process.pid, True)
        assert rig.on_journal(command, *given, "--force").exit_code == Status.OK
        assert journal.claims() == [claim + 1]
        process.kill()


def test_another_users_journal_is_left_alone(rig: Rig, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query could not read an object that root writes, and would not start."""
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    before = rig.stored()
    assert "Run the command as that user" in error_of(rig.on_journal("release", "--queue-url", rig.url), Status.REFUSED)
    repair_commands._require_own_user(Store())  # an object store has no users
    assert rig.stored() == before


def test_what_sqs_does_not_answer_is_told_apart_from_what_is_not_held(rig: Rig, rows: Rows) -> None:
    """Such messages are still hidden: the status says that, too."""
    rig.server.faults = Faults(throttle=1.0, actions=frozenset({"ChangeMessageVisibilityBatch"}))
    result = rig.on_journal("release", "--queue-url", rig.url, "--json")
    rig.server.faults = Faults()
    assert result.exit_code == Status.PROBLEM
    assert lines(result) == [{"messages": 3, "released": 0, "notHeld": 0, "notAnswered": 3}]
    assert "SQS has not released 3 messages" in one_error(result)


def test_a_moved_message_is_not_exported_with_the_others(rig: Rig, rows: Rows, tmp_path: Path) -> None:
    """Whoever sends what is exported would bring it back."""
    assert skip(rig, rows[1], "--to-file", str(tmp_path / "aside")).exit_code == Status.OK
    assert rig.on_journal("export", "--epoch", "1", "--to-file", str(tmp_path / "all.jsonl")).exit_code == Status.OK
    exported = map(json.loads, (tmp_path / "all.jsonl").read_text().splitlines())
    assert [row["body"] for row in exported] == ["a1", "a3"]


def test_only_a_regular_file_is_written(rig: Rig, rows: Rows) -> None:
    export = ("export", "--epoch", "1", "--to-file", "/dev/null", "--format", "jsonl", "--force")
    for result in (skip(rig, rows[1], "--to-file", "/dev/null"), rig.on_journal(*export)):
        assert "'/dev/null' is not a regular file" in error_of(result, Status.USAGE)


# forget

DAYS_AGO = 3 * 86_400


@pytest.fixture
def sink(rig: Rig) -> FileStore:
    """A sink's journal, of two writers that were used days ago."""
    store = FileStore(rig.journal)
    JournalIdentity.create(store, rig.arn(rig.url))
    for writer, batch in (("q1", 4), ("q1", 5), ("q2", 9)):
        record_rows(store, writer, batch=batch, began_at=SYSTEM_CLOCK.now() - DAYS_AGO)
    return store


def test_a_writer_is_forgotten_and_no_other(rig: Rig, sink: FileStore) -> None:
    """All but a mark, which refuses what would send twice; run again, the command changes nothing."""
    others = sink.list("sent/q2")
    result = rig.on_journal("forget", "--writer", "q1")
    assert (result.exit_code, result.stderr) == (Status.OK, "")
    assert result.stdout == "6 rows of the writer 'q1' are forgotten: 2 objects.\n"
    assert (sink.list("sent"), sink.list("over")) == (others, ["over/q1/00000000000000000005"])
    before = rig.stored()
    told = output_of(rig.on_journal("forget", "--writer", "q1"))
    assert told == "the writer 'q1' was forgotten before; nothing was changed.\n"
    assert lines(rig.on_journal("forget", "--writer", "q1", "--json")) == [
        {"writer": "q1", "rows": 0, "bytes": 0, "objects": 0}
    ]
    assert rig.stored() == before
    assert [each["writer"] for each in lines(rig.on_journal("show", "--json"))[0]["writers"]] == ["q2"]


@pytest.mark.parametrize("writer", ["q", "q11", "Q1", "q1/00000000000000000004", "..", ".", ""])
def test_a_writer_that_is_not_known_is_told(rig: Rig, sink: FileStore, writer: str) -> None:
    before = rig.stored()
    told = error_of(rig.on_journal("forget", "--writer", writer), Status.PROBLEM)
    assert told.startswith(f"error: nothing was recorded for the writer '{writer}' in the journal at '")
    assert rig.stored() == before


def test_a_writer_that_may_be_in_use_is_forgotten_only_by_force(rig: Rig, sink: FileStore) -> None:
    """Its last micro-batch may run again."""
    record_rows(sink, "q3", batch=0, began_at=SYSTEM_CLOCK.now() - 3_600)
    before = rig.stored()
    told = error_of(rig.on_journal("forget", "--writer", "q3"), Status.REFUSED)
    assert told.startswith("error: the writer 'q3' may be in use: its ")
    assert rig.stored() == before
    assert rig.on_journal("forget", "--writer", "q3", "--force").exit_code == Status.OK
    assert sink.list("sent/q3") == []
