#!/usr/bin/env bash
# pyspark 4.3.0, Python Data Source API for streams; needs Java 17
# Bet: a source is told to commit a micro-batch once it is done, at the latest when the query ends or starts again.
# Behaviour: the call comes while the next micro-batch is made. The last one of an AvailableNow query is not committed,
#   and neither does a restart, which knows from its log that it is done, until there is something new to read.
# Cost: a job that runs each hour and deletes in `commit` what it has read deletes it one run later, or days later on a
#   quiet queue. Receipt handles have lapsed by then, and the queue gives the messages out again.
# Seen: first run: read 1
#       a run without news: nothing
#       a run with news: commit 1, read 2
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import pathlib
import sys

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

# How far the source is, and the calls to it; its reader runs in another process.
END, CALLS = pathlib.Path("end").resolve(), pathlib.Path("calls").resolve()


def note(call):
    with open(CALLS, "a") as calls:
        calls.write(f"{call}\n")


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "x INT"

    def streamReader(self, schema):
        return Reader()


class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
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
        note(f"commit {end['at']}")


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Source)


def run(end):
    END.write_text(str(end))
    CALLS.write_text("")
    rows = spark.readStream.format("source").load()
    query = rows.writeStream.format("noop").trigger(availableNow=True)
    query.option("checkpointLocation", "checkpoint").start().awaitTermination()
    return ", ".join(CALLS.read_text().split("\n")[:-1]) or "nothing"


seen = {"first run": run(1), "a run without news": run(1), "a run with news": run(2)}
spark.stop()
with open("seen", "w") as file:
    for what, calls in seen.items():
        print(f"{what}: {calls}", file=file)
sys.exit(list(seen.values()) != ["read 1", "nothing", "commit 1, read 2"])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
