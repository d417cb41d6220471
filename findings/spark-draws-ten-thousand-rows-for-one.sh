#!/usr/bin/env bash
# pyspark 4.3.0, Python Data Source API; needs Java 17
# Bet: the generator of read() is asked for rows as they are wanted, so limit(1) or isEmpty() draws a few.
# Behaviour: Spark draws 10,000 rows (`spark.sql.execution.arrow.maxRecordsPerBatch`) of a partition before it looks at
#   the first, and then more until its buffers are full: of small rows, 30,000 to 80,000 were drawn for limit(1).
# Cost: a read() that receives from a queue as it goes receives 10,000 messages for isEmpty(), such as the one at the
#   head of a foreachBatch function, and again for the write that follows. Nobody else gets them until they are visible
#   again, and each has one receive less before the dead-letter queue. Set that option low for such a source, or bound
#   the partition.
# Seen: limit(1): 1 row, at least 10,000 drawn
#       isEmpty() in foreachBatch: at least 10,000 drawn
#       limit(1) with maxRecordsPerBatch 10: 1 row, fewer drawn
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

# How many rows were drawn; the readers run in other processes.
DRAWN = pathlib.Path("drawn").resolve()


def rows():
    drawn = 0
    try:
        for drawn in range(1, 1_000_001):
            yield ("x" * 1000,)
    finally:
        DRAWN.write_text(str(drawn))


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "body STRING"

    def reader(self, schema):
        return Reader()

    def streamReader(self, schema):
        return StreamReader()


class Reader(DataSourceReader):
    def read(self, partition):
        yield from rows()


class StreamReader(DataSourceStreamReader):
    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self):
        return {"at": 1}

    def partitions(self, start, end):
        return [InputPartition(0)]

    def read(self, partition):
        yield from rows()


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Source)


def drawn():
    deadline = time.monotonic() + 60
    while not DRAWN.exists() or not DRAWN.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    count = int(DRAWN.read_text())
    DRAWN.unlink()
    return count


def limit():
    assert len(spark.read.format("source").load().limit(1).collect()) == 1
    return drawn()


def is_empty():
    write = spark.readStream.format("source").load().writeStream.trigger(availableNow=True)
    query = write.foreachBatch(lambda rows, batch: rows.isEmpty()).option("checkpointLocation", "checkpoint")
    query.start().awaitTermination()
    return drawn()


counts = [limit(), is_empty()]
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
counts.append(limit())
spark.stop()
said = ["at least 10,000 drawn" if count >= 10_000 else "fewer drawn" for count in counts]
with open("seen", "w") as seen:
    print("limit(1): 1 row,", said[0], file=seen)
    print("isEmpty() in foreachBatch:", said[1], file=seen)
    print("limit(1) with maxRecordsPerBatch 10: 1 row,", said[2], file=seen)
print(counts)
sys.exit(said != ["at least 10,000 drawn"] * 2 + ["fewer drawn"])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
