#!/usr/bin/env bash
# pyspark 4.0.1, Python Data Source API for streams; needs Java 17
# Bet: a new query asks its source where it begins (`initialOffset`) before it asks how far it can go (`latestOffset`).
# Behaviour: `latestOffset` comes first. A source that makes or checks its place in `initialOffset` has none by then,
#   and cannot tell a new query from a restart that has not yet said where it is.
# Seen: latestOffset initialOffset partitions
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.0.1 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import os

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

SEEN = os.environ["SEEN"]


def note(call):
    with open(SEEN, "a") as seen:
        seen.write(f"{call}\n")


class Probe(DataSource):
    @classmethod
    def name(cls):
        return "probe"

    def schema(self):
        return "x INT"

    def streamReader(self, schema):
        return Reader()


class Reader(DataSourceStreamReader):
    def initialOffset(self):
        note("initialOffset")
        return {"at": 0}

    def latestOffset(self):
        note("latestOffset")
        return {"at": 1}

    def partitions(self, start, end):
        note("partitions")
        return [InputPartition(1)]

    def read(self, partition):
        yield (partition.value,)


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Probe)
rows = spark.readStream.format("probe").load()
query = rows.writeStream.format("memory").queryName("t").trigger(once=True)
query.option("checkpointLocation", os.environ["CHECKPOINT"]).start().awaitTermination()
assert spark.table("t").count() == 1
spark.stop()
PY
cd "$place"
export SEEN="$place/seen" CHECKPOINT="$place/checkpoint"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { tail -5 "$place/log"; exit 1; }
# Each call as it came first.
order=$(awk '!known[$0]++' "$place/seen" | paste -sd " ")
echo "$order"
test "$order" = "latestOffset initialOffset partitions"
