#!/usr/bin/env bash
# pyspark 4.3.0, Python Data Source API; needs Java 17
# Bet: a reader whose partitions() returns an empty list, for it found nothing to read, is not read.
# Behaviour: in a batch, Spark puts a partition with the value None in the place of none, as if partitions() had not been
#   written, and reads it. In a stream, an empty list reads nothing.
# Cost: a reader with one partition for each shard or object gets None where it expects one of them. If None means "all",
#   or "the default" to a client that it calls, an empty source reads something else, and nobody asked for it.
# Seen: batch: ['read InputPartition(value=None)']
#       stream: []
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import sys

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "value STRING"

    def reader(self, schema):
        return Reader()

    def streamReader(self, schema):
        return StreamReader()


class Reader(DataSourceReader):
    def partitions(self):
        return []

    def read(self, partition):
        yield (f"read {partition}",)


class StreamReader(DataSourceStreamReader):
    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self):
        return {"at": 1}

    def partitions(self, start, end):
        return []

    def read(self, partition):
        yield (f"read {partition}",)


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Source)
batch = [row.value for row in spark.read.format("source").load().collect()]
query = spark.readStream.format("source").load().writeStream.format("memory").queryName("t")
query.option("checkpointLocation", "checkpoint").trigger(availableNow=True).start().awaitTermination()
stream = [row.value for row in spark.table("t").collect()]
spark.stop()
with open("seen", "w") as seen:
    print("batch:", batch, file=seen)
    print("stream:", stream, file=seen)
sys.exit((batch, stream) != (["read InputPartition(value=None)"], []))
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
