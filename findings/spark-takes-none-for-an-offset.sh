#!/usr/bin/env bash
# pyspark 4.3.0, Python Data Source API for streams; needs Java 17
# Bet: a latestOffset() that returns None says that there is nothing new, as a null of a source in Java
#   does, or it is an error: an offset is "a dict or recursive dict whose key and value are primitive types".
# Behaviour: None is an offset. It is logged as null, the micro-batch up to it is planned, read and committed, and the
#   next one begins at it.
# Cost: a source that returns None while it has nothing forgets where it was: the next micro-batch begins at None, so it
#   begins anew, or fails in a place that says nothing of latestOffset(). The checkpoint has the null by then.
# Seen: partitions {'at': 0} to {'at': 1}, partitions {'at': 1} to None, commit None, partitions None to {'at': 2}
#       offset log: {"at": 1}, null, {"at": 2}
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

# The answer of latestOffset(), and the calls; the reader runs in another process.
LATEST, CALLS = pathlib.Path("latest").resolve(), pathlib.Path("calls").resolve()


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


class Reader(DataSourceStreamReader):
    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self, start, limit):
        at = LATEST.read_text()
        return {"at": int(at)} if at else None

    def partitions(self, start, end):
        note(f"partitions {start} to {end}")
        return [InputPartition(1)]

    def read(self, partition):
        yield (1,)

    def commit(self, end):
        if end is None:
            note("commit None")


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Source)
LATEST.write_text("1")
rows = spark.readStream.format("source").load()
query = rows.writeStream.format("noop").option("checkpointLocation", "checkpoint").start()
query.processAllAvailable()
for latest in ("", "2"):
    LATEST.write_text(latest)
    query.processAllAvailable()
query.stop()
spark.stop()
offsets = [path.read_text().split("\n")[-1] for path in sorted(pathlib.Path("checkpoint/offsets").glob("[0-9]"))]
seen = [", ".join(CALLS.read_text().split("\n")[:-1]), "offset log: " + ", ".join(offsets)]
with open("seen", "w") as file:
    print(*seen, sep="\n", file=file)
calls = (
    "partitions {'at': 0} to {'at': 1}, partitions {'at': 1} to None, commit None, partitions None to {'at': 2}"
)
sys.exit(seen != [calls, 'offset log: {"at": 1}, null, {"at": 2}'])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
