#!/usr/bin/env bash
# pyspark 4.3.0, Python Data Source API for streams; needs Java 17
# Bet: a streaming DataFrame that is joined with itself is read as one that is united with itself: by one reader, or by
#   two, whatever its columns are called.
# Behaviour: a union has one stream reader, in one process. A join has two, unless every column of one side has a new
#   name: then it has one. With one column less renamed, it has two again.
# Cost: a source that takes, locks or deletes what it reads serves each row to one side of the join alone, and the two
#   do not know of each other. That shows as rows that are missing, and an alias in a select mends or breaks it. Rename
#   all columns of one side, or join within foreachBatch.
# Seen: readers: union 1, join 2, join with one column renamed 2, join with all columns renamed 1
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import os
import pathlib

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.functions import col

READERS = pathlib.Path("readers").resolve()


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "k INT, v INT"

    def streamReader(self, schema):
        return Reader()


class Reader(DataSourceStreamReader):
    def initialOffset(self):
        with open(READERS, "a") as readers:
            readers.write(f"{os.getpid()}\n")
        return {"end": 0}

    def latestOffset(self, start=None, limit=None):
        return {"end": 3}

    def partitions(self, start, end):
        return [InputPartition((start["end"], end["end"]))]

    def read(self, partition):
        begin, end = partition.value
        yield from ((number, number) for number in range(begin, end))


spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.log.level", "OFF")
    .getOrCreate()
)
spark.dataSource.register(Source)
stream = spark.readStream.format("source").load()
one, every = stream.withColumnRenamed("k", "k2"), stream.select(col("k").alias("k2"), col("v").alias("v2"))
ways = {
    "union": stream.union(stream),
    "join": stream.alias("a").join(stream.alias("b"), col("a.k") == col("b.k")).select("a.k"),
    "join with one column renamed": stream.alias("a").join(one.alias("b"), col("a.k") == col("b.k2")).select("a.k"),
    "join with all columns renamed": stream.join(every, col("k") == col("k2")).select("k"),
}
counts = []
for number, (way, frame) in enumerate(ways.items()):
    READERS.write_text("")
    query = (
        frame.writeStream.format("noop").option("checkpointLocation", f"checkpoint-{number}").trigger(availableNow=True)
    ).start()
    query.awaitTermination()
    counts.append(f"{way} {len(set(READERS.read_text().split()))}")
print("readers: " + ", ".join(counts))
PY
expected="readers: union 1, join 2, join with one column renamed 2, join with all columns renamed 1"
cd "$place"
seen=$(PYSPARK_PYTHON="$place/venv/bin/python" "$place/venv/bin/python" run.py 2> "$place/log") || { cat "$place/log" >&2; exit 1; }
echo "$seen"
[ "$seen" = "$expected" ]
