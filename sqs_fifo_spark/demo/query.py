"""The demo's query, in processes that may be killed: each goes on with the checkpoint and the journal of the last one.

`python -m sqs_fifo_spark.demo.query OPTIONS DIRECTORY` runs it, with the queue's options as JSON, until its standard
input ends; if it fails, its standard output says why, in one line.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_WORKER = [b"-m", b"pyspark.daemon", b"pyspark.worker"]
"""The end of the command line of a Python worker that runs tasks, and of the daemon that has forked it."""
_STOP_S = 60.0
"""Seconds in which a query that is stopped must end."""


class QueryProcess:
    """Start the query, and count the times that it was killed. In a `with` block, it is stopped at the end."""

    def __init__(self, queue: Mapping[str, str], work: Path) -> None:
        self._command = [sys.executable, "-m", "sqs_fifo_spark.demo.query", json.dumps(queue), str(work)]
        self._work = work
        self._said = work / "query.txt"
        self.kills = self.worker_kills = 0
        self._cpu_ticks: dict[int, int] = {}
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        # A group of its own, with the JVM: the two are killed at once, and Ctrl-C does not reach them.
        with self._said.open("wb") as said, (self._work / "spark.log").open("ab") as log:
            return subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=said, stderr=log, start_new_session=True
            )

    def __enter__(self) -> QueryProcess:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    @property
    def end(self) -> str | None:
        """The reason for which the query has ended, or None while it runs."""
        if self._process.poll() is None:
            return None
        return self._said.read_text(errors="replace").strip() or f"its exit status is {self._process.returncode}"

    @property
    def is_in_a_batch(self) -> bool:
        """True if Spark has planned a micro-batch that it has not committed."""
        return self._last("offsets") > self.last_commit

    @property
    def last_commit(self) -> int:
        """The newest micro-batch that Spark has committed, or -1. By then the source has settled the one before."""
        return self._last("commits")

    def _last(self, log: str) -> int:
        return max((int(path.name) for path in (self._work / "checkpoint" / log).glob("[0-9]*")), default=-1)

    def kill_and_restart(self) -> bool:
        """End driver and JVM with SIGKILL, start them again, and return True."""
        os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.wait() == -signal.SIGKILL:
            self.kills += 1
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process = self._start()
        return True

    def kill_a_worker(self) -> bool:
        """End a Python worker that runs a task with SIGKILL; return False if none has worked since the last call."""
        before, self._cpu_ticks = self._cpu_ticks, _workers(self._process.pid)
        for pid, ticks in self._cpu_ticks.items():
            if ticks > before.get(pid, ticks):
                with suppress(ProcessLookupError):  # it has ended by itself
                    os.kill(pid, signal.SIGKILL)
                    self.worker_kills += 1
                    return True
        return False


def _workers(ancestor: int) -> dict[int, int]:
    """Return the Python workers below the process `ancestor`, and the processor time that each has used, in ticks."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    commands: dict[int, list[bytes]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            pid = int(folder.name)
            # The name, in brackets, may hold anything; after it stand the state, the parent and, later, the times.
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            parents[pid], ticks[pid] = int(fields[1]), int(fields[11]) + int(fields[12])
            commands[pid] = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")[-3:]

    def descends(pid: int) -> bool:
        while pid in parents and pid != ancestor:
            pid = parents[pid]
        return pid == ancestor

    # The daemon has the same command line, but the JVM for a parent.
    both = [pid for pid, command in commands.items() if command == _WORKER and descends(pid)]
    return {pid: ticks[pid] for pid in both if commands.get(parents[pid]) == _WORKER}


def one_line(error: Exception) -> str:
    """Return our own message if one stands in Spark's error, else its first line with a text."""
    text = str(error)
    own = re.findall(r"sqs_fifo_spark\.errors\.\w+: (.+)", text)
    spoken = [line.lstrip(": ") for line in text.splitlines() if line.strip(": ")]
    if spoken and spoken[0].startswith("An error occurred while calling"):
        # Py4J's first line only names the call.
        spoken = spoken[1:]
    return str(own[-1]) if own else next(iter(spoken), repr(error))


def main(queue: Mapping[str, str], work: Path) -> int:
    """Run the query until its standard input ends; return 1 if it fails."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from sqs_fifo_spark.stopping import await_termination

    threading.Thread(target=_end_with_input, daemon=True).start()
    builder = (
        # A task whose worker was killed is tried again, as on a cluster.
        SparkSession.builder.master("local[2,4]")
        .appName("sqs-fifo-spark demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        # A JVM that runs for half a minute.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(work / "warehouse"))
        .config("spark.local.dir", str(work / "spark"))
    )
    step = "Spark did not start; it needs Java 17 or later"
    try:
        spark = builder.getOrCreate()
        step = "the query did not start"
        query = (
            spark.readStream.format("sqsfifo")
            .options(**queue)
            .option("journalLocation", str(work / "journal"))
            .option("waitTimeSeconds", "1")
            # After a kill, what a task had received and not yet written comes again when this time is over.
            .option("visibilityTimeoutSeconds", "10")
            .load()
            .writeStream.format("parquet")
            .option("path", str(work / "parquet"))
            .option("checkpointLocation", str(work / "checkpoint"))
            .start()
        )
        step = "the query failed"
        await_termination(query)
    except (PySparkException, Py4JError, OSError) as error:
        print(f"{step}: {one_line(error)}", flush=True)
        return 1
    finally:
        shutil.rmtree(work / "spark", ignore_errors=True)  # also what killed ones have left
    spark.stop()
    return 0


def _end_with_input() -> None:
    """Wait for the end of the standard input: the demo closes it, or has ended itself."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), Path(sys.argv[2])))
