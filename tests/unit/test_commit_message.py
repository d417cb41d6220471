"""The hook on commit messages: it refuses what hides a reason from its reader, and nothing else."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / ".ci" / "commit_message.py"
HOOK: dict[str, Any] = runpy.run_path(str(SCRIPT))
DRIVER, DOCS = "sqs_fifo_spark/source/driver/driver.py", "sqs_fifo_spark/docs/source.md"
SUBJECT = "Driver: claims are read once"


@pytest.mark.parametrize(
    ("message", "changed"),
    [
        (SUBJECT, [DOCS, "tests/unit/source/test_chains.py"]),
        ("s" * 72, []),
        (f"{SUBJECT}\n\nA list of them takes a call.", [DRIVER]),
        (f"{SUBJECT}\n\nA list of them takes a call.\n\nSigned-off-by: A <a@example.org>", [DRIVER]),
        (f"fixup! {'s' * 72}", [DRIVER]),
    ],
    ids=["no reason needed", "72 characters", "a reason", "a reason and a trailer", "to be melded"],
)
def test_a_good_message_passes(message: str, changed: list[str]) -> None:
    """A reason is asked for only where the laws rest on the code."""
    assert list(HOOK["faults"](message, changed)) == []


@pytest.mark.parametrize(
    ("message", "changed", "fault"),
    [
        ("s" * 73, [], "the subject has 73 characters; at most 72 are shown. Say the rest below it"),
        ("One thing; another", [], "the subject has a ';': say one thing there, or make two commits"),
        (f"{SUBJECT}\nand lists, too", [], "the second line must be empty: git takes it for a part of the subject"),
        (SUBJECT, [DOCS, DRIVER], f"'{DRIVER}' changes; say below the subject, after an empty line, why"),
        (
            f"{SUBJECT}\n\nSigned-off-by: A <a@example.org>",
            ["sqs_fifo_spark/sink/lanes.py"],
            "'sqs_fifo_spark/sink/lanes.py' changes; say below the subject, after an empty line, why",
        ),
    ],
    ids=["73 characters", "a semicolon", "two lines", "no reason", "a trailer alone"],
)
def test_a_message_that_hides_a_reason_is_refused(message: str, changed: list[str], fault: str) -> None:
    """The log shows subjects whole, each for one thing, and bodies say why."""
    assert list(HOOK["faults"](message, changed)) == [fault]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository whose index has a change of the source."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    path = tmp_path / DRIVER
    path.parent.mkdir(parents=True)
    path.touch()
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize(
    ("below", "status"),
    [("\nWhy.\n", 0), ("\n# why\n", 1), ("\n# ------------------------ >8 ------------------------\ndiff\n", 1)],
    ids=["a reason", "a comment", "a diff below the scissors"],
)
def test_the_hook_judges_what_git_will_keep_and_what_is_staged(checkout: Path, below: str, status: int) -> None:
    """Git writes comments, and perhaps the diff, into the file: they are no reason."""
    message = checkout / "message"
    message.write_text(f"{SUBJECT}\n{below}", encoding="utf-8")
    command = [sys.executable, str(SCRIPT), str(message)]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stdout.startswith(f"'{DRIVER}' changes") == bool(status)
