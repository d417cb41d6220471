"""How far a command is shows in one line, on a terminal alone; and a signal leaves nothing behind."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sqs_fifo_spark.cli.output import Status
from tests.helpers import wait_until
from tests.unit.cli.conftest import Rig
from tests.unit.cli.test_journal import a_read_epoch, put_again_for_another_plan, segments_of


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
