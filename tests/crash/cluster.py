"""Spark's standalone cluster, from the installed PySpark: a master and two workers, on the loopback only."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pyspark

from tests.crash import classes
from tests.crash.processes import Daemon, Process, ancestors, descendants

HOSTS = ("127.0.0.1", "127.0.0.2")
"""Spark makes no speculative copy on the host of the first attempt. Linux answers to all of 127.0.0.0/8."""
CORES = 2
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
        self._daemons: list[Daemon] = []
        self._archive = home / "classes.jsa"
        self.url = ""

    def environment(self) -> dict[str, str]:
        """Return the environment for an application on this cluster."""
        return environment(self._archive)

    def __enter__(self) -> Cluster:
        self._home.mkdir(parents=True)
        classes.make(self._archive, self.environment())
        with ExitStack() as stack:
            # Without a limit on retries, an application is not given up because its executors die.
            options = "-Dspark.deploy.maxExecutorRetries=-1 -Dspark.master.rest.enabled=false"
            master = self._start(stack, "master", HOSTS[0], options, "--port", "0")
            self.url = master.find(r"Starting Spark master at (spark://\S+)")
            for number, host in enumerate(HOSTS, 1):
                folder = str(self._home / f"worker-{number}")
                limits = ("--cores", str(CORES), "--memory", "1g", "--work-dir", folder)
                self._start(stack, "worker", host, "", *limits, self.url).find("(Successfully registered)")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        """End workers, then the master. Executors end with their worker, in whose group they are."""
        self._stack.close()

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
        return descendants(*(daemon.process.pid for daemon in self._daemons))

    def _start(self, stack: ExitStack, role: str, host: str, options: str, *arguments: str) -> Daemon:
        variables = {"SPARK_DAEMON_MEMORY": "256m", f"SPARK_{role.upper()}_OPTS": options}
        log = self._home / f"{role}-{len(self._daemons)}.log"
        command = deployed(role, "--host", host, *arguments)
        self._daemons.append(Daemon(command, log, {**environment(self._archive, host), **variables}))
        return stack.enter_context(self._daemons[-1])


def deployed(role: str, *arguments: str) -> list[str]:
    """Return the command of a master or worker of Spark's, without its pages."""
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}.{role.capitalize()}"]
    return [*command, "--webui-port", "0", *arguments]


def _is_executor(process: Process) -> bool:
    return "CoarseGrainedExecutorBackend" in process.command
