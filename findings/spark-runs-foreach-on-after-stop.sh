#!/usr/bin/env bash
# pyspark 4.3.0, `foreach` of a stream; needs Java 17
# Bet: once query.stop() is back, no task of the query writes, so the query can be started again.
# Behaviour: stop() is back at once, and the task counts as ended. The Python process of a foreach writer is neither
#   killed nor told: it goes on with all rows that it has been handed, for minutes if they are slow, and closes with
#   close(None), as after a success.
# Cost: a restart, or a deployment that stops and starts queries, has two writers at work on the same rows. The late
#   one sends each of them again, behind what the new run has written since: the order of a key is lost, and an older
#   value overwrites a newer one. Fence the old run in the target, by the batch id or a run id, or write in
#   foreachBatch.
# Seen: first run: row 1
#       first run: row 2
#       stop() is back
#       second run: row 1 ... row 4, close(None), is over
#       first run: row 3
#       first run: row 4
#       first run: close(None)
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
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

# The calls to the writers, which run in other processes, and the leave for the first one to go on.
CALLS, GO_ON = pathlib.Path("calls").resolve(), pathlib.Path("go on").resolve()


def note(call):
    with open(CALLS, "a") as calls:
        calls.write(f"{call}\n")


def wait(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


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
        return {"at": 1}

    def partitions(self, start, end):
        return [InputPartition(0)]

    def read(self, partition):
        for x in range(1, 5):
            yield (x,)


class Writer:
    def __init__(self, run):
        self.run = run

    def open(self, partition, epoch):
        return True

    def process(self, row):
        note(f"{self.run}: row {row.x}")
        if (self.run, row.x) == ("first run", 2):
            wait(GO_ON.exists)

    def close(self, error):
        note(f"{self.run}: close({error})")


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Source)
CALLS.touch()


def start(run, **trigger):
    writer = spark.readStream.format("source").load().writeStream.foreach(Writer(run)).trigger(**trigger)
    return writer.option("checkpointLocation", "checkpoint").start()


first = start("first run", processingTime="0 seconds")
wait(lambda: "first run: row 2" in CALLS.read_text())
first.stop()
assert not first.isActive
note("stop() is back")
start("second run", availableNow=True).awaitTermination()
note("second run: is over")
GO_ON.touch()
try:
    wait(lambda: "first run: close" in CALLS.read_text())
except AssertionError:
    note("nothing more")
spark.stop()
calls = CALLS.read_text().split("\n")[:-1]
with open("seen", "w") as seen:
    print(*calls, sep="\n", file=seen)
expected = ["first run: row 1", "first run: row 2", "stop() is back"]
expected += [f"second run: row {x}" for x in range(1, 5)]
expected += ["second run: close(None)", "second run: is over"]
expected += ["first run: row 3", "first run: row 4", "first run: close(None)"]
sys.exit(calls != expected)
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
