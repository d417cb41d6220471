"""The code's own rules: what may import what, and how docstrings begin."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


# Import contracts in `pyproject.toml`: they hold, and each of them catches what it is there to catch


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


BREACHES = [
    ("Rooms", "source/driver/driver", "from sqs_fifo_spark.sink import sender", "sqs_fifo_spark.sink.sender"),
    ("Rooms", "sink/sender", "from sqs_fifo_spark.source.queue import Queue", "sqs_fifo_spark.source.queue"),
    (
        "Rooms",
        "journal/store",
        "from sqs_fifo_spark.source import journal_objects",
        "sqs_fifo_spark.source.journal_objects",
    ),
    ("Rooms", "aws/client", "import sqs_fifo_spark.journal.identity", "sqs_fifo_spark.journal.identity"),
    ("Rooms", "options/sink", "def late():\n    from sqs_fifo_spark.aws import calls", "sqs_fifo_spark.aws.calls"),
    ("Rooms", "local/cli", "from sqs_fifo_spark.demo import play", "sqs_fifo_spark.demo.play"),
    (
        "The source",
        "source/ledger",
        "import sqs_fifo_spark.source.journal_objects",
        "sqs_fifo_spark.source.journal_objects",
    ),
    ("The sink", "sink/outgoing", "from sqs_fifo_spark.sink.write import prepare", "sqs_fifo_spark.sink.write"),
    ("The local queue", "local/cli", "import pyarrow", "pyarrow"),
    ("boto3 only", "source/queue", "import boto3", "boto3"),
    ("botocore only", "source/queue", "import botocore.session", "botocore"),
    ("obstore only", "source/journal_objects", "def late():\n    import obstore", "obstore"),
    ("pyspark only", "source/driver/driver", "from pyspark.sql import Row", "pyspark"),
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


# The words of docstrings

QUESTION = re.compile(r"\W*(what|how|whether|which|who|whose|where|when)\b", re.IGNORECASE)


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring, those of fields and constants included."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else []:
            match each:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield each.lineno, text


def questions(source: str) -> list[int]:
    """Return the lines of the docstrings that begin with a question word."""
    return sorted(line for line, text in docstrings(source) if QUESTION.match(text))


@pytest.mark.parametrize(
    "planted",
    [
        '"""What a module does."""',
        'class A:\n    """Who calls."""',
        'class A:\n    field: int\n    """How many there are."""',
        'def f():\n    """\n    Whether it is so.\n    """',
        'async def f():\n    """which one"""',
        'LIMIT = 1\n"""When it is over."""',
        'LIMIT = 1\nr"""`Where` it is."""',
    ],
)
def test_docstring_that_begins_with_a_question_word_is_found(planted: str) -> None:
    """Each place of a docstring is looked at, in whatever case it begins."""
    assert len(questions(planted)) == 1


def test_docstring_that_begins_with_the_effect_is_fine() -> None:
    """Only the first word counts, and only as a whole."""
    assert not questions('"""Return what is left."""\nLIMIT = 1\n"""However long it takes."""\nname = "What?"')


def test_no_docstring_of_the_package_begins_with_a_question_word() -> None:
    """A reader looks for the effect or the noun, so that stands first."""
    files = list((ROOT / "sqs_fifo_spark").rglob("*.py"))
    assert len(files) > 100
    found = {path: questions(path.read_text(encoding="utf-8")) for path in files}
    assert not [f"{path.relative_to(ROOT)}:{line}" for path, lines in found.items() for line in lines]
