#!/usr/bin/env bash
# pyspark 4.3.0, limit() on a stream, with a Python source; needs Java 17
# Bet: once a streaming query has given the rows of its limit, it ends, or its source is asked for nothing more. What
#   the sink did not get is not committed to the source.
# Behaviour: the query goes on. It asks for further offsets, reads their rows, gives the sink empty batches, and commits
#   all of it to the source, as if the sink had it. So it does with the rest of the batch in which the limit was
#   reached.
# Cost: the limit is that of the query, not of a batch. A source that deletes from a queue, or moves a cursor, on commit
#   loses everything that comes after it, and the query is green: a look at the first hundred of a live queue empties
#   the queue. Limit what a batch takes with the source's own option, and end the query.
# Seen: sink: 10 rows, 5 rows, 0 rows, 0 rows
#       committed to the source: 10, 20, 30, 40
#       query active: True
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import sys
import threading

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

STEP, LIMIT, BATCHES = 10, 15, 4


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "x INT"

    def streamReader(self, schema):
        return Reader()


class Reader(DataSourceStreamReader):
    at = 0

    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self):
        # One offset more than batches are looked at: a batch is committed when the next one is planned.
        self.at = min(self.at + STEP, STEP * (BATCHES + 1))
        return {"at": self.at}

    def partitions(self, start, end):
        return [InputPartition((start["at"], end["at"]))]

    def read(self, partition):
        for x in range(*partition.value):
            yield (x,)

    def commit(self, end):
        with open("commits", "a") as commits:
            print(end["at"], file=commits)


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "1")
    .getOrCreate()
)
spark.dataSource.register(Source)
counts = []
last = threading.Event()


def keep(rows, batch):
    counts.append(rows.count())
    if batch == BATCHES:
        last.set()


query = spark.readStream.format("source").load().limit(LIMIT).writeStream.foreachBatch(keep)
query = query.option("checkpointLocation", "checkpoint").start()
assert last.wait(300), query.exception()
active = query.isActive
with open("commits") as commits:
    committed = [int(at) for at in commits]
query.stop()
spark.stop()
with open("seen", "w") as seen:
    print("sink:", ", ".join(f"{count} rows" for count in counts[:BATCHES]), file=seen)
    print("committed to the source:", ", ".join(map(str, committed[:BATCHES])), file=seen)
    print("query active:", active, file=seen)
every = [STEP * (batch + 1) for batch in range(BATCHES)]
sys.exit(counts[:BATCHES] != [10, 5, 0, 0] or committed[:BATCHES] != every or not active)
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" run.py >log 2>&1 || { cat seen || tail -5 log; exit 1; }
cat seen
