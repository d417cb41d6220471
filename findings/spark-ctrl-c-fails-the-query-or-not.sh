#!/usr/bin/env bash
# pyspark 4.3.0, Ctrl-C beside a stream; needs Java 17
# Bet: Ctrl-C raises KeyboardInterrupt in the main thread, and the query goes on until the program stops it or ends,
#   wherever the main thread was.
# Behaviour: the handler of PySpark first cancels all jobs. If the main thread was in Python, as in sleep(), a query
#   that has a task at work fails, and one that is idle goes on. If it was in awaitTermination(), the connection to the
#   JVM is in use, the cancel fails ("reentrant call"), and the query goes on with its task.
# Cost: a program that catches KeyboardInterrupt to let the micro-batch end, and then stops the query, does so only if
#   it waits in awaitTermination(). With a loop of isActive and sleep() it finds a failed query, its messages stay
#   hidden until they lapse, and an alarm goes off, but not in a test on a quiet queue. Once there is a session, set
#   Python's own handler of SIGINT again.
# Seen: in awaitTermination(), a task at work: KeyboardInterrupt, the query goes on
#       in sleep(), a task at work: KeyboardInterrupt, the query has failed: SPARK_JOB_CANCELLED
#       in sleep(), no task at work: KeyboardInterrupt, the query goes on
#       in sleep(), a task at work, Python's handler: KeyboardInterrupt, the query goes on
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import os
import pathlib
import signal
import sys
import threading
import time

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

# Number of messages there are, messages read, leave for a task to read on after the first one.
NEWS, ROWS, GO_ON = (pathlib.Path(name).resolve() for name in ("news", "rows", "go on"))


def wait(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "x INT"

    def streamReader(self, schema):
        return Reader()


class Reader(DataSourceStreamReader):
    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self):
        return {"at": int(NEWS.read_text())}

    def partitions(self, start, end):
        return [InputPartition(range(start["at"], end["at"]))]

    def read(self, partition):
        for x in partition.value:
            with open(ROWS, "a") as rows:
                rows.write(f"{x}\n")
            wait(GO_ON.exists)
            yield (x,)


def rows():
    return ROWS.read_text().split()


def press():
    """Interrupt the whole group of processes, as a terminal does, once the main thread has come to wait."""
    time.sleep(3)
    os.killpg(0, signal.SIGINT)


# A group of its own, so that nobody else is interrupted.
os.setpgrp()
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Source)


def case(place, task, name):
    for file in (ROWS, GO_ON):
        file.unlink(missing_ok=True)
    ROWS.touch()
    NEWS.write_text("2" if task else "0")
    stream = spark.readStream.format("source").load().writeStream.format("noop")
    query = stream.option("checkpointLocation", f"checkpoint {name}").start()
    assert wait(rows if task else lambda: query.status["message"] != "Initializing sources")
    threading.Thread(target=press).start()
    try:
        if place == "awaitTermination()":
            query.awaitTermination()
        else:
            time.sleep(60)
    except KeyboardInterrupt:
        seen = "KeyboardInterrupt, "
    wait(lambda: not query.isActive, 5)
    GO_ON.touch()
    NEWS.write_text("2")
    wait(lambda: not query.isActive or rows() == ["0", "1"])
    if query.isActive:
        seen += "the query goes on"
        query.stop()
    else:
        seen += f"the query has failed: {str(query.exception())[1:].split(']')[0]}"
    return seen


seen = {}
for place, task in (("awaitTermination()", True), ("sleep()", True), ("sleep()", False)):
    name = f"in {place}, {'a' if task else 'no'} task at work"
    seen[name] = case(place, task, name)
signal.signal(signal.SIGINT, signal.default_int_handler)
name = "in sleep(), a task at work, Python's handler"
seen[name] = case("sleep()", True, name)
spark.stop()
with open("seen", "w") as file:
    for label, result in seen.items():
        print(f"{label}: {result}", file=file)
goes_on, fails = "KeyboardInterrupt, the query goes on", "KeyboardInterrupt, the query has failed: SPARK_JOB_CANCELLED"
sys.exit(list(seen.values()) != [goes_on, fails, goes_on, goes_on])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
