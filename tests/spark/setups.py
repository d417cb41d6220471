"""Set-ups in which users start Spark: settings, an environment for processes, a cluster, a server.

Nothing that is started here sees this checkout: PYTHONPATH is not inherited, and `python3` is a bare one.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from sqs_fifo_spark.local import LocalQueueServer
from tests import helpers
from tests.helpers import wait_until
from tests.spark.sink import assert_each_once_in_order, expected, group_of, take_all
from tests.spark.support import APPS, LONG_S, SPARK_VERSION

SPARK_HOME = Path(pyspark.__file__).parent
SUBMIT = str(SPARK_HOME / "bin" / "spark-submit")
QUEUES = ("from.fifo", "into.fifo")
DEADLINE_S = 4 * LONG_S
"""For a Spark of its own, on a busy machine."""

_UNWANTED = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "SPARK_CONF_DIR")
# A JVM here lives for seconds: what the second compiler makes is never paid back.
SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def environment(**variables: object) -> dict[str, str]:
    """Return the tests' environment without what names interpreters and paths, and with `variables`."""
    inherited = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
    return {**inherited, "JAVA_TOOL_OPTIONS": SMALL_JVM, **{name: str(value) for name, value in variables.items()}}


def settings(home: Path, text: str = "", *, master: str = "local[2]") -> Path:
    """Write Spark's settings into `home`, with `text` at the end, and return the folder for SPARK_CONF_DIR."""
    folder = home / "conf"
    folder.mkdir(exist_ok=True)
    lines = (
        f"spark.master {master}",
        "spark.ui.enabled false",
        "spark.driver.host 127.0.0.1",
        "spark.driver.bindAddress 127.0.0.1",
        "spark.sql.shuffle.partitions 2",
        f"spark.local.dir {home / 'local'}",
        f"spark.jars.ivy {home / 'ivy'}",
        text,
    )
    (folder / "spark-defaults.conf").write_text("\n".join(lines) + "\n")
    return folder


def run_to_end(command: Sequence[object], home: Path, variables: dict[str, str], timeout_s: float = DEADLINE_S) -> str:
    """Run `command` in `home`, which must succeed, and return what it prints."""
    log = home / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=variables,
            cwd=home,
            start_new_session=True,
        )
    try:
        status = process.wait(timeout_s)
    finally:
        end_group(process)
    printed = log.read_text(errors="replace")
    assert status == 0, f"{command} ended with status {status}: {printed[-6000:]}"
    return printed


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a group of its own, with all that is left of the group."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def fill(server: LocalQueueServer, url: str, count: int, groups: int) -> None:
    """Send the rows of `tests.spark.sink.expected` to the queue."""

    def send(number: int) -> None:
        request = {
            "QueueUrl": url,
            "MessageBody": f"row {number}",
            "MessageGroupId": group_of(number, groups),
            "MessageDeduplicationId": f"message-{number}",
        }
        server.run(lambda model: model.call("SendMessage", request))

    for number in range(count):
        send(number)


def depth(server: LocalQueueServer, url: str) -> tuple[int, int]:
    """Return how many messages of the queue are visible, and how many are in flight."""
    return helpers.depth(lambda **request: server.run(lambda model: model.call("GetQueueAttributes", request)), url)


def move(
    command: Sequence[object],
    home: Path,
    found: str,
    variables: dict[str, str],
    *,
    count: int,
    groups: int,
    remote: str | None = None,
) -> Path:
    """Move `count` messages from one queue to another: each arrives once and in order, and none is left behind.

    `command` starts the application, in whose environment are `variables`; `found` and `remote` are what
    `apps/move.py` says. Return the file of the package that a Python worker has imported, if the
    application has asked one.
    """
    with LocalQueueServer(queues=QUEUES) as server:
        url, into = map(server.queue_url, QUEUES)
        fill(server, url, count, groups)
        arguments = [APPS / "move.py", home, url, into, found, *([remote] if remote else [])]
        run_to_end([*command, *arguments], home, variables)
        assert depth(server, url) == (0, 0)
        assert_each_once_in_order(take_all(server, into), expected(count, groups))
    if SPARK_VERSION >= (4, 2):  # earlier ones ask sources for no figures
        assert (home / "rows.txt").read_text() == str(count)
    origin = home / "origin.txt"
    return Path(origin.read_text()) if origin.exists() else Path()


@contextmanager
def cluster(home: Path, path: str) -> Iterator[str]:
    """Run a standalone master and a worker with all their files in `home`, and give the master's URL.

    The worker, whose PATH is `path`, may still be starting: an application waits for it.
    """
    home.mkdir()
    variables = environment(PATH=path, SPARK_LOCAL_IP="127.0.0.1", SPARK_DAEMON_MEMORY="256m", SPARK_HOME=SPARK_HOME)

    def daemon(role: str, *arguments: str) -> Daemon:
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}.{role.capitalize()}"]
        place = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        return Daemon([*command, *place, *arguments], home / f"{role}.log", variables)

    with daemon("master") as master:
        url = master.find(r"Starting Spark master at (spark://\S+)")
        with daemon("worker", "--cores", "2", "--memory", "1g", "--work-dir", str(home / "work"), url):
            yield url


@contextmanager
def connect_server(home: Path, conf: Path, **variables: object) -> Iterator[str]:
    """Run a server of Spark Connect with all its files in `home` and the settings in `conf`, and give its URL."""
    place = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0"}
    options = [word for name, value in place.items() for word in ("--conf", f"{name}={value}")]
    # What sbin/start-connect-server.sh does: PySpark 4.0 from PyPI has no such script.
    command = [SUBMIT, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", *options]
    told = environment(SPARK_CONF_DIR=conf, **variables)
    with Daemon(command, home / "connect.log", told) as server:
        port = server.find(r"Spark Connect server started at: \S+:(\d+)")
        yield f"sc://127.0.0.1:{port}"


class Daemon:
    """A process that runs in a `with` block, in the folder of its log, and ends with all that it has started."""

    def __init__(self, command: Sequence[str], log: Path, variables: dict[str, str]) -> None:
        self._command = command
        self._log = log
        self._variables = variables

    def __enter__(self) -> Daemon:
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._variables,
                cwd=self._log.parent,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        end_group(self._process)

    def find(self, pattern: str) -> str:
        """Wait until the log has `pattern`, and return its group."""

        def found() -> str:
            printed = self._log.read_text(errors="replace")
            assert self._process.poll() is None, printed[-4000:]
            match = re.search(pattern, printed)
            return match[1] if match else ""

        return wait_until(found, DEADLINE_S, f"{self._log.stem} says {pattern}")
