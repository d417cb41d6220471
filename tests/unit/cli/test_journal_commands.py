"""`journal show`, `cat` and `export` tell what a journal holds, and change nothing, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sqs_fifo_spark.cli.output import Status
from sqs_fifo_spark.columns import ARROW_SCHEMA
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.journal.identity import JournalIdentity
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.segment import encode
from tests.helpers import wait_until
from tests.unit.cli.conftest import Rig, error_of, lines, one_error, output_of, record_rows


def a_read_epoch(rig: Rig) -> list[dict[str, Any]]:
    """Let a query read five messages; return its rows, in order."""
    rig.send("a1", "a2", "a3", group="a")
    rig.send("b1", "b2", group="b", MessageAttributes={"key": {"DataType": "Binary", "BinaryValue": b"\x00"}})
    _, end, rows = rig.read_epoch()
    assert end.epoch == 1
    assert len(rows) == 5
    return rows


def test_show_tells_what_an_open_epoch_holds(rig: Rig) -> None:
    rows = a_read_epoch(rig)
    (shown,) = lines(rig.on_journal("show", "--json"))
    identity = json.loads((rig.journal / "journal.json").read_text())
    assert shown["journal"] == identity["journal"]
    assert shown["queueArn"] == rig.arn(rig.url)
    assert shown["claims"] == [identity["firstClaim"]]
    assert (shown["ledger"]["settledEpoch"], shown["ledger"]["unconfirmedDeletes"], shown["damage"]) == (0, 0, [])
    (plan,) = shown["plans"]
    assert plan["epoch"] == 1
    assert plan["isClosed"]
    assert plan["partitionsStored"] == plan["partitions"]
    assert plan["messages"] == len(rows)
    assert plan["bytes"] == 3 * 2 + 2 * (2 + len("key") + len("Binary") + 1)
    assert 0 <= plan["oldestAgeSeconds"] < 3600
    assert plan["oldestSentTimestamp"][:10] == min(row["sentTimestamp"] for row in rows).isoformat()[:10]
    for_people = output_of(rig.on_journal("show"))
    for said in ("up to epoch 0; 0 deletes not confirmed", "epoch  plan", "s ago"):
        assert said in for_people


def test_a_committed_epoch_is_shown_as_such(rig: Rig) -> None:
    rig.send("1")
    driver, end, _ = rig.read_epoch()
    driver.commit(end)
    (shown,) = lines(rig.on_journal("show", "--json"))
    assert (shown["ledger"]["settledEpoch"], shown["plans"]) == (1, [])
    assert "no epoch" in rig.on_journal("show").stdout


def committed_but_not_dropped(rig: Rig) -> Callable[[], None]:
    """Let a query read an epoch. Return what commits it as one that is killed before it has dropped its objects."""
    rig.send("1", "2")
    driver, end, _ = rig.read_epoch()
    kept = rig.journal.parent / "kept"
    shutil.copytree(rig.journal / "epochs", kept)

    def commit() -> None:
        driver.commit(end)
        shutil.copytree(kept, rig.journal / "epochs", dirs_exist_ok=True)
        shutil.rmtree(kept)

    return commit


@pytest.mark.parametrize("command", [("cat", "--json"), ("cat",), ("export", "--to-file", "{folder}/x.jsonl")])
def test_a_committed_epoch_whose_objects_are_there_is_no_content(
    rig: Rig, tmp_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Committed before the command, or while it reads: only the first prints nothing at all."""
    commit, read = committed_but_not_dropped(rig), Journal.read
    done: list[None] = []

    def commit_and_read(self: Journal, name: str) -> Any:
        if not done:
            done.append(commit())
        return read(self, name)

    arguments = [each.format(folder=tmp_path) for each in command]
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "read", commit_and_read)
        meanwhile = rig.on_journal(*arguments, "--epoch", "1")
    before = rig.on_journal(*arguments, "--epoch", "1")
    assert (meanwhile.exit_code, before.exit_code, before.stdout) == (Status.PROBLEM, Status.PROBLEM, "")
    assert one_error(meanwhile) == one_error(before)
    assert f"epoch 1 is settled (the journal at '{rig.journal}' is at 1)" in one_error(before)
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


