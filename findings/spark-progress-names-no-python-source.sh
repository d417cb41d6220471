#!/usr/bin/env bash
# pyspark 4.3.0, progress reports of Python stream readers; needs Java 17
# Bet: the description of a source in a progress report says what is read, as with Spark's own sources, and is the same
#   after a restart: it has the name() of the data source, its options, or the name that readStream.name() gave it.
# Behaviour: it is the name of a Java class and a hash of the object, the same class for all Python sources, and another
#   hash in each run. Nothing that a Python source can return or set gets into it, and name() does not either.
# Cost: a listener that keeps lag and rows by description, as one for the file or Kafka source does, cannot tell two
#   queues of one query apart, and has new series after each restart, while an alarm waits for those that have ended.
#   Let reportLatestOffset(), or the offset itself, say which queue it is of.
# Seen: org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@33d9b570, after a restart another
#       org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@7fae78e6, after a restart another
#       RateStreamV2[rowsPerSecond=1, rampUpTimeSeconds=0, numPartitions=default, after a restart the same
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==21.0.0 pandas==2.2.3
cat > "$place/run.py" <<'PY'
import re
import sys

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "x BIGINT"

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
        yield (1,)


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
    .getOrCreate()
)
spark.dataSource.register(Source)


def descriptions():
    """Of the sources of a query that starts, or starts again, on the one checkpoint."""
    a, b = (spark.readStream.format("source").option("queue", queue).name(queue).load() for queue in "ab")
    rate = spark.readStream.format("rate").name("rate").load().select("value")
    query = a.union(b).union(rate).writeStream.format("noop").option("checkpointLocation", "checkpoint")
    query = query.trigger(availableNow=True).start()
    query.awaitTermination()
    return [source.description for source in query.lastProgress.sources]


first, second = descriptions(), descriptions()
spark.stop()
python = re.compile(r"org\.apache\.spark\.sql\.execution\.datasources\.v2\.python\.PythonMicroBatchStream@[0-9a-f]+")
with open("seen", "w") as file:
    for before, after in zip(first, second):
        print(f"{before}, after a restart {'the same' if after == before else 'another'}", file=file)
assert first[2] == second[2] and first[2].startswith("RateStreamV2[rowsPerSecond=1,")
assert len({*first[:2], *second[:2]}) == 4
sys.exit(not all(python.fullmatch(description) for description in first[:2] + second[:2]))
PY
cd "$place"
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python"
"$place/venv/bin/python" "$place/run.py" >"$place/log" 2>&1 || { cat "$place/seen" || tail -5 "$place/log"; exit 1; }
cat "$place/seen"
