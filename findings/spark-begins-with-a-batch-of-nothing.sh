#!/usr/bin/env bash
# pyspark 4.3.0, Python Data Source API for streams, source and sink; needs Java 17
# Bet: a stream whose source is where it begins has no micro-batch, as it has none later while nothing is new. And a
#   micro-batch for which partitions() returns an empty list has no task, so that write() of a sink is not called.
# Behaviour: the first micro-batch comes even if latestOffset() returns initialOffset(): it is planned from there to
#   there. Later ones are left out. Without partitions, Spark gives the sink one task without rows, which calls write()
#   and returns a message; the sink commits batch 0.
# Cost: a source that takes equal offsets for an error, or a range of none for "all", meets them on an empty queue only.
#   A sink that writes a file or a row in each write() or commit() writes one for each query that finds nothing.
# Seen: partitions 0 to 0, write 0 rows, commit batch 0 with 1 message
#       ten more looks at nothing: nothing
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
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter, WriterCommitMessage

# The calls, and those of latestOffset(), both in other processes.
CALLS, LOOKS = pathlib.Path("calls").resolve(), pathlib.Path("looks").resolve()


def note(call, file=CALLS):
    with open(file, "a") as calls:
        calls.write(f"{call}\n")


class Ends(DataSource):
    @classmethod
    def name(cls):
        return "ends"

    def schema(self):
        return "x INT"

    def streamReader(self, schema):
        return Reader()

    def streamWriter(self, schema, overwrite):
        return Writer()


class Reader(DataSourceStreamReader):
    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self, start, limit):
        note("look", LOOKS)
        return {"at": 0}

    def partitions(self, start, end):
        note(f"partitions {start['at']} to {end['at']}")
        return []

    def read(self, partition):
        note("read")
        yield (1,)


class Writer(DataSourceStreamWriter):
    def write(self, rows):
        note(f"write {len(list(rows))} rows")
        return WriterCommitMessage()

    def commit(self, messages, batchId):
        note(f"commit batch {batchId} with {len(messages)} message")


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Ends)
rows = spark.readStream.format("ends").load()
query = rows.writeStream.format("ends").option("checkpointLocation", "checkpoint").start()
query.processAllAvailable()
first = CALLS.read_text().split("\n")[:-1]
looks, deadline = len(LOOKS.read_text()), time.monotonic() + 120
while len(LOOKS.read_text()) < looks + 10 * len("look\n") and time.monotonic() < deadline:
    query.awaitTermination(1)
query.stop()
spark.stop()
seen = [", ".join(first), f"ten more looks at nothing: {', '.join(CALLS.read_text().splitlines()[len(first) :]) or 'nothing'}"]
with open("seen", "w") as file:
    print(*seen, sep="\n", file=file)
expected = ["partitions 0 to 0, write 0 rows, commit batch 0 with 1 message", "ten more looks at nothing: nothing"]
sys.exit(seen != expected)
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
