"""The checks of `doctor` on this machine: versions, and the Python with which Spark finds the format.

Spark looks a format up with PYSPARK_DRIVER_PYTHON, else PYSPARK_PYTHON, else the first python3 of the PATH; it runs its
workers with PYSPARK_PYTHON, else that python3. Only the environment is known here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import sqs_fifo_spark
from sqs_fifo_spark.cli.finding import Finding, failure, ok, warning
from sqs_fifo_spark.interpreter import REQUIRED, ask

_PACKAGES = ("pyspark", "boto3", "botocore", "obstore", "pyarrow")
_LOOKED_FOR = "pyspark_sqsfifo"
"""By this module Spark finds the format."""
_SPARK = """
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
)
source = spark.readStream.format("sqsfifo")
source.option("queueUrl", "https://sqs.us-east-1.amazonaws.com/0/any.fifo").option("journalLocation", "/any").load()
spark.stop()
"""
_SPARK_S = 180.0


def check_python(*, start_spark: bool) -> Iterator[Finding]:
    """Yield the findings; with `start_spark`, a Spark is started that looks the format up."""
    yield ok("sqs_fifo_spark", sqs_fifo_spark.__version__)
    yield ok("python", f"{sys.version.split()[0]}, {sys.executable}")
    for name in _PACKAGES:
        yield _version(name)
    yield _java()
    worker = os.environ.get("PYSPARK_PYTHON")
    looker = os.environ.get("PYSPARK_DRIVER_PYTHON") or worker
    yield _lookup(looker or "python3", _setting_name("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"))
    yield _workers(worker or "python3", _setting_name("PYSPARK_PYTHON"))
    if start_spark:
        yield _spark()


def _version(name: str) -> Finding:
    try:
        return ok(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        if name == "pyspark":
            return warning(
                name, f"not in {sys.executable}", "Use your platform's Python, or pip install 'pyspark>=4.0'"
            )
        return failure(name, f"not in {sys.executable}", f"pip install {name}")


def _java() -> Finding:
    """Find Java and its version in a file of its own, without starting it."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if found is None:
        where = f"in JAVA_HOME, {home}" if home else "on the PATH, and JAVA_HOME is not set"
        return warning("java", f"none {where}", "Spark needs Java 17 or 21 where its driver and executors run")
    try:
        lines = (Path(found).resolve().parent.parent / "release").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    values = dict(line.partition("=")[::2] for line in lines)
    return ok("java", f"{values.get('JAVA_VERSION', 'version not known').strip(chr(34))}, {found}")


def _setting_name(*names: str) -> str:
    return next((name for name in names if os.environ.get(name)), f"the PATH, as {' or '.join(names)} is not set")


def _lookup(python: str, named_by: str) -> Finding:
    check = "format"
    remedy = (
        "Call sqs_fifo_spark.register(spark) in the application; or set PYSPARK_PYTHON, before Spark starts, to an "
        "interpreter that has the package"
    )
    answer = ask(python, [_LOOKED_FOR, *REQUIRED, "pyspark"])
    if answer is None:
        return warning(check, f"'{python}' ({named_by}), by which Spark looks formats up, gives no answer", remedy)
    missing, _ = answer
    missing = [name for name in missing if name != "pyspark"]  # Spark brings its own
    if missing:
        says = f"Spark does not find 'sqsfifo' by itself: '{python}' ({named_by}) has no {', '.join(missing)}"
        return warning(check, says, remedy)
    return ok(check, f"Spark finds 'sqsfifo' by itself, with '{python}' ({named_by})")


def _workers(python: str, named_by: str) -> Finding:
    check = "workers"
    remedy = "Set PYSPARK_PYTHON, before Spark starts, to a Python that has the package, at the same path everywhere"
    answer = ask(python, REQUIRED)
    if answer is None:
        return failure(check, f"'{python}' ({named_by}), with which Spark runs its workers, gives no answer", remedy)
    missing, version = answer
    if missing:
        says = f"'{python}' ({named_by}), with which Spark runs its workers, has no {', '.join(missing)}"
        if named_by.startswith("the PATH"):
            return warning(check, says, f"{remedy}; 'register' helps in local mode")
        return failure(check, says, remedy)
    return ok(check, f"Python {version}, '{python}' ({named_by}), on this machine; others are not looked at")


def _spark() -> Finding:
    """Start Spark in local mode with this Python, and let it look the format up. No query is started."""
    check = "spark"
    remedy = "See 'Install' in README.md; where the format is not found, call sqs_fifo_spark.register(spark)"
    try:
        done = subprocess.run(
            [sys.executable, "-c", _SPARK], capture_output=True, text=True, timeout=_SPARK_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return failure(check, f"Spark did not start and look 'sqsfifo' up within {_SPARK_S:.0f} s", remedy)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line and not line[0].isspace()]
        return failure(check, f"Spark did not load 'sqsfifo': {lines[-1] if lines else done.returncode}", remedy)
    return ok(check, "a Spark was started, and found 'sqsfifo'")
