"""Spark's standalone cluster, from the installed PySpark: a master and two workers, on the loopback only."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from pathlib import Path

import pyspark

from tests.crash import classes
from tests.crash.processes import Process, ancestors, begin, descendants, end
from tests.helpers import wait_until

HOSTS = ("127.0.0.1", "127.0.0.2")
"""Spark makes no speculative copy on the host of the first attempt. Linux answers to all of 127.0.0.0/8."""
CORES = 2
START_S = 120.0
SPARK_HOME = Path(pyspark.__file__).parent
ROOT = Path(__file__).resolve().parents[2]


def environment(archive: Path, host: str = HOSTS[0]) -> dict[str, str]:
    """Return the environment of everything in the cluster: this process's, the loopback, this checkout."""
    kept = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}
    paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": host,
        # A JVM here lives for a minute: what the second compiler makes is never paid back.
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
        + (f" -XX:SharedArchiveFile={archive}" if archive.exists() else ""),
    }


class Cluster:
    """A master and a worker on each of `HOSTS`, in a `with` block. Logs and work directories stay in `home`.

    Executors, and the Python workers on them, descend from the workers.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._archive = home / "classes.jsa"
        self.url = ""

    def environment(self) -> dict[str, str]:
        """Return the environment for an application on this cluster."""
        return environment(self._archive)

    def __enter__(self) -> Cluster:
        self._home.mkdir(parents=True)
        classes.make(self._archive, self.environment())
        try:
            # Without a limit on retries, an application is not given up because its executors die.
            options = "-Dspark.deploy.maxExecutorRetries=-1 -Dspark.master.rest.enabled=false"
            log = self._start("master", HOSTS[0], options, "--host", HOSTS[0], "--port", "0", "--webui-port", "0")
            found = wait_until(lambda: self._find(log, r"Starting Spark master at (spark://\S+)"), START_S, "a master")
            self.url = found
            for number, host in enumerate(HOSTS, 1):
                folder = str(self._home / f"worker-{number}")
                limits = ("--cores", str(CORES), "--memory", "1g", "--work-dir", folder)
                log = self._start("worker", host, "", "--host", host, "--webui-port", "0", *limits, self.url)
                wait_until(functools.partial(self._find, log, "(Successfully registered)"), START_S, "a worker")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End workers, then the master. Executors end with their worker."""
        left = self.executors()
        for daemon in reversed(self._daemons):
            end(daemon)
        self._daemons.clear()
        for executor in left:
            executor.kill()

    def executors(self) -> list[Process]:
        """Return the executors' JVMs."""
        return [each for each in self._descendants() if _is_executor(each)]

    def python_workers(self) -> list[Process]:
        """Return the Python workers in which tasks run: the children that the executors' Python daemons have forked."""
        running = self._descendants()
        daemons = {each.pid for each in running if "pyspark.daemon" in each.command}
        return [each for each in running if each.parent in daemons]

    def executor_of(self, pid: int) -> Process | None:
        """Return the executor's JVM from which the process `pid` descends."""
        return next((each for each in ancestors(pid) if _is_executor(each)), None)

    def _descendants(self) -> list[Process]:
        return descendants(*(daemon.pid for daemon in self._daemons))

    def _start(self, role: str, host: str, options: str, *arguments: str) -> Path:
        log = self._home / f"{role}-{len(self._daemons)}.log"
        settings = {"SPARK_DAEMON_MEMORY": "256m", f"SPARK_{role.upper()}_OPTS": options}
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}.{role.capitalize()}"]
        variables = {**environment(self._archive, host), **settings}
        self._daemons.append(begin([*command, *arguments], log, env=variables, cwd=self._home))
        return log

    def _find(self, log: Path, pattern: str) -> str:
        if any(daemon.poll() is not None for daemon in self._daemons):
            raise AssertionError(f"Spark's cluster did not start: {log.read_text(errors='replace')[-2000:]}")
        found = re.search(pattern, log.read_text(errors="replace"))
        return found[1] if found else ""


def _is_executor(process: Process) -> bool:
    return "CoarseGrainedExecutorBackend" in process.command
