#!/usr/bin/env bash
# pyspark 4.3.0, Python Data Source API for streams; needs Java 17
# Bet: a source's commit() that raises is called again for the same offset once the query runs again, and query.stop()
#   waits for one that is at work.
# Behaviour: Spark has written down the next micro-batch before it commits the last one. If commit() raises, the query
#   ends, and the restart goes on with that micro-batch: the next call is for its end. query.stop() is back at once,
#   the commit is cut in the middle with its process, and is never called again either.
# Cost: a source that deletes in `commit` what it has read up to that offset since the last call leaves a micro-batch
#   in the queue, or half of one, which comes again as soon as it is visible. One throttled call or one deployment is
#   enough. In each commit, delete everything below the offset that is not known as deleted.
# Seen: commit 1 raises: read 1; commit 1 begins, raises; read 2; commit 2 begins, ends, read 3
#       query.stop() in commit 1: read 1; commit 1 begins; read 2; commit 2 begins, ends, read 3
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import os
import pathlib
import sys
import time

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

# How far the source is, and the calls to it; its reader runs in another process, whose id it writes down.
END, CALLS, PROCESS = (pathlib.Path(name).resolve() for name in ("end", "calls", "process"))


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
        return Reader(self.options["first"])


class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, first):
        self.first = first

    def prepareForTriggerAvailableNow(self):
        pass

    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self, start, limit):
        return {"at": int(END.read_text())}

    def partitions(self, start, end):
        return [InputPartition(number) for number in range(start["at"], end["at"])]

    def read(self, partition):
        note(f"read {partition.value + 1}")
        yield (partition.value + 1,)

    def commit(self, end):
        note(f"commit {end['at']} begins")
        if end == {"at": 1} and self.first == "raises":
            note("raises")
            raise OSError("no connection")
        if end == {"at": 1} and self.first == "waits":
            PROCESS.write_text(str(os.getpid()))
            time.sleep(300)
        note("ends")


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Source)


def start(first, end, **trigger):
    END.write_text(str(end))
    CALLS.write_text("")
    rows = spark.readStream.format("source").option("first", first).load()
    query = rows.writeStream.format("noop").trigger(**trigger)
    return query.option("checkpointLocation", f"checkpoint {first}").start()


def called():
    return ", ".join(CALLS.read_text().split("\n")[:-1])


def run(first, end):
    try:
        start(first, end, availableNow=True).awaitTermination()
    except StreamingQueryException as error:
        assert "no connection" in str(error), error
    return called()


def stop_in_commit():
    query = start("waits", 2, processingTime="0 seconds")
    wait(lambda: "commit 1 begins" in CALLS.read_text())
    query.stop()
    wait(lambda: not pathlib.Path("/proc", PROCESS.read_text()).exists())
    return called()


seen = {
    "commit 1 raises": [run("raises", 1), run("raises", 2), run("raises", 2), run("raises", 3)],
    "query.stop() in commit 1": [run("waits", 1), stop_in_commit(), run("waits", 2), run("waits", 3)],
}
spark.stop()
with open("seen", "w") as file:
    for what, runs in seen.items():
        print(f"{what}:", "; ".join(runs), file=file)
then = ["read 2", "commit 2 begins, ends, read 3"]
sys.exit(list(seen.values()) != [["read 1", "commit 1 begins, raises", *then], ["read 1", "commit 1 begins", *then]])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
