"""Set-ups in which users start Spark: settings, an environment for processes, a cluster, a server.

Nothing that is started here sees this checkout: PYTHONPATH is not inherited, and `python3` is a bare one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqs_fifo_spark.local import FifoModel, LocalQueueServer
from tests.crash.cluster import SPARK_HOME, deployed
from tests.crash.processes import Daemon, begin
from tests.spark.sink import assert_each_once_in_order, expected, group_of, held_in
from tests.spark.support import APPS, LONG_S, SPARK_VERSION, output_of

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
    return output_of(begin([str(part) for part in command], log, env=variables, cwd=home), log, timeout_s)


def fill(server: LocalQueueServer, url: str, count: int, groups: int) -> None:
    """Send the rows of `tests.spark.sink.expected` to the queue."""

    def send(model: FifoModel) -> None:
        for number in range(count):
            ids = {"MessageGroupId": group_of(number, groups), "MessageDeduplicationId": f"message-{number}"}
            model.call("SendMessage", {"QueueUrl": url, "MessageBody": f"row {number}", **ids})

    server.run(send)


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
        assert server.messages(url) == []
        assert_each_once_in_order(held_in(server, into), expected(count, groups))
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
        place = ("--host", "127.0.0.1", "--port", "0")
        return Daemon(deployed(role, *place, *arguments), home / f"{role}.log", variables)

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
