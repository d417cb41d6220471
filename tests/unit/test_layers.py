"""The layer check of `.ci/layers.py`: it must catch what it is there to catch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT / ".ci" / "layers.py"


def check(package: Path) -> tuple[int, str]:
    """Run the check as `make lint` does; return its exit status and what it printed."""
    done = subprocess.run([sys.executable, CHECK, package], capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


def package_of(directory: Path, **sources: str) -> Path:
    """Write modules named by the keywords, with `__` for a dot, and return their package."""
    package = directory / "sqs_fifo_spark"
    for name, source in {"__init__": "", **sources}.items():
        path = package / f"{name if name.startswith('__') else name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return package


def test_this_package_keeps_its_layers() -> None:
    """The package as it stands has no violation."""
    status, printed = check(ROOT / "sqs_fifo_spark")
    assert status == 0, printed


def test_modules_that_do_not_exist_break_nothing(tmp_path: Path) -> None:
    """A package with few of the modules is judged by those that it has."""
    package = package_of(
        tmp_path,
        errors="import json",
        aws="import boto3",
        queue="from sqs_fifo_spark.errors import QueueRequestError",
        journal="from sqs_fifo_spark import queue, errors",
    )
    assert check(package)[0] == 0


@pytest.mark.parametrize(
    ("module", "source", "said"),
    [
        ("options", "from sqs_fifo_spark.journal import Journal", "journal is in layer"),
        ("options", "import sqs_fifo_spark.journal", "journal is in layer"),
        ("options", "from sqs_fifo_spark import journal", "journal is in layer"),
        ("options", "from . import journal", "journal is in layer"),
        ("options", "from .journal import Journal", "journal is in layer"),
        ("options", "def late():\n    from sqs_fifo_spark.journal import Journal", "journal is in layer"),
        ("options", "from sqs_fifo_spark.message import Message", "message is in layer"),
        ("options", "from sqs_fifo_spark import DefaultSource", "__init__ is in layer"),
        ("journal", "import boto3", "boto3 belongs only in"),
        ("journal", "from botocore.config import Config", "botocore belongs only in"),
        ("journal", "import obstore.store", "obstore belongs only in"),
        ("journal", "from pyspark.sql import SparkSession", "pyspark belongs only in"),
        ("journal", "from time import sleep", "time belongs only in clock"),
        ("journal", "import aiohttp.web", "aiohttp belongs only in local"),
        ("journal", "from sqs_fifo_spark.local.model import FifoModel", "only the top layer"),
        ("local__server", "from sqs_fifo_spark.journal import Journal", "local/ may import only clock"),
        ("local__server", "import boto3", "boto3 belongs only in"),
        ("newcomer", "", "newcomer has no layer"),
    ],
)
def test_violation_is_caught(tmp_path: Path, module: str, source: str, said: str) -> None:
    """Each forbidden import is one line that names the module and the rule, and the check fails."""
    sources = {"journal": "", "message": "", "local__model": "", module: source}
    status, printed = check(package_of(tmp_path, **sources))
    assert status == 1
    assert len(printed.splitlines()) == 1
    assert said in printed
    assert f"{module.replace('__', '/')}.py" in printed


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("clock", "import time"),
        ("local__server", "import aiohttp\nfrom sqs_fifo_spark.clock import Clock\nfrom . import model"),
        ("local__demo", "import boto3, pyspark\nfrom sqs_fifo_spark.options import SOURCE"),
        ("__main__", "from sqs_fifo_spark.local import model\nfrom sqs_fifo_spark import journal"),
        ("journal", "import json, datetime\nfrom sqs_fifo_spark.message import Message"),
    ],
)
def test_rightful_import_passes(tmp_path: Path, module: str, source: str) -> None:
    """What the layers allow is not reported."""
    sources = {"clock": "", "message": "", "options": "", "journal": "", "local__model": "", module: source}
    status, printed = check(package_of(tmp_path, **sources))
    assert status == 0, printed
