"""The memory of a query's daemon and Python workers with and without `spark.python.daemon.module`.

`python -m tests.memory.workers [--beside FOLDER]` drains the same backlog, 20,000 messages in one micro-batch of eight
partitions, by workers that import all by themselves, by those of `sqs_fifo_spark.daemon`, and by those of another
version whose sources are in `FOLDER`. It prints the PSS of all of them together: at its peak, with the queue drained,
and when Spark has ended the workers, a minute later. Beside them stands the PSS of all Python processes of the
application, those of its driver and of Spark's planner included. It ends with status 1 if the module does not save two
fifths of the first two.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.local import LocalQueueServer
from tests.conftest import home_without_zip, pytest_configure
from tests.helpers import depth, wait_until
from tests.memory.preload import preload
from tests.memory.watch import DAEMON, READER, WORKER, Shares, pss_of_python, shares

MIB = 1 << 20
TARGET = 0.6
PARTITIONS, AT_ONCE, SIZE = 8, 20_000, 500
DEADLINE_S, PAUSE_S = 600.0, 0.5
QUERY = f"""
import sys
import threading
from pyspark.sql import SparkSession
home, url, daemon = sys.argv[1:]
builder = SparkSession.builder.master("local[{PARTITIONS}]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
builder = builder.config("spark.local.dir", home + "/local")
if daemon:
    builder = builder.config("spark.python.daemon.module", daemon)
spark = builder.getOrCreate()
source = spark.readStream.format("sqsfifo").option("queueUrl", url).option("journalLocation", home + "/journal")
source = source.option("maxMessagesPerTrigger", {AT_ONCE}).option("numPartitions", {PARTITIONS})
source = source.option("maxFetchSeconds", 30)
sink = source.load().writeStream.format("noop").option("checkpointLocation", home + "/checkpoint").start()
threading.Thread(target=lambda: (sys.stdin.read(), sink.stop()), daemon=True).start()
sink.awaitTermination()
spark.stop()
"""


class Taken(NamedTuple):
    """PSS of daemon and workers in bytes, at each time; of the reader, once the queue is drained; of all, at two times.

    `cpu_s` is that of daemon and workers.
    """

    peak: int
    drained: int
    later: int
    reader: int
    all_peak: int
    all_later: int
    cpu_s: float


def of_tasks(root: psutil.Process) -> Shares:
    found = shares(root)
    return found[DAEMON] + found[WORKER]


def measure(sources: Path, daemon: str, home: Path) -> Taken:
    """Drain a backlog by a query with this daemon, Spark's own if it is empty, and the package of `sources`."""
    home.mkdir()
    with LocalQueueServer() as server, (home / "log.txt").open("wb") as log:
        request = {"QueueName": "measured.fifo", "Attributes": {"FifoQueue": "true"}}
        url: str = server.run(lambda model: model.call("CreateQueue", request))["QueueUrl"]
        preload(server, url, AT_ONCE, SIZE, groups=2_000)
        command = [sys.executable, "-c", QUERY, str(home), url, daemon]
        environment = {**os.environ, "PYTHONPATH": str(sources), "SPARK_HOME": str(home_without_zip(home))}
        query = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=sources, env=environment)
        root, peak, all_peak = psutil.Process(query.pid), 0, 0

        def attributes(**given: Any) -> Any:
            return server.run(lambda model: model.call("GetQueueAttributes", given))

        def require_alive() -> None:
            if query.poll() is not None:
                raise SystemExit((home / "log.txt").read_text()[-4000:])

        def is_drained() -> bool:
            nonlocal peak, all_peak
            require_alive()
            peak, all_peak = max(peak, of_tasks(root).pss), max(all_peak, pss_of_python(root))
            return depth(attributes, url) == (0, 0)

        def has_no_worker() -> bool:
            require_alive()
            return shares(root)[WORKER].count == 0

        try:
            wait_until(is_drained, DEADLINE_S, "the queue is empty", pause_s=PAUSE_S)
            drained = of_tasks(root)
            reader = shares(root)[READER]
            wait_until(has_no_worker, DEADLINE_S, "Spark ends idle workers", pause_s=PAUSE_S)
            later = of_tasks(root).pss, reader.pss, all_peak, pss_of_python(root)
            return Taken(peak, drained.pss, *later, drained.cpu_s)
        finally:
            assert query.stdin
            query.stdin.close()
            try:
                query.wait(60)
            finally:
                query.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, help="sources of another version")
    given = parser.parse_args()
    pytest_configure()
    here = Path(__file__).parents[2]
    builds = {"by themselves": (here, ""), "daemon module": (here, "sqs_fifo_spark.daemon")}
    if given.beside:
        builds["other version"] = given.beside.absolute(), ""
    found: dict[str, Taken] = {}
    began = SYSTEM_CLOCK.monotonic()
    heads = "peak", "drained", "later", "reader", "all peak", "all later"
    print(f"{'PSS, MiB':14} " + " ".join(f"{head:>10}" for head in heads) + "  CPU s", flush=True)
    with tempfile.TemporaryDirectory(prefix="sqs-fifo-workers-") as home:
        for name, (sources, daemon) in builds.items():
            taken = found[name] = measure(sources, daemon, Path(home, name.replace(" ", "-")))
            mib = " ".join(f"{each / MIB:10.0f}" for each in taken[:-1])
            print(f"{name:14} {mib} {taken.cpu_s:6.1f}", flush=True)
    mine = found["daemon module"]
    for name in found.keys() - {"daemon module"}:
        other = found[name]
        ratios = [one / beside for one, beside in zip(mine, other, strict=True)]
        line = ", ".join(f"{head} {each:.2f}" for head, each in zip((*heads, "CPU"), ratios, strict=True))
        print(f"daemon module to {name}: {line}")
    print(f"{SYSTEM_CLOCK.monotonic() - began:.0f} s")
    alone = found["by themselves"]
    return int(max(mine.peak / alone.peak, mine.drained / alone.drained) > TARGET)


if __name__ == "__main__":
    sys.exit(main())
