"""Set-ups in which users start Spark: environments with and without the package, settings, a cluster, a jar.

Nothing that is started here sees this checkout: PYTHONPATH is not inherited, and `python3` is a bare one.
"""

from __future__ import annotations

import os
import re
import signal
import site
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from sqs_fifo_spark import __version__
from sqs_fifo_spark.local import LocalQueueServer
from tests import helpers
from tests.helpers import wait_until
from tests.spark.sink import group_of
from tests.spark.support import APPS, LONG_S, ROOT

SPARK_HOME = Path(pyspark.__file__).parent
SUBMIT = str(SPARK_HOME / "bin" / "spark-submit")
COORDINATES = f"sqs-fifo-spark:sqs-fifo-spark:{__version__}"
DEADLINE_S = 4 * LONG_S
"""For a Spark of its own, on a busy machine."""

_SITE = Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages")
_UNWANTED = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "SPARK_CONF_DIR")
# A JVM here lives for seconds: what the second compiler makes is never paid back.
SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def make_environment(home: Path, *, dependencies: bool = True, package: Path | None = None) -> Path:
    """Make an environment with what this package depends on, or bare; with what the jar `package` holds, or without.

    Return its interpreter.
    """
    venv.create(home, with_pip=False, symlinks=True)
    if dependencies:
        # Path files in the folders that are named here are not read, so a link to a checkout does not count.
        (home / _SITE / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    if package is not None:
        with zipfile.ZipFile(package) as archive:
            archive.extractall(home / _SITE)
    return home / "bin" / "python"


def imports(python: Path, *modules: str) -> dict[str, bool]:
    """Return which of `modules` the interpreter can import, where Spark would start it."""
    outcome = {}
    for module in modules:
        command = [str(python), "-c", f"import {module}"]
        done = subprocess.run(command, capture_output=True, env=environment(), cwd=python.parent)
        outcome[module] = done.returncode == 0
    return outcome


@dataclass(frozen=True)
class Repository:
    """A Maven repository in a folder, with the jar of this checkout."""

    home: Path
    jar: Path

    @property
    def options(self) -> list[str]:
        """What `spark-submit` is told."""
        return ["--packages", COORDINATES, "--repositories", self.home.as_uri()]


def make_repository(home: Path) -> Repository:
    """Make the jar as `make jar` does."""
    subprocess.run([sys.executable, str(ROOT / ".ci" / "jar.py"), str(home)], check=True, capture_output=True)
    return Repository(home, next(home.rglob("*.jar")))


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


def app(name: str) -> Path:
    """Return the script `name`."""
    return APPS / name


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


@contextmanager
def cluster(home: Path) -> Iterator[str]:
    """Run a standalone master and a worker with all their files in `home`, and give the master's URL.

    The worker may still be starting: an application waits for it.
    """
    home.mkdir()
    daemons: list[subprocess.Popen[bytes]] = []

    def start(role: str, *arguments: str) -> Path:
        log = home / f"{role}.log"
        with log.open("wb") as output:
            command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}.{role.capitalize()}"]
            daemons.append(
                subprocess.Popen(
                    [*command, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment(SPARK_LOCAL_IP="127.0.0.1", SPARK_DAEMON_MEMORY="256m", SPARK_HOME=SPARK_HOME),
                    cwd=home,
                    start_new_session=True,
                )
            )
        return log

    def url() -> str:
        printed = log.read_text(errors="replace")
        assert daemons[0].poll() is None, printed[-2000:]
        found = re.search(r"Starting Spark master at (spark://\S+)", printed)
        return found[1] if found else ""

    try:
        log = start("master")
        master = wait_until(url, DEADLINE_S, "a master")
        start("worker", "--cores", "2", "--memory", "1g", "--work-dir", str(home / "work"), master)
        yield master
    finally:
        for daemon in reversed(daemons):
            end_group(daemon)
