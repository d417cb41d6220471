"""The application as the harness sees it: its processes, what it has committed, and how it is started again."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.crash.cluster import ROOT, Cluster
from tests.crash.processes import Process, begin, descendants, end, look
from tests.crash.trapped import HOME_VARIABLE

_DRIVER = "org.apache.spark.deploy.SparkSubmit"
_READER = "python_streaming_source_runner"
_ENDS_S = 60.0


class Application:
    """`tests.crash.app` in `home`, started again whenever it has ended. `say` prints one line."""

    def __init__(self, cluster: Cluster, home: Path, settings: dict[str, Any], say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._home = home
        self._say = say
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._said = 0
        (home / "events").mkdir()
        (home / "app.json").write_text(json.dumps(settings))

    def keep_running(self) -> None:
        """Start the application unless it runs, and say why a query ended."""
        failures = self.failures()
        for failure in failures[self._said :]:
            self._say(f"the query ended: {brief(failure)}")
        self._said = len(failures)
        if self._process is not None and self._process.poll() is None:
            return
        number = next(self._numbers)
        if self._process is not None:
            self._say(f"start {number} of the application, which had ended with status {self._process.returncode}")
        command = [sys.executable, "-m", "tests.crash.app", str(self._home)]
        variables = {**self._cluster.environment(), HOME_VARIABLE: str(self._home)}
        self._process = begin(command, self._home / f"app-{number}.log", env=variables, cwd=ROOT)

    def stop(self) -> None:
        """Let the application stop its query and end, or end it."""
        (self._home / "stop").touch()
        if self._process is not None:
            left = descendants(self._process.pid)
            try:
                self._process.wait(_ENDS_S)
            except subprocess.TimeoutExpired:
                self._say("the application does not stop, so it is ended")
            end(self._process)
            for process in left:
                process.kill()

    # Its processes

    def driver(self) -> list[Process]:
        """Return the driver's JVM and its Python, or nothing while there are not both."""
        python = look(self._process.pid) if self._process is not None else None
        jvm = self._jvm()
        return [jvm, python] if jvm and python else []

    def reader(self) -> Process | None:
        """Return the Python process beside the driver in which the source's reader lives."""
        jvm = self._jvm()
        found = [each for each in descendants(jvm.pid) if _READER in each.command] if jvm else []
        return found[-1] if found else None

    def _jvm(self) -> Process | None:
        if self._process is None:
            return None
        return next((each for each in descendants(self._process.pid) if _DRIVER in each.command), None)

    # What it has done

    def last_commit(self) -> int:
        """Return the last micro-batch in Spark's commit log, or -1."""
        return max(self.commits(), default=-1)

    def commits(self) -> dict[int, float]:
        """Return when each micro-batch was written into Spark's commit log, in wall-clock seconds."""
        return {int(entry.name): entry.stat().st_mtime for entry in self._entries("checkpoint/commits")}

    def has_committed(self, batch_id: int) -> bool:
        """Return whether the micro-batch is in Spark's commit log."""
        return (self._home / "checkpoint" / "commits" / str(batch_id)).exists()

    def last_written(self) -> int:
        """Return the last micro-batch in the log of the file sink, or -1."""
        names = (entry.name.partition(".")[0] for entry in self._entries("parquet/_spark_metadata"))
        return max((int(name) for name in names), default=-1)

    def has_written(self, batch_id: int) -> bool:
        """Return whether the micro-batch is in the log of the file sink."""
        log = self._home / "parquet" / "_spark_metadata"
        return (log / str(batch_id)).exists() or (log / f"{batch_id}.compact").exists()

    def failures(self) -> list[list[str]]:
        """Return what the queries that failed have said, each with its causes."""
        try:
            text = (self._home / "failures.txt").read_text()
        except FileNotFoundError:
            return []
        whole, _, _ = text.rpartition("\n")  # the last line may be on its way
        return [json.loads(line) for line in whole.splitlines()]

    def speculative_copies(self) -> int:
        """Return how many speculative copies Spark has launched, as far as its event logs came to the disk."""
        count = 0
        for log in (self._home / "events").rglob("*"):
            if log.is_file():
                with log.open(errors="replace") as lines:
                    count += sum('"SparkListenerTaskStart"' in line and '"Speculative":true' in line for line in lines)
        return count

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._home / folder) as entries:
                return [entry for entry in entries if entry.name.partition(".")[0].isdigit()]
        except FileNotFoundError:
            return []


def brief(failure: list[str]) -> str:
    """Return the line of a query's failure that says most: the source's own, else the first of the last cause."""
    lines = [line.strip() for said in failure for line in said.splitlines()]
    own = [line for line in lines if is_our_own(line)]
    return (own[0] if own else failure[-1].strip().partition("\n")[0])[:300]


def is_our_own(text: str) -> bool:
    """Return whether the source itself has raised what is told there."""
    return "sqs_fifo_spark.errors." in text
