#!/usr/bin/env bash
# pyspark 4.3.0, `observe` on a stream with foreachBatch; needs Java 17
# Bet: the metrics of a micro-batch are over its rows: "on all the data that is flowing through the Dataset at that
#   point" until the end of the epoch. If the function reads its rows twice, they are counted once or twice.
# Behaviour: each action of the function counts anew, and the last one stands. After a write of 1,000 rows, isEmpty()
#   for a log line leaves a count of 1. numInputRows of the same report adds all actions up, as 4.2.0 did with the
#   metrics, too: 1,001 there.
# Cost: the count that is to prove that what was read has been written, or a sum of money beside it, says 1 of 1,000,
#   or 5 after a look at five rows, and an alarm compares the wrong number. The order of two lines decides. Look at the
#   rows before they are written, or observe the DataFrame that is written.
# Seen: write: observed 1000, numInputRows 1000
#       write, write: observed 1000, numInputRows 2000
#       isEmpty, write: observed 1000, numInputRows 1001
#       write, isEmpty: observed 1, numInputRows 1001
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import sys

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.functions import count, lit


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
        for x in range(1000):
            yield (x,)


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(Source)
ACTIONS = {
    "write": lambda rows: rows.write.format("noop").mode("append").save(),
    "isEmpty": lambda rows: rows.isEmpty(),
}


def run(case):
    def function(rows, batch):
        for action in case.split(", "):
            ACTIONS[action](rows)

    rows = spark.readStream.format("source").load().observe("metrics", count(lit(1)).alias("rows"))
    query = rows.writeStream.foreachBatch(function).trigger(availableNow=True)
    query = query.option("checkpointLocation", f"checkpoint {case}").start()
    query.awaitTermination()
    return query.lastProgress.observedMetrics["metrics"].rows, query.lastProgress.numInputRows


seen = {case: run(case) for case in ("write", "write, write", "isEmpty, write", "write, isEmpty")}
spark.stop()
with open("seen", "w") as file:
    for case, (observed, read) in seen.items():
        print(f"{case}: observed {observed}, numInputRows {read}", file=file)
sys.exit(list(seen.values()) != [(1000, 1000), (1000, 2000), (1000, 1001), (1, 1001)])
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
