#!/usr/bin/env bash
# pyspark[pipelines] 4.3.0, spark-pipelines run (known: SPARK-59135, apache/spark pull request 58435); needs Java 17
# Bet: a declarative pipeline whose streaming table reads a Python data source ends with exit code 0 when its run is
#   completed.
# Behaviour: the table has its rows and "Run is COMPLETED." is logged. Then the command takes an empty report of a
#   profiler, which each Python process of a source sends though nobody has asked for a profile, for a malformed answer:
#   UNKNOWN_RESPONSE, exit code 1.
# Cost: a job that runs the pipeline each hour counts as failed each time. Where it is retried, or a next step waits for
#   it, it runs again for nothing, and real failures have the same code. Look for "Run is COMPLETED." in its output.
# Seen: spark-pipelines run: exit code 1, Run is COMPLETED., then UNKNOWN_RESPONSE; the table has 5 rows, committed
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check "pyspark[pipelines]==4.3.0" grpcio==1.85.3 \
    grpcio-status==1.85.3 pyarrow==21.0.0 pandas==2.2.3
cd "$place"
cat > spark-pipeline.yml <<YAML
name: queue
storage: file://$place/storage
libraries:
  - glob:
      include: definitions/**
YAML
mkdir definitions
cat > definitions/table.py <<'PY'
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

spark = SparkSession.active()


class Source(DataSource):
    @classmethod
    def name(cls):
        return "source"

    def schema(self):
        return "n INT"

    def streamReader(self, schema):
        return Reader()


class Reader(DataSourceStreamReader):
    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self):
        return {"at": 5}

    def partitions(self, start, end):
        return [InputPartition(0)]

    def read(self, partition):
        return ((n,) for n in range(5))


spark.dataSource.register(Source)


@dp.table
def messages():
    return spark.readStream.format("source").load()
PY
cat > check.py <<'PY'
import pathlib
import sys

import pyarrow.parquet

_, code = sys.argv
log = pathlib.Path("log").read_text()
said = [word for word in ("Run is COMPLETED.", "UNKNOWN_RESPONSE") if word in log]
assert said == sorted(said, key=log.index)
files = pathlib.Path("spark-warehouse/messages").glob("*.parquet")
rows = sum(pyarrow.parquet.read_table(file).num_rows for file in files)
commits = list(pathlib.Path("storage").rglob("commits/0"))
seen = f"exit code {code}, {', then '.join(said)}; the table has {rows} rows{', committed' * bool(commits)}"
print(f"spark-pipelines run: {seen}")
expected = "exit code 1, Run is COMPLETED., then UNKNOWN_RESPONSE; the table has 5 rows, committed"
sys.exit(seen != expected)
PY
export PYSPARK_PYTHON="$place/venv/bin/python" PYSPARK_DRIVER_PYTHON="$place/venv/bin/python" SPARK_LOCAL_IP=127.0.0.1
code=0
PATH="$place/venv/bin:$PATH" "$place/venv/bin/spark-pipelines" run >log 2>&1 || code=$?
"$place/venv/bin/python" check.py "$code" || { tail -5 log; exit 1; }
