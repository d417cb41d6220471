#!/usr/bin/env bash
# pyspark 4.3.0, Python Data Source API for streams; needs Java 17
# Bet: the generator of read() is closed when Spark wants no more of it, be it for a limit or for query.stop(), and the
#   reader's stop() is called when a query ends, as its docstring says.
# Behaviour: a limit closes the generator. With query.stop() the process that reads is gone at once: no `finally` and
#   no `with` of read() is left in order. At the end of an AvailableNow query the driver's Python process goes, and stop()
#   has not run.
# Cost: a reader that gives messages back, or a lease or a lock, in `finally` or in stop() gives back nothing: they are
#   hidden until they lapse, and a query that starts at once waits for them. What must be released needs an end of its
#   own, like a visibility timeout.
# Seen: limit(1): read finally
#       query.stop() while a task reads: read
#       end of AvailableNow: nothing
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import pathlib
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

# The calls to the source, which run in other processes.
CALLS = pathlib.Path("calls").resolve()


def note(call):
    with open(CALLS, "a") as calls:
        calls.write(f"{call}\n")


def calls():
    return CALLS.read_text().split("\n")[:-1]


def rows(pause):
    note("read")
    try:
        for number in range(100_000):
            time.sleep(pause)
            yield (number,)
    finally:
        note("finally")


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "x INT"

    def reader(self, schema):
        return Reader()

    def streamReader(self, schema):
        return StreamReader(self.options.get("pause"))


class Reader(DataSourceReader):
    def read(self, partition):
        yield from rows(0)


class StreamReader(DataSourceStreamReader):
    def __init__(self, pause):
        self.pause = pause

    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self):
        return {"at": 1}

    def partitions(self, start, end):
        return [InputPartition(0)]

    def read(self, partition):
        if self.pause is not None:
            yield from rows(float(self.pause))

    def stop(self):
        note("stop")


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Source)


def limit():
    assert len(spark.read.format("source").load().limit(1).collect()) == 1


def stop():
    read = spark.readStream.format("source").option("pause", "0.01").load()
    query = read.writeStream.format("noop").option("checkpointLocation", "checkpoint stop").start()
    while not calls():
        time.sleep(0.1)
    query.stop()


def end():
    write = spark.readStream.format("source").load().writeStream.format("noop").trigger(availableNow=True)
    write.option("checkpointLocation", "checkpoint end").start().awaitTermination()


def run(case):
    CALLS.write_text("")
    case()
    time.sleep(3)
    return " ".join(calls()) or "nothing"


seen = {"limit(1)": run(limit), "query.stop() while a task reads": run(stop), "end of AvailableNow": run(end)}
spark.stop()
with open("seen", "w") as file:
    for what, called in seen.items():
        print(f"{what}: {called}", file=file)
sys.exit(list(seen.values()) != ["read finally", "read", "nothing"])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
