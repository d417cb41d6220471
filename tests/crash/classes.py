"""An archive of the classes that a small query loads: a JVM that maps it starts with a third of the work.

A run with many kills starts many JVMs. `python -m tests.crash.classes ARCHIVE` makes the archive; a JVM to which it
does not fit goes without.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from tests.helpers import spark_builder, wait_until

_LONG_S = 240.0


def make(archive: Path, environment: dict[str, str]) -> None:
    """Make the archive in a process of its own. Raises CalledProcessError if the query in it fails."""
    with archive.with_suffix(".log").open("wb") as output:
        subprocess.run(
            [sys.executable, "-m", "tests.crash.classes", str(archive)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            check=True,
            timeout=2 * _LONG_S,
        )


def main() -> None:
    """Run a query for two micro-batches, and let the JVM write the archive while it exits."""
    archive = f"-XX:ArchiveClassesAtExit={sys.argv[1]}"
    with tempfile.TemporaryDirectory(dir=Path(sys.argv[1]).parent) as home:
        builder = spark_builder("local[1]", Path(home)).config("spark.driver.extraJavaOptions", archive)
        spark = builder.getOrCreate()
        writer = spark.readStream.format("rate").load().writeStream.format("parquet")
        query = writer.option("checkpointLocation", f"{home}/checkpoint").start(f"{home}/parquet")
        wait_until(lambda: Path(home, "checkpoint", "commits", "1").exists(), _LONG_S, "two micro-batches")
        query.stop()
        spark.stop()
    gateway: Any = SparkContext._gateway
    # The JVM exits when its standard input is closed.
    gateway.proc.stdin.close()
    gateway.proc.wait(_LONG_S)


if __name__ == "__main__":
    main()
