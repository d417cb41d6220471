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


@pytest.mark.parametrize(
    ("module", "planted", "broken"),
    [
        ("source/driver", "from sqs_fifo_spark.sink import sender", "Rooms"),
        ("sink/sender", "from sqs_fifo_spark.source.queue import Queue", "Rooms"),
        ("journal/store", "from sqs_fifo_spark.source import journal", "Rooms"),
        ("aws/client", "import sqs_fifo_spark.journal.identity", "Rooms"),
        ("options", "def late():\n    from sqs_fifo_spark.aws import calls", "Rooms"),
        ("source/ledger", "from sqs_fifo_spark.source.journal import Journal", "The source"),
        ("sink/message", "from sqs_fifo_spark.sink.write import prepare", "The sink"),
        ("local/cli", "from sqs_fifo_spark.demo import play", "Rooms"),
        ("local/cli", "import pyarrow", "The local queue"),
        ("source/queue", "import boto3", "boto3 only"),
        ("source/queue", "import botocore.session", "botocore only"),
        ("source/journal", "def late():\n    import obstore", "obstore only"),
        ("source/driver", "from pyspark.sql import Row", "pyspark only"),
        ("source/lease", "from time import sleep", "time only"),
        ("source/lease", "import aiohttp", "aiohttp only"),
    ],
)
def test_what_may_not_be_imported_is_found(copy: Path, module: str, planted: str, broken: str) -> None:
    """A line added to a module breaks the contract that is there for it."""
    path = copy / "sqs_fifo_spark" / f"{module}.py"
    path.write_text(f"{path.read_text()}\n{planted}\n")
    status, printed = lint_imports(copy)
    assert status == 1
    assert re.search(rf"{re.escape(broken)}[^/]*? BROKEN", printed), printed


@pytest.mark.parametrize("room", ["", "source/", "sink/"])
def test_a_new_module_is_given_its_place(copy: Path, room: str) -> None:
    """A module that no contract knows is not let in unseen."""
    (copy / "sqs_fifo_spark" / f"{room}surplus.py").write_text("")
    status, printed = lint_imports(copy)
    assert status == 1
    assert "surplus" in printed
