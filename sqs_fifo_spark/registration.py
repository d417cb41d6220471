"""`register`: makes the format known to one Spark session, where Spark does not find it by itself.

Spark looks a format up with the Python that its JVM's environment names. That is another Python, or one that does not
see the package, when only settings name it, when the driver's Python is a wrapper such as Jupyter, when an application
is started by its own Python, and when the package comes in a jar.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqs_fifo_spark.errors import MissingPackageError, needs_spark
from sqs_fifo_spark.interpreter import REQUIRED, ask

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_ARCHIVES = (".zip", ".egg", ".jar")
"""Spark puts shipped files that end so on its workers' path."""
_STREAMING_FILES = "streaming_job"
"""Subfolder in which Spark's runner of streaming sources looks for shipped files."""
_NOT_NAMED = "python3"
"""Spark's choice where nobody has named an interpreter; its launcher `pyspark` even puts it into PYSPARK_PYTHON."""


def register(spark: SparkSession) -> None:
    """Make `format("sqsfifo")` work in the session `spark`, for reading and writing; where it works, it goes on to.

    Runs on the driver, for each session before its first query; to call it again does no harm. Where PYSPARK_PYTHON is
    not set, all Python workers of the application run from here on with the interpreter that `spark.pyspark.python`
    names; if that is not set either, and the first python3 of the PATH lacks a package, with the driver's own.
    A session of Spark Connect only learns of the format: its server needs the package installed.

    Raises MissingPackageError when the driver has no PySpark 4.0, or when the interpreter of the Python workers lacks a
    package on the driver's machine: install it, or name another interpreter. Other machines are not looked at.
    """
    with needs_spark():
        from pyspark.errors import PySparkException

        from sqs_fifo_spark.datasource import SqsFifoDataSource
    context: SparkContext | None = getattr(spark, "sparkContext", None)  # a session of Spark Connect has none
    if context is not None:
        _choose_python(context)
        _link_shipped_files()
    try:
        spark.dataSource.register(SqsFifoDataSource)
    except PySparkException as error:
        # Spark 4.0 finds the format itself, and will not have it replaced.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def _choose_python(context: SparkContext) -> None:
    """Settle the interpreter of Spark's Python workers; raise MissingPackageError if it lacks a package."""
    if os.environ.get("PYSPARK_PYTHON", _NOT_NAMED) == _NOT_NAMED:
        # spark-submit puts the setting into the environment; an application that its own Python starts must read it.
        named = context.getConf().get("spark.pyspark.python") or _environment_of_jvm(context, "PYSPARK_PYTHON")
        context.pythonExec = named or context.pythonExec
    missing = _missing_packages(context, context.pythonExec)
    if not missing:
        return
    if context.pythonExec == _NOT_NAMED and sys.executable and not _missing_packages(context, sys.executable):
        context.pythonExec = sys.executable
    else:
        raise MissingPackageError(
            f"'{context.pythonExec}', with which Spark runs its Python workers, has no {', '.join(missing)}: source "
            f"and sink need {', '.join(REQUIRED[1:])} installed there, and a jar brings sqs_fifo_spark alone. Install "
            f"what is missing with pip, on driver and workers, or set PYSPARK_PYTHON, before Spark starts, to a Python "
            f"that has it."
        )


def _environment_of_jvm(context: SparkContext, name: str) -> str | None:
    """Return a variable of the JVM's environment, to which Spark adds those of conf/spark-env.sh."""
    from py4j.protocol import Py4JError

    jvm: Any = context._jvm
    try:
        value: str | None = getattr(jvm, "java.lang.System").getenv(name)
    except Py4JError:  # a platform that lets Python call only functions it knows
        return None
    return value


def _missing_packages(context: SparkContext, python: str) -> list[str]:
    """Return the packages that `python` lacks on this machine; none without an answer, for Spark says the reason."""
    shipped = _shipped_files()
    paths = [str(shipped), *(str(path) for path in sorted(shipped.iterdir()) if path.suffix.lower() in _ARCHIVES)]
    set_for_workers: dict[str, Any] = context.environment
    both = (set_for_workers.get("PYTHONPATH"), os.environ.get("PYTHONPATH"))
    environment = {**os.environ, **set_for_workers, "PYTHONPATH": os.pathsep.join(filter(None, both))}
    answer = ask(python, REQUIRED, paths, environment)
    if answer is None:
        return []
    missing, version = answer
    return missing if version.startswith(f"{context.pythonVer}.") else [f"Python {context.pythonVer}", *missing]


def _shipped_files() -> Path:
    """Return the driver's folder of the files that Spark ships: those of --packages, --py-files and addPyFile."""
    from pyspark import SparkFiles

    return Path(SparkFiles.getRootDirectory())


def _link_shipped_files() -> None:
    """Let Spark's runner of streaming sources find the shipped files: it looks in a subfolder that is never made."""
    # Another call was first, or this Spark has made it. Without links, packages on the machine still work.
    with suppress(OSError):
        _shipped_files().joinpath(_STREAMING_FILES).symlink_to(os.curdir, target_is_directory=True)
