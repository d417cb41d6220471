"""The import contracts in `pyproject.toml`: they hold, and each of them catches what it is there to catch."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def lint_imports(directory: Path) -> tuple[int, str]:
    """Judge the package in `directory` as `make lint` does; return exit status and output, on one line."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    return done.returncode, " ".join(done.stdout.split())


def plant(copy: Path, module: str, line: str) -> None:
    """Add a line to a module of the copy, which may be a new one."""
    with (copy / "sqs_fifo_spark" / f"{module}.py").open("a") as file:
        file.write(f"\n{line}\n")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A directory with a copy of the package and of its contracts."""
    shutil.copytree(ROOT / "sqs_fifo_spark", tmp_path / "sqs_fifo_spark", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_this_package_keeps_its_contracts() -> None:
    status, printed = lint_imports(ROOT)
    assert status == 0, printed
    assert re.search(r"Contracts: \d\d kept, 0 broken", printed)


BREACHES = [
    ("Rooms", "source/driver", "from sqs_fifo_spark.sink import sender", "sqs_fifo_spark.sink.sender"),
    ("Rooms", "sink/sender", "from sqs_fifo_spark.source.queue import Queue", "sqs_fifo_spark.source.queue"),
    ("Rooms", "journal/store", "from sqs_fifo_spark.source import journal", "sqs_fifo_spark.source.journal"),
    ("Rooms", "aws/client", "import sqs_fifo_spark.journal.identity", "sqs_fifo_spark.journal.identity"),
    ("Rooms", "options/sink", "def late():\n    from sqs_fifo_spark.aws import calls", "sqs_fifo_spark.aws.calls"),
    ("Rooms", "local/cli", "from sqs_fifo_spark.demo import play", "sqs_fifo_spark.demo.play"),
    (
        "The source",
        "source/ledger",
        "from sqs_fifo_spark.source.journal import Journal",
        "sqs_fifo_spark.source.journal",
    ),
    ("The sink", "sink/message", "from sqs_fifo_spark.sink.write import prepare", "sqs_fifo_spark.sink.write"),
    ("The local queue", "local/cli", "import pyarrow", "pyarrow"),
    ("boto3 only", "source/queue", "import boto3", "boto3"),
    ("botocore only", "source/queue", "import botocore.session", "botocore"),
    ("obstore only", "source/journal", "def late():\n    import obstore", "obstore"),
    ("pyspark only", "source/driver", "from pyspark.sql import Row", "pyspark"),
    ("time only", "source/lease", "from time import sleep", "time"),
    ("aiohttp only", "source/lease", "import aiohttp", "aiohttp"),
]
"""Contracts, and a line of a module that breaks each, with what it imports."""


def test_what_may_not_be_imported_is_found(copy: Path) -> None:
    """A line added to a module breaks the contract that is there for it, and is named."""
    for _, module, line, _ in BREACHES:
        plant(copy, module, line)
    status, printed = lint_imports(copy)
    assert status == 1
    for contract, module, _, imported in BREACHES:
        assert re.search(rf"{contract}((?! KEPT).)*? BROKEN", printed), printed
        assert re.search(rf"- +sqs_fifo_spark.{module.replace('/', '.')} -> {imported} \(l", printed), printed


@pytest.mark.parametrize("room", ["", "source/", "sink/"])
def test_a_new_module_is_given_its_place(copy: Path, room: str) -> None:
    """A module that no contract knows is not let in unseen."""
    plant(copy, f"{room}surplus", "")
    status, printed = lint_imports(copy)
    assert status == 1
    assert "surplus" in printed