@pytest.mark.parametrize("epoch", [1, 2], ids=["committed", "unknown"])
@pytest.mark.parametrize(
    "command",
    [
        ("cat",),
        ("cat", "--message-id", "m"),
        ("export", "--to-file", "{folder}/x.jsonl"),
        ("skip", "--message-id", "m", "--to-file", "{folder}/x.jsonl"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_commands_agree_on_what_is_not_there(rig: Rig, tmp_path: Path, command: tuple[str, ...], epoch: int) -> None:
    """It is not a wrong flag, and nothing was out of reach: a script can tell these apart."""
    rig.send("1")
    driver, end, _ = rig.read_epoch()
    driver.commit(end)
    assert f"epoch {epoch}" in error_of(
        rig.on_journal(*(each.format(folder=tmp_path) for each in command), "--epoch", str(epoch)), Status.PROBLEM
    )
    assert not (tmp_path / "x.jsonl").exists()


def test_a_sinks_journal_tells_by_writer_what_it_has(rig: Rig) -> None:
    """Rows, bytes and last use; what is damaged is no writer's."""
    store = FileStore(rig.journal)
    JournalIdentity.create(store, rig.arn(rig.url))
    record_rows(store, "query-1", batch=6, began_at=1_700_000_000)
    record_rows(store, "query-1", batch=7, began_at=1_700_000_600)
    record_rows(store, "query-2", batch=0, began_at=1_700_000_000)
    (shown,) = lines(rig.on_journal("show", "--json"))
    assert shown["writers"] == [
        {"writer": "query-1", "rows": 6, "bytes": 144, "objects": 2, "lastUsedTimestamp": "2023-11-14T22:23:20.000Z"},
        {"writer": "query-2", "rows": 3, "bytes": 72, "objects": 1, "lastUsedTimestamp": "2023-11-14T22:13:20.000Z"},
    ]
    text = rig.on_journal("show").stdout
    assert "query-1" in text
    assert "owner" not in text  # that it has none would read as if nothing had been sent
    assert "epoch" not in text
    store.put_if_absent("sent/query-3/0/note.txt", b"")
    damaged = rig.on_journal("show", "--json")
    assert (damaged.exit_code, lines(damaged)[0]["writers"]) == (Status.PROBLEM, shown["writers"])
    assert "sent/query-3/0/note.txt" in lines(damaged)[0]["damage"][0]


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_cat_shows_bodies_only_where_that_is_asked_for(rig: Rig, form: tuple[str, ...]) -> None:
    rows = a_read_epoch(rig)
    without = rig.on_journal("cat", "--epoch", "1", *form).stdout
    shown = rig.on_journal("cat", "--epoch", "1", "--bodies", *form).stdout
    for row in rows:
        assert row["messageId"] in without
        assert row["body"] in shown
    assert "b2" not in without.replace(rows[0]["messageId"], "").split()
    assert "body" not in without
    assert "andle" not in shown


def test_cat_finds_one_message(rig: Rig) -> None:
    rows = a_read_epoch(rig)
    wanted = rows[3]["messageId"]
    (shown,) = lines(rig.on_journal("cat", "--epoch", "1", "--message-id", wanted, "--bodies", "--json"))
    assert (shown["messageId"], shown["body"]) == (wanted, rows[3]["body"])
    result = rig.on_journal("cat", "--epoch", "1", "--message-id", "none", "--json")
    assert (result.exit_code, result.stdout) == (Status.PROBLEM, "")
    assert "no message with the id 'none'" in one_error(result)


@pytest.mark.parametrize(
    ("name", "form"), [("rows.parquet", ()), ("rows.jsonl", ()), ("rows", ("--format", "parquet"))]
)
def test_export_writes_all_columns_to_private_files(rig: Rig, tmp_path: Path, name: str, form: tuple[str, ...]) -> None:
    """Its name tells the format, if nobody says it."""
    rows = a_read_epoch(rig)
    file = tmp_path / name
    result = rig.on_journal("export", "--epoch", "1", "--to-file", str(file), "--json", *form)
    assert (result.exit_code, lines(result)[0]["messages"]) == (Status.OK, len(rows))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    if name != "rows.jsonl":
        assert pq.read_schema(file).equals(ARROW_SCHEMA)
        assert pq.read_table(file).to_pylist() == rows
    else:
        told = [json.loads(text) for text in file.read_text().splitlines()]
        assert [each["body"] for each in told] == [row["body"] for row in rows]
        assert told[-1]["messageAttributes"] == {"key": {"dataType": "Binary", "binaryValue": "AA=="}}


def test_export_replaces_no_file_unless_told_to(rig: Rig, tmp_path: Path) -> None:
    """A repeat with --force writes the same bytes."""
    a_read_epoch(rig)
    file = tmp_path / "rows.jsonl"
    file.write_text("mine")
    arguments = ("--epoch", "1", "--to-file", str(file))
    assert "is there already" in error_of(rig.on_journal("export", *arguments), Status.REFUSED)
    assert file.read_text() == "mine"
    assert rig.on_journal("export", *arguments, "--force").exit_code == Status.OK
    first = file.read_bytes()
    assert first.count(b"\n") == 5
    assert rig.on_journal("export", *arguments, "--force").exit_code == Status.OK
    assert file.read_bytes() == first


def test_a_file_that_comes_meanwhile_is_not_replaced(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_read_epoch(rig)
    file = tmp_path / "rows.jsonl"
    read = Journal.read

    def and_write(self: Journal, name: str) -> Any:
        file.write_text("mine")
        return read(self, name)

    monkeypatch.setattr(Journal, "read", and_write)
    assert rig.on_journal("export", "--epoch", "1", "--to-file", str(file)).exit_code == Status.REFUSED
    assert file.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal", "rows.jsonl"]


@pytest.mark.parametrize(
    ("name", "status", "says"),
    [
        ("rows.csv", Status.USAGE, "does not show the format"),
        ("missing/rows.jsonl", Status.REFUSED, "No such file or directory"),
        (f"{'x' * 300}.jsonl", Status.REFUSED, "xxx.jsonl': File name too long"),
    ],
)
def test_a_file_that_cannot_be_written_is_told(rig: Rig, tmp_path: Path, name: str, status: Status, says: str) -> None:
    a_read_epoch(rig)
    assert says in error_of(rig.on_journal("export", "--epoch", "1", "--to-file", str(tmp_path / name)), status)
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


def put_again_for_another_plan(rig: Rig) -> tuple[int, int]:
    """Put what the epoch holds once more, as another driver's plan would have it. Return both plans."""
    store = FileStore(rig.journal)
    journal = Journal.look(store)
    assert journal is not None
    plans = set()
    for names in journal.objects().values():
        for name in filter(journal.is_link, names):
            segment = journal.read(name)
            assert segment is not None
            origin = segment.head.origin
            plans.add(origin.plan)
            head = replace(segment.head, origin=replace(origin, plan=origin.plan + 1))
            other = journal.segment_name(origin.epoch, origin.partition, origin.plan + 1, origin.link)
            store.put_if_absent(other, encode(replace(segment, head=head)))
    (plan,) = plans
    return plan, plan + 1


def test_an_epoch_of_two_plans_is_exported_only_by_one(rig: Rig, tmp_path: Path) -> None:
    """Spark has logged one of them; which, the journal does not know."""
    rows = a_read_epoch(rig)
    one, other = put_again_for_another_plan(rig)
    assert [plan["plan"] for plan in lines(rig.on_journal("show", "--json"))[0]["plans"]] == [one, other]
    arguments = ("--epoch", "1", "--to-file", str(tmp_path / "rows.parquet"))
    assert f"has 2 plans ({one}, {other})" in error_of(rig.on_journal("export", *arguments), Status.USAGE)
    assert rig.on_journal("export", *arguments, "--plan", str(one)).exit_code == Status.OK
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == rows
    shown = lines(rig.on_journal("cat", "--epoch", "1", "--plan", str(other), "--json"))
    assert {each["plan"] for each in shown} == {other}
    assert "has nothing of plan 9 of epoch 1" in one_error(rig.on_journal("cat", "--epoch", "1", "--plan", "9"))


def test_nothing_is_claimed_or_changed(rig: Rig, tmp_path: Path) -> None:
    """The query that owns the journal goes on to own it, and commits."""
    rig.send("1")
    driver, end, _ = rig.read_epoch()
    before = rig.stored()
    for _ in range(2):
        rig.on_journal("show")
        rig.on_journal("show", "--queue-url", rig.url)
        rig.on_journal("cat", "--epoch", "1")
        rig.on_journal("export", "--epoch", "1", "--to-file", str(tmp_path / "x.parquet"), "--force")
    assert rig.stored() == before
    driver.commit(end)
    assert rig.receive() == []


def test_a_place_without_a_journal_stays_without(rig: Rig) -> None:
    """Not even its folder is made."""
    for command, more in (("show", ()), ("cat", ("--epoch", "1"))):
        assert "there is no journal at" in error_of(rig.on_journal(command, *more), Status.REFUSED)
    assert not rig.journal.exists()


def segments_of(rig: Rig) -> list[Path]:
    return [path for path in sorted(rig.journal.glob("epochs/*/*")) if "caught" not in path.name]


def test_an_epoch_that_is_dropped_meanwhile_is_no_error_of_show_and_not_exported_by_halves(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query commits while the journal is read: objects go between the list and the get."""
    a_read_epoch(rig)
    listed = FileStore.list

    def list_and_drop(self: FileStore, prefix: str) -> list[str]:
        names = listed(self, prefix)
        if prefix == "epochs":
            for path in segments_of(rig):
                path.rename(tmp_path / path.name)
        return names

    monkeypatch.setattr(FileStore, "list", list_and_drop)
    segments = {path.name: path for path in segments_of(rig)}
    result = rig.on_journal("show", "--json")
    assert (result.exit_code, result.stderr) == (Status.OK, "")
    (plan,) = lines(result)[0]["plans"]
    assert plan["messages"] == 0
    assert plan["caughtMessages"] > 0
    assert plan["oldestAgeSeconds"] >= 0
    for name, path in segments.items():
        (tmp_path / name).rename(path)
    export = rig.on_journal("export", "--epoch", "1", "--to-file", str(tmp_path / "x.parquet"))
    assert "was committed" in error_of(export, Status.PROBLEM)
    assert not [path for path in tmp_path.iterdir() if "parquet" in path.name]


def test_damage_is_told_and_all_else_shown(rig: Rig) -> None:
    a_read_epoch(rig)
    path = segments_of(rig)[0]
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    result = rig.on_journal("show", "--json")
    assert result.exit_code == Status.PROBLEM
    (damage,) = lines(result)[0]["damage"]
    assert path.name in damage
    assert "damaged" in rig.on_journal("show").stdout
    assert path.name in error_of(rig.on_journal("cat", "--epoch", "1"), Status.PROBLEM)


def test_an_unfinished_chain_shows_as_open(rig: Rig) -> None:
    """Its tasks may still put links."""
    a_read_epoch(rig)
    segments_of(rig)[0].unlink()
    (shown,) = lines(rig.on_journal("show", "--json"))
    assert not any(plan["isClosed"] for plan in shown["plans"])


# How far a command is: one line, on a terminal alone


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "form"), [("show", ()), ("cat", ()), ("export", ()), ("show", ("--json",)), ("export", ("--json",))]
)
def test_a_terminal_sees_how_far_a_command_is(rig: Rig, tmp_path: Path, command: str, form: tuple[str, ...]) -> None:
    """On the standard error, and not where JSON is asked for; what is printed for programs or files is the same."""
    a_read_epoch(rig)
    plan, _ = put_again_for_another_plan(rig)
    of_epoch = ("--epoch", "1", *(("--plan", str(plan)) if command == "export" else ()))
    arguments = {"show": (), "cat": of_epoch, "export": (*of_epoch, "--to-file", str(tmp_path / "a.jsonl"))}
    done, seen = on_terminal(rig, "xterm", command, *arguments[command], *form)
    assert done.returncode == Status.OK
    assert b"\x1b" not in done.stdout
    assert (b"epoch" in seen and b"100%" in seen) == (not form)
    assert seen.count(b"\r\n") <= 1  # one bar, in one line
    assert bool(form) == (seen == b"")


def on_terminal(rig: Rig, kind: str, *arguments: str) -> tuple[subprocess.CompletedProcess[bytes], bytes]:
    """Run a command on the journal. Return how it ended, and what a terminal of this kind got as its standard error."""
    command, *others = arguments
    line = [sys.executable, "-m", "sqs_fifo_spark", "journal", command, "--journal-location", rig.location, *others]
    env = {**os.environ, "TERM": kind, "COLUMNS": "80"}
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        try:
            done = subprocess.run(line, stdout=subprocess.PIPE, stderr=theirs, env=env, timeout=60, check=False)
        finally:
            os.close(theirs)
        return done, read_all(terminal)


def read_all(terminal: io.RawIOBase) -> bytes:
    """Return what the terminal still has to show; nobody writes to it any more."""
    seen = b""
    with contextlib.suppress(OSError):  # with which Linux says so
        while part := terminal.read(100_000):  # not all at once
            seen += part
    return seen


@pytest.mark.slow
def test_what_moves_no_cursor_gets_no_bar(rig: Rig) -> None:
    """Neither a terminal that cannot, nor a file where colours are forced: an error is one line there, too."""
    a_read_epoch(rig)
    arguments = ("cat", "--epoch", "1", "--message-id", "none")
    _, seen = on_terminal(rig, "dumb", *arguments)
    assert seen.startswith(b"error: ")
    line = [sys.executable, "-m", "sqs_fifo_spark", "journal", *arguments, "--journal-location", rig.location]
    env = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm"}
    done = subprocess.run(line, capture_output=True, env=env, timeout=60, check=False)
    assert (done.stderr.count(b"\n"), b"\x1b" in done.stderr) == (1, False)


def test_sigterm_leaves_neither_a_draft_nor_a_hidden_cursor(rig: Rig, tmp_path: Path) -> None:
    a_read_epoch(rig)
    stuck = segments_of(rig)[0]
    stuck.unlink()
    os.mkfifo(stuck)  # who opens it waits
    line = [sys.executable, "-m", "sqs_fifo_spark", "journal", "export", "--journal-location", rig.location]
    arguments = ["--epoch", "1", "--to-file", str(tmp_path / "rows.jsonl")]
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        env = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
        with subprocess.Popen([*line, *arguments], stderr=theirs, env=env) as process:
            os.close(theirs)
            wait_until(lambda: list(tmp_path.glob(".rows.jsonl.*")), 60, "a draft")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == Status.TERMINATED
        seen = read_all(terminal)
    assert seen.rfind(b"\x1b[?25h") > seen.rfind(b"\x1b[?25l") >= 0  # shown again after it was hidden
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]
