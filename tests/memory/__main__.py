"""Run real queries over backlogs of several shapes, and print what each Python process took beside its limit.

`python -m tests.memory [NUMBER ...]` ends with status 1 if a limit is broken. It takes some minutes; numbers choose
from `BACKLOGS`.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.local import LocalQueueServer
from tests.conftest import pytest_configure
from tests.helpers import spark_builder
from tests.memory.limits import MIB, Load, reader_limit, worker_limit
from tests.memory.preload import preload
from tests.memory.watch import READER, WORKER, Watch
from tests.spark.support import Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEADLINE_S = 1_800.0


@dataclass(frozen=True)
class Backlog:
    """The messages in the queue, and their groups; `messages` and `bytes` are the options of the query."""

    what: str
    count: int
    size: int
    groups: int
    messages: int = 20_000
    bytes: int = 64 * MIB
    partitions: int = 8
    delete_after: str = "commit"


IDLE = Backlog("10 messages", 10, 20, 10)
# In the order of what they take, for a worker goes on from one to the next.
BACKLOGS = (
    Backlog("2,000 of 500 bytes", 2_000, 500, 2_000),
    Backlog("200,000 of 500 bytes", 200_000, 500, 20_000),
    Backlog("100,000 of 500, journal", 100_000, 500, 50, delete_after="journal"),
    Backlog("100,000 of 1 byte", 100_000, 1, 100_000, messages=50_000),
    Backlog("300 of 1 MB, journal", 300, 1_000_000, 3, delete_after="journal"),
    # Few messages get one partition, which then has all bytes to itself.
    Backlog("150 of 1 MB", 150, 1_000_000, 150, partitions=1),
)


def session(home: Path) -> SparkSession:
    builder = spark_builder("local[2]", home).config("spark.driver.memory", "2g")
    return builder.config("spark.log.level", "ERROR").getOrCreate()


def drain(spark: SparkSession, home: Path, backlog: Backlog) -> tuple[int, int, float]:
    """Drain the backlog by a query of its own. Return the peaks of reader and worker, and the seconds it took."""
    with LocalQueueServer() as server:
        home.mkdir()
        rig = Rig(spark, server, home)
        preload(server, rig.url, backlog.count, backlog.size, backlog.groups)
        source = rig.source(
            maxMessagesPerTrigger=backlog.messages,
            maxBytesPerTrigger=backlog.bytes,
            numPartitions=backlog.partitions,
            maxFetchSeconds=30,
            deleteAfter=backlog.delete_after,
        )
        began = SYSTEM_CLOCK.monotonic()
        with Watch() as watch, rig.to_parquet(source) as query:
            rig.drain(query, timeout_s=DEADLINE_S)
        return watch.peak(READER), watch.peak(WORKER), SYSTEM_CLOCK.monotonic() - began


def main(chosen: list[str]) -> int:
    pytest_configure()
    with tempfile.TemporaryDirectory(prefix="sqs-fifo-memory-") as directory:
        home = Path(directory)
        spark = session(home)
        idle_reader, idle_worker, _ = drain(spark, home / "idle", IDLE)
        print(f"MiB             idle: reader {idle_reader / MIB:.0f}, worker {idle_worker / MIB:.0f}", flush=True)
        print(f"{'backlog':22} {'s':>5}  {'process':8} {'peak':>5} {'limit':>6} {'of it':>6}", flush=True)
        is_broken = False
        for number, backlog in enumerate(BACKLOGS):
            if chosen and str(number) not in chosen:
                continue
            reader, worker, seconds = drain(spark, home / str(number), backlog)
            deletes = backlog.delete_after == "journal"
            load = Load(backlog.messages, backlog.bytes, backlog.partitions, backlog.size, deletes=deletes)
            pairs = (READER, reader, reader_limit(idle_reader, load)), (WORKER, worker, worker_limit(idle_worker, load))
            for role, peak, limit in pairs:
                is_broken |= not 0 < peak <= limit
                line = f"{backlog.what:22} {seconds:5.0f}  {role:8} {peak / MIB:5.0f} {limit / MIB:6.0f}"
                print(f"{line} {peak / limit:6.0%}", flush=True)
        spark.stop()
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
